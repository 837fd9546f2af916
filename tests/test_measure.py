"""How much is queued, what is refused, what counts as a time: on a stand-in for the GPU."""

from __future__ import annotations

import math
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutlass_study import interleave, measure, settling
from cutlass_study.config import GemmConfig, GemmProblem
from cutlass_study.driver import Buffer
from cutlass_study.gpu_session import PROBE_EXTENTS, GpuSession, OpenProblem, TooLong
from cutlass_study.kernels import NotImplementable
from cutlass_study.measure import FLUSH_L2_SIZES, HOST_EVERY, ClockProbe, Sampler
from cutlass_study.records import Regime
from cutlass_study.regimes import (
    ALONE_LAUNCHES,
    FLUSH_BYTES_PER_MS,
    GRAPH_BELOW_MS,
    GRAPHS,
    PLANS,
    alone_count,
    graph_counts,
    launch_counts,
    rejection,
    submissions,
)
from cutlass_study.sweep_options import QUEUE_BUDGET_S, WATCHDOG_BUDGET_S, queue_budget_s
from cutlass_study.tasks import KernelTask, ProblemSetup

REGIMES: tuple[Regime, ...] = ("burst", "sustained")
budgets = st.sampled_from([QUEUE_BUDGET_S, WATCHDOG_BUDGET_S])
estimates = st.floats(1e-3, 1e5, allow_nan=False)


# --- counts --------------------------------------------------------------------------------


def test_a_watchdog_halves_the_budget() -> None:
    assert (queue_budget_s(False), queue_budget_s(True)) == (0.5, 0.25)


@given(st.sampled_from(REGIMES), estimates, budgets)
def test_no_more_than_the_budget_is_queued(
    regime: Regime, estimate_ms: float, budget_s: float
) -> None:
    untimed, timed = launch_counts(regime, estimate_ms)
    parts = submissions(untimed, timed, estimate_ms, budget_s)
    assert (sum(before for before, _ in parts), sum(within for _, within in parts)) == (
        untimed, timed,
    )  # fmt: skip
    for before, within in parts:
        fits = (before + within) * estimate_ms <= budget_s * 1000 * (1 + 1e-9)
        assert fits or before + within == 1, "only one launch alone may exceed it"


@given(st.sampled_from(REGIMES), estimates)
def test_a_sample_is_as_long_as_planned(regime: Regime, estimate_ms: float) -> None:
    untimed, timed = launch_counts(regime, estimate_ms)
    plan = PLANS[regime]
    assert timed * estimate_ms >= plan.timed_ms * (1 - 1e-9)
    assert untimed * estimate_ms >= plan.untimed_ms * (1 - 1e-9)
    assert min(untimed, timed) >= 1
    assert (timed - 1) * estimate_ms < plan.timed_ms * (1 + 1e-9)


@pytest.mark.parametrize(
    ("regime", "estimate_ms", "budget_s", "parts"),
    [
        ("burst", 1.5, 0.5, [(1, 3)]),  # 8192^3 on an H200
        ("burst", 0.03, 0.5, [(50, 134)]),
        ("burst", 300.0, 0.5, [(1, 0), (0, 1)]),
        ("burst", 100.0, 0.25, [(1, 0), (0, 1)]),
        ("burst", 100.0, 0.5, [(1, 1)]),
        ("burst", 3.9, 0.5, [(1, 2)]),
        ("burst", 4.0, 0.5, [(1, 1)]),  # more launches would raise the power-cap flag
        ("sustained", 100.0, 0.5, [(2, 0), (0, 3), (0, 3), (0, 2)]),
        ("sustained", 100.0, 0.25, [(1, 0), (1, 0), *[(0, 1)] * 8]),
        ("sustained", 1.5, 0.5, [(134, 0), (0, 178), (0, 178), (0, 178)]),
        ("burst", 880.0, 0.5, [(1, 0), (0, 1)]),  # E10's launch, allowed by hand
        ("sustained", 880.0, 0.25, [(1, 0), (0, 1)]),
    ],
)
def test_counts(regime: Regime, estimate_ms: float, budget_s: float, parts: Any) -> None:
    assert submissions(*launch_counts(regime, estimate_ms), estimate_ms, budget_s) == parts


