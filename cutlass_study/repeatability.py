"""How far two runs of one sweep agree: pure functions of two loaded studies.

Rows are paired by identity and regime. What must agree is the median ratio to cuBLAS. The delivered
clock and the FLOP/clk/SM stand beside it, because a ratio can move when one card gives a kernel
another clock, though every cycle does the same work.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from cutlass_study.agreement import TOLERANCES, WORK, Agreement, agreement
from cutlass_study.records import DeviceRecord
from cutlass_study.study_data import RESULT_KEY, DataError, StudyData
from cutlass_study.views import NothingToShow, area_key, prepare, short_labels, stage_key

LONGER_SAMPLES = 1.25  # beyond this ratio of their lengths, samples were made in another way
_COMPARED = (
    "ratio_to_cublas",
    "ratio_low",
    "ratio_high",
    "sm_clock_mhz",
    "flop_per_clk_sm",
    "clock_to_cublas",
    "cycles_to_cublas",
    "reason",
)
_SOFTWARE = {
    "driver": "driver_version",
    "CUDA": "cuda_driver_version",
    "system": "operating_system",
    "power limit [W]": "power_limit_w",
    "study version": "study_version",
    "code": "git_commit",
}


@dataclass(frozen=True, slots=True)
class Run:
    """Where and when one of two compared runs was made."""

    name: str  # of its folder
    device: DeviceRecord
    started_at: datetime | None
    complete: bool

    @property
    def card(self) -> str:
        return self.device.card

    def is_same(self, other: Run) -> bool:
        """Whether both are one run. Runs whose start is unknown count as different."""
        known = self.started_at is not None and self.started_at == other.started_at
        return known and self.device.uuid == other.device.uuid


class Change(NamedTuple):
    """Something else that was not the same in two runs, such as their driver."""

    what: str
    first: str
    second: str


@dataclass(frozen=True, slots=True, eq=False)
class Repeat:
    """Two runs, row by row. Columns of `rows` are those of `pair`."""

    first: Run
    second: Run
    rows: pd.DataFrame
    rechosen: pd.DataFrame  # rows left out: cuBLASLt's best was another candidate in each run
    alone: tuple[int, int]  # measured rows of either run that the other lacks
    agreements: tuple[Agreement, ...]
    changed: tuple[Change, ...]

    @property
    def same_card(self) -> bool:
        return self.first.device.uuid == self.second.device.uuid

    @property
    def hours(self) -> float | None:
        """From the start of the first run to that of the second; `None` if either is unknown."""
        if self.first.started_at is None or self.second.started_at is None:
            return None
        return (self.second.started_at - self.first.started_at).total_seconds() / 3600

    @property
    def same_run(self) -> bool:
        return self.first.is_same(self.second)


def run_of(data: StudyData) -> Run:
    """Raises `DataError` where nothing was measured."""
    if data.device is None:
        raise DataError(
            f"'{data.directory}' holds nothing measured, so no run to compare; give a folder that "
            "sweep.py wrote on a GPU"
        )
    runs = data.summary.get("runs", [])
    started_at = datetime.fromisoformat(runs[0]["started_at"]) if runs else None
    return Run(data.name, data.device, started_at, data.complete)


def compare_runs(first: StudyData, second: StudyData) -> Repeat:
    """Pair two runs on GPUs of one model.

    Raises `DataError` for a folder without measurements, different models of GPU, and folders with
    no kernel in common.
    """
    runs = run_of(first), run_of(second)
    models = [f"{run.device.name} ({run.device.sm_count} SMs)" for run in runs]
    if models[0] != models[1]:
        raise DataError(
            f"'{first.directory}' was measured on {models[0]} and '{second.directory}' on "
            f"{models[1]}: only runs on the same model of GPU can be compared"
        )
    measured = _measured(first), _measured(second)
    paired = pair(*measured).assign(first_run=runs[0].name, second_run=runs[1].name)
    rows = paired[paired["note"] == ""].reset_index(drop=True)
    if rows.empty:
        raise DataError(
            f"'{first.directory}' and '{second.directory}' have no measured kernel in common "
            "besides cuBLAS; give two runs of the same preset and regime"
        )
    rechosen = paired[paired["note"] != ""]
    counts = [int((~_is_control(frame)).sum()) - len(paired) for frame in measured]
    regimes = sorted(set(rows["regime"]))
    agreements = tuple(agreement(regime, [rows]) for regime in regimes)
    changed = _software_changed(*runs) + _samples_changed(first, second, rows)
    return Repeat(*runs, rows, rechosen, (counts[0], counts[1]), agreements, changed)


def _software_changed(first: Run, second: Run) -> tuple[Change, ...]:
    found = [
        (title, getattr(first.device, field), getattr(second.device, field))
        for title, field in _SOFTWARE.items()
    ]
    return tuple(
        Change(title, str(one or "unknown"), str(other or "unknown"))
        for title, one, other in found
        if one != other
    )


def _samples_changed(first: StudyData, second: StudyData, rows: pd.DataFrame) -> tuple[Change, ...]:
    """Where samples were made of clearly more or less work: another way of measuring."""
    found = []
    for (problem, regime), group in rows.groupby(["problem", "regime"], sort=False):
        one, other = (_timed_ms(data, str(regime), group["name"]) for data in (first, second))
        if max(one, other) > LONGER_SAMPLES * min(one, other):
            work = f"timed work in a {regime} sample of {problem}"
            found.append(Change(work, f"{one:.3g} ms", f"{other:.3g} ms"))
    return tuple(found)


def _timed_ms(data: StudyData, regime: str, names: pd.Series[str]) -> float:
    samples = data.samples
    samples = samples[(samples["regime"] == regime) & samples["name"].isin(names)]
    return float((samples["time_ms"] * samples["launches"].astype(float)).median())


@lru_cache(maxsize=16)  # every pair of runs asks for both
def _measured(data: StudyData) -> pd.DataFrame:
    """Rows with a ratio to cuBLAS, an experiment's left out; with the columns of `_parts`."""
    try:
        rows = prepare(data.results)
    except NothingToShow as nothing:
        raise DataError(f"'{data.directory}' can't be compared: {nothing}") from None
    rows = rows[(rows["state"] == "measured") & rows["ratio_to_cublas"].notna()]
    return rows.merge(_parts(data.samples, rows), on=list(RESULT_KEY), how="left")


