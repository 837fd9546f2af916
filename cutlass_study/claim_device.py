"""Tests of what else was recorded: shares of peak, host-side times, errors, the device, models."""

from __future__ import annotations

import math

import numpy as np

from cutlass_study.claim_rows import (
    NO_DATA,
    REGIMES,
    Part,
    by_regime,
    fastest,
    measured_rows,
    ratio_of,
)
from cutlass_study.claim_tests import (
    Evidence,
    Finding,
    Selector,
    change,
    percent,
    printed,
    register,
)
from cutlass_study.config import UsageError
from cutlass_study.peaks import nominal_flop_per_clk_sm
from cutlass_study.records import Regime

_COUNTED = {"sm_count": "SMs"}  # fields of the device's record that are numbers of something


@register
def device_field(evidence: Evidence, *, field: str, value: float) -> Finding:
    """A number of the device's record, as queried when measuring."""
    device = evidence.device
    if device is None:
        return Finding(None, "", NO_DATA)
    if field not in _COUNTED:
        raise UsageError(
            f"a claim speaks of the device's '{field}'; known are {', '.join(_COUNTED)}"
        )
    found = getattr(device, field)
    text = f"{device.name} has {found:g} {_COUNTED[field]}; claimed {value:g}"
    return Finding(found == value, text)


@register
def error_below(evidence: Evidence, *, kernel: Selector, bound: float) -> Finding:
    """Whether every matching row's largest relative error is below `bound`, failures counted."""
    errors: list[float] = []
    wrong = 0
    for data in evidence.measured:
        rows = [row for regime in REGIMES for row in measured_rows(data, kernel, regime)]
        found = [float(row.values["max_rel_error"]) for row in rows]
        errors += [error for error in found if not math.isnan(error)]
        same_family = data.results["family"] == kernel["family"]
        wrong += int((same_family & (data.results["outcome"] == "wrong_result")).sum())
    if not errors and not wrong:
        return Finding(None, "", NO_DATA)
    largest = max(errors, default=float("nan"))
    text = (
        f"largest relative error {_decimal(largest)} over {len(errors)} rows, {wrong} wrong "
        f"results; bound {_decimal(bound)}"
    )
    if largest < bound / 100:
        text += f", which is {bound / largest:,.0f} times looser than needed"
    return Finding(not wrong and largest <= bound, text)


def _decimal(value: float) -> str:
    """Two digits, without an exponent."""
    return np.format_float_positional(value, precision=2, fractional=False, trim="-")


@register
def host_timing(evidence: Evidence, *, among: Selector, effect: str) -> Finding:
    """Whether host-side times shift kernels against each other by less than the effect claimed.

    What all kernels share cancels in a ratio; the spread of host over event time does not.
    """

    def judge(regime: Regime) -> Part | None:
        for data in evidence.measured:
            rows = [
                row for row in measured_rows(data, among, regime) if row.values["host_time_ms"] > 0
            ]
            if len(rows) < 2:
                continue
            extra = [
                float(row.values["host_time_ms"]) / float(row.values["time_ms"]) - 1 for row in rows
            ]
            spread = (1 + max(extra)) / (1 + min(extra)) - 1
            text = (
                f"host-side times exceed CUDA events by {change(min(extra))} to "
                f"{change(max(extra))} over {len(rows)} rows, so they can shift a ratio by "
                f"{percent(spread)}, the effect claimed is {effect}"
            )
            return Part(spread < printed(effect).low, text)
        return None

    return by_regime(judge)


@register
def gap_closed(
    evidence: Evidence, *, slow: Selector, remedied: Selector, fast: Selector, least: float
) -> Finding:
    """Which share of the gap from `slow` to `fast` the remedy closes; at least `least` claimed."""

    def judge(regime: Regime) -> Part | None:
        found = fastest(evidence, regime, slow, remedied, fast)
        if found is None:
            return None
        low, better, high = found
        gain = ratio_of(better, low, evidence.comparisons).value
        gap = ratio_of(high, low, evidence.comparisons).value
        if gap <= 1:
            return Part(None, f"{low.label} is no slower than {high.label}: no gap to explain")
        share = (gain - 1) / (gap - 1)
        text = (
            f"{low.label} {low.tflops:.1f}, {better.label} {better.tflops:.1f}, {high.label} "
            f"{high.tflops:.1f} TFLOPS: the remedy closes {percent(share, 0)} of the gap"
        )
        return Part(share >= least, text)

    return by_regime(judge)


