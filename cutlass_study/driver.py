"""The CUDA driver calls this toolkit needs, checked: every failure becomes `CudaError`."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cuda.bindings import driver


class CudaError(RuntimeError):
    """A driver call failed; `name` is CUDA's name without the prefix (`ILLEGAL_ADDRESS`)."""

    def __init__(self, name: str, call: str) -> None:
        super().__init__(f"{call} failed: {name}")
        self.name = name


def call(function: Any, *arguments: Any) -> Any:
    """Call a `cuda.bindings.driver` function; return its results without the status."""
    status, *results = function(*arguments)
    if status != driver.CUresult.CUDA_SUCCESS:
        raise CudaError(status.name.removeprefix("CUDA_ERROR_"), function.__name__)
    return results[0] if len(results) == 1 else tuple(results)


@dataclass(frozen=True, slots=True)
class Buffer:
    """Device memory; `address` as the GPU sees it."""

    address: int
    size_bytes: int

    def free(self) -> None:
        call(driver.cuMemFree, self.address)


def allocate(size_bytes: int) -> Buffer:
    """Plain device memory (never managed: that can hang a GPU that runs out)."""
    return Buffer(int(call(driver.cuMemAlloc, max(size_bytes, 16))), size_bytes)


def download(address: int, size_bytes: int) -> bytes:
    """Copy device memory to the host, synchronously."""
    raw = bytearray(size_bytes)
    view = (ctypes.c_char * size_bytes).from_buffer(raw)
    call(driver.cuMemcpyDtoH, ctypes.addressof(view), address, size_bytes)
    return bytes(raw)


class Arguments:
    """Kernel arguments as the driver wants them: an array of pointers to values kept alive here."""

    def __init__(self, *values: ctypes._SimpleCData[Any] | ctypes.Array[Any] | ctypes.Structure):
        self._values = values
        pointers = [ctypes.addressof(value) for value in values]
        self._array = (ctypes.c_void_p * len(pointers))(*pointers)
        self.address = ctypes.addressof(self._array)


def address(value: int) -> ctypes.c_uint64:
    return ctypes.c_uint64(value)


class Stream:
    """A stream that does not synchronize with the legacy default stream, or somebody else's."""

    def __init__(self, handle: int | None = None) -> None:
        if handle is None:
            flag = driver.CUstream_flags.CU_STREAM_NON_BLOCKING
            self.handle = call(driver.cuStreamCreate, flag)
        else:
            self.handle = driver.CUstream(handle)

    def synchronize(self) -> None:
        call(driver.cuStreamSynchronize, self.handle)


class Event:
    """A timing event."""

    def __init__(self) -> None:
        self.handle = call(driver.cuEventCreate, 0)

    def record(self, stream: Stream) -> None:
        call(driver.cuEventRecord, self.handle, stream.handle)

    def elapsed_ms(self, later: Event) -> float:
        return float(call(driver.cuEventElapsedTime, self.handle, later.handle))


class Module:
    """A loaded cubin. Loading is eager where the function is fetched and run once before timing."""

    def __init__(self, cubin: bytes) -> None:
        self._module = call(driver.cuModuleLoadData, cubin)

    def function(self, name: str) -> Any:
        return call(driver.cuModuleGetFunction, self._module, name.encode())

    def unload(self) -> None:
        call(driver.cuModuleUnload, self._module)


def allow_shared_memory(function: Any, size_bytes: int) -> None:
    """Opt in to dynamic shared memory beyond 48 KiB."""
    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    call(driver.cuFuncSetAttribute, function, attribute, size_bytes)


def resident_ctas(function: Any, threads: int, smem_bytes: int) -> int:
    """CTAs per SM as the driver computes them."""
    query = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor
    return int(call(query, function, threads, smem_bytes))


def launch(
    function: Any,
    grid: tuple[int, int, int],
    threads: int,
    arguments: Arguments,
    stream: Stream,
    smem_bytes: int = 0,
) -> None:
    """Launch one kernel without clusters."""
    call(driver.cuLaunchKernel, function, *grid, threads, 1, 1, smem_bytes, stream.handle,
         arguments.address, 0)  # fmt: skip


class Graph:
    """Launches captured from a stream, replayed by one call: no host time between them."""

    def __init__(self, stream: Stream, queue: Callable[[], None]) -> None:
        self._stream = stream
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        call(driver.cuStreamBeginCapture, stream.handle, mode)
        try:
            queue()
        finally:
            graph = call(driver.cuStreamEndCapture, stream.handle)
        self._executable = call(driver.cuGraphInstantiate, graph, 0)
        call(driver.cuGraphDestroy, graph)

    def launch(self) -> None:
        call(driver.cuGraphLaunch, self._executable, self._stream.handle)

    def destroy(self) -> None:
        call(driver.cuGraphExecDestroy, self._executable)
