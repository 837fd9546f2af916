"""Recorded rows that a claim speaks of, and how two of them compare.

Ratios are paired within rounds where possible. Intervals are corrected (Bonferroni) for the number
of measured claims in both regimes, and searches add their rivals. That aims at 5 % for a false
"faster" among all verdicts but does not guarantee it: picking the fastest row favours it, and
intervals that are not paired rest on a large-sample rank.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm as normal

from cutlass_study.claim_tests import Evidence, Finding, Selector, Span, change
from cutlass_study.config import UsageError
from cutlass_study.records import RESULT_COLUMNS, Regime, Sample
from cutlass_study.stats import CONFIDENCE, Ratios, median_interval, paired_ratios, valid
from cutlass_study.study_data import StudyData

_WORK = (
    "arch", "m", "n", "k", "layout", "output", "alpha", "beta", "distribution", "seed", "condition",
    "regime",
)  # fmt: skip
REGIMES: tuple[Regime, ...] = ("burst", "sustained")
NO_DATA = "no recorded data"
_DEFAULTS: dict[str, Any] = {
    "distribution": "uniform",
    "layout": "tn",
    "output": "f32",
    "alpha": 1,
    "beta": 0,
    "condition": "",  # how an experiment measured, empty for the study's own way
}


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """A measured row and the folder that holds its samples."""

    data: StudyData
    values: pd.Series[Any]

    @property
    def tflops(self) -> float:
        return float(self.values["tflops"])

    @property
    def flop(self) -> float:
        return 2.0 * int(self.values["m"]) * int(self.values["n"]) * int(self.values["k"])

    def samples(self) -> list[Sample]:
        return self.data.samples_of(
            str(self.values["name"]),
            self.values["regime"],
            distribution=str(self.values["distribution"]),
            seed=int(self.values["seed"]),
            condition=str(self.values["condition"]),
        )

    def work(self) -> tuple[str, ...]:
        """What a control must share with this row."""
        return tuple(str(self.values[column]) for column in _WORK)

    def control(self) -> list[Sample]:
        """Samples of cuBLAS's default algorithm on the same work; empty if there are none."""
        selector = {column: self.values[column] for column in _WORK if column != "regime"}
        selector |= {"family": "cublas", "variant": "default"}
        found = measured_rows(self.data, selector, self.values["regime"])
        return found[0].samples() if found else []

    @property
    def label(self) -> str:
        """`sm80 256×128×32 S=3 width 4`: what tells rows apart in a sentence."""
        values = self.values
        if values["family"] == "cublas":
            return "cuBLAS" if values["variant"] == "default" else "cuBLASLt's best"
        parts = [str(values["family"])]
        parts += [str(values["variant"])] if values["variant"] else []
        parts += [str(values["threadblock_shape"]).replace("x", "×")]
        cluster = str(values["cluster_shape"])
        parts += [f"cluster {cluster.replace('x', '×')}"] if cluster else []
        parts += [str(values["schedule"])] if values["schedule"] else []
        parts += [f"S={values['stages']}"] if values["stages"] else []
        width = values["epilogue_width"]
        parts += [] if pd.isna(width) else [f"width {int(width)}"]
        if values["family"] == "wgmma":  # its warpgroups, told by the threads, and its epilogue
            parts += [f"{int(values['threads'])} threads", str(values["epilogue"])]
        return " ".join(parts)


def named(row: Row, other: Row) -> str:
    """The row's label, with what of its work the other one does not share."""
    parts = []
    for column, name in (("n", "N="), ("distribution", ""), ("beta", "beta="), ("source_c", "C ")):
        value = row.values[column]
        if value != other.values[column] and value != "":
            parts.append(f"{name}{value:g}" if column == "beta" else f"{name}{value}")
    return f"{row.label} ({', '.join(parts)})" if parts else row.label


def check_selector(selector: Selector) -> None:
    """Raise UsageError for a column that results don't have."""
    unknown = sorted(set(selector) - {*RESULT_COLUMNS, "extent"})
    if unknown:
        raise UsageError(f"a claim selects rows by '{unknown[0]}', which is no column of results")


def select(frame: pd.DataFrame, selector: Selector) -> pd.DataFrame:
    """Rows that have every value wanted; a list means any of them.

    `extent` is the N of a square problem, `beta = "nonzero"` any but 0. Unless selected, inputs
    are uniform, the layout tn, the output f32, alpha 1, beta 0 and the condition the study's own.
    """
    check_selector(selector)
    wanted: dict[str, Any] = {**_DEFAULTS, **selector}
    extent = wanted.pop("extent", None)
    if extent is not None:
        wanted |= {"m": extent, "n": extent, "k": extent}
    keep = pd.Series(True, index=frame.index)
    for column, value in wanted.items():
        if column == "beta" and value == "nonzero":
            keep &= frame["beta"].fillna(0) != 0
            continue
        values = value if isinstance(value, list) else [value]
        if pd.api.types.is_numeric_dtype(frame[column]):
            keep &= frame[column].isin(values).fillna(False).astype(bool)
        else:
            keep &= frame[column].isin([str(one) for one in values])
    return frame[keep]


def measured_rows(data: StudyData, selector: Selector, regime: Regime) -> list[Row]:
    """Verified, timed rows of a regime, fastest first."""
    return [Row(data, row) for _, row in select(_timed(data, regime), selector).iterrows()]


@lru_cache(maxsize=16)  # an audit asks hundreds of times
def _timed(data: StudyData, regime: Regime) -> pd.DataFrame:
    frame = data.results
    wanted = (frame["outcome"] == "ok") & (frame["regime"] == regime) & frame["tflops"].notna()
    return frame[wanted].sort_values("tflops", ascending=False, kind="stable")


