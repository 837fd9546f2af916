// What the WGMMA kernels share: tiles in shared memory, a warpgroup's work on one of them, and the
// epilogue. The kernels differ in who loads a tile when, and who waits for it.
//
// A CTA computes a kTileM x kTileN tile of D in steps of kTileK = 64 along K. TMA copies both
// operands' tiles of a step, K-major: rows of 64 FP16, the 128 bytes of the 128-byte swizzle. Each of
// kWarpgroups warpgroups multiplies kWarpgroupM rows of the tile by all of its columns, with
// instructions of 64 x kInstructionN x 16.
//
// Include after the generated parameter block (cutlass_study/wgmma_source.py), which defines, in
// namespace cutlass_study: int kTileM, kTileN, kWarpgroupM, kInstructionN, kStages, kThreads,
// kSharedBytes; bool kStagedEpilogue, kHalfOutput.
#pragma once

#include "abi.hpp"
#include "output_element.cuh"
#include "wgmma_hardware.cuh"
#include "wgmma_instruction.cuh"

namespace cutlass_study {

constexpr int kTileK = 64;         // FP16 elements in a row of the 128-byte swizzle
constexpr int kInstructionM = 64;  // fixed by the hardware, as is kInstructionK
constexpr int kInstructionK = 16;
constexpr int kRowBytes = kTileK * 2;
constexpr int kWarpgroups = kTileM / kWarpgroupM;  // those that multiply
constexpr int kBlocksM = kWarpgroupM / kInstructionM;
constexpr int kBlocksN = kTileN / kInstructionN;

// ---- Shared memory --------------------------------------------------------------------------

// kStages buffers of A's and B's tile, then the barriers. The staged epilogue takes the buffers'
// place. Tiles must begin at multiples of 1024: the swizzle repeats after 8 rows of 128 bytes, and
// counts them by the address.
constexpr int kBytesA = kTileM * kRowBytes, kBytesB = kTileN * kRowBytes;
constexpr int kStageBytes = kBytesA + kBytesB;
constexpr int kRingBytes = kStages * kStageBytes;
// A warpgroup stages a block of 64 rows at a time. Eight floats more a row: eight lanes, that store
// to as many rows, then meet different banks.
constexpr int kStagingStride = kTileN + 8;
constexpr int kStagingFloats = kInstructionM * kStagingStride;
constexpr int kStagingBytes = kStagedEpilogue ? kWarpgroups * kStagingFloats * 4 : 0;
constexpr int kBufferBytes = kRingBytes > kStagingBytes ? kRingBytes : kStagingBytes;
constexpr int kBarriers = 2 * kStages;

static_assert(kSharedBytes == kBufferBytes + kBarriers * 8,
              "wgmma_source.py and this kernel must agree on shared memory");
static_assert(kTileM % kWarpgroupM == 0 && kWarpgroupM % kInstructionM == 0, "whole warpgroups");
static_assert(kTileN % kInstructionN == 0, "whole instructions");
static_assert(kBytesA % 1024 == 0 && kBytesB % 1024 == 0 && kBufferBytes % 8 == 0,
              "tiles and barriers must be aligned");
static_assert(kTileM <= 256 && kTileN <= 256, "a TMA box has at most 256 rows");

__device__ __forceinline__ unsigned char* tile_a(unsigned char* shared, int stage) {
  return shared + stage * kStageBytes;
}
__device__ __forceinline__ unsigned char* tile_b(unsigned char* shared, int stage) {
  return tile_a(shared, stage) + kBytesA;
}

// Start both copies of a step; `full` will have seen all bytes when they are there.
__device__ __forceinline__ void load_tiles(unsigned char* shared, int stage, const TensorMap& map_a,
                                           const TensorMap& map_b, Barrier* full, int tile_row,
                                           int tile_column, int k0) {
  barrier_expect(full, kStageBytes);
  load_box(tile_a(shared, stage), &map_a, full, k0, tile_row);
  load_box(tile_b(shared, stage), &map_b, full, k0, tile_column);
}

// ---- Multiplying ----------------------------------------------------------------------------

// Matrix descriptor (PTX ISA, "Matrix descriptor"), in units of 16 bytes: start address, leading
// dimension (ignored: K-major and swizzled), stride of 8 rows; 1 << 62 means the 128-byte swizzle.
__device__ __forceinline__ unsigned long long descriptor(const void* tile) {
  const unsigned long long address = shared_address(tile);
  return (address & 0x3FFFF) >> 4 | 1ull << 16 | (8ull * kRowBytes >> 4) << 32 | 1ull << 62;
}

// How far descriptors of the same tile lie apart: whole rows, or 16 elements further on in each.
// The swizzle works on addresses, so it need not be thought of here.
constexpr unsigned long long rows_further(int rows) { return rows * kRowBytes >> 4; }
constexpr unsigned long long kNextKStep = kInstructionK * 2 >> 4;

using BlockSums = Sums<kInstructionN>;

struct Accumulators {
  BlockSums blocks[kBlocksM][kBlocksN];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < kBlocksM * kBlocksN; ++i) blocks[i / kBlocksN][i % kBlocksN].clear();
  }

  __device__ __forceinline__ void pin() {
#pragma unroll
    for (int i = 0; i < kBlocksM * kBlocksN; ++i) blocks[i / kBlocksN][i % kBlocksN].pin();
  }
};

