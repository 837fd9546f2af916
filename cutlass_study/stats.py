"""From raw samples to derived columns and verdicts; pure functions.

Ratios are paired: within each round the control's time is divided by the configuration's, so
that a drift of clocks cancels; more than 1 means faster than the control. All ratios here are
between kernels of one problem (output type included), distribution, seed and regime, and every
kernel of the study accumulates in FP32, so that like is compared with like.

Two intervals are used. Published ones are percentile bootstraps of the median. The stop rule and
verdicts use the binomial order-statistic interval: a sign test turned round, exact for any
distribution, instant, and infinite where there are too few rounds for the confidence asked.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import median
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats as scipy_stats

from cutlass_study.conditions import LABEL
from cutlass_study.config import GemmProblem
from cutlass_study.records import Identity, Sample

CONFIDENCE = 0.95
RESAMPLES = 2000
LAUNCH_BOUND = 1.25  # a host time so much above the GPU's means that launching set the pace
MIN_ROUNDS = 6  # fewest rounds that allow a 95 % interval of a median: 2·0.5^6 ≤ 0.05

Ratios = NDArray[np.float64]
Verdict = Literal["faster", "slower", "tie"]


@dataclass(frozen=True, slots=True)
class Derived:
    """The derived columns of one configuration in one regime (records.RESULT_COLUMNS)."""

    time_ms: float
    time_iqr_ms: float
    tflops: float
    samples: int
    host_time_ms: float | None = None
    launch_bound: bool | None = None  # None where no host time was taken
    ratio_to_cublas: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    sm_clock_mhz: float | None = None
    power_w: float | None = None
    energy_j: float | None = None
    flop_per_clk_sm: float | None = None
    peak_share: float | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """A against B: `ratio` is the median of B's time over A's, None without common rounds.

    `low` and `high` bound it at the corrected confidence; they are 0 and infinity where there
    are too few rounds for it. `p_value` is of the two-sided sign test, uncorrected.
    """

    ratio: float | None
    low: float
    high: float
    rounds: int
    p_value: float
    verdict: Verdict


def tflops(problem: GemmProblem, time_ms: float) -> float:
    """2·m·n·k / time / 10^12, time per launch in milliseconds."""
    return problem.flop / time_ms / 1e9


def valid(samples: Iterable[Sample]) -> list[Sample]:
    """Samples that no filter rejected and whose time can be one."""
    return [
        sample
        for sample in samples
        if not sample.rejected and math.isfinite(sample.time_ms) and sample.time_ms > 0
    ]


def why_none_valid(samples: Sequence[Sample]) -> str:
    """`no valid samples (throttled: 25 of 25)`: the reason of a row without numbers."""
    if not samples:
        return "no valid samples (none was taken)"
    counts = Counter(sample.rejected or "impossible time" for sample in samples)
    causes = [f"{cause}: {count} of {len(samples)}" for cause, count in counts.most_common()]
    return f"no valid samples ({', '.join(causes)})"


def is_control_of(control: Identity, identity: Identity) -> bool:
    """Whether `control` is cuBLAS's default algorithm on the very same work."""
    return (
        control.config.family == "cublas"
        and control.config.variant == "default"
        and control.problem == identity.problem
        and control.arch == identity.arch
        and control.distribution == identity.distribution
        and control.seed == identity.seed
        and control.condition == control_condition(identity.condition)
    )


def control_condition(condition: str) -> str:
    """The condition a row's control was measured under: the same one, labels aside.

    Experiments write "<condition>, label <n>" for a control under another name.
    """
    return condition.partition(LABEL)[0]


def paired_ratios(samples: Iterable[Sample], control: Iterable[Sample]) -> Ratios:
    """Control time over own time in every round that has both, in order of rounds.

    Several valid samples of one kernel in a round count as their median. Raises ValueError for
    samples of more than one regime.
    """
    own, other = valid(samples), valid(control)
    regimes = {sample.regime for sample in (*own, *other)}
    if len(regimes) > 1:
        raise ValueError(f"samples of different regimes were paired: {sorted(regimes)}")
    own_times, other_times = _round_times(own), _round_times(other)
    common = sorted(own_times.keys() & other_times.keys())
    return np.array([other_times[number] / own_times[number] for number in common])


def _round_times(samples: Iterable[Sample]) -> dict[int, float]:
    times: dict[int, list[float]] = {}
    for sample in samples:
        times.setdefault(sample.round, []).append(sample.time_ms)
    return {number: median(values) for number, values in times.items()}


