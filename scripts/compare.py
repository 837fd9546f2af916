"""Compare two runs on the same model of GPU: how far their ratios to cuBLAS agree. Needs no GPU.

Example: python scripts/compare.py --data results/h200 --with results/h200/repeats/2026-11-29
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

try:
    import typer
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from cutlass_study import console, repeatability_text, table_formats
    from cutlass_study.project import default_data
    from cutlass_study.render import FigureJob, RenderReport, TableJob, render_jobs
    from cutlass_study.repeatability import Repeat, compare_runs
    from cutlass_study.repeatability_tables import comparison, summary
    from cutlass_study.study_data import load
except ImportError as error:
    print(f"{error}; install the project: pip install -e . in its folder", file=sys.stderr)
    raise SystemExit(3) from None
except KeyboardInterrupt:
    print("interrupted", file=sys.stderr)
    raise SystemExit(130) from None

if TYPE_CHECKING:
    import pandas as pd

WIDTH = 100
TABLE_WIDTH = 150  # at least, so that no number is cut
HEADINGS = {
    "label": "configuration",
    "ratio_to_cublas_first": "ratio first",
    "ratio_to_cublas_second": "ratio second",
    "difference": "change",
    "agrees": "agrees",
    "sm_clock_mhz_first": "MHz first",
    "sm_clock_mhz_second": "MHz second",
    "clock_difference": "change",
    "flop_per_clk_sm_first": "FLOP / clk / SM first",
    "flop_per_clk_sm_second": "FLOP / clk / SM second",
    "rate_difference": "change",
}


def print_summary(repeat: Repeat) -> None:
    """What was compared, then each regime's sentences."""
    parts = (repeatability_text.about(repeat), repeatability_text.counted(repeat))
    print(textwrap.fill(". ".join(parts) + ".", WIDTH))
    if repeat.same_run:
        print("Both folders hold the same run: agreement says nothing about repeatability.")
    if repeat.changed:
        print(textwrap.fill(repeatability_text.also_changed(repeat), WIDTH))
    for sentence in repeatability_text.noted(repeat):
        print(textwrap.fill(sentence, WIDTH))
    for agreement in repeat.agreements:
        first, *more = repeatability_text.sentences(agreement)
        print(f"\n{agreement.regime} regime: {first}")
        for sentence in more:
            print(textwrap.fill(sentence, WIDTH, initial_indent="  ", subsequent_indent="  "))
    print()


def print_rows(frame: pd.DataFrame) -> None:
    """Every paired row, a table for each problem and regime. Clocks are the delivered ones."""
    width = max(Console().width, TABLE_WIDTH) if sys.stdout.isatty() else TABLE_WIDTH
    out = Console(width=width, highlight=False, markup=False)
    for (problem, regime), group in frame.groupby(["problem", "regime"], sort=False):
        shown = table_formats.readable(group[list(HEADINGS)])
        table = Table(box=box.SIMPLE_HEAD, collapse_padding=True)
        for place, heading in enumerate(HEADINGS.values()):
            table.add_column(
                heading, justify="right" if place else "left", no_wrap=place == 0, vertical="bottom"
            )
        for row in shown.to_numpy().tolist():
            table.add_row(*row)
        print(f"{problem}, {regime} regime")
        out.print(table)


def figure_jobs(repeat: Repeat) -> Iterator[FigureJob]:
    """The figure; matplotlib is imported when the tables are safe on disk."""
    from cutlass_study import repeatability_figure

    yield FigureJob("repeatability", partial(repeatability_figure.draw, repeat))


def write(repeat: Repeat, out: Path) -> RenderReport:
    """Both tables and the figure, with captions, into `out`."""
    tables = (
        TableJob("repeatability", partial(comparison, repeat)),
        TableJob("repeatability_summary", partial(summary, [repeat])),
    )
    return render_jobs(tables, partial(figure_jobs, repeat), out)


def main(
    with_: Annotated[
        Path, typer.Option("--with", help="the data folder of the second run", show_default=False)
    ],
    data: Annotated[
        Path | None,
        typer.Option(
            help="Data folder of the first run; paper/data/h200 of this project by default."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for tables and figure; made if missing. (default: none)"),
    ] = None,
) -> None:
    """Say how many ratios to cuBLAS agree between two runs, and what their clocks say.

    Medians must agree within 0.3 % in the burst regime and 1 % in the sustained one.
    Only runs on one model of GPU can be compared. With --out: tables (CSV, Markdown, LaTeX, Typst)
    and a figure (PNG, PDF).

    Example: python scripts/compare.py --data results/h200 --with results/h200/repeats/2026-11-29
    """
    repeat = compare_runs(load(data or default_data()), load(with_))
    print_summary(repeat)
    print_rows(comparison(repeat).frame)
    if out is None:
        return
    report = write(repeat, out)
    for path in (*report.tables, *report.figures, *report.captions):
        print(path)
    for name, why in report.left_out:
        print(f"left out: {name}: {why}", file=sys.stderr)


if __name__ == "__main__":
    console.run(main)
