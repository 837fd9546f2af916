"""The micro-benchmarks of `peaks` on the present GPU: compiled, bound to buffers, checked."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from cuda.bindings import driver

from cutlass_study import nvrtc
from cutlass_study.config import GemmProblem
from cutlass_study.driver import (
    Arguments,
    Buffer,
    Module,
    Stream,
    address,
    allocate,
    allow_shared_memory,
    call,
    download,
    launch,
)
from cutlass_study.operands import DISTRIBUTIONS, GRID, THREADS, Operands, support_module
from cutlass_study.peaks import (
    COPY_CTAS_PER_SM,
    COPY_THREADS,
    COPY_VECTORS,
    INITIAL,
    Ceiling,
    MemoryBenchmark,
    TensorBenchmark,
    memory_ceiling,
    tensor_ceiling,
)
from cutlass_study.records import Sample
from cutlass_study.sources import source_folder
from cutlass_study.toolchain import find_toolchain

ENTRY = "peak"
SEED = 20_260_101  # of the inputs
SUM_TOLERANCE = 0.5  # of a thread's sum after one iteration
SENTINEL = 0x5EED  # what a thread's fold of random data is not, but for one in 2^32


class BrokenBenchmark(RuntimeError):
    """A benchmark computed something else than it should: its speed means nothing."""


def benchmark_source(benchmark: TensorBenchmark | MemoryBenchmark) -> nvrtc.Source:
    """The benchmark as NVRTC takes it."""
    toolchain = find_toolchain()
    folders = (toolchain.cuda_include, toolchain.cccl_include, source_folder("wmma_custom"))
    return nvrtc.Source(benchmark.source, folders)


def fill(arch: str, buffer: Buffer, stream: Stream) -> None:
    """The whole buffer with U(-1, 1) in FP16."""
    elements = buffer.size_bytes // 2
    arguments = Arguments(
        address(buffer.address),
        ctypes.c_int64(1),
        ctypes.c_int64(elements),
        ctypes.c_int64(elements),
        ctypes.c_int(DISTRIBUTIONS["uniform"]),
        ctypes.c_uint64(SEED),
    )
    launch(support_module(arch).function("fill_half"), GRID, THREADS, arguments, stream)


def poison(buffer: Buffer, stream: Stream) -> None:
    """All bits set (NaN), in the kernel's own stream: no other stream waits for it."""
    call(driver.cuMemsetD8Async, buffer.address, 0xFF, buffer.size_bytes, stream.handle)


class PeakKernel:
    """A benchmark as a `Kernel`, so that `Sampler` takes it. It has no problem to prepare for."""

    in_place = False

    def __init__(self, image: bytes, grid: int, threads: int, smem_bytes: int) -> None:
        self.stream = Stream()
        self._module = Module(image)
        self._function: Any = self._module.function(ENTRY)
        allow_shared_memory(self._function, smem_bytes)
        self.grid, self._threads, self._smem_bytes = (grid, 1, 1), threads, smem_bytes
        self._arguments: Arguments | None = None

    def bind(self, *values: ctypes._SimpleCData[Any]) -> None:
        """The arguments of every launch from now on."""
        self._arguments = Arguments(*values)

    def prepare(self, problem: GemmProblem, operands: Operands) -> None:
        """Nothing: what is computed is fixed by `bind`."""

    def launch(self, index: int) -> None:
        assert self._arguments
        launch(self._function, self.grid, self._threads, self._arguments, self.stream,
               self._smem_bytes)  # fmt: skip

    def close(self) -> None:
        self._module.unload()


