"""Work, traffic and roofline of a GEMM, in the terms of the lecture note on tiling.

Pure arithmetic on whole numbers: nothing here measures. The model counts slow memory (HBM, GDDR)
only: an operand element is read again by every output tile that needs it, tiles share nothing
through a cache, partial sums stay on chip and D is written once. 1 GB is 1e9 bytes.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from math import ceil
from typing import Literal

from cutlass_study.config import Shape

Bound = Literal["memory", "compute"]


@dataclass(frozen=True, slots=True)
class ElementTypes:
    """Bytes per element of A and B, of the partial sums, and of C and D."""

    input_bytes: int = 4
    accumulator_bytes: int = 4
    output_bytes: int = 4


FP32 = ElementTypes()


@dataclass(frozen=True, slots=True)
class Work:
    """D[m,n] = A[m,k]·B[k,n], plus C where `reads_c`; the types decide the bytes."""

    m: int
    n: int
    k: int
    types: ElementTypes = FP32
    reads_c: bool = False  # beta is not 0

    @property
    def products(self) -> int:
        return self.m * self.n * self.k

    @property
    def flops(self) -> int:
        """2·m·n·k: a multiply and an add per product, from a sum that starts at 0 (section 7.1)."""
        return 2 * self.products

    @property
    def flops_without_first_addition(self) -> int:
        """m·n·(2k−1): the count when a sum starts at its first product (sections 3.2, 7.1)."""
        return self.m * self.n * (2 * self.k - 1)

    @property
    def output_read_bytes(self) -> int:
        """Bytes of C, if it is read."""
        return self.m * self.n * self.types.output_bytes if self.reads_c else 0

    @property
    def output_write_bytes(self) -> int:
        return self.m * self.n * self.types.output_bytes


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that cross the slow memory's interface."""

    read_bytes: int
    write_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.read_bytes + self.write_bytes


@dataclass(frozen=True, slots=True)
class Machine:
    """Arithmetic peak for the types in question, and slow-memory bandwidth."""

    peak_tflops: float
    bandwidth_gbs: float

    @property
    def ridge_flop_per_byte(self) -> float:
        """P/BW, the intensity at which both ceilings meet (section 4.1)."""
        return self.peak_tflops * 1e3 / self.bandwidth_gbs


@dataclass(frozen=True, slots=True)
class Roof:
    """What the model allows a GEMM on a machine: ceilings, and times that overlap perfectly."""

    intensity_flop_per_byte: float
    memory_ceiling_tflops: float  # BW·I, whatever the arithmetic peak
    ceiling_tflops: float
    compute_ms: float
    memory_ms: float
    ideal_ms: float
    bound: Bound


@dataclass(frozen=True, slots=True)
class Buffers:
    """On-chip bytes of one tile: inputs (shared memory) and partial sums (registers)."""

    a_bytes: int
    b_bytes: int
    accumulator_bytes: int

    @property
    def input_bytes(self) -> int:
        return self.a_bytes + self.b_bytes

    @property
    def total_bytes(self) -> int:
        """A sum for orientation only: shared memory and registers are separate limits."""
        return self.input_bytes + self.accumulator_bytes


@dataclass(frozen=True, slots=True)
class Step:
    """One K step of one output tile: FLOP, bytes read, and their ratio without the output."""

    flops: int
    read_bytes: int

    @property
    def input_intensity_flop_per_byte(self) -> float:
        return self.flops / self.read_bytes


# --- traffic ----------------------------------------------------------------------------------


def no_reuse(work: Work) -> Traffic:
    """Every product reads its element of A and of B again: 8N³ + 4N² in FP32 (section 7.2)."""
    inputs = 2 * work.products * work.types.input_bytes
    return Traffic(inputs + work.output_read_bytes, work.output_write_bytes)


