"""The orchestrator on simulated kernels: what is measured, in which order, and what survives."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cutlass_study import gpu_client, gpus, plan, rounds, stats, study, sweep
from cutlass_study.axes import Axes
from cutlass_study.cache import KernelBuild, KernelCache
from cutlass_study.config import GemmConfig, GemmProblem, UsageError
from cutlass_study.prepare import Inputs, Prepared
from cutlass_study.records import UNRESTED, Identity, Regime, RowOutcome, Sample, is_whole
from cutlass_study.results import ResultsStore
from cutlass_study.rounds import CONTROL_EVERY, MIN_ROUNDS, BurstGap, Candidate
from cutlass_study.space import CUBLAS, CUBLAS_LT, Entry, sm80
from cutlass_study.study_data import load
from cutlass_study.sweep import Sweep, with_controls
from cutlass_study.sweep_options import SweepOptions
from cutlass_study.tasks import KernelTask
from cutlass_study.worker import Worker
from tests.fake_sessions import GONE, Behaviour, InProcess, Script, simulated
from tests.sweep_records import BUILD, DEVICE, sample

PROJECT = Path(__file__).resolve().parent.parent
PROBLEM = GemmProblem(2048, 2048, 2048)
FIRST, SECOND, THIRD = (sm80((128, 128, 32), stages) for stages in (2, 3, 4))
MANY = [sm80(tile, stages) for tile in ((128, 128, 32), (256, 128, 32), (128, 256, 32),
        (128, 64, 32), (64, 128, 32), (256, 64, 32), (64, 256, 32), (128, 128, 64),
        (128, 64, 64)) for stages in (2, 3, 4)]  # fmt: skip


class Quiet:
    """A reporter that keeps the messages."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def stage(self, text: str, total: int) -> None:
        pass

    def step(self) -> None:
        pass

    def message(self, text: str) -> None:
        self.messages.append(text)


