"""Maps over tile and pipeline depth: what ran how fast, and what fits.

The feasibility map needs no measurement. A cell without a number has a fill and hatch of its own
and never enters the colour scale.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import matplotlib
import pandas as pd
import seaborn
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.patches import Patch, Rectangle
from seaborn.utils import relative_luminance

from cutlass_study.style import (
    COLUMN_INCHES,
    PAGE_INCHES,
    SMALL,
    STATE_CELLS,
    Figure,
    new_figure,
    state_handles,
)
from cutlass_study.views import (
    FAMILY_TITLES,
    TILED_FAMILIES,
    NothingToShow,
    StudyView,
    area_key,
    count_states,
    pretty_shape,
    stage_key,
)


@dataclass(frozen=True)
class Panel:
    """One family's part of a map: a grid of tiles, large ones on top, by pipeline stages."""

    axes: Any
    rows: pd.DataFrame
    tiles: list[str]
    stages: list[str]

    def grid(self, cell: Callable[[pd.DataFrame], object]) -> pd.DataFrame:
        """`cell` of the rows that share each tile and number of stages."""
        rows = self.rows
        return pd.DataFrame(
            [
                [
                    cell(rows[(rows["threadblock_shape"] == tile) & (rows["stages"] == stage)])
                    for stage in self.stages
                ]
                for tile in self.tiles
            ],
            index=self.tiles,
            columns=self.stages,
        )


def _map_panels(rows: pd.DataFrame) -> tuple[Any, list[Panel]]:
    """A figure with one panel per family; raises `NothingToShow` if no row has a place."""
    groups = [
        (family, group)
        for family in TILED_FAMILIES
        if not (group := rows[(rows["family"] == family) & (rows["threadblock_shape"] != "")]).empty
    ]
    if not groups:
        raise NothingToShow("no configuration has a tile and a pipeline depth")
    tiles = [
        sorted(group["threadblock_shape"].unique(), key=area_key, reverse=True)
        for _, group in groups
    ]
    stages = [sorted(group["stages"].unique(), key=stage_key) for _, group in groups]
    tallest, cells = max(map(len, tiles)), sum(map(len, stages))
    wide = len(groups) > 1 or cells > 4
    figure = new_figure(PAGE_INCHES if wide else COLUMN_INCHES, 1.5 + 0.24 * tallest)
    ratios = [len(some) + 0.6 for some in stages]
    grid = figure.subplots(1, len(groups), squeeze=False, width_ratios=ratios)[0]
    return figure, [
        Panel(axes, group, *extents)
        for axes, (_, group), *extents in zip(grid, groups, tiles, stages, strict=True)
    ]


def cell_state(rows: pd.DataFrame) -> str:
    """State of a map's cell from the rows that share it: a number first, then what went wrong."""
    present = set(rows["state"])
    for state in ("measured", "failed", "duplicate", "infeasible"):
        if state in present:
            return state
    return "not measured"


def _set_contrast(axes: Any) -> None:
    """Black or white numbers, whichever has more contrast (WCAG's formula gives the bound)."""
    fills = [fill for fill in axes.collections[0].get_facecolors() if fill[3] > 0]
    for text, fill in zip(axes.texts, fills, strict=True):
        text.set_color("black" if relative_luminance(fill) > 0.179 else "white")


def _draw(
    panel: Panel,
    values: pd.DataFrame,
    texts: pd.DataFrame,
    states: pd.DataFrame,
    tallest: int,
    **scale: Any,
) -> None:
    """Heat map of `values` with `texts`; a cell without a value shows its state instead."""
    axes = panel.axes
    axes.grid(visible=False)
    if values.notna().any(axis=None):
        seaborn.heatmap(
            values,
            annot=texts,
            fmt="",
            annot_kws={"size": SMALL},
            linewidths=1.5,
            linecolor="white",
            cbar=False,
            xticklabels=False,
            yticklabels=False,
            ax=axes,
            **scale,
        )
        _set_contrast(axes)
    for y, x in zip(*values.isna().to_numpy().nonzero(), strict=True):
        fill, hatch = STATE_CELLS[str(states.iat[y, x])]
        axes.add_patch(
            Rectangle((x + 0.02, y + 0.04), 0.96, 0.92, facecolor=fill, hatch=hatch,
                      edgecolor="#777777", linewidth=0.5)
        )  # fmt: skip
    axes.set_xlim(0, len(panel.stages))
    axes.set_ylim(tallest, 0)  # so that cells are equally high in every panel
    axes.set_xticks([x + 0.5 for x in range(len(panel.stages))], panel.stages)
    axes.set_yticks([y + 0.5 for y in range(len(panel.tiles))], map(pretty_shape, panel.tiles))
    axes.tick_params(length=0)
    axes.set_xlabel("stages S")
    axes.set_title(FAMILY_TITLES[str(panel.rows["family"].iloc[0])])
    seaborn.despine(ax=axes, left=True, bottom=True)