@pytest.mark.parametrize("regime", REGIMES)
def test_replays_of_graphs_fit_the_strict_budget(regime: Regime) -> None:
    estimate = GRAPH_BELOW_MS
    while estimate > 1e-3:
        untimed, timed = launch_counts(regime, estimate)
        size, before, within = graph_counts(untimed, timed, estimate)
        for part in submissions(before, within, size * estimate, WATCHDOG_BUDGET_S):
            assert sum(part) * size * estimate <= WATCHDOG_BUDGET_S * 1000
        assert timed - size < size * within <= timed
        estimate *= 0.9


# --- M5: what is no time -------------------------------------------------------------------


@pytest.mark.parametrize("region_ms", [0.0, -1.0, 0.0005, math.nan])
def test_a_region_within_the_resolution_of_events_is_rejected(region_ms: float) -> None:
    assert "not above the 0.0005 ms of an event" in rejection(region_ms)


def test_a_short_but_real_region_counts() -> None:
    assert rejection(0.002) == ""


# --- a GPU that only counts ----------------------------------------------------------------


class FakeGpu:
    """Executes nothing until someone synchronizes; knows the longest time that was queued."""

    def __init__(self) -> None:
        self.now_ms = self.queued_ms = self.longest_ms = 0.0
        self.launches = self.synchronizations = self.capturing = 0
        self.flushes: list[int] = []

    def queue(self, time_ms: float) -> None:
        self.queued_ms += time_ms
        self.longest_ms = max(self.longest_ms, self.queued_ms)

    def synchronize(self) -> None:
        self.now_ms += self.queued_ms
        self.queued_ms = 0.0
        self.synchronizations += 1


class FakeStream:
    def __init__(self, gpu: FakeGpu) -> None:
        self.gpu, self.handle = gpu, 7

    def synchronize(self) -> None:
        self.gpu.synchronize()


class FakeEvent:
    def __init__(self) -> None:
        self.at_ms = 0.0

    def record(self, stream: FakeStream) -> None:
        self.at_ms = stream.gpu.now_ms + stream.gpu.queued_ms

    def elapsed_ms(self, later: FakeEvent) -> float:
        return later.at_ms - self.at_ms


class FakeGraph:
    made = 0

    def __init__(self, stream: FakeStream, queue: Any) -> None:
        FakeGraph.made += 1
        self._gpu, self.destroyed = stream.gpu, False
        before = stream.gpu.queued_ms, stream.gpu.longest_ms
        queue()
        self._time_ms = stream.gpu.queued_ms - before[0]
        stream.gpu.queued_ms, stream.gpu.longest_ms = before

    def launch(self) -> None:
        self._gpu.queue(self._time_ms)

    def destroy(self) -> None:
        self.destroyed = True


class FakeKernel:
    """Runs at `tflops` on whatever problem it is prepared for."""

    in_place = False

    def __init__(self, gpu: FakeGpu, tflops: float = 0.0, time_ms: float = 0.0) -> None:
        self.stream: Any = FakeStream(gpu)
        self._gpu, self._tflops, self._time_ms = gpu, tflops, time_ms
        self.prepared: list[GemmProblem] = []
        self.sets: list[int] = []
        self.closed = False

    def prepare(self, problem: GemmProblem, operands: Any) -> None:
        self.prepared.append(problem)
        if self._tflops:
            self._time_ms = problem.flop / self._tflops / 1e9

    def launch(self, index: int) -> None:
        self._gpu.launches += 1
        self.sets.append(index)
        self._gpu.queue(self._time_ms)

    def close(self) -> None:
        self.closed = True


class FakeProbe:
    def record(self, which: int, kernel: FakeKernel) -> None:
        pass

    def clock_mhz(self) -> float | None:
        return 1980.0


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    monkeypatch.setattr(measure, "Event", FakeEvent)
    monkeypatch.setattr(measure, "Graph", FakeGraph)
    monkeypatch.setattr(measure.time, "sleep", lambda seconds: None)
    return FakeGpu()


def sampler(budget_s: float) -> Sampler:
    probe: Any = FakeProbe()
    return Sampler(probe, budget_s)


@pytest.mark.parametrize("budget_s", [QUEUE_BUDGET_S, WATCHDOG_BUDGET_S])
@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("time_ms", [0.004, 0.05, 0.06, 0.3, 1.5, 7.0, 60.0, 130.0, 240.0])
def test_a_slow_kernel_never_has_more_than_the_budget_queued(
    gpu: FakeGpu, time_ms: float, regime: Regime, budget_s: float
) -> None:
    kernel = FakeKernel(gpu, time_ms=time_ms)
    sample = sampler(budget_s).sample(kernel, 3, regime, 0, time_ms)
    assert gpu.longest_ms <= budget_s * 1000 * (1 + 1e-9)
    assert gpu.queued_ms == 0, "everything was waited for"
    assert sample.time_ms == pytest.approx(time_ms)
    assert sample.rejected == ""
    assert sample.submission == ("graph" if time_ms < GRAPH_BELOW_MS else "stream")


