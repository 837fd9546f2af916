"""What each experiment measures: kernels, problems, inputs and conditions, as data.

Pure functions; nothing here compiles or touches a GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from cutlass_study.conditions import (
    CACHE_CONDITIONS,
    INTERLEAVED,
    LABEL,
    OWN_ALONE,
    PEER,
    REPETITION,
    SERIAL,
    SETTLING,
)
from cutlass_study.config import GemmConfig, GemmProblem
from cutlass_study.footprint import fitting_problem
from cutlass_study.prepare import Inputs, Prepared
from cutlass_study.records import Distribution, Identity
from cutlass_study.sm90_resources import pipeline_stages
from cutlass_study.space import CUBLAS, Entry, sm80, square, wmma

DISTRIBUTIONS: tuple[Distribution, ...] = ("zeros", "integers", "uniform", "normal")
CACHE_EXTENTS = (1024, 2048, 4096)  # M2: from far below the L2 of every card to above it


@dataclass(frozen=True, slots=True)
class Case:
    """One row of an experiment."""

    entry: Entry
    distribution: Distribution = "uniform"
    condition: str = ""
    seed_offset: int = 0  # another seed has operands, and a D, of its own


def inputs_cases(kernels: Iterable[GemmConfig], problem: GemmProblem) -> Iterator[Case]:
    """M1: every kernel on zeros, small integers, uniform and normal inputs."""
    for distribution in DISTRIBUTIONS:
        for config in (CUBLAS, *kernels):
            yield Case(Entry(config, problem), distribution)


def with_source(config: GemmConfig) -> GemmConfig:
    """The same kernel with a C to read; what is no sm90 kernel always has one."""
    return replace(config, source_c="float") if config.source_c == "void" else config


def alphabeta_cases(kernels: Iterable[GemmConfig], problem: GemmProblem) -> Iterator[Case]:
    """beta=0 without a C (where the kernel can), beta=0 with a C, and beta=1.

    As many stages as fit beside a C (`stages` of "auto") are fewer than without: all have those.
    """
    added = replace(problem, beta=1.0)
    for config in (CUBLAS, *kernels):
        own = with_source(config)
        if config.family == "sm90":
            stages = pipeline_stages(own, problem)
            config, own = replace(config, stages=stages), replace(own, stages=stages)
        for variant in dict.fromkeys((config, own)):
            yield Case(Entry(variant, problem))
        yield Case(Entry(own, added))


def cache_cases(kernels: Iterable[GemmConfig], problem: GemmProblem) -> Iterator[Case]:
    """M2: rotated, hot, flushed, and as alone as a flushed launch but hot; `problem` is unused."""
    kernels = list(kernels)
    for extent in CACHE_EXTENTS:
        for config in (CUBLAS, *kernels):
            for condition in CACHE_CONDITIONS:
                yield Case(Entry(config, square(extent)), condition=condition)


def label_cases(problem: GemmProblem, labels: int, repetition: int) -> Iterator[Case]:
    """cuBLAS as the control and under `labels` other names: all are the same kernel."""
    control = f"{REPETITION}{repetition}"
    yield Case(Entry(CUBLAS, problem), condition=control)
    for label in range(1, labels + 1):
        yield Case(Entry(CUBLAS, problem), condition=f"{control}{LABEL}{label}")


def interleave_cases(kernels: Iterable[GemmConfig], problem: GemmProblem) -> Iterator[Case]:
    """cuBLAS and one CUTLASS kernel on operands of their own, one after the other and together."""
    other = next(iter(kernels))
    for condition in (SERIAL, INTERLEAVED):
        yield Case(Entry(CUBLAS, problem), condition=condition)
        yield Case(Entry(other, problem), condition=condition, seed_offset=1)


def nvbench_kernels(sm80: Iterable[GemmConfig], sm90: GemmConfig | None) -> list[GemmConfig]:
    """The kernels that both tools time: cuBLAS apart, three sm80, one sm90, one WMMA."""
    return [*sm80, *([sm90] if sm90 else []), wmma(3)]


def nvbench_cases(kernels: Iterable[GemmConfig], problem: GemmProblem) -> Iterator[Case]:
    """Each kernel as the study times it, as `cuda.bench` does, and by us in the peer's way."""
    for config in (CUBLAS, *kernels):
        for condition in ("", PEER, OWN_ALONE):
            yield Case(Entry(config, problem), condition=condition)


def settle_kernels(best: Iterable[GemmConfig]) -> list[GemmConfig]:
    """The best sm80, the study's two tiles at S=3, and the WMMA kernels: from most power to least.

    cuBLAS apart.
    """
    tiles = (sm80((256, 128, 32), 3), sm80((128, 128, 32), 3))
    return list(dict.fromkeys((*best, *tiles, wmma(1), wmma(3))))


def settle_cases(kernels: Iterable[GemmConfig], problem: GemmProblem) -> Iterator[Case]:
    """cuBLAS and the kernels, each to be run for a span after another one's."""
    for config in (CUBLAS, *kernels):
        yield Case(Entry(config, problem), condition=SETTLING)


def fitting(problem: GemmProblem, memory_bytes: int, open_at_once: int) -> GemmProblem:
    """The problem, or the largest of its kind of which so many can be open at once."""
    return fitting_problem(problem, int(0.9 * memory_bytes) // open_at_once)


def as_rows(
    cases: Iterable[Case], compiled: Iterable[Prepared], arch: str, inputs: Inputs
) -> list[Prepared]:
    """The compiled entries as rows of the cases: each with its own inputs and condition."""
    by_entry = {item.entry: item for item in compiled}
    rows = []
    for case in cases:
        item = by_entry[case.entry]
        identity = Identity(
            case.entry.config,
            case.entry.problem,
            arch,
            case.distribution,
            inputs.seed + case.seed_offset,
            case.condition,
        )
        rows.append(replace(item, row=replace(item.row, identity=identity)))
    return rows
