"""The parent's view of the GPU: opens problems and loads kernels as needed, whatever dies.

A new child process has lost everything; what it must hold again is opened and loaded on the next
request. What NVML saw during a sample is joined to it here.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast, get_args

from cutlass_study.prepare import Prepared
from cutlass_study.records import CacheMode, Outcome, Regime, Sample
from cutlass_study.regimes import GRAPHS
from cutlass_study.rounds import Candidate
from cutlass_study.sweep_options import SweepOptions
from cutlass_study.tasks import KernelTask, ProblemSetup, Taken, Verification
from cutlass_study.telemetry import TelemetryLog
from cutlass_study.worker import Worker, WorkerFailure

OPEN_TIMEOUT_S = 900.0  # operands and the FP64 reference, slow on cards without fast FP64
VERIFY_TIMEOUT_S = 120.0  # cuBLAS reads its code from the disk; long launches are allowed
# The same for a kernel whose image we bring and whose launches fit the queue's budget: a dozen
# launches of half a second. What takes longer hangs, and a preset may hold many that do.
IMAGE_TIMEOUT_S = 20.0
SAMPLE_TIMEOUT_S = 30.0  # besides LAUNCHES_IN_A_SAMPLE launches
LAUNCHES_IN_A_SAMPLE = 8  # of a kernel that takes seconds
OUTCOME_OF: dict[str, Outcome] = {
    "not_implementable": "not_implementable",
    "launch_failed": "launch_failed",
    "timeout": "timeout",
    "died": "launch_failed",
    "bug": "launch_failed",
}


def cache_mode(condition: str) -> CacheMode:
    """The cache mode a condition stands for; labels and other conditions change none."""
    return cast("CacheMode", condition) if condition in get_args(CacheMode) else "rotate"


class ProblemLost(Exception):
    """The problem itself can't be opened (no memory for it, say), so none of its rows can run."""

    def __init__(self, failure: WorkerFailure) -> None:
        super().__init__(f"the problem could not be opened: {failure}")
        self.outcome = OUTCOME_OF[failure.kind]


class GpuClient:
    """Requests to the child, with its state brought up as needed."""

    def __init__(
        self, worker: Worker, telemetry: TelemetryLog | None, options: SweepOptions
    ) -> None:
        self._worker, self._telemetry = worker, telemetry
        self._options = options
        self._generation = worker.generation
        self._open: dict[ProblemSetup, bool] = {}  # → whether its reference is there
        self._loaded: set[tuple[ProblemSetup, str]] = set()

    def _setup_of(self, item: Prepared) -> ProblemSetup:
        identity = item.row.identity
        return ProblemSetup(
            identity.problem,
            identity.distribution,
            identity.seed,
            self._options.allow_long_launches,
            GRAPHS[self._options.graphs],
        )

    def _verify_timeout_s(self, item: Prepared) -> float:
        """For loading or verifying the item's kernel."""
        if item.build is None or self._options.allow_long_launches:
            return VERIFY_TIMEOUT_S
        return min(IMAGE_TIMEOUT_S, VERIFY_TIMEOUT_S)

    def close_all(self) -> None:
        """Free the problems of a finished group, if the child still holds any."""
        if self._open and self._generation == self._worker.generation:
            with suppress(WorkerFailure):  # a child that died meanwhile holds nothing any more
                self._worker.request("close_all", timeout_s=VERIFY_TIMEOUT_S)
        self._open.clear()
        self._loaded.clear()

    def _ready(self, item: Prepared, choice: int | None, *, with_reference: bool) -> int | None:
        """Have the item's problem open and its kernel loaded; return cuBLASLt's choice, if new.

        Raises `ProblemLost` for the former and `WorkerFailure` for the latter.
        """
        if self._generation != self._worker.generation:
            self._open.clear()
            self._loaded.clear()
        setup = self._setup_of(item)
        has_reference = self._open.get(setup)
        if has_reference is None or (with_reference and not has_reference):
            self._open.pop(setup, None)
            self._loaded = {pair for pair in self._loaded if pair[0] != setup}
            try:
                self._worker.request(
                    "open_problem", setup, with_reference, timeout_s=OPEN_TIMEOUT_S
                )
            except WorkerFailure as failure:
                raise ProblemLost(failure) from failure
            self._generation = self._worker.generation
            self._open[setup] = with_reference
        name = item.entry.config.name
        if (setup, name) in self._loaded:
            return choice
        occupancy = item.row.occupancy
        task = KernelTask(
            item.entry.config,
            item.build.cubin if item.build else None,
            occupancy.ctas_per_sm if occupancy else 1,
            choice,
        )
        chosen: int | None = self._worker.request(
            "load", setup, task, timeout_s=self._verify_timeout_s(item)
        )
        self._loaded.add((setup, name))
        return chosen

    def verify(self, item: Prepared) -> tuple[Verification, int | None]:
        """Compare all of D with the reference; also cuBLASLt's choice of algorithm."""
        choice = self._ready(item, None, with_reference=True)
        setup, name = self._setup_of(item), item.entry.config.name
        result: Verification = self._worker.request(
            "verify", setup, name, timeout_s=self._verify_timeout_s(item)
        )
        return result, choice

    def sample(
        self, candidate: Candidate, regime: Regime, round_: int, gap_s: float | None
    ) -> Sample:
        """Take one sample, and charge its time to the candidate's budget."""
        item = candidate.item
        self._ready(item, candidate.choice, with_reference=False)
        start = time.perf_counter()
        taken: Taken = self._worker.request(
            "sample", self._setup_of(item), item.entry.config.name, regime, round_,
            candidate.expected_ms, gap_s, cache_mode(item.row.identity.condition),
            timeout_s=SAMPLE_TIMEOUT_S + LAUNCHES_IN_A_SAMPLE * candidate.expected_ms / 1000,
        )  # fmt: skip
        candidate.spent_s += time.perf_counter() - start
        return self.with_telemetry(taken)

    def together(
        self, method: str, candidates: Sequence[Candidate], *arguments: Any, timeout_s: float
    ) -> Any:
        """Call a method of the session that takes several loaded kernels at once.

        Its first argument is a list of (setup, kernel name, estimated milliseconds).
        """
        kernels = []
        for candidate in candidates:
            self._ready(candidate.item, candidate.choice, with_reference=True)
            name = candidate.item.entry.config.name
            kernels.append((self._setup_of(candidate.item), name, candidate.estimate_ms))
        return self._worker.request(method, kernels, *arguments, timeout_s=timeout_s)

    def restart(self) -> None:
        """End the child: whatever is needed next is opened and loaded in a fresh one."""
        self._worker.stop()

    def with_telemetry(self, taken: Taken) -> Sample:
        """The sample with what NVML saw meanwhile."""
        if self._telemetry is None:
            return taken.sample
        seen = self._telemetry.between(taken.started_s, taken.ended_s)
        power_w = self._telemetry.mean_power_w(taken.started_s, taken.ended_s)
        return replace(
            taken.sample,
            nvml_clock_mhz=seen.sm_clock_mhz,
            power_w=seen.power_w,
            temperature_c=seen.temperature_c,
            throttle_reasons=seen.throttle_reasons,
            energy_j=None if power_w is None else power_w * taken.sample.time_ms / 1000,
        )
