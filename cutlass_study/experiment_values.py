"""Every number that the paper's text says of an experiment, as a tree that becomes JSON.

Pure functions of an experiment's published folder. A value that the data can't give is `None`, and
the template leaves its sentence out. Raises `NothingToShow` as the frames do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import binomtest

from cutlass_study import experiment_frames as frames
from cutlass_study import settle_frames
from cutlass_study.conditions import LABEL, Name
from cutlass_study.paper_numbers import number, ratio_interval, ratio_percent
from cutlass_study.regimes import names_power
from cutlass_study.stats import CONFIDENCE, bootstrap_interval
from cutlass_study.study_data import StudyData

Tree = dict[str, Any]
CLEARLY_BELOW = 0.9  # of the power limit
LEVEL = 1 - CONFIDENCE  # family-wise level of the shuffled-labels check


def _percent(value: Any, digits: int = 1, sign: str = "") -> str | None:
    """A number of percent as text with its unit: 1.3 → `1.3 %`."""
    if value is None or pd.isna(value):
        return None
    return f"{value:{sign}.{digits}f} %".replace("-", "−")


def _range(values: Any, digits: int = 2, sign: str = "") -> str | None:
    """`0.52 to 0.87 %`, or one value where both ends read alike."""
    known = pd.Series(values, dtype=float).dropna()
    if known.empty:
        return None
    low, high = (_percent(value, digits, sign) for value in (known.min(), known.max()))
    assert low and high
    return high if low == high else f"{low.removesuffix(' %')} to {high}"


def _megabytes(value: Any) -> str:
    return f"{value / 1e6:.0f} MB"


def inputs(data: StudyData) -> Tree:
    """Each kernel of each regime on each distribution, and its change against uniform inputs."""
    frame = frames.inputs(data)
    regimes = []
    for regime, rows in frame.groupby("regime", sort=False):
        kernels = []
        for label, group in rows.groupby("label", sort=False):
            lines = [_input_row(row) for _, row in group.iterrows()]
            uniform = next((line for line in lines if line["inputs"] == "uniform"), None)
            others = [line for line in lines if line is not uniform]
            kernels.append(
                {"label": str(label), "rows": lines, "uniform": uniform, "others": others}
            )
        regimes.append({"name": str(regime), "kernels": kernels})
    return {"regimes": regimes, "capped_low": _capped_low(data, frame)}


def _capped_low(data: StudyData, frame: pd.DataFrame) -> Tree | None:
    """The sustained row furthest below the power limit, if the limit is what the driver names."""
    limit = data.device.power_limit_w if data.device else None
    rows = frame[(frame["regime"] == "sustained") & (frame["power_w"] > 0)]
    if not limit or rows.empty:
        return None
    row: Any = rows.sort_values("power_w").iloc[0]
    samples = data.samples
    samples = samples[
        (samples["regime"] == "sustained") & (samples["name"] == row["name"])
        & (samples["distribution"] == row["distribution"]) & (samples["rejected"] == "")
    ]  # fmt: skip
    limited = int(_power_limited(samples).sum())
    if row["power_w"] > CLEARLY_BELOW * limit or 2 * limited <= len(samples):
        return None
    return {
        "label": str(row["label"]),
        "inputs": str(row["distribution"]),
        "power": number(row["power_w"], 0),
        "limit": number(limit, 0),
        "clock": number(row["sm_clock_mhz"], 0),
        "limited": str(limited),
        "samples": str(len(samples)),
    }


def _power_limited(samples: pd.DataFrame) -> pd.Series[bool]:
    return samples["throttle_reasons"].fillna("").map(names_power).astype(bool)


def _input_row(row: Any) -> Tree:
    own = row["distribution"] != "uniform"  # else it would be compared with itself
    control = row["ratio_to_cublas"] == 1
    return {
        "inputs": str(row["distribution"]),
        "tflops": number(row["tflops"], 1),
        "change": ratio_percent(row.get("ratio_to_uniform")) if own else None,
        "interval": ratio_interval(*(row.get(f"ratio_{end}_to_uniform") for end in ("low", "high")))
        if own
        else None,
        "ratio": None if control else ratio_percent(row["ratio_to_cublas"]),
        "clock": number(row["sm_clock_mhz"], 0),
        "power": number(row["power_w"], 0),
        "energy": number(row["energy_j"], 2),
        "share": number(100 * row["peak_share"], 1),
    }


def alphabeta(data: StudyData) -> Tree:
    """The cost of a C and of β=1 for each kernel, beside what reading C alone would take."""
    frame = frames.alphabeta(data)
    bandwidth = data.ceilings.get("dram_read", {}).get("value")
    added = frame[frame["moved_bytes"] > frame["reference_moved_bytes"]]
    extra = (added["moved_bytes"] - added["reference_moved_bytes"]).max()
    return {
        "rows": [_cost_row(row, bandwidth) for _, row in frame.iterrows()],
        "extra": _megabytes(extra) if pd.notna(extra) else None,
        "bandwidth": number(bandwidth, 0),
    }


def _cost_row(row: Any, bandwidth_gbs: float | None) -> Tree:
    extra_bytes = row["moved_bytes"] - row["reference_moved_bytes"]
    read_share = None
    if bandwidth_gbs and extra_bytes:
        read_ms = extra_bytes / bandwidth_gbs / 1e6
        read_share = _percent(100 * read_ms / row["reference_time_ms"], 1, "+")
    low, high = (1 + row[f"cost_percent_{end}"] / 100 for end in ("low", "high"))
    return {
        "regime": str(row["regime"]),
        "label": str(row["label"]),
        "added": row["step"] == "beta=1",
        "time": number(row["time_ms"], 3),
        "reference_time": number(row["reference_time_ms"], 3),
        "cost": ratio_percent(1 + row["cost_percent"] / 100, 2),
        "interval": ratio_interval(low, high),
        "stages": number(row["stages"], 0),
        "reference_stages": number(row["reference_stages"], 0),
        "moved": number(row["moved_bytes"] / 1e6, 0),
        "reference_moved": number(row["reference_moved_bytes"] / 1e6, 0),
        "read_share": read_share,
    }


def cache(data: StudyData) -> Tree:
    """What cold operands cost at each size, and the range of it for each way of being cold."""
    frame = frames.cache(data)
    regime = frame["regime"].iloc[0]
    frame = frame[frame["regime"] == regime]
    ways = []
    for way, rows in frame.groupby("cold", sort=False):
        worst = rows.sort_values("ratio").iloc[-1]
        ways.append(
            {
                "name": str(way),
                "range": _range(100 * (rows["ratio"] - 1), 1, "+"),
                "worst": {
                    "label": str(worst["label"]),
                    "extent": number(worst["extent"], 0),
                    "cost": ratio_percent(worst["ratio"]),
                    "interval": ratio_interval(worst["ratio_low"], worst["ratio_high"]),
                },
            }
        )
    sizes = frame.drop_duplicates("extent").sort_values("extent")
    l2_bytes = data.device.l2_bytes if data.device else None
    return {
        "regime": str(regime),
        "ways": ways,
        "sizes": [
            {"extent": number(row["extent"], 0), "bytes": _megabytes(row["working_set_bytes"])}
            for _, row in sizes.iterrows()
        ],
        "l2": _megabytes(l2_bytes) if l2_bytes else None,
        "too_large": [
            number(row["extent"], 0)
            for _, row in sizes.iterrows()
            if l2_bytes and row["working_set_bytes"] > l2_bytes
        ],
    }


def labels(data: StudyData) -> Tree:
    """How many repetitions called cuBLAS different from itself, and what may be expected."""
    frame = frames.labels(data)
    regimes = []
    for regime, rows in frame.groupby("regime", sort=False):
        count, false = len(rows), int((rows["significant"] > 0).sum())
        interval = binomtest(false, count).proportion_ci(CONFIDENCE)
        regimes.append(
            {
                "name": str(regime),
                "repetitions": count,
                "labels": number(rows["labels"].median(), 0),
                "comparisons": number(rows["comparisons"].median(), 0),
                "false": false,
                "share": _percent(100 * false / count, 0),
                "interval": f"{100 * interval.low:.0f} to {100 * interval.high:.0f} %",
                "to_control": int((rows["significant_to_control"] > 0).sum()),
                "declared": int((rows["declared_by_interval"] > 0).sum()),
                **_plain_intervals(data, str(regime)),
                "kept": bool(interval.low <= LEVEL),
                "largest": _percent(100 * rows["largest_effect"].max(), 2),
            }
        )
    return {"regimes": regimes, "level": _percent(100 * LEVEL, 0)}


def _plain_intervals(data: StudyData, regime: str) -> Tree:
    """How many names have an interval, uncorrected, and how many of those exclude a tie."""
    rows = data.results
    rows = rows[(rows["regime"] == regime) & rows["condition"].str.contains(LABEL, regex=False)]
    rows = rows[rows["ratio_low"].notna()]
    apart = (rows["ratio_low"] > 1) | (rows["ratio_high"] < 1)
    return {"names": len(rows), "plain": int(apart.sum())}


def interleave(data: StudyData) -> Tree:
    """What taking turns on two streams does to a pair of launches, and what was lost."""
    frame = frames.interleave(data)
    samples = frames.pair_samples(data)
    ratios = frames.interleaved_ratios(samples)
    change = ratio_percent(np.median(ratios)) if len(ratios) else None
    low, high = bootstrap_interval(ratios) or (None, None)
    runs = samples.assign(limited=_power_limited(samples)).groupby(["round", "condition"])
    failed = frame[frame["outcome"] != "ok"]
    return {
        "kernels": [str(label) for label in frame["label"].unique()],
        "rounds": int(samples["round"].nunique()),
        "launches": number(samples["launches"].median(), 0),
        "timed": runs.ngroups,
        "limited": int(runs["limited"].any().sum()),
        "change": change,
        "interval": ratio_interval(low, high),
        "tied": low is not None and high is not None and low <= 1 <= high,
        "rows": len(frame),
        "failed": [f"{row['label']}: {row['outcome']}" for _, row in failed.iterrows()],
    }


def nvbench(data: StudyData) -> Tree:
    """Our times beside those of `cuda.bench`, kernel by kernel."""
    frame = frames.nvbench(data)
    return {
        "kernels": len(frame),
        "agree": int((frame["agree"] == "yes").sum()),
        "tolerance": _percent(100 * frames.PEER_TOLERANCE, 0),
        "differences": _range(frame["difference_percent"], 2, "+"),
        "burst": _range(100 * (frame["burst_time_ms"] / frame["own_time_ms"] - 1), 1, "+"),
        "apart": [
            {
                "label": str(row["label"]),
                "control": row["label"] == "cuBLAS",
                "difference": _percent(row["difference_percent"], 2, "+"),
                "burst": _percent(100 * (row["burst_time_ms"] / row["peer_time_ms"] - 1), 2, "+"),
            }
            for _, row in frame[frame["agree"] == "no"].iterrows()
        ],
        "rows": [
            {
                "label": str(row["label"]),
                "peer": number(row["peer_time_ms"], 4),
                "own": number(row["own_time_ms"], 4),
                "difference": _percent(row["difference_percent"], 2, "+"),
                "burst": number(row["burst_time_ms"], 4),
            }
            for _, row in frame.iterrows()
        ],
    }


def settle(data: StudyData) -> Tree:
    """How unsteady each kernel is, and what samples of several lengths would make of it."""
    kernels, plans = settle_frames.kernels(data), settle_frames.plans(data)
    used = plans[plans["in_use"] == "yes"]
    groups = {
        word: {
            "count": int((kernels["limited"] == word).sum()),
            "chunks": _range(rows["chunk_spread_percent"]),
            "power": _watts(rows["power_w"]),
        }
        for word in ("yes", "no")
        if not (rows := kernels[kernels["limited"] == word]).empty
    }
    narrowest = plans.dropna(subset="half_width_percent").sort_values("half_width_percent")
    return {
        "chunks": _range(kernels["chunk_spread_percent"]),
        "limited": groups.get("yes"),
        "free": groups.get("no"),
        "visits": number(kernels["visits"].median(), 0),
        "plans": [_plan(row) for _, row in plans.iterrows()],
        "used": None if used.empty else _plan(used.iloc[0]),
        "shortest": _plan(plans.iloc[0]),
        "narrowest": None if narrowest.empty else _plan(narrowest.iloc[0]),
    }


def _watts(values: pd.Series[Any]) -> str | None:
    low, high = (number(value, 0) for value in (values.min(), values.max()))
    if low is None or high is None:
        return None
    return f"{high} W" if low == high else f"{low} to {high} W"


def _plan(row: Any) -> Tree:
    return {
        "untimed": number(row["untimed_ms"], 0),
        "timed": number(row["timed_ms"], 0),
        "spread": _percent(row["spread_percent"], 2),
        "samples": number(row["samples_in_10_s"], 0),
        "half_width": _percent(row["half_width_percent"], 2),
        "bias": _percent(row["bias_percent"], 2, "+"),
        "worst_bias": _percent(row["worst_bias_percent"], 2, "+"),
        "in_use": bool(row["in_use"]),
    }


VALUES: dict[Name, Callable[[StudyData], Tree]] = {
    "inputs": inputs,
    "alphabeta": alphabeta,
    "cache": cache,
    "labels": labels,
    "interleave": interleave,
    "nvbench": nvbench,
    "settle": settle,
}
