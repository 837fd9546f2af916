"""Widths of memory accesses against the problem and the hardware, with a remedy in each reason.

`operand_alignment`, `k_alignment` and `output_alignment` hold for the `sm80` and the `sm90` family.
"""

from __future__ import annotations

import math

from cutlass_study.config import GemmConfig, GemmProblem
from cutlass_study.gpus import GpuLimits
from cutlass_study.thread_maps import VECTOR

MAX_ACCESS_BYTES = 16  # widest global load or store of a thread


def cp_async_width(config: GemmConfig, problem: GemmProblem, limits: GpuLimits) -> str | None:
    """cp.async copies 4, 8 or 16 bytes; the multistage main loop (S >= 3) uses it."""
    assert config.stages and config.alignment
    if config.stages >= 3 and config.alignment < 2:
        return (
            f"cp.async needs at least 4 bytes, alignment {config.alignment} gives "
            f"{2 * config.alignment}; use alignment 2 or S=2"
        )
    return None


def epilogue_access(config: GemmConfig, problem: GemmProblem, limits: GpuLimits) -> str | None:
    """A thread stores at most 16 bytes at once; a wider one compiles to the same code."""
    assert config.epilogue_width
    wide = config.epilogue_width * problem.output_bytes
    if wide > MAX_ACCESS_BYTES:
        return (
            f"epilogue width {config.epilogue_width} is {wide} bytes per access, "
            f"limit {MAX_ACCESS_BYTES}"
        )
    return None


def _widest(limit: int, *extents: int) -> int:
    """The widest access of at most `limit` (a power of two) elements that divides every extent."""
    return math.gcd(limit, *extents)


def _alignment_remedy(config: GemmConfig, problem: GemmProblem) -> str:
    """What to do where K or a leading dimension of A or B does not fit the alignment."""
    if config.family == "sm90":
        return f"TMA needs multiples of {VECTOR}, so change the problem or use family sm80"
    width = _widest(VECTOR, problem.k, *problem.leading_dimensions[:2])
    if width == 1 and config.stages != 2:
        return "use alignment 1 with S=2"
    return f"use alignment {width}"


def _output_remedy(config: GemmConfig, problem: GemmProblem) -> str:
    width = _widest(MAX_ACCESS_BYTES // problem.output_bytes, problem.leading_dimensions[2])
    other = "epilogue nosmem with " if config.epilogue == "tma" else ""
    return f"use {other}epilogue width {width}"


def operand_alignment(config: GemmConfig, problem: GemmProblem, limits: GpuLimits) -> str | None:
    """Vector accesses need every row or column of A and B to start at a multiple of the width."""
    assert config.alignment
    lda, ldb, _ = problem.leading_dimensions
    for operand, leading in (("A", lda), ("B", ldb)):
        if leading % config.alignment:
            return (
                f"leading dimension {leading} of {operand} is not a multiple of "
                f"alignment {config.alignment}; {_alignment_remedy(config, problem)}"
            )
    return None


def k_alignment(config: GemmConfig, problem: GemmProblem, limits: GpuLimits) -> str | None:
    """K itself must be a multiple of the width, however A is padded.

    Source: `PredicatedTileAccessIterator` visits the K residue first and then steps by it, so all
    later loads would be misaligned; `GemmUniversal::can_implement` and TMA ask the same.
    """
    assert config.alignment
    if problem.k % config.alignment:
        return (
            f"K={problem.k} is not a multiple of alignment {config.alignment}; "
            f"a padded leading dimension does not help; {_alignment_remedy(config, problem)}"
        )
    return None


def output_alignment(config: GemmConfig, problem: GemmProblem, limits: GpuLimits) -> str | None:
    """D's rows must start at multiples of the epilogue width."""
    assert config.epilogue_width
    leading = problem.leading_dimensions[2]
    if leading % config.epilogue_width:
        return (
            f"leading dimension {leading} of D is not a multiple of "
            f"epilogue width {config.epilogue_width}; {_output_remedy(config, problem)}"
        )
    return None