def fastest(evidence: Evidence, regime: Regime, *selectors: Selector) -> tuple[Row, ...] | None:
    """The fastest row of each selector, all from the first folder that has every one of them."""
    for data in evidence.measured:
        found = [measured_rows(data, selector, regime) for selector in selectors]
        if all(found):
            return tuple(rows[0] for rows in found)
    return None


@dataclass(frozen=True, slots=True)
class Ratio:
    """Throughput of one row over another: median and corrected interval, None if too few rounds.

    `how`: paired within rounds; through cuBLAS, which both met in their own rounds; or unpaired,
    where no drift cancels.
    """

    value: float
    span: Span | None
    how: str

    @property
    def decided(self) -> str:
        """`faster`, `slower`, or empty where the interval holds a tie or there is none."""
        if self.span is None:
            return ""
        return "faster" if self.span.low > 1 else "slower" if self.span.high < 1 else ""

    def change(self) -> str:
        """`−2.0 % [−2.4 %, −1.6 %], unpaired`: the ratio as a change."""
        note = "" if self.how == "paired" else f", {self.how}"
        if self.span is None:
            return f"{change(self.value - 1)}{note}"
        low, high = change(self.span.low - 1), change(self.span.high - 1)
        return f"{change(self.value - 1)} [{low}, {high}]{note}"

    def text(self, digits: int = 3) -> str:
        note = "" if self.how == "paired" else f", {self.how}"
        if self.span is None:
            return f"ratio {self.value:.{digits}f}{note}, too few rounds for an interval"
        low, high = self.span.low, self.span.high
        return f"ratio {self.value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]{note}"


def ratio_of(row: Row, reference: Row, comparisons: int) -> Ratio:
    """`row` over `reference` in throughput, so that their problems may differ.

    Paired where both stand in enough rounds. Rows that adaptive sampling put into different rounds
    are compared through the cuBLAS control of each, if the work is the same, else unpaired.
    """
    error = (1 - CONFIDENCE) / max(comparisons, 1)
    flops = row.flop / reference.flop
    own, other = row.samples(), reference.samples()
    direct = paired_ratios(own, other) * flops
    span = _span(direct, error)
    if span is not None:
        return Ratio(float(np.median(direct)), span, "paired")
    controls = row.control(), reference.control()
    if controls[0] and controls[1] and row.work() == reference.work():
        a, b = paired_ratios(own, controls[0]), paired_ratios(other, controls[1])
        how = "through cuBLAS"
    else:
        a, b = (flops / _times(own), 1 / _times(other))
        how = "unpaired"
    if not len(a) or not len(b):
        return Ratio(row.tflops / reference.tflops, None, "unpaired")
    return Ratio(float(np.median(a) / np.median(b)), _quotient_span(a, b, error), how)


def sampled_ratio(row: Row, reference: Row, quantity: str, comparisons: int) -> Ratio | None:
    """`row` over `reference` in a field of their samples, unpaired; None if one has no value."""
    a, b = _sampled(row, quantity), _sampled(reference, quantity)
    if not len(a) or not len(b):
        return None
    error = (1 - CONFIDENCE) / max(comparisons, 1)
    return Ratio(float(np.median(a) / np.median(b)), _quotient_span(a, b, error), "unpaired")


def _sampled(row: Row, quantity: str) -> Ratios:
    values = (getattr(sample, quantity) for sample in valid(row.samples()))
    return np.array([value for value in values if value])


def _quotient_span(a: Ratios, b: Ratios, error: float) -> Span | None:
    """Hodges–Lehmann interval of a/b for independent samples; None where there are too few.

    Source: Conover, Practical Nonparametric Statistics, section 5.4, large-sample rank.
    """
    count = len(a) * len(b)
    spread = math.sqrt(count * (len(a) + len(b) + 1) / 12)
    rank = math.floor(count / 2 - float(normal.isf(error / 2)) * spread)
    if rank < 1:
        return None
    quotients = np.sort(np.divide.outer(a, b).ravel())
    return Span(float(quotients[rank - 1]), float(quotients[-rank]))


def _times(samples: list[Sample]) -> Ratios:
    return np.array([sample.time_ms for sample in valid(samples)])


def _span(values: Ratios, error: float) -> Span | None:
    low, high = median_interval(values, 1 - error)
    return None if math.isinf(high) else Span(low, high)


@dataclass(frozen=True, slots=True)
class Part:
    """What one regime says; `holds` None where it can't tell."""

    holds: bool | None
    text: str


def by_regime(judge: Callable[[Regime], Part | None], *, exists: bool = False) -> Finding:
    """One finding from both regimes: a claim made without conditions must hold in each.

    With `exists` it says that something occurs, so one regime is enough. A regime that can't tell
    counts neither way: the verdict rests on the other one, and the text says so. `judge` gives None
    where nothing is recorded.
    """
    parts = {regime: part for regime in REGIMES if (part := judge(regime))}
    if not parts:
        return Finding(None, "", NO_DATA)
    text = "; ".join(f"{regime}: {part.text}" for regime, part in parts.items())
    told = [part.holds for part in parts.values() if part.holds is not None]
    if not told:
        return Finding(None, text, "no regime can tell: measure more rounds")
    for regime, part in parts.items():
        text += f"; the {regime} regime can't tell" if part.holds is None else ""
    if exists:
        return Finding(any(told), text)
    if len(set(told)) > 1:
        text += "; the regimes disagree, so the claim does not hold as stated"
    return Finding(all(told), text)
