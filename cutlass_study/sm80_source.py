"""C++ of an `sm80` kernel, from two front ends that must agree.

`template_source` fills the C++ templates of `instantiations/`; `interface_source` lets CUTLASS's
Python interface (`cutlass_library`) declare and emit the same kernel.
"""

from __future__ import annotations

from cutlass_study.config import GemmConfig, GemmProblem, Shape
from cutlass_study.sm80_resources import warp_counts

PRELUDE = "sm80_prelude.hpp"
EXPORTS = "sm80_exports.hpp"  # device code alone, for NVRTC
SHARED_LIBRARY = "sm80_shared_library.hpp"  # with host code that launches it, for nvcc


def _gemm_shape(shape: Shape) -> str:
    return "cutlass::gemm::GemmShape<{}, {}, {}>".format(*shape)


def template_source(config: GemmConfig, problem: GemmProblem, exports: str = EXPORTS) -> str:
    """The C++ translation unit of one configuration, from `instantiations/sm80_gemm.hpp`.

    `exports` is the header that says what the unit offers: `EXPORTS` or `SHARED_LIBRARY`.
    """
    assert config.threadblock_shape and config.warp_shape
    layout = "ColumnMajor" if problem.layout == "tn" else "RowMajor"
    element = "float" if problem.output == "f32" else "cutlass::half_t"
    return f"""#include "{PRELUDE}"
namespace cutlass_study {{
using LayoutB = cutlass::layout::{layout};
using ElementOutput = {element};
using ThreadblockShape = {_gemm_shape(config.threadblock_shape)};
using WarpShape = {_gemm_shape(config.warp_shape)};
constexpr int kStages = {config.stages};
constexpr int kAlignment = {config.alignment};
constexpr int kEpilogueWidth = {config.epilogue_width};
constexpr int kSwizzle = {config.swizzle};
}}  // namespace cutlass_study
#include "sm80_gemm.hpp"
#include "{exports}"
"""


def interface_source(config: GemmConfig, problem: GemmProblem) -> str:
    """The same kernel as declared to and emitted by CUTLASS's Python interface.

    For a column-major C, `cutlass_library` emits the kernel of the transposed problem. So what is
    declared is D^T = B^T A^T with a column-major D^T, and what it emits is the row-major type of
    the templates (one and the same type, so the tile is not swapped).
    """
    import cutlass_library as cl
    from cutlass_library.gemm_operation import EmitGemmUniversalInstance, GemmOperation

    assert config.threadblock_shape and config.stages
    half, single = cl.DataType.f16, cl.DataType.f32
    output = single if problem.output == "f32" else half
    b_transposed = cl.LayoutType.RowMajor if problem.layout == "tn" else cl.LayoutType.ColumnMajor
    instruction = cl.MathInstruction(
        [16, 8, 16], half, half, single, cl.OpcodeClass.TensorOp, cl.MathOperation.multiply_add
    )
    tile = cl.TileDescription(
        list(config.threadblock_shape),
        config.stages,
        list(warp_counts(config)),
        instruction,
        80,
        1024,
    )
    operation = GemmOperation(
        cl.GemmKind.Universal,
        80,
        tile,
        cl.TensorDescription(half, b_transposed, config.alignment),
        cl.TensorDescription(half, cl.LayoutType.ColumnMajor, config.alignment),
        cl.TensorDescription(output, cl.LayoutType.ColumnMajor, config.epilogue_width),
        single,
        cl.EpilogueFunctor.LinearCombination,
        getattr(cl.SwizzlingFunctor, f"Identity{config.swizzle}"),
    )
    emitted = EmitGemmUniversalInstance().emit(operation)
    kernel = f"{operation.procedural_name()}_base"
    return f"""#include "{PRELUDE}"
{emitted}
namespace cutlass_study {{
using GemmKernel = {kernel};
}}  // namespace cutlass_study
#include "{EXPORTS}"
"""