def test_operand_sets_rotate_on_across_samples(gpu: FakeGpu) -> None:
    kernel = FakeKernel(gpu, time_ms=2.0)
    taker = sampler(0.5)
    for round_ in (1, 2):
        taker.sample(kernel, 4, "burst", round_, 2.0)
    assert kernel.sets == [0, 1, 2, 3, 0, 1]


def test_host_time_is_taken_in_some_rounds_only(gpu: FakeGpu) -> None:
    taker = sampler(0.5)
    kernel = FakeKernel(gpu, time_ms=1.0)
    samples = [taker.sample(kernel, 1, "burst", round_, 1.0) for round_ in range(2 * HOST_EVERY)]
    assert [s.round for s in samples if s.host_ms is not None] == [0, HOST_EVERY]


def test_a_kernel_that_takes_no_time_is_rejected(gpu: FakeGpu) -> None:
    sample = sampler(0.5).sample(FakeKernel(gpu), 1, "burst", 1, 1e-3)
    assert sample.time_ms == 0
    assert "not above" in sample.rejected


def test_a_graph_is_captured_once_and_freed(gpu: FakeGpu) -> None:
    FakeGraph.made = 0
    kernel, taker = FakeKernel(gpu, time_ms=0.01), sampler(0.5)
    for round_ in (1, 2, 3):
        taker.sample(kernel, 1, "burst", round_, 0.01)
    assert FakeGraph.made == 1
    assert taker.sample(kernel, 1, "sustained", 1, 0.01).time_ms == pytest.approx(0.01)
    assert FakeGraph.made == 2
    graph: Any = taker._graphs[kernel, 1][1]
    taker.forget(kernel)
    taker.forget(kernel)
    assert graph.destroyed


@pytest.mark.parametrize(
    ("graphs", "time_ms", "submission"),
    [("never", 0.01, "stream"), ("auto", 0.01, "graph"), ("auto", 1.0, "stream"),
     ("always", 1.0, "graph"), ("always", 300.0, "graph")],
)  # fmt: skip
def test_graphs_are_replayed_as_asked_for(
    gpu: FakeGpu, graphs: str, time_ms: float, submission: str
) -> None:
    kernel = FakeKernel(gpu, time_ms=time_ms)
    for regime in REGIMES:
        taken = sampler(0.5).take(kernel, 1, regime, 1, time_ms, 0.0, graph_below_ms=GRAPHS[graphs])
        assert taken.sample.submission == submission
        assert taken.sample.time_ms == pytest.approx(time_ms)
        assert gpu.longest_ms <= 500


# --- M2: hot and cold ----------------------------------------------------------------------


def cached(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, budget_s: float = 0.5) -> Sampler:
    """A sampler for a card with an L2 of 50 MiB that is overwritten at 4 TB/s."""

    def overwrite(function: Any, address: int, value: int, size: int, handle: Any) -> None:
        gpu.flushes.append(size)
        gpu.queue(size / 4e9)

    monkeypatch.setattr(measure, "allocate", lambda size: Buffer(1, size))
    monkeypatch.setattr(measure, "call", overwrite)
    probe: Any = FakeProbe()
    return Sampler(probe, budget_s, 50 << 20)


def test_hot_launches_use_one_operand_set(gpu: FakeGpu) -> None:
    kernel, taker = FakeKernel(gpu, time_ms=1.0), sampler(0.5)
    for round_ in (1, 2):
        taker.take(kernel, 4, "burst", round_, 1.0, cache="hot")
    assert set(kernel.sets) == {0}


def test_graphs_of_hot_and_rotated_launches_are_two(gpu: FakeGpu) -> None:
    FakeGraph.made = 0
    kernel, taker = FakeKernel(gpu, time_ms=0.01), sampler(0.5)
    for _ in range(3):
        taker.take(kernel, 4, "burst", 1, 0.01, cache="hot")
        taker.take(kernel, 4, "burst", 1, 0.01)
    assert FakeGraph.made == 2


