"""The orchestrator: verify every kernel, then measure all of them in randomized, paired rounds.

Nothing here touches the GPU; a `Worker` does. What is measured is stored after every round.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from cutlass_study import stats
from cutlass_study.config import GemmProblem
from cutlass_study.prepare import Inputs, Prepared
from cutlass_study.records import Identity, Outcome, Regime, RowOutcome, Sample
from cutlass_study.reporter import Reporter
from cutlass_study.results import ResultsStore
from cutlass_study.space import CUBLAS, Entry
from cutlass_study.sweep_options import SweepOptions
from cutlass_study.tasks import KernelTask, ProblemSetup, Verification
from cutlass_study.worker import Worker, WorkerFailure

OPEN_TIMEOUT_S = 900.0  # operands and the FP64 reference, slow on cards without fast FP64
VERIFY_TIMEOUT_S = 120.0
SAMPLE_TIMEOUT_S = 30.0
CONTROL_EVERY = 12  # configurations between two control samples within a round
TARGET_HALF_WIDTH: dict[Regime, float] = {"burst": 0.002, "sustained": 0.01}
MIN_ROUNDS: dict[Regime, int] = {"burst": 12, "sustained": 6}
MAX_ROUNDS: dict[Regime, int] = {"burst": 400, "sustained": 100}
SETTLED_CLOCK = 0.005  # relative spread of the control's clock over SETTLED_SAMPLES samples
SETTLED_SAMPLES, SETTLE_TIMEOUT_S = 4, 5.0
OUTCOME_OF: dict[str, Outcome] = {
    "not_implementable": "not_implementable",
    "launch_failed": "launch_failed",
    "timeout": "timeout",
    "died": "launch_failed",
    "bug": "launch_failed",
}


@dataclass(slots=True)
class Candidate:
    """A verified kernel during sampling."""

    item: Prepared
    row: RowOutcome
    estimate_ms: float
    samples: list[Sample] = field(default_factory=list)
    spent_s: float = 0.0
    stop_reason: str = ""

    @property
    def name(self) -> str:
        return self.item.entry.config.name

    @property
    def identity(self) -> Identity:
        return self.row.identity


@dataclass(slots=True)
class Held:
    """What a child process holds: an open problem and kernels. Gone with its generation."""

    generation: int
    setup: ProblemSetup
    with_reference: bool
    loaded: set[str] = field(default_factory=set)

    def serves(self, generation: int, setup: ProblemSetup, with_reference: bool) -> bool:
        """Whether the present child has this problem open, with a reference if one is needed."""
        return (self.generation, self.setup) == (generation, setup) and (
            self.with_reference or not with_reference
        )


class ProblemLost(Exception):
    """The problem itself can't be opened (no memory for it, say), so none of its rows can run."""

    def __init__(self, failure: WorkerFailure) -> None:
        super().__init__(f"the problem could not be opened: {failure}")
        self.outcome = OUTCOME_OF[failure.kind]


def with_controls(items: Sequence[Prepared], arch: str, inputs: Inputs) -> list[Prepared]:
    """Add cuBLAS's default algorithm to every problem that lacks it: ratios need the control."""
    have = {item.entry.problem for item in items if item.entry.config == CUBLAS}
    missing = dict.fromkeys(
        item.entry.problem for item in items if item.pending and item.entry.problem not in have
    )
    added = []
    for problem in missing:
        identity = Identity(CUBLAS, problem, arch, inputs.distribution, inputs.seed)
        added.append(Prepared(Entry(CUBLAS, problem), RowOutcome(identity, "ok"), True))
    return [*added, *items]


