"""One look for every figure, and how a figure becomes files.

Only matplotlib's Agg and PDF canvases are used and every call names its axes, so no display and
no window system matters. seaborn imports pyplot, which therefore gets the Agg backend beforehand.
Colours are seaborn's `colorblind` palette; each comes with a marker and dashes so that a grey print
reads as well.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # whatever MPLBACKEND says, and before seaborn imports pyplot

import seaborn
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Patch

from cutlass_study.csv_files import replace_files

COLUMN_INCHES = 3.5
PAGE_INCHES = 7.0
PNG_DPI = 200
SMALL = 8  # points; nothing in a figure is set smaller

BLUE, ORANGE, GREEN, VERMILLION, PURPLE, *_, SKY = seaborn.color_palette("colorblind").as_hex()
BLACK, GREY = "#000000", "#7F7F7F"
# Dashes as seaborn takes them: lengths of strokes and gaps in line widths, or nothing for solid.
SOLID, DASHED, DOTTED, DASH_DOT = "", (4, 1.5), (1, 1.2), (5, 1.5, 1, 1.5)
Look = tuple[str, str, Any]  # colour, marker, dashes
LINES: tuple[Look, ...] = (
    (BLUE, "o", SOLID),
    (VERMILLION, "s", DASHED),
    (GREEN, "^", DASH_DOT),
    (ORANGE, "D", DOTTED),
    (PURPLE, "v", SOLID),
    (SKY, "P", DASHED),
    (BLACK, "X", DASH_DOT),
    (GREY, "*", DOTTED),
)
FAMILY_LINES: dict[str, Look] = {
    "sm80": (BLUE, "o", SOLID),
    "sm90": (VERMILLION, "s", DASHED),
    "wmma": (GREEN, "^", DASH_DOT),
    "simt": (ORANGE, "v", DOTTED),
    "wgmma": (PURPLE, "P", DASHED),
    "cublas": (BLACK, "D", SOLID),
    "cublas_lt": (GREY, "X", DOTTED),
}
# Fill and hatch of map cells without a number; none of the fills occurs in the cividis scale.
STATE_CELLS = {
    "infeasible": ("#D9D9D9", "////"),
    "failed": ("#F4A582", "xxxx"),
    "duplicate": ("#E3CDE8", "...."),
    "not measured": ("#FFFFFF", "\\\\"),
}
# seaborn's theme for papers; what a printed column of text asks for overrides it.
STYLE: dict[str, Any] = {
    **seaborn.axes_style("ticks"),
    **seaborn.plotting_context("paper"),
    "font.size": SMALL,
    "axes.titlesize": SMALL + 1,
    "axes.labelsize": SMALL,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "legend.fontsize": SMALL,
    "legend.title_fontsize": SMALL,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "xtick.major.size": 3,
    "xtick.major.width": 0.6,
    "ytick.major.size": 3,
    "ytick.major.width": 0.6,
    "errorbar.capsize": 2,
    "hatch.linewidth": 0.5,
    "hatch.color": "#555555",
    "pdf.fonttype": 42,
    "font.family": "DejaVu Sans",  # comes with matplotlib, so every machine draws alike
    "svg.hashsalt": "cutlass-study",
}


@dataclass(frozen=True)
class Figure:
    """A drawn figure with the name of its files and the caption that belongs under it."""

    name: str
    figure: Canvas
    caption: str


def styled() -> Any:
    """Context in which figures are made and saved: matplotlib's defaults plus `STYLE`."""
    settings: Any = _defaults() | STYLE  # its keys are a Literal of 300 names
    return matplotlib.rc_context(settings)


def _defaults() -> dict[str, Any]:
    """Matplotlib's own defaults, so that a user's matplotlibrc changes no figure."""
    return {
        str(key): value
        for key, value in matplotlib.rcParamsDefault.items()
        if not key.startswith(("backend", "toolbar", "interactive", "date.epoch"))
    }


def looks(levels: Mapping[str, Look], *, lines: bool = True) -> dict[str, Any]:
    """seaborn's arguments that give each level of `hue` and `style` its colour, marker and dashes.

    The legend follows the order of `levels`. Without `lines`: for points alone.
    """
    order = list(levels)
    chosen: dict[str, Any] = {
        "palette": {level: look[0] for level, look in levels.items()},
        "markers": {level: look[1] for level, look in levels.items()},
        "hue_order": order,
        "style_order": order,
    }
    if not lines:
        return chosen | {"linewidth": 0}  # no white rim, which would eat up small markers
    dashes = {level: look[2] for level, look in levels.items()}
    return chosen | {"dashes": dashes, "markeredgewidth": 0, "markersize": 5}


def new_figure(width: float, height: float) -> Canvas:
    """An empty figure in inches with its own Agg canvas."""
    figure = Canvas(figsize=(width, height), dpi=PNG_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, folder: Path, forms: Sequence[str] = ("png", "pdf")) -> list[Path]:
    """Write `<name>.png` and `<name>.pdf`, none by half; the same data gives the same bytes."""
    files = {}
    with styled():
        for form in forms:
            files[f"{figure.name}.{form}"] = figure_bytes(figure, form)
            figure.figure.set_layout_engine("none")  # keep the places found; saves half
    replace_files(folder, files)
    return [folder / name for name in files]


def figure_bytes(figure: Figure, form: str) -> bytes:
    """The figure as a `png` or `pdf` file without a date; call inside `styled()`."""
    metadata: dict[str, Any] = {"Software": None}
    if form == "pdf":
        metadata = {"CreationDate": None, "Producer": None}
    buffer = io.BytesIO()
    figure.figure.savefig(buffer, format=form, dpi=PNG_DPI, metadata=metadata)
    return buffer.getvalue()


def state_handles(states: set[str]) -> list[Patch]:
    """Legend entries for the cells without a number that a map holds."""
    return [
        Patch(facecolor=fill, hatch=hatch, edgecolor="#555555", linewidth=0.5, label=state)
        for state, (fill, hatch) in STATE_CELLS.items()
        if state in states
    ]