@pytest.mark.parametrize("mode", ["flush", "alone"])
def test_the_flush_is_outside_the_timed_region(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, mode: Any
) -> None:
    kernel, taker = FakeKernel(gpu, time_ms=0.02), cached(gpu, monkeypatch)
    sample = taker.take(kernel, 4, "burst", 1, 0.02, cache=mode).sample
    assert sample.time_ms == pytest.approx(0.02)
    assert sample.launches == ALONE_LAUNCHES
    assert sample.submission == "alone"
    assert gpu.flushes == [FLUSH_L2_SIZES * (50 << 20)] * ALONE_LAUNCHES
    assert gpu.launches == ALONE_LAUNCHES * (2 if mode == "alone" else 1)
    assert FLUSH_L2_SIZES >= 2


@given(estimates, st.integers(0, 2**30), budgets)
def test_flushed_launches_keep_the_budget(estimate_ms: float, size: int, budget_s: float) -> None:
    count = alone_count(estimate_ms, size, budget_s)
    each_ms = 2 * estimate_ms + size / FLUSH_BYTES_PER_MS
    assert count == 1 or count * each_ms <= budget_s * 1000


# --- spans of one kernel -------------------------------------------------------------------


@pytest.mark.parametrize("time_ms", [0.01, 0.3, 1.5, 44.0, 200.0])
def test_a_span_is_chunks_without_untimed_launches(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, time_ms: float
) -> None:
    monkeypatch.setattr(settling.time, "monotonic", lambda: gpu.now_ms / 1000)
    kernel = FakeKernel(gpu, time_ms=time_ms)
    found = settling.run_span(sampler(WATCHDOG_BUDGET_S), kernel, 3, 5, time_ms)
    total_ms = sum(taken.sample.time_ms * taken.sample.launches for taken in found)
    assert total_ms == pytest.approx(gpu.now_ms), "every launch is timed"
    chunk_ms = max(time_ms, settling.CHUNK_MS)
    assert 1000 * settling.SPAN_S <= total_ms <= 1000 * settling.SPAN_S + chunk_ms
    assert len(found) >= 1000 * settling.SPAN_S / (1.5 * chunk_ms)
    assert gpu.longest_ms <= max(time_ms, settling.CHUNK_MS) * 1.1, "each chunk is waited for"
    assert {taken.sample.round for taken in found} == {5}
    assert {(taken.sample.regime, taken.sample.host_ms) for taken in found} == {("sustained", None)}
    assert all(later.started_s >= earlier.ended_s for earlier, later in pairwise(found))


# --- streams -------------------------------------------------------------------------------


@pytest.mark.parametrize("alternate", [False, True])
def test_a_pair_runs_in_turns_or_one_after_the_other(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, alternate: bool
) -> None:
    """M13: serial kernels never share a queue; interleaved ones are waited for only at the end."""
    monkeypatch.setattr(interleave, "Event", FakeEvent)
    first, second = FakeKernel(gpu, time_ms=1.0), FakeKernel(gpu, time_ms=2.0)
    pair = []
    for name, kernel in (("a", first), ("b", second)):
        right = SimpleNamespace(compare=lambda in_place: SimpleNamespace(reason=""))
        poison = SimpleNamespace(poison=lambda index, copy_c: None)
        pair.append((SimpleNamespace(kernels={name: kernel}, operands=poison, reference=right),
                     name))  # fmt: skip
    found = interleave.run_pair((pair[0], pair[1]), 100, alternate=alternate)  # type: ignore[arg-type]
    assert found.launches == interleave.MOST_LAUNCHES
    assert gpu.longest_ms == (60 if alternate else 40)
    assert found.reasons == ("", "")
    assert found.event_ms == pytest.approx((3, 3) if alternate else (1, 2))


# --- E10: prediction -----------------------------------------------------------------------

WORST = GemmProblem(16384, 16384, 16384)  # 8.796e12 FLOP: 0.88 s at 10 TFLOPS
CONFIG = GemmConfig("cublas", variant="default")


class FakeSession(GpuSession):
    """`GpuSession` without a GPU: one kernel, made by the test."""

    def __init__(self, kernel: FakeKernel, problem: GemmProblem, budget_s: float, **setup: Any):
        self._budget_s, self._sampler = budget_s, sampler(budget_s)
        self.setup = ProblemSetup(problem, "uniform", 0, **setup)
        operands: Any = SimpleNamespace(problem=problem)
        self._open = {self.setup: OpenProblem(self.setup, operands, None)}
        self._kernel = kernel

    def _make(self, task: KernelTask) -> Any:
        return self._kernel


