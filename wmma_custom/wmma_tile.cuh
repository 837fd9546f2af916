// What the two WMMA kernels share: the tile's layout in shared memory, the copy of one tile from
// global memory, the warp's tensor-core work on it, and the epilogue. The kernels differ in their
// main loop alone, so a difference between their times is a difference between pipelines.
//
// Include after the generated parameter block (cutlass_study/wmma_source.py), which defines, in
// namespace cutlass_study: int kTileM, kTileN, kTileK, kWarpM, kWarpN, kStages; bool kBRowMajor.
#pragma once

#include <cuda_fp16.h>
#include <mma.h>

#include "abi.hpp"

namespace cutlass_study {

// ---- Layout ---------------------------------------------------------------------------------

constexpr int kFragment = 16;  // wmma's m16n16k16: a warp multiplies 16x16 by 16x16
constexpr int kVector = 8;     // FP16 elements in the 16 bytes that one thread moves at a time
constexpr int kWarpsM = kTileM / kWarpM;
constexpr int kWarpsN = kTileN / kWarpN;
constexpr int kThreads = 32 * kWarpsM * kWarpsN;
constexpr int kFragmentsM = kWarpM / kFragment;
constexpr int kFragmentsN = kWarpN / kFragment;

// Both operands' tiles are kept as they lie in global memory: "rows" of contiguous elements.
// A is kTileM rows of K; B is kTileN rows of K (column-major, tn) or kTileK rows of N (nn).
constexpr int kRowsA = kTileM, kColumnsA = kTileK;
constexpr int kRowsB = kBRowMajor ? kTileK : kTileN;
constexpr int kColumnsB = kBRowMajor ? kTileN : kTileK;

// Why rows are padded: a warp reads eight rows of 16 bytes at once, and shared memory serves 128
// bytes a cycle when the eight fall into different groups of four banks. Unpadded, rows of 32
// halves (64 bytes) put rows 0, 2, 4, 6 into the same banks: four accesses instead of one. With
// eight halves more a row is an odd multiple of 16 bytes, so eight rows meet all eight groups.
// (wmma wants the stride to be a multiple of 16 bytes, so a smaller padding is not possible.)
constexpr int kPadding = 8;
constexpr int kStrideA = kColumnsA + kPadding;
constexpr int kStrideB = kColumnsB + kPadding;

constexpr int kElementsA = kRowsA * kStrideA;
constexpr int kElementsB = kRowsB * kStrideB;
constexpr int kStageBytes = (kElementsA + kElementsB) * 2;

// The epilogue's 16x16 FP32 staging block, one a warp, reuses the tiles' memory. Its rows are
// padded by 16 bytes for the same reason.
constexpr int kStagingStride = kFragment + 4;
constexpr int kStagingFloats = kFragment * kStagingStride;
constexpr int kStagingBytes = kThreads / 32 * kStagingFloats * 4;

constexpr int kMainloopBytes = kStages * kStageBytes;
constexpr int kSharedBytes = kMainloopBytes > kStagingBytes ? kMainloopBytes : kStagingBytes;

// Backups of the rules in cutlass_study/wmma_source.py, which give the reasons in full.
static_assert(kTileM % kWarpM == 0 && kTileN % kWarpN == 0, "warps must divide the tile");
static_assert(kWarpM % kFragment == 0 && kWarpN % kFragment == 0, "a warp is 16x16 fragments");
static_assert(kTileK % kFragment == 0, "a tile is a whole number of 16-deep steps");
static_assert(kThreads <= 1024, "a CTA has at most 1024 threads");
static_assert(kTileM * kTileK % (kVector * kThreads) == 0, "every thread copies as much of A");
static_assert(kTileN * kTileK % (kVector * kThreads) == 0, "every thread copies as much of B");

// ---- Copying a tile: global memory to shared memory -----------------------------------------

// A matrix in global memory as the copy sees it: `rows` rows of `columns` contiguous elements.
struct Operand {
  const __half* data;
  long long stride;  // elements from one row to the next
  int rows, columns;
  bool vectors;  // may a multiple of kVector in any row be read as one 16-byte vector?
};

__device__ __forceinline__ bool is_aligned(const void* pointer, int bytes) {
  return reinterpret_cast<unsigned long long>(pointer) % bytes == 0;
}

__device__ __forceinline__ Operand make_operand(const __half* data, long long stride, int rows,
                                                int columns) {
  return {data, stride, rows, columns, is_aligned(data, 16) && stride % kVector == 0};
}

// Where thread threadIdx.x's i-th vector lies in a tile of kColumns columns: neighbouring threads
// take neighbouring vectors of a row, so that a warp's reads coalesce.
template <int kColumns>
__device__ __forceinline__ void vector_position(int i, int& row, int& column) {
  const int vector = i * kThreads + static_cast<int>(threadIdx.x);
  row = vector / (kColumns / kVector);
  column = vector % (kColumns / kVector) * kVector;
}

// How many of the kVector elements from (row, column) on lie inside the matrix: 0 to kVector.
__device__ __forceinline__ int elements_inside(const Operand& operand, int row, int column) {
  if (row >= operand.rows || column >= operand.columns) return 0;
  const int left = operand.columns - column;
  return left < kVector ? left : kVector;
}

template <int kRows, int kColumns>
__device__ __forceinline__ bool is_interior(const Operand& operand, int row, int column) {
  return row + kRows <= operand.rows && column + kColumns <= operand.columns;
}

// One thread's share of a tile, on its way through registers.
template <int kRows, int kColumns>
struct TileShare {
  static constexpr int kVectors = kRows * kColumns / (kVector * kThreads);
  uint4 vectors[kVectors];
};

// Read this thread's share of the tile whose corner is (row0, column0). What lies outside the
// matrix is zero, which adds nothing to a sum of products, so the arithmetic needs no bounds. A
// tile that is inside and aligned (all but the last, as a rule) is read in 16-byte vectors; only
// the rest pays for tests and 2-byte reads. The choice is the same for the whole CTA.
template <int kRows, int kColumns>
__device__ __forceinline__ void fetch_tile(TileShare<kRows, kColumns>& share,
                                           const Operand& operand, int row0, int column0) {
  constexpr int kVectors = TileShare<kRows, kColumns>::kVectors;
  int row, column;
  if (operand.vectors && is_interior<kRows, kColumns>(operand, row0, column0)) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      vector_position<kColumns>(i, row, column);
      const __half* source = operand.data + (row0 + row) * operand.stride + (column0 + column);
      share.vectors[i] = *reinterpret_cast<const uint4*>(source);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      vector_position<kColumns>(i, row, column);
      const int inside = elements_inside(operand, row0 + row, column0 + column);
      const __half* source = operand.data + (row0 + row) * operand.stride + (column0 + column);
      unsigned int words[kVector / 2];
#pragma unroll
      for (int j = 0; j < kVector; ++j) {
        const unsigned int bits = j < inside ? __half_as_ushort(source[j]) : 0u;
        words[j / 2] = j % 2 == 0 ? bits : words[j / 2] | bits << 16;
      }
      share.vectors[i] = make_uint4(words[0], words[1], words[2], words[3]);
    }
  }
}

