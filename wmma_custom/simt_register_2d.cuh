// Step 3 of the SIMT ladder: as simt_shared.cuh, but a thread computes kThreadM x kThreadN elements
// of D instead of one, in registers. For each step along K it takes kThreadM elements of A and
// kThreadN of B from shared memory and multiplies each with each: 16 loads for 64 products, where
// simt_shared.cuh needs 128.
//
// There are more elements in a tile than threads in the CTA now, so each thread fetches several, a
// stride of kThreads apart. Larger tiles also mean fewer passes over A and B in global memory.
//
// What limits it: still the path from shared memory to registers. Loads are scalar, and a thread's
// kThreadM elements of A lie kTileK apart.
#pragma once

#include "simt_common.cuh"

namespace cutlass_study {

constexpr int kThreadM = 8, kThreadN = 8;
constexpr int kThreadsN = kTileN / kThreadN;  // threads side by side along N
// From a column-major B a warp stores kTileK rows of 4 columns at once; see simt_shared.cuh.
constexpr int kStrideB = kBRowMajor ? kTileN : kTileN + 4;

static_assert(kTileM * kTileN == kThreadM * kThreadN * kThreads, "threads must cover the tile");
static_assert(kTileM * kTileK % kThreads == 0 && kTileN * kTileK % kThreads == 0,
              "every thread fetches as many elements");
static_assert(kSharedBytes == (kTileM * kTileK + kTileK * kStrideB) * 4,
              "simt_source.py and this kernel must agree on shared memory");

}  // namespace cutlass_study

extern "C" __global__ void __launch_bounds__(cutlass_study::kThreads)
    gemm(int m, int n, int k, float alpha, float beta, const __half* __restrict__ a,
         const __half* __restrict__ b, const cutlass_study::OutputElement* c,
         cutlass_study::OutputElement* d, long long lda, long long ldb, long long ldc,
         long long ldd) {
  using namespace cutlass_study;
  extern __shared__ __align__(16) unsigned char shared[];
  float* tile_a = reinterpret_cast<float*>(shared);  // [kTileM][kTileK]
  float* tile_b = tile_a + kTileM * kTileK;          // [kTileK][kStrideB]

  const int thread = static_cast<int>(threadIdx.x);
  const int tile_row = static_cast<int>(blockIdx.y) * kTileM;
  const int tile_column = static_cast<int>(blockIdx.x) * kTileN;
  const int y = thread / kThreadsN * kThreadM, x = thread % kThreadsN * kThreadN;
  const Matrix operand_a{a, lda, m, k};
  const Matrix operand_b = matrix_b(b, ldb, n, k);

  float sums[kThreadM][kThreadN] = {};
  for (int k0 = 0; k0 < k; k0 += kTileK) {
#pragma unroll
    for (int share = 0; share < kTileM * kTileK / kThreads; ++share) {
      const int e = share * kThreads + thread;
      const int row = e / kTileK, i = e % kTileK;
      tile_a[row * kTileK + i] = element(operand_a, tile_row + row, k0 + i);
    }
#pragma unroll
    for (int share = 0; share < kTileN * kTileK / kThreads; ++share) {
      const int e = share * kThreads + thread;
      if (kBRowMajor) {
        const int i = e / kTileN, column = e % kTileN;
        tile_b[i * kStrideB + column] = element(operand_b, k0 + i, tile_column + column);
      } else {
        const int column = e / kTileK, i = e % kTileK;
        tile_b[i * kStrideB + column] = element(operand_b, tile_column + column, k0 + i);
      }
    }
    __syncthreads();

#pragma unroll 1  // unrolled, 173 registers instead of 119 on sm_90a: one CTA an SM, not two
    for (int i = 0; i < kTileK; ++i) {
      float from_a[kThreadM], from_b[kThreadN];
#pragma unroll
      for (int row = 0; row < kThreadM; ++row) from_a[row] = tile_a[(y + row) * kTileK + i];
#pragma unroll
      for (int column = 0; column < kThreadN; ++column) {
        from_b[column] = tile_b[i * kStrideB + x + column];
      }
#pragma unroll
      for (int row = 0; row < kThreadM; ++row) {
#pragma unroll
        for (int column = 0; column < kThreadN; ++column) {
          sums[row][column] += from_a[row] * from_b[column];
        }
      }
    }
    __syncthreads();
  }

  const Output output{m, n, alpha, beta, c, d, ldc, ldd};
#pragma unroll
  for (int row = 0; row < kThreadM; ++row) {
#pragma unroll
    for (int column = 0; column < kThreadN; ++column) {
      write_element(output, tile_row + y + row, tile_column + x + column, sums[row][column]);
    }
  }
}
