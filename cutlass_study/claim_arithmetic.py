"""Tests that arithmetic on the documents' own numbers and on data sheets decides."""

from __future__ import annotations

import math
from itertools import pairwise

from cutlass_study.claim_tests import (
    Evidence,
    Finding,
    Span,
    change,
    listed,
    number,
    percent,
    printed,
    register,
)
from cutlass_study.config import UsageError
from cutlass_study.gpus import limits_of
from cutlass_study.peaks import nominal_flop_per_clk_sm


def _about(tolerance: float, unit: str = "") -> str:
    if not tolerance:
        return ""
    return f" ± {100 * tolerance:g} points" if unit else f" ± {tolerance:g}"


def _shown(span: Span) -> str:
    return f"{number(span.low, '.4g')} to {number(span.high, '.4g')}"


@register
def quotient(
    evidence: Evidence,
    *,
    result: str,
    numerator: str,
    denominator: str,
    minus_one: bool = False,
    tolerance: float = 0.0,
) -> Finding:
    """`numerator`/`denominator`, or the change it stands for, against the printed `result`.

    All three stand for what rounds to them; they agree if some values within do. `tolerance` is
    in units of the result, for "about".
    """
    ratio = printed(numerator).over(printed(denominator))
    found = ratio.widened(0) if not minus_one else Span(ratio.low - 1, ratio.high - 1)
    claimed = printed(result).widened(tolerance)
    scale = 100 if "%" in result else 1
    unit = " %" if "%" in result else ""
    scaled = Span(found.low * scale, found.high * scale)
    text = (
        f"{numerator} / {denominator}{' − 1' if minus_one else ''} = "
        f"{number(scaled.middle, '.4g')}{unit} ({_shown(scaled)}{unit} within the rounding of the "
        f"printed numbers); claimed {result}{_about(tolerance, unit)}"
    )
    return Finding(claimed.meets(found), text)


@register
def difference(
    evidence: Evidence, *, minuend: str, subtrahend: str, result: str, tolerance: float = 0.0
) -> Finding:
    """`minuend` − `subtrahend` against the printed `result`, ± `tolerance` for "about"."""
    first, second = printed(minuend), printed(subtrahend)
    found = Span(first.low - second.high, first.high - second.low)
    claimed = printed(result).widened(tolerance)
    text = f"{minuend} − {subtrahend} = {number(found.middle)}; claimed {result}{_about(tolerance)}"
    return Finding(claimed.meets(found), text)


@register
def product(
    evidence: Evidence, *, factors: list[str], result: str, tolerance: float = 0.0
) -> Finding:
    """The product of numbers taken as exact against the printed `result`."""
    value = math.prod(printed(factor).middle for factor in factors)
    claimed = printed(result).widened(tolerance)
    text = f"{' × '.join(factors)} = {value:,.6g}; claimed {result}"
    return Finding(claimed.low <= value <= claimed.high, text)


@register
def one_baseline(evidence: Evidence, *, pairs: list[list[str]]) -> Finding:
    """Whether one reference fits every pair (TFLOPS, share of the reference) that is printed."""
    spans = [printed(value).over(printed(share)) for value, share in pairs]
    low, high = max(span.low for span in spans), min(span.high for span in spans)
    each = [
        f"{value} at {share} → {_shown(span)}"
        for (value, share), span in zip(pairs, spans, strict=True)
    ]
    middles = [span.middle for span in spans]
    spread = max(middles) / min(middles) - 1
    end = f"one reference of {low:.4g} to {high:.4g} fits all"
    if low > high:
        end = f"no single reference fits: they spread by {percent(spread)}"
    return Finding(
        low <= high, f"TFLOPS of the reference that each pair implies: {'; '.join(each)}; {end}"
    )


