"""The audit as text for people and as JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from dataclasses import asdict

from cutlass_study.claims import DOCUMENTS, Verdict, counts
from cutlass_study.study_data import StudyData

WIDTH = 100
_WORDS = {
    "reproduced": "REPRODUCED",
    "contradicted": "CONTRADICTED",
    "not_testable": "NOT TESTABLE HERE",
}


def to_json(verdicts: Sequence[Verdict]) -> str:
    """A list of objects, one a claim."""
    return (
        json.dumps([asdict(verdict) for verdict in verdicts], indent=2, ensure_ascii=False) + "\n"
    )


def _counted(verdicts: Sequence[Verdict]) -> str:
    found = counts(verdicts)
    return (
        f"{len(verdicts)} claims: {found['reproduced']} reproduced, {found['contradicted']} "
        f"contradicted, {found['not_testable']} not testable here"
    )


def _wrapped(text: str, indent: str) -> str:
    return textwrap.fill(
        text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )


def _entry(verdict: Verdict) -> str:
    devices = f"; speaks of {', '.join(verdict.devices)}" if verdict.devices else ""
    head = f"{verdict.id}: {_WORDS[verdict.verdict]}"
    return "\n".join(
        (
            head,
            _wrapped(f"Claim: {verdict.statement}", "  "),
            _wrapped(f"Evidence: {verdict.evidence or 'none'}", "  "),
            _wrapped(f"({verdict.section}; {verdict.kind}{devices})", "  "),
        )
    )


def _preface(data: StudyData) -> str:
    device = data.device
    source = "no measurement: compiling and arithmetic alone"
    if device is not None:
        unfinished = "" if data.complete else ", an unfinished sweep"
        source = f"measured on {device.name} ({device.arch}){unfinished}"
    return _wrapped(
        f"Data: {data.directory} ({source}). Every verdict is computed: from recorded measurements,"
        " from what compiling told (static) or by arithmetic. A measured claim about one GPU is "
        "judged by data of that GPU only; the evidence then says what the same test gives on the "
        "GPU at hand. Ratios are paired within measuring rounds or, where marked, taken through "
        "each kernel's ratio to cuBLAS, or unpaired; [a, b] is an interval of the "
        "median corrected for all measured claims together. Printed numbers stand for everything "
        "that rounds to them. burst: idle gaps between launches, steady clock; sustained: back to "
        "back under the power limit. A claim must hold in both where both were measured, one that "
        "something can happen in either; a regime that can't tell counts neither way. S is the "
        "number of pipeline stages, CTA a thread block.",
        "",
    )


def to_text(verdicts: Sequence[Verdict], data: StudyData) -> str:
    """Every claim grouped by document, with counts, for a reader who has nothing else."""
    parts = ["Audit of the documents' claims", "=" * 30, _counted(verdicts), "", _preface(data), ""]
    for document, title in DOCUMENTS.items():
        group = [verdict for verdict in verdicts if verdict.document == document]
        if not group:
            continue
        parts += [title, "-" * len(title), _counted(group), ""]
        parts += [f"{_entry(verdict)}\n" for verdict in group]
    return "\n".join(parts)
