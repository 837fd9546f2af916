"""Tests of the lecture note: every number again, from `roofline`, `counting` and `occupancy`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cutlass_study import roofline
from cutlass_study.claim_tests import Evidence, Finding, percent, printed, register
from cutlass_study.config import UsageError
from cutlass_study.counting import Counts, count_no_reuse, count_tiled, small_integers
from cutlass_study.gpus import GpuLimits
from cutlass_study.occupancy import occupancy

MACHINE = roofline.Machine(peak_tflops=20, bandwidth_gbs=1000)  # section 2.3, made up


def _finding(value: float, claimed: str, what: str, unit: str = "") -> Finding:
    span = printed(claimed)
    shown = f"{value:,.0f}" if float(value).is_integer() else f"{value:,.10g}"
    holds = span.low <= value <= span.high
    return Finding(holds, f"{what} = {shown}{unit and f' {unit}'}; claimed {claimed}")


def _work(n: int) -> roofline.Work:
    return roofline.Work(n, n, n)


def _traffic(n: int, tile: int) -> roofline.Traffic:
    """`tile` 0 stands for no reuse, `n` for one pass over the inputs."""
    return roofline.tiled(_work(n), (tile, tile, tile)) if tile else roofline.no_reuse(_work(n))


def _roof(n: int, tile: int) -> roofline.Roof:
    return roofline.roof(_work(n).flops, _traffic(n, tile), MACHINE)


_GEMM: dict[str, tuple[str, str, Callable[[int, int], float]]] = {  # words, unit, formula
    "flops": ("work", "FLOP", lambda n, tile: _work(n).flops),
    "read_bytes": ("read", "B", lambda n, tile: _traffic(n, tile).read_bytes),
    "write_bytes": ("written", "B", lambda n, tile: _traffic(n, tile).write_bytes),
    "total_bytes": ("moved", "B", lambda n, tile: _traffic(n, tile).total_bytes),
    "intensity": ("intensity", "FLOP/B", lambda n, tile: _roof(n, tile).intensity_flop_per_byte),
    "ceiling_tflops": ("ceiling", "TFLOPS", lambda n, tile: _roof(n, tile).ceiling_tflops),
    "compute_ms": ("time to compute", "ms", lambda n, tile: _roof(n, tile).compute_ms),
    "memory_ms": ("time to move", "ms", lambda n, tile: _roof(n, tile).memory_ms),
    "ideal_ms": ("time at best", "ms", lambda n, tile: _roof(n, tile).ideal_ms),
    "speedup": (
        "faster than no reuse",
        "×",
        lambda n, tile: _roof(n, 0).ideal_ms / _roof(n, tile).ideal_ms,
    ),
    "output_tiles": (
        "output tiles",
        "",
        lambda n, tile: roofline.output_tiles(_work(n), (tile, tile, tile)),
    ),
    "k_steps": ("steps in K", "", lambda n, tile: roofline.k_steps(_work(n), (tile, tile, tile))),
}


@register
def lecture_gemm(evidence: Evidence, *, n: int, tile: int, values: list[list[str]]) -> Finding:
    """Quantities of an N³ FP32 product on the lecture's machine; `tile` 0 is no reuse."""
    name = f"T={tile}" if tile else "no reuse"
    found = []
    for quantity, claimed in values:
        if quantity not in _GEMM:
            raise UsageError(f"a claim speaks of '{quantity}', which the roofline does not give")
        words, unit, formula = _GEMM[quantity]
        found.append(_finding(formula(n, tile), claimed, words, unit))
    text = "; ".join(one.text for one in found)
    return Finding(all(one.holds for one in found), f"N={n}, {name}: {text}")


@register
def lecture_counting(
    evidence: Evidence, *, n: int, tile: int, flops: int, no_reuse: int, tiled: int
) -> Finding:
    """FLOP and bytes of a small product, counted access by access in both loops."""
    a, b = small_integers(n, n, n)
    runs: tuple[Counts, Counts] = (count_no_reuse(a, b), count_tiled(a, b, (tile, tile, tile)))
    found = [run.traffic(roofline.FP32).total_bytes for run in runs]
    right = all(np.array_equal(run.product, a @ b) for run in runs)
    text = (
        f"counted on a {n}×{n} product: {runs[0].flops} FLOP, {found[0]} B without reuse, "
        f"{found[1]} B with {tile}×{tile} tiles; claimed {flops}, {no_reuse} and {tiled}"
    )
    same = {runs[0].flops, runs[1].flops} == {flops} and found == [no_reuse, tiled]
    return Finding(right and same, text)


