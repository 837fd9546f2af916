"""On a real GPU: every family is right, failures stay isolated, and times are what they claim.

Run with `pytest -m gpu -n 0`; `-m "gpu and not slow"` leaves out what compiles whole presets.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, get_args

import numpy as np
import pytest
from cuda.bindings import driver

from cutlass_study import settling, stats
from cutlass_study.axes import Axes
from cutlass_study.cache import KernelBuild, KernelCache
from cutlass_study.chosen_space import entries
from cutlass_study.compile import Job, compile_kernels
from cutlass_study.config import HAND_WRITTEN, GemmConfig, GemmProblem, UsageError
from cutlass_study.cublas import CublasKernel, CublasLtKernel
from cutlass_study.device import open_device, query_device
from cutlass_study.driver import (
    Buffer,
    Event,
    Graph,
    Module,
    Stream,
    allocate,
    allow_shared_memory,
    call,
    download,
    resident_ctas,
)
from cutlass_study.families import FrontEnd, infeasible_reason, source
from cutlass_study.footprint import set_bytes
from cutlass_study.gpu_session import GpuSession
from cutlass_study.gpus import GpuLimits, limits_from, limits_of
from cutlass_study.kernels import CutlassKernel, HandWrittenKernel, Kernel, NotImplementable
from cutlass_study.measure import ClockProbe, Sampler
from cutlass_study.occupancy import occupancy
from cutlass_study.operands import Operands
from cutlass_study.prepare import Inputs, Prepared, prepare
from cutlass_study.presets import PRESETS
from cutlass_study.records import (
    CacheMode,
    DeviceRecord,
    Distribution,
    EnvironmentProblem,
    Identity,
    RowOutcome,
)
from cutlass_study.results import ResultsStore
from cutlass_study.space import (
    CUBLAS,
    CUBLAS_LT,
    WMMA_ALL,
    Entry,
    sm80,
    sm90,
    square,
    wmma,
)
from cutlass_study.sweep import Sweep
from cutlass_study.sweep_options import SweepOptions
from cutlass_study.tasks import KernelTask, ProblemSetup, Verification
from cutlass_study.verify import Reference, Verdict, error_factor
from cutlass_study.wgmma_kernel import hand_written_kernel
from cutlass_study.worker import Worker, WorkerFailure
from tests import emulation
from tests.bad_kernels import bad_kernel

pytestmark = pytest.mark.gpu

BUDGET_S = 0.5
SHAPES = ((256, 128, 64), (256, 512, 64), (257, 519, 1000))  # C5: M, N and K all differ
ONE = 0x3C00  # FP16


@dataclass(frozen=True)
class Card:
    """The GPU of this process."""

    device: DeviceRecord
    limits: GpuLimits
    stream: Stream


@pytest.fixture(scope="session")
def card() -> Card:
    try:
        device = query_device(open_device())
    except EnvironmentProblem as problem:
        pytest.skip(str(problem))
    return Card(device, limits_from(device), Stream())


# --- kernels -------------------------------------------------------------------------------


def _widest(*leading_dimensions: int) -> int:
    """Elements of the widest vector access, up to 8, that all leading dimensions allow."""
    return next(w for w in (8, 4, 2, 1) if all(ld % w == 0 for ld in leading_dimensions))


def _sm80_configs(problem: GemmProblem) -> Iterator[GemmConfig]:
    lda, ldb, ldd = problem.leading_dimensions
    alignment = _widest(lda, ldb)
    width = min(_widest(ldd), 16 // problem.output_bytes)
    for stages in (2, 3, 4):
        yield sm80((128, 128, 32), stages, width, alignment=alignment)
    yield sm80((256, 128, 32), 3, width, alignment=alignment)
    if problem.layout == "tn" and problem.output == "f32":
        yield sm80((128, 64, 64), 3, width, alignment=alignment, swizzle=2)
        yield sm80((128, 128, 32), 3, width, alignment=alignment, split_k=2)
        yield sm80((128, 128, 32), 3, 1, alignment=alignment)


def _sm90_configs(problem: GemmProblem) -> Iterator[GemmConfig]:
    source_c = "void" if not problem.beta else "float" if problem.output == "f32" else "half"
    width = 16 // problem.output_bytes
    common: dict[str, Any] = {"source_c": source_c, "epilogue_width": width}
    yield sm90((128, 128, 64), None, cluster=(1, 1, 1), **common)
    if problem.layout == "tn" and problem.output == "f32":
        yield sm90((128, 128, 64), 2, **common)
        yield sm90((64, 128, 64), 3, schedule="pingpong", cluster=(1, 2, 1), **common)
        yield sm90((128, 128, 64), None, schedule="streamk", cluster=(1, 1, 1), **common)
        plain = {**common, "epilogue": "nosmem", "epilogue_width": 1}
        yield sm90((128, 128, 64), None, cluster=(1, 1, 1), **plain)


def configs_for(problem: GemmProblem) -> list[GemmConfig]:
    """Kernels of every family that are legal for the problem on Hopper."""
    found = [CUBLAS, CUBLAS_LT, *WMMA_ALL, *_sm80_configs(problem), *_sm90_configs(problem)]
    limits = limits_of("sm_90a")
    return [c for c in found if infeasible_reason(c, problem, limits) is None]


CASES = [
    Entry(config, problem)
    for shape in SHAPES
    for layout in ("tn", "nn")
    for output in ("f32", "f16")
    for beta in (0.0, 0.5, 1.0)
    for problem in [GemmProblem(*shape, layout, output, beta=beta)]  # type: ignore[arg-type]
    for config in configs_for(problem)
]


@functools.cache
def cache() -> KernelCache:
    return KernelCache()


def job_of(card: Card, entry: Entry, front_end: FrontEnd = "templates") -> Job:
    unit = source(entry.config, entry.problem, front_end)
    assert unit is not None
    return Job(entry.config.family, card.device.arch, unit)


def build_of(card: Card, entry: Entry, front_end: FrontEnd = "templates") -> KernelBuild:
    job = job_of(card, entry, front_end)
    build = compile_kernels([job], cache())[job]
    assert build.cubin, build.error
    return build


@pytest.fixture(scope="session")
def compiled_cases(card: Card) -> None:
    """All kernels of CASES in the cache, compiled on all cores at once."""
    jobs = [
        job_of(card, entry)
        for entry in CASES
        if entry.config.family != "cublas"
        and infeasible_reason(entry.config, entry.problem, card.limits) is None
    ]
    compile_kernels(jobs, cache())


def make_kernel(card: Card, entry: Entry, front_end: FrontEnd = "templates") -> Kernel:
    config = entry.config
    if config.family == "cublas":
        return CublasKernel() if config == CUBLAS else CublasLtKernel()
    reason = infeasible_reason(config, entry.problem, card.limits)
    if reason:
        pytest.skip(reason)
    build = build_of(card, entry, front_end)
    resources = build.record.resources
    assert build.cubin
    assert resources
    if config.family in HAND_WRITTEN:
        return hand_written_kernel(config, build.cubin)
    resident = occupancy(
        resources.registers, resources.smem_bytes, resources.threads, card.limits
    ).ctas_per_sm
    return CutlassKernel(config, build.cubin, card.device.sm_count, resident)


# --- problems ------------------------------------------------------------------------------

Change = Callable[[Operands], None]


@contextmanager
def opened(
    card: Card,
    problem: GemmProblem,
    *,
    distribution: Distribution = "uniform",
    change: Change = lambda operands: None,
    l2_bytes: int = 1,
) -> Iterator[tuple[Operands, Reference]]:
    """Operands (one set by default), changed before the reference is computed from them."""
    operands = Operands(problem, distribution, 1, card.device.arch, l2_bytes, card.stream)
    try:
        change(operands)
        reference = Reference(operands, card.device.arch, BUDGET_S, card.stream)
        try:
            yield operands, reference
        finally:
            reference.free()
    finally:
        operands.free()


@contextmanager
def prepared_kernel(
    card: Card, entry: Entry, operands: Operands, **options: Any
) -> Iterator[Kernel]:
    kernel = make_kernel(card, entry, **options)
    try:
        kernel.prepare(entry.problem, operands)
        yield kernel
    finally:
        kernel.close()


def run_once(kernel: Kernel, operands: Operands) -> np.ndarray:
    """D[m,n] of one launch into a poisoned D."""
    operands.poison(0, copy_c=kernel.in_place)
    kernel.launch(0)
    kernel.stream.synchronize()
    return d_of(operands)


def d_of(operands: Operands) -> np.ndarray:
    p = operands.problem
    raw = download(operands.sets[0].d, p.m * p.n * p.output_bytes)
    return np.frombuffer(raw, np.float16 if p.output == "f16" else np.float32).reshape(p.m, p.n)


def verdict_of(
    card: Card, entry: Entry, change: Change = lambda operands: None
) -> tuple[Verdict, np.ndarray]:
    with (
        opened(card, entry.problem, change=change) as (operands, reference),
        prepared_kernel(card, entry, operands) as kernel,
    ):
        d = run_once(kernel, operands)
        return reference.compare(), d


def upload(target: int, values: np.ndarray) -> None:
    packed = np.ascontiguousarray(values)
    call(driver.cuMemcpyHtoD, target, packed.ctypes.data, packed.nbytes)


def all_ones(operands: Operands) -> None:
    p = operands.problem
    for one_set in operands.sets:
        call(driver.cuMemsetD16, one_set.a, ONE, p.m * p.k)
        call(driver.cuMemsetD16, one_set.b, ONE, p.n * p.k)


def named(entry: Entry) -> str:
    return f"{entry.config.name}__{entry.problem.name}"


# --- every family is right -----------------------------------------------------------------


@pytest.mark.usefixtures("compiled_cases")
@pytest.mark.parametrize("entry", CASES, ids=named)
def test_every_family_is_right_twice(card: Card, entry: Entry) -> None:
    """Right, and the second launch gives the same bits: no state is left behind."""
    with (
        opened(card, entry.problem) as (operands, reference),
        prepared_kernel(card, entry, operands) as kernel,
    ):
        first = run_once(kernel, operands)
        verdict = reference.compare(in_place=kernel.in_place)
        assert verdict.reason == ""
        assert verdict.overflows == 0
        assert verdict.max_rel_error < 1e-2, "the primary document's criterion"
        assert (run_once(kernel, operands).view(np.uint8) == first.view(np.uint8)).all()


def some_of_each(problem: GemmProblem) -> list[Entry]:
    """One kernel of each family, as far as they are legal for the problem."""
    found = [CUBLAS, CUBLAS_LT, wmma(1), wmma(3), next(_sm80_configs(problem))]
    found.append(next(_sm90_configs(problem)))
    limits = limits_of("sm_90a")
    return [Entry(c, problem) for c in found if infeasible_reason(c, problem, limits) is None]


def each(*problems: GemmProblem) -> Any:
    cases = [entry for problem in problems for entry in some_of_each(problem)]
    return pytest.mark.parametrize("entry", cases, ids=named)


@each(GemmProblem(256, 128, 64), GemmProblem(256, 512, 64), GemmProblem(256, 512, 64, layout="nn"))
def test_rows_and_columns_are_not_mixed_up(card: Card, entry: Entry) -> None:
    """C5: A[i][k] = i+1, B[k][j] = j+1, so D[i][j] = 64 (i+1)(j+1), exact in FP32."""
    p = entry.problem
    rows, columns = np.arange(1, p.m + 1), np.arange(1, p.n + 1)

    def change(operands: Operands) -> None:
        upload(operands.sets[0].a, np.repeat(rows, p.k).astype(np.float16))
        b = np.repeat(columns, p.k) if p.layout == "tn" else np.tile(columns, p.k)
        upload(operands.sets[0].b, b.astype(np.float16))

    verdict, d = verdict_of(card, entry, change)
    assert verdict.reason == ""
    assert (d == p.k * np.outer(rows, columns)).all()


@each(
    *(
        GemmProblem(128, 256, k, output=output)  # type: ignore[arg-type]
        for output in ("f32", "f16")
        for k in (4096, 65504, 65520, 65536)
    )
)
def test_sums_of_ones_are_exact_and_overflow_only_in_fp16(card: Card, entry: Entry) -> None:
    """C2. K=4096 gives 4096 everywhere: 2048 would mean that someone accumulates in FP16."""
    verdict, d = verdict_of(card, entry, all_ones)
    assert verdict.reason == ""
    k, half = entry.problem.k, entry.problem.output == "f16"
    overflow = half and k >= 65520
    assert (d == (np.inf if overflow else k)).all()
    assert verdict.overflows == (d.size if overflow else 0)


C7_CONFIGS = (sm80((128, 128, 32), 4), wmma(4), wmma(1), CUBLAS, sm90((128, 128, 64), 4))


@pytest.mark.parametrize("config", C7_CONFIGS, ids=lambda config: config.name)
@pytest.mark.parametrize("k", [8, 32, 96, 1000])
def test_k_may_be_shorter_than_the_pipeline(card: Card, config: GemmConfig, k: int) -> None:
    """C7."""
    verdict, _ = verdict_of(card, Entry(config, GemmProblem(128, 256, k)))
    assert verdict.reason == ""


def test_k_of_zero_is_refused() -> None:
    with pytest.raises(UsageError, match="K=0"):
        GemmProblem(128, 128, 0)


@each(GemmProblem(256, 128, 64), GemmProblem(256, 128, 64, output="f16"))
def test_a_source_of_nan_is_not_read_with_beta_zero(card: Card, entry: Entry) -> None:
    """C8: 0 · NaN is NaN, so C must not even be loaded."""
    p = entry.problem
    nan = allocate(p.m * p.n * p.output_bytes)
    call(driver.cuMemsetD8, nan.address, 0xFF, nan.size_bytes)

    def change(operands: Operands) -> None:
        operands.sets[0] = replace(operands.sets[0], c=nan.address)

    try:
        verdict, d = verdict_of(card, entry, change)
    finally:
        nan.free()
    assert verdict.reason == ""
    assert np.isfinite(d).all()


@each(GemmProblem(128, 256, 16, beta=1.0))
def test_verification_starts_fresh_however_often_the_kernel_ran(card: Card, entry: Entry) -> None:
    """C8: cuBLAS adds to D in place, 25 launches give 25 sums; verifying poisons D first."""

    def change(operands: Operands) -> None:
        all_ones(operands)
        p = operands.problem
        upload(operands.sets[0].c, np.zeros((p.m, p.n), np.float32))

    with (
        opened(card, entry.problem, change=change) as (operands, reference),
        prepared_kernel(card, entry, operands) as kernel,
    ):
        operands.poison(0, copy_c=kernel.in_place)
        for _ in range(25):
            kernel.launch(0)
        kernel.stream.synchronize()
        assert (d_of(operands) == (400 if kernel.in_place else 16)).all()
        assert (run_once(kernel, operands) == 16).all()
        assert reference.compare().reason == ""


@pytest.mark.parametrize(
    "problem",
    [
        GemmProblem(4097, 4096, 4096, layout="nn"),
        GemmProblem(4096, 4096, 4096, layout="nn", lda=4104),
    ],
    ids=lambda problem: problem.name,
)
@pytest.mark.parametrize("stages", [2, 3])
def test_an_odd_m_and_a_padded_a_are_right(card: Card, problem: GemmProblem, stages: int) -> None:
    """F4."""
    verdict, _ = verdict_of(card, Entry(sm80((256, 128, 32), stages), problem))
    assert verdict.reason == ""


@pytest.mark.parametrize("stages", [2, 3])
def test_an_odd_k_is_refused_by_the_kernel_too(card: Card, stages: int) -> None:
    """F4: padding A does not help, since the loads after K's residue would be misaligned."""
    problem = GemmProblem(4096, 4096, 4097, layout="nn", lda=4104)
    with pytest.raises(NotImplementable, match="MisalignedOperand"):
        verdict_of(card, Entry(sm80((256, 128, 32), stages), problem))


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("output", ["f32", "f16"])
def test_both_front_ends_give_the_same_bits(card: Card, stages: int, output: Any) -> None:
    problem = GemmProblem(512, 384, 1000, output=output)
    entry = Entry(sm80((256, 128, 32), stages, 16 // problem.output_bytes), problem)
    results = []
    with opened(card, problem) as (operands, reference):
        front_ends: tuple[FrontEnd, ...] = ("templates", "interface")
        for front_end in front_ends:
            with prepared_kernel(card, entry, operands, front_end=front_end) as kernel:
                results.append(run_once(kernel, operands))
                assert reference.compare().reason == ""
    ours, theirs = (build_of(card, entry, f).record.resources for f in front_ends)
    assert ours
    assert theirs
    assert (ours.registers, ours.smem_bytes) == (theirs.registers, theirs.smem_bytes)
    assert (results[0].view(np.uint8) == results[1].view(np.uint8)).all()


# --- inputs and verdicts -------------------------------------------------------------------


@pytest.mark.parametrize("distribution", ["uniform", "integers", "zeros", "normal"])
@pytest.mark.parametrize(
    "problem",
    [GemmProblem(129, 65, 33), GemmProblem(64, 96, 40, layout="nn", lda=48, beta=0.5)],
    ids=lambda problem: problem.name,
)
def test_operands_are_the_emulated_bits(
    card: Card, problem: GemmProblem, distribution: Distribution
) -> None:
    made = [
        Operands(problem, distribution, seed, card.device.arch, set_bytes(problem), card.stream)
        for seed in (1, 1, 2)
    ]
    try:
        assert len(made[0].sets) == 4
        for index in (0, 3):
            a, b = emulation.operands(problem, distribution, 1, index)
            for operand, wanted in (("a", a), ("b", b)):
                first, again, other = (
                    download(getattr(operands.sets[index], operand), wanted.nbytes)
                    for operands in made
                )
                assert first == again
                assert (first != other) == (distribution != "zeros")
                got = np.frombuffer(first, np.float16).reshape(wanted.shape)
                if distribution == "normal":  # the GPU's logf and cospif may differ in last bits
                    np.testing.assert_allclose(got, wanted, rtol=2e-3, atol=1e-6)
                else:
                    assert (got.view(np.uint16) == wanted.view(np.uint16)).all()
        if problem.beta and distribution == "uniform":
            seed = emulation.stream_seed(1, 3, 2)
            wanted_c = emulation.matrix(distribution, seed, problem.m, problem.n, problem.n)
            raw = download(made[0].sets[3].c, wanted_c.nbytes)
            assert (np.frombuffer(raw, np.float32) == wanted_c.ravel()).all()
    finally:
        for operands in made:
            operands.free()


@pytest.mark.parametrize("output", ["f32", "f16"])
@pytest.mark.parametrize("layout", ["tn", "nn"])
def test_verdicts_are_the_emulated_ones(card: Card, output: Any, layout: Any) -> None:
    """Errors of half and of twice the bound; NaN; all against numpy on the same bits."""
    problem = GemmProblem(48, 80, 200, layout=layout, output=output)
    a, b = emulation.operands(problem, "uniform", 1)
    wide_a = a.astype(np.float64)
    wide_b = (b.T if layout == "tn" else b).astype(np.float64)
    product = wide_a @ wide_b
    norms = np.outer(np.linalg.norm(wide_a, axis=1), np.linalg.norm(wide_b, axis=0))
    bound = error_factor(problem.k) * norms
    if output == "f16":
        bound += np.abs(product) * 2.0**-10
    d = product.copy()
    d[:, ::3] += 0.4 * bound[:, ::3]
    d[1::7, 1::5] += 4 * bound[1::7, 1::5] + (np.abs(d[1::7, 1::5]) * 2.0**-9)
    d[5, 6] = np.nan
    typed = d.astype(np.float16 if output == "f16" else np.float32)
    expected = emulation.compare(typed, product, wide_a, wide_b)
    assert expected.violations > 100
    with opened(card, problem) as (operands, reference):
        upload(operands.sets[0].d, typed)
        reason = reference.compare().reason
    assert expected.first
    assert f"at ({expected.first[0]},{expected.first[1]})" in reason
    assert f"{expected.violations} of {d.size} elements wrong, 1 not finite" in reason


def test_one_nan_is_found_and_located(card: Card) -> None:
    """C1."""
    problem = GemmProblem(256, 128, 64)
    entry = Entry(CUBLAS, problem)
    with (
        opened(card, problem) as (operands, reference),
        prepared_kernel(card, entry, operands) as kernel,
    ):
        run_once(kernel, operands)
        upload(operands.sets[0].d + 4 * (3 * problem.n + 5), np.array([np.nan], np.float32))
        reason = reference.compare().reason
    assert reason.startswith("non-finite at (3,5): nan instead of ")
    assert f"1 of {256 * 128} elements wrong, 1 not finite" in reason


def test_a_kernel_that_writes_nothing_is_wrong(card: Card) -> None:
    """M5: the poison in D shows that nothing ran, however fast it was."""
    problem = GemmProblem(256, 128, 64)
    kernel = HandWrittenKernel(wmma(1), bad_kernel("writes nothing", card.device.arch))
    with opened(card, problem) as (operands, reference):
        kernel.prepare(problem, operands)
        run_once(kernel, operands)
        reason = reference.compare().reason
    kernel.close()
    assert reason.startswith("non-finite at (0,0): nan")
    assert f"{256 * 128} not finite" in reason


# --- isolation -----------------------------------------------------------------------------


def prepared_item(card: Card, entry: Entry, image: bytes | None = None) -> Prepared:
    identity = Identity(entry.config, entry.problem, card.device.arch, "uniform", 1)
    row = RowOutcome(identity, "ok")
    if entry.config.family == "cublas":
        return Prepared(entry, row, True)
    build = build_of(card, entry)
    if image is not None:
        build = replace(build, record=replace(build.record, key="bad"), cubin=image)
    row = replace(row, build_key=build.record.key, resources=build.record.resources)
    return Prepared(entry, row, True, build)


class Silent:
    def stage(self, text: str, total: int) -> None: ...
    def step(self) -> None: ...
    def message(self, text: str) -> None: ...


def test_a_crash_costs_one_configuration(card: Card, tmp_path: Path) -> None:
    """C9: good, crash, nothing written, good."""
    problem = square(1024)
    bad = {
        wmma(2): bad_kernel("writes out of bounds", card.device.arch),
        wmma(4): bad_kernel("writes nothing", card.device.arch),
    }
    items = [
        prepared_item(card, Entry(config, problem), bad.get(config))
        for config in (CUBLAS, wmma(1), wmma(2), wmma(3), wmma(4))
    ]
    options = SweepOptions(("burst",), Inputs("uniform", 1), 0.01)
    with (
        ResultsStore.open(tmp_path / "study.sqlite", card.device, resume=False) as store,
        Worker() as worker,
    ):
        Sweep(worker, store, options, Silent()).run(items)
        rows = {row.identity.config: row for row in store.outcomes()}
        outcomes = {config: row.outcome for config, row in rows.items()}
        assert outcomes == {
            CUBLAS: "ok", wmma(1): "ok", wmma(2): "launch_failed", wmma(3): "ok",
            wmma(4): "wrong_result",
        }  # fmt: skip
        assert "ILLEGAL_ADDRESS" in rows[wmma(2)].reason
        for config in (CUBLAS, wmma(1), wmma(3)):
            rounds = {sample.round for sample in store.samples(rows[config].identity)}
            assert len(rounds) >= stats.MIN_ROUNDS


def test_a_kernel_that_never_ends_is_killed_and_the_gpu_serves_on(card: Card) -> None:
    problem = GemmProblem(256, 128, 64)
    image = bad_kernel("never ends", card.device.arch)
    setup = ProblemSetup(problem, "uniform", 1)
    with Worker() as worker:
        worker.request("open_problem", setup, True, timeout_s=120)
        with pytest.raises(WorkerFailure) as caught:
            worker.request("load", setup, KernelTask(wmma(1), image, 1), timeout_s=5)
        # without a watchdog it is we who end it; with one, the operating system may be first
        assert caught.value.kind in ("timeout", "launch_failed")
        worker.request("open_problem", setup, True, timeout_s=120)
        worker.request("load", setup, KernelTask(CUBLAS, None, 1), timeout_s=60)
        result: Verification = worker.request("verify", setup, CUBLAS.name, timeout_s=60)
    assert result.reason == ""


# --- residency -----------------------------------------------------------------------------


def driver_ctas(build: KernelBuild) -> int:
    """CTAs per SM as the driver computes it."""
    resources = build.record.resources
    assert build.cubin
    assert resources
    module = Module(build.cubin)
    try:
        function = module.function("gemm")
        allow_shared_memory(function, resources.smem_bytes)
        return resident_ctas(function, resources.threads, resources.smem_bytes)
    finally:
        module.unload()


def mismatches(card: Card, found: list[Entry]) -> tuple[int, list[str]]:
    """Kernels compared, and those whose occupancy differs from the driver's."""
    items = prepare(found, card.limits, cache(), Inputs())
    wrong, compared = [], 0
    for item in items:
        if item.build is None or item.row.occupancy is None or item.row.outcome == "infeasible":
            continue
        compared += 1
        ours, theirs = item.row.occupancy.ctas_per_sm, driver_ctas(item.build)
        if ours != theirs:
            wrong.append(f"{item.entry.config.name}: {ours}, the driver says {theirs}")
    return compared, wrong


@pytest.mark.usefixtures("compiled_cases")
def test_occupancy_is_the_drivers_for_the_tested_kernels(card: Card) -> None:
    compared, wrong = mismatches(card, CASES)
    assert compared > 20
    assert wrong == []


@pytest.mark.slow
@pytest.mark.parametrize("preset", PRESETS)
def test_occupancy_is_the_drivers_for_a_whole_preset(card: Card, preset: str) -> None:
    compared, wrong = mismatches(card, entries(preset, Axes(), card.device.arch))
    assert compared >= 5
    assert wrong == []


# --- measuring -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sampler(card: Card) -> Sampler:
    probe = ClockProbe(card.device.arch, card.device.sm_count)
    return Sampler(probe, BUDGET_S)


TIMED = (CUBLAS, wmma(3), sm80((128, 128, 32), 3))


@contextmanager
def timed_kernels(card: Card, problem: GemmProblem) -> Iterator[list[tuple[Kernel, float]]]:
    """The kernels of TIMED with the estimate of one launch in ms, on rotated operand sets."""
    sampler = Sampler(ClockProbe(card.device.arch, card.device.sm_count), BUDGET_S)
    with opened(card, problem, l2_bytes=set_bytes(problem) // 2) as (operands, _):
        kernels: list[tuple[Kernel, float]] = []
        try:
            for config in TIMED:
                kernel = make_kernel(card, Entry(config, problem))
                kernel.prepare(problem, operands)
                sampler.time_once(kernel)
                kernels.append((kernel, sampler.time_once(kernel)))
            assert len(operands.sets) == 2
            yield kernels
        finally:
            for kernel, _ in kernels:
                kernel.close()


def times(sampler: Sampler, kernel: Kernel, estimate_ms: float, count: int = 9) -> list[float]:
    return [sampler.sample(kernel, 2, "burst", 1, estimate_ms).time_ms for _ in range(count)]


def test_hot_operands_are_not_slower_and_flushed_ones_not_faster(card: Card) -> None:
    """M2: 1024³ fits into the L2 of every card in question."""
    probe = ClockProbe(card.device.arch, card.device.sm_count)
    own = Sampler(probe, BUDGET_S, card.device.l2_bytes)
    with opened(card, square(1024), l2_bytes=card.device.l2_bytes) as (operands, _):
        kernel = make_kernel(card, Entry(CUBLAS, square(1024)))
        kernel.prepare(square(1024), operands)
        own.time_once(kernel)
        estimate_ms, sets = own.time_once(kernel), len(operands.sets)
        found: dict[str, list[float]] = {mode: [] for mode in get_args(CacheMode)}
        for _ in range(9):
            for mode, values in found.items():
                sample = own.take(kernel, sets, "burst", 1, estimate_ms, cache=mode).sample  # type: ignore[arg-type]
                assert sample.rejected == ""
                values.append(sample.time_ms)
        own.forget(kernel)
        kernel.close()
    middle = {mode: median(values) for mode, values in found.items()}
    assert middle["hot"] <= 1.02 * middle["rotate"]
    assert middle["flush"] >= 0.98 * middle["alone"]


def test_a_held_launch_waits_on_the_gpu_and_is_timed_alone(card: Card) -> None:
    probe, hold_s = ClockProbe(card.device.arch, card.device.sm_count), 0.05
    own = Sampler(probe, BUDGET_S, card.device.l2_bytes)
    with opened(card, square(2048)) as (operands, _):
        kernel = make_kernel(card, Entry(wmma(3), square(2048)))
        kernel.prepare(square(2048), operands)
        own.take_held(kernel, hold_s)
        started = time.monotonic()
        held = [own.take_held(kernel, hold_s) for _ in range(5)]
        passed_s = time.monotonic() - started
        flushed = [own.take(kernel, 1, "burst", 1, 0.1, cache="flush").sample for _ in range(5)]
        kernel.close()
    assert 5 * hold_s < passed_s < 10 * hold_s
    assert all(sample.rejected == "" and sample.sm_clock_mhz for sample in held)
    ratio = median(s.time_ms for s in held) / median(s.time_ms for s in flushed)
    assert 0.8 < ratio < 1.25, "not the hold itself"


@pytest.mark.parametrize("config", [CUBLAS, CUBLAS_LT, wmma(3), sm80((128, 128, 32), 3)])
def test_a_kernel_runs_on_somebody_elses_stream(card: Card, config: GemmConfig) -> None:
    """What the cross-check with cuda.bench needs: after `prepare`, launches are on that stream."""
    problem = square(1024)
    with opened(card, problem) as (operands, reference):
        kernel = make_kernel(card, Entry(config, problem))
        others = Stream()
        kernel.stream = Stream(int(others.handle))
        kernel.prepare(problem, operands)
        operands.poison(0, copy_c=kernel.in_place)
        start, end = Event(), Event()
        start.record(others)
        for _ in range(20):
            kernel.launch(0)
        end.record(others)
        others.synchronize()
        assert start.elapsed_ms(end) > 0.05, "the events enclose twenty launches"
        assert reference.compare().reason == ""
        kernel.close()


def test_interleaved_kernels_leave_a_right_d(card: Card) -> None:
    entries_ = [Entry(CUBLAS, square(2048)), Entry(sm80((128, 128, 32), 3), square(2048))]
    session = GpuSession()
    kernels = []
    for seed, entry in enumerate(entries_):
        setup = ProblemSetup(entry.problem, "uniform", seed)
        session.open_problem(setup, True)
        image = None if entry.config == CUBLAS else build_of(card, entry).cubin
        session.load(setup, KernelTask(entry.config, image, 1))
        estimate = session.verify(setup, entry.config.name).estimate_ms
        kernels.append((setup, entry.config.name, estimate))
    for alternate in (False, True):
        found = session.interleave(kernels, alternate)
        assert found.reasons == ("", "")
        assert found.launches >= 1
        assert found.wall_ms >= 0.9 * max(found.event_ms)
    session.close_all()


def test_a_span_is_one_kernel_without_a_gap(card: Card) -> None:
    """All but a few percent of a span is timed, and every chunk has its delivered clock."""
    setup = ProblemSetup(square(2048), "uniform", 0)
    session = GpuSession()
    session.open_problem(setup, True)
    session.load(setup, KernelTask(CUBLAS, None, 1))
    estimate = session.verify(setup, CUBLAS.name).estimate_ms
    found = session.span([(setup, CUBLAS.name, estimate)], 3)
    total_ms = sum(taken.sample.time_ms * taken.sample.launches for taken in found)
    assert 0.8 * settling.SPAN_S <= total_ms / 1000 <= 1.1 * settling.SPAN_S
    assert len(found) > 20
    assert all(taken.sample.sm_clock_mhz and not taken.sample.rejected for taken in found)
    assert {taken.sample.round for taken in found} == {3}
    session.close_all()


def test_streams_do_not_wait_for_stream_zero(card: Card) -> None:
    """M13: each kernel has its own stream, created non-blocking."""
    with timed_kernels(card, square(1024)) as kernels:
        handles = [kernel.stream.handle for kernel, _ in kernels]
        non_blocking = int(driver.CUstream_flags.CU_STREAM_NON_BLOCKING)
        assert [int(call(driver.cuStreamGetFlags, handle)) for handle in handles] == [
            non_blocking
        ] * len(TIMED)
        assert len({int(handle) for handle in handles}) == len(TIMED)
        assert 0 not in {int(handle) for handle in handles}


def test_only_one_stream_is_active_at_a_time(card: Card, sampler: Sampler) -> None:
    """M13: by the GPU's own event times, no timed region begins before the last one ended."""
    own = sampler._start, sampler._end
    regions: list[tuple[Event, Event]] = []
    try:
        with timed_kernels(card, square(2048)) as kernels:
            for _ in range(3):
                for kernel, estimate in kernels:
                    sampler._start, sampler._end = Event(), Event()
                    regions.append((sampler._start, sampler._end))
                    sampler.sample(kernel, 2, "burst", 1, estimate)
                    sampler.forget(kernel)
        for (_, end), (start, _) in pairwise(regions):
            assert end.elapsed_ms(start) >= 0
        assert all(start.elapsed_ms(end) > 0 for start, end in regions)
    finally:
        sampler._start, sampler._end = own


def test_taking_turns_changes_no_time(card: Card, sampler: Sampler) -> None:
    """M13: serial and solo times agree within noise."""
    with timed_kernels(card, square(2048)) as kernels:
        solo = [median(times(sampler, kernel, estimate)) for kernel, estimate in kernels]
        rounds = [
            [
                sampler.sample(kernel, 2, "burst", 1, estimate).time_ms
                for kernel, estimate in kernels
            ]
            for _ in range(9)
        ]
        for kernel, _ in kernels:
            sampler.forget(kernel)
    for alone, among in zip(solo, zip(*rounds, strict=True), strict=True):
        assert median(among) == pytest.approx(alone, rel=0.15)


def test_graph_and_stream_agree(card: Card, sampler: Sampler) -> None:
    """4096^3 is long enough for the host to keep up: how launches are queued must not matter."""
    with timed_kernels(card, square(4096)) as kernels:
        for kernel, estimate in kernels:
            found = {}
            for submission, below in (("stream", 0.0), ("graph", 1e9)):
                samples = [
                    sampler.take(kernel, 2, "burst", 1, estimate, graph_below_ms=below).sample
                    for _ in range(9)
                ]
                assert {sample.submission for sample in samples} == {submission}
                assert not any(sample.rejected for sample in samples)
                found[submission] = median(sample.time_ms for sample in samples)
            sampler.forget(kernel)
            assert found["graph"] == pytest.approx(found["stream"], rel=0.15)


@each(GemmProblem(256, 512, 64))
def test_a_graph_computes_the_same_bits(card: Card, entry: Entry) -> None:
    with (
        opened(card, entry.problem) as (operands, reference),
        prepared_kernel(card, entry, operands) as kernel,
    ):
        streamed = run_once(kernel, operands)
        graph = Graph(kernel.stream, lambda: kernel.launch(0))
        operands.poison(0, copy_c=kernel.in_place)
        graph.launch()
        kernel.stream.synchronize()
        graph.destroy()
        assert reference.compare().reason == ""
        assert (d_of(operands).view(np.uint8) == streamed.view(np.uint8)).all()


@pytest.mark.parametrize("regime", ["burst", "sustained"])
def test_the_delivered_clock_is_plausible(card: Card, sampler: Sampler, regime: Any) -> None:
    highest = 1.05 * (card.device.max_sm_clock_mhz or 3500)
    with timed_kernels(card, square(4096)) as kernels:
        for kernel, estimate in kernels:
            sample = sampler.sample(kernel, 2, regime, 1, estimate)
            sampler.forget(kernel)
            assert sample.sm_clock_mhz
            assert 100 < sample.sm_clock_mhz < highest
            assert sample.rejected == ""


def test_what_a_sample_says_of_the_time_is_what_the_host_sees(card: Card, sampler: Sampler) -> None:
    """Events in the wrong stream, or in none, would be off by factors."""
    with timed_kernels(card, square(4096)) as kernels:
        for kernel, estimate in kernels:
            sample = sampler.sample(kernel, 2, "burst", 0, estimate)
            sampler.forget(kernel)
            assert sample.host_ms
            assert sample.host_ms == pytest.approx(sample.time_ms, rel=0.5)
            assert square(4096).flop / sample.time_ms / 1e9 < 2500, "no GPU is that fast"


def test_a_second_sample_of_a_kernel_is_not_faster_than_the_first_by_loading(card: Card) -> None:
    """M14: `load` and every sample launch untimed first, so none pays for lazy loading."""
    problem = square(2048)
    entry = Entry(wmma(3), problem)
    image = build_of(card, entry).cubin
    with Worker() as worker:
        setup = ProblemSetup(problem, "uniform", 1)
        worker.request("open_problem", setup, False, timeout_s=120)
        worker.request("load", setup, KernelTask(entry.config, image, 1), timeout_s=60)
        taken = [
            worker.request("sample", setup, entry.config.name, "burst", 1, 1e3, None, timeout_s=60)
            for _ in range(5)
        ]
    samples = [one.sample for one in taken]
    # estimated at 1 s, a sample is a single timed launch
    assert [sample.launches for sample in samples] == [1] * 5
    assert samples[0].time_ms < 3 * median(sample.time_ms for sample in samples[1:])


def test_the_support_buffers_are_plain_device_memory(card: Card) -> None:
    """`download` and `allocate` keep bytes."""
    buffer: Buffer = allocate(1000)
    values = np.arange(250, dtype=np.float32)
    upload(buffer.address, values)
    assert download(buffer.address, 1000) == values.tobytes()
    buffer.free()
