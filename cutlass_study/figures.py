"""Figures that compare configurations by measured throughput, each made from a `StudyView`.

Each raises `NothingToShow` when the data can't fill it. Rows that are not `ok` enter none of them
except as a count in the caption.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import seaborn

from cutlass_study.comparisons import (
    EPILOGUE_REFERENCE,
    RANKED_ROWS,
    best_per,
    control,
    epilogue_effect,
    measured_rows,
)
from cutlass_study.style import (
    COLUMN_INCHES,
    FAMILY_LINES,
    LINES,
    PAGE_INCHES,
    Figure,
    Look,
    looks,
    new_figure,
)
from cutlass_study.views import (
    FAMILY_TITLES,
    NothingToShow,
    StudyView,
    area_key,
    count_states,
    pretty_shape,
    stage_key,
)

INTERVAL_NOTE = (
    "Bars: 95 % bootstrap interval of the median within-round ratio to cuBLAS, scaled to the row's "
    "TFLOPS."
)
EFFECT_ROWS = 30
NAMED_ROWS = 2  # so many rows a caption names; more it counts
NEAR = 1.2  # times the fastest of a panel: how far off cuBLAS may be to be drawn in it


def pipeline_depth(view: StudyView, regime: str) -> Figure:
    """TFLOPS over S, one line per tile, one panel per family, with cuBLAS as a level."""
    rows = measured_rows(view, regime)
    staged = rows[rows["family"].isin(["sm80", "sm90"])]
    families = [
        family
        for family, group in staged.groupby("family")
        if group.groupby("threadblock_shape")["stages"].nunique().max() > 1
    ]
    if not families:
        raise NothingToShow("no tile was measured at more than one pipeline depth S")
    cublas = control(rows)
    figure = new_figure(PAGE_INCHES if len(families) > 1 else COLUMN_INCHES, 4.2)
    panels = figure.subplots(1, len(families), squeeze=False)[0]
    left_out = 0
    for axes, family in zip(panels, families, strict=True):
        left_out += _depth_panel(axes, staged[staged["family"] == family], cublas)
        axes.set_title(FAMILY_TITLES[str(family)])
        axes.set_ylabel("")
    panels[0].set_ylabel("TFLOPS")
    caption = (
        f"Throughput over pipeline depth S. {view.title}; {regime} regime. Each point is the best "
        "of its tile and S over every other axis; points of one S are shifted sideways so that "
        f"they do not cover each other. {INTERVAL_NOTE} "
        f"{'Each panel has its own axis. ' if len(families) > 1 else ''}"
        f"Configurations shown from: {count_states(_tiled(view, regime))}."
    )
    if left_out:
        caption += f" {left_out} slower tiles are not drawn."
    return Figure("pipeline_depth", figure, caption)


def _tiled(view: StudyView, regime: str) -> pd.DataFrame:
    rows = view.at(regime)
    return rows[rows["family"].isin(["sm80", "sm90"])]


def _depth_panel(axes: Any, rows: pd.DataFrame, cublas: pd.Series[Any] | None) -> int:
    """Draw one family; returns how many tiles had no place."""
    best = best_per(rows, ["threadblock_shape", "stages"])
    depths = sorted(best["stages"].unique(), key=stage_key)
    order = best.groupby("threadblock_shape")["tflops"].max().sort_values(ascending=False)
    tiles = sorted(order.index[: len(LINES)], key=area_key)
    points = best[best["threadblock_shape"].isin(tiles)]
    # Lines side by side by a hair, so that intervals do not cover each other.
    shift = (points["threadblock_shape"].map(tiles.index) - (len(tiles) - 1) / 2) * 0.035
    points = points.assign(
        place=points["stages"].map(depths.index) + shift,
        tile=points["threadblock_shape"].map(pretty_shape),
    )
    levels = dict(zip(map(pretty_shape, tiles), LINES, strict=False))
    seaborn.lineplot(
        points, x="place", y="tflops", hue="tile", style="tile", **looks(levels), ax=axes
    )
    scale = points["tflops"] / points["ratio_to_cublas"]
    low, high = points["ratio_low"] * scale, points["ratio_high"] * scale
    axes.vlines(points["place"], low, high, colors=_colours(points["tile"], levels))
    top = points["tflops"].max()
    if cublas is not None and cublas["tflops"] < NEAR * top:
        top = max(top, cublas["tflops"])
        axes.axhline(
            cublas["tflops"],
            color="black",
            linewidth=1,
            linestyle=(0, (6, 2)),
            label=f"cuBLAS, {cublas['tflops']:.1f}",
        )
    elif cublas is not None:
        text = f"cuBLAS, {cublas['tflops']:.1f}, lies above"
        top *= 1.06
        axes.annotate(text, (0.02, 0.98), xycoords="axes fraction", va="top")
    axes.set_ylim(0, 1.06 * top)
    axes.set_xticks(range(len(depths)), depths)
    axes.set_xlim(-0.35, len(depths) - 0.65)
    axes.set_xlabel("pipeline stages S")
    axes.grid(axis="x", visible=False)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2, handlelength=3)
    return len(order) - len(tiles)


def _colours(names: pd.Series[Any], levels: dict[str, Look]) -> list[str]:
    return [levels[name][0] for name in names]


def epilogue_width(view: StudyView, regime: str) -> Figure:
    """Throughput at each epilogue width relative to width 4, everything else equal."""
    effect = epilogue_effect(view, regime)
    order = effect.groupby("group")["reference_tflops"].first().sort_values()
    groups = list(order.index[-EFFECT_ROWS:])
    widths = sorted(effect["epilogue_width"].unique())
    figure = new_figure(PAGE_INCHES, 1.1 + 0.2 * len(groups))
    axes = figure.subplots()
    points = effect[effect["group"].isin(groups)]
    shift = (points["epilogue_width"].map(widths.index) - (len(widths) - 1) / 2) * 0.22
    points = points.assign(
        place=points["group"].map(groups.index) + shift,
        width=points["epilogue_width"].map("width {:g}".format),
    )
    levels = dict(zip(map("width {:g}".format, widths), LINES, strict=False))
    axes.hlines(
        points["place"], points["low"], points["high"], colors=_colours(points["width"], levels)
    )
    seaborn.scatterplot(
        points, x="ratio", y="place", hue="width", style="width", s=24,
        **looks(levels, lines=False), ax=axes,
    )  # fmt: skip
    axes.axvline(1, color="black", linewidth=1, linestyle=(0, (6, 2)))
    axes.set_yticks(range(len(groups)), groups)
    axes.set_ylim(-0.6, len(groups) - 0.4)
    axes.set_xlabel(f"throughput relative to epilogue width {EPILOGUE_REFERENCE} (1 = no effect)")
    axes.set_ylabel("")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=len(widths))
    how = "paired within rounds" if effect["paired"].all() else "medians, partly without intervals"
    caption = (
        f"Effect of the epilogue's vector width. {view.title}; {regime} regime. Ratios to width "
        f"{EPILOGUE_REFERENCE} with everything else equal, {how}; bars: 95 % bootstrap interval. "
        f"{len(groups)} of {len(order)} groups, the fastest at the top; only measured rows count "
        f"({count_states(_tiled(view, regime))})."
    )
    return Figure("epilogue_width", figure, caption)


def ranking(view: StudyView) -> Figure:
    """The fastest configurations with their ratio to cuBLAS, in every regime measured."""
    if not view.regimes:
        raise NothingToShow(f"nothing was measured on {view.arch}")
    regime = view.regimes[0]
    rows = measured_rows(view, regime)
    is_control = (rows["family"] == "cublas") & (rows["variant"] == "default")
    rows = rows[~is_control & rows["ratio_to_cublas"].notna()]
    if rows.empty:
        raise NothingToShow("no configuration has a ratio to cuBLAS")
    top = rows.sort_values("ratio_to_cublas", kind="stable").iloc[-RANKED_ROWS:]
    twice = _measured_twice(view, top)
    figure = new_figure(PAGE_INCHES, 1.2 + 0.2 * len(top))
    axes = figure.subplots()
    for name, shift in zip(view.regimes, (0.17, -0.17), strict=False):
        off = shift * top["name"].isin(twice["name"]).to_numpy()
        places = dict(zip(top["name"], np.arange(len(top)) + off, strict=True))
        _forest(axes, view.at(name), places, hollow=shift < 0)
    axes.axvline(1, color="black", linewidth=1, linestyle=(0, (6, 2)))
    axes.set_yticks(range(len(top)), top["label"])
    axes.set_ylim(-0.6, len(top) - 0.4)
    axes.set_xlabel("throughput relative to cuBLAS (dashed line = cuBLAS)")
    _right_column(axes, [f"{value:.1f}" for value in top["tflops"]], f"TFLOPS\n({regime})")
    own_twice = (twice["family"] != "cublas").any()
    _family_legend(axes, top, view.regimes if own_twice else ())
    caption = (
        f"Ranked configurations. {view.title}. The {len(top)} best of {len(rows)} measured in the "
        f"{regime} regime ({count_states(view.at(regime))}), ordered by the median ratio to cuBLAS "
        "within rounds. Markers: that ratio; bars: its 95 % bootstrap interval."
    )
    if len(twice):
        which = "every row" if len(twice) == len(top) else f"{len(twice)} of these rows"
        if len(twice) <= NAMED_ROWS:
            which = f"{' and '.join(twice['label'])} alone"
        caption += f" Hollow, lower: {view.regimes[1]} regime, measured for {which}."
    return Figure("ranking", figure, caption)


def _measured_twice(view: StudyView, top: pd.DataFrame) -> pd.DataFrame:
    """Those of the ranked rows that have a ratio in the second regime too."""
    if len(view.regimes) < 2:
        return top.iloc[:0]
    rows = view.at(view.regimes[1])
    return top[top["name"].isin(rows.loc[rows["ratio_to_cublas"].notna(), "name"])]


def _forest(axes: Any, rows: pd.DataFrame, places: dict[str, float], *, hollow: bool) -> None:
    """Ratios of one regime, of the rows named in `places` and at that height."""
    shown = rows[rows["name"].isin(list(places)) & rows["ratio_to_cublas"].notna()]
    for family, points in shown.groupby("family"):
        colour, marker, _ = FAMILY_LINES["cublas_lt" if family == "cublas" else str(family)]
        axes.errorbar(
            points["ratio_to_cublas"],
            [places[name] for name in points["name"]],
            xerr=[
                (points["ratio_to_cublas"] - points["ratio_low"]).clip(lower=0),
                (points["ratio_high"] - points["ratio_to_cublas"]).clip(lower=0),
            ],
            color=colour,
            marker=marker,
            markerfacecolor="white" if hollow else colour,
            linewidth=0.8 if hollow else 1.2,
            linestyle="none",
        )


def _right_column(axes: Any, texts: list[str], heading: str) -> None:
    """Numbers level with the rows, right of the plot."""
    twin = axes.secondary_yaxis("right")
    twin.set_yticks(range(len(texts)), texts)
    twin.tick_params(length=0)
    twin.spines["right"].set_visible(False)
    axes.annotate(
        heading,
        (1, 1),
        xycoords="axes fraction",
        xytext=(4, 4),
        textcoords="offset points",
        ha="left",
        va="bottom",
    )


def _family_legend(axes: Any, top: pd.DataFrame, regimes: tuple[str, ...]) -> None:
    """Families and, if any are given, regimes."""
    for family in dict.fromkeys(top["family"]):
        colour, marker, _ = FAMILY_LINES["cublas_lt" if family == "cublas" else str(family)]
        title = "cuBLASLt best" if family == "cublas" else FAMILY_TITLES[str(family)]
        axes.plot([], [], color=colour, marker=marker, linestyle="none", label=title)
    for regime, face in zip(regimes, ("#777777", "white"), strict=False):
        axes.plot(
            [], [], "h", color="#777777", markerfacecolor=face, linestyle="none", label=regime
        )
    axes.figure.legend(loc="outside lower center", ncols=6, columnspacing=1.2)
