"""Shared memory, automatic stage count and legality of Hopper kernels, without a compiler.

The formulas follow CUTLASS 4.2: ``epilogue/collective/builders/sm90_builder.inl`` (epilogue tile
and stages), ``gemm/collective/builders/sm90_gmma_builder.inl`` (automatic stages) and the
``SharedStorage`` of ``gemm/kernel/sm90_gemm_tma_warpspecialized_{cooperative,pingpong}.hpp``. Tests
hold them against compiled kernels.

Shared memory comes in three parts: barriers, the epilogue's C and D tiles, the main loop's A and B
tiles. A check of the last part alone passes kernels that can't be launched (NVIDIA/cutlass#3144).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from cutlass_study.config import GemmConfig, GemmProblem

Shape = tuple[int, int, int]

OPERAND_BYTES = 2  # A and B are FP16
SMEM_CAPACITY_BYTES = 232448  # cutlass sm90_smem_capacity_bytes; 227 KiB, sm_90's opt-in limit

_SOURCE_BYTES = {"void": 0, "half": 2, "float": 4}
_OUTPUT_BYTES = {"f16": 2, "f32": 4}

_TMA_ACCESS_BYTES = 16  # CUDA driver API, cuTensorMapEncodeTiled: addresses and strides
_TMA_BOX_EXTENT = 256  # the same: elements of a box along one dimension
_BARRIER_PAIR_BYTES = 16  # a full and an empty mbarrier, per stage of a pipeline
_ORDER_BARRIER_BYTES = {"cooperative": 16, "streamk": 16, "pingpong": 32 + 16}
_SCHEDULER_BYTES = 16  # an empty class aligned to 16
_MMA_M = 64  # rows of one WGMMA, one warp group
_MMA_K = 16
_MAX_CLUSTER_CTAS = 8  # the portable cluster size; 16 needs an opt-in attribute


@dataclass(frozen=True, slots=True)
class Sm90Kernel:
    """What determines a Hopper kernel's resources; the words of ``sm90_source``.

    ``stages`` None: as many as fit beside the epilogue.
    """

    tile: Shape
    cluster: Shape
    schedule: str
    stages: int | None
    source_c: str
    epilogue: str
    epilogue_width: int
    alignment: int
    layout: str
    output: str


def kernel_of(config: GemmConfig, problem: GemmProblem) -> Sm90Kernel:
    """What of an `sm90` configuration determines its resources."""
    assert config.threadblock_shape and config.cluster_shape and config.schedule
    assert config.source_c and config.epilogue and config.epilogue_width and config.alignment
    return Sm90Kernel(
        tile=config.threadblock_shape,
        cluster=config.cluster_shape,
        schedule=config.schedule,
        stages=config.stages,
        source_c=config.source_c,
        epilogue=config.epilogue,
        epilogue_width=config.epilogue_width,
        alignment=config.alignment,
        layout=problem.layout,
        output=problem.output,
    )


@dataclass(frozen=True, slots=True)
class _EpilogueStorage:
    """Bytes of C and D tiles, their alignment, and the stages that load C."""

    tensor_bytes: int
    alignment: int
    load_stages: int


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def epilogue_tile(kernel: Sm90Kernel) -> tuple[int, int]:
    """(M, N) that one step of the TMA epilogue stores (``sm90_compute_tile_shape_or_override``)."""
    tile_m, tile_n, _ = kernel.tile
    rows = _MMA_M if kernel.schedule == "pingpong" else 2 * _MMA_M
    return min(rows, tile_m), gcd(min(32, tile_n), tile_n)


def _swizzle_alignment(row_bytes: int) -> int:
    """Alignment of a row-major tile: 8 rows of the widest swizzle (128, 64, 32, 16 B) it allows."""
    return 8 * next(width for width in (128, 64, 32, 16) if row_bytes % width == 0)


def _epilogue_storage(kernel: Sm90Kernel) -> _EpilogueStorage:
    if kernel.epilogue == "nosmem":
        return _EpilogueStorage(tensor_bytes=1, alignment=1, load_stages=0)
    tile_m, tile_n, _ = kernel.tile
    rows, columns = epilogue_tile(kernel)
    source, output = _SOURCE_BYTES[kernel.source_c], _OUTPUT_BYTES[kernel.output]
    steps = (tile_m // rows) * (tile_n // columns)
    store_stages = min(steps, 2)
    load_stages = min(steps, 4)
    alignment = _swizzle_alignment(columns * output)
    tensor_bytes = store_stages * rows * columns * output
    if source == output:  # C's tiles are overwritten by D's
        load_stages = max(load_stages, store_stages + 1)
        tensor_bytes = load_stages * rows * columns * output
    elif source:
        source_bytes = _round_up(load_stages * rows * columns * source, alignment)
        tensor_bytes += source_bytes
        alignment = max(alignment, _swizzle_alignment(columns * source))
    # The fusion's storage is empty, but stands behind the tiles and so costs one more alignment.
    return _EpilogueStorage(
        tensor_bytes=_round_up(_round_up(tensor_bytes, alignment) + 1, alignment),
        alignment=alignment,
        load_stages=load_stages,
    )


def _stage_bytes(kernel: Sm90Kernel) -> int:
    tile_m, tile_n, tile_k = kernel.tile
    return (tile_m + tile_n) * tile_k * OPERAND_BYTES


def pipeline_stages(config: GemmConfig, problem: GemmProblem) -> int | None:
    """Stages of any kernel's main loop, with `sm90`'s "auto" resolved; `None` for cuBLAS."""
    if config.family == "sm90":
        return resolved_stages(kernel_of(config, problem))
    return config.stages


def resolved_stages(kernel: Sm90Kernel) -> int:
    """Pipeline stages of the main loop: those asked for, or what CUTLASS takes by itself.

    The automatic count (``StageCountAutoCarveout<sizeof(epilogue storage)>``) may be below 2, the
    least that the main loop can do with.
    """
    if kernel.stages is not None:
        return kernel.stages
    epilogue = _epilogue_storage(kernel)
    carveout = _round_up(
        epilogue.tensor_bytes + epilogue.load_stages * _BARRIER_PAIR_BYTES, epilogue.alignment
    )
    available = SMEM_CAPACITY_BYTES - _round_up(carveout, 128)
    return available // (_round_up(_stage_bytes(kernel), 128) + _BARRIER_PAIR_BYTES)


def smem_bytes(kernel: Sm90Kernel) -> int:
    """Dynamic shared memory of one CTA: ``sizeof(GemmKernel::SharedStorage)``."""
    stages = resolved_stages(kernel)
    epilogue = _epilogue_storage(kernel)
    alignment = max(128, epilogue.alignment)
    barriers = (
        stages * _BARRIER_PAIR_BYTES
        + max(1, epilogue.load_stages) * _BARRIER_PAIR_BYTES
        + _ORDER_BARRIER_BYTES[kernel.schedule]
        + _SCHEDULER_BYTES
    )
    tensors = _round_up(epilogue.tensor_bytes, 128) + stages * _stage_bytes(kernel)
    return _round_up(barriers, alignment) + _round_up(tensors, alignment)


def accumulator_registers(kernel: Sm90Kernel) -> int:
    """32-bit registers that a thread of a consumer warp group needs for accumulators alone."""
    tile_m, tile_n, _ = kernel.tile
    threads = 128 if kernel.schedule == "pingpong" else 256
    return tile_m * tile_n // threads


def tile_reason(kernel: Sm90Kernel) -> str | None:
    """Whether the tile suits the schedule and WGMMA (the kernels' asserts, ``ss_op_selector``)."""
    tile_m, tile_n, tile_k = kernel.tile
    unit_m = _MMA_M if kernel.schedule == "pingpong" else 2 * _MMA_M
    if tile_m % unit_m:
        return f"{kernel.schedule} schedule needs tile M to be a multiple of {unit_m}, not {tile_m}"
    if tile_n % 8:
        return f"WGMMA needs tile N to be a multiple of 8, not {tile_n}"
    if kernel.epilogue == "tma" and tile_n % 16:  # stmatrix.x4 of its epilogue tile
        return f"TMA epilogue needs tile N to be a multiple of 16, not {tile_n}"
    if tile_k % _MMA_K:
        return f"WGMMA needs tile K to be a multiple of {_MMA_K}, not {tile_k}"
    if max(tile_m, tile_n) > _TMA_BOX_EXTENT:
        return f"TMA loads at most {_TMA_BOX_EXTENT} rows of a tile, not {max(tile_m, tile_n)}"
    return None


def register_reason(kernel: Sm90Kernel) -> str | None:
    """Whether the accumulators fit into a thread's registers.

    Such a kernel would build and spill: 240 is what the kernels' ``MmaRegisterRequirement`` gives a
    consumer thread under heavy register pressure.
    """
    needed = accumulator_registers(kernel)
    if needed >= 240:
        return f"needs {needed} accumulator registers per thread, limit 240 with all others"
    return None


def cluster_reason(kernel: Sm90Kernel) -> str | None:
    """Whether the cluster can be launched, scheduled and multicast over."""
    cluster_m, cluster_n, cluster_k = kernel.cluster
    if cluster_k != 1:
        return f"cluster K must be 1, not {cluster_k}: CTAs of a cluster share A and B tiles"
    for extent in (cluster_m, cluster_n):
        if extent & (extent - 1):  # the tile scheduler's FastDivmodU64Pow2
            return f"cluster extents must be powers of 2, not {extent}"
    if cluster_m * cluster_n > _MAX_CLUSTER_CTAS:
        return f"cluster of {cluster_m * cluster_n} CTAs, portable limit {_MAX_CLUSTER_CTAS}"
    for what, extent, sharers in (
        ("M", kernel.tile[0], cluster_n),
        ("N", kernel.tile[1], cluster_m),
    ):
        if extent % (8 * sharers):  # each CTA multicasts its share, in whole 8-row swizzle atoms
            return (
                f"tile {what} of {extent} can't be split into 8-row parts among "
                f"{sharers} CTAs of the cluster"
            )
    return None


def alignment_reason(kernel: Sm90Kernel) -> str | None:
    """Whether A, B and, with the TMA epilogue, C and D move in 16-byte accesses."""
    if kernel.alignment * OPERAND_BYTES % _TMA_ACCESS_BYTES:
        return (
            f"TMA needs {_TMA_ACCESS_BYTES} B accesses of A and B, "
            f"alignment {kernel.alignment} gives {kernel.alignment * OPERAND_BYTES} B"
        )
    if kernel.epilogue == "nosmem":
        return None
    for what, size in (
        ("C", _SOURCE_BYTES[kernel.source_c]),
        ("D", _OUTPUT_BYTES[kernel.output]),
    ):
        if kernel.epilogue_width * size % _TMA_ACCESS_BYTES:
            return (
                f"TMA epilogue needs {_TMA_ACCESS_BYTES} B accesses of {what}, "
                f"width {kernel.epilogue_width} gives {kernel.epilogue_width * size} B"
            )
    return None


def memory_reason(kernel: Sm90Kernel, limit_bytes: int) -> str | None:
    """Whether two stages or more fit into ``limit_bytes`` (the device's opt-in limit per CTA)."""
    stages = resolved_stages(kernel)
    if stages < 2:
        return f"needs at least 2 stages, {stages} fit beside the epilogue"
    needed = smem_bytes(kernel)
    if needed > limit_bytes:
        return f"needs {needed} B of shared memory, limit {limit_bytes} B"
    return None


def infeasible_reason(kernel: Sm90Kernel, limit_bytes: int = SMEM_CAPACITY_BYTES) -> str | None:
    """The first reason against a kernel, or None. ``limit_bytes``: opt-in shared memory per CTA."""
    for reason in (tile_reason, cluster_reason, alignment_reason, register_reason):
        found = reason(kernel)
        if found is not None:
            return found
    return memory_reason(kernel, limit_bytes)
