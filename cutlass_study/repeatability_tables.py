"""The tables of repeats: pure functions of `repeatability.Repeat`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from cutlass_study.agreement import GOAL_SHARE
from cutlass_study.repeatability import Repeat
from cutlass_study.repeatability_text import (
    LABELS,
    about,
    also_changed,
    counted,
    exact_percent,
    tolerances,
)
from cutlass_study.table_formats import Table

_SHOWN = (
    "label",
    "problem",
    "regime",
    "ratio_to_cublas_first",
    "ratio_low_first",
    "ratio_high_first",
    "ratio_to_cublas_second",
    "ratio_low_second",
    "ratio_high_second",
    "difference",
    "agrees",
    "sm_clock_mhz_first",
    "sm_clock_mhz_second",
    "clock_difference",
    "flop_per_clk_sm_first",
    "flop_per_clk_sm_second",
    "rate_difference",
)
_CSV_ONLY = ("name", "difference_low", "difference_high", "clock_part", "cycles_part")
SUMMARY_CAPTION = (
    f"How many configurations agree within the tolerance; the goal is {exact_percent(GOAL_SHARE)}. "
    "Differences are of the ratio to cuBLAS, between medians, without sign; of clocks: of each "
    "kernel's delivered clock. By cycles: cycles against cuBLAS's in the same rounds agree within "
    "the same tolerance, that is the ratio with delivered clocks divided out."
)


def comparison(repeat: Repeat) -> Table:
    """Every paired row: ratios, delivered clocks and FLOP/clk/SM of both runs."""
    frame = repeat.rows[[*_SHOWN[:1], *_CSV_ONLY[:1], *_SHOWN[1:], *_CSV_ONLY[1:]]].copy()
    frame["agrees"] = frame["agrees"].map({True: "yes", False: "no"})
    caption = (
        f"Two runs, row by row. {about(repeat)}. {counted(repeat)}. Agrees: the ratios differ by "
        f"at most {tolerances()}. Clocks are the delivered ones. {LABELS} {also_changed(repeat)}"
    )
    return Table("repeatability", frame, caption.strip(), csv_only=_CSV_ONLY)


def summary(repeats: Sequence[Repeat]) -> Table:
    """A row for each repeat and regime: how many configurations agree."""
    found: list[dict[str, Any]] = []
    for repeat in repeats:
        for regime in repeat.agreements:
            found.append(
                {
                    "first_run": repeat.first.name,
                    "second_run": repeat.second.name,
                    "card": "same" if repeat.same_card else "another",
                    "hours_later": repeat.hours,
                    "regime": regime.regime,
                    "rows": regime.rows,
                    "tolerance": regime.tolerance,
                    "agree": regime.agree,
                    "agree_share": regime.share,
                    "goal": "met" if regime.meets_goal else "missed",
                    "median_difference": regime.median,
                    "p95_difference": regime.p95,
                    "median_clock_difference": regime.clock_median,
                    "agree_by_cycles": regime.cycles_agree,
                }
            )
    return Table("repeatability_summary", pd.DataFrame(found), SUMMARY_CAPTION)
