"""What a sweep is about to do, in numbers, before it does any of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from cutlass_study import stats
from cutlass_study.cache import KernelCache
from cutlass_study.compile import EXPECTED_SECONDS, Job, missing_jobs, worker_count
from cutlass_study.config import GemmProblem
from cutlass_study.footprint import least_bytes
from cutlass_study.prepare import Prepared
from cutlass_study.records import DeviceRecord
from cutlass_study.regimes import PLANS
from cutlass_study.rounds import CONTROL_EVERY, SETTLE_TIMEOUT_S
from cutlass_study.sweep_options import SweepOptions, queue_budget_s

STARTUP_S = 4.0  # of each family and arch: its workers start and make their header cache
SLOW_TFLOPS = 10.0  # a hand-written kernel on a small card, for the longest launch


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes of the work ahead. Seconds are estimates, except the budget, which is a promise."""

    rows: int
    pending: int
    kernels: int
    compilations: int
    compile_s: float
    measure_limit_s: float
    memory_bytes: int
    longest: GemmProblem | None
    queue_s: float
    watchdog: bool

    def lines(self) -> list[str]:
        """The plan as sentences, one a line."""
        lines = [
            f"{self.rows} rows, {self.pending} of them to measure",
            f"{self.kernels} kernels, {self.compilations} of them to compile (others are in the "
            f"cache or equal to one of these), about {self.compile_s / 60:.1f} minutes",
        ]
        if self.measure_limit_s:
            lines.append(
                f"at most {self.measure_limit_s / 60:.1f} minutes of GPU time "
                "(configurations stop earlier once their interval is narrow enough)"
            )
            lines.append(f"at least {self.memory_bytes / 2**30:.1f} GiB of GPU memory")
        if self.longest is not None:
            seconds = self.longest.flop / SLOW_TFLOPS / 1e12
            kind = "a watchdog is active" if self.watchdog else "no watchdog"
            lines.append(
                f"{kind}: at most {self.queue_s:g} s of work is ever queued; the longest launch, "
                f"{self.longest.name}, takes {seconds:.2f} s at {SLOW_TFLOPS:g} TFLOPS"
            )
        return lines


def compile_seconds(jobs: Sequence[Job]) -> float:
    """Expected seconds to compile these jobs with the workers this machine allows."""
    counts = Counter((job.family, job.arch) for job in jobs)
    return sum(
        STARTUP_S + EXPECTED_SECONDS[family] * count / worker_count(family, count)
        for (family, _), count in counts.items()
    )


def measure_limit_s(pending: Sequence[Prepared], options: SweepOptions) -> float:
    """Most seconds of sampling: every row's budget, its share of the controls, and the warm-up."""
    limit = 0.0
    for count in Counter(item.entry.problem for item in pending).values():
        for regime in options.regimes:
            samplers = count + math.ceil(count / CONTROL_EVERY[regime])
            plan = PLANS[regime]
            least_s = stats.MIN_ROUNDS * (plan.gap_s + (plan.untimed_ms + plan.timed_ms) / 1000)
            limit += samplers * max(options.budget_s, least_s) + SETTLE_TIMEOUT_S
    return limit


def make_plan(
    items: Sequence[Prepared],
    jobs: Sequence[Job],
    cache: KernelCache,
    options: SweepOptions | None,
    device: DeviceRecord | None,
) -> Plan:
    """The plan for judged items; without options and device, of the static half alone."""
    todo = missing_jobs(jobs, cache)
    pending = [item for item in items if item.pending]
    problems = {item.entry.problem for item in pending}
    measured = options is not None and device is not None
    limit = measure_limit_s(pending, options) if options and measured else 0.0
    return Plan(
        rows=len(items),
        pending=len(pending) if measured else 0,
        kernels=len(jobs),
        compilations=len(todo),
        compile_s=compile_seconds(todo),
        measure_limit_s=limit,
        memory_bytes=max((least_bytes(problem) for problem in problems), default=0),
        longest=max(problems, key=lambda p: p.flop, default=None) if measured else None,
        queue_s=queue_budget_s(device.watchdog if device else False),
        watchdog=bool(device and device.watchdog),
    )
