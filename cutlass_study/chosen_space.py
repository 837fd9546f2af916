"""The space that a command line asks for: what its axes span, or a preset that they filter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import cast

from cutlass_study import ladder
from cutlass_study.axes import Axes, option_name
from cutlass_study.config import ELEMENT_BYTES, Family, GemmConfig, Shape, UsageError, format_shape
from cutlass_study.presets import preset
from cutlass_study.space import Entry, sm80, sm90, wmma


def _whole(stages: Sequence[int | None], remedy: str) -> list[int]:
    """Stages of a family that has no `auto`; raises `UsageError` for one."""
    counts = [count for count in stages if count is not None]
    if len(counts) < len(stages):
        raise UsageError(f"stages S='auto' exists only in the sm90 family; give {remedy}")
    return counts


def _sm80(axes: Axes) -> Iterator[GemmConfig]:
    for tile, warp, stages, width, alignment, swizzle, split in product(
        axes.shapes("tile") or ((256, 128, 32),),
        axes.shapes("warp") or (None,),
        _whole(axes.stage_counts() or (3,), "2, 3 or 4"),
        axes.numbers("epilogue_width") or (4,),
        axes.numbers("align") or (8,),
        axes.numbers("swizzle") or (1,),
        axes.numbers("split_k") or (1,),
    ):
        yield sm80(tile, stages, width, warp=warp, alignment=alignment, swizzle=swizzle,
                   split_k=split)  # fmt: skip


def _sm90(axes: Axes, output: str) -> Iterator[GemmConfig]:
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
        axes.numbers("align") or (8,),
        axes.numbers("swizzle") or (1,),
        axes.words("raster") or ("heuristic",),
    ):
        yield sm90(tile, stages, schedule=schedule, cluster=cluster, epilogue=epilogue,
                   epilogue_width=width, source_c=source, alignment=alignment, swizzle=swizzle,
                   raster=raster)  # fmt: skip


def _by_hand(family: Family, axes: Axes, output: str) -> Iterator[GemmConfig]:
    """Every configuration of a family that the given axes span, one default for the others."""
    if family == "sm80":
        yield from _sm80(axes)
    elif family == "sm90":
        yield from _sm90(axes, output)
    elif family == "wmma":
        yield from map(wmma, _whole(axes.stage_counts() or (1, 2, 3, 4), "1, 2, 3 or 4"))
    elif family == "simt":
        yield from ladder.simt_by_hand(axes)
    elif family == "wgmma":
        yield from ladder.wgmma_by_hand(axes)
    else:
        for variant in axes.words("variant") or ("default", "lt_best"):
            yield GemmConfig("cublas", variant=variant)


def by_hand(axes: Axes) -> list[Entry]:
    """The space that axes alone span; the family defaults to `sm80`."""
    return [
        Entry(config, problem)
        for problem in axes.problems()
        for family in axes.families() or ("sm80",)
        for config in _by_hand(family, axes, problem.output)
    ]


# Which axes a family has; an axis given to a family that lacks it would silently do nothing.
FAMILY_AXES: dict[Family, tuple[str, ...]] = {
    "sm80": ("tile", "warp", "stages", "epilogue_width", "align", "swizzle", "split_k"),
    "sm90": (
        "tile", "cluster", "stages", "epilogue_width", "align", "swizzle", "schedule", "epilogue",
        "source_c", "raster",
    ),
    "cublas": ("variant",),
    "wmma": ("stages",),
    "simt": ("variant",),
    "wgmma": ("variant", "tile", "warp", "stages", "epilogue"),
}  # fmt: skip
KERNEL_AXES = {name for names in FAMILY_AXES.values() for name in names} - {"variant"}
# What an axis means in a point of the space.
AXIS_OF: dict[str, Callable[[Entry], object]] = {
    "family": lambda entry: entry.config.family,
    "tile": lambda entry: entry.config.threadblock_shape,
    "warp": lambda entry: entry.config.warp_shape,
    "cluster": lambda entry: entry.config.cluster_shape,
    "stages": lambda entry: entry.config.stages,
    "epilogue_width": lambda entry: entry.config.epilogue_width,
    "align": lambda entry: entry.config.alignment,
    "swizzle": lambda entry: entry.config.swizzle,
    "split_k": lambda entry: entry.config.split_k,
    "schedule": lambda entry: entry.config.schedule,
    "epilogue": lambda entry: entry.config.epilogue,
    "source_c": lambda entry: entry.config.source_c,
    "raster": lambda entry: entry.config.raster,
    "variant": lambda entry: entry.config.variant,
    "problem": lambda entry: entry.problem.shape,
    "layout": lambda entry: entry.problem.layout,
    "output": lambda entry: entry.problem.output,
}


def _counts(name: str, entry: Entry) -> bool:
    """Whether an axis filters an entry: cuBLAS has no axes of ours and stays as the control."""
    return entry.config.family != "cublas" or name in ("family", "problem")


def _filtered(preset_name: str, axes: Axes, arch: str) -> list[Entry]:
    """The preset's entries that have a value given of every axis; raises `UsageError` for none."""
    given = {name: axes.values(name) for name in AXIS_OF if axes.values(name)}
    entries = preset(preset_name, arch)
    found = [
        entry
        for entry in entries
        if all(
            AXIS_OF[name](entry) in values for name, values in given.items() if _counts(name, entry)
        )
    ]
    # An axis that cuBLAS does not have asks for more than the control alone.
    narrowed = not KERNEL_AXES.isdisjoint(given) and "cublas" not in axes.families()
    if not found or (narrowed and all(entry.config.family == "cublas" for entry in found)):
        raise UsageError(_why_none(preset_name, entries, given))
    return found


def _why_none(
    preset_name: str, entries: Sequence[Entry], given: Mapping[str, Sequence[object]]
) -> str:
    for name, values in given.items():
        there = dict.fromkeys(AXIS_OF[name](e) for e in entries if _counts(name, e))
        known = [value for value in there if value is not None or name == "stages"]
        if there.keys().isdisjoint(values):
            remedy = f"it has {_texts(known)}" if known else "nothing there has one, leave it out"
            return f"preset '{preset_name}' has no {option_name(name)} {_texts(values)}; {remedy}"
    return (
        f"no configuration of preset '{preset_name}' has all of "
        f"{', '.join(map(option_name, given))} as given; leave one out"
    )


def _texts(values: Iterable[object]) -> str:
    return ", ".join(
        format_shape(cast("Shape", value))
        if isinstance(value, tuple)
        else "auto"
        if value is None
        else str(value)
        for value in values
    )


def _refuse_idle_axes(axes: Axes) -> None:
    """Raise `UsageError` for an axis that none of the chosen families has."""
    families = axes.families() or ("sm80",)
    known = {name for family in families for name in FAMILY_AXES[family]}
    for name in sorted({name for names in FAMILY_AXES.values() for name in names} - known):
        if getattr(axes, name):
            having = [family for family, names in FAMILY_AXES.items() if name in names]
            raise UsageError(
                f"{option_name(name)} means nothing to family {', '.join(families)}; "
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
        found = _filtered(preset_name, axes, arch)
    return list(dict.fromkeys(found))
