"""Say what is installed, what would be used, and what to do about what is missing.

Example: python scripts/doctor.py --format json
"""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from typing import Annotated

try:
    import typer
    from rich.console import Console
    from rich.table import Table

    from cutlass_study import console
    from cutlass_study.check import Check
    from cutlass_study.diagnosis import Diagnosis, diagnose
except ImportError as error:
    print(f"{error}; install the project: pip install -e . in its folder", file=sys.stderr)
    raise SystemExit(3) from None
except KeyboardInterrupt:
    print("interrupted", file=sys.stderr)
    raise SystemExit(130) from None


class Format(StrEnum):
    text = "text"
    json = "json"


MARKS = {"ok": "[green]ok[/]", "warn": "[yellow]warn[/]", "missing": "[red]missing[/]"}


def checks_table(title: str, checks: tuple[Check, ...]) -> Table:
    table = Table(title=title, title_justify="left", expand=True)
    table.add_column("check", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("found", ratio=1, overflow="fold")
    table.add_column("what to do", ratio=1, overflow="fold")
    for check in checks:
        table.add_row(check.name, MARKS[check.status], _plain(check.found), _plain(check.advice))
    return table


def _plain(text: str) -> str:
    """Keep brackets, such as those of pip's extras, from being read as markup."""
    return text.replace("[", r"\[")


def matrix_table(diagnosis: Diagnosis) -> Table:
    title = "CUTLASS's own Python interface (cutlass_cppgen 4.2.0): why it is not used"
    table = Table(title=title, title_justify="left", expand=True)
    for heading in ("nvcc", "cuda-python", "works", "outcome"):
        table.add_column(heading)
    for row in diagnosis.matrix:
        mark = " (here)" if row.present else ""
        works = "yes" if row.works else "no"
        table.add_row(row.nvcc, row.cuda_python, works + mark, _plain(row.outcome))
    return table


def print_text(diagnosis: Diagnosis) -> None:
    out = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    out.print(checks_table("Static half: feasibility, compiling, occupancy", diagnosis.static))
    out.print(checks_table("Measuring", diagnosis.measure))
    out.print(checks_table("Figures and paper", diagnosis.paper))
    out.print(checks_table("Optional", diagnosis.optional))
    out.print(matrix_table(diagnosis))
    for note in diagnosis.notes:
        out.print(f"- {_plain(note)}")
    out.print(diagnosis.verdict, style="bold")


def main(
    output: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.text,
) -> None:
    """Say what is installed, what would be used, and what to do about what is missing.

    Exits 0 if the static half can run here, 3 if not even that.

    Example: python scripts/doctor.py --format json
    """
    diagnosis = diagnose()
    if output is Format.json:
        print(json.dumps(diagnosis.to_json(), indent=2))
    else:
        print_text(diagnosis)
    raise typer.Exit(0 if diagnosis.can_run_static else console.EXIT_ENVIRONMENT)


if __name__ == "__main__":
    console.run(main)