@register
def share_at_delivered_clock(
    evidence: Evidence, *, kernel: Selector, share: str, tolerance: float
) -> Finding:
    """Share of what the card's `mma.sync` reaches, at the clock that the kernel was given."""
    rate = evidence.mma_rate

    def judge(regime: Regime) -> Part | None:
        found = fastest(evidence, regime, kernel)
        if found is None or not rate or not found[0].values["flop_per_clk_sm"] > 0:
            return None
        own, clock = (float(found[0].values[name]) for name in ("flop_per_clk_sm", "sm_clock_mhz"))
        value = own / rate
        at_clock = f" at its delivered {clock:,.0f} MHz" if clock > 0 else ""
        claimed = printed(share).widened(tolerance)
        text = (
            f"{found[0].label} reaches {percent(value)} of the mma.sync rate ({own:,.0f} of "
            f"{rate:,.0f} FLOP/clk/SM, FP32 accumulate){at_clock}, claimed "
            f"{share} ± {100 * tolerance:g} points"
        )
        return Part(claimed.low <= value <= claimed.high, text)

    return by_regime(judge)


@register
def below_peak(evidence: Evidence, *, among: Selector) -> Finding:
    """Whether the fastest row stays below the documented peak at the card's maximum clock."""
    device = evidence.device
    rate = nominal_flop_per_clk_sm(device.name) if device else None

    def judge(regime: Regime) -> Part | None:
        found = fastest(evidence, regime, among)
        if found is None or device is None or not rate or not device.max_sm_clock_mhz:
            return None
        peak = device.sm_count * rate * device.max_sm_clock_mhz / 1e6
        value = found[0].tflops
        text = (
            f"{found[0].label} has {value:.1f} TFLOPS, {percent(value / peak, 0)} of the "
            f"{peak:.1f} that {device.sm_count} SMs × {rate} FLOP/clk give at "
            f"{device.max_sm_clock_mhz:,.0f} MHz"
        )
        return Part(value < peak, text)

    return by_regime(judge)


@register
def model_prediction(
    evidence: Evidence,
    *,
    kernel: Selector,
    kappa: float,
    anchor: int,
    depth: int,
    error: str,
    tolerance: float,
) -> Finding:
    """Error at S=`depth` of S/(S+κ) through the measured S=`anchor`: as printed ± `tolerance`."""

    def judge(regime: Regime) -> Part | None:
        chosen = [{**kernel, "stages": str(one)} for one in (anchor, depth)]
        found = fastest(evidence, regime, *chosen)
        if found is None:
            return None
        base, target = found
        factor = depth / (depth + kappa) * (anchor + kappa) / anchor
        relative = ratio_of(target, base, evidence.comparisons).value
        off, claimed = factor / relative - 1, printed(error).widened(tolerance)
        text = (
            f"κ={kappa:g} fixed at S={anchor} ({base.tflops:.1f} TFLOPS) predicts "
            f"{base.tflops * factor:.1f} at S={depth}, measured {target.tflops:.1f}: "
            f"{change(off)}, claimed {error} ± {100 * tolerance:g} points"
        )
        return Part(claimed.low <= off <= claimed.high, text)

    return by_regime(judge)


@register
def interleaving_fails(evidence: Evidence) -> Finding:
    """Whether interleaving two libraries on Windows, under a watchdog, lost launches."""
    device = evidence.device
    if device is None:
        return Finding(None, "", NO_DATA)
    frames = [data.results for data in evidence.measured]
    tried = [frame[frame["condition"] == "interleaved"] for frame in frames]
    count = sum(len(frame) for frame in tried)
    lost = sum(int(frame["outcome"].isin(["launch_failed", "timeout"]).sum()) for frame in tried)
    text = (
        f"{device.operating_system.partition('-')[0]}, display watchdog "
        f"{'on' if device.watchdog else 'off'}, {count} rows measured interleaved, {lost} of them "
        "lost to failed or timed-out launches"
    )
    if not count:
        return Finding(None, text, NO_DATA)
    if not device.watchdog or not device.operating_system.startswith("Windows"):
        return Finding(None, text, "needs Windows with the display watchdog on")
    return Finding(lost > 0, text)
