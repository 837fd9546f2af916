"""The configuration space: axes, defaults for axes that are not given, and the named presets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import product
from typing import Literal, cast

from cutlass_study.config import (
    ELEMENT_BYTES,
    FAMILIES,
    Family,
    GemmConfig,
    GemmProblem,
    Shape,
    UsageError,
    parse_shape,
)
from cutlass_study.wmma_source import TILE as WMMA_TILE
from cutlass_study.wmma_source import WARP as WMMA_WARP

PRESETS = ("paper", "quick", "ada", "hopper", "scaling")
STUDY_EXTENT = 8192  # N of the primary document
SCALING_EXTENTS = (512, 1024, 2048, 4096, 8192, 16384)

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
    }
    if name not in makers:
        raise UsageError(f"preset '{name}' is not known; use one of: {', '.join(PRESETS)}")
    return list(makers[name](arch))


def _numbers(values: Sequence[str], what: str, example: str) -> tuple[int, ...]:
    """Whole numbers from repeated or comma-separated option values."""
    out = []
    for text in split_values(values):
        sign_free = text.removeprefix("-")
        if not (sign_free.isascii() and sign_free.isdigit()):
            raise UsageError(f"{what} '{text}' is not a whole number; give numbers {example}")
        out.append(int(text))
    return tuple(out)


def split_values(values: Iterable[str]) -> list[str]:
    """The parts of repeated, comma-separated option values."""
    return [part.strip() for value in values for part in value.split(",") if part.strip()]


@dataclass(frozen=True, slots=True)
class Axes:
    """Axes as given on the command line: empty means not given. Texts may be comma-separated."""

    family: Sequence[str] = ()
    tile: Sequence[str] = ()
    warp: Sequence[str] = ()
    cluster: Sequence[str] = ()
    stages: Sequence[str] = ()
    epilogue_width: Sequence[str] = ()
    align: Sequence[str] = ()
    swizzle: Sequence[str] = ()
    split_k: Sequence[str] = ()
    schedule: Sequence[str] = ()
    epilogue: Sequence[str] = ()
    source_c: Sequence[str] = ()
    raster: Sequence[str] = ()
    variant: Sequence[str] = ()
    problem: Sequence[str] = ()
    layout: Sequence[str] = ()
    output: Sequence[str] = ()
    beta: float = 0.0
    lda: int | None = None

    def refuse_empty(self) -> None:
        """Raise `UsageError` for an axis given without a value, which would not narrow anything."""
        for name in (field.name for field in fields(self) if field.name not in ("beta", "lda")):
            if any(not split_values([text]) for text in getattr(self, name)):
                raise UsageError(
                    f"--{name.replace('_', '-')} is empty; give a value, or leave it out"
                )

    def shapes(self, name: str) -> tuple[Shape, ...]:
        what = {"tile": "threadblock shape", "warp": "warp shape", "cluster": "cluster shape"}
        return tuple(
            parse_shape(t, what.get(name, name)) for t in split_values(getattr(self, name))
        )

    def numbers(self, name: str) -> tuple[int, ...]:
        example = "such as 1,2,4" if name != "stages" else "such as 2,3,4"
        what = {"stages": "stages S", "align": "alignment"}.get(name, name.replace("_", " "))
        return _numbers(getattr(self, name), what, example)

    def stage_counts(self) -> tuple[int | None, ...]:
        """Stages, where `auto` (sm90) is `None`."""
        texts = split_values(self.stages)
        plain = _numbers([t for t in texts if t != "auto"], "stages S", "such as 2,3,4 or auto")
        return (*plain, *((None,) if "auto" in texts else ()))

    def words(self, name: str) -> tuple[str, ...]:
        return tuple(split_values(getattr(self, name)))

    def families(self) -> tuple[Family, ...]:
        chosen = self.words("family")
        for name in chosen:
            if name not in FAMILIES:
                raise UsageError(f"family '{name}' is not known; use one of: {', '.join(FAMILIES)}")
        return cast("tuple[Family, ...]", chosen)

    def problems(self) -> tuple[GemmProblem, ...]:
        """The problems given, or the study's; raises `UsageError`."""
        shapes = self.shapes("problem") or ((STUDY_EXTENT,) * 3,)
        layouts, outputs = self.words("layout") or ("tn",), self.words("output") or ("f32",)
        return tuple(
            GemmProblem(
                *shape,
                cast("Literal['tn', 'nn']", layout),
                cast("Literal['f32', 'f16']", output),
                beta=self.beta,
                lda=self.lda,
            )
            for shape, layout, output in product(shapes, layouts, outputs)
        )


