"""What the `settle` experiment shows, as frames: pure functions of loaded records.

A kernel runs back to back for a span, cut into chunks of launches. How far into the span a chunk
begins follows from the time of the chunks before it. A plan is (untimed, timed) milliseconds: what
a sample would have measured that began with the span.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import pandas as pd

from cutlass_study.conditions import SETTLING
from cutlass_study.experiment_frames import keyed_samples, measured
from cutlass_study.regimes import PLANS
from cutlass_study.stats import MIN_ROUNDS
from cutlass_study.views import NothingToShow, StudyRecords

IN_USE = PLANS["sustained"]
UNTIMED_MS = (50.0, 200.0, 400.0, 800.0)
TIMED_MS = (200.0, 400.0, 800.0, 1600.0)
LATE_MS = 800.0  # from here on a kernel counts as settled: what a plan's bias refers to
BIN_MS = 50.0  # of the mean course
SAMPLING_MS = 10_000.0  # the sweep's own budget for a row in a regime
# Standard error of a median of normal samples, in standard deviations over the root of their number
# (Conover, Practical Nonparametric Statistics; exact in the limit of many), and 95 % of a normal.
MEDIAN_ERROR, NORMAL_95 = math.sqrt(math.pi / 2), 1.96
POWER_CAP = "sw_power_cap"


def chunks(data: StudyRecords) -> pd.DataFrame:
    """Every valid chunk in order, with its `label`, `visit` and place in the span.

    `offset_ms` is where it begins, `length_ms` its own, `span_ms` what the visit's chunks take
    together; `deviation` is its time per launch over the kernel's own late one, less 1.
    """
    rows, samples = measured(data), keyed_samples(data)
    labels = rows[rows["condition"] == SETTLING].set_index("key")["label"]
    found = samples[samples["name"].isin(labels.index)].copy()
    if found.empty:
        raise NothingToShow("no kernel was run for a span")
    found["label"] = found["name"].map(labels)
    found["visit"] = found["round"].astype(int)
    found["length_ms"] = found["time_ms"] * found["launches"]
    visits = found.groupby(["label", "visit"], sort=False)["length_ms"]
    found["offset_ms"] = visits.cumsum() - found["length_ms"]
    found["span_ms"] = visits.transform("sum")
    found = found[(found["rejected"] == "") & (found["time_ms"] > 0)]
    late = _block_means(found, LATE_MS, math.inf).groupby("label")["time_ms"].mean()
    found["deviation"] = found["time_ms"] / found["label"].map(late) - 1
    return found.reset_index(drop=True)


def _block_means(found: pd.DataFrame, untimed_ms: float, timed_ms: float) -> pd.DataFrame:
    """Milliseconds per launch of each kernel and visit over a block, as its events would say.

    A chunk belongs to the block in which it begins; visits that end within the block are left out.
    """
    end_ms = untimed_ms + timed_ms
    whole = found[(found["span_ms"] + found["length_ms"] / 2 >= end_ms) | math.isinf(end_ms)]
    inside = whole[(whole["offset_ms"] >= untimed_ms) & (whole["offset_ms"] < end_ms)]
    sums = inside.groupby(["label", "visit"], sort=False)[["length_ms", "launches"]].sum()
    return (sums["length_ms"] / sums["launches"]).rename("time_ms").reset_index()


def course(data: StudyRecords) -> pd.DataFrame:
    """Mean `deviation_percent` of each kernel over the time since it began, in bins.

    `since_ms` is a bin's middle.
    """
    found = chunks(data)
    middle = found["offset_ms"] + found["length_ms"] / 2
    found["since_ms"] = (middle // BIN_MS + 0.5) * BIN_MS
    mean = found.groupby(["label", "since_ms"], sort=False)["deviation"].mean()
    return (100 * mean).rename("deviation_percent").reset_index()


def kernels(data: StudyRecords) -> pd.DataFrame:
    """A row per kernel, most power first: its power, clock and how unsteady it was once settled.

    `limited` says whether NVML named the power limit during most chunks, empty where it told
    nothing. `chunk_spread_percent` is the standard deviation of late chunks within a visit,
    `swing_percent` how far its mean course goes from the lowest to the highest point.
    """
    found, path = chunks(data), course(data)
    late = found[found["offset_ms"] >= LATE_MS]
    rows: list[dict[str, Any]] = []
    for label, group in late.groupby("label", sort=False):
        own = path[path["label"] == label]["deviation_percent"]
        capped = float(group["throttle_reasons"].str.contains(POWER_CAP).mean())
        told = bool(group["power_w"].notna().any() or group["nvml_clock_mhz"].notna().any())
        within = group.groupby("visit")["deviation"].std()
        rows.append(
            {
                "label": label,
                "visits": int(group["visit"].nunique()),
                "power_w": group["power_w"].median(),
                "sm_clock_mhz": group["sm_clock_mhz"].median(),
                "limited": ("yes" if capped > 0.5 else "no") if told else "",
                "chunk_spread_percent": 100 * math.sqrt((within**2).mean()),
                "swing_percent": own.max() - own.min(),
            }
        )
    frame = pd.DataFrame(rows)
    return frame.sort_values("power_w", ascending=False, kind="stable").reset_index(drop=True)


def plans(
    data: StudyRecords,
    untimed_ms: Iterable[float] = UNTIMED_MS,
    timed_ms: Iterable[float] = TIMED_MS,
) -> pd.DataFrame:
    """A row per plan that the spans are long enough for; the plan in use is always among them.

    `spread_percent`: root mean square over kernels of the standard deviation of block means over
    visits. `half_width_percent`: of a 95 % interval of the median from 10 s of such samples, if
    they scatter normally; NaN where these are too few for an interval. `bias_percent`: the block
    means' mean against that of the late part, averaged over kernels; `worst_bias_percent` of the
    kernel for which it is largest.
    """
    found = chunks(data)
    late = _block_means(found, LATE_MS, math.inf).groupby("label")["time_ms"].mean()
    wanted = {(before, timed) for before in untimed_ms for timed in timed_ms}
    wanted.add((IN_USE.untimed_ms, IN_USE.timed_ms))
    rows = []
    for before, timed in sorted(wanted):
        blocks = _block_means(found, before, timed).groupby("label")["time_ms"]
        means, spreads = blocks.mean(), blocks.std() / blocks.mean()
        if not spreads.notna().any():
            continue
        spread = 100 * math.sqrt((spreads**2).mean())
        bias = 100 * (means / late - 1).dropna()
        count = int(SAMPLING_MS // (before + timed))
        half_width = NORMAL_95 * MEDIAN_ERROR * spread / math.sqrt(count)
        rows.append(
            {
                "untimed_ms": before,
                "timed_ms": timed,
                "spread_percent": spread,
                "samples_in_10_s": count,
                "half_width_percent": half_width if count >= MIN_ROUNDS else math.nan,
                "bias_percent": bias.mean(),
                "worst_bias_percent": max(bias, key=abs),
                "in_use": "yes" if _in_use(before, timed) else "",
            }
        )
    if not rows:
        raise NothingToShow("no kernel was run for two spans, so there is no spread")
    return pd.DataFrame(rows)


def _in_use(untimed_ms: float, timed_ms: float) -> bool:
    return (untimed_ms, timed_ms) == (IN_USE.untimed_ms, IN_USE.timed_ms)
