"""What the helper kernels of `instantiations/support.cu` compute, in numpy: operands and verdicts.

Integers wrap at 64 bits and floats are FP32, as on the GPU, so that bits can be compared.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cutlass_study.config import GemmProblem
from cutlass_study.records import Distribution
from cutlass_study.verify import UNIT_ROUNDOFF, error_factor

Bits = NDArray[np.uint64]
Floats = NDArray[np.float32]
MASK = 2**64 - 1


def splitmix64(seed: int, index: Bits) -> Bits:
    """`hash(seed, index)`: the (index + 1)-th output of SplitMix64 started at `seed`."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed & MASK) + (index + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(z ^ (z >> np.uint64(31)), np.uint64)


def draw(distribution: Distribution, bits: Bits) -> Floats:
    """FP32 values in the order of `bits`."""
    scale = np.float32(2.0**-24)
    upper = (bits >> np.uint64(40)).astype(np.float32) * scale
    lower = (bits & np.uint64(0xFFFFFF)).astype(np.float32) * scale
    if distribution == "uniform":
        return np.float32(2) * upper - np.float32(1)
    if distribution == "normal":
        radius = np.sqrt(np.float32(-2) * np.log(np.float32(1) - upper))
        angle = np.cos(np.pi * (2 * lower).astype(np.float64)).astype(np.float32)
        return np.asarray(radius * angle, np.float32)
    if distribution == "integers":
        return ((bits >> np.uint64(32)) % np.uint64(5)).astype(np.float32) - np.float32(2)
    return np.zeros(bits.shape, np.float32)


def stream_seed(seed: int, operand_set: int, operand: int) -> int:
    """Seed of operand 0 (A), 1 (B) or 2 (C) of a set: `Operands._fill`."""
    return (seed * 1_000_003 + (3 * operand_set + operand) * 7_919 + 17) & MASK


def matrix(distribution: Distribution, seed: int, rows: int, columns: int, leading: int) -> Floats:
    """[rows, leading], padding zero; FP32, not yet rounded to the operand's type."""
    out = np.zeros((rows, leading), np.float32)
    index = np.arange(rows * columns, dtype=np.uint64)
    out[:, :columns] = draw(distribution, splitmix64(seed, index)).reshape(rows, columns)
    return out


def operands(
    problem: GemmProblem, distribution: Distribution, seed: int, operand_set: int = 0
) -> tuple[NDArray[np.float16], NDArray[np.float16]]:
    """A and B as stored, padding included."""
    lda, ldb, _ = problem.leading_dimensions
    b_shape = (problem.n, problem.k) if problem.layout == "tn" else (problem.k, problem.n)
    a = matrix(distribution, stream_seed(seed, operand_set, 0), problem.m, problem.k, lda)
    b = matrix(distribution, stream_seed(seed, operand_set, 1), *b_shape, ldb)
    return a.astype(np.float16), b.astype(np.float16)


@dataclass(frozen=True)
class Compared:
    """What `compare` counts. `first` is (row, column) of the first violation."""

    violations: int
    non_finite: int
    overflows: int
    first: tuple[int, int] | None


def compare(
    d: NDArray[np.floating],
    product: NDArray[np.float64],
    a: NDArray[np.floating],
    b: NDArray[np.floating],
    *,
    beta: float = 0.0,
) -> Compared:
    """The `compare` kernel on D[m,n], FP16 or FP32, for A[m,k] and B[k,n] and an exact product."""
    is_half = d.dtype == np.float16
    value, wanted = d.astype(np.float32), product.astype(np.float32)
    row_norms = np.linalg.norm(a.astype(np.float64), axis=1).astype(np.float32)
    column_norms = np.linalg.norm(b.astype(np.float64), axis=0).astype(np.float32)
    size = np.abs(wanted)
    slack = np.float32(4 * UNIT_ROUNDOFF if beta else 0.0) + np.float32(1.2e-7)
    bound = np.float32(error_factor(a.shape[1])) * np.outer(row_norms, column_norms) + slack * size
    if is_half:
        bound = bound + np.maximum(size * np.float32(2.0**-11), np.float32(2.0**-25))
    with np.errstate(invalid="ignore"):
        error = np.abs(value - wanted)
    too_large = (size + bound >= 65520) & is_half
    overflow = too_large & np.isinf(value) & ((value > 0) == (wanted > 0))
    largest = too_large & (value == np.copysign(65504, wanted)) & (size - bound < 65520)
    judged = ~(overflow | largest)
    violation = judged & ~(error <= bound)
    where = np.argwhere(violation)
    return Compared(
        int(violation.sum()),
        int((judged & ~np.isfinite(value)).sum()),
        int(overflow.sum()),
        (int(where[0, 0]), int(where[0, 1])) if len(where) else None,
    )