@register
def tensor_peak(
    evidence: Evidence,
    *,
    device: str,
    sm_count: int,
    boost_mhz: float,
    claimed: str,
    achieved: str,
    tolerance: float,
) -> Finding:
    """A printed peak against SMs × documented FLOP/clk/SM with FP32 accumulate × boost clock.

    `tolerance` is relative. `achieved` is the document's best result, for its true share.
    """
    rate, half = (nominal_flop_per_clk_sm(device, kind) for kind in ("f32", "f16"))
    if rate is None or half is None:
        raise UsageError(f"a claim speaks of '{device}', whose tensor rate is not tabulated")
    peak = sm_count * rate * boost_mhz / 1e6
    span, best = printed(claimed), printed(achieved).middle
    clock, half_clock = (span.middle * 1e6 / sm_count / one for one in (rate, half))
    text = (
        f"{sm_count} SMs × {rate} FLOP/clk (FP16 inputs, FP32 accumulate) × {boost_mhz:g} MHz = "
        f"{peak:.1f} TFLOPS; {claimed} would need {clock:,.0f} MHz. It is the FP16-accumulate rate "
        f"({half} FLOP/clk) at {half_clock:,.0f} MHz, and {span.middle * rate / half:.1f} TFLOPS "
        f"is the FP32-accumulate peak at that clock, of which the document's {achieved} are "
        f"{percent(best / (span.middle * rate / half), 0)}"
    )
    return Finding(span.low <= peak * (1 + tolerance) and span.high >= peak * (1 - tolerance), text)


@register
def share_of_true_peak(
    evidence: Evidence, *, device: str, sm_count: int, boost_mhz: float, achieved: str, share: str
) -> Finding:
    """A share of peak against the peak with FP32 accumulate at the boost clock."""
    rate = nominal_flop_per_clk_sm(device)
    if rate is None:
        raise UsageError(f"a claim speaks of '{device}', whose tensor rate is not tabulated")
    peak = sm_count * rate * boost_mhz / 1e6
    best = printed(achieved)
    found = Span(best.low / peak, best.high / peak)
    needed = best.middle * 1e6 / sm_count / rate
    text = (
        f"{achieved} TFLOPS are {percent(best.middle / peak)} of the {peak:.1f} TFLOPS that "
        f"{sm_count} SMs give with FP32 accumulate at {boost_mhz:g} MHz; claimed {share}"
    )
    if found.low > 1:
        text += f". Above 100 % the card ran faster than that, at {needed:,.0f} MHz or more"
    return Finding(printed(share).meets(found), text)


@register
def peaks_share_a_clock(
    evidence: Evidence, *, sm_count: int, max_mhz: float, peaks: list[list[str]], tolerance: float
) -> Finding:
    """Whether printed peaks follow from one maximum clock; pairs of (TFLOPS, FLOP/clk/SM)."""
    clocks = [printed(tflops).middle * 1e6 / sm_count / int(rate) for tflops, rate in peaks]
    each = [
        f"{tflops} TFLOPS / ({sm_count} SMs × {rate} FLOP/clk) = {clock:,.0f} MHz"
        for (tflops, rate), clock in zip(peaks, clocks, strict=True)
    ]
    holds = all(abs(clock / max_mhz - 1) <= tolerance for clock in clocks)
    return Finding(holds, f"{'; '.join(each)}; the card's maximum clock is {max_mhz:,.0f} MHz")


def kappa_span(reference: Span, over: Span, measured: Span, first: int, last: int) -> Span:
    """κ of P∞·S/(S+κ) fixed at S=`first`, which over-predicts S=`last` by `over`.

    Solves measured·(1+over)/reference = (last/first)·(first+κ)/(last+κ) for κ; the extremes lie at
    corners, since κ rises or falls with each input throughout.
    """
    found = []
    for growth in (
        m * (1 + o) / r
        for m in (measured.low, measured.high)
        for o in (over.low, over.high)
        for r in (reference.low, reference.high)
    ):
        quotient_ = growth * first / last
        found.append((quotient_ * last - first) / (1 - quotient_))
    return Span(min(found), max(found))


@register
def pipeline_model(
    evidence: Evidence, *, reference: str, measured: str, over_prediction: str, stages: list[int]
) -> Finding:
    """Whether some κ > 0 in S/(S+κ) gives the printed over-prediction at the last depth."""
    first, last = stages[0], stages[-1]
    base, over, last_one = printed(reference), printed(over_prediction), printed(measured)
    span = kappa_span(base, over, last_one, first, last)
    exact = [Span(one.middle, one.middle) for one in (base, over, last_one)]
    kappa = kappa_span(exact[0], exact[1], exact[2], first, last).middle
    limit = base.middle * (first + kappa) / first
    text = (
        f"{reference} TFLOPS at S={first} and +{over_prediction} over {measured} at S={last} give "
        f"κ = {number(kappa, '.2f')} ({number(span.low, '.2f')} to {number(span.high, '.2f')} "
        f"within rounding), an asymptote of {number(limit, '.1f')} TFLOPS and "
        f"{number(limit * 2 / (2 + kappa), '.1f')} TFLOPS at S=2"
    )
    return Finding(span.low > 0, text)