def _parts(samples: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Clock and cycles against cuBLAS's in the same round, medians over rounds, one row a key.

    `clock_to_cublas` is the delivered clock over cuBLAS's, `cycles_to_cublas` cuBLAS's cycles over
    the own: in a round their product is the ratio of throughputs.
    """
    kept = samples[(samples["rejected"] == "") & samples["sm_clock_mhz"].notna()]
    kept = kept.assign(cycles=kept["time_ms"] * kept["sm_clock_mhz"])
    work = rows[[*RESULT_KEY, "problem"]].assign(control=_is_control(rows))
    medians = kept.groupby([*RESULT_KEY, "round"], as_index=False)[["sm_clock_mhz", "cycles"]]
    rounds = medians.median().merge(work, on=list(RESULT_KEY))
    cublas = rounds.loc[rounds["control"], [*WORK, "round", "sm_clock_mhz", "cycles"]]
    both = rounds.merge(cublas, on=[*WORK, "round"], suffixes=("", "_of_cublas"))
    both["clock_to_cublas"] = both["sm_clock_mhz"] / both["sm_clock_mhz_of_cublas"]
    both["cycles_to_cublas"] = both["cycles_of_cublas"] / both["cycles"]
    parts = ["clock_to_cublas", "cycles_to_cublas"]
    return both.groupby(list(RESULT_KEY), as_index=False)[parts].median()


def _is_control(rows: pd.DataFrame) -> pd.Series[bool]:
    return (rows["family"] == "cublas") & (rows["variant"] == "default")


def pair(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    """Rows that both runs measured, but for cuBLAS, whose ratio is 1 by definition.

    Beside the configuration's columns those of `_COMPARED` stand twice, with `_first` and
    `_second`. Relative changes from the first run to the second, NaN where unknown:

    - `difference` of the ratio, with `difference_low` and `difference_high`;
    - `clock_difference` and `rate_difference` of the delivered clock and of FLOP/clk/SM;
    - `clock_part` and `cycles_part` of clock and cycles against cuBLAS's in the same rounds, which
      is what they add to the ratio.

    `agrees` says whether the ratios are within the tolerance; `note` names the two candidates where
    cuBLASLt's best is not the same in both runs, so that two kernels would be compared.
    """
    columns = [*RESULT_KEY, *_COMPARED]
    rows = first.merge(second[columns], on=list(RESULT_KEY), suffixes=("_first", "_second"))
    rows["difference"] = _change(rows, "ratio_to_cublas")
    rows["clock_difference"] = _change(rows, "sm_clock_mhz")
    rows["rate_difference"] = _change(rows, "flop_per_clk_sm")
    rows["difference_low"], rows["difference_high"] = _bounds(rows)
    rows["clock_part"] = _change(rows, "clock_to_cublas")
    rows["cycles_part"] = _change(rows, "cycles_to_cublas")
    rows = rows[~_is_control(rows)].reset_index(drop=True)
    rows["agrees"] = rows["difference"].abs() <= rows["regime"].map(TOLERANCES)
    rows["note"] = [_note(row) for _, row in rows.iterrows()]
    rows["label"] = short_labels(rows)
    return _ordered(rows)


def _change(rows: pd.DataFrame, column: str) -> pd.Series[float]:
    return rows[f"{column}_second"] / rows[f"{column}_first"] - 1


def _bounds(rows: pd.DataFrame) -> tuple[pd.Series[float], pd.Series[float]]:
    """95 % interval of `difference` from the intervals of both ratios, which are independent.

    Logarithms of the ratios are subtracted, and their distances to their own bounds added in
    quadrature: MOVER, Zou and Donner, Statistics in Medicine 27 (2008) 1693.
    """
    names = ("ratio_low", "ratio_to_cublas", "ratio_high")
    low_1, middle_1, high_1 = (np.log(rows[f"{name}_first"]) for name in names)
    low_2, middle_2, high_2 = (np.log(rows[f"{name}_second"]) for name in names)
    change = middle_2 - middle_1
    below = np.hypot(middle_2 - low_2, high_1 - middle_1)
    above = np.hypot(high_2 - middle_2, middle_1 - low_1)
    return np.expm1(change - below), np.expm1(change + above)


def _note(row: Any) -> str:
    """cuBLASLt's best is chosen anew in each run, and may be another candidate."""
    one, other = row["reason_first"], row["reason_second"]
    return "" if one == other else f"{one or 'nothing'}, then {other or 'nothing'}"


def _ordered(rows: pd.DataFrame) -> pd.DataFrame:
    """By size, family, tile, S and label, regimes last."""
    keys = [
        (
            row["m"] * row["n"] * row["k"],
            row["problem"],
            row["family"],
            area_key(row["threadblock_shape"]),
            stage_key(row["stages"]),
            row["label"],
            row["regime"],
        )
        for _, row in rows.iterrows()
    ]
    return rows.iloc[sorted(range(len(rows)), key=keys.__getitem__)].reset_index(drop=True)
