// wgmma_serial.cuh as producer and consumers, the H100 worklog's kernel 9: one warpgroup only starts
// copies, up to kStages tiles ahead; the others only multiply. The copy engine works while the tensor
// cores do.
//
// The ring of kStages buffers is governed by two barriers a buffer: `full`, which the producer's
// bytes complete, and `empty`, which the consumers' warps complete when they have read it. Tile t
// uses buffer t % kStages for the (t / kStages)-th time, and that round's parity is what both sides
// wait by: a consumer for the end of the round's own phase of `full`, the producer for the end of the
// phase of `empty` before it. In round 0 there is none before, which counts as ended.
//
// Launch, shapes and maps: as for wgmma_serial.cuh.
#pragma once

#include "wgmma_tile.cuh"

namespace cutlass_study {

static_assert(kThreads == 128 * (kWarpgroups + 1), "one warpgroup produces");
static_assert(kWarpgroups == 1 || kWarpgroups == 2, "registers are divided for one or two");

// Registers a thread. Launched with equal shares, warpgroups then exchange them: the producer needs
// few, and what it gives back must be at least what the consumers take (40 + 216 = 2 * 128;
// 40 + 2 * 232 = 3 * 168). With one consumer that leaves room for two CTAs on an SM. But ptxas wants
// 154 registers at launch for the instruction of 256 columns: one consumer then keeps what it has.
constexpr bool kExchange = kWarpgroups == 2 || kInstructionN < 256;
constexpr int kCtasPerSm = kWarpgroups == 1 && kExchange ? 2 : 1;
constexpr int kProducerRegisters = 40;
constexpr int kConsumerRegisters = kWarpgroups == 1 ? 216 : 232;

__device__ __forceinline__ void produce(const TensorMap& map_a, const TensorMap& map_b, int tiles,
                                        int tile_row, int tile_column, unsigned char* shared,
                                        Barrier* full, Barrier* empty) {
  int stage = 0, parity = 0;
  for (int tile = 0; tile < tiles; ++tile) {
    barrier_wait(empty + stage, parity ^ 1);
    load_tiles(shared, stage, map_a, map_b, full + stage, tile_row, tile_column, tile * kTileK);
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
}

__device__ __forceinline__ void consume(Accumulators& accumulators, int tiles, int warpgroup,
                                        unsigned char* shared, Barrier* full, Barrier* empty) {
  int stage = 0, parity = 0;
  for (int tile = 0; tile < tiles; ++tile) {
    barrier_wait(full + stage, parity);
    multiply_tile(accumulators, tile_a(shared, stage) + warpgroup * kWarpgroupM * kRowBytes,
                  tile_b(shared, stage));
    // multiply_tile has waited for this warp's products. One lane says so for its warp.
    if (threadIdx.x % 32 == 0) barrier_arrive(empty + stage);
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
}

}  // namespace cutlass_study

extern "C" __global__ void __launch_bounds__(cutlass_study::kThreads, cutlass_study::kCtasPerSm)
    gemm(const __grid_constant__ cutlass_study::TensorMap map_a,
         const __grid_constant__ cutlass_study::TensorMap map_b, int m, int n, int k, float alpha,
         float beta, const cutlass_study::OutputElement* c, cutlass_study::OutputElement* d,
         long long ldc, long long ldd) {
  using namespace cutlass_study;
  extern __shared__ __align__(1024) unsigned char shared[];
  Barrier* full = reinterpret_cast<Barrier*>(shared + kBufferBytes);
  Barrier* empty = full + kStages;

  const int tile_row = static_cast<int>(blockIdx.y) * kTileM;
  const int tile_column = static_cast<int>(blockIdx.x) * kTileN;
  const int tiles = k / kTileK;
  const int warpgroup = static_cast<int>(threadIdx.x) / 128 - 1;  // -1 is the producer

  if (threadIdx.x == 0) {
    prefetch_map(&map_a);
    prefetch_map(&map_b);
    for (int stage = 0; stage < kStages; ++stage) {
      barrier_init(full + stage, 1);                 // the producer's one thread; TMA counts bytes
      barrier_init(empty + stage, 4 * kWarpgroups);  // the consumers' warps
    }
    publish_barriers();
  }
  __syncthreads();  // the last point where all warpgroups meet

  if (warpgroup < 0) {
    if constexpr (kExchange) release_registers<kProducerRegisters>();
    if (threadIdx.x == 0) {
      produce(map_a, map_b, tiles, tile_row, tile_column, shared, full, empty);
    }
  } else {
    if constexpr (kExchange) acquire_registers<kConsumerRegisters>();
    Accumulators accumulators;
    accumulators.clear();
    consume(accumulators, tiles, warpgroup, shared, full, empty);
    write_tile(accumulators, {m, n, alpha, beta, c, d, ldc, ldd}, tile_row, tile_column, warpgroup,
               shared);
  }
}
