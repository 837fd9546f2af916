"""The orchestrator: verify every kernel, then measure all of them in randomized, paired rounds.

Nothing here touches the GPU; a `Worker` does. What is measured is stored after every round.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from cutlass_study import stats
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
        self._setup: ProblemSetup | None = None
        self._opened_with_reference = False
        self._loaded: set[str] = set()

    def run(self, items: Sequence[Prepared]) -> None:
        """Measure every pending item; record the others' outcomes first, so none can be lost."""
        with self._store.batch():
            for item in items:
                if item.build is not None:
                    self._store.add_build(item.build.record)
                if not item.pending:
                    self._store.add_outcome(item.row)
        pending = sorted(
            self._not_done(items), key=lambda item: item.entry.problem.flop
        )  # small problems first: their results are safe before a large one can fail
        for problem, group in groupby(pending, key=lambda item: item.entry.problem):
            self._setup = ProblemSetup(
                problem,
                self._options.inputs.distribution,
                self._options.inputs.seed,
                self._options.allow_long_launches,
            )
            self._run_problem(list(group))

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

    def _run_problem(self, items: list[Prepared]) -> None:
        assert self._setup
        self._worker_is_fresh()
        self._reporter.stage(f"verify {self._setup.problem.name}", len(items))
        candidates = []
        for item in sorted(items, key=lambda item: item.entry.config != CUBLAS):
            candidate = self._verify(item)
            if candidate is not None:
                candidates.append(candidate)
            self._reporter.step()
        for regime in self._options.regimes:
            self._measure(candidates, regime)

    def _worker_is_fresh(self) -> None:
        """The child lost its state, or another problem begins."""
        self._loaded.clear()
        self._opened_with_reference = False

    def _open(self, *, with_reference: bool) -> None:
        if self._worker.alive and (self._opened_with_reference or self._loaded):
            return
        self._loaded.clear()
        self._worker.request("open_problem", self._setup, with_reference, timeout_s=OPEN_TIMEOUT_S)
        self._opened_with_reference = with_reference

    def _load(self, item: Prepared) -> None:
        name = item.entry.config.name
        if self._worker.alive and name in self._loaded:
            return
        occupancy = item.row.occupancy
        task = KernelTask(
            item.entry.config,
            item.build.cubin if item.build else None,
            occupancy.ctas_per_sm if occupancy else 1,
        )
        self._worker.request("load", task, timeout_s=VERIFY_TIMEOUT_S)
        self._loaded.add(name)

    def _failed(self, row: RowOutcome, failure: WorkerFailure) -> None:
        """Record a failure; after a crash the child's state is gone with it."""
        self._store.add_outcome(replace(row, outcome=OUTCOME_OF[failure.kind], reason=str(failure)))
        self._reporter.message(f"{row.identity.name}: {failure}")
        if not self._worker.alive:
            self._worker_is_fresh()

    def _verify(self, item: Prepared) -> Candidate | None:
        try:
            self._open(with_reference=True)
            self._load(item)
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
        start = time.perf_counter()
        try:
            self._open(with_reference=False)
            self._load(candidate.item)
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
            if not [c for c in active if c is not control] and (round_ or not active):
                break
            self._one_round(self._round_order(active, control), regime, round_)
            self._stop_finished(active, control, regime, round_)
        for candidate in alive:
            if candidate.stop_reason != "failed":
                self._record_stop(candidate, regime, candidate.stop_reason or "rounds")

    def _one_round(self, order: Iterable[Candidate], regime: Regime, round_: int) -> None:
        taken = []
        for candidate in order:
            if candidate.stop_reason == "failed":
                continue
            sample = self._sample(candidate, regime, round_)
            if sample is not None:
                candidate.samples.append(sample)
                taken.append((candidate.identity, sample))
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
                self._reporter.step()

    def _record_stop(self, candidate: Candidate, regime: Regime, reason: str) -> None:
        if candidate.item.entry.config == CUBLAS:
            reason = "control"
        parts = [part for part in (candidate.row.stop_reason, f"{regime}: {reason}") if part]
        candidate.row = replace(candidate.row, stop_reason="; ".join(parts))
        self._store.add_outcome(candidate.row)
