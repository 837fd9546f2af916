"""Tests that compiling alone decides: registers, shared memory, resident CTAs. No GPU needed."""

from __future__ import annotations

from typing import Any

import pandas as pd

from cutlass_study.claim_rows import select
from cutlass_study.claim_tests import (
    Evidence,
    Finding,
    Selector,
    listed,
    percent,
    printed,
    register,
)
from cutlass_study.config import parse_shape
from cutlass_study.gpus import limits_of
from cutlass_study.occupancy import ctas_by_shared_memory
from cutlass_study.roofline import accumulators_per_thread

NO_STATIC = "no static records: run python scripts/sweep.py --static --preset paper --export DIR"


def _compiled(evidence: Evidence, kernel: Selector, stages: list[int]) -> list[pd.Series[Any]]:
    """One compiled row per pipeline depth; empty if any is missing."""
    if evidence.static is None:
        return []
    frame = evidence.static.results
    rows = []
    for depth in stages:
        found = select(frame[frame["registers"].notna()], {**kernel, "stages": str(depth)})
        if found.empty:
            return []
        rows.append(found.iloc[0])
    return rows


def _subject(kernel: Selector) -> str:
    return f"{str(kernel['threadblock_shape']).replace('x', '×')} for {kernel['arch']}"


@register
def ctas_per_sm(
    evidence: Evidence, *, kernel: Selector, stages: list[int], expected: list[int]
) -> Finding:
    """Resident CTAs per SM at each depth, from the compiled kernel's registers and memory."""
    rows = _compiled(evidence, kernel, stages)
    if not rows:
        return Finding(None, "", NO_STATIC)
    found = [int(row["ctas_per_sm"]) for row in rows]
    details = [
        f"S={depth}: {int(row['ctas_per_sm'])} ({int(row['registers'])} registers × "
        f"{int(row['threads'])} threads, {int(row['smem_bytes']):,} B; bound by {row['limiter']})"
        for depth, row in zip(stages, rows, strict=True)
    ]
    text = f"resident CTAs per SM of {_subject(kernel)}: {'; '.join(details)}"
    return Finding(found == expected, f"{text}; claimed {listed(expected)}")


@register
def registers(
    evidence: Evidence,
    *,
    kernel: Selector,
    stages: list[int],
    expected: list[int],
    tolerance: float,
) -> Finding:
    """Registers per thread at each depth, within `tolerance` registers ("about")."""
    rows = _compiled(evidence, kernel, stages)
    if not rows:
        return Finding(None, "", NO_STATIC)
    found = [int(row["registers"]) for row in rows]
    tile = parse_shape(str(kernel["threadblock_shape"]), "threadblock shape")
    sums = accumulators_per_thread(tile, int(rows[0]["threads"]))
    near = all(abs(a - b) <= tolerance for a, b in zip(found, expected, strict=True))
    text = (
        f"{_subject(kernel)} compiles to {listed(found)} registers per thread at S = "
        f"{listed(stages)}, claimed {listed(expected)} ± {tolerance:g}; its FP32 partial sums "
        f"alone take {sums:g}"
    )
    return Finding(near, text)


@register
def shared_memory(
    evidence: Evidence, *, kernel: Selector, stages: list[int], expected_kib: list[str]
) -> Finding:
    """Dynamic shared memory per CTA at each depth, in KiB as printed."""
    rows = _compiled(evidence, kernel, stages)
    if not rows:
        return Finding(None, "", NO_STATIC)
    found = [int(row["smem_bytes"]) for row in rows]
    pairs = zip(found, expected_kib, strict=True)
    holds = all(printed(text).low <= size / 1024 <= printed(text).high for size, text in pairs)
    sizes = [f"{size:,} B = {size / 1024:g} KiB" for size in found]
    text = f"{_subject(kernel)} takes {listed(sizes)} at S = {listed(stages)}"
    return Finding(holds, f"{text}; claimed {listed(expected_kib)} KB")


@register
def resident_by_shared_memory(
    evidence: Evidence, *, arch: str, smem_kib: float, expected: int
) -> Finding:
    """CTAs per SM that shared memory alone allows: nothing has to be compiled to know it."""
    limits = limits_of(arch)
    size = round(smem_kib * 1024)
    found = ctas_by_shared_memory(size, limits)
    need = expected * (size + limits.smem_reserved_per_block)
    text = (
        f"{expected} × {smem_kib:g} KiB, each with {limits.smem_reserved_per_block:,} B "
        f"reserved, take {need:,} B; an SM of {arch} has {limits.smem_per_sm:,} B and holds {found}"
    )
    return Finding(found == expected, text)


@register
def occupancy_explains(
    evidence: Evidence, *, kernel: Selector, stages: list[int], other: Selector
) -> Finding:
    """Whether residency falls between two depths, without which it can't be the cause of a loss.

    `other` is a kernel shown beside it.
    """
    rows, beside = (_compiled(evidence, one, stages) for one in (kernel, other))
    if not rows or not beside:
        return Finding(None, "", NO_STATIC)
    shares = [float(row["occupancy"]) for row in rows]
    warps = [int(row["ctas_per_sm"]) * int(row["threads"]) // 32 for row in rows]
    percents = [percent(share) for share in shares]
    contrast = [int(row["ctas_per_sm"]) for row in beside]
    text = (
        f"{_subject(kernel)} keeps {listed(warps)} warps per SM ({listed(percents)}"
        f" occupancy) at S = {listed(stages)}; {_subject(other)} has {listed(contrast)} CTAs per SM"
        " at the same depths"
    )
    return Finding(shares[0] > shares[-1], text)


@register
def occupancy_cap(
    evidence: Evidence,
    *,
    kernel: Selector,
    stages: list[int],
    claimed_ctas: list[int],
    over_prediction: str,
    within: str,
) -> Finding:
    """Whether γ(S) = (CTAs(S)/CTAs_max)^p can correct the plain model at the last depth.

    The document gives no formula; this one has a free exponent p. With the compiled kernel's CTAs
    it must be able to bring the over-prediction within `within`.
    """
    rows = _compiled(evidence, kernel, stages)
    if not rows:
        return Finding(None, "", NO_STATIC)
    true = [int(row["ctas_per_sm"]) for row in rows]
    over, limit = printed(over_prediction), printed(within)
    needed = 1 / (1 + over.middle)
    share = true[-1] / max(true)
    holds = share < 1 or over.low <= limit.high
    shown = "whatever the exponent makes it" if share < 1 else "exactly 1 for every exponent"
    text = (
        f"bringing +{over_prediction} to the measured value needs γ = {needed:.3f}, which CTAs of "
        f"{listed(claimed_ctas)} give with a suitable exponent, one more free parameter for one "
        f"more point; the compiled kernel has {listed(true)} CTAs per SM at S = {listed(stages)}, "
        f"so γ is {shown}"
    )
    text += "" if holds else f" and the over-prediction stays {over_prediction}"
    return Finding(holds, text)
