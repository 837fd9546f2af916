"""The figure of a repeat: what each configuration's ratio to cuBLAS changed by."""

from __future__ import annotations

from typing import Any

import pandas as pd

from cutlass_study.agreement import Agreement
from cutlass_study.repeatability import Repeat
from cutlass_study.repeatability_text import LABELS, about, also_changed, counted, tolerances
from cutlass_study.style import (
    BLACK,
    BLUE,
    PAGE_INCHES,
    VERMILLION,
    Figure,
    new_figure,
)

SHOWN_CONFIGURATIONS = 40  # at most, as many that differ most from each regime
BAND = "#DCDCDC"
_LOOKS: dict[bool, dict[str, Any]] = {
    True: {"color": BLUE, "marker": "o", "label": "agrees"},
    False: {
        "color": VERMILLION,
        "marker": "s",
        "markerfacecolor": "white",
        "label": "does not agree",
    },
}


def draw(repeat: Repeat, name: str = "repeatability") -> Figure:
    """Difference of each configuration with its interval and the tolerance, a panel per regime."""
    rows = _shown(repeat.rows)
    places, ticks = _places(rows)
    rows = rows.assign(place=rows["name"].map(places))
    figure = new_figure(PAGE_INCHES, 1.3 + 0.165 * len(ticks))
    panels = figure.subplots(1, len(repeat.agreements), squeeze=False, sharey=True)[0]
    for axes, agreement in zip(panels, repeat.agreements, strict=True):
        _panel(axes, rows[rows["regime"] == agreement.regime], agreement)
    panels[0].set_yticks(range(len(ticks)), ticks)
    for text in panels[0].get_yticklabels():
        text.set_fontweight("bold" if text.get_text() in set(rows["problem"]) else "normal")
    panels[0].set_ylim(len(ticks) - 0.3, -0.7)
    _legend(figure, panels)
    left_out = repeat.rows["name"].nunique() - len(places)
    caption = (
        f"Repeatability. {about(repeat)}. {counted(repeat)}. Markers: relative difference of the "
        "median ratio to cuBLAS, second run against first; bars: its 95 % interval, from those of "
        f"both ratios; band: the tolerance, {tolerances()}; ticks: what the delivered clocks alone "
        "would give, the kernel's against cuBLAS's in the same rounds; the rest are cycles. "
        f"{LABELS} {also_changed(repeat)}"
    )
    if left_out:
        caption += f" {left_out} configurations that differ less, in any regime, are not drawn."
    return Figure(name, figure, caption.strip())


def _shown(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of the configurations that differ most in a regime, in their order."""
    regimes = rows.assign(size=rows["difference"].abs()).groupby("regime")
    each = SHOWN_CONFIGURATIONS // regimes.ngroups
    names = {name for _, group in regimes for name in group.nlargest(each, "size")["name"]}
    return rows[rows["name"].isin(names)]


def _places(rows: pd.DataFrame) -> tuple[dict[str, int], list[str]]:
    """The height of each configuration, and the label of each height; problems are headings."""
    places: dict[str, int] = {}
    ticks: list[str] = []
    for problem, group in rows.groupby("problem", sort=False):
        ticks.append(str(problem))
        for name, label in group.drop_duplicates("name")[["name", "label"]].to_numpy().tolist():
            places[name] = len(ticks)
            ticks.append(label)
    return places, ticks


def _panel(axes: Any, rows: pd.DataFrame, agreement: Agreement) -> None:
    tolerance = 100 * agreement.tolerance
    axes.axvspan(-tolerance, tolerance, color=BAND, linewidth=0, label="tolerance")
    axes.axvline(0, color=BLACK, linewidth=0.6)
    for agrees, look in _LOOKS.items():
        points = rows[rows["agrees"] == agrees]
        bars = [
            100 * (points["difference"] - points["difference_low"]).clip(lower=0).fillna(0),
            100 * (points["difference_high"] - points["difference"]).clip(lower=0).fillna(0),
        ]
        axes.errorbar(
            100 * points["difference"], points["place"], xerr=bars, linestyle="none",
            linewidth=1, **look,
        )  # fmt: skip
    axes.plot(
        100 * rows["clock_part"], rows["place"], color=BLACK, marker="|", markersize=6,
        markeredgewidth=1, linestyle="none", label="delivered clock alone",
    )  # fmt: skip
    ends = rows[["difference_low", "difference_high", "difference", "clock_part"]].abs().max()
    limit = max(1.08 * 100 * float(ends.max()), 1.5 * tolerance)
    axes.set_xlim(-limit, limit)
    axes.set_xlabel("difference of the ratio [%]")
    axes.set_title(
        f"{agreement.regime} regime:\n{agreement.agree} of {agreement.rows} agree within "
        f"{tolerance:g} %"
    )


def _legend(figure: Any, panels: Any) -> None:
    found = [panel.get_legend_handles_labels() for panel in panels]
    handles = {label: handle for group in found for handle, label in zip(*group, strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4)
