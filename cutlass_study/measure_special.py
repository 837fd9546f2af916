"""How `interleave`, `nvbench` and `settle` measure: the parent's side of what only they do."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace

from cutlass_study.conditions import INTERLEAVED, OWN_ALONE, PEER, SERIAL
from cutlass_study.prepare import Prepared
from cutlass_study.records import Regime, Sample
from cutlass_study.regimes import rejection
from cutlass_study.reporter import Reporter
from cutlass_study.results import ResultsStore
from cutlass_study.rounds import Candidate
from cutlass_study.sweep import Sweep
from cutlass_study.tasks import Interleaved, PeerTimes, Taken
from cutlass_study.worker import WorkerFailure

INTERLEAVE_ROUNDS = 20
INTERLEAVE_TIMEOUT_S = 60.0  # a launch queue of half a second and two comparisons of D
PEER_REPEATS = 3
PEER_TURN_S = 20.0  # three rests, two blocks and cuda.bench itself, generously
SPAN_TIMEOUT_S = 30.0  # a span of a few seconds; one chunk beyond it is within the queue's budget


def _sample(time_ms: float, round_: int, launches: int, **more: float | str | None) -> Sample:
    return Sample(
        regime="burst",
        round=round_,
        time_ms=time_ms,
        launches=launches,
        rejected=rejection(time_ms * launches),
        **more,  # type: ignore[arg-type]
    )


def _finish(candidates: Iterable[Candidate], store: ResultsStore, regime: Regime = "burst") -> None:
    for candidate in candidates:
        store.add_outcome(replace(candidate.row, stop_reason=f"{regime}: rounds"))


def run_interleave(
    sweep: Sweep, items: Sequence[Prepared], store: ResultsStore, reporter: Reporter, seed: int
) -> None:
    """The two kernels one after the other and taking turns, in every round, in random order.

    A wrong D, a crash or a hang ends the rows it belongs to and no others.
    """
    sweep.record_static(items)
    alive: dict[str, list[Candidate]] = {}
    for condition in (SERIAL, INTERLEAVED):
        pair = [item for item in items if item.row.identity.condition == condition]
        found = [sweep.verify(item) for item in pair if item.pending]
        candidates = [candidate for candidate in found if candidate is not None]
        if len(candidates) == 2:
            alive[condition] = candidates
    shuffler = random.Random(seed)
    reporter.stage("interleave cuBLAS and CUTLASS", INTERLEAVE_ROUNDS)
    for round_ in range(INTERLEAVE_ROUNDS):
        order = list(alive)
        shuffler.shuffle(order)
        for condition in order:
            if not _one_pair(sweep, alive[condition], condition == INTERLEAVED, round_, store):
                del alive[condition]
        reporter.step()
    _finish([candidate for pair in alive.values() for candidate in pair], store)


def _one_pair(
    sweep: Sweep, pair: list[Candidate], alternate: bool, round_: int, store: ResultsStore
) -> bool:
    """Whether both kernels ran and left a right D."""
    try:
        found: Interleaved = sweep.gpu.together(
            "interleave", pair, alternate, timeout_s=INTERLEAVE_TIMEOUT_S
        )
    except WorkerFailure as failure:
        for candidate in pair:
            sweep.failed(candidate.row, failure)
        return False
    for candidate, event_ms, reason in zip(pair, found.event_ms, found.reasons, strict=True):
        sample = _sample(event_ms, round_, found.launches, host_ms=found.wall_ms)
        taken = Taken(sample, found.started_s, found.ended_s)
        store.add_samples(candidate.identity, [sweep.gpu.with_telemetry(taken)])
        if reason:
            row = replace(candidate.row, outcome="wrong_result", reason=reason)
            store.add_outcome(row)
    return not any(found.reasons)


def run_nvbench(
    sweep: Sweep, items: Sequence[Prepared], store: ResultsStore, reporter: Reporter
) -> None:
    """The study's own samples first, then `cuda.bench` and our cold samples in turns."""
    sweep.run([item for item in items if not item.row.identity.condition])
    special = [item for item in items if item.row.identity.condition]
    sweep.record_static(special)
    rows: dict[tuple[str, str], Candidate] = {}
    for item in special:
        candidate = sweep.verify(item) if item.pending else None
        if candidate is not None:
            rows[item.entry.config.name, item.row.identity.condition] = candidate
    kernels = [candidate for (_, condition), candidate in rows.items() if condition == PEER]
    reporter.stage("cuda.bench and we in turns", 1)
    if not kernels:
        return
    try:
        found: list[PeerTimes] = sweep.gpu.together(
            "cross_check", kernels, PEER_REPEATS,
            timeout_s=60 + PEER_TURN_S * PEER_REPEATS * len(kernels),
        )  # fmt: skip
    except WorkerFailure as failure:
        for candidate in rows.values():
            sweep.failed(candidate.row, failure)
        return
    finally:
        sweep.gpu.restart()  # cuda.bench has kept the kernels on its streams
    with store.batch():
        for times in found:
            _add_times(times, rows, store)
        _finish(rows.values(), store)


def _add_times(
    times: PeerTimes, rows: dict[tuple[str, str], Candidate], store: ResultsStore
) -> None:
    """Samples of both sides; those of one repeat share its round."""
    sides = (
        (PEER, times.peer_ms, times.peer_clock_mhz),
        (OWN_ALONE, times.own_alone_ms, times.own_clock_mhz),
    )
    for condition, values, clock_mhz in sides:
        candidate = rows.get((times.name, condition))
        if candidate is not None:
            samples = [
                _sample(value, times.repeat, 1, sm_clock_mhz=clock_mhz, submission="alone")
                for value in values
            ]
            store.add_samples(candidate.identity, samples)


def run_settle(
    sweep: Sweep,
    items: Sequence[Prepared],
    store: ResultsStore,
    reporter: Reporter,
    visits: int,
    seed: int,
) -> None:
    """Every kernel for a span, then the next, in fresh random order on every visit.

    A span that is not kept comes first: else the first kernel would follow an idle card.
    """
    sweep.record_static(items)
    found = [sweep.verify(item) for item in items if item.pending]
    alive = [candidate for candidate in found if candidate is not None]
    shuffler = random.Random(seed)
    reporter.stage("run each kernel until it has settled", visits)
    if alive and _span(sweep, alive[-1], 0) is None:
        alive.pop()
    last = alive[-1] if alive else None
    for visit in range(visits):
        shuffler.shuffle(alive)
        if alive and alive[0] is last:  # it would follow itself
            alive.append(alive.pop(0))
        taken: list[tuple[Candidate, list[Sample]]] = []
        try:
            for candidate in list(alive):
                samples = _span(sweep, candidate, visit)
                if samples is None:
                    alive.remove(candidate)
                else:
                    taken.append((candidate, samples))
        finally:  # also what an interrupted visit has measured
            with store.batch():
                for candidate, samples in taken:
                    store.add_samples(candidate.identity, samples)
        last = alive[-1] if alive else None
        reporter.step()
    _finish(alive, store, "sustained")


def _span(sweep: Sweep, candidate: Candidate, visit: int) -> list[Sample] | None:
    """The chunks of one kernel's span; None if it failed, which is recorded."""
    try:
        found: list[Taken] = sweep.gpu.together(
            "span", [candidate], visit, timeout_s=SPAN_TIMEOUT_S
        )
    except WorkerFailure as failure:
        sweep.failed(candidate.row, failure)
        return None
    return [sweep.gpu.with_telemetry(taken) for taken in found]
