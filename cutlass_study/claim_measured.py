"""Tests that measured rows decide, in each regime that was recorded."""

from __future__ import annotations

from itertools import pairwise

from cutlass_study.claim_rows import (
    Part,
    Row,
    by_regime,
    fastest,
    measured_rows,
    named,
    ratio_of,
)
from cutlass_study.claim_tests import Evidence, Finding, Selector, Span, percent, printed, register
from cutlass_study.records import Regime


@register
def best_configuration(evidence: Evidence, *, kernel: Selector, among: Selector) -> Finding:
    """Whether no other row of `among` is faster beyond doubt than the fastest of `kernel`."""

    def judge(regime: Regime) -> Part | None:
        found = fastest(evidence, regime, kernel, among)
        if found is None:
            return None
        own, top = found
        rivals = measured_rows(own.data, among, regime)
        faster = [row for row in rivals if row.tflops > own.tflops]
        text = f"{own.label} has {own.tflops:.1f} TFLOPS, rank {len(faster) + 1} of {len(rivals)}"
        if not faster:
            return Part(True, f"{text}; the fastest")
        ratio = ratio_of(top, own, evidence.comparisons + len(rivals))
        verdict = None if ratio.span is None else ratio.decided != "faster"
        return Part(verdict, f"{text}; {top.label} has {top.tflops:.1f} ({ratio.text()})")

    return by_regime(judge)


@register
def throughput(evidence: Evidence, *, kernel: Selector, tflops: str, tolerance: float) -> Finding:
    """TFLOPS of the fastest matching row, within a relative `tolerance` of the printed number."""

    def judge(regime: Regime) -> Part | None:
        found = fastest(evidence, regime, kernel)
        if found is None:
            return None
        value, claimed = found[0].tflops, printed(tflops)
        holds = claimed.low * (1 - tolerance) <= value <= claimed.high * (1 + tolerance)
        text = (
            f"{found[0].label} has {value:.1f} TFLOPS, claimed {tflops} ± {percent(tolerance, 0)}"
        )
        return Part(holds, text)

    return by_regime(judge)


@register
def speed_change(
    evidence: Evidence, *, kernel: Selector, reference: Selector, change: str, tolerance: float
) -> Finding:
    """Change of throughput from `reference` to `kernel`, within `tolerance` of the printed one.

    The interval must reach what is claimed, and the sign must be certain.
    """

    def judge(regime: Regime) -> Part | None:
        found = fastest(evidence, regime, kernel, reference)
        if found is None:
            return None
        own, base = found
        ratio = ratio_of(own, base, evidence.comparisons)
        claimed = printed(change).widened(tolerance)
        text = (
            f"{named(own, base)} {own.tflops:.1f}, {named(base, own)} {base.tflops:.1f} TFLOPS: "
            f"{ratio.change()}, claimed {change} ± {100 * tolerance:g} points (with its rounding "
            f"{percent(claimed.low)} to {percent(claimed.high)})"
        )
        if ratio.span is None:
            return Part(None, f"{text}; too few rounds for an interval")
        if not claimed.meets(Span(ratio.span.low - 1, ratio.span.high - 1)):
            return Part(False, text)
        sign = "faster" if printed(change).middle > 0 else "slower"
        return Part(True if ratio.decided == sign else None, text)

    return by_regime(judge)


@register
def same_speed(
    evidence: Evidence, *, kernel: Selector, reference: Selector, tolerance: float
) -> Finding:
    """Whether `kernel` and `reference` differ by no more than `tolerance`, a share."""

    def judge(regime: Regime) -> Part | None:
        found = fastest(evidence, regime, kernel, reference)
        if found is None:
            return None
        own, base = found
        if own.values["name"] == base.values["name"]:
            return Part(True, f"both are {own.label}, {own.tflops:.1f} TFLOPS")
        ratio = ratio_of(own, base, evidence.comparisons)
        text = (
            f"{own.label} {own.tflops:.1f}, {base.label} {base.tflops:.1f} TFLOPS: "
            f"{ratio.change()}, claimed equal ± {percent(tolerance)}"
        )
        if ratio.span is None:
            return Part(None, f"{text}; too few rounds for an interval")
        if not ratio.span.meets(Span(1 - tolerance, 1 + tolerance)):
            return Part(False, text)
        inside = 1 - tolerance <= ratio.span.low and ratio.span.high <= 1 + tolerance
        return Part(True if inside else None, text)

    return by_regime(judge)


@register
def faster(
    evidence: Evidence, *, kernel: Selector, reference: Selector, least: float = 1.0
) -> Finding:
    """Whether `kernel` beats `least` times `reference` beyond doubt."""

    def judge(regime: Regime) -> Part | None:
        found = fastest(evidence, regime, kernel, reference)
        if found is None:
            return None
        return _faster_part(found[0], found[1], least, evidence.comparisons)

    return by_regime(judge)


