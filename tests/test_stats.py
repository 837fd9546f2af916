from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from cutlass_study.config import GemmConfig, GemmProblem
from cutlass_study.stats import (
    bootstrap_interval,
    compare,
    derive,
    holm,
    interval_half_width,
    is_control_of,
    median_interval,
    paired_ratios,
    peak_share,
    tflops,
    why_none_valid,
)
from tests.sweep_records import CUBLAS, PROBLEM, identity, noisy, sample, samples, sm80


@pytest.mark.parametrize(
    ("problem", "time_ms", "expected"),
    [
        (GemmProblem(4096, 4096, 4096), 1.000, 137.439),
        (GemmProblem(256, 128, 64), 0.001, 4.194),
        (GemmProblem(8192, 8192, 8192), 1.4777, 744.07),
    ],
)
def test_tflops_of_known_cases(problem: GemmProblem, time_ms: float, expected: float) -> None:
    assert tflops(problem, time_ms) == pytest.approx(expected, abs=6e-3 if expected > 700 else 5e-4)


def test_derived_columns_of_known_samples() -> None:
    own = samples([2.0, 1.0, 4.0, 3.0, 2.5])
    control = samples([1.0, 1.0, 2.0, 3.0, 5.0])
    derived = derive(PROBLEM, own, control, sm_count=24, peak_flop_per_clk_sm=512)
    assert derived is not None
    assert derived.time_ms == 2.5
    assert derived.time_iqr_ms == 1.0
    assert derived.samples == 5
    assert derived.tflops == pytest.approx(137.438953472 / 2.5)
    assert derived.host_time_ms == pytest.approx(2.51)
    assert derived.ratio_to_cublas == 1.0  # of 0.5, 1, 0.5, 1, 2
    assert derived.ratio_low is None  # five rounds allow no 95 % interval
    assert derived.sm_clock_mhz == 2500
    assert derived.power_w == 115.25
    assert derived.peak_share == pytest.approx(54.9755813888 / (24 * 512 * 2.5e9 / 1e12))


def test_ratios_pair_rounds_so_that_drift_cancels() -> None:
    drift = np.linspace(1, 1.4, 30)
    control, own = samples(1.0 * drift), samples(1.02 * drift)
    ratios = paired_ratios(own[5:], control[:25])
    assert ratios == pytest.approx(np.full(20, 1 / 1.02))
    derived = derive(PROBLEM, own, control)
    assert derived is not None
    assert derived.ratio_low == pytest.approx(1 / 1.02)
    assert derived.ratio_high == pytest.approx(1 / 1.02)


def test_several_control_samples_in_a_round_count_as_one() -> None:
    control = [sample(0, 1.0), sample(0, 3.0), sample(1, 2.0), sample(2, 9.0, rejected="throttled")]
    assert list(paired_ratios(samples([1.0, 1.0, 1.0]), control)) == [2.0, 2.0]


def test_regimes_are_never_paired() -> None:
    with pytest.raises(ValueError, match="different regimes"):
        paired_ratios(samples([1.0]), samples([1.0], regime="sustained"))


def test_rejected_and_impossible_samples_do_not_count() -> None:
    own = [*samples([1.0, 0.0]), sample(2, 0.1, rejected="throttled"), sample(3, math.nan)]
    derived = derive(PROBLEM, own, [])
    assert derived is not None
    assert (derived.samples, derived.time_ms, derived.ratio_to_cublas) == (1, 1.0, None)
    rejected = samples([1.0, 1.0, 1.0], rejected="throttled")
    assert derive(PROBLEM, rejected, samples([1.0])) is None
    assert why_none_valid(rejected) == "no valid samples (throttled: 3 of 3)"


def test_the_control_is_cublas_default_on_the_same_work() -> None:
    own = identity(sm80())
    control = identity(CUBLAS)
    assert is_control_of(control, own)
    assert is_control_of(control, control)
    best = GemmConfig(family="cublas", variant="lt_best")
    assert not is_control_of(identity(best), own)
    for change in (
        {"problem": replace(PROBLEM, output="f16")},
        {"problem": replace(PROBLEM, layout="nn")},
        {"distribution": "zeros"},
        {"seed": 2},
        {"arch": "sm_90a"},
    ):
        assert not is_control_of(identity(CUBLAS, **change), own)


