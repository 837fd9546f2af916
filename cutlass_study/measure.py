"""One sample: how launches are queued, timed and watched. Two regimes, one watchdog budget.

`burst`: an idle gap lets the card rest, untimed launches bring the kernel to speed, then a short
timed region. `sustained`: back to back, after a block that settles the power limit's effect; it is
longer than the budget, so it is queued in several submissions, each waited for before the next.
The delivered clock is read by a probe kernel right before and right after the timed region.
"""

from __future__ import annotations

import ctypes
import math
import struct
import time
from dataclasses import dataclass, replace
from statistics import median

from cuda.bindings import driver

from cutlass_study.driver import (
    Arguments,
    Buffer,
    Event,
    Graph,
    address,
    allocate,
    call,
    download,
    launch,
)
from cutlass_study.kernels import Kernel
from cutlass_study.operands import support_module
from cutlass_study.records import CacheMode, Regime, Sample
from cutlass_study.regimes import (
    ALONE_LAUNCHES,
    GRAPH_BELOW_MS,
    PLANS,
    alone_count,
    graph_counts,
    launch_counts,
    rejection,
    submissions,
)
from cutlass_study.tasks import Taken

PROBE_SLOTS = 1024  # more than any GPU has SMs
HOST_EVERY = 4  # rounds between host-side timings, which cost an extra batch
HOST_BATCH_MS, HOST_LAUNCHES = 3.0, 100
SHORT_MS, SHORT_TRIES = 1.0, 4  # a launch that is timed again, and how often
# Bytes overwritten before a launch timed alone, in L2 sizes: one would leave lines behind, and it
# takes so long that the host has queued the launch and its events before the GPU gets there.
FLUSH_L2_SIZES = 8


class ClockProbe:
    """Delivered SM clock between two points of a stream: SM cycles over global time."""

    def __init__(self, arch: str, sm_count: int) -> None:
        module = support_module(arch)
        self._function, self._hold = module.function("clock_probe"), module.function("hold")
        self._grid = (4 * sm_count, 1, 1)
        self._buffers = [allocate(16 * PROBE_SLOTS) for _ in range(2)]
        for buffer in self._buffers:  # slots without an SM stay zero and don't count
            call(driver.cuMemsetD8, buffer.address, 0, buffer.size_bytes)

    def record(self, which: int, kernel: Kernel) -> None:
        """Queue probe 0 (before) or 1 (after) in the kernel's stream."""
        arguments = Arguments(address(self._buffers[which].address))
        launch(self._function, self._grid, 32, arguments, kernel.stream)

    def hold(self, kernel: Kernel, seconds: float) -> None:
        """Queue a kernel of one thread that holds the kernel's stream for so long."""
        arguments = Arguments(ctypes.c_uint64(round(1e9 * seconds)))
        launch(self._hold, (1, 1, 1), 1, arguments, kernel.stream)

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


@dataclass(frozen=True, slots=True)
class _Work:
    """What a sample queues: (untimed, timed) units a submission, and how many launches count."""

    parts: list[tuple[int, int]]
    graph: Graph | None
    timed: int


