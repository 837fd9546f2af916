"""Legality of the `sm80` family, decided before compiling.

Each rule is one function that cites its source and returns `None` or a reason with the numbers.
The C++ static assertions behind them are the backup, not the check. Here are those of tiles, warps
and thread maps, and the list of all; `alignment_rules` and `sm80_resources` hold the others.
"""

from __future__ import annotations

from collections.abc import Callable

from cutlass_study.alignment_rules import (
    cp_async_width,
    epilogue_access,
    k_alignment,
    operand_alignment,
    output_alignment,
)
from cutlass_study.config import GemmConfig, GemmProblem, Shape, format_shape
from cutlass_study.gpus import GpuLimits
from cutlass_study.sm80_resources import (
    accumulator_registers,
    grid_rows,
    shared_memory,
    sm80_arch,
    thread_count,
    threads,
    warp_counts,
)
from cutlass_study.thread_maps import (
    MAX_PREDICATES,
    SWIZZLED_COLUMNS,
    VECTOR,
    WARP,
    LoadMap,
    store_map_covers,
)

INSTRUCTION_SHAPE: Shape = (16, 8, 16)  # mma.sync.m16n8k16, the FP16 shape of arch::Sm80

Rule = Callable[[GemmConfig, GemmProblem, GpuLimits], str | None]


def warp_divides_tile(config: GemmConfig, problem: GemmProblem, limits: GpuLimits) -> str | None:
    """`static_assert` "Divisibility" in DefaultThreadMapTensorOp."""
    tile, warp = config.threadblock_shape, config.warp_shape
    assert tile and warp
    if any(t % w for t, w in zip(tile, warp, strict=True)):
        return f"tile {format_shape(tile)} is not divisible by warp tile {format_shape(warp)}"
    return None


def instruction_divides_warp(
    config: GemmConfig, problem: GemmProblem, limits: GpuLimits
) -> str | None:
    """MmaTensorOp iterates whole 16x8x16 instructions and drops what is left over.

    B comes by ldmatrix, 16 columns at a time; 8 are loaded only if the warp has no more (and only
    from the crosswise layout of column-major B). Source: `LdsmIterations` in
    gemm/warp/mma_tensor_op_tile_iterator.h.
    """
    warp = config.warp_shape
    assert warp
    single_load = problem.layout == "tn" and warp[1] == INSTRUCTION_SHAPE[1]
    if warp[0] % 16 or warp[2] % 16 or (warp[1] % 16 and not single_load):
        return f"warp tile {format_shape(warp)} is not a multiple of 16x16x16"
    return None


def two_warp_k_steps(config: GemmConfig, problem: GemmProblem, limits: GpuLimits) -> str | None:
    """MmaBase: "The pipelined structure requires at least two warp-level GEMM operations"."""
    warp = config.warp_shape
    assert warp
    steps = warp[2] // INSTRUCTION_SHAPE[2]
    if steps < 2 or steps % 2:
        return (
            f"warp tile K={warp[2]} gives {steps} k-steps of {INSTRUCTION_SHAPE[2]}, "
            "an even number of at least 2 is needed"
        )
    return None


def k_tile(config: GemmConfig, problem: GemmProblem, limits: GpuLimits) -> str | None:
    """The crosswise shared-memory layout of 16-bit operands swizzles rows of 32 or 64 elements."""
    assert config.threadblock_shape
    k = config.threadblock_shape[2]
    return None if k in (32, 64) else f"K tile {k} is not 32 or 64"


def row_major_b(config: GemmConfig, problem: GemmProblem, limits: GpuLimits) -> str | None:
    """Row-major B uses the congruous layout, which swizzles 64 columns at a time, or a whole tile.

    The thread map needs 16 or 32 columns or whole 64s ("ShapeInAccesses must be divisible by
    WarpThreadArrangement"). A warp starts inside 64 swizzled columns only at column 32: see
    `add_tile_offset` of the congruous iterator in gemm/warp/mma_tensor_op_tile_iterator.h. Any
    other start compiles, and reads wrong columns.
    """
    assert config.threadblock_shape and config.warp_shape
    n, warp_n = config.threadblock_shape[1], config.warp_shape[1]
    if problem.layout != "nn":
        return None
    if n % SWIZZLED_COLUMNS and n not in (16, 32):
        return f"row-major B needs a tile N of 16, 32 or a multiple of 64, not {n}"
    if warp_n % SWIZZLED_COLUMNS and warp_n not in (32, n):
        return f"row-major B needs a warp tile N of 32 or a multiple of 64, not {warp_n}"
    return None


