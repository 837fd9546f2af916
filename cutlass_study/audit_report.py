"""The claims audit as the paper prints it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cutlass_study.claims import audit, counts, load_claims
from cutlass_study.study_data import StudyData


def section(data: StudyData, static: StudyData | None, project: Path) -> dict[str, Any] | None:
    """Every verdict with its evidence, and how many there are; `None` without a claims file."""
    path = project / "paper" / "claims.toml"
    if not path.is_file():
        return None
    verdicts = audit(data, static, load_claims(path))
    number = counts(verdicts)
    return {
        "total": str(len(verdicts)),
        **{
            name: str(number.get(name, 0))
            for name in ("reproduced", "contradicted", "not_testable")
        },
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