def test_bootstrap_interval_is_seeded_and_brackets_the_median() -> None:
    ratios = np.random.default_rng(3).normal(1.01, 0.005, 25)
    low, high = bootstrap_interval(ratios, seed=7) or (0, 0)
    assert (low, high) == bootstrap_interval(ratios, seed=7)
    assert low < np.median(ratios) < high
    assert high - low < 0.012
    assert bootstrap_interval(np.ones(6)) == (1.0, 1.0)
    assert bootstrap_interval(np.ones(5)) is None


def test_three_hundred_rows_are_quick() -> None:
    control = noisy(1.0, 25, seed=0)
    start = time.perf_counter()
    for row in range(300):
        assert derive(PROBLEM, noisy(1.1, 25, seed=row), control) is not None
    assert time.perf_counter() - start < 10


def test_half_width_for_the_stop_rule() -> None:
    ratios = list(np.random.default_rng(1).normal(1, 0.01, 25))
    low, high = median_interval(ratios)
    assert interval_half_width(ratios) == pytest.approx((high - low) / 2 / np.median(ratios))
    assert interval_half_width(ratios[:5]) == math.inf
    assert interval_half_width([]) == math.inf
    start = time.perf_counter()
    for _ in range(100):
        interval_half_width(ratios)
    assert (time.perf_counter() - start) / 100 < 2e-3


@given(st.integers(1, 200), st.sampled_from([0.8, 0.95, 0.99, 1 - 0.05 / 300]))
def test_order_statistic_interval_has_its_exact_coverage(count: int, confidence: float) -> None:
    low, high = median_interval(list(np.arange(1.0, count + 1)), confidence)
    allowed = (1 - confidence) / 2
    if math.isinf(high):
        assert binom.cdf(0, count, 0.5) > allowed
    else:
        assert low + high == count + 1
        assert binom.cdf(low - 1, count, 0.5) <= allowed < binom.cdf(low, count, 0.5)


def test_verdicts() -> None:
    slow, quick = noisy(1.05, 25, seed=1), noisy(1.0, 25, seed=2)
    assert compare(quick, slow).verdict == "faster"
    assert compare(slow, quick).verdict == "slower"
    assert compare(slow, slow).verdict == "tie"
    faster = compare(quick, slow, comparisons=100)
    assert faster.verdict == "faster"
    assert faster.low < compare(quick, slow).low
    assert faster.ratio == pytest.approx(1.05, abs=0.01)
    few = compare(quick[:5], slow[:5])
    assert (few.verdict, few.low, few.high, few.rounds) == ("tie", 0, math.inf, 5)
    none = compare(quick[:5], slow[5:])
    assert (none.ratio, none.verdict, none.p_value) == (None, "tie", 1.0)


def test_shuffled_labels_give_no_more_false_verdicts_than_nominal() -> None:
    """Which of two samples of a round is A's is tossed: every verdict but a tie is false."""
    rng = np.random.default_rng(11)
    trials, rounds = 1500, 25
    false = false_corrected = 0
    for _ in range(trials):
        drift = np.cumsum(rng.normal(0, 0.01, rounds)) + 2
        times = np.stack([drift * rng.lognormal(0, s, rounds) for s in (0.01, 0.03)])
        times = rng.permuted(times, axis=0)
        a, b = samples(times[0]), samples(times[1])
        false += compare(a, b).verdict != "tie"
        false_corrected += compare(a, b, comparisons=50).verdict != "tie"
    # 99.9 % point of what 5 % (0.1 %) gives by chance
    assert false <= binom.ppf(0.999, trials, 0.05)
    assert false_corrected <= binom.ppf(0.999, trials, 0.05 / 50)


def test_holm_against_a_worked_example() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
    assert holm([0.7, 0.9]) == [1.0, 1.0]


def test_peak_share_needs_the_delivered_clock() -> None:
    assert peak_share(709, 132, 4096, 1553) == pytest.approx(0.8444, abs=1e-4)
    assert peak_share(709, 132, None, 1553) is None
    assert peak_share(709, 132, 4096, None) is None


@pytest.mark.parametrize(("host_ms", "bound"), [(1.2, False), (1.3, True), (None, None)])
def test_a_row_is_launch_bound_if_the_host_sets_the_pace(host_ms: float | None, bound: Any) -> None:
    derived = derive(PROBLEM, samples([1.0] * 8, host_ms=host_ms), [])
    assert derived is not None
    assert derived.launch_bound is bound
