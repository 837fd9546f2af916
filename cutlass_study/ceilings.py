"""The measured peak of this card: tensor cores and DRAM, by the micro-benchmarks of `peaks`.

A share of peak then rests on what this card did at the clock it got, not on a datasheet. Rates with
FP32 and with FP16 accumulators are reported apart: a GeForce card's half rate for FP32 shows as a
ratio of 2. On an H200 both are equal, so that there the difference can't be tested.

Samples are taken by the same `Sampler` as a GEMM's, in the burst regime: an idle gap of 50 ms, an
untimed launch, the clock probe, three timed launches of about 1.5 ms each, the probe. Inputs are
U(-1, 1) rounded to FP16, the study's default: power, and so the clock under a power limit, depends
on them, so that TFLOPS here are those for random data. FLOP/clk/SM depend on neither.

`python -m cutlass_study.ceilings` prints them as JSON.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from cuda.bindings import driver

from cutlass_study.driver import Buffer, Stream, allocate, call
from cutlass_study.kernels import Kernel
from cutlass_study.peak_runs import BrokenBenchmark, MemoryRun, Run, TensorRun, fill
from cutlass_study.peaks import (
    INPUT_BYTES,
    MEMORY_BENCHMARKS,
    TARGET_MS,
    Ceiling,
    TensorBenchmark,
    copy_buffer_bytes,
    copy_steps,
    next_iterations,
    nominal_flop_per_clk_sm,
    peak_flop_per_clk_sm,
    tensor_benchmarks,
)
from cutlass_study.records import EnvironmentProblem, Regime, Sample

__all__ = ["BrokenBenchmark", "Ceiling", "measure_ceilings", "peak_flop_per_clk_sm"]

SAMPLES = 9
ORDER_SEED = 20_260_102  # of each round's order
FIRST_ITERATIONS = 8  # of a tensor benchmark's calibration: 0.03 ms at most on any card
CALIBRATION_TRIES = 8


class SamplerLike(Protocol):
    """What is needed of `measure.Sampler`."""

    def time_once(self, kernel: Kernel) -> float:
        """Milliseconds of one launch."""

    def sample(
        self, kernel: Kernel, sets: int, regime: Regime, round_: int, estimate_ms: float
    ) -> Sample:
        """One sample of a kernel whose launch takes about `estimate_ms`."""

    def forget(self, kernel: Kernel) -> None:
        """Free what is kept for a kernel that is about to be closed."""


def calibrate(run: Run, sampler: SamplerLike, first: int) -> float:
    """Choose iterations for a launch of about `TARGET_MS`; return what it takes, in ms."""
    iterations = first
    run.set_iterations(iterations)
    sampler.time_once(run.kernel)  # loads the code
    time_ms = sampler.time_once(run.kernel)
    for _ in range(CALIBRATION_TRIES):
        wanted = next_iterations(iterations, time_ms)
        if wanted == iterations or TARGET_MS / 1.5 < time_ms < TARGET_MS * 1.5:
            break
        iterations = wanted
        run.set_iterations(iterations)
        time_ms = sampler.time_once(run.kernel)
    return time_ms


@dataclass(frozen=True, slots=True)
class _Setup:
    """Buffers that several runs share."""

    inputs: Buffer
    memory: tuple[Buffer, Buffer]
    steps: int

    def free(self) -> None:
        for buffer in (self.inputs, *self.memory):
            buffer.free()


def _setup(arch: str, sm_count: int, l2_bytes: int) -> _Setup:
    free_bytes, _ = call(driver.cuMemGetInfo)
    steps = copy_steps(l2_bytes, int(free_bytes), sm_count)
    size = copy_buffer_bytes(steps, sm_count)
    setup = _Setup(allocate(INPUT_BYTES), (allocate(size), allocate(size)), steps)
    stream = Stream()
    fill(arch, setup.inputs, stream)
    fill(arch, setup.memory[0], stream)
    stream.synchronize()
    return setup


def measure_ceilings(
    arch: str,
    sm_count: int,
    l2_bytes: int,
    sampler: SamplerLike,
    samples: int = SAMPLES,
    *,
    extra: Sequence[TensorBenchmark] = (),
) -> list[Ceiling]:
    """Every ceiling of the present GPU, about 4 s; nothing else may run on it meanwhile.

    Each benchmark is checked first, then runs once a round, in a fresh random order, for `samples`
    rounds: drift meets all alike. No launch is longer than a few ms. Raises `BrokenBenchmark` for a
    benchmark with a wrong result and `CudaError` for a failing driver call.
    """
    setup = _setup(arch, sm_count, l2_bytes)
    runs: list[Run] = []
    try:
        for tensor in (*tensor_benchmarks(arch), *extra):
            runs.append(TensorRun(tensor, arch, sm_count, setup.inputs))
        for memory in MEMORY_BENCHMARKS:
            runs.append(MemoryRun(memory, arch, sm_count, setup.steps, setup.memory))
        return _sample(runs, sampler, samples)
    finally:
        for run in runs:
            sampler.forget(run.kernel)
            run.close()
        setup.free()


def _sample(runs: Sequence[Run], sampler: SamplerLike, rounds: int) -> list[Ceiling]:
    estimates_ms = {}
    for run in runs:
        run.check()
        first = FIRST_ITERATIONS if isinstance(run, TensorRun) else 1
        estimates_ms[run.name] = calibrate(run, sampler, first)
    taken: dict[str, list[Sample]] = {run.name: [] for run in runs}
    order = random.Random(ORDER_SEED)
    for round_ in range(rounds):
        for run in order.sample(runs, len(runs)):
            sample = sampler.sample(run.kernel, 1, "burst", round_, estimates_ms[run.name])
            if not sample.rejected:
                taken[run.name].append(sample)
    empty = [name for name, found in taken.items() if not found]
    if empty:
        raise BrokenBenchmark(f"every sample was rejected of {', '.join(empty)}")
    return [run.ceiling(taken[run.name]) for run in runs]


def report(device_name: str, ceilings: Sequence[Ceiling]) -> dict[str, Any]:
    """Ceilings fit for JSON, the documented nominal rates beside them."""
    rows = [
        {
            "name": ceiling.name,
            "value": ceiling.value,
            "unit": ceiling.unit,
            "flop_per_clk_sm": ceiling.flop_per_clk_sm,
            "sm_clock_mhz": ceiling.sm_clock_mhz,
            "samples": len(ceiling.samples),
            "time_ms": [sample.time_ms for sample in ceiling.samples],
            "power_w": [sample.power_w for sample in ceiling.samples],
        }
        for ceiling in ceilings
    ]
    return {
        "device": device_name,
        "peak_flop_per_clk_sm_f32": peak_flop_per_clk_sm(ceilings, "f32"),
        "peak_flop_per_clk_sm_f16": peak_flop_per_clk_sm(ceilings, "f16"),
        "nominal_flop_per_clk_sm_f32": nominal_flop_per_clk_sm(device_name, "f32"),
        "nominal_flop_per_clk_sm_f16": nominal_flop_per_clk_sm(device_name, "f16"),
        "ceilings": rows,
    }


def measure_present_gpu(
    samples: int = SAMPLES, *, extra: Sequence[TensorBenchmark] = ()
) -> tuple[str, list[Ceiling]]:
    """(name, ceilings) of GPU 0, with everything opened here."""
    from cutlass_study.device import open_device, query_device
    from cutlass_study.measure import ClockProbe, Sampler
    from cutlass_study.sweep_options import queue_budget_s

    device = query_device(open_device())
    probe = ClockProbe(device.arch, device.sm_count)
    sampler = Sampler(probe, queue_budget_s(device.watchdog))
    found = measure_ceilings(
        device.arch, device.sm_count, device.l2_bytes, sampler, samples, extra=extra
    )
    return device.name, found


def main() -> int:
    """Print this card's ceilings as JSON. Arguments: warpgroups of wgmma to try besides 2."""
    extra = [
        TensorBenchmark(instruction, "f32", int(warpgroups))
        for warpgroups in sys.argv[1:]
        for instruction in ("wgmma_ss", "wgmma_rs")
    ]
    try:
        name, ceilings = measure_present_gpu(extra=extra)
    except EnvironmentProblem as problem:
        sys.stderr.write(f"{problem}\n")
        return 3
    except BrokenBenchmark as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    json.dump(report(name, ceilings), sys.stdout, indent=1)
    sys.stdout.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
