"""The orchestrator: verify every kernel, then measure all of them in randomized, paired rounds.

Nothing here touches the GPU; a `Worker` does. What is measured is stored after every round.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

from cutlass_study import stats
from cutlass_study.config import GemmProblem
from cutlass_study.gpu_client import OUTCOME_OF, GpuClient, ProblemLost
from cutlass_study.prepare import Inputs, Prepared
from cutlass_study.records import (
    FAILED,
    UNRESTED,
    Identity,
    Regime,
    RowOutcome,
    Sample,
    is_whole,
)
from cutlass_study.reporter import Reporter
from cutlass_study.results import ResultsStore
from cutlass_study.rounds import (
    MAX_ROUNDS,
    MOST_GAP_S,
    SETTLE_TIMEOUT_S,
    BurstGap,
    Candidate,
    control_of,
    met_power_limit,
    round_order,
    stop_reason,
)
from cutlass_study.space import CUBLAS, Entry
from cutlass_study.sweep_options import SweepOptions
from cutlass_study.telemetry import TelemetryLog
from cutlass_study.worker import Worker, WorkerFailure

SETTLED_CLOCK = 0.005  # relative spread of the control's clock over SETTLED_SAMPLES samples
SETTLED_SAMPLES = 4


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
        telemetry: TelemetryLog | None = None,
    ) -> None:
        self.gpu = GpuClient(worker, telemetry, options)
        self._store, self._options, self._reporter = store, options, reporter
        self._random = random.Random(options.inputs.seed)
        self._rested: dict[GemmProblem, bool] = {}  # whether it has a burst regime, where known

    def run(self, items: Sequence[Prepared], *, together: bool = False) -> None:
        """Measure every pending item; record the others' outcomes first, so none can be lost.

        Rounds are per problem, or over everything at once where it is to be compared `together`.
        """
        self.record_static(items)
        groups: dict[GemmProblem | None, list[Prepared]] = {}
        for item in self._not_done(items):
            groups.setdefault(None if together else item.entry.problem, []).append(item)
        # Small problems first: their results are safe before a large one can fail.
        for group in sorted(groups.values(), key=lambda group: group[0].entry.problem.flop):
            self._run_group(group)

    def record_static(self, items: Sequence[Prepared]) -> None:
        """Record every build, and the outcomes that need no measuring."""
        with self._store.batch():
            for item in items:
                if item.build is not None:
                    self._store.add_build(item.build.record)
                if not item.pending:
                    self._store.add_outcome(item.row)

    def _not_done(self, items: Sequence[Prepared]) -> list[Prepared]:
        """Pending items without complete results; a problem's control joins whatever remains."""
        pending = [item for item in items if item.pending]
        if not self._options.resume:
            return pending
        finished = {
            row.identity
            for row in self._store.outcomes()
            if is_whole(row.stop_reason)
            and f": {FAILED} " not in row.stop_reason
            and self._store.done(row.identity, row.build_key, self._regimes_of(row))
        }
        builds = {row.identity: row.build_key for row in self._store.outcomes()}
        # A problem is measured to its end in the regimes in which it was begun.
        for identity, sample in self._store.all_samples():
            if sample.regime == "burst" and not sample.rejected:
                self._rested[identity.problem] = True
        for row in self._store.outcomes():
            if f"burst: {UNRESTED}" in row.stop_reason:
                self._rested[row.identity.problem] = False
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

    def _regimes_of(self, row: RowOutcome) -> set[Regime]:
        """The regimes in which a finished row has samples."""
        if f"burst: {UNRESTED}" not in row.stop_reason:
            return set(self._options.regimes)
        return {*self._options.regimes, "sustained"} - {"burst"}

    # --- one group -------------------------------------------------------------------------

    def _run_group(self, items: list[Prepared]) -> None:
        names = dict.fromkeys(item.entry.problem.name for item in items)
        self._reporter.stage(f"verify {', '.join(names)}", len(items))
        waiting = sorted(items, key=lambda item: item.entry.config != CUBLAS)
        candidates = []
        try:
            self.gpu.close_all()
            while waiting:
                candidate = self.verify(waiting[0])
                del waiting[0]
                if candidate is not None:
                    candidates.append(candidate)
                self._reporter.step()
            self._measure_regimes(candidates)
        except ProblemLost as lost:
            self._reporter.message(f"{', '.join(names)}: {lost}")
            with self._store.batch():
                for item in waiting:
                    row = replace(item.row, outcome=lost.outcome, reason=str(lost))
                    self._store.add_outcome(row)

    def failed(self, row: RowOutcome, failure: WorkerFailure) -> None:
        """Record and report how a row failed."""
        self._store.add_outcome(replace(row, outcome=OUTCOME_OF[failure.kind], reason=str(failure)))
        self._reporter.message(f"{row.identity.name}: {failure}")

    def verify(self, item: Prepared) -> Candidate | None:
        """Verify one item and record the outcome; None if it can't be measured."""
        try:
            result, choice = self.gpu.verify(item)
        except WorkerFailure as failure:
            self.failed(item.row, failure)
            return None
        notes = [] if choice is None else [f"heuristic candidate {choice + 1}"]
        if result.overflows:
            notes.append(f"{result.overflows} elements overflow FP16, as the exact values do")
        row = replace(
            item.row,
            outcome="wrong_result" if result.reason else "ok",
            reason=result.reason or "; ".join(notes),
            max_abs_error=result.max_abs_error,
            max_rel_error=result.max_rel_error,
            driver_ctas_per_sm=result.ctas_per_sm,
        )
        self._store.add_outcome(row)
        if result.reason:
            self._reporter.message(f"{row.identity.name}: {result.reason}")
            return None
        return Candidate(item, row, result.estimate_ms, choice)

    # --- rounds ----------------------------------------------------------------------------

    def _sample(
        self, candidate: Candidate, regime: Regime, round_: int, gap: BurstGap
    ) -> Sample | None:
        try:
            pause = gap.seconds if regime == "burst" else None
            sample = self.gpu.sample(candidate, regime, round_, pause)
        except WorkerFailure as failure:
            self._failed_in(candidate, regime, failure)
            candidate.stop_reason = "failed"
            return None
        return gap.judge(candidate, sample) if regime == "burst" else sample

    def _measure_regimes(self, candidates: list[Candidate]) -> None:
        """Each regime asked for; the sustained one where the burst regime can't exist."""
        regimes = list(self._options.regimes)
        for regime in regimes:  # may grow meanwhile
            alive = [candidate for candidate in candidates if not candidate.failed]
            for candidate in alive:
                candidate.begin()
            controls, gap = [c for c in alive if c.is_control], BurstGap()
            if self._settle(controls, regime, gap):
                self._measure(alive, controls, regime, gap, last=regime == regimes[-1])
                continue
            names = dict.fromkeys(control.identity.problem.name for control in controls)
            self._reporter.message(
                f"{', '.join(names)}: though the card rests {MOST_GAP_S:g} s before a sample, its "
                "power limit acts in most of them, so that there is no burst regime; the sustained "
                "one is measured instead"
            )
            if "sustained" not in regimes:
                regimes.append("sustained")
            for candidate in alive:
                self._record_stop(candidate, regime, UNRESTED, last=True)

    def _settle(self, controls: Sequence[Candidate], regime: Regime, gap: BurstGap) -> bool:
        """Warm up; False where there is no burst regime, or an earlier run found none."""
        if regime == "sustained":
            return not controls or self._settled(controls[0], regime, gap)
        known = [self._rested.get(control.identity.problem) for control in controls]
        return all(
            self._settled(control, regime, gap) if rested is None else rested
            for control, rested in zip(controls, known, strict=True)
        )

    def _settled(self, control: Candidate, regime: Regime, gap: BurstGap) -> bool:
        """Until the control's clock is steady, for a few seconds at most.

        False if the power limit was active in most samples to the end, whatever the rest between.
        """
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        samples: list[Sample] = []
        while time.monotonic() < deadline and not control.failed:
            sample = self._sample(control, regime, 0, gap)
            samples += [sample] if sample else []
            last = samples[-SETTLED_SAMPLES:]
            clocks = [sample.sm_clock_mhz or 0.0 for sample in last]
            if (
                len(last) == SETTLED_SAMPLES
                and max(clocks) - min(clocks) <= SETTLED_CLOCK * max(clocks)
                and not any(map(met_power_limit, last))
            ):
                return True
        judged = samples[-2 * SETTLED_SAMPLES :]
        limited = sum(map(met_power_limit, judged))
        return control.failed or len(judged) < SETTLED_SAMPLES or 2 * limited <= len(judged)

    def _measure(
        self,
        alive: list[Candidate],
        controls: list[Candidate],
        regime: Regime,
        gap: BurstGap,
        *,
        last: bool,
    ) -> None:
        self._reporter.stage(f"measure {regime}", len(alive))
        for round_ in range(MAX_ROUNDS[regime]):
            active = [candidate for candidate in alive if not candidate.stop_reason]
            # A control that is left alone goes on until its own median has an interval.
            alone = all(candidate.is_control for candidate in active)
            if not active or (alone and round_ >= stats.MIN_ROUNDS):
                break
            order = round_order(active, controls, regime, self._random)
            self._one_round(order, regime, round_, gap)
            self._stop_finished(active, controls, regime, last=last)
        for candidate in alive:
            if not candidate.stop_reason:
                reason = "control" if candidate.is_control else "rounds"
                self._record_stop(candidate, regime, reason, last=last)

    def _one_round(
        self, order: Iterable[Candidate], regime: Regime, round_: int, gap: BurstGap
    ) -> None:
        taken = []
        try:
            for candidate in order:
                if candidate.failed:
                    continue
                sample = self._sample(candidate, regime, round_, gap)
                if sample is not None:
                    candidate.samples.append(sample)
                    taken.append((candidate.identity, sample))
        finally:  # also what an interrupted round has measured
            with self._store.batch():
                for identity, sample in taken:
                    self._store.add_samples(identity, [sample])

    def _failed_in(self, candidate: Candidate, regime: Regime, failure: WorkerFailure) -> None:
        """A failure while sampling costs this regime; one that was finished before stays."""
        if not is_whole(candidate.row.stop_reason):
            self.failed(candidate.row, failure)
            return
        part = f"{regime}: {FAILED} {OUTCOME_OF[failure.kind]}: {failure}"
        reasons = f"{candidate.row.stop_reason}; {part}"
        candidate.row = replace(candidate.row, stop_reason=reasons)
        self._store.add_outcome(candidate.row)
        self._reporter.message(f"{candidate.identity.name}: {part}")

    def _stop_finished(
        self,
        active: list[Candidate],
        controls: list[Candidate],
        regime: Regime,
        *,
        last: bool,
    ) -> None:
        for candidate in active:
            if candidate.stop_reason or candidate.is_control:
                continue
            control = control_of(candidate, controls)
            candidate.stop_reason = stop_reason(candidate, control, regime, self._options.budget_s)
            if candidate.stop_reason:
                self._record_stop(candidate, regime, candidate.stop_reason, last=last)
                self._reporter.step()

    def _record_stop(
        self, candidate: Candidate, regime: Regime, reason: str, *, last: bool
    ) -> None:
        """Note why sampling ended. Stored after the last regime: it says that the row is whole."""
        parts = [part for part in (candidate.row.stop_reason, f"{regime}: {reason}") if part]
        candidate.row = replace(candidate.row, stop_reason="; ".join(parts))
        if last:
            self._store.add_outcome(candidate.row)
