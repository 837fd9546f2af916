// What the tensor-core ceilings share: how their accumulators begin and how a result is kept alive.
//
// Every kernel adds products and takes the same products away again, so that after each iteration an
// accumulator is back where it began, up to rounding. Nothing overflows however long a kernel runs,
// FP16 accumulators included, while each instruction sees numbers that look random: the power that a
// tensor core draws depends on them, and with zeros the clock would be higher than in any real GEMM.
#pragma once

#include <cuda_fp16.h>

namespace cutlass_study {

constexpr float kInitial = 0.25f;                   // exact in FP16
constexpr unsigned int kInitialPair = 0x34003400u;  // two of it as FP16
constexpr unsigned int kSignOfBoth = 0x80008000u;   // the signs of two FP16 numbers

// `inputs`: at least kInputBytes of FP16 from U(-1, 1). Words (two FP16 numbers) are spread over the
// CTA's threads, so every thread and every slot has its own.
__device__ __forceinline__ unsigned int input_word(const unsigned int* inputs, int slot) {
  return inputs[slot * kThreads + threadIdx.x];
}

__device__ __forceinline__ float sum_of(unsigned int pair) {
  const float2 both = __half22float2(*reinterpret_cast<const __half2*>(&pair));
  return both.x + both.y;
}

__device__ __forceinline__ float sum_of(float value) { return value; }

// The compiler can't know `threshold`, so it must compute the sum. Measured with +infinity: nothing
// is written. Checked with -infinity: every thread writes, unless its sum is not a number.
__device__ __forceinline__ void keep(float sum, float threshold, float* out) {
  if (sum > threshold) out[blockIdx.x * kThreads + threadIdx.x] = sum;
}

}  // namespace cutlass_study