def _faster_part(own: Row, base: Row, least: float, comparisons: int) -> Part:
    ratio = ratio_of(own, base, comparisons)
    text = (
        f"{named(own, base)} {own.tflops:.1f}, {named(base, own)} {base.tflops:.1f} TFLOPS, "
        f"{ratio.text()}"
    )
    if ratio.span is None:
        return Part(None, text)
    holds = True if ratio.span.low > least else False if ratio.span.high < least else None
    return Part(holds, text)


@register
def ranking(evidence: Evidence, *, kernels: list[Selector]) -> Finding:
    """Whether each kernel is faster than the next one in the list."""

    def judge(regime: Regime) -> Part | None:
        rows = fastest(evidence, regime, *kernels)
        if rows is None:
            return None
        parts = [_faster_part(a, b, 1.0, evidence.comparisons) for a, b in pairwise(rows)]
        told = [part.holds for part in parts]
        holds = False if False in told else None if None in told else True
        return Part(holds, "; ".join(part.text for part in parts))

    return by_regime(judge)


@register
def some_deeper_is_slower(evidence: Evidence, *, among: Selector, stages: list[int]) -> Finding:
    """Whether some tile is slower with the deeper of two pipelines, all else equal."""

    def judge(regime: Regime) -> Part | None:
        pairs = _depth_pairs(evidence, regime, among, stages)
        if not pairs:
            return None
        ratios = [
            ratio_of(deep, shallow, evidence.comparisons + len(pairs)) for shallow, deep in pairs
        ]
        slower = [index for index, ratio in enumerate(ratios) if ratio.decided == "slower"]
        worst = min(range(len(pairs)), key=lambda index: ratios[index].value)
        unsure = sum(ratio.span is None for ratio in ratios)
        few = f" ({unsure} have too few rounds for a corrected interval)" if unsure else ""
        text = (
            f"S={stages[-1]} is surely slower than S={stages[0]} for {len(slower)} of {len(pairs)} "
            f"kernels{few}; the worst change is that of {pairs[worst][1].label}, "
            f"{ratios[worst].change()}"
        )
        none_is = all(ratio.decided == "faster" for ratio in ratios)
        return Part(True if slower else False if none_is else None, text)

    return by_regime(judge, exists=True)


def _depth_pairs(
    evidence: Evidence, regime: Regime, among: Selector, stages: list[int]
) -> list[tuple[Row, Row]]:
    same = ("threadblock_shape", "warp_shape", "epilogue_width", "alignment", "swizzle", "split_k")
    for data in evidence.measured:
        shallow, deep = (
            {
                tuple(str(row.values[column]) for column in same): row
                for row in measured_rows(data, {**among, "stages": str(depth)}, regime)
            }
            for depth in (stages[0], stages[-1])
        )
        if shallow.keys() & deep.keys():
            return [(shallow[key], deep[key]) for key in shallow if key in deep]
    return []


@register
def occupancy_is_not_speed(evidence: Evidence, *, among: Selector) -> Finding:
    """Whether the fastest row has less than the highest occupancy, and by how much it wins."""

    def judge(regime: Regime) -> Part | None:
        found = fastest(evidence, regime, among)
        if found is None:
            return None
        rows = [r for r in measured_rows(found[0].data, among, regime) if r.values["occupancy"] > 0]
        shares = [float(row.values["occupancy"]) for row in rows]
        if len(set(shares)) < 2:
            return None
        top, fullest = rows[0], rows[shares.index(max(shares))]
        text = (
            f"{top.label} is fastest with {percent(shares[0])} occupancy ({top.tflops:.1f} TFLOPS)"
        )
        if shares[0] == max(shares):
            return Part(False, f"{text}, the highest")
        ratio = ratio_of(top, fullest, evidence.comparisons)
        text += (
            f"; {fullest.label} has {percent(max(shares))} and {fullest.tflops:.1f}, {ratio.text()}"
        )
        return Part(ratio.decided == "faster", text)

    return by_regime(judge, exists=True)


@register
def largest_tile_is_not_best(evidence: Evidence, *, among: Selector) -> Finding:
    """Whether some tile beats, beyond doubt, the largest one that was measured."""

    def judge(regime: Regime) -> Part | None:
        found = fastest(evidence, regime, among)
        if found is None:
            return None
        rows = measured_rows(found[0].data, among, regime)
        top, largest = rows[0], max(rows, key=_volume)  # the first of the largest is its fastest
        if _volume(largest) == min(_volume(row) for row in rows):
            return None
        if top is largest:
            return Part(False, f"{top.label} is the fastest and the largest")
        ratio = ratio_of(top, largest, evidence.comparisons)
        text = f"fastest is {top.label}, largest tile {largest.label}: {ratio.text()}"
        return Part(ratio.decided == "faster", text)

    return by_regime(judge, exists=True)


def _volume(row: Row) -> tuple[int, int]:
    m, n, k = (int(part) for part in str(row.values["threadblock_shape"]).split("x"))
    return m * n, k
