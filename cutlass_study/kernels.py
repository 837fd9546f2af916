"""Kernels that can be launched, all behind one protocol: the sweep never asks for the family."""

from __future__ import annotations

import ctypes
from typing import Any, Protocol

from cuda.bindings import driver

from cutlass_study import cubin, tensormap, wmma_source
from cutlass_study.config import GemmConfig, GemmProblem
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
    resident_ctas,
)
from cutlass_study.operands import Operands, OperandSet

# cutlass::Status, by value (cutlass/cutlass.h).
CUTLASS_STATUS = (
    "Success", "ErrorMisalignedOperand", "ErrorInvalidDataType", "ErrorInvalidLayout",
    "ErrorInvalidProblem", "ErrorNotSupported", "ErrorWorkspaceNull", "ErrorInternal",
    "ErrorArchMismatch", "ErrorInsufficientDriver", "ErrorMemoryAllocation", "Invalid",
)  # fmt: skip
RASTER = {"heuristic": 0, "m": 1, "n": 2}
LAUNCH_HEADER_BYTES, PARAMS_BYTES = 128, 4096  # struct GemmLaunch in instantiations/abi.hpp


class NotImplementable(RuntimeError):
    """The kernel itself refuses the problem (`can_implement`, no cuBLASLt algorithm)."""


class Kernel(Protocol):
    """A kernel bound to a problem. `in_place`: it adds to D instead of reading a separate C.

    Whoever sets another `stream` must `prepare` the kernel again.
    """

    stream: Stream
    in_place: bool

    def prepare(self, problem: GemmProblem, operands: Operands) -> None:
        """Make the kernel ready to launch on every operand set."""

    def launch(self, index: int) -> None:
        """Queue one launch on operand set `index` in the kernel's own stream."""

    def close(self) -> None:
        """Free what the kernel holds."""


class GemmArguments(ctypes.Structure):
    """`struct GemmArguments` of instantiations/abi.hpp, field by field."""

    _fields_ = [
        *((name, ctypes.c_int) for name in ("m", "n", "k", "split_k")),
        *((name, ctypes.c_float) for name in ("alpha", "beta")),
        *((name, ctypes.c_uint64) for name in ("a", "b", "c", "d", "workspace")),
        *((name, ctypes.c_int64) for name in ("lda", "ldb", "ldc", "ldd")),
        *((name, ctypes.c_int) for name in ("sm_count", "ctas_per_sm", "swizzle", "raster_order")),
    ]


def _launch_config(
    grid: tuple[int, int, int],
    threads: int,
    smem_bytes: int,
    stream: Stream,
    cluster: tuple[int, int, int],
) -> Any:
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid
    config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
    config.sharedMemBytes, config.hStream = smem_bytes, stream.handle
    if cluster != (1, 1, 1):
        attribute = driver.CUlaunchAttribute()
        attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        dimension = attribute.value.clusterDim
        dimension.x, dimension.y, dimension.z = cluster
        attribute.value.clusterDim = dimension
        config.attrs, config.numAttrs = [attribute], 1
    return config


class CompiledKernel:
    """What every kernel from an image of ours holds: its module, and a stream of its own."""

    in_place = False

    def __init__(self, config: GemmConfig, image: bytes) -> None:
        self.stream = Stream()
        self._config, self._info = config, cubin.read_info(image)
        self._module = Module(image)
        self._function = self._module.function(cubin.KERNEL)
        allow_shared_memory(self._function, self._info.smem_bytes)

    def resident_ctas(self) -> int:
        """CTAs per SM by the driver's occupancy query."""
        return resident_ctas(self._function, self._info.threads, self._info.smem_bytes)

    def close(self) -> None:
        self._module.unload()


