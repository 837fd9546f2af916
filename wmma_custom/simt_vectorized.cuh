// Step 4 of the SIMT ladder: as simt_register_2d.cuh, but every access moves a vector. Coalescing
// lets the hardware merge the 32 scalar loads of a warp into few transactions, yet each thread still
// issues one instruction an element; a vector of four takes one instead of four.
//
// Global memory is read four FP16 elements (8 bytes) at a time and D written four at a time. To
// read shared memory in 16-byte vectors too, a thread's elements of A must be neighbours there:
// A's tile is transposed while it is stored (simt_vector.cuh).
//
// What limits it: bank conflicts. A thread's eight columns are 32 bytes, so of the threads side by
// side along N every fourth asks for the same banks. No padding helps: it moves rows, and these
// threads all read the same row.
#pragma once

#include "simt_vector.cuh"

namespace cutlass_study {

constexpr int kThreadM = 8, kThreadN = 8;
constexpr int kThreadsN = kTileN / kThreadN;
constexpr int kVector = 4;  // FP16 elements of a load: 8 bytes, one load of each tile a thread

static_assert(kTileM * kTileN == kThreadM * kThreadN * kThreads, "threads must cover the tile");

}  // namespace cutlass_study

extern "C" __global__ void __launch_bounds__(cutlass_study::kThreads)
    gemm(int m, int n, int k, float alpha, float beta, const __half* __restrict__ a,
         const __half* __restrict__ b, const cutlass_study::OutputElement* c,
         cutlass_study::OutputElement* d, long long lda, long long ldb, long long ldc,
         long long ldd) {
  using namespace cutlass_study;
  extern __shared__ __align__(16) unsigned char shared[];
  float* tile_a = reinterpret_cast<float*>(shared);  // [kTileK][kStrideA], A transposed
  float* tile_b = tile_a + kTileK * kStrideA;        // [kTileK][kStrideB]

  const int thread = static_cast<int>(threadIdx.x);
  const int tile_row = static_cast<int>(blockIdx.y) * kTileM;
  const int tile_column = static_cast<int>(blockIdx.x) * kTileN;
  const int y = thread / kThreadsN * kThreadM, x = thread % kThreadsN * kThreadN;
  const Matrix operand_a{a, lda, m, k};
  const Matrix operand_b = matrix_b(b, ldb, n, k);

  float sums[kThreadM][kThreadN] = {};
  for (int k0 = 0; k0 < k; k0 += kTileK) {
    copy_tiles<kVector>(tile_a, tile_b, operand_a, operand_b, tile_row, tile_column, k0);
    __syncthreads();

#pragma unroll
    for (int i = 0; i < kTileK; ++i) {
      float from_a[kThreadM], from_b[kThreadN];
      read_quads<kThreadM>(from_a, tile_a + i * kStrideA + y);
      read_quads<kThreadN>(from_b, tile_b + i * kStrideB + x);
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
  const bool vectors = allows_quads(output);
#pragma unroll
  for (int row = 0; row < kThreadM; ++row) {
#pragma unroll
    for (int column = 0; column < kThreadN; column += kQuad) {
      const float (&part)[kQuad] = reinterpret_cast<const float (&)[kQuad]>(sums[row][column]);
      write_quad(output, vectors, tile_row + y + row, tile_column + x + column, part);
    }
  }
}