def bootstrap_interval(ratios: Ratios, *, seed: int = 0) -> tuple[float, float] | None:
    """95 % percentile bootstrap interval of the median; None below MIN_ROUNDS values.

    With fewer rounds even their whole range is no 95 % interval, so none is claimed. BCa is not
    used: its jackknife is not consistent for a median.
    """
    if len(ratios) < MIN_ROUNDS:
        return None
    interval = scipy_stats.bootstrap(
        (ratios,),
        np.median,
        vectorized=True,
        n_resamples=RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return float(interval.low), float(interval.high)


@lru_cache(maxsize=4096)
def _order_statistic(count: int, confidence: float) -> int:
    """The 1-based rank from either end that bounds a median of `count` values; 0 if none does."""
    return int(scipy_stats.binom.ppf((1 - confidence) / 2, count, 0.5))


def median_interval(
    ratios: Sequence[float] | Ratios, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Order-statistic interval of the median; (0, inf) where no pair of values is wide enough.

    Ranks r and n+1-r with P(Binomial(n, 1/2) < r) ≤ (1-confidence)/2 (Conover, Practical
    Nonparametric Statistics, section 3.2). Coverage is at least `confidence`.
    """
    rank = _order_statistic(len(ratios), confidence)
    if rank < 1:
        return 0.0, math.inf
    ordered = sorted(float(ratio) for ratio in ratios)
    return ordered[rank - 1], ordered[-rank]


def interval_half_width(ratios: Sequence[float] | Ratios, confidence: float = CONFIDENCE) -> float:
    """Half the width of `median_interval`, relative to the median: the sweep's stop rule.

    Infinite below MIN_ROUNDS values, so that no run stops before an interval exists.
    """
    low, high = median_interval(ratios, confidence)
    if math.isinf(high):
        return math.inf
    return (high - low) / 2 / median(float(ratio) for ratio in ratios)


def peak_share(
    achieved_tflops: float,
    sm_count: int,
    flop_per_clk_sm: float | None,
    sm_clock_mhz: float | None,
) -> float | None:
    """Share of the arithmetic peak at the clock that was delivered; None if either is unknown."""
    if not flop_per_clk_sm or not sm_clock_mhz:
        return None
    return achieved_tflops * 1e6 / (sm_count * flop_per_clk_sm * sm_clock_mhz)


def flop_per_clk_sm(problem: GemmProblem, samples: Iterable[Sample], sm_count: int) -> float | None:
    """Median FLOP per delivered clock cycle and SM; None where no clock was delivered."""
    if not sm_count:
        return None
    cycles = [
        sample.time_ms * sample.sm_clock_mhz * 1000 if sample.sm_clock_mhz else None
        for sample in samples
    ]
    middle = _median_of(cycles)
    return problem.flop / middle / sm_count if middle else None


def derive(
    problem: GemmProblem,
    samples: Sequence[Sample],
    control: Sequence[Sample],
    *,
    seed: int = 0,
    sm_count: int = 0,
    peak_flop_per_clk_sm: float | None = None,
) -> Derived | None:
    """Derived columns of one configuration in one regime; None if no sample is valid.

    `control` holds the control's samples of the same regime, empty if there is none: then the
    row has no ratio. The interval needs MIN_ROUNDS rounds in common.
    """
    kept = valid(samples)
    if not kept:
        return None
    times = [sample.time_ms for sample in kept]
    time_ms = median(times)
    quarter, three_quarters = np.percentile(times, [25, 75])
    achieved = tflops(problem, time_ms)
    clock = _median_of([sample.sm_clock_mhz for sample in kept])
    host_time_ms = _median_of([sample.host_ms for sample in kept])
    ratios = paired_ratios(kept, control)
    interval = bootstrap_interval(ratios, seed=seed)
    return Derived(
        time_ms=time_ms,
        time_iqr_ms=float(three_quarters - quarter),
        tflops=achieved,
        samples=len(kept),
        host_time_ms=host_time_ms,
        launch_bound=None if host_time_ms is None else host_time_ms > LAUNCH_BOUND * time_ms,
        ratio_to_cublas=float(np.median(ratios)) if len(ratios) else None,
        ratio_low=interval[0] if interval else None,
        ratio_high=interval[1] if interval else None,
        sm_clock_mhz=clock,
        power_w=_median_of([sample.power_w for sample in kept]),
        energy_j=_median_of([sample.energy_j for sample in kept]),
        flop_per_clk_sm=flop_per_clk_sm(problem, kept, sm_count),
        peak_share=peak_share(achieved, sm_count, peak_flop_per_clk_sm, clock),
    )


def _median_of(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def compare(a: Iterable[Sample], b: Iterable[Sample], *, comparisons: int = 1) -> Comparison:
    """Is A faster than B? Paired within rounds, one regime, one problem.

    `comparisons` is how many such questions are asked together: the confidence of each is raised
    to 1 - 0.05/comparisons (Bonferroni), so that a false "faster" or "slower" among all of them
    has a probability of at most 5 %. "tie" also stands for too few rounds to tell.
    """
    ratios = paired_ratios(a, b)
    low, high = median_interval(ratios, 1 - (1 - CONFIDENCE) / max(comparisons, 1))
    verdict: Verdict = "faster" if low > 1 else "slower" if high < 1 else "tie"
    decided = ratios[ratios != 1]
    p_value = 1.0
    if len(decided):
        p_value = float(scipy_stats.binomtest(int((decided > 1).sum()), len(decided)).pvalue)
    ratio = float(np.median(ratios)) if len(ratios) else None
    return Comparison(ratio, low, high, len(ratios), p_value, verdict)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjusted p-values, in the order given; compare each with 0.05."""
    adjusted = [0.0] * len(p_values)
    running = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = running
    return adjusted