class Bench:
    """A store, options and everything a test asks of a finished sweep."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "study.sqlite"
        self.options = SweepOptions(("burst",), Inputs("uniform", 1), 1000.0)
        self.reporter = Quiet()
        self.store = self.open(resume=False)

    def open(self, *, resume: bool) -> ResultsStore:
        self.store = ResultsStore.open(self.path, DEVICE, resume=resume)
        return self.store

    def run(self, worker: Worker, *entries: Entry) -> None:
        Sweep(worker, self.store, self.options, self.reporter).run(prepared(*entries))

    def outcome(self, config: GemmConfig, problem: GemmProblem = PROBLEM) -> RowOutcome:
        (found,) = [
            row for row in self.store.outcomes() if row.identity == identity(config, problem)
        ]
        return found

    def samples(self, config: GemmConfig, problem: GemmProblem = PROBLEM) -> list[Sample]:
        return self.store.samples(identity(config, problem))

    def ratio(self, config: GemmConfig) -> float:
        return float(np.median(stats.paired_ratios(self.samples(config), self.samples(CUBLAS))))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.store.close()


def identity(config: GemmConfig, problem: GemmProblem = PROBLEM) -> Identity:
    return Identity(config, problem, DEVICE.arch, "uniform", 1)


def prepared(*entries: Entry) -> list[Prepared]:
    return [
        Prepared(entry, RowOutcome(identity(entry.config, entry.problem), "ok"), True)
        for entry in entries
    ]


def on(problem: GemmProblem, *configs: GemmConfig) -> list[Entry]:
    return [Entry(config, problem) for config in configs]


STUDY = on(PROBLEM, CUBLAS, FIRST, SECOND, THIRD)


def script(faulty: GemmConfig | None = None, **changes: object) -> Script:
    """All kernels quiet and as fast as cuBLAS, but one."""
    kernels = {faulty.name: Behaviour(**changes)} if faulty else {}  # type: ignore[arg-type]
    return Script(kernels)


def sampled(worker: InProcess) -> list[str]:
    return [name for what, name in worker.calls if what == "sample"]


def rounds_of(worker: InProcess, configs: int) -> list[list[str]]:
    """Orders of the rounds in which every one of `configs` kernels took part, control apart."""
    names = [name for name in sampled(worker) if name != CUBLAS.name]
    return [names[i : i + configs] for i in range(0, len(names), configs)]


# --- failures ------------------------------------------------------------------------------


@pytest.mark.skipif(os.name != "posix", reason="POSIX signals")
@pytest.mark.parametrize("fault", ["exit", "SIGSEGV", "ILLEGAL_ADDRESS"])
def test_a_crash_costs_only_the_configuration_that_crashed(bench: Bench, fault: str) -> None:
    """C9: good, crash, good."""
    with Worker(simulated(script(SECOND, fault=fault))) as worker:
        bench.run(worker, *STUDY)
    assert bench.outcome(SECOND).outcome == "launch_failed"
    assert bench.samples(SECOND) == []
    for good in (CUBLAS, FIRST, THIRD):
        assert bench.outcome(good).outcome == "ok"
        rounds = {sample.round for sample in bench.samples(good)}
        assert rounds == set(range(MIN_ROUNDS))
    assert bench.ratio(FIRST) == 1


def test_a_crash_while_sampling_reopens_and_reloads_what_goes_on(bench: Bench) -> None:
    worker = InProcess(script(SECOND, fault="LAUNCH_FAILED", at="sample", at_count=3))
    bench.run(worker, *STUDY)
    assert bench.outcome(SECOND).outcome == "launch_failed"
    assert "LAUNCH_FAILED" in bench.outcome(SECOND).reason
    assert len(bench.samples(SECOND)) == 2
    for good in (FIRST, THIRD):
        assert bench.outcome(good).outcome == "ok"
        assert [s.round for s in bench.samples(good)] == list(range(MIN_ROUNDS))
    counts = Counter(worker.calls)
    assert counts["open", PROBLEM.name] == 2
    assert [counts["load", c.name] for c in (CUBLAS, FIRST, SECOND, THIRD)] == [2, 2, 1, 2]


def test_a_hang_is_a_timeout_and_the_sweep_goes_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_client, "VERIFY_TIMEOUT_S", 20.0)  # the first one imports the package
    monkeypatch.setattr(gpu_client, "SAMPLE_TIMEOUT_S", 0.5)
    kernels = {SECOND.name: Behaviour(fault="hang", at="sample", at_count=2)}
    with Worker(simulated(Script(kernels))) as worker:
        bench.run(worker, *STUDY)
    assert bench.outcome(SECOND).outcome == "timeout"
    assert "no answer within 0.5 s" in bench.outcome(SECOND).reason
    assert len(bench.samples(THIRD)) == MIN_ROUNDS


class Waits(InProcess):
    """Keeps how long each request for a kernel may take."""

    def __init__(self) -> None:
        super().__init__(Script())
        self.waits: dict[tuple[str, str], float] = {}

    def request(self, method: str, *arguments: object, timeout_s: float) -> object:
        if method in ("load", "verify"):
            kernel = arguments[1]
            name = kernel.config.name if isinstance(kernel, KernelTask) else str(kernel)
            self.waits[method, name] = timeout_s
        return super().request(method, *arguments, timeout_s=timeout_s)


@pytest.mark.parametrize("allow_long_launches", [False, True])
def test_a_kernel_of_ours_that_hangs_is_not_waited_for_long(
    bench: Bench, allow_long_launches: bool
) -> None:
    """A preset may hold dozens that hang alike. cuBLAS may have to read its code from a disk."""
    bench.options = replace(bench.options, allow_long_launches=allow_long_launches)
    control, ours = prepared(*on(PROBLEM, CUBLAS, FIRST))
    ours = replace(ours, build=KernelBuild(BUILD, b"image", None))
    worker = Waits()
    Sweep(worker, bench.store, bench.options, bench.reporter).run([control, ours])
    long_s = gpu_client.VERIFY_TIMEOUT_S
    own_s = long_s if allow_long_launches else gpu_client.IMAGE_TIMEOUT_S
    assert long_s > gpu_client.IMAGE_TIMEOUT_S
    assert worker.waits == {
        ("load", CUBLAS.name): long_s,
        ("verify", CUBLAS.name): long_s,
        ("load", FIRST.name): own_s,
        ("verify", FIRST.name): own_s,
    }


def test_a_wrong_result_is_never_timed_or_ranked(bench: Bench) -> None:
    """C1: a NaN kernel of one microsecond must not be the fastest."""
    reason = "non-finite at (3,5): nan instead of 1.5; 1 of 4194304 elements wrong, 1 not finite"
    worker = InProcess(script(SECOND, time_ms=0.001, wrong=reason))
    bench.run(worker, *STUDY)
    row = bench.outcome(SECOND)
    assert (row.outcome, row.reason) == ("wrong_result", reason)
    assert row.stop_reason == ""
    assert SECOND.name not in sampled(worker)


@pytest.mark.parametrize(
    ("fault", "outcome", "words"),
    [
        ("too long", "timeout", "predicted to take 0.88 s"),
        ("refused", "not_implementable", "ErrorMisalignedOperand"),
        ("bug", "launch_failed", "unforeseen KeyError"),
    ],
)
def test_refusals_and_bugs_are_outcomes(bench: Bench, fault: str, outcome: str, words: str) -> None:
    worker = InProcess(script(SECOND, fault=fault, at="load"))
    bench.run(worker, *STUDY)
    assert bench.outcome(SECOND).outcome == outcome
    assert words in bench.outcome(SECOND).reason
    assert "\n" not in bench.outcome(SECOND).reason
    assert bench.outcome(THIRD).outcome == "ok"
    opened = Counter(worker.calls)["open", PROBLEM.name]
    assert opened == (2 if fault == "bug" else 1)


def test_a_problem_without_memory_fails_its_rows_and_the_next_one_runs(bench: Bench) -> None:
    large = GemmProblem(4096, 4096, 4096)
    worker = InProcess(Script(open_faults={PROBLEM: "OUT_OF_MEMORY"}))
    bench.run(worker, *STUDY, *on(large, CUBLAS, FIRST))
    for config in (CUBLAS, FIRST, SECOND, THIRD):
        row = bench.outcome(config)
        assert row.outcome == "launch_failed"
        assert "could not be opened" in row.reason
        assert "OUT_OF_MEMORY" in row.reason
    assert bench.outcome(FIRST, large).outcome == "ok"
    assert len(bench.samples(FIRST, large)) == MIN_ROUNDS
    assert len(bench.reporter.messages) == 1


def test_a_bug_in_opening_every_problem_ends_with_one_sentence_each(bench: Bench) -> None:
    problems = [GemmProblem(n, n, n) for n in (512, 1024, 2048)]
    worker = InProcess(Script(open_faults=dict.fromkeys(problems, "bug")))
    bench.run(worker, *[entry for problem in problems for entry in on(problem, CUBLAS, FIRST)])
    assert [what for what, _ in worker.calls] == ["open"] * 3
    assert len(bench.reporter.messages) == 3
    assert {row.outcome for row in bench.store.outcomes()} == {"launch_failed"}


def test_a_problem_lost_while_sampling_leaves_its_rows_unfinished(bench: Bench) -> None:
    class LostAfterCrash(InProcess):
        def request(self, method: str, *arguments: object, timeout_s: float) -> object:
            if method == "open_problem" and self.generation:
                self.script = replace(self.script, open_faults={PROBLEM: "OUT_OF_MEMORY"})
            return super().request(method, *arguments, timeout_s=timeout_s)

    crash = script(SECOND, fault="LAUNCH_FAILED", at="sample", at_count=5)
    bench.run(LostAfterCrash(crash), *STUDY)
    assert bench.outcome(SECOND).outcome == "launch_failed"
    assert (bench.outcome(FIRST).outcome, bench.outcome(FIRST).stop_reason) == ("ok", "")
    assert len(bench.samples(FIRST)) in (4, 5)


def test_a_failing_control_leaves_times_without_ratios(bench: Bench) -> None:
    bench.options = replace(bench.options, budget_s=0.0)
    bench.run(InProcess(script(CUBLAS, fault="LAUNCH_FAILED", at="sample", at_count=7)), *STUDY)
    assert bench.outcome(CUBLAS).outcome == "launch_failed"
    assert bench.outcome(FIRST).stop_reason == "burst: budget"
    assert len(bench.samples(FIRST)) == stats.MIN_ROUNDS, "as soon as there can be an interval"


# --- order ---------------------------------------------------------------------------------


def orders(folder: Path, seed: int) -> list[list[str]]:
    folder.mkdir()
    bench = Bench(folder)
    bench.options = replace(bench.options, inputs=Inputs("uniform", seed))
    worker = InProcess(Script())
    bench.run(worker, *on(PROBLEM, CUBLAS, *MANY))
    bench.store.close()
    return rounds_of(worker, len(MANY))


def test_every_round_has_a_fresh_order_that_the_seed_reproduces(tmp_path: Path) -> None:
    first = orders(tmp_path / "a", 5)
    assert len(first) == MIN_ROUNDS
    assert all(sorted(order) == sorted(config.name for config in MANY) for order in first)
    assert len({tuple(order) for order in first}) == len(first)
    assert orders(tmp_path / "b", 5) == first
    assert orders(tmp_path / "c", 6) != first


def test_the_control_opens_every_round_and_returns_every_few_configurations(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "SETTLE_TIMEOUT_S", 0.0)
    worker = InProcess(Script())
    bench.run(worker, *on(PROBLEM, CUBLAS, *MANY))
    names = sampled(worker)
    every = CONTROL_EVERY["burst"]
    per_round = len(MANY) + -(-len(MANY) // every)
    rounds = [names[i : i + per_round] for i in range(0, len(names), per_round)]
    assert len(rounds) == MIN_ROUNDS
    for order in rounds:
        places = [place for place, name in enumerate(order) if name == CUBLAS.name]
        assert places == [0, every + 1, 2 * (every + 1)]
    assert Counter(s.round for s in bench.samples(CUBLAS)) == dict.fromkeys(range(12), 3)


def test_pairing_cancels_drift(bench: Bench) -> None:
    kernels = {FIRST.name: Behaviour(1.05, noise=0.001), CUBLAS.name: Behaviour(noise=0.001)}
    bench.run(InProcess(Script(kernels, drift_per_sample=0.002)), *on(PROBLEM, CUBLAS, FIRST))
    times = [sample.time_ms for sample in bench.samples(FIRST)]
    assert max(times) / min(times) > 1.03, "the drift is there"
    assert bench.ratio(FIRST) == pytest.approx(1 / 1.05, rel=0.004)


def test_problems_of_equal_work_keep_their_controls(bench: Bench) -> None:
    """The added controls come first, before all items: rows are grouped by problem."""
    problems = [PROBLEM, replace(PROBLEM, layout="nn"), replace(PROBLEM, output="f16")]
    items = prepared(*[Entry(FIRST, problem) for problem in problems])
    items = with_controls(items, DEVICE.arch, bench.options.inputs)
    worker = InProcess(Script())
    Sweep(worker, bench.store, bench.options, bench.reporter).run(items)
    assert [name for what, name in worker.calls if what == "open"] == [p.name for p in problems]
    for problem in problems:
        own, control = bench.samples(FIRST, problem), bench.samples(CUBLAS, problem)
        assert len(stats.paired_ratios(own, control)) == MIN_ROUNDS


# --- stopping ------------------------------------------------------------------------------


def test_a_quiet_kernel_stops_at_its_interval_and_a_noisy_one_at_the_budget(bench: Bench) -> None:
    kernels = {FIRST.name: Behaviour(1.1), SECOND.name: Behaviour(0.9, noise=0.2)}
    bench.options = replace(bench.options, budget_s=0.2)
    bench.run(InProcess(Script(kernels, sample_s=0.005)), *on(PROBLEM, CUBLAS, FIRST, SECOND))
    assert bench.outcome(FIRST).stop_reason == "burst: interval"
    assert len(bench.samples(FIRST)) == MIN_ROUNDS
    assert bench.outcome(SECOND).stop_reason == "burst: budget"
    assert MIN_ROUNDS < len(bench.samples(SECOND)) <= 40
    assert bench.outcome(CUBLAS).stop_reason == "burst: control"


def test_rounds_end_even_without_interval_or_budget(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(rounds.MAX_ROUNDS, "burst", 15)
    bench.run(InProcess(script(FIRST, noise=0.3)), *on(PROBLEM, CUBLAS, FIRST))
    assert bench.outcome(FIRST).stop_reason == "burst: rounds"
    assert len(bench.samples(FIRST)) == 15


def test_a_control_alone_gets_enough_rounds_for_an_interval(bench: Bench) -> None:
    bench.run(InProcess(Script()), *on(PROBLEM, CUBLAS))
    assert len(bench.samples(CUBLAS)) == stats.MIN_ROUNDS
    assert bench.outcome(CUBLAS).stop_reason == "burst: control"


def test_both_regimes_are_measured_and_named(bench: Bench) -> None:
    bench.options = replace(bench.options, regimes=("burst", "sustained"))
    bench.run(InProcess(Script()), *STUDY)
    assert bench.outcome(FIRST).stop_reason == "burst: interval; sustained: interval"
    regimes: tuple[Regime, ...] = ("burst", "sustained")
    for regime in regimes:
        own = [sample for sample in bench.samples(FIRST) if sample.regime == regime]
        assert len(own) == MIN_ROUNDS


LARGE = GemmProblem(4096, 4096, 4096)


def test_a_problem_whose_launch_meets_the_power_limit_is_measured_sustained(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "SETTLE_TIMEOUT_S", 0.1)
    entries = [*STUDY, *on(LARGE, CUBLAS, FIRST)]
    bench.run(InProcess(Script(hot=frozenset({LARGE}))), *entries)
    assert {sample.regime for sample in bench.samples(FIRST)} == {"burst"}
    assert {sample.regime for sample in bench.samples(FIRST, LARGE)} == {"sustained"}
    assert len(bench.samples(FIRST, LARGE)) == MIN_ROUNDS
    row = bench.outcome(FIRST, LARGE)
    assert row.stop_reason == "burst: power limit in every sample; sustained: interval"
    (message,) = bench.reporter.messages
    assert message.startswith(f"{LARGE.name}: though the card rests 0.2 s")

    bench.options = replace(bench.options, resume=True)
    nothing = InProcess(Script())
    bench.run(nothing, *entries)
    assert nothing.calls == [], "such a row is complete"


def test_a_hot_problem_is_measured_sustained_once_where_both_were_asked_for(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "SETTLE_TIMEOUT_S", 0.1)
    bench.options = replace(bench.options, regimes=("burst", "sustained"))
    bench.run(InProcess(Script(hot=frozenset({PROBLEM}))), *STUDY)
    assert len(bench.samples(FIRST)) == MIN_ROUNDS


def test_a_kernel_that_fails_where_there_is_no_burst_regime_has_failed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "SETTLE_TIMEOUT_S", 0.1)
    kernels = {SECOND.name: Behaviour(fault="refused", at="sample")}
    bench.run(InProcess(Script(kernels, hot=frozenset({PROBLEM}))), *STUDY)
    assert bench.outcome(SECOND).outcome == "not_implementable"
    assert bench.outcome(FIRST).outcome == "ok"


def test_a_hot_problem_stays_sustained_when_it_is_resumed_on_a_cool_card(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "SETTLE_TIMEOUT_S", 0.1)
    broken = {SECOND.name: Behaviour(fault="ctrl-c", at="sample", at_count=3)}
    with pytest.raises(KeyboardInterrupt):
        bench.run(InProcess(Script(broken, hot=frozenset({PROBLEM}))), *STUDY)
    assert len(bench.samples(FIRST)) < MIN_ROUNDS
    assert not is_whole(bench.outcome(FIRST).stop_reason)
    assert {sample.regime for sample in bench.samples(FIRST)} == {"sustained"}
    bench.options = replace(bench.options, resume=True)
    bench.run(InProcess(Script()), *STUDY)
    for config in (CUBLAS, FIRST, SECOND, THIRD):
        assert {sample.regime for sample in bench.samples(config)} == {"sustained"}
        assert f"burst: {UNRESTED}" in bench.outcome(config).stop_reason


def test_a_problem_begun_in_bursts_stays_there_when_the_card_is_hot_later(bench: Bench) -> None:
    bench.run(InProcess(Script()), *on(PROBLEM, CUBLAS, FIRST))
    bench.options = replace(bench.options, resume=True)
    bench.run(InProcess(Script(hot=frozenset({PROBLEM}))), *STUDY)
    assert {sample.regime for sample in bench.samples(SECOND)} == {"burst"}
    assert all(sample.rejected for sample in bench.samples(SECOND))


def test_one_hot_problem_takes_the_burst_regime_from_all_it_is_compared_with(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "SETTLE_TIMEOUT_S", 0.1)
    items = prepared(*STUDY, *on(LARGE, CUBLAS, FIRST))
    worker = InProcess(Script(hot=frozenset({LARGE})))
    Sweep(worker, bench.store, bench.options, bench.reporter).run(items, together=True)
    for problem in (PROBLEM, LARGE):
        assert {sample.regime for sample in bench.samples(FIRST, problem)} == {"sustained"}


@pytest.mark.parametrize("reason", ["sw_thermal", "hw_slowdown", "sync_boost"])
def test_only_the_power_limit_takes_the_burst_regime_away(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    monkeypatch.setattr(sweep, "SETTLE_TIMEOUT_S", 0.1)
    bench.run(InProcess(Script(hot=frozenset({PROBLEM}), reason=reason)), *STUDY)
    assert {sample.regime for sample in bench.samples(FIRST)} == {"burst"}


@pytest.mark.parametrize(
    ("limited", "rested"),
    [
        ([False], True),
        ([True], False),
        ([True, True, True, False, False, False, False], True),  # four good ones in a row
        ([True] * 17 + [False], False),  # an H200 at 16384^3: 34 of 36
        ([True, False], True),
        ([True, True, False], False),
    ],
)
def test_a_card_at_its_limit_in_most_samples_has_no_burst_regime(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, limited: list[bool], rested: bool
) -> None:
    monkeypatch.setattr(sweep, "SETTLE_TIMEOUT_S", 0.02)
    sweeper = Sweep(InProcess(Script()), bench.store, bench.options, bench.reporter)
    flags = itertools.cycle(limited)
    cool = replace(sample(0, 1.0), sm_clock_mhz=1500.0)
    hot = replace(cool, rejected="throttled: sw_power_cap")
    monkeypatch.setattr(sweeper, "_sample", lambda *_: hot if next(flags) else cool)
    (item,) = prepared(*on(PROBLEM, CUBLAS))
    assert sweeper._settled(Candidate(item, item.row, 1.0), "burst", BurstGap()) is rested


# --- what survives -------------------------------------------------------------------------


def test_resume_measures_only_what_is_missing_and_its_control(bench: Bench) -> None:
    bench.run(InProcess(Script()), *on(PROBLEM, CUBLAS, FIRST, SECOND))
    bench.store.close()
    bench.open(resume=True)
    bench.options = replace(bench.options, resume=True)
    again = InProcess(Script())
    bench.run(again, *STUDY)
    assert {name for what, name in again.calls if what == "load"} == {CUBLAS.name, THIRD.name}
    assert len(bench.samples(FIRST)) == MIN_ROUNDS
    assert len(stats.paired_ratios(bench.samples(THIRD), bench.samples(CUBLAS))) == 12
    nothing = InProcess(Script())
    bench.store.close()
    bench.open(resume=True)
    bench.run(nothing, *STUDY)
    assert nothing.calls == []


@pytest.mark.parametrize("regime", [0, 1])
def test_ctrl_c_keeps_what_the_round_has_measured(bench: Bench, regime: int) -> None:
    """Interrupted in either regime, a row is no whole row: `--resume` measures it again."""
    bench.options = replace(bench.options, regimes=("burst", "sustained"))
    count = (3, MIN_ROUNDS + 2)[regime]
    worker = InProcess(script(THIRD, fault="ctrl-c", at="sample", at_count=count))
    with pytest.raises(KeyboardInterrupt):
        bench.run(worker, *STUDY)
    assert len(bench.samples(THIRD)) == count - 1
    assert len(bench.samples(FIRST)) in (count - 1, count)
    assert len(sampled(worker)) >= len(bench.store.all_samples())
    assert bench.outcome(FIRST).stop_reason == ""
    bench.store.close()
    bench.open(resume=True)
    bench.options = replace(bench.options, resume=True)
    again = InProcess(Script())
    bench.run(again, *STUDY)
    assert FIRST.name in sampled(again)
    assert bench.outcome(FIRST).stop_reason == "burst: interval; sustained: interval"


KILLED = """
import sys
from pathlib import Path
from tests.test_sweep import *