def tiled(work: Work, tile: Shape) -> Traffic:
    """Operands are shared within an output tile of m×n: 8N³/T + 4N² in FP32 (section 8.1).

    A is read once per column of tiles and B once per row of tiles. A tile that reaches over the
    edge reads only what exists, so extents need not be multiples. `tile`'s K never matters: it
    cancels between the bytes of a step and the number of steps (section 9.4).
    """
    rows, columns = -(-work.m // tile[0]), -(-work.n // tile[1])
    elements = work.m * work.k * columns + work.k * work.n * rows
    inputs = elements * work.types.input_bytes
    return Traffic(inputs + work.output_read_bytes, work.output_write_bytes)


def one_pass(work: Work) -> Traffic:
    """A and B cross once and D once: 12N² in FP32, the least possible (section 8.5)."""
    return tiled(work, (work.m, work.n, work.k))


def vector_add(length: int, element_bytes: int = 4) -> tuple[int, Traffic]:
    """(FLOP, traffic) of C = A + B, whose intensity no tiling changes: 1/12 in FP32 (3.2)."""
    return length, Traffic(2 * length * element_bytes, length * element_bytes)


# --- tiles ------------------------------------------------------------------------------------


def output_tiles(work: Work, tile: Shape) -> int:
    """⌈m/tile m⌉·⌈n/tile n⌉, the CTAs of a launch."""
    return -(-work.m // tile[0]) * -(-work.n // tile[1])


def k_steps(work: Work, tile: Shape) -> int:
    """⌈k/tile k⌉ steps that each output tile takes."""
    return -(-work.k // tile[2])


def uses_per_load(tile: Shape) -> tuple[int, int]:
    """How often a loaded element of A and of B is used: tile n and tile m (section 6.2.1)."""
    return tile[1], tile[0]


def step(tile: Shape, types: ElementTypes = FP32) -> Step:
    """2·m·n·k FLOP on (m+n)·k loaded elements; their ratio does not hold k (section 9.4)."""
    m, n, k = tile
    return Step(2 * m * n * k, k * (m + n) * types.input_bytes)


def buffers(tile: Shape, types: ElementTypes = FP32, copies: int = 1) -> Buffers:
    """`copies` input buffers (2: double buffering) and one of sums: 8T², 16T²; 4T² (section 9.1).

    Without reuse, `tile` (1, 1, 1) gives the least state of one output.
    """
    m, n, k = tile
    inputs = types.input_bytes * copies
    return Buffers(m * k * inputs, k * n * inputs, m * n * types.accumulator_bytes)


def accumulators_per_thread(tile: Shape, threads: int) -> float:
    """Partial sums that each of `threads` threads holds when they share evenly (section 9.3)."""
    return tile[0] * tile[1] / threads


# --- roofline ---------------------------------------------------------------------------------


def roof(flops: int, traffic: Traffic, machine: Machine) -> Roof:
    """min(P, BW·I) and max(F/P, Q/BW) (section 4.1); `compute` where both times are equal."""
    intensity = flops / traffic.total_bytes
    memory_ceiling = machine.bandwidth_gbs * intensity / 1e3
    compute_ms = flops / machine.peak_tflops / 1e9
    memory_ms = traffic.total_bytes / machine.bandwidth_gbs / 1e6
    return Roof(
        intensity_flop_per_byte=intensity,
        memory_ceiling_tflops=memory_ceiling,
        ceiling_tflops=min(machine.peak_tflops, memory_ceiling),
        compute_ms=compute_ms,
        memory_ms=memory_ms,
        ideal_ms=max(compute_ms, memory_ms),
        bound="compute" if compute_ms >= memory_ms else "memory",
    )


def compute_bound_tile(work: Work, machine: Machine) -> float | None:
    """The square tile, as a continuous number, from which on the GEMM is compute-bound.

    Solves I(T) = P/BW for T: 80N/(N−40) for the lecture's machine (section 8.4). Beyond the
    smaller of m and n one operand is read once already. None if even one pass is memory-bound.
    """
    types = work.types
    budget = work.flops / machine.ridge_flop_per_byte
    budget -= work.output_read_bytes + work.output_write_bytes
    per_pass = work.products * types.input_bytes  # bytes of A, and of B, at T=1
    once = max(work.m, work.n) * work.k * types.input_bytes  # the operand that is then read once
    if budget > 0 and 2 * per_pass <= budget * min(work.m, work.n):
        return max(1.0, 2 * per_pass / budget)
    if budget > once and per_pass <= (budget - once) * max(work.m, work.n):
        return per_pass / (budget - once)
    return None


def compute_bound_whole_tile(work: Work, machine: Machine) -> int | None:
    """The smallest whole square tile that is compute-bound, partial tiles at the edges counted.

    It can lie above the next whole number after `compute_bound_tile`: at N = 4096, T = 81 still
    takes ⌈4096/81⌉ = 51 passes, as T = 80.3 would.
    """
    smallest = compute_bound_tile(work, machine)
    if smallest is None:
        return None
    largest = max(work.m, work.n)

    def compute_bound(extent: int) -> bool:
        return roof(work.flops, tiled(work, (extent, extent, 1)), machine).bound == "compute"

    candidates = range(max(1, ceil(smallest) - 1), largest)
    return candidates.start + bisect_left(candidates, True, key=compute_bound)
