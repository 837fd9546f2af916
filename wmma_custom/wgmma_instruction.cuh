// wgmma.mma_async.m64nNk16 with FP16 operands in shared memory and FP32 sums in registers, for the
// N that the kernels try. 128 threads, a warpgroup, hold the 64 x N sums: N / 2 each.
#pragma once

namespace cutlass_study {

// clang-format off
#define WGMMA_NAMES_16 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define WGMMA_NAMES_32 WGMMA_NAMES_16 ", " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define WGMMA_NAMES_64 WGMMA_NAMES_32 ", " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define WGMMA_NAMES_128 WGMMA_NAMES_64 ", " \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define WGMMA_BIND_4(i) "+f"(d[(i)]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define WGMMA_BIND_16(i) \
  WGMMA_BIND_4(i), WGMMA_BIND_4((i) + 4), WGMMA_BIND_4((i) + 8), WGMMA_BIND_4((i) + 12)
#define WGMMA_BIND_32(i) WGMMA_BIND_16(i), WGMMA_BIND_16((i) + 16)
#define WGMMA_BIND_64(i) WGMMA_BIND_32(i), WGMMA_BIND_32((i) + 32)
#define WGMMA_BIND_128(i) WGMMA_BIND_64(i), WGMMA_BIND_64((i) + 64)
// clang-format on

// A warpgroup's 64 x kN sums. The compiler does not know that wgmma goes on after its asm statement:
// without `pin` behind the wait it may touch sums before it, and ptxas then serializes the loop.
template <int kN>
struct Sums {
  static constexpr int kCount = kN / 2;
  float d[kCount];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < kCount; ++i) d[i] = 0.0f;
  }

  __device__ __forceinline__ void pin() {
#pragma unroll
    for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
  }

  // Start sums += A * B for the operands that two matrix descriptors name: both K-major, A 64 rows
  // of 16, B kN rows of 16. The constants: add to the sums, signs of A and B, no transposition.
  __device__ __forceinline__ void multiply(unsigned long long a, unsigned long long b);
};

#define WGMMA_DEFINE(n, count, at_a, at_b, at_one)                                                \
  template <>                                                                                     \
  __device__ __forceinline__ void Sums<n>::multiply(unsigned long long a, unsigned long long b) { \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" at_one                                  \
                 ", 0;\n"                                                                         \
                 "wgmma.mma_async.sync.aligned.m64n" #n                                           \
                 "k16.f32.f16.f16 "                                                               \
                 "{" WGMMA_NAMES_##count "}, %" at_a ", %" at_b ", add, 1, 1, 0, 0;\n}\n"         \
                 : WGMMA_BIND_##count(0)                                                          \
                 : "l"(a), "l"(b), "r"(1));                                                       \
  }

WGMMA_DEFINE(32, 16, "16", "17", "18")
WGMMA_DEFINE(64, 32, "32", "33", "34")
WGMMA_DEFINE(128, 64, "64", "65", "66")
WGMMA_DEFINE(256, 128, "128", "129", "130")

#undef WGMMA_DEFINE
#undef WGMMA_BIND_128
#undef WGMMA_BIND_64
#undef WGMMA_BIND_32
#undef WGMMA_BIND_16
#undef WGMMA_BIND_4
#undef WGMMA_NAMES_128
#undef WGMMA_NAMES_64
#undef WGMMA_NAMES_32
#undef WGMMA_NAMES_16

}  // namespace cutlass_study
