"""Tests of clocks and power.

NVML's power counts in the sustained regime only: in a burst it averages over the idle gaps.
"""

from __future__ import annotations

from collections import Counter

from cutlass_study.claim_rows import (
    Part,
    Ratio,
    Row,
    by_regime,
    fastest,
    named,
    ratio_of,
    sampled_ratio,
)
from cutlass_study.claim_tests import Evidence, Finding, Selector, listed, percent, register
from cutlass_study.records import DeviceRecord, Regime
from cutlass_study.regimes import names_power
from cutlass_study.stats import valid


@register
def clock_below_maximum(evidence: Evidence, *, kernel: Selector) -> Finding:
    """Whether the power limit keeps the delivered clock below the card's maximum by 1 % or more.

    Sustained regime only, where the driver names power as the reason in most samples; where it
    names no reason at all, a low clock proves nothing.
    """
    device = evidence.device

    def judge(regime: Regime) -> Part | None:
        found = fastest(evidence, regime, kernel)
        if regime != "sustained" or found is None or device is None or not device.max_sm_clock_mhz:
            return None
        clock = float(found[0].values["sm_clock_mhz"])
        if not clock > 0:
            return None
        text = f"{found[0].label} ran at {clock:,.0f} of {device.max_sm_clock_mhz:,.0f} MHz"
        text += _power(found[0], device)
        below = clock < 0.99 * device.max_sm_clock_mhz
        return Part(below if not below or _limited(found[0]) else None, text)

    return by_regime(judge)


def _limited(row: Row) -> bool:
    """Whether NVML named power as a throttle reason in most samples."""
    samples = valid(row.samples())
    named = sum(names_power(sample.throttle_reasons) for sample in samples)
    return 2 * named > len(samples)


def _power(row: Row, device: DeviceRecord) -> str:
    """Power of its limit, and in how many samples NVML named which throttle reason."""
    power, limit = float(row.values["power_w"]), device.power_limit_w
    text = (f", {power:.0f}" + (f" of {limit:.0f}" if limit else "") + " W") if power > 0 else ""
    samples = valid(row.samples())
    reasons = Counter(sample.throttle_reasons for sample in samples if sample.throttle_reasons)
    if reasons:
        each = [f"{reason} in {count}" for reason, count in reasons.most_common()]
        text += f", throttle reason {listed(each)} of {len(samples)} samples"
    return text


@register
def faster_by_power(
    evidence: Evidence, *, kernel: Selector, reference: Selector, least: float
) -> Finding:
    """Whether `kernel` beats `reference` through a higher clock at no more power, beyond doubt.

    Power acts on speed through the clock alone: at the power limit both draw the limit and the
    clock differs. The clock must make up the share `least` of the gain. Sustained regime only.
    """

    def judge(regime: Regime) -> Part | None:
        found = fastest(evidence, regime, kernel, reference)
        if regime != "sustained" or found is None:
            return None
        own, base = found
        power, clock = (
            sampled_ratio(own, base, quantity, evidence.comparisons)
            for quantity in ("power_w", "sm_clock_mhz")
        )
        if power is None or clock is None:
            return None
        speed = ratio_of(own, base, evidence.comparisons)
        share = (clock.value - 1) / (speed.value - 1) if speed.value > 1 else 0.0
        text = (
            f"{_drawn(own, base)}, {_drawn(base, own)}: power {power.change()}; clock "
            f"{clock.change()}; speed {speed.change()}"
        )
        if speed.value > 1:
            text += f"; the clock makes up {percent(share, 0)} of the gain"
        return Part(_through_clock(speed, clock, power, share < least), text)

    return by_regime(judge)


def _drawn(row: Row, other: Row) -> str:
    power, clock = (float(row.values[name]) for name in ("power_w", "sm_clock_mhz"))
    return f"{named(row, other)} drew {power:.0f} W at {clock:,.0f} MHz"


def _through_clock(speed: Ratio, clock: Ratio, power: Ratio, little: bool) -> bool | None:
    if power.span is None or clock.span is None or speed.span is None:
        return None
    if power.span.low > 1 or "slower" in (clock.decided, speed.decided):
        return False
    if not speed.decided:
        return None
    if little:
        return False
    return True if clock.decided else None
