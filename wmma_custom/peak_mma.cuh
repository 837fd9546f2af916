// The tensor cores' ceiling through mma.sync.m16n8k16 (PTX ISA, "Matrix multiply-accumulate operation
// using mma instruction"; sm_80 and later): FP16 operands, FP32 or FP16 accumulators, all in
// registers. The loop holds kSteps * kAccumulators instructions and no memory access.
//
// Grid: one CTA an SM. Threads: kThreads, 16 warps, four a scheduler, each with 8 independent chains:
// an instruction's latency (about 33 cycles on Ampere) is hidden even by one warp. FLOP of a CTA:
// iterations * kThreads / 32 * kSteps * kAccumulators * 4096.
//
// Include after the generated parameter block (cutlass_study/peaks.py), which defines, in namespace
// cutlass_study: int kThreads, kAccumulators, kInputBytes; bool kFp16Accumulate.
#pragma once

#include "peak_input.cuh"

namespace cutlass_study {

constexpr int kSteps = 4;  // + A0 B, + A1 B, - A0 B, - A1 B
constexpr int kWordsA = 4, kWordsB = 2;
static_assert(4 * kThreads * (2 * kWordsA + kAccumulators * kWordsB) <= kInputBytes,
              "the inputs must give every thread its own words");

// A warp's 16x8 accumulators: four FP32 or two pairs of FP16 a thread.
struct FloatAccumulators {
  float d[4] = {kInitial, kInitial, kInitial, kInitial};

  __device__ __forceinline__ void multiply(const unsigned int (&a)[4], const unsigned int (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }

  __device__ __forceinline__ float sum() const { return d[0] + d[1] + d[2] + d[3]; }
};

struct HalfAccumulators {
  unsigned int d[2] = {kInitialPair, kInitialPair};

  __device__ __forceinline__ void multiply(const unsigned int (&a)[4], const unsigned int (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, "
        "{%0, %1};\n"
        : "+r"(d[0]), "+r"(d[1])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }

  __device__ __forceinline__ float sum() const { return sum_of(d[0]) + sum_of(d[1]); }
};

template <bool kHalf>
struct AccumulatorsOf {
  using type = FloatAccumulators;
};
template <>
struct AccumulatorsOf<true> {
  using type = HalfAccumulators;
};

}  // namespace cutlass_study

extern "C" __global__ void __launch_bounds__(cutlass_study::kThreads, 1)
    peak(const unsigned int* __restrict__ inputs, float* out, int iterations, float threshold) {
  using namespace cutlass_study;
  unsigned int a[kSteps][kWordsA], b[kAccumulators][kWordsB];
#pragma unroll
  for (int word = 0; word < 2 * kWordsA; ++word) {
    const unsigned int value = input_word(inputs, word);
    a[word / kWordsA][word % kWordsA] = value;
    a[2 + word / kWordsA][word % kWordsA] = value ^ kSignOfBoth;
  }
#pragma unroll
  for (int word = 0; word < kAccumulators * kWordsB; ++word) {
    b[word / kWordsB][word % kWordsB] = input_word(inputs, 2 * kWordsA + word);
  }

  AccumulatorsOf<kFp16Accumulate>::type accumulators[kAccumulators];
#pragma unroll 1
  for (int iteration = 0; iteration < iterations; ++iteration) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int index = 0; index < kAccumulators; ++index) {
        accumulators[index].multiply(a[step], b[index]);
      }
    }
  }

  float sum = 0;
#pragma unroll
  for (int index = 0; index < kAccumulators; ++index) sum += accumulators[index].sum();
  keep(sum, threshold, out);
}