@register
def measured_points(
    evidence: Evidence, *, measured_stages: list[int], validated_stages: list[int], parameters: int
) -> Finding:
    """Whether a model was tested where accuracy is claimed, on more points than parameters."""
    never = [depth for depth in validated_stages if depth not in measured_stages]
    fitted = min(parameters, len(measured_stages))
    text = (
        f"measured were S = {listed(measured_stages)}, accuracy is claimed at S = "
        f"{listed(validated_stages)}"
    )
    if never:
        text += f"; S = {listed(never)} was never measured"
    text += (
        f"; the model's {parameters} free parameters (asymptote and κ) meet "
        f"{len(measured_stages)} points, {fitted} of which any such model can pass through"
    )
    return Finding(not never and len(measured_stages) > parameters, text)


@register
def instruction_name(
    evidence: Evidence, *, name: str, instructions: list[str], meant: str
) -> Finding:
    """Whether a CUTLASS kernel name contains an instruction shape that exists.

    CUTLASS writes the accumulator's letter and the extents m, n, k without separators. The list
    holds the FP16 tensor shapes of the PTX ISA (mma.sync and nvcuda::wmma).
    """
    codes = {shape.replace("x", ""): shape for shape in instructions}

    def shape_of(kernel: str) -> str | None:
        return codes.get(kernel.removeprefix("s").partition("gemm")[0])

    found, right = shape_of(name), shape_of(meant)
    text = (
        f"'{name}' names {found or 'no FP16 tensor instruction shape that exists'}; '{meant}' "
        f"names m×n×k = {str(right).replace('x', '×')} with FP32 accumulators (s) and FP16 inputs, "
        "which is what CUTLASS's generator emits for this GPU and what the sm80 family measures"
    )
    return Finding(found is not None, text)


_LIMITS = {  # field of GpuLimits → what it is, and its unit
    "smem_per_sm": ("shared memory of an SM", "KiB"),
    "smem_reserved_per_block": ("shared memory reserved for a thread block", "KiB"),
    "threads_per_block": ("largest thread block", "threads"),
}


@register
def gpu_limit(evidence: Evidence, *, arch: str, limit: str, value: float) -> Finding:
    """A printed limit of an architecture against the table from the CUDA programming guide.

    `value` is in KiB for shared memory.
    """
    if limit not in _LIMITS:
        raise UsageError(f"a claim speaks of the limit '{limit}'; known are {', '.join(_LIMITS)}")
    words, unit = _LIMITS[limit]
    found = getattr(limits_of(arch), limit) / (1024 if unit == "KiB" else 1)
    return Finding(found == value, f"{words} of {arch} is {found:g} {unit}; claimed {value:g}")


@register
def accumulators_fit(
    evidence: Evidence, *, arch: str, rows: int, columns: int, threads: int, fits: bool
) -> Finding:
    """Whether a tile's FP32 partial sums fit the registers that a thread can have."""
    limit = limits_of(arch).registers_per_thread
    per_thread = rows * columns / threads
    text = (
        f"{rows}×{columns} partial sums over {threads} threads are {per_thread:g} registers each, "
        f"of at most {limit}"
    )
    return Finding((per_thread <= limit) == fits, text)


@register
def ladder(evidence: Evidence, *, steps: list[str], least: str) -> Finding:
    """Whether printed throughputs rise at every step, and by how much in all."""
    values = [printed(step).middle for step in steps]
    gains = [change(after / before - 1, 0) for before, after in pairwise(values)]
    text = f"{' → '.join(steps)} TFLOPS: {', '.join(gains)}, {values[-1] / values[0]:.1f}× in all"
    rises = all(after > before for before, after in pairwise(values))
    return Finding(rises and values[-1] / values[0] >= printed(least).low, text)
