"""An identity as named columns and back: what the database and the published CSV files share.

Absent values are `None` here and in the database, and empty in a CSV file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cutlass_study.config import GemmConfig, GemmProblem, Shape, format_shape, parse_shape
from cutlass_study.records import IDENTITY_COLUMNS, Identity

Value = str | int | float | None

_INTEGER = (
    "m n k lda epilogue_width alignment swizzle split_k seed registers smem_bytes spill_bytes "
    "threads ctas_per_sm driver_ctas_per_sm samples round launches"
)
_FLOAT = (
    "alpha beta occupancy time_ms time_iqr_ms tflops host_time_ms host_ms ratio_to_cublas "
    "ratio_low ratio_high sm_clock_mhz nvml_clock_mhz power_w temperature_c peak_share "
    "max_abs_error max_rel_error energy_j flop_per_clk_sm"
)
INTEGER_COLUMNS = frozenset(_INTEGER.split())
FLOAT_COLUMNS = frozenset(_FLOAT.split())


def identity_values(identity: Identity) -> dict[str, Value]:
    """The identity under records.IDENTITY_COLUMNS; shapes as MxNxK, stages as `3` or `auto`."""
    config, problem = identity.config, identity.problem
    values: dict[str, Value] = {
        "name": identity.name,
        "arch": identity.arch,
        "m": problem.m,
        "n": problem.n,
        "k": problem.k,
        "layout": problem.layout,
        "output": problem.output,
        "alpha": float(problem.alpha),
        "beta": float(problem.beta),
        "lda": problem.lda,
        "stages": config.stages_text or None,
        "distribution": identity.distribution,
        "seed": identity.seed,
        "condition": identity.condition or None,
    }
    for column in IDENTITY_COLUMNS:
        if column not in values:
            value = getattr(config, column)
            values[column] = format_shape(value) if isinstance(value, tuple) else value
    return {column: values[column] for column in IDENTITY_COLUMNS}


def identity_key(identity: Identity) -> str:
    """Every field of the identity, exactly, as one text."""
    return json.dumps(list(identity_values(identity).values()))


def identity_from_values(row: Mapping[str, Any]) -> Identity:
    """Rebuild the identity that `identity_values` wrote; texts of a CSV file do as well."""

    def text(column: str) -> Any:  # the dataclasses check that a word is one of theirs
        value = row[column]
        return None if value is None or value == "" else str(value)

    def integer(column: str) -> int | None:
        return None if text(column) is None else int(row[column])

    def shape(column: str) -> Shape | None:
        return None if text(column) is None else parse_shape(text(column), column)

    config = GemmConfig(
        family=text("family"),
        threadblock_shape=shape("threadblock_shape"),
        warp_shape=shape("warp_shape"),
        cluster_shape=shape("cluster_shape"),
        stages=None if text("stages") in (None, "auto") else int(row["stages"]),
        epilogue_width=integer("epilogue_width"),
        alignment=integer("alignment"),
        swizzle=integer("swizzle"),
        split_k=integer("split_k"),
        schedule=text("schedule"),
        epilogue=text("epilogue"),
        source_c=text("source_c"),
        raster=text("raster"),
        variant=text("variant"),
    )
    problem = GemmProblem(
        m=int(row["m"]),
        n=int(row["n"]),
        k=int(row["k"]),
        layout=text("layout"),
        output=text("output"),
        alpha=float(row["alpha"]),
        beta=float(row["beta"]),
        lda=integer("lda"),
    )
    return Identity(
        config,
        problem,
        text("arch"),
        text("distribution"),
        int(row["seed"]),
        text("condition") or "",
    )
