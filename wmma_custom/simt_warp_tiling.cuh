// Step 5 of the SIMT ladder: as simt_vectorized.cuh, with one more level between the CTA's tile and
// the thread's: each warp owns a kWarpM x kWarpN part of the tile. A warp is what the hardware
// schedules, so what its 32 threads read together decides about bank conflicts and reuse.
//
// Inside its part a warp is 8 x 4 threads. They cover 64 rows at once and 16 columns, four times
// over: a thread has 8 rows and 4 x 4 columns. Of one step along N the warp's threads read only 16
// neighbouring columns (64 bytes, all banks different) and the same elements of A for all four
// steps: no conflicts, and 24 loaded floats for 128 products, where simt_vectorized.cuh loads 16
// for 64. CTAs have half as many threads, each with twice the sums: more registers, lower occupancy.
// Global memory is read eight FP16 elements (16 bytes) at a time.
#pragma once

#include "simt_vector.cuh"

namespace cutlass_study {

constexpr int kThreadM = 8, kThreadN = 4;     // of one step
constexpr int kLanesM = 8, kLanesN = 4;       // a warp
constexpr int kStepM = kLanesM * kThreadM;    // rows of a warp's step
constexpr int kStepN = kLanesN * kThreadN;    // and columns
constexpr int kStepsN = kWarpN / kStepN;      // steps along N
constexpr int kColumns = kStepsN * kThreadN;  // of a thread
constexpr int kCtasPerSm = 3;                 // leaves 168 registers a thread
constexpr int kVector = 8;                    // FP16 elements of a load: 16 bytes

static_assert(kWarpM == kStepM && kWarpN % kStepN == 0, "a warp takes its rows in one step");
static_assert(kTileM % kWarpM == 0 && kTileN % kWarpN == 0 &&
                  kTileM / kWarpM * (kTileN / kWarpN) * 32 == kThreads,
              "warps must cover the tile");

}  // namespace cutlass_study

extern "C" __global__ void __launch_bounds__(cutlass_study::kThreads, cutlass_study::kCtasPerSm)
    gemm(int m, int n, int k, float alpha, float beta, const __half* __restrict__ a,
         const __half* __restrict__ b, const cutlass_study::OutputElement* c,
         cutlass_study::OutputElement* d, long long lda, long long ldb, long long ldc,
         long long ldd) {
  using namespace cutlass_study;
  extern __shared__ __align__(16) unsigned char shared[];
  float* tile_a = reinterpret_cast<float*>(shared);  // [kTileK][kStrideA], A transposed
  float* tile_b = tile_a + kTileK * kStrideA;        // [kTileK][kStrideB]

  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int tile_row = static_cast<int>(blockIdx.y) * kTileM;
  const int tile_column = static_cast<int>(blockIdx.x) * kTileN;
  const int y = warp / (kTileN / kWarpN) * kWarpM + lane / kLanesN * kThreadM;
  const int x = warp % (kTileN / kWarpN) * kWarpN + lane % kLanesN * kThreadN;
  const Matrix operand_a{a, lda, m, k};
  const Matrix operand_b = matrix_b(b, ldb, n, k);

  float sums[kThreadM][kColumns] = {};
  for (int k0 = 0; k0 < k; k0 += kTileK) {
    copy_tiles<kVector>(tile_a, tile_b, operand_a, operand_b, tile_row, tile_column, k0);
    __syncthreads();

#pragma unroll kTileK / 2  // loads run ahead of products; all of a tile would be 34 KiB of code
    for (int i = 0; i < kTileK; ++i) {
      float from_a[kThreadM], from_b[kColumns];
      read_quads<kThreadM>(from_a, tile_a + i * kStrideA + y);
#pragma unroll
      for (int step = 0; step < kStepsN; ++step) {
        read_quads<kThreadN>(from_b + step * kThreadN, tile_b + i * kStrideB + x + step * kStepN);
      }
#pragma unroll
      for (int row = 0; row < kThreadM; ++row) {
#pragma unroll
        for (int column = 0; column < kColumns; ++column) {
          sums[row][column] += from_a[row] * from_b[column];
        }
      }
    }
    __syncthreads();
  }

  const Output output{m, n, alpha, beta, c, d, ldc, ldd};
  const bool vectors = allows_quads(output);
#pragma unroll
  for (int row = 0; row < kThreadM; ++row) {
#pragma unroll
    for (int step = 0; step < kStepsN; ++step) {
      const float (&part)[kQuad] =
          reinterpret_cast<const float (&)[kQuad]>(sums[row][step * kThreadN]);
      write_quad(output, vectors, tile_row + y + row, tile_column + x + step * kStepN, part);
    }
  }
}
