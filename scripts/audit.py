"""Judge every claim of the source documents from recorded data. Needs no GPU and no compiler.

Example: python scripts/audit.py --data paper/data/h200 --format text
"""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

try:
    import typer

    from cutlass_study import console
    from cutlass_study.claim_formats import to_json, to_text
    from cutlass_study.claims import audit, default_claims, experiments_of, load_claims, load_static
    from cutlass_study.project import default_data
    from cutlass_study.study_data import load
except ImportError as error:
    print(f"{error}; install the project: pip install -e . in its folder", file=sys.stderr)
    raise SystemExit(3) from None
except KeyboardInterrupt:
    print("interrupted", file=sys.stderr)
    raise SystemExit(130) from None


class Format(StrEnum):
    """How the audit is printed."""

    text = "text"
    json = "json"


def main(
    data: Annotated[
        Path | None,
        typer.Option(help="Data folder; paper/data/h200 of this project by default."),
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.text,
    claims: Annotated[
        Path | None, typer.Option(help="Claim file; paper/claims.toml of this project by default.")
    ] = None,
    static: Annotated[
        Path | None,
        typer.Option(help="Static records; paper/data/static by default."),
    ] = None,
) -> None:
    """Judge every claim: reproduced, contradicted or not testable with this data, and why.

    Claims about a GPU that need only arithmetic or compiling are judged without one. Data measured
    on that GPU judges all the others.

    Example: python scripts/audit.py --data paper/data/h200 --format json
    """
    records = load(data or default_data())
    wanted = load_claims(claims or default_claims())
    experiments = experiments_of(records)
    for name, why in experiments.left_out:
        print(f"left out: {name}: {why}", file=sys.stderr)
    verdicts = audit(records, load_static(records, static), wanted, experiments)
    text = to_json(verdicts) if form is Format.json else to_text(verdicts, records)
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    sys.stdout.write(text)


if __name__ == "__main__":
    console.run(main)
