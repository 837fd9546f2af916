"""One sample: how launches are queued, timed and watched. Two regimes, one watchdog budget.

`burst`: an idle gap lets the card rest, untimed launches bring the kernel to speed, then a short
timed region. `sustained`: back to back, after a block that settles the power limit's effect.
The delivered clock is read by a probe kernel right before and right after the timed region.
"""

from __future__ import annotations

import math
import struct
import time
from dataclasses import dataclass
from statistics import median

from cuda.bindings import driver

from cutlass_study.driver import Arguments, Event, Graph, address, allocate, call, download, launch
from cutlass_study.kernels import Kernel
from cutlass_study.operands import support_module
from cutlass_study.records import Regime, Sample
from cutlass_study.tasks import Taken

BURST_GAP_S = 0.02
PROBE_SLOTS = 1024  # more than any GPU has SMs
HOST_EVERY = 4  # rounds between host-side timings, which cost an extra batch
HOST_BATCH_MS, HOST_LAUNCHES = 3.0, 100
PLANNED_SHARE = 0.8  # of the budget: under a power limit a launch takes longer than was estimated
GRAPH_BELOW_MS = 0.06  # shorter kernels would be timed by how fast the host can launch
GRAPH_MS = 10.0  # work in one graph: the pause between two replays is far below a thousandth of it
MIN_TIME_MS = 0.0005  # resolution of a CUDA event: a shorter "time" means that nothing ran


@dataclass(frozen=True, slots=True)
class RegimePlan:
    """Milliseconds of untimed and of timed work in a sample, and the gap before it in seconds."""

    gap_s: float
    untimed_ms: float
    timed_ms: float


PLANS: dict[Regime, RegimePlan] = {
    "burst": RegimePlan(BURST_GAP_S, 0.5, 2.0),
    # Under a power limit the clock hunts: on an H200 blocks of 50 ms vary by 2.4 %, of 0.4 s by
    # 0.2 to 0.5 % (delivered clock, cuBLAS 8192³), while cycles per launch vary by 0.05 %.
    "sustained": RegimePlan(0.0, 50.0, 340.0),
}


