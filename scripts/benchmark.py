"""Measure the toolkit's own speed beside its goals. Runs nothing on a GPU.

Example: python scripts/benchmark.py --only list,static
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

try:
    import typer
    from rich.console import Console
    from rich.table import Table

    from cutlass_study import console
    from cutlass_study.benchmark import PARTS, Finding, run_parts
    from cutlass_study.config import UsageError
    from cutlass_study.gpus import limits_of
    from cutlass_study.reporter import TerminalReporter
except ImportError as error:
    print(f"{error}; install the project: pip install -e . in its folder", file=sys.stderr)
    raise SystemExit(3) from None
except KeyboardInterrupt:
    print("interrupted", file=sys.stderr)
    raise SystemExit(130) from None

FORMATS = ("text", "json")
WORDS = {True: "met", False: "not met", None: ""}


def chosen(words: list[str] | None) -> tuple[str, ...]:
    """The parts asked for, all of them by default; raises `UsageError` for an unknown one."""
    given = tuple(part for word in words or PARTS for part in word.split(","))
    for part in given:
        if part not in PARTS:
            raise UsageError(f"part '{part}' is not known; use one of: {', '.join(PARTS)}")
    return given


def goal_text(finding: Finding) -> str:
    if finding.goal is None:
        return ""
    return f"{'at least' if finding.at_least else 'at most'} {finding.goal:g}"


def as_table(findings: list[Finding]) -> Table:
    table = Table(title="The toolkit's own speed", title_justify="left")
    table.add_column("what", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("goal", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("how")
    for finding in findings:
        value = f"{finding.value:.3g} {finding.unit}"
        table.add_row(finding.name, value, goal_text(finding), WORDS[finding.met], finding.note)
    return table


def as_json(findings: list[Finding]) -> str:
    rows = [
        {
            "name": finding.name,
            "value": finding.value,
            "unit": finding.unit,
            "goal": finding.goal,
            "at_least": finding.at_least,
            "met": finding.met,
            "note": finding.note,
        }
        for finding in findings
    ]
    return json.dumps(rows, indent=1)


def main(
    only: Annotated[
        list[str] | None,
        typer.Option(help=f"Parts: {', '.join(PARTS)}; repeat or separate by commas."),
    ] = None,
    arch: Annotated[
        str, typer.Option(help="Arch of the kernels that both compilers build.")
    ] = "sm_89",
    format_: Annotated[str, typer.Option("--format", help="text or json.")] = "text",
) -> None:
    """Measure the toolkit's own speed beside its goals.

    compilers: NVRTC against nvcc on the paper preset's sm80 kernels, one core, turn by turn.
    list: seconds of --list for every preset. static: the paper preset's static half for sm_89 and
    sm_90a on all cores, from an empty kernel cache and again from the full one.

    Example: python scripts/benchmark.py --only list,static
    """
    if format_ not in FORMATS:
        raise UsageError(f"format '{format_}' is not known; use one of: {', '.join(FORMATS)}")
    limits_of(arch)
    parts = chosen(only)
    with TerminalReporter() as reporter:
        findings = run_parts(parts, arch, Path(__file__).with_name("sweep.py"), reporter)
    if format_ == "json":
        print(as_json(findings))
    else:
        Console(width=None if sys.stdout.isatty() else 120, highlight=False).print(
            as_table(findings)
        )


if __name__ == "__main__":
    console.run(main)
