"""On a real GPU: the worklog's hand-written kernels against the FP64 reference.

One command runs these alone: `pytest -m gpu -k "simt or wgmma" -n 0 tests/test_gpu_ladder.py`.
"""
# ruff: noqa: F811 - a fixture's argument has the name of the imported fixture

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cutlass_study.compile import compile_kernels
from cutlass_study.config import GemmConfig, GemmProblem
from cutlass_study.driver import allocate, call
from cutlass_study.families import infeasible_reason
from cutlass_study.gpu_session import GpuSession
from cutlass_study.gpus import limits_of
from cutlass_study.ladder import SIMT_ALL, WGMMA_ALL, wgmma
from cutlass_study.operands import Operands
from cutlass_study.space import Entry
from cutlass_study.tasks import KernelTask, ProblemSetup
from tests.test_gpu import (
    Card,
    all_ones,
    build_of,
    cache,
    card,  # noqa: F401 - a fixture
    driver,
    job_of,
    mismatches,
    named,
    opened,
    prepared_kernel,
    run_once,
    upload,
    verdict_of,
)

pytestmark = pytest.mark.gpu

# Odd, even, smaller than a tile, one row, one column; rows that are not aligned for vectors.
SIMT_SHAPES = ((256, 128, 64), (257, 519, 1000), (31, 33, 7), (1, 300, 65), (300, 1, 130))
# One k-tile; fewer k-tiles than stages; as many; several rounds of every ring; M, N and K differ.
WGMMA_SHAPES = ((128, 256, 64), (256, 512, 128), (384, 256, 256), (256, 768, 1088))
# Beside the preset's: other depths, one consumer with the widest instruction, a taller tile.
OTHERS = (
    *(wgmma("pipelined_n128", stages=stages) for stages in (2, 5, 6)),
    wgmma("pipelined_n256", tile=(64, 256, 64)),
    wgmma("serial_n64", tile=(256, 128, 64), warpgroup=(128, 128, 64)),
    wgmma("serial_n128", epilogue="staged"),
)


def problems(shapes: tuple[tuple[int, int, int], ...], layouts: tuple[str, ...]):
    return [
        GemmProblem(*shape, layout, output, beta=beta)  # type: ignore[arg-type]
        for shape in shapes
        for layout in layouts
        for output in ("f32", "f16")
        for beta in (0.0, 0.5)
    ]


CASES = [
    *(Entry(c, p) for p in problems(SIMT_SHAPES, ("tn", "nn")) for c in SIMT_ALL),
    *(
        Entry(c, p)
        for p in problems(WGMMA_SHAPES, ("tn",))
        for c in (*WGMMA_ALL, *OTHERS)
        if infeasible_reason(c, p, limits_of("sm_90a")) is None
    ),
]
SQUARE = GemmProblem(512, 512, 512)
PADDED = replace(SQUARE, lda=520)


@pytest.fixture(scope="session")
def compiled_ladder(card: Card) -> None:
    """All kernels of CASES in the cache, compiled on all cores at once."""
    jobs = [
        job_of(card, entry)
        for entry in CASES
        if infeasible_reason(entry.config, entry.problem, card.limits) is None
    ]
    compile_kernels(jobs, cache())


@pytest.mark.usefixtures("compiled_ladder")
@pytest.mark.parametrize("entry", CASES, ids=named)
def test_the_ladder_is_right_twice(card: Card, entry: Entry) -> None:
    """Right, and the second launch gives the same bits: no barrier or race decides."""
    with (
        opened(card, entry.problem) as (operands, reference),
        prepared_kernel(card, entry, operands) as kernel,
    ):
        first = run_once(kernel, operands)
        verdict = reference.compare()
        assert verdict.reason == ""
        assert (run_once(kernel, operands).view(np.uint8) == first.view(np.uint8)).all()


EVERY = [*SIMT_ALL, *WGMMA_ALL]


