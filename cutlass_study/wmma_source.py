"""The hand-written WMMA kernels of `wmma_custom/`: their source text, rules and shared memory.

`single` is the primary document's custom kernel (seed 003: single-buffered, two barriers a k-tile);
`multistage` is the same kernel with a cp.async pipeline of 2 to 4 stages (one barrier a k-tile).
Everything here is arithmetic and text: no compiler and no GPU is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .config import Shape, format_shape

Variant = Literal["single", "multistage"]
Layout = Literal["tn", "nn"]

TILE: Shape = (128, 128, 32)
WARP: Shape = (64, 32, 32)

_FRAGMENT = 16  # nvcuda::wmma m16n16k16; kFragment in wmma_tile.cuh
_VECTOR = 8  # FP16 elements in a 16-byte copy; kVector
_PADDING = 8  # FP16 elements added to a row in shared memory; kPadding
_STAGING_STRIDE = 20  # floats in a row of the epilogue's staging block; kStagingStride
_MAX_THREADS = 1024  # a CTA: CUDA Programming Guide, "Technical Specifications"
_MAX_GRID_Y = 65535  # the same table
_MAX_INT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class WmmaVariant:
    """A main loop: `stages` buffers in shared memory (1 for `single`)."""

    variant: Variant
    stages: int


WMMA_VARIANTS: tuple[WmmaVariant, ...] = (
    WmmaVariant("single", 1),
    WmmaVariant("multistage", 2),
    WmmaVariant("multistage", 3),
    WmmaVariant("multistage", 4),
)


def wmma_name(
    *, variant: Variant, stages: int, tile: Shape = TILE, warp: Shape = WARP, layout: Layout
) -> str:
    """The kernel's identity: every compile-time parameter."""
    return f"wmma_{variant}_{format_shape(tile)}_w{format_shape(warp)}_s{stages}_{layout}"


def wmma_threads(*, tile: Shape = TILE, warp: Shape = WARP) -> int:
    """Threads per CTA: 32 for each `warp` part of `tile` (rule: `wmma_warp_reason`)."""
    return 32 * (tile[0] // warp[0]) * (tile[1] // warp[1])


def wmma_smem_bytes(*, stages: int, tile: Shape = TILE, warp: Shape = WARP, layout: Layout) -> int:
    """Dynamic shared memory per CTA in bytes: `kSharedBytes` of wmma_custom/wmma_tile.cuh.

    `stages` tiles of A (m rows of k) and B (tn: n rows of k; nn: k rows of n), two bytes an element
    and every row 8 elements longer; at least the epilogue's 16x20 floats a warp.
    """
    m, n, k = tile
    elements_a = m * (k + _PADDING)
    elements_b = n * (k + _PADDING) if layout == "tn" else k * (n + _PADDING)
    warps = wmma_threads(tile=tile, warp=warp) // 32
    staging_bytes = warps * _FRAGMENT * _STAGING_STRIDE * 4
    return max(stages * (elements_a + elements_b) * 2, staging_bytes)


def wmma_grid(*, m: int, n: int, tile: Shape = TILE) -> tuple[int, int, int]:
    """CTAs of a launch for D[m,n]: columns of tiles in x, rows of tiles in y."""
    return -(-n // tile[1]), -(-m // tile[0]), 1


def wmma_stages_reason(*, variant: Variant, stages: int) -> str | None:
    """One buffer without a pipeline, 2 to 4 with one (the static_asserts of both kernels)."""
    if variant == "single":
        return None if stages == 1 else f"the single-buffered kernel has 1 stage, not {stages}"
    return None if 2 <= stages <= 4 else f"the multistage kernel has 2 to 4 stages, not {stages}"


def wmma_warp_reason(*, tile: Shape, warp: Shape) -> str | None:
    """Warps are whole 16x16x16 fragments and divide the tile in m and n, but share its k.

    Source: nvcuda::wmma's m16n16k16 shape (CUDA Programming Guide, "Warp Matrix Functions").
    """
    text = f"warp shape {format_shape(warp)}"
    if min(*tile, *warp) < 1 or any(extent % _FRAGMENT for extent in (*warp, *tile)):
        return f"{text} and tile {format_shape(tile)} must be multiples of {_FRAGMENT}"
    if tile[0] % warp[0] or tile[1] % warp[1]:
        return f"{text} does not divide tile {format_shape(tile)}"
    if warp[2] != tile[2]:
        return f"{text} must have the tile's k={tile[2]}: warps do not split K"
    return None


def wmma_threads_reason(*, tile: Shape, warp: Shape) -> str | None:
    """At most 1024 threads, which copy A's and B's tile in equal shares of 16-byte vectors."""
    threads = wmma_threads(tile=tile, warp=warp)
    if threads > _MAX_THREADS:
        return f"{threads} threads exceed {_MAX_THREADS} per CTA"
    for operand, extent in (("A", tile[0]), ("B", tile[1])):
        if extent * tile[2] % (_VECTOR * threads):
            vectors = extent * tile[2] // _VECTOR
            return f"{vectors} 16-byte vectors of {operand} do not divide among {threads} threads"
    return None


def wmma_smem_reason(*, smem_bytes: int, smem_optin_bytes: int) -> str | None:
    """`smem_optin_bytes`: the device's largest shared memory per CTA with opt-in."""
    if smem_bytes > smem_optin_bytes:
        return f"{smem_bytes} B of shared memory exceed {smem_optin_bytes} B per CTA"
    return None


def wmma_problem_reason(*, m: int, n: int, k: int, tile: Shape = TILE) -> str | None:
    """Grid limits, and positions that fit a 32-bit `int`; any alignment and any size otherwise."""
    if wmma_grid(m=m, n=n, tile=tile)[1] > _MAX_GRID_Y:
        return f"m={m} needs more than {_MAX_GRID_Y} rows of tiles in the grid's y"
    if n > _MAX_INT - tile[1] or k > _MAX_INT - 8 * tile[2]:
        return f"n={n} or k={k} is too large for 32-bit positions"
    return None


def wmma_reason(*, variant: Variant, stages: int, tile: Shape, warp: Shape) -> str | None:
    """The first rule about compile-time parameters that forbids this kernel, or None."""
    return (
        wmma_stages_reason(variant=variant, stages=stages)
        or wmma_warp_reason(tile=tile, warp=warp)
        or wmma_threads_reason(tile=tile, warp=warp)
    )


def wmma_source(
    *, variant: Variant, stages: int, tile: Shape = TILE, warp: Shape = WARP, layout: Layout
) -> str:
    """CUDA source of one kernel; include paths: `wmma_custom/` and `instantiations/`.

    Exports `gemm(m, n, k, alpha, beta, a, b, c, d, lda, ldb, ldc, ldd)` and `gemm_info`. Raises
    ValueError, with the reason, for parameters that `wmma_reason` forbids.
    """
    reason = wmma_reason(variant=variant, stages=stages, tile=tile, warp=warp)
    if reason is not None:
        raise ValueError(reason)
    name = wmma_name(variant=variant, stages=stages, tile=tile, warp=warp, layout=layout)
    return f"""\
// {name}, generated by cutlass_study/wmma_source.py
namespace cutlass_study {{
constexpr int kTileM = {tile[0]}, kTileN = {tile[1]}, kTileK = {tile[2]};
constexpr int kWarpM = {warp[0]}, kWarpN = {warp[1]};
constexpr int kStages = {stages};
constexpr bool kBRowMajor = {"true" if layout == "nn" else "false"};
}}  // namespace cutlass_study

#include "wmma_{variant}.cuh"
"""