// accumulators += A tile * B tile, both in shared memory, for the rows of one warpgroup. Returns
// when the products are complete, and with them the reading of shared memory.
__device__ __forceinline__ void multiply_tile(Accumulators& accumulators,
                                              const unsigned char* tile_a_rows,
                                              const unsigned char* tile_b_rows) {
  const unsigned long long a = descriptor(tile_a_rows), b = descriptor(tile_b_rows);
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < kBlocksM; ++i) {
#pragma unroll
    for (int j = 0; j < kBlocksN; ++j) {
#pragma unroll
      for (int step = 0; step < kTileK / kInstructionK; ++step) {
        accumulators.blocks[i][j].multiply(a + rows_further(i * kInstructionM) + step * kNextKStep,
                                           b + rows_further(j * kInstructionN) + step * kNextKStep);
      }
    }
  }
  wgmma_commit();
  wgmma_wait();
  accumulators.pin();
}

// ---- Epilogue: D = alpha * accumulators + beta * C ------------------------------------------

// With beta each thread reads C and writes D in turns. C may be D, so the compiler keeps every read
// behind the write before it: their latencies add up, and only other warps can hide them. That is
// what alpha and beta cost besides the traffic.

// Which sums a thread holds (PTX ISA, "Register Fragments", accumulator D of m64nNk16): a warp has 16
// of the 64 rows; lane l has rows l / 4 and l / 4 + 8 of them and, of every eight columns, the two
// from 2 * (l % 4) on. In registers 4 p + 2 h + c: columns 8 p + c, rows + 8 h.
struct FragmentPlace {
  int row, column;  // of register 0, within the 64 x kInstructionN block

  __device__ __forceinline__ explicit FragmentPlace(int thread)
      : row(thread / 32 * 16 + thread % 32 / 4), column(thread % 4 * 2) {}
};

// Straight from registers: a warp writes eight rows at once, eight columns of each. That is a whole
// sector of 32 bytes in FP32, but half of one in FP16.
__device__ __forceinline__ void write_direct(const Accumulators& accumulators, const Output& output,
                                             int first_row, int first_column, int thread) {
  const FragmentPlace place(thread);
#pragma unroll
  for (int i = 0; i < kBlocksM; ++i) {
#pragma unroll
    for (int j = 0; j < kBlocksN; ++j) {
      const BlockSums& block = accumulators.blocks[i][j];
#pragma unroll
      for (int pair = 0; pair < BlockSums::kCount / 2; ++pair) {
        const int row = first_row + i * kInstructionM + place.row + pair % 2 * 8;
        const int column = first_column + j * kInstructionN + place.column + pair / 2 * 8;
        const float sums[2] = {block.d[2 * pair], block.d[2 * pair + 1]};
        write_vector<2>(output, row, column, sums);
      }
    }
  }
}

// By way of shared memory, where the block is put together: then a warp reads C and writes D in whole
// rows of up to 128 columns. `staging` is the warpgroup's own. Nobody may need the tiles any more
// that lie in its place.
__device__ __forceinline__ void write_staged(const Accumulators& accumulators, const Output& output,
                                             int first_row, int first_column, int thread,
                                             float* staging) {
  constexpr int kQuad = 4, kQuadsInRow = kTileN / kQuad;
  const FragmentPlace place(thread);
#pragma unroll
  for (int i = 0; i < kBlocksM; ++i) {
    synchronize<1, 128 * kWarpgroups>();  // every tile, or the block before, is read
#pragma unroll
    for (int j = 0; j < kBlocksN; ++j) {
      const BlockSums& block = accumulators.blocks[i][j];
#pragma unroll
      for (int pair = 0; pair < BlockSums::kCount / 2; ++pair) {
        const int row = place.row + pair % 2 * 8;
        const int column = j * kInstructionN + place.column + pair / 2 * 8;
        *reinterpret_cast<float2*>(staging + row * kStagingStride + column) =
            make_float2(block.d[2 * pair], block.d[2 * pair + 1]);
      }
    }
    synchronize<1, 128 * kWarpgroups>();  // the block is complete
#pragma unroll 4
    for (int quad = thread; quad < kInstructionM * kQuadsInRow; quad += 128) {
      const int row = quad / kQuadsInRow, column = quad % kQuadsInRow * kQuad;
      const float4 staged =
          *reinterpret_cast<const float4*>(staging + row * kStagingStride + column);
      const float sums[kQuad] = {staged.x, staged.y, staged.z, staged.w};
      write_vector<kQuad>(output, first_row + i * kInstructionM + row, first_column + column, sums);
    }
  }
}

// Write warpgroup `warpgroup`'s rows of the CTA's tile.
__device__ __forceinline__ void write_tile(const Accumulators& accumulators, const Output& output,
                                           int tile_row, int tile_column, int warpgroup,
                                           unsigned char* shared) {
  const int thread = static_cast<int>(threadIdx.x) % 128;
  const int first_row = tile_row + warpgroup * kWarpgroupM;
  if (kStagedEpilogue) {
    float* staging = reinterpret_cast<float*>(shared) + warpgroup * kStagingFloats;
    write_staged(accumulators, output, first_row, tile_column, thread, staging);
  } else {
    write_direct(accumulators, output, first_row, tile_column, thread);
  }
}

}  // namespace cutlass_study

// Read by Python from the cubin, before a GPU is there to ask. `used` keeps it: no code reads it.
extern "C" __attribute__((used)) __device__ const cutlass_study::KernelInfo gemm_info = {
    cutlass_study::kSharedBytes, cutlass_study::kThreads, 0, 1, {1, 1, 1}, cutlass_study::kStages};
