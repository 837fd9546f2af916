// An sm80-family kernel as a shared library with CUTLASS's own host code, instead of sm80_exports.hpp:
// for people who want to link a kernel, and for benchmark.py, which times how long building it takes.
// The toolkit itself never does: it compiles the device code alone and needs no host compiler.
//
//   nvcc -shared -Xcompiler -fPIC -std=c++17 -DNDEBUG -gencode arch=compute_89,code=sm_89 …
#pragma once

#include "cutlass/gemm/device/gemm_universal_base.h"

namespace cutlass_study {

using DeviceGemm = cutlass::gemm::device::GemmUniversalBase<GemmKernel>;

}  // namespace cutlass_study

// Launches one GEMM in `stream` and returns cutlass::Status as int, 0 = success. With split_k > 1
// `workspace` must hold split-K's semaphores; sm_count and ctas_per_sm are queried, not read.
extern "C" int gemm_run(cutlass_study::GemmArguments const* arguments, cudaStream_t stream) {
  using cutlass_study::DeviceGemm;
  DeviceGemm::Arguments const kernel_arguments(
      cutlass::gemm::GemmUniversalMode::kGemm, {arguments->m, arguments->n, arguments->k},
      arguments->split_k, {arguments->alpha, arguments->beta}, arguments->a, arguments->b,
      arguments->c, arguments->d, 0, 0, 0, 0, arguments->lda, arguments->ldb, arguments->ldc,
      arguments->ldd);
  cutlass::Status const status = DeviceGemm::can_implement(kernel_arguments);
  if (status != cutlass::Status::kSuccess) return int(status);
  return int(DeviceGemm()(kernel_arguments, arguments->workspace, stream));
}
