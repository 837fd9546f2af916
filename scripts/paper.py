"""Rebuild the paper from recorded data: every table and figure, then the PDF. Needs no GPU.

Example: python scripts/paper.py --data results/geforce-rtx-4060 --out my-study.pdf
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

try:
    import typer

    from cutlass_study import console
    from cutlass_study.config import UsageError
    from cutlass_study.paper import build
    from cutlass_study.project import default_data, project_folder
    from cutlass_study.views import NothingToShow
except ImportError as error:
    print(f"{error}; install the project: pip install -e . in its folder", file=sys.stderr)
    raise SystemExit(3) from None
except KeyboardInterrupt:
    print("interrupted", file=sys.stderr)
    raise SystemExit(130) from None


def main(
    data: Annotated[
        Path | None, typer.Option(help="Data folder (default: paper/data/h200 of this project).")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="PDF to write (default: paper/cutlass-study.pdf).")
    ] = None,
) -> None:
    """Rebuild the paper as a PDF from recorded data.

    Example: python scripts/paper.py --data results/geforce-rtx-4060 --out my-study.pdf
    """
    project = project_folder()
    if project is None:
        raise UsageError("no paper/ folder here or above; run in a clone of the project")
    try:
        report = build(data or default_data(), project, out or project / "paper/cutlass-study.pdf")
    except NothingToShow as nothing:
        raise UsageError(str(nothing)) from None
    for name, why in report.left_out:
        print(f"left out: {name}: {why}", file=sys.stderr)
    print(report.pdf)


if __name__ == "__main__":
    console.run(main)
