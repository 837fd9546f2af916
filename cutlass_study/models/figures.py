"""Figures of the models: pure functions of a `ModelReport`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.lines import Line2D

from cutlass_study.models.depth import depth_series
from cutlass_study.models.report import PHYSICAL, ModelReport, ModelResult
from cutlass_study.models.rows import ModelRows
from cutlass_study.style import BLACK, BLUE, LINES, ORANGE, PAGE_INCHES, Figure, new_figure
from cutlass_study.views import FAMILY_TITLES, NothingToShow, area_key, pretty_shape

SHOWN_TILES = 4
DEPTH_LINES: dict[str, dict[str, Any]] = {  # what the tiles' colours and dashes leave open
    "measured": {"color": BLACK, "marker": "o", "linestyle": "none"},
    "physical model": {"color": BLACK, "linewidth": 1.2},
    "S/(S+κ)": {"color": "#9A9A9A", "linewidth": 0.7},
}
HELD_OUT_POINTS: dict[str, dict[str, Any]] = {  # dark on light and small on large: both show
    "tile": {"color": BLUE, "marker": "o", "markersize": 4, "zorder": 3},
    "N": {"color": ORANGE, "marker": "^", "markersize": 7, "zorder": 2},
}


def _fitted(report: ModelReport) -> list[ModelResult]:
    found = [r for r in report.results if r.model == PHYSICAL and r.fitted is not None]
    if not found:
        raise NothingToShow("the physical model could not be fitted")
    return found


def _dashes(dashes: Any) -> Any:
    return (0, dashes) if dashes else "-"


def depth_models(
    report: ModelReport, intervals: Mapping[str, tuple[float, float]] | None = None
) -> Figure:
    """Measured TFLOPS over S with both models' curves, a panel per family.

    `intervals`: (low, high) TFLOPS by row name, drawn as bars (`measured_intervals`).
    """
    found = _fitted(report)
    figure = new_figure(PAGE_INCHES, 3.9)
    panels = figure.subplots(1, len(found), squeeze=False)[0]
    for axes, result in zip(panels, found, strict=True):
        _depth_panel(axes, result, report, intervals or {})
        axes.set_title(FAMILY_TITLES[result.family])
        axes.set_xlabel("pipeline stages S")
    panels[0].set_ylabel("TFLOPS")
    handles = [Line2D([], [], label=label, **look) for label, look in DEPTH_LINES.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    caption = (
        f"Pipeline depth as measured and as modelled, the {SHOWN_TILES} fastest tiles of each "
        "family at the N with most depths, the other axes as in its fastest kernel. Markers: "
        "measured, with 95 % bootstrap intervals (mostly smaller than the marker); coloured lines: "
        "physical model, clock predicted too; thin grey lines: S/(S+κ) fitted to the same points, "
        "for sm80 across two different main loops (S=2 has no cp.async). Where lines "
        "coincide, as those of a tile and its mirror image may, the thinner lies on top. Each "
        "panel has its own TFLOPS axis, which does not start at zero."
    )
    return Figure("model_depth", figure, caption)


def _depth_panel(
    axes: Any,
    result: ModelResult,
    report: ModelReport,
    intervals: Mapping[str, tuple[float, float]],
) -> None:
    series = depth_series(report.rows[result.family])
    long = {tile: rows for tile, rows in series.items() if len(rows) > 1}
    fastest = sorted(long, key=lambda tile: -float(long[tile].tflops.max()))[:SHOWN_TILES]
    curves = {
        c.tile: c for c in report.depth
        if c.family == result.family and c.with_s2 and c.free_parameters == 2 and c.kappa
    }  # fmt: skip
    assert result.fitted is not None
    looks = zip(sorted(fastest, key=area_key), LINES, strict=False)
    for place, (tile, (colour, marker, dashes)) in enumerate(looks):
        rows = long[tile]
        if tile in curves:
            fine = np.linspace(rows.stages.min(), rows.stages.max(), 40)
            axes.plot(fine, curves[tile].predict(fine), **DEPTH_LINES["S/(S+κ)"], zorder=1)
        # The model hardly tells a tile from its mirror image: a thin line on a thick one.
        line = {"color": colour, "linestyle": _dashes(dashes), "linewidth": 2.2 - 0.4 * place}
        axes.plot(rows.stages, result.fitted.predict(rows), **line)
        axes.plot(rows.stages, rows.tflops, color=colour, marker=marker, linestyle="none")
        axes.plot([], [], marker=marker, label=pretty_shape(tile), **line)
        _bars(axes, rows, intervals, colour)
    depths = sorted({int(s) for tile in fastest for s in long[tile].stages})
    axes.set_xticks(depths)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2, handlelength=3)


def _bars(
    axes: Any, rows: ModelRows, intervals: Mapping[str, tuple[float, float]], colour: str
) -> None:
    for name, stages in zip(rows.name, rows.stages, strict=True):
        if name in intervals:
            axes.vlines(stages, *intervals[name], colors=colour)


def predicted_measured(report: ModelReport) -> Figure:
    """Held-out predictions against measurements, with the identity and ±10 %."""
    found = _fitted(report)
    figure = new_figure(PAGE_INCHES, 4.0)
    panels = figure.subplots(1, len(found), squeeze=False)[0]
    for axes, result in zip(panels, found, strict=True):
        _scatter(axes, result, report.rows[result.family])
    panels[0].set_ylabel("predicted TFLOPS")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    medians = "; ".join(
        f"{FAMILY_TITLES[result.family]}: "
        + ", ".join(
            f"{one.errors.median:.1%} with the {one.axis} held out" for one in result.held_out
        )
        for result in found
    )
    caption = (
        "The physical model on what it never saw: every tile, and every N, is predicted by a fit "
        f"to the others, the delivered clock included. Median errors: {medians}. Hollow: N outside "
        "the fitted range."
    )
    return Figure("model_predictions", figure, caption)


def _scatter(axes: Any, result: ModelResult, rows: ModelRows) -> None:
    ends = np.array([rows.tflops.min() * 0.8, rows.tflops.max() * 1.25])
    axes.fill_between(ends, ends * 0.9, ends * 1.1, color="#E4E4E4", linewidth=0, label="±10 %")
    axes.plot(ends, ends, color="black", linewidth=0.8)
    for one in result.held_out:
        look = {**HELD_OUT_POINTS[one.axis], "linestyle": "none"}
        inside, label = ~one.extrapolated, f"{one.axis} held out"
        axes.plot(
            rows.tflops[inside], one.predicted[inside], markeredgewidth=0, label=label, **look
        )
        if one.extrapolated.any():
            axes.plot(
                rows.tflops[one.extrapolated], one.predicted[one.extrapolated],
                markerfacecolor="none", label=f"{label}, extrapolated", **look,
            )  # fmt: skip
    axes.set(xscale="log", yscale="log", xlabel="measured TFLOPS")
    axes.set_title(FAMILY_TITLES[result.family])
