"""The named presets: which kernels on which problems."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from cutlass_study import ladder
from cutlass_study.config import GemmConfig, UsageError
from cutlass_study.space import (
    CUBLAS,
    REFERENCES,
    SM80_TILES,
    SM90_CLUSTERS,
    SM90_COOPERATIVE_TILES,
    SM90_PINGPONG_TILES,
    STUDY_EXTENT,
    WMMA_ALL,
    Entry,
    sm80,
    sm90,
    square,
    wmma,
)

PRESETS = ("paper", "quick", "ada", "hopper", "scaling", "ladder")
SCALING_EXTENTS = (512, 1024, 2048, 4096, 8192, 16384)


def _paper(arch: str) -> Iterator[Entry]:
    study = square(STUDY_EXTENT)
    for problem in (square(STUDY_EXTENT // 2), study):
        yield from (Entry(config, problem) for config in (*REFERENCES, *WMMA_ALL))
    for tile, stages, width in product(((256, 128, 32), (128, 128, 32)), (2, 3, 4), (1, 2, 4)):
        yield Entry(sm80(tile, stages, width), study)


def _quick(arch: str) -> Iterator[Entry]:
    configs = [CUBLAS, wmma(1), *(sm80((128, 128, 32), stages) for stages in (2, 3, 4))]
    configs.append(sm80((256, 128, 32), 3))
    yield from (Entry(config, square(2048)) for config in configs)


def _ada(arch: str) -> Iterator[Entry]:
    study = square(STUDY_EXTENT)
    yield from (Entry(config, study) for config in (*REFERENCES, *WMMA_ALL))
    for (m, n), k, stages in product(SM80_TILES, (32, 64), (2, 3, 4)):
        yield Entry(sm80((m, n, k), stages), study)


def _hopper_configs() -> Iterator[GemmConfig]:
    schedules = (("cooperative", SM90_COOPERATIVE_TILES), ("pingpong", SM90_PINGPONG_TILES))
    stages: tuple[int | None, ...] = (2, 3, 4, None)
    for schedule, tiles in schedules:
        for tile, cluster, count in product(tiles, SM90_CLUSTERS, stages):
            yield sm90(tile, count, schedule=schedule, cluster=cluster)
        for tile, count in product(tiles, stages):  # what a source C costs, at one cluster shape
            yield sm90(tile, count, schedule=schedule, source_c="float")
    for tile, width in product(((128, 128, 64), (128, 256, 64)), (1, 2, 4)):
        # Without TMA's epilogue the width is free; the schedule of the main loop stays the same.
        yield sm90(tile, None, epilogue="nosmem", epilogue_width=width)


def _hopper(arch: str) -> Iterator[Entry]:
    yield from _ada(arch)
    yield from (Entry(config, square(STUDY_EXTENT)) for config in _hopper_configs())


def _scaling(arch: str) -> Iterator[Entry]:
    configs = [*REFERENCES, wmma(1), wmma(3)]
    for tile in ((256, 128, 32), (128, 128, 32)):
        configs += [sm80(tile, stages) for stages in (2, 3, 4)]
    configs += [sm80((128, 256, 32), 3), sm80((128, 128, 64), 3), sm80((128, 64, 32), 3)]
    configs += [sm80((64, 128, 32), 3), sm80((64, 64, 32), 4), sm80((64, 64, 64), 3)]
    if arch == "sm_90a":
        for tile, cluster in product(((128, 128, 64), (128, 256, 64)), ((1, 1, 1), (2, 1, 1))):
            configs += [sm90(tile, count, cluster=cluster) for count in (2, None)]
        for tile in ((64, 128, 64), (128, 128, 64)):
            configs += [
                sm90(tile, None, schedule="pingpong", cluster=cluster)
                for cluster in ((1, 1, 1), (2, 1, 1))
            ]
    yield from (Entry(c, square(extent)) for extent in SCALING_EXTENTS for c in configs)


def preset(name: str, arch: str) -> list[Entry]:
    """The entries of a named preset; raises `UsageError` for an unknown name."""
    makers = {
        "paper": _paper,
        "quick": _quick,
        "ada": _ada,
        "hopper": _hopper,
        "scaling": _scaling,
        "ladder": ladder.entries,
    }
    if name not in makers:
        raise UsageError(f"preset '{name}' is not known; use one of: {', '.join(PRESETS)}")
    return list(makers[name](arch))
