// The tensor cores' ceiling through wgmma.m64n256k16 (PTX ISA, "Asynchronous Warpgroup Level Matrix
// Multiply-Accumulate Instructions"; sm_90a alone): FP16 operands, FP32 or FP16 accumulators, B in
// shared memory, A there too or (kARegisters) in registers. The loop holds 2 * kKSteps instructions.
//
// Grid: one CTA an SM. Threads: kThreads, whole warpgroups of 128. One warpgroup's instructions feed
// all four tensor cores of an SM (128 cycles each at the full rate); a second one fills the gaps
// where the first waits. Dynamic shared memory: kSharedBytes. FLOP of a CTA: iterations *
// kThreads / 128 * 2 * kKSteps * 524288.
//
// Operands lie K-major in rows of 64 FP16, the 128 bytes of the 128-byte swizzle. The numbers are
// random, so it does not matter which of them the swizzle puts where; the addresses are a GEMM's.
//
// Include after the generated parameter block (cutlass_study/peaks.py), which defines, in namespace
// cutlass_study: int kThreads, kSharedBytes, kInputBytes; bool kFp16Accumulate, kARegisters.
#pragma once

#include "peak_input.cuh"

namespace cutlass_study {

constexpr int kWarpgroups = kThreads / 128;
constexpr int kM = 64, kN = 256, kTileK = 64, kKSteps = kTileK / 16;
constexpr int kBytesA = kM * kTileK * 2, kBytesB = kN * kTileK * 2;
constexpr int kWordsA = kARegisters ? kKSteps * 4 : 0;

static_assert(kThreads % 128 == 0, "a warpgroup is four warps");
static_assert(kSharedBytes == kBytesB + (kARegisters ? 0 : kWarpgroups * kBytesA),
              "peaks.py and this kernel must agree on shared memory");
static_assert(kSharedBytes <= kInputBytes, "the inputs must fill shared memory");
static_assert(4 * kThreads * kWordsA <= kInputBytes, "the inputs must give every thread its own A");

// Matrix descriptor (PTX ISA, "Matrix descriptor"), in units of 16 bytes: start address, leading
// dimension (ignored: K-major and swizzled), stride of 8 rows; 1 << 62 means the 128-byte swizzle.
__device__ __forceinline__ unsigned long long descriptor(const void* tile) {
  const unsigned long long address = __cvta_generic_to_shared(tile);
  return (address & 0x3FFFF) >> 4 | 1ull << 16 | (8 * 128ull >> 4) << 32 | 1ull << 62;
}

constexpr unsigned long long kNextKStep = 16 * 2 >> 4;  // 16 FP16 further on in every row

// Orders other accesses to registers before wgmma's own.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}

template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(kPending) : "memory");
}

// clang-format off
#define PEAK_NAMES_64 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define PEAK_NAMES_128 PEAK_NAMES_64 ", " \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define PEAK_BIND_8(kind, i) \
  kind(d[(i)]), kind(d[(i) + 1]), kind(d[(i) + 2]), kind(d[(i) + 3]), \
  kind(d[(i) + 4]), kind(d[(i) + 5]), kind(d[(i) + 6]), kind(d[(i) + 7])
#define PEAK_BIND_64(kind, i) \
  PEAK_BIND_8(kind, (i)), PEAK_BIND_8(kind, (i) + 8), \
  PEAK_BIND_8(kind, (i) + 16), PEAK_BIND_8(kind, (i) + 24), \
  PEAK_BIND_8(kind, (i) + 32), PEAK_BIND_8(kind, (i) + 40), \
  PEAK_BIND_8(kind, (i) + 48), PEAK_BIND_8(kind, (i) + 56)
// clang-format on

// A warpgroup's 64x256 accumulators: 128 FP32 or 64 pairs of FP16 a thread. kSign = -1 negates A:
// the instruction does so itself, at no cost. The compiler does not know that wgmma goes on after
// its asm statement: without `pin` behind the last wait it reads accumulators before it, and ptxas
// serializes the loop (C7514).
struct FloatAccumulators {
  static constexpr float kStart = kInitial;
  float d[128];

  __device__ __forceinline__ void pin() {
#pragma unroll
    for (int i = 0; i < 128; ++i) asm volatile("" : "+f"(d[i])::"memory");
  }

  template <int kSign>
  __device__ __forceinline__ void multiply(unsigned long long a, unsigned long long b) {
    asm volatile(
        "{\n.reg .pred add;\nsetp.ne.b32 add, %130, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {" PEAK_NAMES_128
        "}, %128, %129, add, %131, 1, 0, 0;\n}\n"
        : PEAK_BIND_64("+f", 0), PEAK_BIND_64("+f", 64)
        : "l"(a), "l"(b), "r"(1), "n"(kSign));
  }

