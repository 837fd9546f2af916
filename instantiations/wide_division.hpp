// 128-bit by 64-bit division for NVRTC, which has a 128-bit integer type on Linux alone.
#pragma once

namespace cutlass_study {

// The low 64 bits of (high * 2^64 + low) / divisor, by long division. It runs a few times in one
// thread per problem (stream-K's FastDivmodU64), so a bit at a time is fast enough.
__device__ inline unsigned long long divide_128_by_64(unsigned long long high,
                                                      unsigned long long low,
                                                      unsigned long long divisor) {
  unsigned long long quotient = 0;
  unsigned long long remainder = 0;
#pragma unroll 1
  for (int bit = 127; bit >= 0; --bit) {
    bool const overflows = remainder >> 63;
    remainder = remainder << 1 | (bit >= 64 ? high >> (bit - 64) : low >> bit) & 1;
    bool const divides = overflows || remainder >= divisor;
    if (divides) remainder -= divisor;
    quotient = quotient << 1 | divides;
  }
  return quotient;
}

}  // namespace cutlass_study
