"""Legality of the `sm80` family and of what all families share, decided before compiling.

Each rule is one function that cites its source and returns `None` or a reason with the numbers.
The C++ static assertions behind them are the backup, not the check.
"""

from __future__ import annotations

from collections.abc import Callable

from cutlass_study.config import GemmConfig, GemmProblem, Shape, format_shape
from cutlass_study.gpus import GpuLimits

INSTRUCTION_SHAPE: Shape = (16, 8, 16)  # mma.sync.m16n8k16, the FP16 shape of arch::Sm80
MAX_ACCESS_BYTES = 16  # widest global load or store of a thread

Rule = Callable[[GemmConfig, GemmProblem, GpuLimits], str | None]


def warp_counts(config: GemmConfig) -> Shape:
    """Warps along M, N and K (K > 1 is CUTLASS's sliced-K)."""
    tile, warp = config.threadblock_shape, config.warp_shape
    assert tile and warp
    return tile[0] // warp[0], tile[1] // warp[1], tile[2] // warp[2]


def threads(config: GemmConfig) -> int:
    m, n, k = warp_counts(config)
    return 32 * m * n * k


def mainloop_bytes(config: GemmConfig) -> int:
    """Shared memory of the main loop: stages × (A tile + B tile) in FP16."""
    assert config.threadblock_shape and config.stages
    m, n, k = config.threadblock_shape
    return config.stages * (m + n) * k * 2


def epilogue_bytes(config: GemmConfig, problem: GemmProblem) -> int:
    """Shared memory of the epilogue.

    Source: `EpilogueBase::SharedStorage`: 8 rows per warp row and fragment, columns padded by 8
    FP32. Two fragments an iteration exist only for FP32 width 4 and FP16 width 8
    (`DefaultIteratorsTensorOp`), and not with sliced-K.
    """
    assert config.threadblock_shape
    warps_m, _, warps_k = warp_counts(config)
    wide = (problem.output, config.epilogue_width) in (("f32", 4), ("f16", 8))
    fragments = 2 if wide and warps_k == 1 else 1
    return 8 * warps_m * warps_k * fragments * (config.threadblock_shape[1] + 8) * 4


def sm80_smem_bytes(config: GemmConfig, problem: GemmProblem) -> int:
    """Dynamic shared memory per CTA in bytes: `union SharedStorage`, so the larger of the two."""
    return max(mainloop_bytes(config), epilogue_bytes(config, problem))


def sm80_arch(config: GemmConfig, problem: GemmProblem, limits: GpuLimits) -> str | None:
    """cp.async and mma.m16n8k16 exist from compute capability 8.0 on."""
    number = int(limits.arch.removeprefix("sm_").rstrip("a"))
    return None if number >= 80 else f"the sm80 family needs sm_80 or later, not {limits.arch}"


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
    """MmaTensorOp iterates whole 16x8x16 instructions; ldmatrix loads 16 columns of B at once."""
    warp = config.warp_shape
    assert warp
    if warp[0] % 16 or warp[1] % 16 or warp[2] % 16:
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


def b_tile_columns(config: GemmConfig, problem: GemmProblem, limits: GpuLimits) -> str | None:
    """Row-major B uses the congruous layout, which swizzles 64 columns at a time."""
    assert config.threadblock_shape
    n = config.threadblock_shape[1]
    if problem.layout == "nn" and n % 64:
        return f"row-major B needs a tile N that is a multiple of 64, not {n}"
    return None


def thread_count(config: GemmConfig, problem: GemmProblem, limits: GpuLimits) -> str | None:
    """CUDA's limit of threads per block."""
    count = threads(config)
    if count > limits.threads_per_block:
        return f"needs {count} threads, limit {limits.threads_per_block}"
    return None