def load(kernel: FakeKernel, problem: GemmProblem, budget_s: float, **setup: Any) -> None:
    session = FakeSession(kernel, problem, budget_s, **setup)
    session.load(session.setup, KernelTask(CONFIG, None, 1))


@pytest.mark.parametrize("budget_s", [QUEUE_BUDGET_S, WATCHDOG_BUDGET_S])
def test_a_launch_predicted_too_long_is_refused_before_it_is_made(
    gpu: FakeGpu, budget_s: float
) -> None:
    kernel = FakeKernel(gpu, tflops=10)
    with pytest.raises(
        TooLong, match=rf"predicted to take 0\.88 s, above the budget of {budget_s}"
    ):
        load(kernel, WORST, budget_s)
    assert WORST not in kernel.prepared
    assert gpu.longest_ms <= budget_s * 1000
    assert kernel.closed


def test_allowed_by_hand_it_runs(gpu: FakeGpu) -> None:
    kernel = FakeKernel(gpu, tflops=10)
    load(kernel, WORST, 0.25, allow_long_launches=True)
    assert kernel.prepared == [WORST]
    assert gpu.longest_ms == pytest.approx(879.6, rel=1e-3)


def test_a_fast_kernel_is_not_refused(gpu: FakeGpu) -> None:
    kernel = FakeKernel(gpu, tflops=600)
    load(kernel, WORST, 0.25)
    assert kernel.prepared[-1] == WORST
    assert [problem.m for problem in kernel.prepared[:-1]] == list(PROBE_EXTENTS)


@pytest.mark.parametrize("tflops", [0.02, 0.1, 1.0, 4.0])
def test_the_ladder_of_probes_never_exceeds_the_budget_itself(gpu: FakeGpu, tflops: float) -> None:
    """Each probe is 8 times the work before, and is only made if that is predicted to fit."""
    kernel = FakeKernel(gpu, tflops=tflops)
    with pytest.raises(TooLong):
        load(kernel, WORST, 0.25)
    assert gpu.longest_ms <= 250


def test_small_problems_need_no_probe(gpu: FakeGpu) -> None:
    kernel, problem = FakeKernel(gpu, tflops=1), GemmProblem(2048, 2048, 2048)
    load(kernel, problem, 0.25)
    assert kernel.prepared == [problem]


def test_probes_keep_padding_and_scalars(gpu: FakeGpu) -> None:
    """F4: without its lda=4104 a probe with K=4097 would be refused as misaligned."""
    problem = GemmProblem(16384, 4096, 4097, layout="nn", beta=0.5, lda=4104)
    kernel = FakeKernel(gpu, tflops=100)
    load(kernel, problem, 0.25)
    assert {(p.lda, p.beta, p.layout) for p in kernel.prepared} == {(4104, 0.5, "nn")}
    assert [p.k for p in kernel.prepared] == [1024, 2048, 4096, 4097, 4097]


def test_a_kernel_that_refuses_its_problem_is_closed(gpu: FakeGpu) -> None:
    class Refuses(FakeKernel):
        def prepare(self, problem: GemmProblem, operands: Any) -> None:
            raise NotImplementable("no algorithm")

    kernel = Refuses(gpu)
    with pytest.raises(NotImplementable):
        load(kernel, GemmProblem(512, 512, 512), 0.25)
    assert kernel.closed


# --- delivered clock -----------------------------------------------------------------------


def clock(before: list[tuple[int, int]], after: list[tuple[int, int]], monkeypatch: Any) -> Any:
    import struct
    from types import SimpleNamespace

    images = {}
    for address, readings in enumerate((before, after)):
        flat = [number for pair in readings for number in pair]
        flat += [0] * (2 * measure.PROBE_SLOTS - len(flat))
        images[address] = struct.pack(f"<{len(flat)}Q", *flat)
    monkeypatch.setattr(measure, "download", lambda address, size: images[address])
    probe = ClockProbe.__new__(ClockProbe)
    probe._buffers = [SimpleNamespace(address=i, size_bytes=0) for i in (0, 1)]  # type: ignore[misc]
    return probe.clock_mhz()


def test_the_clock_is_cycles_over_global_time(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [(1000, 5000), (7_000_000, 5000), (0, 0)]
    after = [(1000 + 3_960_000, 5000 + 2_000_000), (7_000_000 + 3_960_000, 2_005_000), (0, 0)]
    assert clock(before, after, monkeypatch) == 1980.0


def test_a_clock_that_did_not_move_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert clock([(1000, 5000)], [(1000, 5000)], monkeypatch) is None
    assert clock([], [], monkeypatch) is None
