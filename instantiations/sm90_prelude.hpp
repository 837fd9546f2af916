// Everything a Hopper kernel needs of CUTLASS 3.x, for NVRTC and nvcc. Parameters are written into
// the source below this include, never as -D options or macros: short macro names (TM, TN, ST, CM)
// collide with CuTe's template parameters.
#pragma once

#include "abi.hpp"

#if defined(__CUDACC_RTC__)
// NVRTC has no standard library, and some CUTLASS headers name std:: traits without asking whether
// they are compiled by it. cuda::std has the same traits: give them their usual names.
#include <cuda/std/cstddef>
#include <cuda/std/cstdint>
#include <cuda/std/limits>
#include <cuda/std/tuple>
#include <cuda/std/type_traits>
#include <cuda/std/utility>
namespace std {
using cuda::std::is_const_v;
using cuda::std::is_pointer_v;
using cuda::std::void_t;
}  // namespace std

#include "tensormap_record.hpp"
#include "wide_division.hpp"
#endif

#include <cutlass/cutlass.h>
#include <cutlass/numeric_types.h>

#if defined(__CUDACC_RTC__)
namespace cutlass_study {
template <>
struct TensormapDataType<cutlass::half_t> {
  static constexpr unsigned char value = 6;  // CU_TENSOR_MAP_DATA_TYPE_FLOAT16
};
}  // namespace cutlass_study
#endif

#include <cute/tensor.hpp>

// CUTLASS's umbrella headers pull in the builders, main loops and kernels of every architecture, a
// fifth of the whole compile time. Declarations come first: the .inl expects them.
#include <cutlass/gemm/collective/collective_mma_decl.hpp>
#include <cutlass/gemm/collective/sm90_mma_tma_gmma_ss_warpspecialized.hpp>
#include <cutlass/gemm/collective/collective_builder_decl.hpp>
#include <cutlass/gemm/collective/builders/sm90_gmma_builder.inl>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/kernel/gemm_universal_decl.h>
#include <cutlass/gemm/kernel/tile_scheduler.hpp>
#include <cutlass/gemm/kernel/sm90_gemm_tma_warpspecialized_cooperative.hpp>
#include <cutlass/gemm/kernel/sm90_gemm_tma_warpspecialized_pingpong.hpp>

namespace cutlass_study::sm90 {

// What a generated source chooses from.
enum class Schedule { cooperative, pingpong, streamk };
enum class Epilogue { tma, nosmem };

}  // namespace cutlass_study::sm90