class Sweep:
    """Runs prepared items on one GPU into one store."""

    def __init__(
        self,
        worker: Worker,
        store: ResultsStore,
        options: SweepOptions,
        reporter: Reporter,
    ) -> None:
        self._worker, self._store = worker, store
        self._options, self._reporter = options, reporter
        self._random = random.Random(options.inputs.seed)
        self._held: Held | None = None

    def run(self, items: Sequence[Prepared]) -> None:
        """Measure every pending item; record the others' outcomes first, so none can be lost."""
        with self._store.batch():
            for item in items:
                if item.build is not None:
                    self._store.add_build(item.build.record)
                if not item.pending:
                    self._store.add_outcome(item.row)
        groups: dict[GemmProblem, list[Prepared]] = {}
        for item in self._not_done(items):
            groups.setdefault(item.entry.problem, []).append(item)
        # Small problems first: their results are safe before a large one can fail.
        for problem in sorted(groups, key=lambda problem: problem.flop):
            self._run_problem(problem, groups[problem])

    def _not_done(self, items: Sequence[Prepared]) -> list[Prepared]:
        """Pending items without complete results; a problem's control joins whatever remains."""
        pending = [item for item in items if item.pending]
        if not self._options.resume:
            return pending
        finished = {
            row.identity
            for row in self._store.outcomes()
            if row.stop_reason
            and self._store.done(row.identity, row.build_key, self._options.regimes)
        }
        builds = {row.identity: row.build_key for row in self._store.outcomes()}
        rest = [
            item
            for item in pending
            if item.row.identity not in finished or builds[item.row.identity] != item.row.build_key
        ]
        skipped = len(pending) - len(rest)
        if skipped:
            self._reporter.message(f"{skipped} configurations are complete and skipped")
        problems = {item.entry.problem for item in rest}
        return [
            item
            for item in pending
            if item in rest or (item.entry.config == CUBLAS and item.entry.problem in problems)
        ]

    # --- one problem -----------------------------------------------------------------------

    def _run_problem(self, problem: GemmProblem, items: list[Prepared]) -> None:
        inputs = self._options.inputs
        self._setup = ProblemSetup(
            problem, inputs.distribution, inputs.seed, self._options.allow_long_launches
        )
        self._reporter.stage(f"verify {problem.name}", len(items))
        waiting = sorted(items, key=lambda item: item.entry.config != CUBLAS)
        candidates = []
        try:
            while waiting:
                candidate = self._verify(waiting[0])
                del waiting[0]
                if candidate is not None:
                    candidates.append(candidate)
                self._reporter.step()
            for regime in self._options.regimes:
                self._measure(candidates, regime)
        except ProblemLost as lost:
            self._reporter.message(f"{problem.name}: {lost}")
            with self._store.batch():
                for item in waiting:
                    row = replace(item.row, outcome=lost.outcome, reason=str(lost))
                    self._store.add_outcome(row)

    def _ready(self, item: Prepared, *, with_reference: bool) -> None:
        """Make sure that the child has the problem open and the kernel loaded.

        Raises `ProblemLost` for the former and `WorkerFailure` for the latter.
        """
        held = self._held
        if held is None or not held.serves(self._worker.generation, self._setup, with_reference):
            self._held = None
            try:
                self._worker.request(
                    "open_problem", self._setup, with_reference, timeout_s=OPEN_TIMEOUT_S
                )
            except WorkerFailure as failure:
                raise ProblemLost(failure) from failure
            held = self._held = Held(self._worker.generation, self._setup, with_reference)
        name = item.entry.config.name
        if name in held.loaded:
            return
        occupancy = item.row.occupancy
        task = KernelTask(
            item.entry.config,
            item.build.cubin if item.build else None,
            occupancy.ctas_per_sm if occupancy else 1,
        )
        self._worker.request("load", task, timeout_s=VERIFY_TIMEOUT_S)
        held.loaded.add(name)

    def _failed(self, row: RowOutcome, failure: WorkerFailure) -> None:
        self._store.add_outcome(replace(row, outcome=OUTCOME_OF[failure.kind], reason=str(failure)))
        self._reporter.message(f"{row.identity.name}: {failure}")

    def _verify(self, item: Prepared) -> Candidate | None:
        try:
            self._ready(item, with_reference=True)
            result: Verification = self._worker.request(
                "verify", item.entry.config.name, timeout_s=VERIFY_TIMEOUT_S
            )
        except WorkerFailure as failure:
            self._failed(item.row, failure)
            return None
        row = replace(
            item.row,
            outcome="wrong_result" if result.reason else "ok",
            reason=result.reason,
            max_abs_error=result.max_abs_error,
            max_rel_error=result.max_rel_error,
        )
        self._store.add_outcome(row)
        if result.reason:
            self._reporter.message(f"{row.identity.name}: {result.reason}")
            return None
        return Candidate(item, row, result.estimate_ms)

    # --- rounds ----------------------------------------------------------------------------

    def _sample(self, candidate: Candidate, regime: Regime, round_: int) -> Sample | None:
        try:
            self._ready(candidate.item, with_reference=False)
            start = time.perf_counter()
            sample: Sample = self._worker.request(
                "sample", candidate.name, regime, round_, candidate.estimate_ms,
                timeout_s=SAMPLE_TIMEOUT_S,
            )  # fmt: skip
        except WorkerFailure as failure:
            self._failed(candidate.row, failure)
            candidate.stop_reason = "failed"
            return None
        candidate.spent_s += time.perf_counter() - start
        return sample

    def _settle(self, control: Candidate, regime: Regime) -> None:
        """Warm up by time: until the control's clock is steady, for a few seconds at most."""
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        clocks: list[float] = []
        while time.monotonic() < deadline and not control.stop_reason:
            sample = self._sample(control, regime, 0)
            clocks.append((sample.sm_clock_mhz if sample else None) or 0.0)
            last = clocks[-SETTLED_SAMPLES:]
            if len(last) == SETTLED_SAMPLES and max(last) - min(last) <= SETTLED_CLOCK * max(last):
                return

    def _round_order(self, active: list[Candidate], control: Candidate | None) -> list[Candidate]:
        """All active candidates in fresh random order, the control before every few of them."""
        others = [candidate for candidate in active if candidate is not control]
        self._random.shuffle(others)
        if control is None or control.stop_reason == "failed":
            return others
        order: list[Candidate] = []
        for position, candidate in enumerate(others):
            if position % CONTROL_EVERY == 0:
                order.append(control)
            order.append(candidate)
        return order or [control]

    def _measure(self, candidates: list[Candidate], regime: Regime) -> None:
        alive = [c for c in candidates if c.stop_reason != "failed"]
        for candidate in alive:
            candidate.samples, candidate.spent_s, candidate.stop_reason = [], 0.0, ""
        control = next((c for c in alive if c.item.entry.config == CUBLAS), None)
        if control is not None:
            self._settle(control, regime)
        self._reporter.stage(f"measure {regime}", len(alive))
        for round_ in range(MAX_ROUNDS[regime]):
            active = [c for c in alive if not c.stop_reason]
            others = [c for c in active if c is not control]
            # A control that is left alone goes on until its own median has an interval.
            if not active or (not others and round_ >= MIN_ROUNDS[regime]):
                break
            self._one_round(self._round_order(active, control), regime, round_)
            self._stop_finished(active, control, regime, round_)
        for candidate in alive:
            if not candidate.stop_reason:
                self._record_stop(
                    candidate, regime, "control" if candidate is control else "rounds"
                )

    def _one_round(self, order: Iterable[Candidate], regime: Regime, round_: int) -> None:
        taken = []
        try:
            for candidate in order:
                if candidate.stop_reason == "failed":
                    continue
                sample = self._sample(candidate, regime, round_)
                if sample is not None:
                    candidate.samples.append(sample)
                    taken.append((candidate.identity, sample))
        finally:  # also what an interrupted round has measured
            with self._store.batch():
                for identity, sample in taken:
                    self._store.add_samples(identity, [sample])

    def _stop_finished(
        self, active: list[Candidate], control: Candidate | None, regime: Regime, round_: int
    ) -> None:
        if round_ + 1 < MIN_ROUNDS[regime]:
            return
        for candidate in active:
            if candidate.stop_reason:
                continue
            if candidate is not control and control is not None:
                ratios = stats.paired_ratios(candidate.samples, control.samples)
                if stats.interval_half_width(ratios) <= TARGET_HALF_WIDTH[regime]:
                    candidate.stop_reason = "interval"
            if candidate is not control and candidate.spent_s >= self._options.budget_s:
                candidate.stop_reason = candidate.stop_reason or "budget"
            if candidate.stop_reason:
                self._record_stop(candidate, regime, candidate.stop_reason)
                self._reporter.step()

    def _record_stop(self, candidate: Candidate, regime: Regime, reason: str) -> None:
        """Note why sampling ended. Stored after the last regime: it says that the row is whole."""
        parts = [part for part in (candidate.row.stop_reason, f"{regime}: {reason}") if part]
        candidate.row = replace(candidate.row, stop_reason="; ".join(parts))
        if regime == self._options.regimes[-1]:
            self._store.add_outcome(candidate.row)