def load_thread_map(config: GemmConfig, problem: GemmProblem, limits: GpuLimits) -> str | None:
    """PitchLinearWarpRakedThreadMap: each thread makes whole 16-byte loads of each operand tile."""
    assert config.threadblock_shape
    m, n, k = config.threadblock_shape
    warps = threads(config) // 32
    rows_per_warp = 32 // (k // 8)
    tiles = [("A", m)] + ([("B", n)] if problem.layout == "tn" else [])
    for operand, rows in tiles:
        if rows % (rows_per_warp * warps):
            return (
                f"{warps} warps load {rows_per_warp * warps} rows of {operand} at a time, "
                f"tile has {rows}"
            )
    if problem.layout == "nn" and k % (4 * max(1, warps // (n // 64))):
        return f"{warps} warps can't share the {k}x{n} tile of row-major B"
    return None


def epilogue_rows(config: GemmConfig, problem: GemmProblem, limits: GpuLimits) -> str | None:
    """OutputTileOptimalThreadMap: "Iteration Count Row/Column must be > 0", for its 2-D case.

    8 rows of a warp row are shared by the warps along N (and K); a warp covers `access_rows` of
    them at 256 bytes a row where it can.
    """
    assert config.threadblock_shape and config.epilogue_width
    width, columns = config.epilogue_width, config.threadblock_shape[1]
    warps_m = warp_counts(config)[0]
    warps_left = max(1, threads(config) // 32 // warps_m)
    nothing = f"epilogue width {width} leaves no rows for some warps of tile N={columns}"
    if warps_left >= 8:
        return nothing if columns // width // 32 == 0 else None
    rows = 8 // warps_left
    target_width = 256 // (width * problem.output_bytes)
    target_rows = 32 // target_width
    if target_rows > rows:
        access_width, access_rows = 32 // rows, rows
    else:
        access_width = min(columns // width, 32, target_width)
        access_rows = min(8, 32 // access_width) if access_width else 0
    if not access_rows or rows // access_rows == 0 or columns // width // access_width == 0:
        return nothing
    return None


def accumulator_registers(
    config: GemmConfig, problem: GemmProblem, limits: GpuLimits
) -> str | None:
    """Each thread holds warp M·N/32 FP32 accumulators in registers, besides everything else."""
    warp = config.warp_shape
    assert warp
    need = warp[0] * warp[1] // 32
    if need >= limits.registers_per_thread:
        return (
            f"warp tile {format_shape(warp)} needs {need} accumulator registers per thread, "
            f"limit {limits.registers_per_thread}"
        )
    total = need * threads(config)
    if total > limits.registers_per_sm:
        return f"needs {total} accumulator registers per CTA, limit {limits.registers_per_sm}"
    return None


def shared_memory(config: GemmConfig, problem: GemmProblem, limits: GpuLimits) -> str | None:
    """CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN."""
    need = sm80_smem_bytes(config, problem)
    if need > limits.smem_per_block_optin:
        return f"needs {need} B of shared memory, limit {limits.smem_per_block_optin} B"
    return None


def cp_async_width(config: GemmConfig, problem: GemmProblem, limits: GpuLimits) -> str | None:
    """cp.async copies 4, 8 or 16 bytes; the multistage main loop (S >= 3) uses it."""
    assert config.stages and config.alignment
    if config.stages >= 3 and config.alignment < 2:
        return (
            f"cp.async needs at least 4 bytes, alignment {config.alignment} gives "
            f"{2 * config.alignment}; use alignment 2 or S=2"
        )
    return None


def epilogue_access(config: GemmConfig, problem: GemmProblem, limits: GpuLimits) -> str | None:
    """A thread stores at most 16 bytes at once; a wider one compiles to the same code."""
    assert config.epilogue_width
    wide = config.epilogue_width * problem.output_bytes
    if wide > MAX_ACCESS_BYTES:
        return (
            f"epilogue width {config.epilogue_width} is {wide} bytes per access, "
            f"limit {MAX_ACCESS_BYTES}"
        )
    return None


def operand_alignment(config: GemmConfig, problem: GemmProblem, limits: GpuLimits) -> str | None:
    """Vector accesses need leading dimensions, and only those, to be multiples of the width."""
    assert config.alignment
    lda, ldb, _ = problem.leading_dimensions
    for operand, leading in (("A", lda), ("B", ldb)):
        if leading % config.alignment:
            return (
                f"leading dimension {leading} of {operand} is not a multiple of "
                f"alignment {config.alignment}"
            )
    return None


def output_alignment(config: GemmConfig, problem: GemmProblem, limits: GpuLimits) -> str | None:
    """D's rows must start at multiples of the epilogue width."""
    assert config.epilogue_width
    leading = problem.leading_dimensions[2]
    if leading % config.epilogue_width:
        return (
            f"leading dimension {leading} of D is not a multiple of "
            f"epilogue width {config.epilogue_width}"
        )
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
    k_tile,
    two_warp_k_steps,
    thread_count,
    accumulator_registers,
    epilogue_access,
    shared_memory,
    b_tile_columns,
    load_thread_map,
    epilogue_rows,
    cp_async_width,
    operand_alignment,
    output_alignment,
    split_k_slices,
)


def sm80_reason(config: GemmConfig, problem: GemmProblem, limits: GpuLimits) -> str | None:
    """The first rule that forbids this configuration, or `None`."""
    for rule in SM80_RULES:
        reason = rule(config, problem, limits)
        if reason is not None:
            return reason
    return None
