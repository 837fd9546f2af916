"""How many configurations agree between two runs, and which of them change places.

Pure functions of paired rows (`repeatability.pair`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import pandas as pd

TOLERANCES = {"burst": 0.003, "sustained": 0.01}  # of a ratio to cuBLAS, relative
GOAL_SHARE = 0.95  # of the configurations, to agree within the tolerance
WORK = ["arch", "problem", "distribution", "seed", "regime"]  # what a control shares with its rows


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
    clock_part: float  # median; what clocks, compared with cuBLAS's, add to the ratio
    cycles_part: float  # median; the same of FLOP/clk/SM
    cycles_agree: int  # FLOP/clk/SM relative to cuBLAS's within the tolerance
    ordered: int  # pairs on one problem whose intervals do not overlap in either run
    swaps: tuple[str, ...]  # those of them whose order differs, the clearest first

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
        ordered=sum(count for count, _ in counted),
        swaps=tuple(text for _, text in swaps),
    )


def _swaps(rows: pd.DataFrame) -> tuple[int, list[tuple[float, str]]]:
    """Pairs on one problem whose intervals exclude a tie in both runs, and those that swap.

    A swap comes with the smaller of its two differences, relative, and with what to call it.
    """
    count, swaps = 0, []
    for _, group in rows.groupby([name for name in WORK if name != "regime"]):
        for one, other in combinations(group.to_dict("records"), 2):
            first, second = (_certain_ratio(one, other, which) for which in ("first", "second"))
            if first is None or second is None:
                continue
            count += 1
            if (first > 1) != (second > 1):
                text = (
                    f"{one['label']} is {_compared(first)} than {other['label']} in the first run "
                    f"and {_compared(second)} in the second ({one['problem']})"
                )
                swaps.append((min(abs(first - 1), abs(second - 1)), text))
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
