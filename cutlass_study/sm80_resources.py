"""What an `sm80` kernel needs of a GPU: warps, threads, registers and shared memory, by formula.

The rules here compare that with the limits of a GPU (see `rules`).
"""

from __future__ import annotations

from cutlass_study.config import GemmConfig, GemmProblem, Shape, format_shape
from cutlass_study.gpus import GpuLimits

MAX_GRID_Y = 65535  # CUDA's limit of blocks along y


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


def thread_count(config: GemmConfig, problem: GemmProblem, limits: GpuLimits) -> str | None:
    """CUDA's limit of threads per block."""
    count = threads(config)
    if count > limits.threads_per_block:
        return f"needs {count} threads, limit {limits.threads_per_block}"
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


def grid_rows(config: GemmConfig, problem: GemmProblem, limits: GpuLimits) -> str | None:
    """Columns of tiles lie along the grid's y (GemmIdentityThreadblockSwizzle), limit 65535."""
    assert config.threadblock_shape
    tiles = -(-problem.n // config.threadblock_shape[1])
    return None if tiles <= MAX_GRID_Y else f"needs {tiles} columns of tiles, limit {MAX_GRID_Y}"