class Sampler:
    """Takes samples of any kernel, all in the same way."""

    def __init__(self, probe: ClockProbe, budget_s: float, l2_bytes: int = 0) -> None:
        self._probe, self.budget_s = probe, budget_s
        self._start, self._end = Event(), Event()
        self._pairs = [(Event(), Event()) for _ in range(ALONE_LAUNCHES)]
        self._flush_bytes = FLUSH_L2_SIZES * l2_bytes
        self._flush: Buffer | None = None  # made when a launch is to be timed alone
        self._next_set = 0
        self._graphs: dict[tuple[Kernel, int], tuple[int, Graph]] = {}  # by kernel and sets

    def _launch(self, kernel: Kernel, sets: int, count: int) -> None:
        for _ in range(count):
            kernel.launch(self._next_set % sets)
            self._next_set += 1

    def _graph(self, kernel: Kernel, sets: int, count: int) -> Graph:
        """The graph of `count` launches, captured once per kernel, operand sets and count."""
        found = self._graphs.get((kernel, sets))
        if found is None or found[0] != count:
            if found is not None:
                found[1].destroy()
            graph = Graph(kernel.stream, lambda: self._launch(kernel, sets, count))
            found = self._graphs[kernel, sets] = (count, graph)
        return found[1]

    def forget(self, kernel: Kernel) -> None:
        """Free what is kept for a kernel that is about to be closed."""
        for key in [key for key in self._graphs if key[0] is kernel]:
            self._graphs.pop(key)[1].destroy()

    def time_once(self, kernel: Kernel) -> float:
        """Milliseconds of one launch on set 0, by events.

        The least of a few if it is short: what the host does between the two events is then most of
        it, and it varies.
        """
        found = self._time_once(kernel)
        if found >= SHORT_MS:
            return found
        return min(found, *(self._time_once(kernel) for _ in range(SHORT_TRIES)))

    def _time_once(self, kernel: Kernel) -> float:
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
        cache: CacheMode = "rotate",
        graph_below_ms: float = GRAPH_BELOW_MS,
    ) -> Taken:
        """One sample over `sets` rotated operand sets; nothing else may be running on the GPU.

        `gap_s` is the idle time before it, by default the regime's own. Another `cache` mode than
        `rotate` uses operand set 0 alone; `flush` and `alone` time each launch by itself. Launches
        shorter than `graph_below_ms` are replayed as a CUDA graph.
        """
        if cache in ("flush", "alone"):
            count = alone_count(estimate_ms, self._flush_bytes, self.budget_s)
            return self._take_alone(kernel, regime, round_, count, gap_s, cache)
        sets = 1 if cache == "hot" else sets
        counts = launch_counts(regime, estimate_ms)
        work = self._work(kernel, sets, counts, estimate_ms, graph_below_ms)
        time.sleep(PLANS[regime].gap_s if gap_s is None else gap_s)
        taken = self._run(kernel, sets, work, regime, round_)
        if round_ % HOST_EVERY:
            return taken
        host_ms = self._host_ms(kernel, sets, estimate_ms)
        return replace(taken, sample=replace(taken.sample, host_ms=host_ms))

    def chunk(
        self, kernel: Kernel, sets: int, round_: int, estimate_ms: float, length_ms: float
    ) -> Taken:
        """About `length_ms` of launches without a gap or untimed ones before: part of a span."""
        counts = (0, max(1, round(length_ms / estimate_ms)))
        work = self._work(kernel, sets, counts, estimate_ms, GRAPH_BELOW_MS)
        return self._run(kernel, sets, work, "sustained", round_)

    def _work(
        self,
        kernel: Kernel,
        sets: int,
        counts: tuple[int, int],
        estimate_ms: float,
        graph_below_ms: float,
    ) -> _Work:
        """(untimed, timed) launches divided into submissions; graphs where launches are short."""
        graph, size = None, 1
        untimed, timed = counts
        if estimate_ms < graph_below_ms:
            size, untimed, timed = graph_counts(untimed, timed, estimate_ms)
            graph = self._graph(kernel, sets, size)
        parts = submissions(untimed, timed, size * estimate_ms, self.budget_s)
        return _Work(parts, graph, timed * size)

    def _run(self, kernel: Kernel, sets: int, work: _Work, regime: Regime, round_: int) -> Taken:
        first = next(index for index, (_, within) in enumerate(work.parts) if within)
        started_s, region_ms = 0.0, 0.0
        for index, (before, within) in enumerate(work.parts):
            if index == first:
                started_s = time.monotonic()
            self._queue(kernel, sets, before, work.graph)
            if index == first:
                self._probe.record(0, kernel)
            self._start.record(kernel.stream)
            self._queue(kernel, sets, within, work.graph)
            self._end.record(kernel.stream)
            self._probe.record(1, kernel)
            kernel.stream.synchronize()
            region_ms += self._start.elapsed_ms(self._end) if within else 0.0
        ended_s = time.monotonic()
        sample = Sample(
            regime=regime,
            round=round_,
            time_ms=region_ms / work.timed,
            launches=work.timed,
            sm_clock_mhz=self._probe.clock_mhz(),
            rejected=rejection(region_ms),
            submission="graph" if work.graph else "stream",
        )
        return Taken(sample, started_s, ended_s)

    def _take_alone(
        self,
        kernel: Kernel,
        regime: Regime,
        round_: int,
        count: int,
        gap_s: float | None,
        cache: CacheMode,
    ) -> Taken:
        """`count` launches on operand set 0, each between its own events after the L2 was flushed.

        `alone` has an untimed launch in between that brings the operands back. What overwrote the
        L2 is written back to memory while a flushed launch runs; that is part of being cold.
        """
        time.sleep(PLANS[regime].gap_s if gap_s is None else gap_s)
        started_s = time.monotonic()
        self._probe.record(0, kernel)
        for start, end in self._pairs[:count]:
            self._overwrite_cache(kernel)
            if cache == "alone":
                kernel.launch(0)
            start.record(kernel.stream)
            kernel.launch(0)
            end.record(kernel.stream)
        self._probe.record(1, kernel)
        kernel.stream.synchronize()
        ended_s = time.monotonic()
        return Taken(self._alone_sample(regime, round_, count), started_s, ended_s)

    def take_held(self, kernel: Kernel, hold_s: float) -> Sample:
        """One launch that finds the L2 flushed, behind a kernel that holds the stream for `hold_s`.

        So does `cuda.bench`: the GPU has flushed and then hardly works, but does not idle.
        """
        start, end = self._pairs[0]
        self._overwrite_cache(kernel)
        self._probe.hold(kernel, hold_s)
        self._probe.record(0, kernel)
        start.record(kernel.stream)
        kernel.launch(0)
        end.record(kernel.stream)
        self._probe.record(1, kernel)
        kernel.stream.synchronize()
        return self._alone_sample("burst", 0, 1)

    def _alone_sample(self, regime: Regime, round_: int, count: int) -> Sample:
        """Of the launches between the first `count` pairs of events and between the two probes."""
        times = [start.elapsed_ms(end) for start, end in self._pairs[:count]]
        return Sample(
            regime=regime,
            round=round_,
            time_ms=sum(times) / count,
            launches=count,
            sm_clock_mhz=self._probe.clock_mhz(),
            rejected=rejection(min(times)),
            submission="alone",
        )

    def _overwrite_cache(self, kernel: Kernel) -> None:
        if self._flush is None:
            self._flush = allocate(self._flush_bytes)
        target, handle = self._flush, kernel.stream.handle
        call(driver.cuMemsetD8Async, target.address, 0, target.size_bytes, handle)

    def _queue(self, kernel: Kernel, sets: int, units: int, graph: Graph | None) -> None:
        if graph is None:
            self._launch(kernel, sets, units)
            return
        for _ in range(units):
            graph.launch()

    def _host_ms(self, kernel: Kernel, sets: int, estimate_ms: float) -> float:
        """Milliseconds per launch as the primary document timed: host clock, synchronized batch."""
        count = max(1, min(math.ceil(HOST_BATCH_MS / estimate_ms), HOST_LAUNCHES))
        start = time.perf_counter()
        self._launch(kernel, sets, count)
        kernel.stream.synchronize()
        return 1000 * (time.perf_counter() - start) / count
