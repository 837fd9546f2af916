"""The same kernels timed by NVIDIA's `cuda.bench` (package `cuda-bench`) and by us, in turns.

Runs in the child process. `cuda.bench` times a kernel cold: it overwrites the L2, holds the stream
with a blocking kernel until the launch is queued, and times that one launch between two events,
until its stopping criterion is met. Right before and right after, on the same stream, our sampler
does the same with a hold of its own. Both hold equally long before every launch: back to back, each
would meet the power limit in its own rhythm, which is no property of the kernel. Neither side drops
slow samples (the throttle threshold is 0).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from cutlass_study.driver import Stream
from cutlass_study.kernels import Kernel, NotImplementable
from cutlass_study.measure import Sampler
from cutlass_study.operands import Operands
from cutlass_study.records import Sample
from cutlass_study.regimes import BURST_GAP_S
from cutlass_study.tasks import PeerTimes

REST_S = BURST_GAP_S  # the stream is held before every launch, as long as a burst sample's gap
BLOCK_S = 1.0  # of our samples, on either side of the peer's
MIN_SAMPLES, TIMEOUT_S = 50, 3.0  # of cuda.bench for one kernel
KERNEL_AXIS, REPEAT_AXIS = "Kernel", "Repeat"


@dataclass(frozen=True, slots=True)
class Subject:
    """A loaded kernel with its operands."""

    kernel: Kernel
    operands: Operands


def time_in_turns(
    subjects: Mapping[str, Subject], repeats: int, sampler: Sampler
) -> list[PeerTimes]:
    """Every kernel `repeats` times: our block, `cuda.bench`, our block.

    Raises `NotImplementable` where `cuda.bench` can't be imported or skipped a kernel. It runs once
    in a process, and the kernels stay bound to its streams: measure nothing else there afterwards.
    """
    try:
        import cuda.bench as bench

        register = bench.register  # loads the compiled part
    except ImportError as error:
        raise NotImplementable(f"cuda.bench can't be imported: {error}") from error
    own: dict[tuple[str, str], list[Sample]] = {}
    errors: list[Exception] = []

    def gemm(state: Any) -> None:
        if errors:  # cuda.bench may go on after it; all that follows would be thrown away
            raise errors[0]
        name, repeat = state.get_string(KERNEL_AXIS), state.get_string(REPEAT_AXIS)
        try:
            own[name, repeat] = _turn(state, subjects[name], sampler)
        except Exception as error:  # cuda.bench would report it in its own words only
            errors.append(error)
            raise

    benchmark = register(gemm)
    benchmark.add_string_axis(KERNEL_AXIS, list(subjects))
    benchmark.add_string_axis(REPEAT_AXIS, [str(number) for number in range(repeats)])
    benchmark.set_throttle_threshold(0.0)
    benchmark.set_timeout(TIMEOUT_S)
    benchmark.set_min_samples(MIN_SAMPLES)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "peer.json"
        arguments = ["cutlass-study", "--device", "0", "--quiet", "--jsonbin", str(path)]
        try:
            bench.run_all_benchmarks(arguments)
        finally:
            if errors:
                raise errors[0]
        return read(path, own)


def _turn(state: Any, subject: Subject, sampler: Sampler) -> list[Sample]:
    """One kernel on the stream that `cuda.bench` gave; our samples around its own."""
    kernel = subject.kernel
    sampler.forget(kernel)
    _, handle = state.get_stream().__cuda_stream__()
    kernel.stream = Stream(int(handle))
    kernel.prepare(subject.operands.problem, subject.operands)
    kernel.launch(0)  # code that is loaded lazily must not be waited for behind a blocking kernel
    kernel.stream.synchronize()
    samples = _block(kernel, sampler)
    state.exec(_launcher(kernel), batched=False)
    return samples + _block(kernel, sampler)


def _launcher(kernel: Kernel) -> Callable[[Any], None]:
    expected = int(kernel.stream.handle)

    def launch(given: Any) -> None:
        _, handle = given.get_stream().__cuda_stream__()
        if int(handle) != expected:
            raise NotImplementable("cuda.bench launches on another stream than it announced")
        time.sleep(REST_S)  # the GPU waits in the blocking kernel, before the timed region
        kernel.launch(0)

    return launch


def _block(kernel: Kernel, sampler: Sampler) -> list[Sample]:
    deadline, samples = time.monotonic() + BLOCK_S, []
    while time.monotonic() < deadline:
        samples.append(sampler.take_held(kernel, REST_S))
    return samples


def read(path: Path, own: Mapping[tuple[str, str], list[Sample]]) -> list[PeerTimes]:
    """What `cuda.bench` wrote (cold GPU times in seconds), joined with our samples."""
    from cuda.bench.results import BenchmarkResult

    found = []
    for benchmark in BenchmarkResult.from_json(path).subbenches.values():
        for state in benchmark.states:
            key = state.point[KERNEL_AXIS], state.point[REPEAT_AXIS]
            if state.is_skipped or not state.samples:
                reason = state.skip_reason or "it wrote no samples"
                raise NotImplementable(f"cuda.bench did not time {key[0]}: {reason}")
            clock: Any = state.summaries.get("nv/cold/sm_clock_rate/mean")
            samples = [sample for sample in own[key] if not sample.rejected]
            clocks = [s.sm_clock_mhz for s in samples if s.sm_clock_mhz is not None]
            found.append(
                PeerTimes(
                    name=key[0],
                    repeat=int(key[1]),
                    peer_ms=tuple(1000.0 * seconds for seconds in state.samples),
                    peer_clock_mhz=None if clock is None else float(clock["value"]) / 1e6,
                    own_alone_ms=tuple(sample.time_ms for sample in samples),
                    own_clock_mhz=median(clocks) if clocks else None,
                )
            )
    return found
