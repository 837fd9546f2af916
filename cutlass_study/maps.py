"""Maps over tile and pipeline depth: what ran how fast, and what fits.

The feasibility map needs no measurement. A cell without a number has a fill and hatch of its own
and never enters the colour scale.
"""

from __future__ import annotations

from typing import Any

import matplotlib
import pandas as pd
from matplotlib.colors import Normalize
from matplotlib.patches import Patch, Rectangle

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


def _panels(rows: pd.DataFrame) -> list[tuple[str, list[str], list[str]]]:
    """(family, tiles, stages) per panel, tiles from large to small so that small ones sit low."""
    panels = []
    for family in TILED_FAMILIES:
        group = rows[(rows["family"] == family) & (rows["threadblock_shape"] != "")]
        if not group.empty:
            tiles = sorted(group["threadblock_shape"].unique(), key=area_key)
            panels.append((family, tiles, sorted(group["stages"].unique(), key=stage_key)))
    if not panels:
        raise NothingToShow("no configuration has a tile and a pipeline depth")
    return panels


def cell_state(rows: pd.DataFrame) -> str:
    """State of a map's cell from the rows that share it: a number first, then what went wrong."""
    present = set(rows["state"])
    for state in ("measured", "failed", "duplicate", "infeasible"):
        if state in present:
            return state
    return "not measured"


def _map_axes(view_rows: pd.DataFrame) -> tuple[Any, list[tuple[Any, str, list[str], list[str]]]]:
    """A figure with one panel per family whose cells all have the same size."""
    panels = _panels(view_rows)
    tallest = max(len(tiles) for _, tiles, _ in panels)
    cells = sum(len(stages) for _, _, stages in panels)
    wide = len(panels) > 1 or cells > 4
    figure = new_figure(PAGE_INCHES if wide else COLUMN_INCHES, 1.5 + 0.24 * tallest)
    ratios = [len(stages) + 0.6 for _, _, stages in panels]
    grid = figure.subplots(1, len(panels), squeeze=False, width_ratios=ratios)[0]
    found = []
    for axes, (family, tiles, stages) in zip(grid, panels, strict=True):
        axes.set_xlim(-0.5, len(stages) - 0.5)
        axes.set_ylim(len(tiles) - 0.5 - tallest, len(tiles) - 0.5)
        axes.set_xticks(range(len(stages)), stages)
        axes.set_yticks(range(len(tiles)), [pretty_shape(tile) for tile in tiles])
        axes.set_xlabel("stages S")
        axes.set_title(FAMILY_TITLES[family])
        axes.grid(visible=False)
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
        found.append((axes, family, tiles, stages))
    return figure, found


def _cell(axes: Any, x: int, y: int, fill: Any, hatch: str | None = None) -> None:
    axes.add_patch(
        Rectangle(
            (x - 0.48, y - 0.46),
            0.96,
            0.92,
            facecolor=fill,
            hatch=hatch,
            edgecolor="#777777" if hatch else "none",
            linewidth=0.5,
        )
    )


def _write(axes: Any, x: int, y: int, text: str, fill: Any) -> None:
    red, green, blue = matplotlib.colors.to_rgb(fill)
    dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
    axes.text(
        x, y, text, ha="center", va="center", fontsize=SMALL, color="white" if dark else "black"
    )


def _select(rows: pd.DataFrame, family: str, tile: str, stage: str) -> pd.DataFrame:
    return rows[
        (rows["family"] == family) & (rows["threadblock_shape"] == tile) & (rows["stages"] == stage)
    ]


def throughput_map(view: StudyView, regime: str) -> Figure:
    """Heat map of TFLOPS over tile and S; each cell the best of its measured configurations."""
    rows = view.at(regime)
    # WMMA, far slower and without this grid, would only flatten the colours.
    cutlass = rows["family"].isin(["sm80", "sm90"])
    rows = rows[cutlass if cutlass.any() else rows["family"].isin(TILED_FAMILIES)]
    measured = rows[rows["state"] == "measured"]
    if measured.empty:
        raise NothingToShow(f"no {regime} measurement of a tiled kernel on {view.arch}")
    low, high = measured["tflops"].min(), measured["tflops"].max()
    best = measured.groupby(["family", "threadblock_shape", "stages"])["tflops"].max()
    norm = Normalize(best.min(), high if high > low else low * 1.01)
    colours = matplotlib.colormaps["cividis"]
    figure, panels = _map_axes(rows)
    states: set[str] = set()
    crowded = 0
    for axes, family, tiles, stages in panels:
        for y, tile in enumerate(tiles):
            for x, stage in enumerate(stages):
                cell = _select(rows, family, tile, stage)
                state = cell_state(cell)
                crowded = max(crowded, len(cell))
                if state == "measured":
                    value = best[(family, tile, stage)]
                    _cell(axes, x, y, colours(norm(value)))
                    _write(axes, x, y, f"{value:.1f}", colours(norm(value)))
                else:
                    states.add(state)
                    _cell(axes, x, y, *STATE_CELLS[state])
    _scale(figure, panels, norm)
    _legend(figure, state_handles(states))
    over = " The best over every other axis is shown where a cell holds several." * (crowded > 1)
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


def _scale(figure: Any, panels: list[Any], norm: Normalize) -> None:
    mappable = matplotlib.cm.ScalarMappable(norm, "cividis")
    bar = figure.colorbar(mappable, ax=[panel[0] for panel in panels], aspect=30, pad=0.02)
    bar.set_label("TFLOPS")
    bar.outline.set_visible(False)


def feasibility_map(view: StudyView) -> Figure:
    """What fits an architecture, with the resident CTAs per SM of what compiled."""
    rows = view.configurations
    rows = rows[rows["family"].isin(TILED_FAMILIES)]
    figure, panels = _map_axes(rows)
    rows = rows.assign(ctas_per_sm=rows["ctas_per_sm"].where(rows["state"] != "infeasible"))
    known = rows[rows["ctas_per_sm"].notna()]
    counts = sorted({int(value) for value in known["ctas_per_sm"]})
    if not counts and not (rows["state"] == "infeasible").any():
        raise NothingToShow(f"neither occupancy nor an infeasible row is known on {view.arch}")
    shades = {
        count: matplotlib.colormaps["cividis"]((index + 1) / (len(counts) + 1))
        for index, count in enumerate(counts)
    }
    states: set[str] = set()
    for axes, family, tiles, stages in panels:
        for y, tile in enumerate(tiles):
            for x, stage in enumerate(stages):
                states.add(
                    _feasibility_cell(axes, x, y, _select(rows, family, tile, stage), shades)
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


def _feasibility_cell(axes: Any, x: int, y: int, cell: pd.DataFrame, shades: dict[int, Any]) -> str:
    """Draw one cell; returns its state, "measured" standing for known occupancy."""
    counts = cell["ctas_per_sm"].dropna()
    if counts.empty:
        state = cell_state(cell[cell["state"] != "measured"])
        _cell(axes, x, y, *STATE_CELLS[state])
        return state
    low, high = int(counts.min()), int(counts.max())
    _cell(axes, x, y, shades[high])
    _write(axes, x, y, f"{low}" if low == high else f"{low}–{high}", shades[high])
    return "measured"
