// The sm80 family: CUTLASS 2.x device-level GemmUniversal, FP16 in, FP32 accumulate.
//
// A generated source includes sm80_prelude.hpp, defines the parameters used below in namespace
// cutlass_study, then includes this file and sm80_exports.hpp (or sm80_shared_library.hpp). With
// stages == 2 CUTLASS selects MmaPipelined (register-staged, no cp.async); from 3 on MmaMultistage:
// another main loop, not one stage less.
#pragma once

namespace cutlass_study {

using GemmKernel = typename cutlass::gemm::kernel::DefaultGemmUniversal<
    cutlass::half_t, cutlass::layout::RowMajor, cutlass::ComplexTransform::kNone, kAlignment,
    cutlass::half_t, LayoutB, cutlass::ComplexTransform::kNone, kAlignment, ElementOutput,
    cutlass::layout::RowMajor, float, cutlass::arch::OpClassTensorOp, cutlass::arch::Sm80,
    ThreadblockShape, WarpShape, cutlass::gemm::GemmShape<16, 8, 16>,
    cutlass::epilogue::thread::LinearCombination<ElementOutput, kEpilogueWidth, float, float>,
    cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<kSwizzle>, kStages,
    cutlass::arch::OpMultiplyAdd>::GemmKernel;

}  // namespace cutlass_study