// Write this thread's share into shared memory. Padding is never written and never read.
template <int kRows, int kColumns>
__device__ __forceinline__ void store_tile(__half* tile, const TileShare<kRows, kColumns>& share) {
  int row, column;
#pragma unroll
  for (int i = 0; i < TileShare<kRows, kColumns>::kVectors; ++i) {
    vector_position<kColumns>(i, row, column);
    *reinterpret_cast<uint4*>(tile + row * (kColumns + kPadding) + column) = share.vectors[i];
  }
}

// ---- Multiplying a tile ---------------------------------------------------------------------

using namespace nvcuda;

template <bool kRowMajor>
struct LayoutOfB {
  using Type = wmma::col_major;
};
template <>
struct LayoutOfB<true> {
  using Type = wmma::row_major;
};

using FragmentA =
    wmma::fragment<wmma::matrix_a, kFragment, kFragment, kFragment, __half, wmma::row_major>;
using FragmentB = wmma::fragment<wmma::matrix_b, kFragment, kFragment, kFragment, __half,
                                 LayoutOfB<kBRowMajor>::Type>;
using FragmentD = wmma::fragment<wmma::accumulator, kFragment, kFragment, kFragment, float>;

// A warp's kWarpM x kWarpN part of D. It stays in registers from the first k-tile to the last.
struct Accumulators {
  FragmentD fragments[kFragmentsM][kFragmentsN];
};

__device__ __forceinline__ void clear(Accumulators& accumulators) {
#pragma unroll
  for (int i = 0; i < kFragmentsM; ++i) {
#pragma unroll
    for (int j = 0; j < kFragmentsN; ++j) wmma::fill_fragment(accumulators.fragments[i][j], 0.0f);
  }
}

// Row and column of the warp's part within the CTA's tile.
__device__ __forceinline__ int warp_row() {
  return static_cast<int>(threadIdx.x) / 32 / kWarpsN * kWarpM;
}
__device__ __forceinline__ int warp_column() {
  return static_cast<int>(threadIdx.x) / 32 % kWarpsN * kWarpN;
}

// accumulators += A tile * B tile, both in shared memory. Each step of 16 along K loads
// kFragmentsM + kFragmentsN fragments for kFragmentsM * kFragmentsN products: a larger warp tile
// reads less shared memory a product, and needs more registers.
__device__ __forceinline__ void multiply_tile(Accumulators& accumulators, const __half* tile_a,
                                              const __half* tile_b) {
  const __half* warp_a = tile_a + warp_row() * kStrideA;
  const __half* warp_b = tile_b + warp_column() * (kBRowMajor ? 1 : kStrideB);
#pragma unroll
  for (int k = 0; k < kTileK; k += kFragment) {
    FragmentA a[kFragmentsM];
    FragmentB b[kFragmentsN];
#pragma unroll
    for (int i = 0; i < kFragmentsM; ++i) {
      wmma::load_matrix_sync(a[i], warp_a + i * kFragment * kStrideA + k, kStrideA);
    }
#pragma unroll
    for (int j = 0; j < kFragmentsN; ++j) {
      // Element (k, n) of B is at [n][k] in a column-major tile and at [k][n] in a row-major one.
      const int offset = kBRowMajor ? k * kStrideB + j * kFragment : j * kFragment * kStrideB + k;
      wmma::load_matrix_sync(b[j], warp_b + offset, kStrideB);
    }
#pragma unroll
    for (int i = 0; i < kFragmentsM; ++i) {
#pragma unroll
      for (int j = 0; j < kFragmentsN; ++j) {
        FragmentD& d = accumulators.fragments[i][j];
        wmma::mma_sync(d, a[i], b[j], d);
      }
    }
  }
}

