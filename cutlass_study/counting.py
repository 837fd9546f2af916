"""The tiled product carried out element by element on matrices that count their own accesses.

This checks `roofline`'s formulas by counting (lecture note, section 10.2). It says nothing about
speed or rounding: operands are small integers, so every product is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt

from cutlass_study.config import Shape
from cutlass_study.roofline import ElementTypes, Traffic

Integers = npt.NDArray[np.int64]
FLOPS_PER_FMA = 2


class CountedMatrix:
    """A matrix in some memory; `reads` and `writes` count the accesses to each element."""

    def __init__(self, values: Integers) -> None:
        self.values = values.astype(np.int64)
        self.reads: Integers = np.zeros(values.shape, np.int64)
        self.writes: Integers = np.zeros(values.shape, np.int64)

    def read(self, row: int, column: int) -> int:
        self.reads[row, column] += 1
        return int(self.values[row, column])

    def write(self, row: int, column: int, value: int) -> None:
        self.writes[row, column] += 1
        self.values[row, column] = value

    def load(self, rows: range, columns: range) -> CountedMatrix:
        """A copy on chip of a part: each element is read here once, from then on there."""
        values = [[self.read(row, column) for column in columns] for row in rows]
        return CountedMatrix(np.array(values, np.int64).reshape(len(rows), len(columns)))


@dataclass(frozen=True, slots=True, eq=False)
class StepCount:
    """One K step of one output tile: elements loaded, FLOP, and on-chip uses of each element."""

    output_row: int
    output_column: int
    first_k: int
    loaded_elements: int
    flops: int
    a_uses: Integers
    b_uses: Integers


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """A product and what it took: accesses per element of slow memory, FLOP, and every step."""

    product: Integers
    a_reads: Integers
    b_reads: Integers
    output_writes: Integers
    flops: int
    steps: tuple[StepCount, ...]

    @property
    def input_elements(self) -> int:
        """Reads of A and B, repeated ones counted again."""
        return int(self.a_reads.sum() + self.b_reads.sum())

    def traffic(self, types: ElementTypes) -> Traffic:
        """The counted accesses in bytes."""
        written = int(self.output_writes.sum())
        return Traffic(self.input_elements * types.input_bytes, written * types.output_bytes)


def small_integers(m: int, n: int, k: int, seed: int = 0) -> tuple[Integers, Integers]:
    """A[m,k] and B[k,n] of integers from −4 to 4."""
    random = np.random.default_rng(seed)
    return random.integers(-4, 5, (m, k)), random.integers(-4, 5, (k, n))


def count_no_reuse(a: Integers, b: Integers) -> Counts:
    """Every product reads both its elements from slow memory; sums stay on chip."""
    left, right = CountedMatrix(a), CountedMatrix(b)
    (m, k), n = a.shape, b.shape[1]
    output = CountedMatrix(np.zeros((m, n), np.int64))
    flops = 0
    for row, column in product(range(m), range(n)):
        accumulator = 0
        for index in range(k):
            accumulator += left.read(row, index) * right.read(index, column)
            flops += FLOPS_PER_FMA
        output.write(row, column, accumulator)
    return Counts(output.values, left.reads, right.reads, output.writes, flops, ())


def count_tiled(a: Integers, b: Integers, tile: Shape) -> Counts:
    """Each output tile loads its parts of A and B step by step and writes its sums once.

    A part that reaches over the edge is cut off there, so that only what exists is loaded.
    """
    left, right = CountedMatrix(a), CountedMatrix(b)
    (m, k), n = a.shape, b.shape[1]
    output = CountedMatrix(np.zeros((m, n), np.int64))
    steps: list[StepCount] = []
    for first_row, first_column in product(range(0, m, tile[0]), range(0, n, tile[1])):
        rows = range(first_row, min(first_row + tile[0], m))
        columns = range(first_column, min(first_column + tile[1], n))
        accumulators: Integers = np.zeros((len(rows), len(columns)), np.int64)
        for first_k in range(0, k, tile[2]):
            depth = range(first_k, min(first_k + tile[2], k))
            a_part, b_part = left.load(rows, depth), right.load(depth, columns)
            flops = _accumulate(accumulators, a_part, b_part)
            loaded = a_part.values.size + b_part.values.size
            uses = a_part.reads, b_part.reads
            steps.append(StepCount(first_row, first_column, first_k, loaded, flops, *uses))
        for (i, row), (j, column) in product(enumerate(rows), enumerate(columns)):
            output.write(row, column, int(accumulators[i, j]))
    total = sum(one.flops for one in steps)
    return Counts(output.values, left.reads, right.reads, output.writes, total, tuple(steps))


def _accumulate(accumulators: Integers, a_part: CountedMatrix, b_part: CountedMatrix) -> int:
    """Add one step's products, reading the parts on chip; returns the FLOP."""
    rows, columns = accumulators.shape
    flops = 0
    for i, j, index in product(range(rows), range(columns), range(a_part.values.shape[1])):
        accumulators[i, j] += a_part.read(i, index) * b_part.read(index, j)
        flops += FLOPS_PER_FMA
    return flops