def launch_counts(regime: Regime, estimate_ms: float, budget_s: float) -> tuple[int, int]:
    """(untimed, timed) launches of a sample, together within the budget where two launches fit."""
    plan = PLANS[regime]
    untimed = max(1, math.ceil(plan.untimed_ms / estimate_ms))
    timed = max(2, math.ceil(plan.timed_ms / estimate_ms))
    allowed = int(PLANNED_SHARE * budget_s * 1000 / estimate_ms)
    if untimed + timed > allowed:
        timed = max(1, min(timed, allowed * timed // (untimed + timed)))
        untimed = max(0, min(untimed, allowed - timed))
    return untimed, timed


def graph_counts(untimed: int, timed: int, estimate_ms: float) -> tuple[int, int, int]:
    """(launches in a graph, untimed replays, timed replays), no more work than was asked for.

    Only the one untimed replay that loads the graph may be longer than `untimed` launches.
    """
    size = min(timed, math.ceil(GRAPH_MS / estimate_ms))
    return size, max(1, untimed // size), timed // size


class ClockProbe:
    """Delivered SM clock between two points of a stream: SM cycles over global time."""

    def __init__(self, arch: str, sm_count: int) -> None:
        self._function = support_module(arch).function("clock_probe")
        self._grid = (4 * sm_count, 1, 1)
        self._buffers = [allocate(16 * PROBE_SLOTS) for _ in range(2)]
        for buffer in self._buffers:  # slots without an SM stay zero and don't count
            call(driver.cuMemsetD8, buffer.address, 0, buffer.size_bytes)

    def record(self, which: int, kernel: Kernel) -> None:
        """Queue probe 0 (before) or 1 (after) in the kernel's stream."""
        arguments = Arguments(address(self._buffers[which].address))
        launch(self._function, self._grid, 32, arguments, kernel.stream)

    def clock_mhz(self) -> float | None:
        """Median over SMs of cycles per microsecond; `None` if the global timer did not move."""
        before, after = (
            struct.unpack(f"<{2 * PROBE_SLOTS}Q", download(b.address, b.size_bytes))
            for b in self._buffers
        )
        clocks = []
        for slot in range(0, 2 * PROBE_SLOTS, 2):
            cycles, nanoseconds = after[slot] - before[slot], after[slot + 1] - before[slot + 1]
            if before[slot + 1] and nanoseconds > 0 and cycles > 0:
                clocks.append(1000 * cycles / nanoseconds)
        return median(clocks) if clocks else None


class Sampler:
    """Takes samples of any kernel, all in the same way."""

    def __init__(self, probe: ClockProbe, budget_s: float) -> None:
        self._probe, self.budget_s = probe, budget_s
        self._start, self._end = Event(), Event()
        self._next_set = 0
        self._graphs: dict[Kernel, tuple[int, Graph]] = {}

    def _launch(self, kernel: Kernel, sets: int, count: int) -> None:
        for _ in range(count):
            kernel.launch(self._next_set % sets)
            self._next_set += 1

    def _graph(self, kernel: Kernel, sets: int, count: int) -> Graph:
        """The graph of `count` launches, captured once per kernel and count."""
        found = self._graphs.get(kernel)
        if found is None or found[0] != count:
            self.forget(kernel)
            graph = Graph(kernel.stream, lambda: self._launch(kernel, sets, count))
            found = self._graphs[kernel] = (count, graph)
        return found[1]

    def forget(self, kernel: Kernel) -> None:
        """Free what is kept for a kernel that is about to be closed."""
        found = self._graphs.pop(kernel, None)
        if found is not None:
            found[1].destroy()

    def time_once(self, kernel: Kernel) -> float:
        """Milliseconds of one launch on set 0, by events."""
        self._start.record(kernel.stream)
        kernel.launch(0)
        self._end.record(kernel.stream)
        kernel.stream.synchronize()
        return self._start.elapsed_ms(self._end)

    def sample(
        self,
        kernel: Kernel,
        sets: int,
        regime: Regime,
        round_: int,
        estimate_ms: float,
        gap_s: float | None = None,
    ) -> Sample:
        """One sample, without what NVML knows of it. See `take`."""
        return self.take(kernel, sets, regime, round_, estimate_ms, gap_s).sample

    def take(
        self,
        kernel: Kernel,
        sets: int,
        regime: Regime,
        round_: int,
        estimate_ms: float,
        gap_s: float | None = None,
    ) -> Taken:
        """One sample over `sets` rotated operand sets; nothing else may be running on the GPU.

        `gap_s` is the idle time before it, by default the regime's own.
        """
        untimed, timed = launch_counts(regime, estimate_ms, self.budget_s)
        graph, before, within = None, 0, 0
        if estimate_ms < GRAPH_BELOW_MS:
            size, before, within = graph_counts(untimed, timed, estimate_ms)
            graph, timed = self._graph(kernel, sets, size), size * within
        time.sleep(PLANS[regime].gap_s if gap_s is None else gap_s)
        started_s = time.monotonic()
        self._queue(kernel, sets, untimed, graph, before)
        self._probe.record(0, kernel)
        self._start.record(kernel.stream)
        self._queue(kernel, sets, timed, graph, within)
        self._end.record(kernel.stream)
        self._probe.record(1, kernel)
        kernel.stream.synchronize()
        ended_s = time.monotonic()
        time_ms = self._start.elapsed_ms(self._end) / timed
        sample = Sample(
            regime=regime,
            round=round_,
            time_ms=time_ms,
            launches=timed,
            host_ms=None if round_ % HOST_EVERY else self._host_ms(kernel, sets, estimate_ms),
            sm_clock_mhz=self._probe.clock_mhz(),
            nvml_clock_mhz=None,
            power_w=None,
            temperature_c=None,
            throttle_reasons="",
            rejected=rejection(time_ms * timed),
            submission="graph" if graph else "stream",
        )
        return Taken(sample, started_s, ended_s)

    def _queue(
        self, kernel: Kernel, sets: int, count: int, graph: Graph | None, replays: int
    ) -> None:
        if graph is None:
            self._launch(kernel, sets, count)
            return
        for _ in range(replays):
            graph.launch()

    def _host_ms(self, kernel: Kernel, sets: int, estimate_ms: float) -> float:
        """Milliseconds per launch as the primary document timed: host clock, synchronized batch."""
        count = max(1, min(math.ceil(HOST_BATCH_MS / estimate_ms), HOST_LAUNCHES))
        start = time.perf_counter()
        self._launch(kernel, sets, count)
        kernel.stream.synchronize()
        return 1000 * (time.perf_counter() - start) / count


def rejection(region_ms: float) -> str:
    """Why a timed region cannot be a measurement, or ""."""
    if not region_ms > MIN_TIME_MS:
        return f"the timed region took {region_ms} ms, not above the {MIN_TIME_MS} ms of an event"
    return ""