bench = Bench(Path(sys.argv[1]))
kernels = {SECOND.name: Behaviour(noise=0.3)}
log = str(Path(sys.argv[1]) / "log")
bench.run(InProcess(Script(kernels, sample_s=0.01, log=log)), *STUDY, *on(LARGE, CUBLAS, FIRST))
"""
LARGE = GemmProblem(4096, 4096, 4096)


@pytest.mark.skipif(os.name != "posix", reason="kill -9")
def test_kill_9_keeps_finished_rows_and_resume_does_the_rest(tmp_path: Path) -> None:
    """O2: the noisy kernel is still being measured when the process is killed."""
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], cwd=PROJECT)
    log, deadline = tmp_path / "log", time.monotonic() + 60
    needle = f"sample {SECOND.name}\n"
    while time.monotonic() < deadline:
        if log.exists() and log.read_text().count(needle) > MIN_ROUNDS + 2:
            break
        assert process.poll() is None, "the sweep ended by itself"
        time.sleep(0.01)
    process.kill()
    process.wait()

    bench = Bench.__new__(Bench)
    bench.path, bench.reporter = tmp_path / "study.sqlite", Quiet()
    bench.options = SweepOptions(("burst",), Inputs("uniform", 1), 1000.0, resume=True)
    bench.open(resume=True)
    before = bench.samples(FIRST)
    assert len(before) == MIN_ROUNDS
    unfinished = len(bench.samples(SECOND))
    assert unfinished > MIN_ROUNDS
    worker = InProcess(Script())
    bench.run(worker, *STUDY, *on(LARGE, CUBLAS, FIRST))
    assert "2 configurations are complete and skipped" in bench.reporter.messages
    assert bench.samples(FIRST) == before
    small = worker.calls[: worker.calls.index(("open", LARGE.name))]
    assert {name for what, name in small if what == "sample"} == {CUBLAS.name, SECOND.name}
    assert len(bench.samples(SECOND)) == unfinished + MIN_ROUNDS
    names = Counter(row.identity for row in bench.store.outcomes())
    assert set(names.values()) == {1}
    assert len(names) == 6
    taken = Counter((i, s.regime, s.round) for i, s in bench.store.all_samples())
    assert all(n == 1 for (i, _, _), n in taken.items() if i.config != CUBLAS)
    assert all(row.stop_reason for row in bench.store.outcomes())
    assert len(bench.samples(FIRST, LARGE)) == MIN_ROUNDS
    bench.store.close()


def test_a_launch_is_expected_to_take_what_it_took_in_the_regime(tmp_path: Path) -> None:
    """Under a power limit a sample planned from one rested launch would be a third too long."""
    row = RowOutcome(identity(FIRST), "ok")
    candidate = rounds.Candidate(Prepared(Entry(FIRST, PROBLEM), row, True), row, 1.5)
    assert candidate.expected_ms == 1.5
    candidate.samples.append(sample(0, 2.0))
    candidate.samples.append(sample(1, 3.0))
    assert candidate.expected_ms == 2.0
    candidate.begin()
    assert candidate.expected_ms == 1.5


def test_the_planned_limit_counts_controls_and_warming_up() -> None:
    items = [
        Prepared(entry, RowOutcome(identity(entry.config), "ok"), True)
        for entry in on(PROBLEM, *MANY)
    ]
    options = SweepOptions(("burst", "sustained"), Inputs("uniform", 1), 10.0)
    counts = [len(items) + -(-len(items) // CONTROL_EVERY[regime]) for regime in options.regimes]
    assert plan.measure_limit_s(items, options) == 10 * sum(counts) + 2 * rounds.SETTLE_TIMEOUT_S


def test_a_row_has_samples_of_one_kind_of_submission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--resume` with another `--graphs` is refused; the same one, and a fresh run, are not."""

    def opened(graphs: str, *, resume: bool = True) -> ResultsStore:
        monkeypatch.setattr(sys, "argv", ["sweep.py", f"--graphs={graphs}"])
        options = SweepOptions(("burst",), Inputs("uniform", 1), 1.0, resume=resume, graphs=graphs)
        request = study.Request(None, Axes(), options, KernelCache(tmp_path / "cache"))
        return study.open_store(tmp_path / "study.sqlite", DEVICE, request)

    with opened("never") as store:
        store.add_outcome(RowOutcome(identity(FIRST), "ok"))
    with pytest.raises(UsageError, match=r"always can't resume a sweep.*give --graphs never"):
        opened("always")
    opened("never").close()
    opened("always", resume=False).close()


