"""Is D right? Every element, against FP64, under a bound that grows with K.

The reference product is computed in FP64 by cuBLAS in row blocks, each within the watchdog budget,
and kept rounded once to FP32. The bound on |D - reference| at (i, j) is

    SAFETY · sqrt(K) · 2^-23 · ‖row i of A‖₂ · ‖column j of B‖₂   (+ rounding of D itself)

the probabilistic form of the accumulation error (Higham & Mary, SIAM J. Sci. Comput. 41, 2019) with
the unit roundoff of truncation, since tensor cores truncate. It is far below one missing product.
"""

from __future__ import annotations

import ctypes
import math
import struct
import time
from dataclasses import dataclass

from cuda.bindings import driver
from nvmath.bindings import cublas

from cutlass_study.cublas import WORKSPACE_BYTES, product_fp64, workspace
from cutlass_study.driver import (
    Arguments,
    Buffer,
    Stream,
    address,
    allocate,
    call,
    download,
    launch,
)
from cutlass_study.operands import GRID, THREADS, Operands, OperandSet, support_module

SAFETY = 4.0
UNIT_ROUNDOFF = 2.0**-23
FIRST_BLOCK_FLOP = 4e9  # 0.04 s at 0.1 TFLOPS, the FP64 rate of the slowest card in question
_COMPARISON = struct.Struct("<4Q2f")


