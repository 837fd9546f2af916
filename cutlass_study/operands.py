"""Operand buffers of one problem on the GPU: seeded inputs, rotated sets, poisoned outputs."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass

from cuda.bindings import driver

from cutlass_study import nvrtc
from cutlass_study.config import GemmProblem
from cutlass_study.driver import Arguments, Buffer, Module, Stream, address, allocate, call, launch
from cutlass_study.footprint import matrix_elements, set_count
from cutlass_study.records import Distribution
from cutlass_study.sources import source_folder
from cutlass_study.toolchain import find_toolchain

DISTRIBUTIONS: dict[Distribution, int] = {"uniform": 0, "normal": 1, "integers": 2, "zeros": 3}
GRID, THREADS = (1024, 1, 1), 256  # grid-stride helper kernels


def support_source() -> nvrtc.Source:
    """The helper kernels of `instantiations/support.cu`."""
    toolchain = find_toolchain()
    text = (source_folder("instantiations") / "support.cu").read_text(encoding="utf-8")
    return nvrtc.Source(text, (toolchain.cuda_include, toolchain.cccl_include))


@functools.cache
def support_module(arch: str) -> Module:
    """Helper kernels compiled for `arch`, loaded once per process (0.2 s)."""
    return Module(nvrtc.compile_cubin(support_source(), arch).cubin)


@dataclass(frozen=True, slots=True)
class OperandSet:
    """Device addresses of one set of A, B, C, D. `c` is 0 where beta is 0."""

    a: int
    b: int
    c: int
    d: int


class Operands:
    """All operand sets of a problem. Every kernel family reads these same bits."""

    def __init__(
        self,
        problem: GemmProblem,
        distribution: Distribution,
        seed: int,
        arch: str,
        l2_bytes: int,
        stream: Stream,
    ) -> None:
        self.problem, self.distribution, self.seed = problem, distribution, seed
        self._stream, self._module = stream, support_module(arch)
        free, _ = call(driver.cuMemGetInfo)
        self._buffers: list[Buffer] = []
        self.sets = [
            self._make_set(index) for index in range(set_count(problem, l2_bytes, int(free)))
        ]
        stream.synchronize()

    def _allocate(self, size_bytes: int) -> int:
        buffer = allocate(size_bytes)
        self._buffers.append(buffer)
        return buffer.address

    def _make_set(self, index: int) -> OperandSet:
        p = self.problem
        a_elements, b_elements, d_elements = matrix_elements(p)
        lda, ldb, ldd = p.leading_dimensions
        b_shape = (p.n, p.k) if p.layout == "tn" else (p.k, p.n)
        a = self._allocate(2 * a_elements)
        b = self._allocate(2 * b_elements)
        self._fill("fill_half", a, p.m, p.k, lda, 3 * index)
        self._fill("fill_half", b, *b_shape, ldb, 3 * index + 1)
        c = 0
        if p.beta:
            c = self._allocate(d_elements * p.output_bytes)
            kind = "fill_float" if p.output == "f32" else "fill_half"
            self._fill(kind, c, p.m, p.n, ldd, 3 * index + 2)
        d = self._allocate(d_elements * p.output_bytes)
        return OperandSet(a, b, c, d)

    def _fill(self, kernel: str, out: int, rows: int, columns: int, ld: int, salt: int) -> None:
        seed = (self.seed * 1_000_003 + salt * 7_919 + 17) & (2**64 - 1)
        arguments = Arguments(
            address(out),
            ctypes.c_int64(rows),
            ctypes.c_int64(columns),
            ctypes.c_int64(ld),
            ctypes.c_int(DISTRIBUTIONS[self.distribution]),
            ctypes.c_uint64(seed),
        )
        launch(self._module.function(kernel), GRID, THREADS, arguments, self._stream)

    def poison(self, index: int, *, copy_c: bool) -> None:
        """Fill D with NaN, or with C for a kernel that adds in place; so an unwritten D shows."""
        operands, handle = self.sets[index], self._stream.handle
        size = matrix_elements(self.problem)[2] * self.problem.output_bytes
        if copy_c and self.problem.beta:
            call(driver.cuMemcpyDtoDAsync, operands.d, operands.c, size, handle)
        else:
            call(driver.cuMemsetD8Async, operands.d, 0xFF, size, handle)
        self._stream.synchronize()

    def free(self) -> None:
        for buffer in self._buffers:
            buffer.free()
        self._buffers.clear()