# --- end to end, without compiling ---------------------------------------------------------

Measure = Callable[[Script], "study.Measurement"]


@pytest.fixture
def measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Measure]:
    monkeypatch.setitem(rounds.MAX_ROUNDS, "burst", 13)
    axes = Axes(family=("cublas",), problem=("2048x2048x2048",))
    options = SweepOptions(("burst",), Inputs("uniform", 1), 1000.0)
    request = study.Request(None, axes, options, KernelCache(tmp_path / "cache"))
    limits = gpus.limits_from(DEVICE)
    with study.open_store(tmp_path / "study.sqlite", DEVICE, request) as store:

        def run(script: Script) -> study.Measurement:
            found = study.measured_entries(request, DEVICE, lambda text: None)
            return study.measure(
                request, found, limits, InProcess(script), store, tmp_path / "out", Quiet()
            )

        yield run


def test_a_sweep_of_good_kernels_is_useful_and_complete(measure: Measure, tmp_path: Path) -> None:
    done = measure(Script({CUBLAS_LT.name: Behaviour(0.9)}))
    assert done.useful
    assert done.outcomes == {"ok": 2}
    assert '"complete": true' in (tmp_path / "out" / "device.json").read_text()


def test_rows_without_a_valid_sample_say_so_and_the_exit_code_tells(measure: Measure) -> None:
    """M9 and M5: a kernel of 0 ms never ran; no number, no NaN, and no success."""
    done = measure(Script({CUBLAS_LT.name: Behaviour(GONE)}))
    assert not done.useful
    assert done.outcomes == {"ok": 1, "no_valid_samples": 1}
    results = load(done.directory).results
    row = results[results["outcome"] == "no_valid_samples"].iloc[0]
    assert "no valid samples" in row["reason"]
    assert row[["time_ms", "tflops", "ratio_to_cublas"]].isna().all()


def test_all_rejected_everywhere_still_ends_with_tables(measure: Measure) -> None:
    done = measure(Script(dict.fromkeys((CUBLAS.name, CUBLAS_LT.name), Behaviour(GONE))))
    assert not done.useful
    assert done.outcomes == {"no_valid_samples": 2}


def test_an_interrupted_sweep_is_exported_as_far_as_it_came(
    measure: Measure, tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt):
        measure(Script({CUBLAS_LT.name: Behaviour(fault="ctrl-c", at="sample", at_count=5)}))
    data = load(tmp_path / "out")
    assert set(data.results["outcome"].astype(str)) == {"ok"}
    assert len(data.samples) == 4 + 5
    assert '"complete": false' in (tmp_path / "out" / "device.json").read_text()


def test_an_interruption_before_any_result_is_still_an_interruption(measure: Measure) -> None:
    with pytest.raises(KeyboardInterrupt):
        measure(Script({CUBLAS.name: Behaviour(fault="ctrl-c", at="load")}))
