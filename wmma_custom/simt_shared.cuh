// Step 2 of the SIMT ladder: as simt_naive.cuh, but the CTA keeps a tile of A and of B in shared
// memory. Before, every thread fetched its row and column by itself; now the CTA's threads fetch one
// element of each tile each, and all of them read all of it. An element of global memory is read
// once for kTileM or kTileN products instead of for one.
//
// The price is two barriers a tile: nobody may multiply before the tile is complete (read after
// write), and nobody may overwrite it before everybody is through (write after read).
//
// What limits it: every multiplication still costs two loads, now from shared memory.
#pragma once

#include "simt_common.cuh"

namespace cutlass_study {

// B's tile is kept with its rows along N. From a column-major B a warp's 32 threads store 32
// different rows at once, which would all fall into the same bank; one float more a row spreads
// them over all 32.
constexpr int kStrideB = kBRowMajor ? kTileN : kTileN + 1;

static_assert(kTileM == kTileN && kTileN == kTileK && kTileM * kTileN == kThreads,
              "every thread fetches one element of each tile");
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

  const int tile_row = static_cast<int>(blockIdx.y) * kTileM;
  const int tile_column = static_cast<int>(blockIdx.x) * kTileN;
  const int y = static_cast<int>(threadIdx.x) / kTileN, x = static_cast<int>(threadIdx.x) % kTileN;
  const Matrix operand_a{a, lda, m, k};
  const Matrix operand_b = matrix_b(b, ldb, n, k);

  float sum = 0.0f;
  for (int k0 = 0; k0 < k; k0 += kTileK) {
    // Threads with neighbouring x read neighbouring elements, whichever way B lies.
    tile_a[y * kTileK + x] = element(operand_a, tile_row + y, k0 + x);
    if (kBRowMajor) {
      tile_b[y * kStrideB + x] = element(operand_b, k0 + y, tile_column + x);
    } else {
      tile_b[x * kStrideB + y] = element(operand_b, tile_column + y, k0 + x);
    }
    __syncthreads();

#pragma unroll
    for (int i = 0; i < kTileK; ++i) sum += tile_a[y * kTileK + i] * tile_b[i * kStrideB + x];
    __syncthreads();
  }
  write_element({m, n, alpha, beta, c, d, ldc, ldd}, tile_row + y, tile_column + x, sum);
}