// ---- Epilogue: D = alpha * accumulators + beta * C ------------------------------------------

struct Output {
  int m, n;
  float alpha, beta;
  const float* c;  // not read when beta is 0: it may be null or hold NaN
  float* d;
  long long ldc, ldd;
  bool direct;  // may whole fragments be loaded from C and stored to D by wmma?
};

// wmma::store_matrix_sync wants a 32-byte aligned address and a stride of a multiple of 4 floats.
// Fragments start at multiples of 16 rows and columns, so the matrix's own alignment decides.
__device__ __forceinline__ Output make_output(int m, int n, float alpha, float beta, const float* c,
                                              float* d, long long ldc, long long ldd) {
  const bool direct_c = beta == 0.0f || (is_aligned(c, 32) && ldc % 4 == 0);
  const bool direct_d = is_aligned(d, 32) && ldd % 4 == 0;
  // The stride is an `unsigned` in wmma's interface.
  const bool narrow = ldc <= 0x7fffffff && ldd <= 0x7fffffff;
  return {m, n, alpha, beta, c, d, ldc, ldd, direct_c && direct_d && narrow};
}

// A whole, aligned fragment: all in registers. Which element of the fragment a register holds is
// unspecified, but the same for C's fragment as for D's, so they combine element by element.
__device__ __forceinline__ void write_fragment_direct(FragmentD& fragment, const Output& output,
                                                      int row, int column) {
#pragma unroll
  for (int e = 0; e < fragment.num_elements; ++e) fragment.x[e] *= output.alpha;
  if (output.beta != 0.0f) {
    FragmentD source;
    wmma::load_matrix_sync(source, output.c + row * output.ldc + column,
                           static_cast<unsigned>(output.ldc), wmma::mem_row_major);
#pragma unroll
    for (int e = 0; e < fragment.num_elements; ++e) {
      fragment.x[e] += output.beta * source.x[e];
    }
  }
  wmma::store_matrix_sync(output.d + row * output.ldd + column, fragment,
                          static_cast<unsigned>(output.ldd), wmma::mem_row_major);
}

// A fragment that crosses D's edge, or that wmma may not store: by way of the warp's own block of
// shared memory, where every element's place is known, then element by element with bounds.
__device__ __forceinline__ void write_fragment_staged(const FragmentD& fragment,
                                                      const Output& output, int row, int column,
                                                      float* staging) {
  wmma::store_matrix_sync(staging, fragment, kStagingStride, wmma::mem_row_major);
  __syncwarp();  // the block is complete before any lane reads it
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int e = lane; e < kFragment * kFragment; e += 32) {
    const int i = e / kFragment, j = e % kFragment;
    if (row + i < output.m && column + j < output.n) {
      float value = output.alpha * staging[i * kStagingStride + j];
      if (output.beta != 0.0f) {
        value += output.beta * output.c[(row + i) * output.ldc + column + j];
      }
      output.d[(row + i) * output.ldd + column + j] = value;
    }
  }
  __syncwarp();  // every lane has read before the next fragment overwrites the block
}

// Write the warp's part of the CTA's tile whose corner is (tile_row, tile_column). `shared` is the
// CTA's whole shared memory: no warp may still be reading a tile there.
__device__ __forceinline__ void write_output(Accumulators& accumulators, const Output& output,
                                             int tile_row, int tile_column, unsigned char* shared) {
  float* staging =
      reinterpret_cast<float*>(shared) + static_cast<int>(threadIdx.x) / 32 * kStagingFloats;
#pragma unroll
  for (int i = 0; i < kFragmentsM; ++i) {
#pragma unroll
    for (int j = 0; j < kFragmentsN; ++j) {
      const int row = tile_row + warp_row() + i * kFragment;
      const int column = tile_column + warp_column() + j * kFragment;
      FragmentD& fragment = accumulators.fragments[i][j];
      if (output.direct && row + kFragment <= output.m && column + kFragment <= output.n) {
        write_fragment_direct(fragment, output, row, column);
      } else if (row < output.m && column < output.n) {
        write_fragment_staged(fragment, output, row, column, staging);
      }
    }
  }
}

}  // namespace cutlass_study

// Read by Python from the cubin, before a GPU is there to ask. `used` keeps it: no code reads it.
extern "C" __attribute__((used)) __device__ const cutlass_study::KernelInfo gemm_info = {
    cutlass_study::kSharedBytes, cutlass_study::kThreads, 0, 1, {1, 1, 1}, cutlass_study::kStages};