class CutlassKernel(CompiledKernel):
    """A CUTLASS kernel of either family whose `Params` are built on the device."""

    def __init__(self, config: GemmConfig, image: bytes, sm_count: int, ctas_per_sm: int) -> None:
        super().__init__(config, image)
        self._sm_count, self._ctas_per_sm = sm_count, ctas_per_sm
        self._builder = self._module.function(cubin.PARAMS_KERNEL)
        self._workspace: Buffer | None = None
        self._launches: list[tuple[Any, Arguments]] = []
        self._barriers = (0, 0)  # offset and bytes in the workspace to zero before every launch

    def _arguments(self, problem: GemmProblem, operands: OperandSet) -> GemmArguments:
        lda, ldb, ldd = problem.leading_dimensions
        config = self._config
        return GemmArguments(
            *problem.shape,
            config.split_k or 1,
            problem.alpha,
            problem.beta,
            operands.a,
            operands.b,
            operands.c or operands.d,
            operands.d,
            self._workspace.address if self._workspace else 0,
            lda,
            ldb,
            ldd,
            ldd,
            self._sm_count,
            self._ctas_per_sm,
            config.swizzle or 1,
            RASTER[config.raster or "heuristic"],
        )

    def _build(self, problem: GemmProblem, operands: OperandSet, scratch: Buffer) -> bytes:
        call(driver.cuMemsetD8Async, scratch.address, 0, scratch.size_bytes, self.stream.handle)
        arguments = Arguments(self._arguments(problem, operands), address(scratch.address))
        call(
            driver.cuLaunchKernel, self._builder, 1, 1, 1, 1, 1, 1, 0, self.stream.handle,
            arguments.address, 0,
        )  # fmt: skip
        self.stream.synchronize()
        raw = download(scratch.address, scratch.size_bytes)
        status = int.from_bytes(raw[:4], "little")
        if status != 0:
            name = CUTLASS_STATUS[status] if status < len(CUTLASS_STATUS) else str(status)
            raise NotImplementable(f"CUTLASS refuses the problem: {name}")
        return raw

    def prepare(self, problem: GemmProblem, operands: Operands) -> None:
        self._launches.clear()
        scratch = allocate(LAUNCH_HEADER_BYTES + PARAMS_BYTES)
        try:
            for index, operand_set in enumerate(operands.sets):
                raw = self._build(problem, operand_set, scratch)
                fields = (ctypes.c_int * 8).from_buffer_copy(raw)
                self._barriers = fields[6], fields[7]
                if index == 0 and fields[5] > 0:
                    self._reserve_workspace(fields[5])
                    raw = self._build(problem, operand_set, scratch)
                self._launches.append(self._bind(raw, (fields[1], fields[2], fields[3]), fields[4]))
        finally:
            scratch.free()

    def _reserve_workspace(self, size_bytes: int) -> None:
        if self._workspace is not None:
            self._workspace.free()
        self._workspace = allocate(size_bytes)
        call(driver.cuMemsetD8, self._workspace.address, 0, size_bytes)

    def _bind(self, raw: bytes, grid: tuple[int, int, int], size: int) -> tuple[Any, Arguments]:
        params = bytearray(raw[LAUNCH_HEADER_BYTES : LAUNCH_HEADER_BYTES + size])
        if self._config.family == "sm90":
            tensormap.encode_descriptors(params)
        values = (ctypes.c_ubyte * size).from_buffer(params)
        info = self._info
        config = _launch_config(
            grid, info.threads, info.smem_bytes, self.stream, info.cluster_shape
        )
        return config, Arguments(values)

    def launch(self, index: int) -> None:
        config, arguments = self._launches[index]
        offset, size = self._barriers
        if size and self._workspace is not None:
            target = self._workspace.address + offset
            call(driver.cuMemsetD8Async, target, 0, size, self.stream.handle)
        call(driver.cuLaunchKernelEx, config, self._function, arguments.address, 0)

    def close(self) -> None:
        super().close()
        if self._workspace is not None:
            self._workspace.free()
            self._workspace = None


class HandWrittenKernel(CompiledKernel):
    """A kernel of `wmma_custom/`: `gemm(m, n, k, alpha, beta, a, b, c, d, lda, ldb, ldc, ldd)`."""

    def __init__(self, config: GemmConfig, image: bytes) -> None:
        super().__init__(config, image)
        self._grid = (1, 1, 1)
        self._arguments: list[Arguments] = []

    def prepare(self, problem: GemmProblem, operands: Operands) -> None:
        assert self._config.threadblock_shape
        self._grid = wmma_source.wmma_grid(
            m=problem.m, n=problem.n, tile=self._config.threadblock_shape
        )
        self._arguments = [self._bind(problem, one) for one in operands.sets]

    def _bind(self, problem: GemmProblem, one: OperandSet) -> Arguments:
        """The kernel's arguments for one operand set."""
        lda, ldb, ldd = problem.leading_dimensions
        return Arguments(
            *(ctypes.c_int(extent) for extent in problem.shape),
            ctypes.c_float(problem.alpha),
            ctypes.c_float(problem.beta),
            *(address(pointer) for pointer in (one.a, one.b, one.c or one.d, one.d)),
            *(ctypes.c_int64(leading) for leading in (lda, ldb, ldd, ldd)),
        )

    def launch(self, index: int) -> None:
        info = self._info
        call(
            driver.cuLaunchKernel, self._function, *self._grid, info.threads, 1, 1,
            info.smem_bytes, self.stream.handle, self._arguments[index].address, 0,
        )  # fmt: skip
