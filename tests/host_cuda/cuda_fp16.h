// FP16 for the CPU: the part of <cuda_fp16.h> that the hand-written kernels use.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

struct __half {
  std::uint16_t bits;
};

inline float __half2float(__half value) {
  const int sign = value.bits >> 15, exponent = value.bits >> 10 & 31, fraction = value.bits & 1023;
  float size = exponent == 0    ? std::ldexp(static_cast<float>(fraction), -24)
               : exponent == 31 ? (fraction ? NAN : INFINITY)
                                : std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
  return sign ? -size : size;
}

// Round to nearest, ties to even.
inline __half __float2half_rn(float value) {
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const float size = std::fabs(value);
  if (std::isnan(value)) return {static_cast<std::uint16_t>(sign | 0x7fff)};
  if (size >= 65520.0f) return {static_cast<std::uint16_t>(sign | 0x7c00)};
  int exponent = 0;
  std::frexp(size, &exponent);
  exponent = size < 0x1p-14f ? -14 : exponent - 1;
  const int steps = static_cast<int>(std::nearbyint(std::ldexp(size, 10 - exponent)));
  // 1024 to 2048 steps are a normal number; 2048 carry into the next exponent by themselves.
  return {static_cast<std::uint16_t>(sign | (steps + ((exponent + 14) << 10)))};
}
