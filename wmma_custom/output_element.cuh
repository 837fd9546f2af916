// The type of C and D, FP32 or FP16, and how one element of D = alpha * A * B + beta * C comes about.
// Sums are FP32 whatever the output is, and are rounded once.
//
// Include after the generated parameter block, which defines, in namespace cutlass_study: bool
// kHalfOutput.
#pragma once

#include <cuda_fp16.h>

namespace cutlass_study {

template <bool kHalf>
struct OutputElementOf {
  using type = float;
};
template <>
struct OutputElementOf<true> {
  using type = __half;
};
using OutputElement = OutputElementOf<kHalfOutput>::type;

__device__ __forceinline__ float to_float(float value) { return value; }
__device__ __forceinline__ float to_float(__half value) { return __half2float(value); }

__device__ __forceinline__ void assign(float& target, float value) { target = value; }
__device__ __forceinline__ void assign(__half& target, float value) {
  target = __float2half_rn(value);
}

// kCount neighbouring elements of a row, loaded or stored at once.
template <int kCount>
struct alignas(kCount * sizeof(OutputElement)) OutputVector {
  OutputElement elements[kCount];
};

struct Output {
  int m, n;
  float alpha, beta;
  const OutputElement* c;  // not read when beta is 0: it may be null or hold NaN
  OutputElement* d;
  long long ldc, ldd;  // elements from one row to the next
};

// Write kCount neighbouring elements whose sums are `sums`. They must lie inside D, and their
// address and C's must be multiples of their size.
template <int kCount>
__device__ __forceinline__ void write_vector(const Output& output, int row, int column,
                                             const float (&sums)[kCount]) {
  using Vector = OutputVector<kCount>;
  float values[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) values[i] = output.alpha * sums[i];
  if (output.beta != 0.0f) {
    const Vector source = *reinterpret_cast<const Vector*>(output.c + row * output.ldc + column);
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] += output.beta * to_float(source.elements[i]);
  }
  Vector target;
#pragma unroll
  for (int i = 0; i < kCount; ++i) assign(target.elements[i], values[i]);
  *reinterpret_cast<Vector*>(output.d + row * output.ldd + column) = target;
}

}  // namespace cutlass_study
