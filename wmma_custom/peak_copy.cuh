// The ceiling of DRAM: 16-byte loads and stores over buffers several times the L2, each byte used
// once a pass and marked as such (ld.global.cs, st.global.cs: evict first).
//
// Grid: kCtasPerSm CTAs an SM. A CTA moves blocks of kVectors * kThreads * 16 contiguous bytes, a
// thread kVectors of their vectors, all loads of which are under way before the first is needed. A
// buffer holds exactly steps * gridDim.x blocks, so there is no remainder to guard. Bytes of a launch:
// passes * steps * gridDim.x * block, read, and as many written unless kReadOnly.
//
// Include after the generated parameter block (cutlass_study/peaks.py), which defines, in namespace
// cutlass_study: int kThreads, kVectors, kCtasPerSm; bool kReadOnly.
#pragma once

extern "C" __global__ void __launch_bounds__(cutlass_study::kThreads, cutlass_study::kCtasPerSm)
    peak(const uint4* __restrict__ in, uint4* __restrict__ out, int passes, int steps,
         unsigned int sentinel) {
  using namespace cutlass_study;
  unsigned int folded = 0;
#pragma unroll 1
  for (int pass = 0; pass < passes; ++pass) {
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      const long long block = (long long)step * gridDim.x + blockIdx.x;
      const long long first = block * (kVectors * kThreads) + threadIdx.x;
      uint4 values[kVectors];
#pragma unroll
      for (int i = 0; i < kVectors; ++i) values[i] = __ldcs(in + first + i * kThreads);
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        if constexpr (kReadOnly) {
          folded ^= values[i].x ^ values[i].y ^ values[i].z ^ values[i].w;
        } else {
          __stcs(out + first + i * kThreads, values[i]);
        }
      }
    }
  }
  // One thread in 2^32 stores, if the data look random; the compiler can't know and must load.
  if (kReadOnly && folded == sentinel) out[threadIdx.x].x = folded;
}
