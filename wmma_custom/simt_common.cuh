// What the five SIMT kernels share: matrices in global memory with bounds, and the epilogue. They
// multiply with plain FP32 FMA instructions, no tensor cores: FP16 inputs become FP32 on their way in.
//
// The five are steps of one ladder, to be read in this order; each says what it changes:
//   simt_naive, simt_shared, simt_register_2d, simt_vectorized, simt_warp_tiling.
//
// All are launched alike. Grid: (ceil(n / kTileN), ceil(m / kTileM), 1), one CTA a tile of D.
// Threads: kThreads. Dynamic shared memory: gemm_info.smem_bytes. Any m, n, k >= 0, any leading
// dimensions and any alignment are right.
//
// Include after the generated parameter block (cutlass_study/simt_source.py), which defines, in
// namespace cutlass_study: int kTileM, kTileN, kTileK, kThreads, kSharedBytes; bool kBRowMajor,
// kHalfOutput.
#pragma once

#include "abi.hpp"
#include "output_element.cuh"

namespace cutlass_study {

// ---- Reading A and B ------------------------------------------------------------------------

// `rows` rows of `columns` contiguous elements. A is m rows of k; B is n rows of k (column-major,
// tn) or k rows of n (row-major, nn).
struct Matrix {
  const __half* data;
  long long stride;  // elements from one row to the next
  int rows, columns;
};

// What lies outside the matrix is zero, which adds nothing to a sum of products.
__device__ __forceinline__ float element(const Matrix& matrix, int row, int column) {
  if (row >= matrix.rows || column >= matrix.columns) return 0.0f;
  return __half2float(matrix.data[row * matrix.stride + column]);
}

__device__ __forceinline__ Matrix matrix_b(const __half* data, long long stride, int n, int k) {
  return kBRowMajor ? Matrix{data, stride, k, n} : Matrix{data, stride, n, k};
}

// ---- Writing D ------------------------------------------------------------------------------

__device__ __forceinline__ void write_element(const Output& output, int row, int column,
                                              float sum) {
  if (row >= output.m || column >= output.n) return;
  const float sums[1] = {sum};
  write_vector<1>(output, row, column, sums);
}

}  // namespace cutlass_study

// Read by Python from the cubin, before a GPU is there to ask. `used` keeps it: no code reads it.
extern "C" __attribute__((used)) __device__ const cutlass_study::KernelInfo gemm_info = {
    cutlass_study::kSharedBytes, cutlass_study::kThreads, 0, 1, {1, 1, 1}, 1};
