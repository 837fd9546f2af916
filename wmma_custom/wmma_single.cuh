// The primary document's custom kernel: tensor cores through nvcuda::wmma, tiles in shared memory,
// one buffer. It is meant to be read; wmma_multistage.cuh is what it becomes with a pipeline.
//
// Grid: (ceil(n / kTileN), ceil(m / kTileM), 1), one CTA a tile of D. Threads: kThreads. Dynamic
// shared memory: gemm_info.smem_bytes. Any m, n, k >= 0 and any leading dimensions are right;
// 16-byte alignment of A and B (32-byte of C and D) and strides that keep it are fast.
#pragma once

#include "wmma_tile.cuh"

static_assert(cutlass_study::kStages == 1, "single-buffered means one stage");

extern "C" __global__ void __launch_bounds__(cutlass_study::kThreads)
    gemm(int m, int n, int k, float alpha, float beta, const __half* __restrict__ a,
         const __half* __restrict__ b, const float* c, float* d, long long lda, long long ldb,
         long long ldc, long long ldd) {
  using namespace cutlass_study;
  extern __shared__ __align__(128) unsigned char shared[];
  __half* tile_a = reinterpret_cast<__half*>(shared);
  __half* tile_b = tile_a + kElementsA;

  const int tile_row = static_cast<int>(blockIdx.y) * kTileM;
  const int tile_column = static_cast<int>(blockIdx.x) * kTileN;
  const Operand operand_a = make_operand(a, lda, m, k);
  const Operand operand_b = kBRowMajor ? make_operand(b, ldb, k, n) : make_operand(b, ldb, n, k);

  Accumulators accumulators;
  clear(accumulators);

  for (int k0 = 0; k0 < k; k0 += kTileK) {
    // Phase 1, load: global memory to registers to shared memory. All reads are issued before the
    // first is waited for (the stores need them), so their latencies overlap with each other; with
    // arithmetic they do not overlap at all.
    TileShare<kRowsA, kColumnsA> share_a;
    TileShare<kRowsB, kColumnsB> share_b;
    fetch_tile(share_a, operand_a, tile_row, k0);
    fetch_tile(share_b, operand_b, kBRowMajor ? k0 : tile_column, kBRowMajor ? tile_column : k0);
    store_tile(tile_a, share_a);
    store_tile(tile_b, share_b);

    // Barrier 1 (read after write): a warp multiplies what other warps' threads have copied, so
    // all copies must be complete before any warp goes on.
    __syncthreads();

    // Phase 2, multiply: tensor cores work from shared memory. No load from global memory is in
    // flight now.
    multiply_tile(accumulators, tile_a, tile_b);

    // Barrier 2 (write after read): there is one buffer, so the next tile goes where this one
    // lies; no thread may overwrite it before the slowest warp has read it. After the last tile
    // the epilogue's staging takes the same place, under the same barrier.
    __syncthreads();
  }

  // What single buffering costs: the time of a k-tile is load + multiply, where a pipeline's is
  // the larger of the two; and every warp waits for the slowest twice a k-tile. Only another CTA
  // on the same SM can fill these gaps, which makes occupancy matter more here than in a pipelined
  // kernel. What it saves is shared memory: one stage, so that registers limit the CTAs per SM.
  write_output(accumulators, make_output(m, n, alpha, beta, c, d, ldc, ldd), tile_row, tile_column,
               shared);
}
