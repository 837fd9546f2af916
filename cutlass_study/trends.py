"""Figures of measured throughput over problem size and over time: pure functions of records."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.ticker import FixedLocator, NullLocator

from cutlass_study.comparisons import scaling_series
from cutlass_study.style import FAMILY_LINES, LINES, PAGE_INCHES, Figure, new_figure
from cutlass_study.views import FAMILY_TITLES, NothingToShow, StudyView


def scaling(view: StudyView) -> Figure:
    """TFLOPS over the size of square problems: cuBLAS and the best of each family."""
    rows = view.all_problems
    rows = rows[(rows["state"] == "measured") & rows["extent"].notna()]
    regimes = sorted(rows["regime"].unique())
    if rows["extent"].nunique() < 2:
        raise NothingToShow("fewer than two sizes of square problems were measured")
    figure = new_figure(PAGE_INCHES, 3.2)
    panels = figure.subplots(1, len(regimes), squeeze=False, sharey=True)[0]
    extents = sorted(rows["extent"].unique())
    for axes, regime in zip(panels, regimes, strict=True):
        for series, points in scaling_series(rows[rows["regime"] == regime]).items():
            colour, marker, line = FAMILY_LINES[series]
            axes.plot(
                points["extent"],
                points["tflops"],
                color=colour,
                marker=marker,
                linestyle=line,
                label=_series_title(series),
            )
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(FixedLocator(extents))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticks(extents, [f"{extent:g}" for extent in extents])
        axes.tick_params(axis="x", labelrotation=45 if len(regimes) * len(extents) > 14 else 0)
        axes.set_xlabel("M = N = K (log scale)")
        axes.set_title(f"{regime} regime")
    panels[0].set_ylabel("TFLOPS")
    panels[0].set_ylim(bottom=0)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5)
    device = view.title.split(";")[0]
    caption = (
        f"Throughput over problem size, square problems. {device}; {view.distribution} inputs; "
        f"{' and '.join(regimes)} regime. CUTLASS and WMMA: the best configuration measured at "
        f"each size, so a line may change configuration. {len(rows)} measured rows."
    )
    return Figure("scaling", figure, caption)


def _series_title(series: str) -> str:
    if series.startswith("cublas"):
        return "cuBLAS" if series == "cublas" else "cuBLASLt best"
    return f"best {FAMILY_TITLES[series]}"


def drift(view: StudyView) -> Figure:
    """The cuBLAS control's samples over the rounds, with the clock they got."""
    rows = view.rows
    rows = rows[(rows["family"] == "cublas") & (rows["variant"] == "default")]
    samples = view.samples[view.samples["name"].isin(rows["name"])]
    if rows.empty or samples.empty:
        raise NothingToShow("no raw samples of the cuBLAS control")
    shape = rows.iloc[0]
    flop = 2 * shape["m"] * shape["n"] * shape["k"]
    samples = samples.assign(tflops=flop / samples["time_ms"] / 1e9).sort_values("round")
    regimes = sorted(samples["regime"].unique())
    has_power = bool(samples["power_w"].notna().any())
    figure = new_figure(PAGE_INCHES, 5.0 if has_power else 3.8)
    grid = figure.subplots(
        3 if has_power else 2, len(regimes), squeeze=False, sharex="col", sharey="row"
    )
    for column, regime in enumerate(regimes):
        _drift_column(grid[:, column], samples[samples["regime"] == regime])
        grid[0, column].set_title(f"{regime} regime")
        grid[-1, column].set_xlabel("round")
    for axes, label in zip(grid[:, 0], ("TFLOPS", "SM clock [MHz]", "power [W]"), strict=False):
        axes.set_ylabel(label)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    more = grid[1, 0].get_legend_handles_labels()
    figure.legend(handles + more[0], labels + more[1], loc="outside lower center", ncols=4)
    rejected = int((samples["rejected"] != "").sum())
    caption = (
        f"Drift of the cuBLAS control over the rounds. {view.title}; {' and '.join(regimes)} "
        f"regime. {len(samples)} samples, {rejected} rejected by a filter. The delivered clock is "
        "counted on the GPU during the sample; NVML's is what the driver reports. Axes do not "
        "start at zero."
    )
    return Figure("drift", figure, caption)


def _drift_column(panels: Any, samples: pd.DataFrame) -> None:
    kept = samples["rejected"] == ""
    black, grey = FAMILY_LINES["cublas"][0], "#7F7F7F"
    panels[0].plot(
        samples["round"][kept], samples["tflops"][kept], ".", color=black, label="sample"
    )
    if not kept.all():
        bad = samples[~kept]
        panels[0].plot(bad["round"], bad["tflops"], "x", color=LINES[1][0], label="rejected")
    delivered, reported = LINES[0], LINES[3]
    panels[1].plot(
        samples["round"],
        samples["sm_clock_mhz"],
        delivered[1],
        markersize=3,
        color=delivered[0],
        label="delivered clock",
    )
    panels[1].plot(
        samples["round"],
        samples["nvml_clock_mhz"],
        "_",
        markersize=5,
        color=reported[0],
        label="clock NVML reports",
    )
    if len(panels) > 2:
        panels[2].plot(samples["round"], samples["power_w"], ".", color=grey)