def throughput_map(view: StudyView, regime: str) -> Figure:
    """Heat map of TFLOPS over tile and S; each cell the best of its measured configurations."""
    rows = view.at(regime)
    # WMMA, far slower and without this grid, would only flatten the colours.
    cutlass = rows["family"].isin(["sm80", "sm90"])
    rows = rows[cutlass if cutlass.any() else rows["family"].isin(TILED_FAMILIES)]
    measured = rows[rows["state"] == "measured"]
    if measured.empty:
        raise NothingToShow(f"no {regime} measurement of a tiled kernel on {view.arch}")
    best = measured.groupby(["family", "threadblock_shape", "stages"])["tflops"].max()
    low, high = best.min(), best.max()
    norm = Normalize(low, high if high > low else low * 1.01)
    figure, panels = _map_panels(rows)
    tallest = max(len(panel.tiles) for panel in panels)
    states: set[str] = set()
    for panel in panels:
        values = panel.grid(lambda cell: cell["tflops"].where(cell["state"] == "measured").max())
        cell_states = panel.grid(cell_state)
        states |= set(cell_states.to_numpy().flat)
        texts = values.map("{:.1f}".format)
        _draw(panel, values, texts, cell_states, tallest, cmap="cividis", norm=norm)
    _scale(figure, panels, norm)
    _legend(figure, state_handles(states))
    crowded = int(rows.groupby(["family", "threadblock_shape", "stages"]).size().max()) > 1
    over = " The best over every other axis is shown where a cell holds several." * crowded
    caption = (
        f"Throughput over threadblock tile and pipeline depth. {view.title}; {regime} regime. "
        f"Configurations: {count_states(rows)}.{over} Hatched cells hold no number and are outside "
        "the colour scale."
    )
    return Figure("throughput_map", figure, caption)


def _legend(figure: Any, handles: list[Patch]) -> None:
    if handles:
        columns = 5 if figure.get_figwidth() > COLUMN_INCHES else 2
        figure.legend(handles=handles, loc="outside lower center", ncols=columns)


def _scale(figure: Any, panels: list[Panel], norm: Normalize) -> None:
    mappable = matplotlib.cm.ScalarMappable(norm, "cividis")
    bar = figure.colorbar(mappable, ax=[panel.axes for panel in panels], aspect=30, pad=0.02)
    bar.set_label("TFLOPS")
    bar.outline.set_visible(False)
    bar.solids.set_rasterized(False)  # else the one picture of pixels in a page of lines
    bar.solids.set_edgecolor("face")  # no hairlines between the shades


def feasibility_map(view: StudyView) -> Figure:
    """What fits an architecture, with the resident CTAs per SM of what compiled."""
    rows = view.configurations
    rows = rows[rows["family"].isin(TILED_FAMILIES)]
    rows = rows.assign(ctas_per_sm=rows["ctas_per_sm"].where(rows["state"] != "infeasible"))
    figure, panels = _map_panels(rows)
    counts = sorted({int(value) for value in rows["ctas_per_sm"].dropna()})
    if not counts and not (rows["state"] == "infeasible").any():
        raise NothingToShow(f"neither occupancy nor an infeasible row is known on {view.arch}")
    shades = {
        count: matplotlib.colormaps["cividis"]((index + 1) / (len(counts) + 1))
        for index, count in enumerate(counts)
    }
    tallest = max(len(panel.tiles) for panel in panels)
    states: set[str] = set()
    for panel in panels:
        most = panel.grid(lambda cell: cell["ctas_per_sm"].max())
        places = most.map(counts.index, na_action="ignore")
        cell_states = panel.grid(lambda cell: cell_state(cell[cell["state"] != "measured"]))
        states |= set(cell_states.to_numpy()[most.isna().to_numpy()])
        _draw(
            panel,
            places.astype(float),
            panel.grid(_count_range),
            cell_states,
            tallest,
            cmap=ListedColormap(list(shades.values())),
            vmin=-0.5,
            vmax=len(counts) - 0.5,
        )
    _legend(figure, _feasibility_handles(shades, states))
    infeasible = int((rows["state"] == "infeasible").sum())
    failed = int((rows["state"] == "failed").sum())
    caption = (
        f"Feasibility and resident CTAs per SM by tile and pipeline depth on {view.arch}; "
        f"{view.problem}. Computed from limits and compiled kernels, not measured: "
        f"{len(rows)} configurations, {infeasible} infeasible, {failed} failed. A range such as "
        "1–2 spans the configurations that share a cell, coloured by the larger."
    )
    return Figure(f"feasibility_{view.arch}", figure, caption)


def _count_range(cell: pd.DataFrame) -> str:
    """`1`, or `1–2` where the kernels of a cell differ in CTAs per SM; empty if none is known."""
    counts = cell["ctas_per_sm"].dropna()
    if counts.empty:
        return ""
    low, high = int(counts.min()), int(counts.max())
    return f"{low}" if low == high else f"{low}–{high}"


def _feasibility_handles(shades: dict[int, Any], states: set[str]) -> list[Patch]:
    counts = [
        Patch(facecolor=shade, label=f"{count} CTA{'s' * (count != 1)}/SM")
        for count, shade in shades.items()
    ]
    others = state_handles(states)
    for handle in others:
        if handle.get_label() == "not measured":
            handle.set_label("not tried")
    return counts + others
