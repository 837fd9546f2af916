"""The figure of the `settle` experiment: how speed hunts after a change of kernel, and what of it
samples of several lengths would show. A pure function of loaded records.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.ticker import FixedLocator, NullLocator

from cutlass_study import experiment_tables as tables
from cutlass_study import settle_frames as frames
from cutlass_study.style import (
    BLACK,
    DASH_DOT,
    DASHED,
    DOTTED,
    LINES,
    PAGE_INCHES,
    SMALL,
    SOLID,
    Figure,
    Look,
    new_figure,
)
from cutlass_study.views import StudyRecords

TIMED_STEPS_MS = (100.0, 200.0, 300.0, 400.0, 600.0, 800.0, 1200.0, 1600.0)
PLAN_LINES: tuple[Look, ...] = (  # greys: the colours of the left half are kernels
    ("#A0A0A0", "o", SOLID),
    ("#707070", "s", DASHED),
    (BLACK, "^", DASH_DOT),
    ("#505050", "D", DOTTED),
)
UNTIMED_SHADE, TIMED_SHADE = "#D9D9D9", "#F1F1F1"
HEADROOM = 1.6  # of the axis over the highest spread: the legend stands there
EVERY = 4  # bins between two markers: lines stay apart in grey, and readable


def draw(data: StudyRecords) -> Figure:
    """Time over the time since the kernel began, and spread over the length of a sample."""
    figure = new_figure(PAGE_INCHES, 3.6)
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    _course(left, data)
    _spread(right, data)
    handles, names = left.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3)
    caption = (
        f"How long a sustained sample must be. {tables.about(data)}. {tables.settle_runs(data)} "
        "Left: time per launch since the kernel began, mean over its visits, against its own mean "
        f"from {frames.LATE_MS / 1000:g} s on; shaded is what the plan in use leaves untimed "
        "(dark) and times (light). The legend gives each kernel's power. Right: what samples of "
        "other lengths would scatter by (root mean square over kernels)."
    )
    return Figure("settle", figure, caption)


def _course(axes: Any, data: StudyRecords) -> None:
    begin, end = frames.IN_USE.untimed_ms, frames.IN_USE.untimed_ms + frames.IN_USE.timed_ms
    axes.axvspan(0, begin / 1000, color=UNTIMED_SHADE, linewidth=0, zorder=0)
    axes.axvspan(begin / 1000, end / 1000, color=TIMED_SHADE, linewidth=0, zorder=0)
    axes.axhline(0, color=BLACK, linewidth=0.6)
    path = frames.course(data)
    for place, (_, kernel) in enumerate(frames.kernels(data).iterrows()):
        own = path[path["label"] == kernel["label"]].sort_values("since_ms")
        power = kernel["power_w"]
        name = kernel["label"] if pd.isna(power) else f"{kernel['label']}, {power:.0f} W"
        look = LINES[place % len(LINES)]
        _line(axes, own["since_ms"] / 1000, own["deviation_percent"], look, name, EVERY)
    top = axes.get_ylim()[1]
    for x, word in ((begin / 2, "untimed"), ((begin + end) / 2, "timed")):
        axes.text(x / 1000, top, word, ha="center", va="bottom", fontsize=SMALL)
    axes.set_xlim(left=0)
    axes.set_xlabel("time since the kernel began [s]")
    axes.set_ylabel("time per launch, deviation [%]")


def _spread(axes: Any, data: StudyRecords) -> None:
    found = frames.plans(data, timed_ms=TIMED_STEPS_MS)
    for place, (untimed_ms, rows) in enumerate(found.groupby("untimed_ms")):
        look = PLAN_LINES[place % len(PLAN_LINES)]
        name = f"{untimed_ms:.0f} ms untimed"
        _line(axes, rows["timed_ms"], rows["spread_percent"], look, name)
    mark = found[found["in_use"] == "yes"]
    axes.plot(
        mark["timed_ms"], mark["spread_percent"], marker="o", markersize=11, linestyle="none",
        markerfacecolor="none", markeredgecolor=BLACK, clip_on=False, label="plan in use",
    )  # fmt: skip
    shown = [step for step in TIMED_STEPS_MS if np.log2(step / TIMED_STEPS_MS[0]).is_integer()]
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(shown))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(shown, [f"{step:.0f}" for step in shown])
    axes.set_ylim(0, HEADROOM * found["spread_percent"].max() or None)
    axes.set_xlabel("timed [ms] (log scale)")
    axes.set_ylabel("spread of samples [%]")
    axes.legend(loc="upper right")


def _line(axes: Any, x: Any, y: Any, look: Look, name: str, every: int = 1) -> None:
    colour, marker, dashes = look
    (line,) = axes.plot(x, y, color=colour, marker=marker, markevery=every, label=name)
    if dashes:
        line.set_dashes(dashes)
