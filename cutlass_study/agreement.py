"""How many configurations agree between two runs, and which of them change places.

Pure functions of paired rows (`repeatability.pair`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

TOLERANCES = {"burst": 0.003, "sustained": 0.01}  # of a ratio to cuBLAS, relative
GOAL_SHARE = 0.95  # of the configurations, to agree within the tolerance
PROBLEM = [
    "arch",
    "problem",
    "distribution",
    "seed",
]  # what tells one problem's rows
WORK = [*PROBLEM, "regime"]  # what a control shares with its rows


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far the paired rows of one regime agree; differences are relative and unsigned."""

    regime: str
    tolerance: float
    rows: int
    configurations: int  # of which these rows are; fewer over several repeats
    agree: int  # medians within the tolerance of each other
    beyond: int  # the whole 95 % interval of the difference is outside the tolerance
    median: float
    p95: float
    largest: float
    clock_median: float  # of the delivered clocks; NaN where none was recorded
    clock_largest: float
    clock_part: float  # median; what clocks, against cuBLAS's in the same rounds, add to the ratio
    cycles_part: float  # median; the same of cycles
    cycles_agree: int  # cycles against cuBLAS's within the tolerance
    cycles_rows: int  # whose cycles are known in both runs
    # 95th percentile of the change of a ratio between two configurations of a problem, cuBLAS one
    # of them; of the repeat where it is largest.
    between: float
    ordered: int  # pairs on one problem whose intervals do not overlap in either run
    swaps: tuple[str, ...]  # those of them whose order differs, the clearest first
    swapped: int  # different pairs of configurations among them; fewer over several repeats

    @property
    def share(self) -> float:
        return self.agree / self.rows

    @property
    def meets_goal(self) -> bool:
        return self.share >= GOAL_SHARE


def agreement(regime: str, repeats: Sequence[pd.DataFrame]) -> Agreement:
    """Of one regime over the paired rows of one or several repeats, at least one row in all."""
    frames = [rows[rows["regime"] == regime] for rows in repeats]
    rows = pd.concat(frames)
    tolerance = TOLERANCES[regime]
    parts = ("difference", "clock_difference", "clock_part", "cycles_part")
    sizes, clocks, clock_part, cycles_part = (rows[part].abs() for part in parts)
    outside = (rows["difference_low"] > tolerance) | (rows["difference_high"] < -tolerance)
    counted = [_swaps(frame) for frame in frames]
    swaps = sorted((swap for _, found in counted for swap in found), reverse=True)
    between = [np.quantile(_between(frame), 0.95) for frame in frames if len(frame)]
    return Agreement(
        regime=regime,
        tolerance=tolerance,
        rows=len(rows),
        configurations=len(rows[["label", "problem"]].drop_duplicates()),
        agree=int(rows["agrees"].sum()),
        beyond=int(outside.sum()),
        median=float(sizes.median()),
        p95=float(sizes.quantile(0.95)),
        largest=float(sizes.max()),
        clock_median=float(clocks.median()),
        clock_largest=float(clocks.max()),
        clock_part=float(clock_part.median()),
        cycles_part=float(cycles_part.median()),
        cycles_agree=int((cycles_part <= tolerance).sum()),
        cycles_rows=int(cycles_part.notna().sum()),
        between=float(max(between)),
        ordered=sum(count for count, _ in counted),
        swaps=tuple(text for _, text, _ in swaps),
        swapped=len({names for *_, names in swaps}),
    )


def _between(rows: pd.DataFrame) -> NDArray[np.float64]:
    """Unsigned changes of the ratio between any two configurations of a problem."""
    changes = []
    for _, group in rows.groupby(PROBLEM):
        logs = np.append(np.log1p(group["difference"].to_numpy(dtype=float)), 0.0)  # cuBLAS: 0
        one, other = np.triu_indices(len(logs), 1)
        changes.append(np.abs(np.expm1(logs[one] - logs[other])))
    return np.concatenate(changes)


def _swaps(rows: pd.DataFrame) -> tuple[int, list[tuple[float, str, frozenset[str]]]]:
    """Pairs on one problem whose intervals exclude a tie in both runs, and those that swap.

    A swap comes with the smaller of its two differences, relative, with what to call it, and with
    the names of both.
    """
    count, swaps = 0, list[tuple[float, str, frozenset[str]]]()
    for _, group in rows.groupby(PROBLEM):
        for one, other in combinations(group.to_dict("records"), 2):
            first, second = (_certain_ratio(one, other, which) for which in ("first", "second"))
            if first is None or second is None:
                continue
            count += 1
            if (first > 1) != (second > 1):
                text = (
                    f"{one['label']} is {_compared(first)} than {other['label']} in "
                    f"{one['first_run']} and {_compared(second)} in {one['second_run']} "
                    f"({one['problem']})"
                )
                names = frozenset((one["name"], other["name"]))
                swaps.append((min(abs(first - 1), abs(second - 1)), text, names))
    return count, swaps


def _certain_ratio(one: Any, other: Any, which: str) -> float | None:
    """Throughput of one over another in a run, if their intervals do not overlap."""
    apart = (
        one[f"ratio_low_{which}"] > other[f"ratio_high_{which}"]
        or one[f"ratio_high_{which}"] < other[f"ratio_low_{which}"]
    )
    ratio = one[f"ratio_to_cublas_{which}"] / other[f"ratio_to_cublas_{which}"]
    return float(ratio) if apart else None


def _compared(ratio: float) -> str:
    return f"{abs(ratio - 1):.1%} {'faster' if ratio > 1 else 'slower'}".replace("%", " %")
