"""Figures of measured throughput over problem size and over time: pure functions of records."""

from __future__ import annotations

from typing import Any

import pandas as pd
import seaborn
from matplotlib.ticker import FixedLocator, NullLocator

from cutlass_study.comparisons import (
    decided_squares,
    drift_warning,
    scaling_rows,
    scaling_series,
    stand_in_note,
    undecided_note,
)
from cutlass_study.style import (
    BLACK,
    BLUE,
    FAMILY_LINES,
    GREY,
    ORANGE,
    PAGE_INCHES,
    SOLID,
    VERMILLION,
    Figure,
    Look,
    looks,
    new_figure,
)
from cutlass_study.views import FAMILY_TITLES, NothingToShow, StudyView


def scaling(view: StudyView) -> Figure:
    """TFLOPS over the size of square problems: cuBLAS and the best of each family."""
    rows = decided_squares(view.all_problems)
    by_regime = scaling_rows(rows)
    regimes = list(by_regime)
    figure = new_figure(PAGE_INCHES, 3.2)
    panels = figure.subplots(1, len(regimes), squeeze=False, sharey=True)[0]
    extents = sorted(rows["extent"].unique())
    for axes, regime in zip(panels, regimes, strict=True):
        series = scaling_series(by_regime[regime])
        points = pd.concat(series, names=["series"]).reset_index("series")
        own = points["regime"] == regime
        seaborn.lineplot(
            points[own].assign(series=points["series"].map(_series_title)),
            x="extent",
            y="tflops",
            hue="series",
            style="series",
            **looks({_series_title(name): FAMILY_LINES[name] for name in series}),
            ax=axes,
        )
        for name, point in points[~own].set_index("series").iterrows():
            color, marker, _ = FAMILY_LINES[str(name)]
            axes.plot(point["extent"], point["tflops"], marker, color=color, mfc="white", mew=1.2)
        axes.get_legend().remove()
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
        f"{' and '.join(regimes)} regime. CUTLASS and hand-written kernels: the best configuration "
        f"measured at each size, so a line may change configuration. {len(rows)} measured rows."
    ) + (stand_in_note(rows) + undecided_note(view.all_problems))
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
    grid = figure.subplots(3 if has_power else 2, len(regimes), squeeze=False, sharex="col")
    for column, regime in enumerate(regimes):
        _drift_column(grid[:, column], samples[samples["regime"] == regime])
        grid[0, column].set_title(f"{regime} regime")
        grid[-1, column].set_xlabel("round")
    for row, label in zip(grid, ("TFLOPS", "SM clock [MHz]", "power [W]"), strict=False):
        for place, axes in enumerate(row):
            axes.set_ylabel("" if place else label)
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
    if len(regimes) > 1:
        caption += " Each regime has its own ranges."
    if has_power and "burst" in regimes:
        caption += " In a burst the power is NVML's average over samples and idle gaps."
    caption += drift_warning(view)
    return Figure("drift", figure, caption)


SAMPLE_LOOKS: dict[str, Look] = {
    "sample": (BLACK, "o", SOLID),
    "rejected": (VERMILLION, "X", SOLID),
}
CLOCK_LOOKS: dict[str, Look] = {
    "delivered clock": (BLUE, "o", SOLID),
    "clock NVML reports": (ORANGE, "s", SOLID),
}


def _drift_column(panels: Any, samples: pd.DataFrame) -> None:
    kind = (samples["rejected"] == "").map({True: "sample", False: "rejected"})
    present: dict[str, Look] = {
        name: look for name, look in SAMPLE_LOOKS.items() if name in set(kind)
    }
    samples = samples.assign(kind=kind)
    clocks = samples.rename(
        columns={"sm_clock_mhz": "delivered clock", "nvml_clock_mhz": "clock NVML reports"}
    ).melt("round", list(CLOCK_LOOKS), "clock", "mhz")
    ordered = samples.sort_values("kind", ascending=False)  # the rejected on top
    _dots(panels[0], ordered, "tflops", "kind", present)
    _dots(panels[1], clocks, "mhz", "clock", CLOCK_LOOKS)
    if len(panels) > 2:
        seaborn.scatterplot(samples, x="round", y="power_w", color=GREY, s=10, ax=panels[2])


def _dots(axes: Any, rows: pd.DataFrame, y: str, kind: str, levels: dict[str, Look]) -> None:
    """Samples over the rounds; the legend's entries stay, for the whole figure's legend."""
    seaborn.scatterplot(
        rows, x="round", y=y, hue=kind, style=kind, s=18, **looks(levels, lines=False), ax=axes
    )
    axes.get_legend().remove()
