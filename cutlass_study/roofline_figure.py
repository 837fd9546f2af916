"""The roofline as a picture: both ceilings, the model's points, and measured ones where given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.ticker import FuncFormatter, NullFormatter

from cutlass_study.csv_files import file_to_replace, replace_files
from cutlass_study.records import EnvironmentProblem
from cutlass_study.roofline_rows import NO_REUSE, ONE_PASS, RooflineRow, RooflineTask
from cutlass_study.style import (
    BLACK,
    FAMILY_LINES,
    ORANGE,
    PAGE_INCHES,
    Figure,
    figure_bytes,
    new_figure,
    styled,
)
from cutlass_study.views import FAMILY_TITLES, pretty_shape

_NAMES = {NO_REUSE: "no reuse", ONE_PASS: "one pass"}
_TITLES = FAMILY_TITLES | {"cublas_lt": "cuBLASLt best"}
_GREY = "#777777"


def draw(task: RooflineTask, rows: Sequence[RooflineRow], title: str = "") -> Figure:
    """Throughput over intensity, both logarithmic; rows with `measured_tflops` are measured.

    `title` tells where measured rows come from. Call inside `style.styled()`.
    """
    measured = [row for row in rows if row.measured_tflops is not None]
    model = [row for row in rows if row.measured_tflops is None]
    if measured:  # no reuse is far off what any kernel does, and would press all else together
        model = [row for row in model if row.tile != NO_REUSE]
    shown = [*model, *measured]
    figure = new_figure(PAGE_INCHES, 3.8)
    axes = figure.subplots()
    low, high = _limits(task, shown)
    _ceilings(axes, task, low, high)
    _model_points(axes, model)
    _measured_points(axes, measured)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, high)
    top = max([task.machine.peak_tflops, *(row.measured_tflops or 0 for row in measured)])
    bottom = min(row.measured_tflops or row.ceiling_tflops for row in shown)
    axes.set_ylim(bottom / 2, top * 1.9)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("intensity [FLOP per byte of slow-memory traffic]")
    axes.set_ylabel("TFLOPS")
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return Figure("roofline", figure, _caption(task, model, measured, title))


def save_file(figure: Figure, path: Path) -> None:
    """Write one PNG or PDF, the folder made if missing; the same rows give the same bytes.

    Raises `EnvironmentProblem` if it can't be written.
    """
    try:
        path = file_to_replace(path, "--out")
        path.parent.mkdir(parents=True, exist_ok=True)
        with styled():
            content = figure_bytes(figure, path.suffix.lower().removeprefix("."))
        replace_files(path.parent, {path.name: content})
    except OSError as error:
        raise EnvironmentProblem(
            f"can't write '{path}': {error.strerror or error}; give another file with --out"
        ) from error


def _limits(task: RooflineTask, rows: Sequence[RooflineRow]) -> tuple[float, float]:
    """Intensities from below the lowest point to beyond the ridge and the highest one."""
    ridge = task.machine.ridge_flop_per_byte
    found = [row.intensity for row in rows]
    found += [row.one_pass_intensity for row in rows if row.measured_tflops is not None]
    return min([ridge, *found]) / 6, max([ridge * 2, *found]) * 3  # room for the names


def _ceilings(axes: Any, task: RooflineTask, low: float, high: float) -> None:
    machine = task.machine
    ridge, peak = machine.ridge_flop_per_byte, machine.peak_tflops
    axes.plot(
        [low, ridge, high],
        [machine.bandwidth_gbs * low / 1e3, peak, peak],
        color=BLACK,
        linewidth=1.5,
        label=f"roof: {machine.bandwidth_gbs:g} GB/s, {peak:g} TFLOPS",
    )
    axes.axvline(
        ridge, color=_GREY, linewidth=0.9, linestyle=(0, (4, 3)), label=f"ridge: {ridge:.4g} FLOP/B"
    )


def _model_points(axes: Any, rows: Sequence[RooflineRow]) -> None:
    """Theoretical ceilings, each named above the roof."""
    if not rows:
        return
    axes.plot(
        [row.intensity for row in rows],
        [row.ceiling_tflops for row in rows],
        color=ORANGE,
        marker="o",
        markersize=6,
        markeredgecolor=BLACK,
        markeredgewidth=0.6,
        linestyle="none",
        zorder=3,
        label="ceiling (model)",
    )
    for row in rows:
        tile = row.tile if "x" in row.tile else f"T={row.tile}"
        level = row.bound == "compute"
        axes.annotate(
            _NAMES.get(row.tile, pretty_shape(tile)),
            (row.intensity, row.ceiling_tflops),
            xytext=(0, 6) if level else (-7, 2),
            textcoords="offset points",
            ha="center" if level else "right",
            va="bottom" if level else "center",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
        )


def _measured_points(axes: Any, rows: Sequence[RooflineRow]) -> None:
    """A mark at the tile's traffic; a line to one pass for the fastest of each family."""
    families: set[str] = set()
    for row in sorted(rows, key=lambda row: -(row.measured_tflops or 0)):
        assert row.family
        colour, marker, _ = FAMILY_LINES[row.family]
        first = row.family not in families
        families.add(row.family)
        if first:
            ends = [row.intensity, row.one_pass_intensity]
            axes.plot(ends, [row.measured_tflops] * 2, color=colour, linewidth=0.9, zorder=2)
        axes.plot(
            row.intensity,
            row.measured_tflops,
            color=colour,
            marker=marker,
            linestyle="none",
            zorder=4,
            label=f"{_TITLES[row.family]} (measured)" if first else None,
        )


def _caption(
    task: RooflineTask, model: Sequence[RooflineRow], measured: Sequence[RooflineRow], title: str
) -> str:
    work = task.work
    caption = (
        f"Roofline. M×N×K = {work.m}×{work.n}×{work.k}, {task.dtype} to {task.output_dtype}; "
        f"peak {task.machine.peak_tflops:g} TFLOPS, {task.machine.bandwidth_gbs:g} GB/s. "
        "Ceilings are theoretical, not measured."
    )
    if measured:
        regime = measured[0].regime
        caption += (
            f" Measured: {title}; {regime} regime, the fastest of each family and tile. A mark "
            "stands at the traffic of its tile without reuse between CTAs (cuBLAS: one pass); from "
            "the fastest of a family a line reaches to one pass, and the true intensity lies on "
            "it. A mark above the roof got reuse between CTAs from a cache."
        )
    return caption
