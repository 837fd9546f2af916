"""The WGMMA kernels of `wmma_custom/`, the H100 worklog's kernels 7 to 9: source text and rules.

`serial_nN` loads a tile by TMA, waits, multiplies and waits again; `pipelined_nN` has one warpgroup
that only loads, into a ring of S tiles, and one or two that only multiply. N is the width of the
instruction, wgmma.m64nNk16. A configuration's `warp_shape` is a warpgroup's part of the tile, so it
says how many warpgroups multiply. Everything here is arithmetic and text: no compiler and no GPU is
needed.
"""

from __future__ import annotations

from cutlass_study.config import GemmConfig, GemmProblem, UsageError, format_shape
from cutlass_study.gpus import GpuLimits

WARPGROUP = 128  # threads
INSTRUCTION_M = 64  # rows of wgmma.mma_async, its only M
TILE_K = 64  # FP16 elements in a row of the 128-byte swizzle
MAX_BOX = 256  # rows of a TMA box; also the widest instruction
VECTOR = 8  # FP16 elements in the 16 bytes that a TMA stride is a multiple of
STAGING_PADDING = 8  # floats; kStagingStride in wgmma_tile.cuh
BARRIER_BYTES = 8
# setmaxnreg of a consumer, by their number; the document's serial kernel may spill, a consumer not.
CONSUMER_REGISTERS = {1: 216, 2: 232}
ADDRESS_REGISTERS = 30  # besides the sums; an estimate, below what ptxas takes


def instruction_n(config: GemmConfig) -> int:
    """Columns of one instruction: 128 of `serial_n128`."""
    return int(str(config.variant).rpartition("_n")[2])


def is_pipelined(config: GemmConfig) -> bool:
    return str(config.variant).startswith("pipelined")


def warpgroups(config: GemmConfig) -> int:
    """Warpgroups that multiply."""
    assert config.threadblock_shape and config.warp_shape
    return config.threadblock_shape[0] // config.warp_shape[0]


def wgmma_threads(config: GemmConfig) -> int:
    """Threads per CTA, the producer's included."""
    return WARPGROUP * (warpgroups(config) + is_pipelined(config))


def wgmma_smem_bytes(config: GemmConfig) -> int:
    """Dynamic shared memory per CTA in bytes: `kSharedBytes` of wmma_custom/wgmma_tile.cuh.

    `stages` tiles of A and B, or what the staged epilogue needs in their place if that is more, and
    two barriers a stage.
    """
    assert config.threadblock_shape and config.stages
    m, n, k = config.threadblock_shape
    ring = config.stages * (m + n) * k * 2
    staging = warpgroups(config) * INSTRUCTION_M * (n + STAGING_PADDING) * 4
    buffers = max(ring, staging) if config.epilogue == "staged" else ring
    return buffers + 2 * config.stages * BARRIER_BYTES


def _shape_reason(config: GemmConfig) -> str | None:
    """Tile, warpgroups and instructions must divide; the static_asserts of wgmma_tile.cuh."""
    tile, part, columns = config.threadblock_shape, config.warp_shape, instruction_n(config)
    assert tile and part
    if tile[2] != TILE_K:
        return f"tile K={tile[2]} is not {TILE_K}, the 128-byte swizzle's row of FP16"
    if part[1:] != tile[1:]:
        return (
            f"warpgroup shape {format_shape(part)} must have the tile's N={tile[1]} and "
            f"K={tile[2]}: warpgroups divide its rows"
        )
    if part[0] % INSTRUCTION_M or tile[0] % part[0]:
        return (
            f"warpgroup rows {part[0]} must be a multiple of {INSTRUCTION_M} that divides the "
            f"tile's M={tile[0]}"
        )
    if tile[1] % columns:
        return f"tile N={tile[1]} is not a multiple of the instruction's N={columns}"
    if max(tile[:2]) > MAX_BOX:
        return f"tile {format_shape(tile)} exceeds the {MAX_BOX} rows of a TMA box"
    if warpgroups(config) not in CONSUMER_REGISTERS:
        return f"{warpgroups(config)} warpgroups would multiply; these kernels have 1 or 2"
    return None


def _register_reason(config: GemmConfig) -> str | None:
    """Sums per thread: at most the 256 that the worklog tried, in a pipeline only what fits."""
    assert config.warp_shape
    sums = config.warp_shape[0] * config.warp_shape[1] // WARPGROUP
    limit = 256
    if is_pipelined(config):
        limit = CONSUMER_REGISTERS[warpgroups(config)] - ADDRESS_REGISTERS
    if sums > limit:
        return (
            f"{sums} partial sums per thread, limit {limit}; use more warpgroups or fewer columns"
        )
    return None


def _problem_reason(config: GemmConfig, problem: GemmProblem) -> str | None:
    """B must be K-major, extents whole tiles, and rows of A and B multiples of TMA's 16 bytes."""
    assert config.threadblock_shape
    if problem.layout != "tn":
        return "these kernels read B along K: it must be column-major (layout tn)"
    for letter, extent, step in zip("MNK", problem.shape, config.threadblock_shape, strict=True):
        if extent % step:
            return f"{letter}={extent} is not a multiple of the tile's {letter}={step}"
    lda = problem.leading_dimensions[0]
    if lda % VECTOR:
        return f"leading dimension {lda} of A is not a multiple of {VECTOR}, TMA's 16 bytes"
    return None


def wgmma_reason(config: GemmConfig, problem: GemmProblem, limits: GpuLimits) -> str | None:
    """The first rule that forbids this kernel on this problem and GPU, or `None`."""
    if limits.arch != "sm_90a":
        return f"TMA and WGMMA kernels need sm_90a, not {limits.arch}"
    reason = _shape_reason(config) or _register_reason(config)
    if reason is not None:
        return reason
    need, most = wgmma_smem_bytes(config), limits.smem_per_block_optin
    if need > most:
        return f"needs {need} B of shared memory, limit {most} B"
    return _problem_reason(config, problem)


def wgmma_source(config: GemmConfig, problem: GemmProblem) -> str:
    """CUDA source of one kernel; include paths: `wmma_custom/` and `instantiations/`.

    Exports `gemm(map_a, map_b, m, n, k, alpha, beta, c, d, ldc, ldd)` and `gemm_info`. Raises
    `UsageError`, with the reason, for shapes that divide nowhere.
    """
    reason = _shape_reason(config) or _register_reason(config)
    if reason is not None:
        raise UsageError(reason)
    assert config.threadblock_shape and config.warp_shape
    m, n, _ = config.threadblock_shape
    loop = "pipelined" if is_pipelined(config) else "serial"
    return f"""\
// {config.name}_{problem.output}, generated by cutlass_study/wgmma_source.py
namespace cutlass_study {{
constexpr int kTileM = {m}, kTileN = {n};
constexpr int kWarpgroupM = {config.warp_shape[0]}, kInstructionN = {instruction_n(config)};
constexpr int kStages = {config.stages}, kThreads = {wgmma_threads(config)};
constexpr int kSharedBytes = {wgmma_smem_bytes(config)};
constexpr bool kStagedEpilogue = {"true" if config.epilogue == "staged" else "false"};
constexpr bool kHalfOutput = {"true" if problem.output == "f16" else "false"};
}}  // namespace cutlass_study

#include "wgmma_{loop}.cuh"
"""
