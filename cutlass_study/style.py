"""One look for every figure, and how a figure becomes files.

Only matplotlib's Agg and PDF canvases are used, never pyplot: no display, window system or
MPLBACKEND can then matter. Colours are Okabe and Ito's eight, which the colour-blind can tell
apart; each comes with a marker and a line style so that a grey print reads as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Patch

COLUMN_INCHES = 3.5
PAGE_INCHES = 7.0
PNG_DPI = 200
SMALL = 8  # points; nothing in a figure is set smaller

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILLION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
LINES = (
    (BLUE, "o", "-"),
    (VERMILLION, "s", "--"),
    (GREEN, "^", "-."),
    (ORANGE, "D", ":"),
    (PURPLE, "v", "-"),
    (SKY, "P", "--"),
    (BLACK, "X", "-."),
    ("#7F7F7F", "*", ":"),
)
FAMILY_LINES = {
    "sm80": (BLUE, "o", "-"),
    "sm90": (VERMILLION, "s", "--"),
    "wmma": (GREEN, "^", "-."),
    "cublas": (BLACK, "D", "-"),
    "cublas_lt": ("#7F7F7F", "X", ":"),
}
# Fill and hatch of map cells without a number; none of the fills occurs in the cividis scale.
STATE_CELLS = {
    "infeasible": ("#D9D9D9", "////"),
    "failed": ("#F4A582", "xxxx"),
    "duplicate": ("#E3CDE8", "...."),
    "not measured": ("#FFFFFF", "\\\\"),
}
STYLE: dict[str, Any] = {
    "font.size": SMALL,
    "axes.titlesize": SMALL + 1,
    "axes.labelsize": SMALL,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "legend.fontsize": SMALL,
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


def new_figure(width: float, height: float) -> Canvas:
    """An empty figure in inches with its own Agg canvas."""
    figure = Canvas(figsize=(width, height), dpi=PNG_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, folder: Path) -> tuple[Path, Path]:
    """Write `<name>.png` and `<name>.pdf`; the same data gives the same bytes."""
    png, pdf = folder / f"{figure.name}.png", folder / f"{figure.name}.pdf"
    with styled():
        figure.figure.savefig(png, dpi=PNG_DPI, metadata={"Software": None})
        figure.figure.set_layout_engine("none")  # keep the places found for the PNG; saves half
        figure.figure.savefig(pdf, metadata={"CreationDate": None, "Producer": None})
    return png, pdf


def state_handles(states: set[str]) -> list[Patch]:
    """Legend entries for the cells without a number that a map holds."""
    return [
        Patch(facecolor=fill, hatch=hatch, edgecolor="#555555", linewidth=0.5, label=state)
        for state, (fill, hatch) in STATE_CELLS.items()
        if state in states
    ]