  template <int kSign>
  __device__ __forceinline__ void multiply(const unsigned int (&a)[4], unsigned long long b) {
    asm volatile(
        "{\n.reg .pred add;\nsetp.ne.b32 add, %133, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {" PEAK_NAMES_128
        "}, {%128, %129, %130, %131}, %132, add, %134, 1, 0;\n}\n"
        : PEAK_BIND_64("+f", 0), PEAK_BIND_64("+f", 64)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1), "n"(kSign));
  }
};

struct HalfAccumulators {
  static constexpr unsigned int kStart = kInitialPair;
  unsigned int d[64];

  __device__ __forceinline__ void pin() {
#pragma unroll
    for (int i = 0; i < 64; ++i) asm volatile("" : "+r"(d[i])::"memory");
  }

  template <int kSign>
  __device__ __forceinline__ void multiply(unsigned long long a, unsigned long long b) {
    asm volatile(
        "{\n.reg .pred add;\nsetp.ne.b32 add, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k16.f16.f16.f16 {" PEAK_NAMES_64
        "}, %64, %65, add, %67, 1, 0, 0;\n}\n"
        : PEAK_BIND_64("+r", 0)
        : "l"(a), "l"(b), "r"(1), "n"(kSign));
  }

  template <int kSign>
  __device__ __forceinline__ void multiply(const unsigned int (&a)[4], unsigned long long b) {
    asm volatile(
        "{\n.reg .pred add;\nsetp.ne.b32 add, %69, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k16.f16.f16.f16 {" PEAK_NAMES_64
        "}, {%64, %65, %66, %67}, %68, add, %70, 1, 0;\n}\n"
        : PEAK_BIND_64("+r", 0)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1), "n"(kSign));
  }
};

#undef PEAK_BIND_64
#undef PEAK_BIND_8
#undef PEAK_NAMES_128
#undef PEAK_NAMES_64

template <bool kHalf>
struct AccumulatorsOf {
  using type = FloatAccumulators;
};
template <>
struct AccumulatorsOf<true> {
  using type = HalfAccumulators;
};

// One warpgroup's operand A, in either place, and its products with the tile of B.
struct SharedA {
  unsigned long long tile;

  __device__ __forceinline__ SharedA(const unsigned int*, const unsigned char* tiles)
      : tile(descriptor(tiles + threadIdx.x / 128 * kBytesA)) {}

  template <int kSign, typename Accumulators>
  __device__ __forceinline__ void multiply(Accumulators& accumulators, unsigned long long b) const {
#pragma unroll
    for (int k = 0; k < kKSteps; ++k) {
      accumulators.template multiply<kSign>(tile + k * kNextKStep, b + k * kNextKStep);
    }
  }
};

struct RegisterA {
  unsigned int words[kKSteps][4];

  __device__ __forceinline__ RegisterA(const unsigned int* inputs, const unsigned char*) {
#pragma unroll
    for (int word = 0; word < kKSteps * 4; ++word) {
      words[word / 4][word % 4] = input_word(inputs, word);
    }
  }

  template <int kSign, typename Accumulators>
  __device__ __forceinline__ void multiply(Accumulators& accumulators, unsigned long long b) const {
#pragma unroll
    for (int k = 0; k < kKSteps; ++k) {
      accumulators.template multiply<kSign>(words[k], b + k * kNextKStep);
    }
  }
};

template <bool kRegisters>
struct OperandAOf {
  using type = SharedA;
};
template <>
struct OperandAOf<true> {
  using type = RegisterA;
};

}  // namespace cutlass_study

extern "C" __global__ void __launch_bounds__(cutlass_study::kThreads, 1)
    peak(const unsigned int* __restrict__ inputs, float* out, int iterations, float threshold) {
  using namespace cutlass_study;
  extern __shared__ __align__(1024) unsigned char shared[];  // a swizzle atom: 8 rows of 128 bytes
  for (int word = threadIdx.x; word < kSharedBytes / 4; word += kThreads) {
    reinterpret_cast<unsigned int*>(shared)[word] = inputs[word];
  }
  // wgmma reads shared memory through the asynchronous proxy, which does not see these stores yet.
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
  __syncthreads();

  const OperandAOf<kARegisters>::type a(inputs, shared + kBytesB);
  const unsigned long long b = descriptor(shared);
  AccumulatorsOf<kFp16Accumulate>::type accumulators;
  for (auto& value : accumulators.d) value = accumulators.kStart;

#pragma unroll 1
  for (int iteration = 0; iteration < iterations; ++iteration) {
    wgmma_fence();
    a.multiply<1>(accumulators, b);
    a.multiply<-1>(accumulators, b);
    wgmma_commit();
    wgmma_wait<1>();  // the next iteration's products queue up behind this one's
  }
  wgmma_wait<0>();
  accumulators.pin();

  float sum = 0;
#pragma unroll
  for (auto value : accumulators.d) sum += sum_of(value);
  keep(sum, threshold, out);
}
