"""One figure for each experiment, in the project's one style: pure functions of loaded records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import seaborn
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from cutlass_study import experiment_frames as frames
from cutlass_study import experiment_tables as tables
from cutlass_study import settle_figure
from cutlass_study.conditions import DISTRIBUTION_ORDER, OWN_ALONE, PEER
from cutlass_study.style import (
    BLACK,
    BLUE,
    LINES,
    PAGE_INCHES,
    SOLID,
    VERMILLION,
    Figure,
    Look,
    looks,
    new_figure,
)
from cutlass_study.views import NothingToShow, StudyRecords


def _levels(names: Any) -> dict[str, Look]:
    """A look for each of several series, in their order."""
    return {str(name): LINES[place % len(LINES)] for place, name in enumerate(names)}


def _legend(figure: Any, axes: Any, columns: int = 4) -> None:
    handles, names = axes.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=columns)


INPUT_PANELS = (  # column, axis title, what the caption says of it
    ("tflops", "TFLOPS", ""),
    ("sm_clock_mhz", "SM clock [MHz]", " The clock is the delivered one."),
    (
        "power_w",
        "power [W]",
        " Power is what NVML reports, and not drawn for bursts: there it averages over the idle "
        "gaps and is no measure of the kernel.",
    ),
)


def inputs(data: StudyRecords) -> Figure:
    """TFLOPS and delivered clock by distribution, a column per regime; power when sustained."""
    frame = frames.inputs(data)
    frame["power_w"] = frame["power_w"].where(frame["regime"] != "burst")
    panels = [panel for panel in INPUT_PANELS if frame[panel[0]].notna().any()]
    regimes = list(frame["regime"].unique())
    figure = new_figure(PAGE_INCHES, 1.1 + 1.5 * len(panels))
    grid = figure.subplots(len(panels), len(regimes), squeeze=False, sharex=True, sharey="row")
    levels = _levels(frame["label"].unique())
    order = [name for name in DISTRIBUTION_ORDER if name in set(frame["distribution"])]
    for column, regime in enumerate(regimes):
        rows = frame[frame["regime"] == regime]
        rows = rows.assign(place=rows["distribution"].map(order.index))
        known = [place for place, (value, *_) in enumerate(panels) if rows[value].notna().any()]
        for place, (value, title, _) in enumerate(panels):
            axes = grid[place, column]
            if place not in known:
                axes.set_axis_off()
                continue
            leftmost = not any(other.axison for other in grid[place, :column])
            axes.tick_params(labelleft=leftmost, labelbottom=place == known[-1])
            seaborn.lineplot(
                rows, x="place", y=value, hue="label", style="label", **looks(levels), ax=axes
            )
            axes.get_legend().remove()
            axes.set_xticks(range(len(order)), order)
            axes.set_xlabel("")
            axes.set_ylabel(title, visible=leftmost)
        grid[0, column].set_title(f"{regime} regime")
    free = [axes for axes in grid.flat if not axes.axison]
    if free:  # the legend fills the hole
        free[0].legend(*grid[0, 0].get_legend_handles_labels(), loc="center")
    else:
        _legend(figure, grid[0, 0], 2)
    caption = (
        f"Effect of the input values. {tables.about(data)}; {' and '.join(regimes)} regime. "
        "Markers: medians; all of a regime were measured in the same interleaved rounds."
        f"{''.join(note for *_, note in panels)} Axes do not start at zero."
    )
    return Figure("inputs", figure, caption)


def _errorbars(axes: Any, rows: pd.DataFrame, x: Any, y: str, look: Look, name: str) -> None:
    """Medians with their intervals, where there are some."""
    low, high = rows[y] - rows[f"{y}_low"], rows[f"{y}_high"] - rows[y]
    bars = np.nan_to_num(np.clip([low, high], 0, None))
    axes.errorbar(
        x, rows[y], yerr=bars, color=look[0], marker=look[1], linestyle="none", label=name
    )


def alphabeta(data: StudyRecords) -> Figure:
    """Cost in percent of a C and of beta=1, with intervals."""
    frame = frames.alphabeta(data)
    frame = frame.assign(what=frame["label"] + "\n" + frame["step"])
    order = list(frame["what"].unique())
    regimes = list(frame["regime"].unique())
    figure = new_figure(PAGE_INCHES, 0.9 + 0.45 * len(order))
    axes: Any = figure.subplots()
    axes.axvline(0, color=BLACK, linewidth=0.6)
    for place, (regime, look) in enumerate(_levels(regimes).items()):
        rows = frame[frame["regime"] == regime]
        offset = 0.2 * (place - (len(regimes) - 1) / 2)
        height = rows["what"].map(order.index) + offset
        low = (rows["cost_percent"] - rows["cost_percent_low"]).clip(lower=0).fillna(0)
        high = (rows["cost_percent_high"] - rows["cost_percent"]).clip(lower=0).fillna(0)
        axes.errorbar(
            rows["cost_percent"], height, xerr=[low, high], color=look[0], marker=look[1],
            linestyle="none", label=f"{regime} regime",
        )  # fmt: skip
    axes.set_yticks(range(len(order)), order)
    axes.invert_yaxis()
    axes.set_xlabel("extra time [%]")
    _legend(figure, axes)
    caption = (
        f"Cost of C. {tables.about(data)}; {' and '.join(regimes)} regime. Markers: extra time, "
        "median within rounds; bars: 95 % bootstrap interval. beta=1: against the same kernel with "
        "beta=0. C present, beta=0: with a C that is not read, against the same kernel without "
        "one. cuBLAS adds in place."
    )
    return Figure("alphabeta", figure, caption)


def cache(data: StudyRecords) -> Figure:
    """Time of cold over hot operands against the size, a panel per way of being cold."""
    frame = frames.cache(data)
    if len(frame["regime"].unique()) > 1:
        frame = frame[frame["regime"] == "burst"]
    ways = list(frame["cold"].unique())
    figure = new_figure(PAGE_INCHES, 3.2)
    panels = figure.subplots(1, len(ways), squeeze=False, sharey=True)[0]
    levels = _levels(frame["label"].unique())
    for axes, way in zip(panels, ways, strict=True):
        axes.axhline(1, color=BLACK, linewidth=0.6)
        for name, look in levels.items():
            rows = frame[(frame["cold"] == way) & (frame["label"] == name)]
            if not rows.empty:
                _errorbars(axes, rows, rows["extent"], "ratio", look, name)
        extents = sorted(frame["extent"].unique())
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(FixedLocator(extents))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticks(extents, [f"{extent:g}" for extent in extents])
        axes.set_xlabel("M = N = K (log scale)")
        axes.set_title(f"{way} against hot operands")
    panels[0].set_ylabel("time, cold over hot")
    _legend(figure, panels[0], 1)
    caption = f"{tables.cache(data).caption} {frame['regime'].iloc[0].capitalize()} regime."
    return Figure("cache", figure, caption)


def labels(data: StudyRecords) -> Figure:
    """The smallest adjusted p-value of every repetition."""
    frame = frames.labels(data)
    figure = new_figure(PAGE_INCHES, 2.8)
    axes: Any = figure.subplots()
    axes.axhline(0.05, color=VERMILLION, linewidth=0.8)
    seaborn.scatterplot(
        frame, x="repetition", y="smallest_adjusted_p", hue="regime", style="regime", s=24,
        **looks(_levels(frame["regime"].unique()), lines=False), ax=axes,
    )  # fmt: skip
    axes.get_legend().remove()
    axes.set_ylim(0, 1.05)
    axes.set_ylabel("smallest adjusted p")
    axes.set_xticks(sorted(frame["repetition"].unique()))
    _legend(figure, axes)
    caption = (
        f"Shuffled labels: cuBLAS against itself. {tables.about(data)}. Marks: the smallest p of a "
        "repetition, by sign tests within rounds, Holm-corrected for all its comparisons. The line "
        "is the 5 % level."
    )
    return Figure("labels", figure, caption)


def interleave(data: StudyRecords) -> Figure:
    """Wall time per pair of launches over the rounds, serial and interleaved."""
    samples = frames.pair_samples(data)
    if samples.empty:
        raise NothingToShow("no interleaved launches were timed")
    pairs = samples.groupby(["condition", "round"], as_index=False)["host_ms"].first()
    figure = new_figure(PAGE_INCHES, 2.8)
    axes: Any = figure.subplots()
    levels = _levels(sorted(pairs["condition"].unique(), reverse=True))
    seaborn.scatterplot(
        pairs, x="round", y="host_ms", hue="condition", style="condition", s=24,
        **looks(levels, lines=False), ax=axes,
    )  # fmt: skip
    axes.get_legend().remove()
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel("wall time per pair [ms]")
    _legend(figure, axes)
    caption = (
        f"{tables.INTERLEAVE_RUNS} {tables.about(data)}. Wall time: host, per pair of launches. "
        "The axis does not start at zero."
    )
    return Figure("interleave", figure, caption)


OURS = "ours, cold"
PEER_LOOKS: dict[str, Look] = {PEER: (VERMILLION, "s", SOLID), OURS: (BLUE, "o", SOLID)}


def nvbench(data: StudyRecords) -> Figure:
    """Medians of each turn, relative to the median of `cuda.bench`."""
    base = frames.nvbench(data).set_index("label")["peer_time_ms"]
    found = [
        {"label": label, "by": by, "repeat": repeat, "relative": 100 * (time_ms / base[label] - 1)}
        for label, by, repeat, time_ms in frames.repeats(data)
        if label in base.index
    ]
    turns = pd.DataFrame(found)
    turns["by"] = turns["by"].replace(OWN_ALONE, OURS)
    order = list(base.index)
    turns["place"] = turns["label"].map(order.index) + 0.12 * (turns["repeat"] - 1)
    figure = new_figure(PAGE_INCHES, 0.9 + 0.4 * len(order))
    axes: Any = figure.subplots()
    bound = 100 * frames.PEER_TOLERANCE
    axes.axvspan(-bound, bound, color="#E8E8E8", linewidth=0)
    seaborn.scatterplot(
        turns, x="relative", y="place", hue="by", style="by", s=24,
        **looks(PEER_LOOKS, lines=False), ax=axes,
    )  # fmt: skip
    axes.get_legend().remove()
    axes.set_yticks(range(len(order)), order)
    axes.invert_yaxis()
    axes.set_ylabel("")
    axes.set_xlabel("median of a turn against the median of cuda.bench [%]")
    _legend(figure, axes)
    caption = (
        f"{tables.nvbench_runs(data)} The band is the tolerance of {bound:g} %; a mark is the "
        "median of one turn."
    )
    return Figure("nvbench", figure, caption)


FIGURES: dict[str, Callable[[StudyRecords], Figure]] = {
    "inputs": inputs,
    "alphabeta": alphabeta,
    "cache": cache,
    "labels": labels,
    "interleave": interleave,
    "nvbench": nvbench,
    "settle": settle_figure.draw,
}


def figure(data: StudyRecords) -> Figure:
    """The figure of the data's experiment; raises `NothingToShow` for an unknown one."""
    if data.experiment not in FIGURES:
        raise NothingToShow(f"experiment '{data.experiment}' is not known to this toolkit")
    return FIGURES[data.experiment](data)
