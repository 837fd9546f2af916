// WGMMA and TMA without a pipeline, the H100 worklog's kernels 7 and 8: load a tile, wait for it,
// multiply, wait for that, and only then load the next one. Either the copy engine or the tensor
// cores work, never both; only another CTA on the same SM can fill the gap.
//
// kInstructionN is what the worklog varies: how many columns one instruction takes. Fewer mean more
// instructions and more reading of A from shared memory for the same work; more mean more sums a
// thread, until they no longer fit into its registers. With two warpgroups each takes half of the
// tile's rows.
//
// Grid: (n / kTileN, m / kTileM, 1). Threads: kThreads. Dynamic shared memory:
// gemm_info.smem_bytes. m, n and k must be multiples of the tile's extents. map_a and map_b: boxes of
// kTileM and kTileN rows of 64 elements, 128-byte swizzle. C and D: a multiple of 16 bytes a row.
#pragma once

#include "wgmma_tile.cuh"

static_assert(cutlass_study::kStages == 1, "serial means one buffer");
static_assert(cutlass_study::kThreads == 128 * cutlass_study::kWarpgroups,
              "every warpgroup multiplies");

extern "C" __global__ void __launch_bounds__(cutlass_study::kThreads)
    gemm(const __grid_constant__ cutlass_study::TensorMap map_a,
         const __grid_constant__ cutlass_study::TensorMap map_b, int m, int n, int k, float alpha,
         float beta, const cutlass_study::OutputElement* c, cutlass_study::OutputElement* d,
         long long ldc, long long ldd) {
  using namespace cutlass_study;
  extern __shared__ __align__(1024) unsigned char shared[];
  Barrier* full = reinterpret_cast<Barrier*>(shared + kBufferBytes);

  const int tile_row = static_cast<int>(blockIdx.y) * kTileM;
  const int tile_column = static_cast<int>(blockIdx.x) * kTileN;
  const int warpgroup = static_cast<int>(threadIdx.x) / 128;
  const unsigned char* own_rows = tile_a(shared, 0) + warpgroup * kWarpgroupM * kRowBytes;

  if (threadIdx.x == 0) {
    barrier_init(full, 1);  // thread 0 arrives; TMA counts bytes
    publish_barriers();
  }
  __syncthreads();

  Accumulators accumulators;
  accumulators.clear();
  int parity = 0;
  for (int k0 = 0; k0 < k; k0 += kTileK) {
    if (threadIdx.x == 0) load_tiles(shared, 0, map_a, map_b, full, tile_row, tile_column, k0);
    barrier_wait(full, parity);
    parity ^= 1;
    multiply_tile(accumulators, own_rows, tile_b(shared, 0));
    // Write after read: TMA may overwrite the tile when the slowest warp is through with it.
    __syncthreads();
  }
  write_tile(accumulators, {m, n, alpha, beta, c, d, ldc, ldd}, tile_row, tile_column, warpgroup,
             shared);
}
