"""What an experiment's table and figure show, as one frame each: pure functions of loaded data.

Comparisons are paired within rounds, between rows that were measured in the same rounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from cutlass_study.columns import identity_from_values
from cutlass_study.comparisons import paired_ratio
from cutlass_study.conditions import (
    ALONE,
    DISTRIBUTION_ORDER,
    FLUSH,
    HOT,
    INTERLEAVED,
    LABEL,
    OWN_ALONE,
    PEER,
    REPETITION,
    SERIAL,
)
from cutlass_study.config import GemmProblem
from cutlass_study.footprint import set_bytes
from cutlass_study.label_check import check
from cutlass_study.records import SAMPLE_COLUMNS
from cutlass_study.sm90_resources import pipeline_stages
from cutlass_study.stats import Ratios
from cutlass_study.study_data import sample_records
from cutlass_study.views import NothingToShow, StudyRecords, plain_types, prepare, short_labels

PEER_TOLERANCE = 0.01  # issue: cold GPU times agree within 1 % in the median
KEY = ["name", "distribution", "seed", "condition"]


def measured(data: StudyRecords) -> pd.DataFrame:
    """Measured rows of every condition, with `label` and the `key` of their samples.

    Labels leave out what the table says by itself: the problem's beta and the source C stay.
    """
    rows = prepare(data.results, conditions=True)
    rows["label"] = short_labels(rows)
    rows["key"] = rows[KEY].astype(str).agg("|".join, axis=1)
    rows = rows[rows["state"] == "measured"].reset_index(drop=True)
    if rows.empty:
        raise NothingToShow("no row of this experiment was measured")
    return rows


def keyed_samples(data: StudyRecords) -> pd.DataFrame:
    """Raw samples whose `name` is the `key` of `measured`, so that conditions stay apart."""
    samples = plain_types(data.samples.reindex(columns=list(SAMPLE_COLUMNS)).copy())
    if samples.empty:
        raise NothingToShow("this experiment has no samples")
    seeds = samples["seed"].astype(float).astype(str)
    parts = samples.assign(seed=seeds)[KEY].astype(str)
    return samples.assign(name=parts.agg("|".join, axis=1))


def _ratio(samples: pd.DataFrame, regime: str, own: str, reference: str) -> dict[str, float]:
    """Time of `own` over that of `reference`, with its interval."""
    nothing = float("nan")
    one = samples[samples["regime"] == regime]
    # paired_ratio gives throughput of its first over its second: time of the second over the first
    ratio, low, high = paired_ratio(one, reference, own) or (nothing, nothing, nothing)
    return {"ratio": ratio, "ratio_low": low, "ratio_high": high}


def inputs(data: StudyRecords) -> pd.DataFrame:
    """A row per regime, kernel and distribution, with its throughput relative to uniform inputs."""
    rows, samples = measured(data), keyed_samples(data)
    found: list[dict[str, Any]] = []
    columns = ["tflops", "ratio_to_cublas", "sm_clock_mhz", "power_w", "energy_j"]
    columns += ["flop_per_clk_sm", "peak_share"]
    for (regime, _), group in rows.groupby(["regime", "name"], sort=False):
        by_input = group.set_index("distribution")
        for distribution in DISTRIBUTION_ORDER:
            if distribution not in by_input.index:
                continue
            row: Any = by_input.loc[distribution]
            line = {"regime": regime, "label": row["label"], "distribution": distribution}
            line["name"] = row["name"]
            line |= {column: row[column] for column in columns}
            if "uniform" in by_input.index:
                uniform: Any = by_input.loc["uniform"]
                ratio = _ratio(samples, str(regime), uniform["key"], row["key"])
                line |= {f"{name}_to_uniform": value for name, value in ratio.items()}
            found.append(line)
    frame = pd.DataFrame(found)
    if frame["distribution"].nunique() < 2:
        raise NothingToShow("only one input distribution was measured")
    return frame


def minimal_bytes(row: Any) -> int:
    """DRAM traffic of a GEMM that reads each operand once; C only if beta is not 0."""
    m, n, k = int(row["m"]), int(row["n"]), int(row["k"])
    size = 2 if row["output"] == "f16" else 4
    return 2 * (m * k + k * n) + m * n * size * (2 if row["beta"] != 0 else 1)


def alphabeta(data: StudyRecords) -> pd.DataFrame:
    """Cost in percent of having a C (beta=0) and of beta=1, each against the kernel without it."""
    rows, samples = measured(data), keyed_samples(data)
    rows["base"] = [name.partition("__")[0].replace("_cfloat_", "_cvoid_") for name in rows["name"]]
    found: list[dict[str, Any]] = []
    for (regime, _), group in rows.groupby(["regime", "base"], sort=False):
        plain = group[group["beta"] == 0]
        void = plain[plain["source_c"] == "void"]
        sourced = plain[plain["source_c"] != "void"]
        added = group[group["beta"] == 1]
        steps = (("beta=1", added, sourced), ("C present, beta=0", sourced, void))
        for step, own, reference in steps:
            if own.empty or reference.empty:
                continue
            line = _cost(samples, str(regime), own.iloc[0], reference.iloc[0])
            found.append({"regime": regime, "family": own.iloc[0]["family"], "step": step, **line})
    if not found:
        raise NothingToShow("no kernel was measured both with and without beta or a source C")
    return pd.DataFrame(found)


def _cost(samples: pd.DataFrame, regime: str, own: Any, reference: Any) -> dict[str, Any]:
    ratio = _ratio(samples, regime, own["key"], reference["key"])
    return {
        "label": own["label"],
        "stages": _stages(own),
        "reference_stages": _stages(reference),
        "time_ms": own["time_ms"],
        "reference_time_ms": reference["time_ms"],
        "cost_percent": 100 * (ratio["ratio"] - 1),
        "cost_percent_low": 100 * (ratio["ratio_low"] - 1),
        "cost_percent_high": 100 * (ratio["ratio_high"] - 1),
        "moved_bytes": minimal_bytes(own),
        "reference_moved_bytes": minimal_bytes(reference),
    }


def _stages(row: Any) -> int | None:
    """Stages of the main loop, "auto" resolved; a C in shared memory can leave room for fewer."""
    identity = identity_from_values({key: None if pd.isna(v) else v for key, v in row.items()})
    return pipeline_stages(identity.config, identity.problem)


def cache(data: StudyRecords) -> pd.DataFrame:
    """A row per kernel, size and comparison: time of cold operands over that of hot ones.

    Rotated operands against hot ones in batches of launches; flushed ones against hot ones where
    each launch is timed alone.
    """
    rows, samples = measured(data), keyed_samples(data)
    l2_bytes = data.device.l2_bytes if data.device else None
    found: list[dict[str, Any]] = []
    for (regime, name), group in rows.groupby(["regime", "name"], sort=False):
        by_condition = group.set_index("condition")
        for what, cold, hot in (("rotated", "", HOT), ("flushed", FLUSH, ALONE)):
            if not {cold, hot} <= set(by_condition.index):
                continue
            one: Any = by_condition.loc[cold]
            other: Any = by_condition.loc[hot]
            problem = GemmProblem(int(one["m"]), int(one["n"]), int(one["k"]), beta=one["beta"])
            found.append(
                {
                    "regime": regime,
                    "family": one["family"],
                    "label": one["label"],
                    "configuration": str(name).partition("__")[0],
                    "extent": one["n"],
                    "working_set_bytes": set_bytes(problem),
                    "l2_bytes": l2_bytes,
                    "cold": what,
                    "cold_time_ms": one["time_ms"],
                    "hot_time_ms": other["time_ms"],
                    **_ratio(samples, str(regime), one["key"], other["key"]),
                }
            )
    if not found:
        raise NothingToShow("no kernel was measured both hot and cold")
    return pd.DataFrame(found).sort_values(["regime", "cold", "configuration", "extent"])


def labels(data: StudyRecords) -> pd.DataFrame:
    """A row per repetition of the shuffled-labels check and regime."""
    samples = plain_types(data.samples.reindex(columns=list(SAMPLE_COLUMNS)).copy())
    samples = samples[samples["condition"].str.startswith(REPETITION)]
    found: list[dict[str, Any]] = []
    for regime, group in samples.groupby("regime", sort=True):
        for condition in group["condition"].unique():
            if LABEL in condition:
                continue
            own = group[group["condition"].str.startswith(condition + LABEL)]
            named = {str(n): sample_records(part) for n, part in own.groupby("condition")}
            control = sample_records(group[group["condition"] == condition])
            result = check(control, named)
            found.append(
                {
                    "regime": regime,
                    "repetition": int(condition.removeprefix(REPETITION)),
                    "labels": len(named),
                    "comparisons": result.comparisons,
                    "significant": result.significant,
                    "significant_to_control": result.significant_to_control,
                    "declared_by_interval": result.declared,
                    "smallest_adjusted_p": result.smallest_p,
                    "largest_effect": result.largest_effect,
                }
            )
    if not found:
        raise NothingToShow("no repetition of the shuffled-labels check was measured")
    return pd.DataFrame(found).sort_values(["regime", "repetition"]).reset_index(drop=True)


def interleave(data: StudyRecords) -> pd.DataFrame:
    """A row per kernel and way; `wall_ms` is host time for one launch of each kernel."""
    rows = prepare(data.results, conditions=True)
    rows["label"] = short_labels(rows)
    rows = rows[rows["condition"].isin([SERIAL, INTERLEAVED])]
    if rows.empty:
        raise NothingToShow("no kernels were interleaved")
    frame = rows[["condition", "family", "label", "outcome", "reason", "time_ms"]].copy()
    frame["wall_ms"] = rows["host_time_ms"]
    frame["samples"] = rows["samples"]
    order = frame["condition"].map({SERIAL: 0, INTERLEAVED: 1})
    return frame.assign(_order=order).sort_values(["_order", "family"]).drop(columns="_order")


def pair_samples(data: StudyRecords) -> pd.DataFrame:
    """Samples of `interleave` with the wall time of a pair of launches."""
    samples = keyed_samples(data)
    return samples[samples["host_ms"].notna()]


def interleaved_ratios(samples: pd.DataFrame) -> Ratios:
    """Wall time of an interleaved pair over a serial one of the same round, from `pair_samples`."""
    wall = samples.groupby(["round", "condition"])["host_ms"].first().unstack()
    if not {SERIAL, INTERLEAVED} <= set(wall.columns):
        return np.array([])
    return (wall[INTERLEAVED] / wall[SERIAL]).dropna().to_numpy(dtype=float)


def nvbench(data: StudyRecords) -> pd.DataFrame:
    """A row per kernel: medians of `cuda.bench`, of ours in its way, and of ours in a burst."""
    rows = measured(data)
    found = []
    for label, group in rows.groupby("label", sort=False):
        burst = group[group["regime"] == "burst"]
        times = dict(zip(burst["condition"], burst["time_ms"], strict=True))
        clocks = dict(zip(burst["condition"], burst["sm_clock_mhz"], strict=True))
        if PEER not in times or OWN_ALONE not in times:
            continue
        difference = times[OWN_ALONE] / times[PEER] - 1
        found.append(
            {
                "family": group.iloc[0]["family"],
                "label": label,
                "peer_time_ms": times[PEER],
                "own_time_ms": times[OWN_ALONE],
                "difference_percent": 100 * difference,
                "agree": "yes" if abs(difference) <= PEER_TOLERANCE else "no",
                "burst_time_ms": times.get("", float("nan")),
                "peer_clock_mhz": clocks[PEER],
                "own_clock_mhz": clocks[OWN_ALONE],
            }
        )
    if not found:
        raise NothingToShow("no kernel was timed by cuda.bench and by us")
    return pd.DataFrame(found)


def repeats(data: StudyRecords) -> Iterator[tuple[str, str, int, float]]:
    """(label, condition, repeat, median time in ms) of the cross-check's turns."""
    rows, samples = measured(data), keyed_samples(data)
    samples = samples[samples["rejected"] == ""]
    medians = samples.groupby(["name", "round"])["time_ms"].median()
    for _, row in rows[rows["condition"].isin([PEER, OWN_ALONE])].iterrows():
        for repeat, value in medians[row["key"]].items():
            yield row["label"], row["condition"], int(str(repeat).partition(".")[0]), float(value)
