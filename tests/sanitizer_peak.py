"""Every peak benchmark once, with few iterations, for NVIDIA's compute-sanitizer.

`compute-sanitizer --tool memcheck --error-exitcode 1 python tests/sanitizer_peak.py`, and the same
with racecheck, synccheck and initcheck. Every tensor benchmark writes its sums, so that the store
is covered too. pytest does not collect this file.
"""

from __future__ import annotations

import sys

from cutlass_study.device import open_device, query_device
from cutlass_study.driver import Stream, allocate
from cutlass_study.peak_runs import MemoryRun, TensorRun, fill
from cutlass_study.peaks import (
    INPUT_BYTES,
    MEMORY_BENCHMARKS,
    TensorBenchmark,
    copy_buffer_bytes,
    tensor_benchmarks,
)

STEPS = 2


def main() -> None:
    device = query_device(open_device())
    size = copy_buffer_bytes(STEPS, device.sm_count)
    inputs, source, target = allocate(INPUT_BYTES), allocate(size), allocate(size)
    stream = Stream()
    fill(device.arch, inputs, stream)
    fill(device.arch, source, stream)
    stream.synchronize()
    benchmarks = list(tensor_benchmarks(device.arch))
    if device.arch == "sm_90a":
        benchmarks += [TensorBenchmark("wgmma_ss", "f32", 3), TensorBenchmark("wgmma_rs", "f16", 3)]
    for benchmark in benchmarks:
        run = TensorRun(benchmark, device.arch, device.sm_count, inputs)
        run.check()
        run.sums(3)
        run.close()
        sys.stdout.write(f"{benchmark.name}\n")
    for memory in MEMORY_BENCHMARKS:
        pass_ = MemoryRun(memory, device.arch, device.sm_count, STEPS, (source, target))
        pass_.check()
        pass_.close()
        sys.stdout.write(f"{memory.name}\n")
    for buffer in (inputs, source, target):
        buffer.free()


if __name__ == "__main__":
    main()
