"""Device memory that a problem takes. Needs nothing of CUDA, so that a plan can say it."""

from __future__ import annotations

from dataclasses import replace

from cutlass_study.config import GemmProblem
from cutlass_study.records import EnvironmentProblem
from cutlass_study.space import Entry

L2_MULTIPLE = 4  # rotate over so many L2 sizes that no operand is still cached at its next use
MAX_SETS = 256
SCRATCH_BYTES = 1 << 30  # context, modules, cuBLAS's workspace and the reference's row blocks
EXTENT_STEP = 256  # a reduced problem keeps whole tiles


def matrix_elements(problem: GemmProblem) -> tuple[int, int, int]:
    """Stored elements of A, B and D, padding included."""
    lda, ldb, ldd = problem.leading_dimensions
    b_vectors = problem.n if problem.layout == "tn" else problem.k
    return problem.m * lda, b_vectors * ldb, problem.m * ldd


def set_bytes(problem: GemmProblem) -> int:
    """Bytes of one operand set (C only if beta is not 0)."""
    a, b, d = matrix_elements(problem)
    outputs = 2 if problem.beta else 1
    return 2 * (a + b) + outputs * d * problem.output_bytes


def set_count(problem: GemmProblem, l2_bytes: int, free_bytes: int) -> int:
    """Sets to rotate over: several times the L2, within half of the free memory."""
    size = set_bytes(problem)
    wanted = -(-L2_MULTIPLE * l2_bytes // size)
    return max(1, min(wanted, MAX_SETS, free_bytes // 2 // size))


def least_bytes(problem: GemmProblem) -> int:
    """Device memory without which the problem can't be verified: one set and the reference.

    The reference keeps D in FP32 and, while it is computed, B in FP64.
    """
    return (
        set_bytes(problem) + 4 * problem.m * problem.n + 8 * problem.n * problem.k + SCRATCH_BYTES
    )


def fitting_problem(problem: GemmProblem, memory_bytes: int) -> GemmProblem:
    """The problem itself, or the largest of its proportions, in steps of 256, that fits.

    Raises `EnvironmentProblem` if none does.
    """
    if least_bytes(problem) <= memory_bytes:
        return problem
    for numerator in range(63, 0, -1):
        extents = [
            min(side, max(EXTENT_STEP, side * numerator // 64 // EXTENT_STEP * EXTENT_STEP))
            for side in problem.shape
        ]
        smaller = replace(problem, m=extents[0], n=extents[1], k=extents[2], lda=None)
        if least_bytes(smaller) <= memory_bytes:
            return smaller
    raise EnvironmentProblem(
        f"problem {problem.name} needs {least_bytes(smaller)} bytes of GPU memory even as "
        f"{smaller.name}, {memory_bytes} are there; use a GPU with more memory"
    )


def fit_entries(entries: list[Entry], memory_bytes: int) -> tuple[list[Entry], list[str]]:
    """Entries with problems that fit, and a sentence for each problem that had to shrink."""
    replaced = {entry.problem: fitting_problem(entry.problem, memory_bytes) for entry in entries}
    messages = [
        f"problem {old.name} needs {least_bytes(old)} bytes of GPU memory, {memory_bytes} are "
        f"there: {new.name} is measured instead"
        for old, new in replaced.items()
        if old != new
    ]
    fitted = (Entry(entry.config, replaced[entry.problem]) for entry in entries)
    return list(dict.fromkeys(fitted)), messages
