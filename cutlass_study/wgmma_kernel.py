"""The launcher of the hand-written WGMMA kernels: their operands reach them as TMA descriptors."""

from __future__ import annotations

import ctypes

from cutlass_study.config import GemmConfig, GemmProblem
from cutlass_study.driver import Arguments, address
from cutlass_study.kernels import HandWrittenKernel
from cutlass_study.operands import OperandSet
from cutlass_study.tensormap import DESCRIPTOR_BYTES, RecordedDescriptor, encode_descriptor
from cutlass_study.wgmma_source import TILE_K

# CUDA's numbers (cuda.h): CU_TENSOR_MAP_DATA_TYPE_FLOAT16, …_SWIZZLE_128B; 0 is "none" elsewhere.
FLOAT16, SWIZZLE_128B, NONE = 6, 3, 0


def operand_descriptor(
    data: int, rows: int, columns: int, leading: int, box_rows: int
) -> RecordedDescriptor:
    """What to encode for an operand of `rows` rows of `columns` FP16 along K, at address `data`.

    `leading` is the distance of rows in elements. A box is `box_rows` rows of 64 elements.
    """
    return RecordedDescriptor(
        offset=0,
        global_address=data,
        global_dim=(columns, rows),
        global_strides=(2 * leading,),
        box_dim=(TILE_K, box_rows),
        element_strides=(1, 1),
        data_type=FLOAT16,
        interleave=NONE,
        swizzle=SWIZZLE_128B,
        l2_promotion=NONE,
        oob_fill=NONE,
    )


def descriptors(
    config: GemmConfig, problem: GemmProblem, operands: OperandSet
) -> tuple[RecordedDescriptor, RecordedDescriptor]:
    """The descriptors of A (m rows) and of column-major B (n rows)."""
    assert config.threadblock_shape
    tile_m, tile_n, _ = config.threadblock_shape
    lda, ldb, _ = problem.leading_dimensions
    return (
        operand_descriptor(operands.a, problem.m, problem.k, lda, tile_m),
        operand_descriptor(operands.b, problem.n, problem.k, ldb, tile_n),
    )


class WgmmaKernel(HandWrittenKernel):
    """`gemm(map_a, map_b, m, n, k, alpha, beta, c, d, ldc, ldd)`: the operands come by TMA."""

    def _bind(self, problem: GemmProblem, one: OperandSet) -> Arguments:
        maps = [
            (ctypes.c_ubyte * DESCRIPTOR_BYTES).from_buffer_copy(encode_descriptor(record))
            for record in descriptors(self._config, problem, one)
        ]
        ldd = problem.leading_dimensions[2]
        return Arguments(
            *maps,
            *(ctypes.c_int(extent) for extent in problem.shape),
            ctypes.c_float(problem.alpha),
            ctypes.c_float(problem.beta),
            *(address(pointer) for pointer in (one.c or one.d, one.d)),
            *(ctypes.c_int64(leading) for leading in (ldd, ldd)),
        )


def hand_written_kernel(config: GemmConfig, image: bytes) -> HandWrittenKernel:
    """The launcher of a kernel of family `wmma`, `simt` or `wgmma`."""
    kind = WgmmaKernel if config.family == "wgmma" else HandWrittenKernel
    return kind(config, image)
