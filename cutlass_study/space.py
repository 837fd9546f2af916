"""One point of the configuration space, and its defaults for every axis that is not given."""

from __future__ import annotations

from dataclasses import dataclass

from cutlass_study.config import GemmConfig, GemmProblem, Shape
from cutlass_study.wmma_source import TILE as WMMA_TILE
from cutlass_study.wmma_source import WARP as WMMA_WARP

STUDY_EXTENT = 8192  # N of the primary document

# The warp shape CUTLASS's own generator pairs with a tile's M and N (generator.py, SM80 tensor-op
# 16816), without the K extent: warps never split K unless asked to.
NATURAL_WARPS: dict[tuple[int, int], tuple[int, int]] = {
    (256, 128): (64, 64),
    (128, 256): (64, 64),
    (256, 64): (64, 64),
    (64, 256): (64, 64),
    (128, 128): (64, 64),
    (128, 64): (64, 32),
    (64, 128): (32, 64),
    (64, 64): (32, 32),
}
SM80_TILES = tuple(NATURAL_WARPS)
SM90_COOPERATIVE_TILES: tuple[Shape, ...] = (
    (128, 64, 64), (128, 128, 64), (128, 256, 64), (256, 64, 64), (256, 128, 64),
)  # fmt: skip
SM90_PINGPONG_TILES: tuple[Shape, ...] = (
    (64, 64, 64), (64, 128, 64), (64, 256, 64), (128, 64, 64), (128, 128, 64),
)  # fmt: skip
SM90_CLUSTERS: tuple[Shape, ...] = ((1, 1, 1), (2, 1, 1), (1, 2, 1))


@dataclass(frozen=True, slots=True)
class Entry:
    """One point of the space: a kernel on a problem."""

    config: GemmConfig
    problem: GemmProblem


def natural_warp_shape(tile: Shape) -> Shape:
    """CUTLASS's own warp shape for a tile; 64x64 where its generator has none."""
    m, n = NATURAL_WARPS.get(tile[:2], (64, 64))
    return m, n, tile[2]


def sm80(
    tile: Shape,
    stages: int,
    epilogue_width: int = 4,
    *,
    warp: Shape | None = None,
    alignment: int = 8,
    swizzle: int = 1,
    split_k: int = 1,
) -> GemmConfig:
    """An `sm80` kernel with the default of every axis not given."""
    return GemmConfig(
        "sm80",
        tile,
        warp or natural_warp_shape(tile),
        None,
        stages,
        epilogue_width,
        alignment,
        swizzle,
        split_k,
    )


def sm90(
    tile: Shape,
    stages: int | None,
    *,
    schedule: str = "cooperative",
    cluster: Shape = (2, 1, 1),
    epilogue: str = "tma",
    epilogue_width: int = 4,
    source_c: str = "void",
    alignment: int = 8,
    swizzle: int = 1,
    raster: str = "heuristic",
) -> GemmConfig:
    """An `sm90` kernel with the default of every axis not given; `stages` None means auto."""
    return GemmConfig(
        "sm90",
        tile,
        None,
        cluster,
        stages,
        epilogue_width,
        alignment,
        swizzle,
        None,
        schedule,
        epilogue,
        source_c,
        raster,
    )


def wmma(stages: int) -> GemmConfig:
    """The hand-written kernel: S=1 single-buffered, else cp.async multistage."""
    variant = "single" if stages == 1 else "multistage"
    return GemmConfig("wmma", WMMA_TILE, WMMA_WARP, stages=stages, variant=variant)


CUBLAS = GemmConfig("cublas", variant="default")
CUBLAS_LT = GemmConfig("cublas", variant="lt_best")
REFERENCES = (CUBLAS, CUBLAS_LT)
WMMA_ALL = tuple(wmma(stages) for stages in (1, 2, 3, 4))


def square(extent: int) -> GemmProblem:
    """The study's problem: N³, B column-major, FP32 output."""
    return GemmProblem(extent, extent, extent)
