"""Make every table and figure that recorded data can fill. Needs no GPU and no compiler.

Example: python scripts/figures.py --data paper/data/h200 --out figures
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

try:
    import typer

    from cutlass_study import console
    from cutlass_study.config import parse_shape
    from cutlass_study.project import default_data
    from cutlass_study.render import RenderReport, render_all
    from cutlass_study.study_data import load
except ImportError as error:
    print(f"{error}; install the project: pip install -e . in its folder", file=sys.stderr)
    raise SystemExit(3) from None
except KeyboardInterrupt:
    print("interrupted", file=sys.stderr)
    raise SystemExit(130) from None


def report(result: RenderReport) -> None:
    """Files to stdout, one a line; what is missing to stderr."""
    for path in (*result.tables, *result.figures, *result.captions):
        print(path)
    for name, why in result.left_out:
        print(f"left out: {name}: {why}", file=sys.stderr)


def main(
    data: Annotated[
        Path | None,
        typer.Option(help="Data folder; paper/data/h200 of this project by default."),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder for the tables and figures; made if missing.")
    ] = Path("figures"),
    problem: Annotated[
        str | None,
        typer.Option(help="MxNxK to show; by default the largest square with most rows."),
    ] = None,
) -> None:
    """Make every table (CSV, Markdown, LaTeX, Typst) and figure (PNG, PDF) of recorded data.

    What the data can't show is left out, with a message.

    Example: python scripts/figures.py --data paper/data/h200 --out figures
    """
    if problem is not None:
        problem = "x".join(str(part) for part in parse_shape(problem, "problem"))
    report(render_all(load(data or default_data()), out, problem))


if __name__ == "__main__":
    console.run(main)