def error_factor(k: int) -> float:
    """The factor before the norms in the bound on |D - reference|; dimensionless."""
    return SAFETY * math.sqrt(k) * UNIT_ROUNDOFF


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome of comparing all of D. `max_rel_error` is max |D - reference| / max |reference|."""

    reason: str  # "" if D is right
    max_abs_error: float
    max_rel_error: float
    overflows: int  # FP16 results that are infinite as they must be


class Reference:
    """The right D of operand set 0, and the norms that scale its error bound."""

    def __init__(self, operands: Operands, arch: str, budget_s: float, stream: Stream) -> None:
        self._operands, self._stream = operands, stream
        self._module = support_module(arch)
        problem = operands.problem
        self._buffers: list[Buffer] = []
        self._values = self._allocate(4 * problem.m * problem.n)
        self._row_norms = self._allocate(4 * problem.m)
        self._column_norms = self._allocate(4 * problem.n)
        self._result = self._allocate(_COMPARISON.size)
        self._compute_norms(operands.sets[0])
        self._compute_product(operands.sets[0], budget_s)

    def _allocate(self, size_bytes: int) -> int:
        buffer = allocate(size_bytes)
        self._buffers.append(buffer)
        return buffer.address

    def _run(self, name: str, *values: object, grid: tuple[int, int, int] = GRID) -> None:
        arguments = Arguments(*values)  # type: ignore[arg-type]
        launch(self._module.function(name), grid, THREADS, arguments, self._stream)
        self._stream.synchronize()

    def _compute_norms(self, operands: OperandSet) -> None:
        p = self._operands.problem
        lda, ldb, _ = p.leading_dimensions
        long = ctypes.c_int64
        self._run(
            "vector_norms", address(operands.a), address(self._row_norms), long(p.k), long(lda),
            long(1), grid=(p.m, 1, 1),
        )  # fmt: skip
        strides = (ldb, 1) if p.layout == "tn" else (1, ldb)
        self._run(
            "vector_norms", address(operands.b), address(self._column_norms), long(p.k),
            *map(long, strides), grid=(p.n, 1, 1),
        )  # fmt: skip

    def _widen(self, source: int, target: int, rows: int, columns: int, leading: int) -> None:
        sizes = (ctypes.c_int64(value) for value in (rows, columns, leading))
        self._run("widen", address(source), address(target), *sizes)

    def _compute_product(self, operands: OperandSet, budget_s: float) -> None:
        """Row blocks of A times the whole of B, each block sized by the time of the last one."""
        p = self._operands.problem
        lda, ldb, ldd = p.leading_dimensions
        handle = cublas.create()
        cublas.set_stream(handle, int(self._stream.handle))
        cublas.set_workspace(handle, workspace().address, WORKSPACE_BYTES)
        most_rows = max(1, min(p.m, (256 << 20) // (8 * max(p.k, p.n))))
        b_shape = (p.n, p.k) if p.layout == "tn" else (p.k, p.n)
        scratch = [
            allocate(8 * p.n * p.k),
            allocate(8 * most_rows * p.k),
            allocate(8 * most_rows * p.n),
        ]
        wide_b, wide_a, product = (buffer.address for buffer in scratch)
        self._widen(operands.b, wide_b, *b_shape, ldb)
        done, rows = 0, max(1, min(most_rows, int(FIRST_BLOCK_FLOP / (2 * p.n * p.k))))
        while done < p.m:
            rows = min(rows, p.m - done, most_rows)
            self._widen(operands.a + 2 * done * lda, wide_a, rows, p.k, lda)
            start = time.perf_counter()
            product_fp64(
                handle, rows, p.n, p.k, wide_a, wide_b, product, b_row_major=p.layout == "nn"
            )
            self._stream.synchronize()
            elapsed = time.perf_counter() - start
            self._finish(operands, product, done, rows, ldd)
            done += rows
            rows = max(1, min(2 * rows, int(rows * 0.5 * budget_s / max(elapsed, 1e-6))))
        for buffer in scratch:
            buffer.free()
        cublas.destroy(handle)

    def _finish(self, operands: OperandSet, product: int, first: int, rows: int, ldd: int) -> None:
        p = self._operands.problem
        self._run(
            "finish_reference",
            address(product),
            address(operands.c + first * ldd * p.output_bytes if operands.c else 0),
            address(self._values + 4 * first * p.n),
            ctypes.c_int64(rows * p.n),
            ctypes.c_double(p.alpha),
            ctypes.c_double(p.beta),
            ctypes.c_int(p.output == "f16"),
        )

    def compare(self, *, in_place: bool = False) -> Verdict:
        """Compare D of set 0, as a kernel left it, with the reference.

        A kernel that added `in_place` to an FP16 D may have rounded the product to FP16 before:
        cuBLAS does, for some shapes. That costs half an ulp of the product more.
        """
        p = self._operands.problem
        d = self._operands.sets[0].d
        added = self._operands.sets[0].c if in_place and p.beta and p.output == "f16" else 0
        initial = _COMPARISON.pack(0, 0, 0, 2**64 - 1, 0.0, 0.0)
        call(driver.cuMemcpyHtoD, self._result, initial, _COMPARISON.size)
        self._run(
            "compare", address(d), address(self._values), address(self._row_norms),
            address(self._column_norms), ctypes.c_int64(p.m), ctypes.c_int64(p.n),
            ctypes.c_float(abs(p.alpha) * error_factor(p.k)),
            ctypes.c_float(4 * UNIT_ROUNDOFF if p.beta else 0.0),
            ctypes.c_int(p.output == "f16"), address(added), ctypes.c_float(p.beta),
            address(self._result),
        )  # fmt: skip
        raw = download(self._result, _COMPARISON.size)
        violations, non_finite, overflows, first, worst, largest = _COMPARISON.unpack(raw)
        reason = ""
        if violations:
            reason = self._describe(d, violations, non_finite, first)
        return Verdict(reason, worst, worst / largest if largest else worst, overflows)

    def _describe(self, d: int, violations: int, non_finite: int, first: int) -> str:
        p = self._operands.problem
        row, column = divmod(first, p.n)
        form = "<e" if p.output == "f16" else "<f"
        (value,) = struct.unpack(form, download(d + first * p.output_bytes, p.output_bytes))
        (wanted,) = struct.unpack("<f", download(self._values + 4 * first, 4))
        what = "non-finite" if not math.isfinite(value) else "wrong"
        return (
            f"{what} at ({row},{column}): {value:.6g} instead of {wanted:.6g}; "
            f"{violations} of {p.m * p.n} elements wrong, {non_finite} not finite"
        )

    def free(self) -> None:
        for buffer in self._buffers:
            buffer.free()
        self._buffers.clear()
