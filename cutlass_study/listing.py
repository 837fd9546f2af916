"""Rows of the configuration space as text: what `--list` and `--static` print."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from cutlass_study.columns import Value, identity_values
from cutlass_study.csv_files import csv_bytes
from cutlass_study.families import smem_bytes
from cutlass_study.prepare import Prepared
from cutlass_study.records import IDENTITY_COLUMNS

_FIRST = (
    "name", "family", "arch", "m", "n", "k", "layout", "output", "threadblock_shape", "warp_shape",
    "cluster_shape", "stages", "epilogue_width", "alignment", "smem_bytes", "feasible", "reason",
)  # fmt: skip
_INPUTS = ("distribution", "seed")  # of a measurement, not of a configuration
LIST_COLUMNS = (*_FIRST, *(c for c in IDENTITY_COLUMNS if c not in (*_FIRST, *_INPUTS)))
COMPILED_COLUMNS = (
    "outcome", "registers", "spill_bytes", "threads", "warnings", "ctas_per_sm", "occupancy",
    "limiter",
)  # fmt: skip


def _row(item: Prepared) -> dict[str, Value]:
    row = item.row
    values: dict[str, Value] = dict(identity_values(row.identity))
    resources, resident = row.resources, row.occupancy
    values |= {
        "smem_bytes": smem_bytes(item.entry.config, item.entry.problem),
        "feasible": row.outcome not in ("infeasible", "compile_failed"),
        "reason": row.reason,
        "outcome": row.outcome,
        "registers": resources.registers if resources else None,
        "spill_bytes": resources.spill_bytes if resources else None,
        "threads": resources.threads if resources else None,
        "warnings": resources.warnings if resources else None,
        "ctas_per_sm": resident.ctas_per_sm if resident else None,
        "occupancy": resident.occupancy if resident else None,
        "limiter": resident.limiter if resident else None,
    }
    return values


def render(items: Iterable[Prepared], form: str, *, compiled: bool) -> str:
    """Rows as `csv` (header, booleans true/false) or `json` (a list of objects)."""
    columns: Sequence[str] = (*LIST_COLUMNS, *COMPILED_COLUMNS) if compiled else LIST_COLUMNS
    rows = [_row(item) for item in items]
    if form == "json":
        return json.dumps([{c: row[c] for c in columns} for row in rows], indent=1) + "\n"
    return csv_bytes(columns, ([row[c] for c in columns] for row in rows)).decode()
