// wmma_single.cuh with a cp.async pipeline of kStages buffers, and nothing else changed: the same
// tile, warp layout, arithmetic and epilogue. If the document is right that its kernel lacks only a
// pipeline and pays for barriers, this is where the time comes back.
//
// Launch, shapes and leading dimensions: as for wmma_single.cuh. A or B without 16-byte alignment
// is copied synchronously, through registers: right, but not pipelined.
#pragma once

#include "cp_async.cuh"
#include "wmma_tile.cuh"

static_assert(2 <= cutlass_study::kStages && cutlass_study::kStages <= 4, "2 to 4 stages");

namespace cutlass_study {

// Start copying the tile whose corner is (row0, column0). At the matrix's edge the source size
// tells the hardware how much to read; a vector wholly outside reads nothing, and its address
// (which must still be a valid one) is the matrix's first.
template <int kRows, int kColumns>
__device__ __forceinline__ void start_tile(__half* tile, const Operand& operand, int row0,
                                           int column0) {
  if (!operand.vectors) {
    TileShare<kRows, kColumns> share;
    fetch_tile(share, operand, row0, column0);
    store_tile(tile, share);
    return;
  }
  const bool interior = is_interior<kRows, kColumns>(operand, row0, column0);
#pragma unroll
  for (int i = 0; i < TileShare<kRows, kColumns>::kVectors; ++i) {
    int row, column;
    vector_position<kColumns>(i, row, column);
    const int inside = interior ? kVector : elements_inside(operand, row0 + row, column0 + column);
    const __half* source = inside == 0
                               ? operand.data
                               : operand.data + (row0 + row) * operand.stride + (column0 + column);
    cp_async_16(tile + row * (kColumns + kPadding) + column, source, inside * 2);
  }
}

}  // namespace cutlass_study

extern "C" __global__ void __launch_bounds__(cutlass_study::kThreads)
    gemm(int m, int n, int k, float alpha, float beta, const __half* __restrict__ a,
         const __half* __restrict__ b, const float* c, float* d, long long lda, long long ldb,
         long long ldc, long long ldd) {
  using namespace cutlass_study;
  extern __shared__ __align__(128) unsigned char shared[];

  const int tile_row = static_cast<int>(blockIdx.y) * kTileM;
  const int tile_column = static_cast<int>(blockIdx.x) * kTileN;
  const Operand operand_a = make_operand(a, lda, m, k);
  const Operand operand_b = kBRowMajor ? make_operand(b, ldb, k, n) : make_operand(b, ldb, n, k);
  const int tiles = (k + kTileK - 1) / kTileK;

  const auto stage_a = [&](int stage) {
    return reinterpret_cast<__half*>(shared + stage * kStageBytes);
  };
  const auto stage_b = [&](int stage) { return stage_a(stage) + kElementsA; };

  // Start tile `tile` into `stage`, and close a group even when there is no such tile: the waits
  // below count groups, and an empty one is complete at once. So the prologue and the tail need no
  // cases of their own, however few tiles there are.
  const auto start_stage = [&](int tile, int stage) {
    if (tile < tiles) {
      const int k0 = tile * kTileK;
      start_tile<kRowsA, kColumnsA>(stage_a(stage), operand_a, tile_row, k0);
      start_tile<kRowsB, kColumnsB>(stage_b(stage), operand_b, kBRowMajor ? k0 : tile_column,
                                    kBRowMajor ? tile_column : k0);
    }
    cp_async_commit();
  };

  Accumulators accumulators;
  clear(accumulators);

  // Prologue: kStages - 1 tiles under way, one buffer free.
#pragma unroll
  for (int stage = 0; stage < kStages - 1; ++stage) start_stage(stage, stage);

  int stage = 0;                 // holds the tile to multiply
  int free_stage = kStages - 1;  // takes the next tile to start
  for (int tile = 0; tile < tiles; ++tile) {
    // Groups closed so far: kStages - 1 + tile; tile `tile` is in group `tile`, counted from 0.
    // With kStages - 2 groups still pending, the oldest tile + 1 are complete: this thread's share
    // of the tile has arrived.
    cp_async_wait<kStages - 2>();

    // The only barrier of a k-tile serves both purposes of the single-buffered kernel's two:
    // read after write, everyone's share of this tile has arrived (each waited for its own just
    // now); write after read, everyone has finished multiplying the previous tile, whose buffer
    // is `free_stage`, so it may be overwritten from here on and not earlier.
    __syncthreads();

    start_stage(tile + kStages - 1, free_stage);
    multiply_tile(accumulators, stage_a(stage), stage_b(stage));

    free_stage = stage;
    stage = stage + 1 == kStages ? 0 : stage + 1;
  }

  // Every group that holds a tile has been waited for. The barrier is for the epilogue, whose
  // staging takes the place of tiles that a slower warp may still be reading.
  __syncthreads();
  write_output(accumulators, make_output(m, n, alpha, beta, c, d, ldc, ldd), tile_row, tile_column,
               shared);
}
