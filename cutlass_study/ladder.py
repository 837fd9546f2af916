"""The H100 worklog's ladder of hand-written kernels: families `simt` and `wgmma`, their preset."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING

from cutlass_study.config import (
    SIMT_VARIANTS,
    WGMMA_VARIANTS,
    GemmConfig,
    GemmProblem,
    Shape,
    UsageError,
)
from cutlass_study.simt_source import VARIANTS as SIMT_SHAPES
from cutlass_study.space import CUBLAS, REFERENCES, STUDY_EXTENT, WMMA_ALL, Entry, square
from cutlass_study.wgmma_source import TILE_K

if TYPE_CHECKING:
    from cutlass_study.axes import Axes

TILE_M = 128  # rows of every tile of the worklog's kernels 8 and 9
DEFAULT_STAGES = 4
ONE_WARPGROUPS_SUMS = 128 * 128  # 128 a thread


def simt_extent(arch: str) -> int:
    """N of the SIMT kernels; at the study's N the slowest launch would be too long for samples.

    On 132 SMs the CTAs of 6144 fill whole waves of two or of three an SM alike, but for 3 %; those
    of 4096 leave 14 % of three idle and 3 % of two, which hid what warp tiling gains. Smaller cards
    get 4096: on 24 SMs the slowest would take 0.4 s at 6144, beyond the budget of a display's card.
    """
    return 6144 if arch == "sm_90a" else 4096


def simt(variant: str) -> GemmConfig:
    """A SIMT kernel; its variant decides its shapes."""
    if variant not in SIMT_VARIANTS:
        return GemmConfig("simt", variant=variant)  # which refuses it and names the known ones
    shapes = SIMT_SHAPES[variant]
    return GemmConfig("simt", shapes.tile, shapes.warp_shape, stages=1, variant=variant)


def wgmma(
    variant: str,
    *,
    tile: Shape | None = None,
    warpgroup: Shape | None = None,
    stages: int | None = None,
    epilogue: str = "direct",
) -> GemmConfig:
    """A WGMMA kernel with the default of every axis not given.

    The tile's N is the instruction's, and one warpgroup multiplies it all, or two where the sums of
    one would not fit its registers in a pipeline.
    """
    if variant not in WGMMA_VARIANTS:
        return GemmConfig("wgmma", variant=variant)
    pipelined = variant.startswith("pipelined")
    tile = tile or (TILE_M, int(variant.rpartition("_n")[2]), TILE_K)
    rows = tile[0] // 2 if pipelined and tile[0] * tile[1] > ONE_WARPGROUPS_SUMS else tile[0]
    return GemmConfig(
        "wgmma",
        tile,
        warpgroup or (rows, *tile[1:]),
        stages=stages or (DEFAULT_STAGES if pipelined else 1),
        epilogue=epilogue,
        variant=variant,
    )


SIMT_ALL = tuple(simt(variant) for variant in SIMT_VARIANTS)
# Kernel 8: the instruction's N with one warpgroup, in a tile as wide and in one of 128 columns, and
# what 256 threads change.
SERIAL = (
    *(wgmma(f"serial_n{n}") for n in (32, 64, 128, 256)),
    *(wgmma(f"serial_n{n}", tile=(TILE_M, 128, TILE_K)) for n in (32, 64)),
    *(wgmma(f"serial_n{n}", warpgroup=(64, n, TILE_K)) for n in (128, 256)),
)
# Kernel 9: one consumer, two, and twice the width; with both epilogues.
PIPELINED = tuple(
    wgmma(f"pipelined_n{n}", warpgroup=(rows, n, TILE_K), stages=stages, epilogue=epilogue)
    for epilogue in ("direct", "staged")
    for n, rows, stages in ((128, 128, 3), (128, 128, 4), (128, 64, 4), (256, 64, 4))
)
WGMMA_ALL = (*SERIAL, *PIPELINED)
# Measured with FP16 results too, with and without beta: like the worklog's BF16 results they fill
# only half of each sector that is written straight from registers.
SCALED = (wgmma("serial_n128"), *PIPELINED)


def _scaled(beta: float) -> GemmProblem:
    return GemmProblem(STUDY_EXTENT, STUDY_EXTENT, STUDY_EXTENT, output="f16", beta=beta)


def entries(arch: str) -> Iterator[Entry]:
    """The preset `ladder`: every step of the worklog, beside cuBLAS and the WMMA kernels."""
    study = square(STUDY_EXTENT)
    yield from (Entry(config, study) for config in (*REFERENCES, *WMMA_ALL, *WGMMA_ALL))
    for beta in (0.0, 1.0):
        yield from (Entry(config, _scaled(beta)) for config in (CUBLAS, *SCALED))
    extent = simt_extent(arch)
    row_major = GemmProblem(extent, extent, extent, layout="nn")
    yield from (Entry(config, row_major) for config in (CUBLAS, *SIMT_ALL))


def simt_by_hand(axes: Axes) -> Iterator[GemmConfig]:
    """The SIMT kernels that the axes span."""
    yield from map(simt, axes.words("variant") or SIMT_VARIANTS)


def wgmma_by_hand(axes: Axes) -> Iterator[GemmConfig]:
    """The WGMMA kernels that the axes span; without any, those of the preset.

    Raises `UsageError` for stages that a variant named by hand does not have.
    """
    names = ("variant", "tile", "warp", "stages", "epilogue")
    if not any(getattr(axes, name) for name in names):
        yield from WGMMA_ALL
        return
    counts = axes.stage_counts()
    if None in counts:
        raise UsageError("stages S='auto' exists only in the sm90 family; give 1 to 4")
    for variant, tile, part, stages, epilogue in product(
        axes.words("variant") or WGMMA_VARIANTS,
        axes.shapes("tile") or (None,),
        axes.shapes("warp") or (None,),
        counts or (None,),
        axes.words("epilogue") or ("direct",),
    ):
        fits = stages is None or (stages == 1) == variant.startswith("serial")
        if not fits and not axes.variant:
            continue  # of all variants, those that have so many stages
        yield wgmma(variant, tile=tile, warpgroup=part, stages=stages, epilogue=epilogue)