@register
def lecture_ridge(evidence: Evidence, *, claimed: str) -> Finding:
    """P/BW of the lecture's machine."""
    return _finding(MACHINE.ridge_flop_per_byte, claimed, "P/BW", "FLOP/B")


@register
def lecture_vector_add(evidence: Evidence, *, claimed: str) -> Finding:
    """Intensity of FP32 C = A + B."""
    flops, traffic = roofline.vector_add(1 << 20)
    return _finding(flops / traffic.total_bytes, claimed, "intensity of FP32 vector add", "FLOP/B")


@register
def lecture_compute_bound_tile(evidence: Evidence, *, n: int, claimed: str) -> Finding:
    """The continuous square tile from which on the product is compute-bound."""
    value = roofline.compute_bound_tile(_work(n), MACHINE)
    return _finding(value or float("nan"), claimed, f"smallest compute-bound T at N={n}")


@register
def lecture_buffers(
    evidence: Evidence, *, tile: int, copies: int, input_kib: str, accumulator_kib: str
) -> Finding:
    """On-chip bytes of a square FP32 tile, single- or double-buffered."""
    found = roofline.buffers((tile, tile, tile), copies=copies)
    inputs = _finding(found.input_bytes / 1024, input_kib, f"T={tile}, {copies}× inputs", "KiB")
    sums = _finding(found.accumulator_bytes / 1024, accumulator_kib, "partial sums", "KiB")
    return Finding(bool(inputs.holds and sums.holds), f"{inputs.text}; {sums.text}")


@register
def lecture_k_slice(evidence: Evidence, *, n: int, tile: int, slices: list[int]) -> Finding:
    """That a wider K slice leaves the traffic of a tile, and of all, as it is."""
    shapes = [(tile, tile, depth) for depth in slices]
    totals = {roofline.tiled(_work(n), shape).total_bytes for shape in shapes}
    inputs = [roofline.step(s).read_bytes * roofline.k_steps(_work(n), s) for s in shapes]
    parts = [
        f"K slice {shape[2]}: {roofline.buffers(shape).input_bytes // 1024} KiB of inputs, "
        f"{roofline.k_steps(_work(n), shape)} steps, {total:,} B read per tile"
        for shape, total in zip(shapes, inputs, strict=True)
    ]
    return Finding(len(totals) == 1 and len(set(inputs)) == 1, "; ".join(parts))


@register
def lecture_occupancy(evidence: Evidence, *, smem_kib: float, ctas: int, claimed: str) -> Finding:
    """The note's made-up SM: 96 KiB, 65,536 registers, 64 warps, 16 CTAs; 256 × 64 registers."""
    kib = 1024
    made_up = GpuLimits(
        "lecture", 96 * kib, 96 * kib, 64, 16, smem_reserved_per_block=0, smem_granularity=1
    )
    found = occupancy(64, round(smem_kib * kib), 256, made_up)
    text = (
        f"{smem_kib:g} KiB per CTA: {found.ctas_per_sm} CTAs, {percent(found.occupancy)}, bound by "
        f"{found.limiter}; claimed {ctas} and {claimed}"
    )
    span = printed(claimed)
    return Finding(found.ctas_per_sm == ctas and span.low <= found.occupancy <= span.high, text)


@register
def lecture_sums_per_thread(
    evidence: Evidence, *, tiles: list[int], threads: int, expected: list[int]
) -> Finding:
    """Partial sums per thread when threads share a square tile evenly."""
    found = [roofline.accumulators_per_thread((tile, tile, 1), threads) for tile in tiles]
    shown = ", ".join(f"{t}×{t}: {value:g}" for t, value in zip(tiles, found, strict=True))
    return Finding(found == expected, f"partial sums of each of {threads} threads: {shown}")