@pytest.mark.parametrize("config", EVERY, ids=lambda config: config.name)
def test_rows_and_columns_are_not_mixed_up(card: Card, config: GemmConfig) -> None:
    """A[i][k] = i+1, B[k][j] = j+1: D[i][j] = 64 (i+1)(j+1) is exact and tells its place."""
    p = GemmProblem(256, 512, 64)
    rows, columns = np.arange(1, p.m + 1), np.arange(1, p.n + 1)

    def change(operands: Operands) -> None:
        upload(operands.sets[0].a, np.repeat(rows, p.k).astype(np.float16))
        upload(operands.sets[0].b, np.repeat(columns, p.k).astype(np.float16))

    verdict, d = verdict_of(card, Entry(config, p), change)
    wanted = p.k * np.outer(rows, columns)
    where = np.argwhere(d != wanted)
    assert len(where) == 0, f"{len(where)} wrong, first at {where[:8].tolist()}"
    assert verdict.reason == ""


@pytest.mark.parametrize("config", EVERY, ids=lambda config: config.name)
def test_no_step_along_k_is_left_out_or_taken_twice(card: Card, config: GemmConfig) -> None:
    """A is 2^t in the t-th 64 columns, B is 1: the sum names the k-tiles that are missing."""
    p = GemmProblem(128, 256, 512)
    powers = 2.0 ** (np.arange(p.k) // 64)

    def change(operands: Operands) -> None:
        upload(operands.sets[0].a, np.tile(powers, p.m).astype(np.float16))
        upload(operands.sets[0].b, np.ones(p.n * p.k, np.float16))

    _, d = verdict_of(card, Entry(config, p), change)
    assert set(np.unique(d)) == {64 * 255.0}


@pytest.mark.parametrize("config", EVERY, ids=lambda config: config.name)
def test_padded_rows_and_long_sums(card: Card, config: GemmConfig) -> None:
    verdict, _ = verdict_of(card, Entry(config, PADDED))
    assert verdict.reason == ""
    verdict, d = verdict_of(card, Entry(config, GemmProblem(128, 256, 65536)), all_ones)
    assert verdict.reason == ""
    assert (d == 65536).all()


@pytest.mark.parametrize("config", EVERY, ids=lambda config: config.name)
def test_a_source_of_nan_is_not_read_with_beta_zero(card: Card, config: GemmConfig) -> None:
    nan = allocate(SQUARE.m * SQUARE.n * SQUARE.output_bytes)
    call(driver.cuMemsetD8, nan.address, 0xFF, nan.size_bytes)

    def change(operands: Operands) -> None:
        operands.sets[0] = replace(operands.sets[0], c=nan.address)

    try:
        verdict, _ = verdict_of(card, Entry(config, SQUARE), change)
    finally:
        nan.free()
    assert verdict.reason == ""


@pytest.mark.parametrize("config", WGMMA_ALL, ids=lambda config: config.name)
def test_many_launches_in_a_row_stay_right(card: Card, config: GemmConfig) -> None:
    """A barrier's phase or a CTA's registers that outlive a launch would show by the hundredth."""
    problem = GemmProblem(2048, 2048, 1024)
    with (
        opened(card, problem) as (operands, reference),
        prepared_kernel(card, Entry(config, problem), operands) as kernel,
    ):
        first = run_once(kernel, operands)
        for _ in range(200):
            kernel.launch(0)
        kernel.stream.synchronize()
        assert (run_once(kernel, operands) == first).all()
        assert reference.compare().reason == ""


@pytest.mark.usefixtures("compiled_ladder")
def test_occupancy_of_simt_and_wgmma_kernels_is_the_drivers(card: Card) -> None:
    compared, wrong = mismatches(card, CASES)
    assert compared > 20
    assert wrong == []


@pytest.mark.parametrize("config", [SIMT_ALL[-1], wgmma("pipelined_n256")], ids=lambda c: c.name)
def test_simt_and_wgmma_kernels_are_sampled_like_any_other(card: Card, config: GemmConfig) -> None:
    """The road that a sweep takes: load, verify, sample, on rotated operand sets."""
    entry = Entry(config, GemmProblem(1024, 1024, 1024))
    image = build_of(card, entry).cubin
    session, setup = GpuSession(), ProblemSetup(entry.problem, "uniform", 0)
    sets = session.open_problem(setup, with_reference=True)
    session.load(setup, KernelTask(config, image, 1))
    verified = session.verify(setup, config.name)
    taken = session.sample(setup, config.name, "burst", 0, verified.estimate_ms, None)
    session.close_all()
    assert sets > 1
    assert verified.reason == ""
    assert taken.sample.time_ms > 0
