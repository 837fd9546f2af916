"""The claims audit as the paper prints it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cutlass_study.claims import Experiments, Outcome, Verdict, audit, counts, load_claims
from cutlass_study.study_data import StudyData

_DECIDED: tuple[Outcome, ...] = ("reproduced", "contradicted")


def section(
    data: StudyData, experiments: Experiments, static: StudyData | None, project: Path
) -> dict[str, Any] | None:
    """Every verdict with its evidence, and how many there are; `None` without a claims file.

    Claims that measuring decided are counted apart from those that arithmetic or compiling did.
    """
    path = project / "paper" / "claims.toml"
    if not path.is_file():
        return None
    verdicts = audit(data, static, load_claims(path), experiments)
    measured = [verdict for verdict in verdicts if verdict.kind == "measured"]
    computed = [verdict for verdict in verdicts if verdict.kind != "measured"]
    return {
        "total": str(len(verdicts)),
        **_numbers(verdicts, ("reproduced", "contradicted", "not_testable")),
        **_numbers(measured, _DECIDED, "measured_"),
        **_numbers(computed, _DECIDED, "computed_"),
        "rows": [
            {
                "id": verdict.id,
                "statement": verdict.statement,
                "verdict": verdict.verdict.replace("_", " "),
                "evidence": verdict.evidence if verdict.evidence else verdict.reason,
            }
            for verdict in verdicts
        ],
    }


def _numbers(
    verdicts: Sequence[Verdict], outcomes: Sequence[Outcome], prefix: str = ""
) -> dict[str, str]:
    number = counts(verdicts)
    return {f"{prefix}{outcome}": str(number[outcome]) for outcome in outcomes}
