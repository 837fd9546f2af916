// Step 1 of the SIMT ladder: one thread, one element of D, straight from global memory.
//
// Neighbouring threads take neighbouring columns. Of each product all 32 threads of a warp read the
// same element of A (one transaction, broadcast) and, if B is row-major (nn), 32 neighbours of B: 64
// bytes, which the hardware coalesces. If B is column-major (tn), the 32 elements lie a whole column
// apart, in 32 different cache lines: right, but several times slower.
//
// What limits it: every multiplication costs two loads. The caches take most of them, but nothing is
// used twice by the same thread.
#pragma once

#include "simt_common.cuh"

static_assert(cutlass_study::kTileM * cutlass_study::kTileN == cutlass_study::kThreads &&
                  cutlass_study::kTileK == 1,
              "one thread computes one element, one product at a time");
static_assert(cutlass_study::kSharedBytes == 0, "this kernel uses no shared memory");

extern "C" __global__ void __launch_bounds__(cutlass_study::kThreads)
    gemm(int m, int n, int k, float alpha, float beta, const __half* __restrict__ a,
         const __half* __restrict__ b, const cutlass_study::OutputElement* c,
         cutlass_study::OutputElement* d, long long lda, long long ldb, long long ldc,
         long long ldd) {
  using namespace cutlass_study;
  const int row = static_cast<int>(blockIdx.y) * kTileM + static_cast<int>(threadIdx.x) / kTileN;
  const int column = static_cast<int>(blockIdx.x) * kTileN + static_cast<int>(threadIdx.x) % kTileN;
  if (row >= m || column >= n) return;

  const __half* row_of_a = a + row * lda;
  const __half* column_of_b = kBRowMajor ? b + column : b + column * ldb;
  const long long step = kBRowMajor ? ldb : 1;
  float sum = 0.0f;
  for (int i = 0; i < k; ++i) {
    sum += __half2float(row_of_a[i]) * __half2float(column_of_b[i * step]);
  }
  write_element({m, n, alpha, beta, c, d, ldc, ldd}, row, column, sum);
}
