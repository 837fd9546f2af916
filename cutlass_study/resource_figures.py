"""Figures of registers, shared memory and occupancy: compiling alone fills them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd
import seaborn
from matplotlib.ticker import MaxNLocator

from cutlass_study.gpus import LIMITS
from cutlass_study.maps import cell_state
from cutlass_study.style import (
    BLUE,
    LINES,
    PAGE_INCHES,
    SKY,
    STATE_CELLS,
    VERMILLION,
    Figure,
    looks,
    new_figure,
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

RESOURCE_ROWS = 48
_KIB = 1024


@dataclass(frozen=True)
class SmLimits:
    """What one SM offers; bytes and registers."""

    smem_per_sm: int
    smem_per_cta: int
    smem_reserved: int
    registers: int


def limits_of(view: StudyView) -> SmLimits | None:
    """Limits as queried from the device measured, else as tabulated; None if neither knows."""
    device = view.device
    if device is not None and device.arch == view.arch:
        return SmLimits(
            device.smem_per_sm,
            device.smem_per_block_optin,
            device.smem_reserved_per_block,
            device.registers_per_sm,
        )
    known = LIMITS.get(view.arch)
    if known is None:
        return None
    return SmLimits(
        known.smem_per_sm,
        known.smem_per_block_optin,
        known.smem_reserved_per_block,
        known.registers_per_sm,
    )


def compiled_families(view: StudyView) -> list[str]:
    """Families with registers known for at least one kernel."""
    known = set(view.rows.loc[view.rows["registers"].notna(), "family"])
    return [family for family in TILED_FAMILIES if family in known]


def resources(view: StudyView, family: str) -> Figure:
    """Registers, shared memory and occupancy of each tile and S of one family."""
    rows = view.configurations
    rows = rows[(rows["family"] == family) & (rows["threadblock_shape"] != "")]
    if rows["registers"].isna().all():
        raise NothingToShow(f"no {family} kernel for {view.arch} has known registers")
    table = _per_tile_and_stage(rows)
    dropped = max(0, len(table) - RESOURCE_ROWS)
    table = table.iloc[:RESOURCE_ROWS]
    figure = new_figure(PAGE_INCHES, 1.1 + 0.165 * len(table))
    panels = figure.subplots(1, 3, sharey=True, width_ratios=[1, 1, 1])
    _register_panel(panels[0], table)
    _memory_panel(panels[1], table, limits_of(view))
    _occupancy_panel(panels[2], table)
    panels[0].set_yticks(range(len(table)), table["label"])
    panels[0].set_ylim(len(table) - 0.4, -0.6)
    for axes in panels:
        axes.grid(axis="y", visible=False)
    cut = f" {dropped} further rows are not drawn." if dropped else ""
    caption = (
        f"Resources of {FAMILY_TITLES[family]} kernels on {view.arch}, as compiled, by tile and "
        f"stages S; {view.problem}. Markers and bars: the largest value; a line spans kernels "
        "that differ in other axes; dashed lines are limits. "
        f"Configurations: {count_compiled(rows)}.{cut}"
    )
    return Figure(f"resources_{view.arch}_{family}", figure, caption)


def count_compiled(rows: pd.DataFrame) -> str:
    """`20 compiled, 4 infeasible`: compiled stands for measured or not, which is not said here."""
    compiled = int(rows["registers"].notna().sum())
    rest = rows[rows["registers"].isna()]
    return f"{compiled} compiled" + (f", {count_states(rest)}" if len(rest) else "")


def _per_tile_and_stage(rows: pd.DataFrame) -> pd.DataFrame:
    found: list[dict[str, Any]] = []
    pairs = rows[["threadblock_shape", "stages"]].drop_duplicates().to_numpy().tolist()
    for tile, stage in sorted(pairs, key=lambda pair: (area_key(pair[0]), stage_key(pair[1]))):
        group = rows[(rows["threadblock_shape"] == tile) & (rows["stages"] == stage)]
        compiled = group[group["registers"].notna()]
        row: dict[str, Any] = {}
        row["label"] = f"{pretty_shape(tile)} S{'' if stage.isdigit() else '='}{stage}"
        row["without"] = "" if len(compiled) else cell_state(group)
        row["infeasible"] = bool((group["state"] == "infeasible").all())
        for column in ("registers", "smem_bytes", "ctas_per_sm", "occupancy"):
            source = group if column == "smem_bytes" and compiled.empty else compiled
            row[f"{column}_low"], row[f"{column}_high"] = source[column].min(), source[column].max()
        limiters = dict.fromkeys(text for text in compiled["limiter"] if text)
        row["limiter"] = next(iter(limiters)) if len(limiters) == 1 else "varies" * bool(limiters)
        row["spills"] = bool((compiled["spill_bytes"] > 0).any())
        found.append(row)
    return pd.DataFrame(found)


def _register_panel(axes: Any, table: pd.DataFrame) -> None:
    places = range(len(table))
    axes.hlines(places, table["registers_low"], table["registers_high"], color=BLUE)
    axes.plot(table["registers_high"], places, "o", color=BLUE, label="registers")
    spills = table["spills"].to_numpy(dtype=bool)
    if spills.any():
        axes.plot(
            table["registers_high"][spills],
            table.index[spills],
            "X",
            color=VERMILLION,
            markersize=7,
            label="spills",
        )
        axes.legend(loc="lower left")
    axes.axvline(255, color="black", linewidth=0.8, linestyle=(0, (6, 2)))
    axes.set_xlim(0, 270)
    axes.set_xlabel("registers per thread")


def _memory_panel(axes: Any, table: pd.DataFrame, limits: SmLimits | None) -> None:
    fill, hatch = STATE_CELLS["infeasible"]
    for place, row in table.iterrows():
        refused = row["infeasible"]
        axes.barh(
            place,
            row["smem_bytes_high"] / _KIB,
            height=0.7,
            color=fill if refused else SKY,
            hatch=hatch if refused else None,
            edgecolor="#777777" if refused else "none",
            linewidth=0.5,
        )
    if table["infeasible"].any():
        axes.barh([0], [0], color=fill, hatch=hatch, edgecolor="#777777", label="infeasible")
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1))
    if limits is not None:
        axes.axvline(
            limits.smem_per_cta / _KIB, color="black", linewidth=0.8, linestyle=(0, (6, 2))
        )
    axes.set_xlim(left=0)
    axes.set_xlabel("shared memory per CTA [KiB]")


def _occupancy_panel(axes: Any, table: pd.DataFrame) -> None:
    axes.hlines(
        range(len(table)), 100 * table["occupancy_low"], 100 * table["occupancy_high"], color=BLUE
    )
    axes.plot(100 * table["occupancy_high"], range(len(table)), "s", color=BLUE)
    axes.set_xlim(0, 100)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.set_xlabel("occupancy [%]")
    short = {"registers": "regs", "shared memory": "smem"}
    twin = axes.secondary_yaxis("right")
    texts = []
    for _, row in table.iterrows():
        limiter = str(row["limiter"])
        for long, brief in short.items():
            limiter = limiter.replace(long, brief)
        low, high = row["ctas_per_sm_low"], row["ctas_per_sm_high"]
        count = "" if high != high else f"{low:.0f}" if low == high else f"{low:.0f}–{high:.0f}"
        texts.append(row["without"] or f"{count} {limiter}".strip())
    twin.set_yticks(range(len(table)), texts)
    twin.tick_params(length=0)
    twin.spines["right"].set_visible(False)
    axes.annotate(
        "CTAs/SM, limiter",
        (1, 1),
        xycoords="axes fraction",
        xytext=(4, 4),
        textcoords="offset points",
    )


def occupancy(view: StudyView) -> Figure:
    """Registers against shared memory per CTA, with the region of each number of CTAs per SM."""
    rows = view.configurations
    rows = rows[rows["family"].isin(TILED_FAMILIES) & rows["registers"].notna()]
    rows = rows[rows["threads"].notna() & rows["smem_bytes"].notna()]
    limits = limits_of(view)
    if rows.empty or limits is None:
        raise NothingToShow(f"no kernel for {view.arch} has known registers, threads and limits")
    families = compiled_families(view)
    figure = new_figure(PAGE_INCHES, 3.3)
    panels = figure.subplots(1, len(families), squeeze=False, sharey=True, sharex=True)[0]
    depths = [f"S={stage}" for stage in sorted(rows["stages"].unique(), key=stage_key)]
    rows = rows.assign(
        depth="S=" + rows["stages"],
        smem_kib=rows["smem_bytes"] / _KIB,
        registers_k=rows["registers"] * rows["threads"] / 1000,
    )
    for axes, family in zip(panels, families, strict=True):
        _regions(axes, limits)
        seaborn.scatterplot(
            rows[rows["family"] == family],
            x="smem_kib",
            y="registers_k",
            hue="depth",
            style="depth",
            s=22,
            alpha=0.8,
            **looks(dict(zip(depths, LINES, strict=False)), lines=False),
            ax=axes,
        )
        axes.get_legend().remove()
        axes.set_title(FAMILY_TITLES[family])
        axes.set_xlabel("shared memory per CTA [KiB]")
        axes.grid(visible=False)
    panels[0].set_ylabel("registers per CTA [thousands]")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=6)
    caption = (
        f"What bounds residency on {view.arch}, as compiled; {view.problem}; {len(rows)} kernels. "
        "A kernel inside the rectangle marked n fits n CTAs per SM (capacity of shared memory and "
        "register file divided by n; allocation units and warp limits can lower it by one)."
    )
    return Figure(f"occupancy_{view.arch}", figure, caption)


def _regions(axes: Any, limits: SmLimits) -> None:
    """Nested rectangles: n CTAs fit below capacity / n in both directions."""
    for count in (1, 2, 3, 4):
        x = min(limits.smem_per_sm / count - limits.smem_reserved, limits.smem_per_cta) / _KIB
        y = limits.registers / count / 1000
        axes.plot([x, x, 0], [0, y, y], color="#888888", linewidth=0.8)
        axes.annotate(
            "1 CTA/SM" if count == 1 else str(count),
            (x, 0),
            xytext=(-3, 3),
            textcoords="offset points",
            ha="right",
            va="bottom",
            color="#555555",
        )
    axes.set_xlim(0, limits.smem_per_cta / _KIB * 1.05)
    axes.set_ylim(0, limits.registers / 1000 * 1.08)