def _load_maps(config: GemmConfig, problem: GemmProblem) -> dict[str, LoadMap]:
    """Operand → thread map; `kWarpThreadArrangement…` in gemm/threadblock/default_mma_core_sm80.h.

    A and column-major B run along K, row-major B along N.
    """
    assert config.threadblock_shape
    m, n, k = config.threadblock_shape
    warps, crosswise = threads(config) // WARP, k // VECTOR
    maps = {"A": LoadMap(crosswise, m, crosswise, warps)}
    if problem.layout == "tn":
        return maps | {"B": LoadMap(crosswise, n, crosswise, warps)}
    access = min(n, SWIZZLED_COLUMNS) // VECTOR
    return maps | {"B": LoadMap(n // VECTOR, k, access, warps)}


def load_thread_map(config: GemmConfig, problem: GemmProblem, limits: GpuLimits) -> str | None:
    """The warps must share out each operand tile without a remainder (`LoadMap.covers`)."""
    for operand, load in _load_maps(config, problem).items():
        if not load.covers:
            return (
                f"{load.warps} warps that load {load.access_rows} rows each at a time do not "
                f"share {operand}'s {load.rows} rows of {load.vectors * VECTOR} evenly"
            )
    return None


def load_predicates(config: GemmConfig, problem: GemmProblem, limits: GpuLimits) -> str | None:
    """PredicatedTileAccessIterator: "Too many predicates."."""
    assert config.alignment
    for operand, load in _load_maps(config, problem).items():
        needed = load.predicates(config.alignment)
        if needed > MAX_PREDICATES:
            return (
                f"alignment {config.alignment} makes {needed} accesses per thread to {operand}'s "
                f"tile, limit {MAX_PREDICATES}; use a wider alignment or more warps"
            )
    return None


def epilogue_thread_map(config: GemmConfig, problem: GemmProblem, limits: GpuLimits) -> str | None:
    """The warps of a row must store its 8 x N part completely (`store_map_covers`)."""
    assert config.threadblock_shape and config.epilogue_width
    columns, width = config.threadblock_shape[1], config.epilogue_width
    warps = threads(config) // WARP // warp_counts(config)[0]
    if not store_map_covers(columns, warps, width, problem.output_bytes):
        return f"{warps} warps can't share 8 rows of {columns} at epilogue width {width} evenly"
    return None


def mixed_epilogue(config: GemmConfig, problem: GemmProblem, limits: GpuLimits) -> str | None:
    """FP16 at width 8 stores its accumulators swizzled by 32 columns, with one pointer a warp.

    Source: TileIteratorTensorOpMixed, the "optimization" for CUDA 11.2 and later: right for warp
    tiles inside 32 columns and for 64; another N compiles and writes columns in the wrong order.
    """
    assert config.warp_shape
    n = config.warp_shape[1]
    if (problem.output, config.epilogue_width) == ("f16", 8) and n != 64 and 32 % n:
        return f"FP16 output at epilogue width 8 needs a warp tile N of 8, 16, 32 or 64, not {n}"
    return None


def split_k_slices(config: GemmConfig, problem: GemmProblem, limits: GpuLimits) -> str | None:
    """Every slice of K needs at least one K tile."""
    assert config.split_k and config.threadblock_shape
    tiles = -(-problem.k // config.threadblock_shape[2])
    if config.split_k > tiles:
        return f"split-K {config.split_k} exceeds the {tiles} K tiles of K={problem.k}"
    if config.split_k > 1 and problem.output == "f16":
        return "serial split-K would round partial sums to FP16"
    return None


SM80_RULES: tuple[Rule, ...] = (
    sm80_arch,
    warp_divides_tile,
    instruction_divides_warp,
    two_warp_k_steps,
    k_tile,
    thread_count,
    accumulator_registers,
    epilogue_access,
    shared_memory,
    row_major_b,
    load_thread_map,
    load_predicates,
    epilogue_thread_map,
    mixed_epilogue,
    cp_async_width,
    operand_alignment,
    k_alignment,
    output_alignment,
    split_k_slices,
    grid_rows,
)


def sm80_reason(config: GemmConfig, problem: GemmProblem, limits: GpuLimits) -> str | None:
    """The first rule that forbids this configuration, or `None`."""
    for rule in SM80_RULES:
        reason = rule(config, problem, limits)
        if reason is not None:
            return reason
    return None