def _by_hand(family: Family, axes: Axes, output: str) -> Iterator[GemmConfig]:
    """Every configuration of a family that the given axes span, one default for the others."""
    if family == "cublas":
        for variant in axes.words("variant") or ("default", "lt_best"):
            yield GemmConfig("cublas", variant=variant)
        return
    if family == "wmma":
        for stages in axes.stage_counts() or (1, 2, 3, 4):
            yield wmma(stages or 1)
        return
    alignments = axes.numbers("align") or (8,)
    swizzles = axes.numbers("swizzle") or (1,)
    if family == "sm80":
        for tile, warp, stages, width, alignment, swizzle, split in product(
            axes.shapes("tile") or ((256, 128, 32),),
            axes.shapes("warp") or (None,),
            axes.stage_counts() or (3,),
            axes.numbers("epilogue_width") or (4,),
            alignments,
            swizzles,
            axes.numbers("split_k") or (1,),
        ):
            if stages is None:
                raise UsageError("stages S='auto' exists only in the sm90 family; give 2, 3 or 4")
            yield sm80(tile, stages, width, warp=warp, alignment=alignment, swizzle=swizzle,
                       split_k=split)  # fmt: skip
        return
    for (
        tile,
        cluster,
        stages,
        schedule,
        epilogue,
        width,
        source,
        alignment,
        swizzle,
        raster,
    ) in product(
        axes.shapes("tile") or ((128, 256, 64),),
        axes.shapes("cluster") or ((2, 1, 1),),
        axes.stage_counts() or (None,),
        axes.words("schedule") or ("cooperative",),
        axes.words("epilogue") or ("tma",),
        axes.numbers("epilogue_width") or (16 // ELEMENT_BYTES[output],),
        axes.words("source_c") or ("void",),
        alignments,
        swizzles,
        axes.words("raster") or ("heuristic",),
    ):
        yield sm90(tile, stages, schedule=schedule, cluster=cluster, epilogue=epilogue,
                   epilogue_width=width, source_c=source, alignment=alignment, swizzle=swizzle,
                   raster=raster)  # fmt: skip


def by_hand(axes: Axes) -> list[Entry]:
    """The space that axes alone span; the family defaults to `sm80`."""
    return [
        Entry(config, problem)
        for problem in axes.problems()
        for family in axes.families() or ("sm80",)
        for config in _by_hand(family, axes, problem.output)
    ]


def _kept(entry: Entry, axes: Axes) -> bool:
    config, problem = entry.config, entry.problem
    wanted: list[tuple[Sequence[object], object]] = [
        (axes.families(), config.family),
        (axes.shapes("tile"), config.threadblock_shape),
        (axes.shapes("warp"), config.warp_shape),
        (axes.shapes("cluster"), config.cluster_shape),
        (axes.stage_counts(), config.stages),
        (axes.numbers("epilogue_width"), config.epilogue_width),
        (axes.numbers("align"), config.alignment),
        (axes.numbers("swizzle"), config.swizzle),
        (axes.numbers("split_k"), config.split_k),
        (axes.words("schedule"), config.schedule),
        (axes.words("epilogue"), config.epilogue),
        (axes.words("source_c"), config.source_c),
        (axes.words("raster"), config.raster),
        (axes.words("variant"), config.variant),
        (axes.shapes("problem"), problem.shape),
        (axes.words("layout"), problem.layout),
        (axes.words("output"), problem.output),
    ]
    # cuBLAS has no axes of ours: it stays as the control unless families are chosen.
    if config.family == "cublas":
        wanted = [(axes.families(), config.family), (axes.shapes("problem"), problem.shape)]
    return all(not values or value in values for values, value in wanted)


def _narrows(axes: Axes) -> bool:
    """Whether an axis that cuBLAS does not have was given, without asking for cuBLAS."""
    kernel_axes = (axes.tile, axes.warp, axes.cluster, axes.stages, axes.epilogue_width, axes.align,
                   axes.swizzle, axes.split_k, axes.schedule, axes.epilogue, axes.source_c,
                   axes.raster)  # fmt: skip
    return any(kernel_axes) and "cublas" not in axes.families()


# Which axes a family has; an axis given to a family that lacks it would silently do nothing.
FAMILY_AXES: dict[Family, tuple[str, ...]] = {
    "sm80": ("tile", "warp", "stages", "epilogue_width", "align", "swizzle", "split_k"),
    "sm90": (
        "tile", "cluster", "stages", "epilogue_width", "align", "swizzle", "schedule", "epilogue",
        "source_c", "raster",
    ),
    "cublas": ("variant",),
    "wmma": ("stages",),
}  # fmt: skip


def _refuse_idle_axes(axes: Axes) -> None:
    """Raise `UsageError` for an axis that none of the chosen families has."""
    families = axes.families() or ("sm80",)
    known = {name for family in families for name in FAMILY_AXES[family]}
    for name in sorted({name for names in FAMILY_AXES.values() for name in names} - known):
        if getattr(axes, name):
            having = [family for family, names in FAMILY_AXES.items() if name in names]
            raise UsageError(
                f"--{name.replace('_', '-')} means nothing to family {', '.join(families)}; "
                f"it belongs to {', '.join(having)}"
            )


def _refuse_unfiltering(axes: Axes) -> None:
    """Raise `UsageError` for what a preset can't be filtered by."""
    if axes.beta != 0 or axes.lda is not None:
        what = f"--beta {axes.beta:g}" if axes.beta != 0 else f"--lda {axes.lda}"
        raise UsageError(f"{what} can't filter a preset; give a family and a --problem instead")


def entries(preset_name: str | None, axes: Axes, arch: str) -> list[Entry]:
    """The space asked for: a preset filtered by the axes given, or the axes' own product.

    Raises `UsageError` for unknown words, malformed values and an empty result.
    """
    axes.refuse_empty()
    axes.problems()  # judge the values even where a preset brings its own problems
    if preset_name is None:
        _refuse_idle_axes(axes)
        found = by_hand(axes)
    else:
        _refuse_unfiltering(axes)
        found = [entry for entry in preset(preset_name, arch) if _kept(entry, axes)]
    if not found or (_narrows(axes) and all(e.config.family == "cublas" for e in found)):
        raise UsageError(f"no configuration of preset '{preset_name}' matches the axes given")
    unique = dict.fromkeys(found)
    return list(unique)