class TensorRun:
    """A tensor benchmark on this card: one CTA an SM."""

    def __init__(self, benchmark: TensorBenchmark, arch: str, sm_count: int, inputs: Buffer):
        self.benchmark, self.name = benchmark, benchmark.name
        self._sm_count, self._inputs, self._iterations = sm_count, inputs, 1
        image = nvrtc.compile_cubin(benchmark_source(benchmark), arch).cubin
        self.kernel = PeakKernel(image, sm_count, benchmark.threads, benchmark.smem_bytes)
        self._out = allocate(4 * sm_count * benchmark.threads)

    def _bind(self, iterations: int, threshold: float) -> None:
        self._iterations = iterations
        self.kernel.bind(
            address(self._inputs.address),
            address(self._out.address),
            ctypes.c_int(iterations),
            ctypes.c_float(threshold),
        )

    def sums(self, iterations: int) -> tuple[float, ...]:
        """Run once; every thread's sum of its accumulators, NaN where a thread wrote nothing."""
        poison(self._out, self.kernel.stream)
        self._bind(iterations, -math.inf)
        self.kernel.launch(0)
        self.kernel.stream.synchronize()
        raw = download(self._out.address, self._out.size_bytes)
        return struct.unpack(f"<{len(raw) // 4}f", raw)

    def check(self) -> None:
        """One iteration must bring every accumulator back to its start. Raises `BrokenBenchmark`.

        Rounding to FP16 moves a sum of 128 accumulators by 0.04 (to nearest) to 0.24 (to zero; both
        simulated); a product left out or not taken away again moves it by about 15.
        """
        expected = INITIAL * self.benchmark.accumulators_per_thread
        sums = self.sums(1)
        wrong = [value for value in sums if not abs(value - expected) <= SUM_TOLERANCE]
        if wrong:
            raise BrokenBenchmark(
                f"{self.name}: {len(wrong)} of {len(sums)} threads summed to {wrong[0]} "
                f"instead of {expected}"
            )

    def set_iterations(self, iterations: int) -> None:
        self._bind(iterations, math.inf)

    def ceiling(self, samples: Sequence[Sample]) -> Ceiling:
        flop = self._iterations * self.benchmark.flop_per_iteration * self._sm_count
        return tensor_ceiling(self.name, flop, self._sm_count, tuple(samples))

    def close(self) -> None:
        self.kernel.close()
        self._out.free()


class MemoryRun:
    """A memory benchmark on this card, over buffers of `steps` steps of the whole grid."""

    def __init__(
        self,
        benchmark: MemoryBenchmark,
        arch: str,
        sm_count: int,
        steps: int,
        buffers: tuple[Buffer, Buffer],
    ):
        self.benchmark, self.name = benchmark, benchmark.name
        self._steps, self._buffers, self._passes = steps, buffers, 1
        image = nvrtc.compile_cubin(benchmark_source(benchmark), arch).cubin
        self.kernel = PeakKernel(image, COPY_CTAS_PER_SM * sm_count, benchmark.threads, 0)

    def check(self) -> None:
        """One pass must copy, or read, all of the source. Raises `BrokenBenchmark`."""
        source, target = self._buffers
        words = np.frombuffer(download(source.address, source.size_bytes), np.uint32)
        poison(target, self.kernel.stream)
        # What thread 0 of CTA 0 folds: it stores that alone, and only if it is the sentinel.
        blocks = words.reshape(self._steps, self.kernel.grid[0], COPY_VECTORS, COPY_THREADS, 4)
        folded = int(np.bitwise_xor.reduce(blocks[:, 0, :, 0, :], axis=None))
        self._bind(1, folded)
        self.kernel.launch(0)
        self.kernel.stream.synchronize()
        if self.benchmark.kind == "copy":
            written = np.frombuffer(download(target.address, target.size_bytes), np.uint32)
            right = np.array_equal(words, written)
        else:
            right = int.from_bytes(download(target.address, 4), "little") == folded
        if not right:
            raise BrokenBenchmark(f"{self.name}: what was moved differs from its source")

    def _bind(self, passes: int, sentinel: int) -> None:
        self._passes = passes
        self.kernel.bind(
            *(address(buffer.address) for buffer in self._buffers),
            ctypes.c_int(passes),
            ctypes.c_int(self._steps),
            ctypes.c_uint(sentinel),
        )

    def set_iterations(self, iterations: int) -> None:
        self._bind(iterations, SENTINEL)

    def ceiling(self, samples: Sequence[Sample]) -> Ceiling:
        moved = self.benchmark.bytes_moved(self._buffers[0].size_bytes, self._passes)
        return memory_ceiling(self.name, moved, tuple(samples))

    def close(self) -> None:
        self.kernel.close()


Run = TensorRun | MemoryRun
