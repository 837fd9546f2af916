// What every sm80-family module exports, whichever front end declared GemmKernel: the C++ templates
// of sm80_gemm.hpp or the source that CUTLASS's Python interface emits.
//
//   gemm         the kernel, as cutlass::Kernel2 would launch it
//   gemm_params  builds the kernel's Params on the device, so that no host compiler is needed
//   gemm_info    what a launcher must know, readable from the cubin without a GPU
#pragma once

#include "sm80_coverage.hpp"

namespace cutlass_study {

using GemmParams = GemmKernel::Params;

static_assert(sizeof(GemmParams) <= sizeof(GemmLaunch::params), "Params outgrew GemmLaunch");

extern "C" __device__ const KernelInfo gemm_info = {int(sizeof(GemmKernel::SharedStorage)),
                                                    GemmKernel::kThreadCount,
                                                    int(sizeof(GemmParams)),
                                                    int(alignof(GemmParams)),
                                                    {1, 1, 1},
                                                    GemmKernel::kStages};

// No launch bounds: cutlass::Kernel2 has none, and the registers must be those CUTLASS users get.
extern "C" __global__ void gemm(__grid_constant__ GemmParams const params) {
  extern __shared__ __align__(16) unsigned char shared_storage[];
  GemmKernel::invoke(params, *reinterpret_cast<GemmKernel::SharedStorage*>(shared_storage));
}

// Alignment is judged by leading dimensions and by K. GemmUniversal::can_implement judges extents
// alone, but N or M may be anything: rows of padding are never stored, columns of it hold zeros.
// K must be a multiple all the same: the main loop visits K's residue first and then steps by it.
CUTLASS_DEVICE cutlass::Status check(GemmArguments const& arguments) {
  bool const misaligned =
      arguments.k % GemmKernel::kAlignmentA != 0 || arguments.lda % GemmKernel::kAlignmentA != 0 ||
      arguments.ldb % GemmKernel::kAlignmentB != 0 ||
      arguments.ldc % GemmKernel::kAlignmentC != 0 || arguments.ldd % GemmKernel::kAlignmentC != 0;
  if (misaligned) return cutlass::Status::kErrorMisalignedOperand;
  if (arguments.m < 1 || arguments.n < 1 || arguments.k < 1 || arguments.split_k < 1) {
    return cutlass::Status::kErrorInvalidProblem;
  }
  return cutlass::Status::kSuccess;
}

extern "C" __global__ void gemm_params(GemmArguments const arguments, GemmLaunch* launch) {
  launch->status = int(check(arguments));
  if (launch->status != int(cutlass::Status::kSuccess)) return;
  // An operand-swapped declaration (column-major C, as CUTLASS's Python interface emits it) resolves
  // to this same row-major kernel, so the arguments need no transposition.
  typename GemmKernel::Arguments const kernel_arguments(
      cutlass::gemm::GemmUniversalMode::kGemm, {arguments.m, arguments.n, arguments.k},
      arguments.split_k, {arguments.alpha, arguments.beta}, arguments.a, arguments.b, arguments.c,
      arguments.d, 0, 0, 0, 0, arguments.lda, arguments.ldb, arguments.ldc, arguments.ldd);
  GemmParams params(kernel_arguments, arguments.sm_count, arguments.ctas_per_sm);
  params.semaphore = static_cast<int*>(arguments.workspace);
  dim3 const grid = params.get_grid_dims();
  launch->grid[0] = int(grid.x);
  launch->grid[1] = int(grid.y);
  launch->grid[2] = int(grid.z);
  launch->params_bytes = int(sizeof(GemmParams));
  launch->workspace_bytes = int(params.get_workspace_size());
  *reinterpret_cast<GemmParams*>(launch->params) = params;
}

}  // namespace cutlass_study
