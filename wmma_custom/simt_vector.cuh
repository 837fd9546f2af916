// Vectors for the last two SIMT kernels: several elements by one instruction, between global memory,
// shared memory and registers.
#pragma once

#include "simt_common.cuh"

namespace cutlass_study {

constexpr int kQuad = 4;  // FP32 elements in the 16 bytes of the widest access to shared memory

// Both tiles are kept with their rows along M or N, kTileK of them: a thread's elements of one step
// along K are then neighbours. That transposes A, whose rows lie along K in global memory, and a
// column-major B. Storing a transposed vector scatters it over several rows, which would meet in
// one bank if rows were a multiple of 32 floats long; four floats more spread them, and keep every
// row a multiple of 16 bytes.
constexpr int kStrideA = kTileM + kQuad, kStrideB = kTileN + kQuad;

static_assert(kSharedBytes == kTileK * (kStrideA + kStrideB) * 4,
              "simt_source.py and this kernel must agree on shared memory");

__device__ __forceinline__ bool is_aligned(const void* pointer, int bytes) {
  return reinterpret_cast<unsigned long long>(pointer) % bytes == 0;
}

// kCount neighbouring FP16 elements: one load of 2 * kCount bytes.
template <int kCount>
struct alignas(2 * kCount) HalfVector {
  __half elements[kCount];
};

// May rows be read by vectors of kCount? All must be aligned, and none half outside the matrix.
template <int kCount>
__device__ __forceinline__ bool allows_vectors(const Matrix& matrix) {
  return is_aligned(matrix.data, 2 * kCount) && matrix.stride % kCount == 0 &&
         matrix.columns % kCount == 0;
}

// Elements (row, column) to (row, column + kCount - 1) as FP32, zero outside the matrix.
template <int kCount, bool kVectors>
__device__ __forceinline__ void fetch(float (&values)[kCount], const Matrix& matrix, int row,
                                      int column) {
  if (kVectors) {
    HalfVector<kCount> vector = {};
    if (row < matrix.rows && column < matrix.columns) {
      vector =
          *reinterpret_cast<const HalfVector<kCount>*>(matrix.data + row * matrix.stride + column);
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = __half2float(vector.elements[i]);
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = element(matrix, row, column + i);
  }
}

// Copy a tile whose rows lie along K in global memory: kExtent rows of kTileK from (first, k0).
template <int kCount, bool kVectors, int kExtent, int kStride>
__device__ __forceinline__ void copy_transposed(float* tile, const Matrix& matrix, int first,
                                                int k0) {
  constexpr int kInRow = kTileK / kCount, kRows = kThreads / kInRow;  // rows that the CTA takes
  static_assert(kTileK % kCount == 0 && kThreads % kInRow == 0 && kExtent % kRows == 0,
                "every thread copies as many vectors");
  const int thread = static_cast<int>(threadIdx.x), i = thread % kInRow * kCount;
#pragma unroll kVectors ? kExtent / kRows : 1
  for (int share = 0; share < kExtent; share += kRows) {
    const int row = share + thread / kInRow;
    float values[kCount];
    fetch<kCount, kVectors>(values, matrix, first + row, k0 + i);
#pragma unroll
    for (int j = 0; j < kCount; ++j) tile[(i + j) * kStride + row] = values[j];
  }
}

// Copy a tile whose rows lie along M or N already: kTileK rows of kExtent from (k0, first).
template <int kCount, bool kVectors, int kExtent, int kStride>
__device__ __forceinline__ void copy_straight(float* tile, const Matrix& matrix, int first,
                                              int k0) {
  constexpr int kInRow = kExtent / kCount, kRows = kThreads / kInRow;  // rows that the CTA takes
  static_assert(kExtent % kCount == 0 && kThreads % kInRow == 0 && kTileK % kRows == 0,
                "every thread copies as many vectors");
  const int thread = static_cast<int>(threadIdx.x), column = thread % kInRow * kCount;
#pragma unroll kVectors ? kTileK / kRows : 1
  for (int share = 0; share < kTileK; share += kRows) {
    const int i = share + thread / kInRow;
    float values[kCount];
    fetch<kCount, kVectors>(values, matrix, k0 + i, first + column);
#pragma unroll
    for (int j = 0; j < kCount; j += kQuad) {
      *reinterpret_cast<float4*>(tile + i * kStride + column + j) =
          make_float4(values[j], values[j + 1], values[j + 2], values[j + 3]);
    }
  }
}

template <int kCount, bool kVectors>
__device__ __forceinline__ void copy_both(float* tile_a, float* tile_b, const Matrix& a,
                                          const Matrix& b, int tile_row, int tile_column, int k0) {
  copy_transposed<kCount, kVectors, kTileM, kStrideA>(tile_a, a, tile_row, k0);
  if (kBRowMajor) {
    copy_straight<kCount, kVectors, kTileN, kStrideB>(tile_b, b, tile_column, k0);
  } else {
    copy_transposed<kCount, kVectors, kTileN, kStrideB>(tile_b, b, tile_column, k0);
  }
}

// Both tiles of a step, by vectors of kCount elements of global memory where rows allow it.
//
// The question is asked once for all of a thread's vectors, not at each. With no branch between
// them the compiler starts every load before it stores the first: the thread waits for global
// memory once a step. With a branch at each vector it waits as often as it has vectors.
template <int kCount>
__device__ __forceinline__ void copy_tiles(float* tile_a, float* tile_b, const Matrix& a,
                                           const Matrix& b, int tile_row, int tile_column, int k0) {
  if (allows_vectors<kCount>(a) && allows_vectors<kCount>(b)) {
    copy_both<kCount, true>(tile_a, tile_b, a, b, tile_row, tile_column, k0);
  } else {
    copy_both<kCount, false>(tile_a, tile_b, a, b, tile_row, tile_column, k0);
  }
}

// kCount neighbouring floats of shared memory, 16 bytes at a time.
template <int kCount>
__device__ __forceinline__ void read_quads(float* values, const float* row) {
#pragma unroll
  for (int i = 0; i < kCount; i += kQuad) {
    const float4 quad = *reinterpret_cast<const float4*>(row + i);
    values[i] = quad.x, values[i + 1] = quad.y, values[i + 2] = quad.z, values[i + 3] = quad.w;
  }
}

// May every multiple of four in a row of C and D be written as one vector?
__device__ __forceinline__ bool allows_quads(const Output& output) {
  constexpr int kBytes = sizeof(OutputVector<kQuad>);
  const bool read = output.beta == 0.0f || (is_aligned(output.c, kBytes) && output.ldc % 4 == 0);
  return read && is_aligned(output.d, kBytes) && output.ldd % 4 == 0;
}

__device__ __forceinline__ void write_quad(const Output& output, bool vectors, int row, int column,
                                           const float (&sums)[kQuad]) {
  if (vectors && row < output.m && column + kQuad <= output.n) {
    write_vector<kQuad>(output, row, column, sums);
  } else {
#pragma unroll
    for (int i = 0; i < kQuad; ++i) write_element(output, row, column + i, sums[i]);
  }
}

}  // namespace cutlass_study
