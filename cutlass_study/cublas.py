"""cuBLAS and cuBLASLt behind the kernel protocol: FP16 in, FP32 accumulate."""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
from typing import Any

import numpy as np
from nvmath.bindings import cublas, cublasLt

from cutlass_study.config import GemmProblem
from cutlass_study.driver import Buffer, Event, Graph, Stream, allocate
from cutlass_study.kernels import NotImplementable
from cutlass_study.operands import Operands, OperandSet

WORKSPACE_BYTES = 64 << 20  # cuBLAS's own default on Hopper is 32 MiB
LT_CANDIDATES = 8
LT_ROUNDS, LT_REGION_MS, LT_MOST_LAUNCHES = 5, 3.0, 200
LT_LONG_MS = 40.0  # five such launches stay under the strict watchdog budget of 0.25 s
# Values of cudaDataType_t, cublasComputeType_t and cublasOperation_t (cuBLAS documentation).
CUDA_R_32F, CUDA_R_64F, CUDA_R_16F = 0, 1, 2
COMPUTE_32F, COMPUTE_64F = 68, 70
OP_N, OP_T = 0, 1
ALGO_DEFAULT = -1
DEFAULT_MATH, DISALLOW_REDUCED_PRECISION = 0, 16  # cublasMath_t
DATA_TYPE = {"f16": CUDA_R_16F, "f32": CUDA_R_32F}


@functools.cache
def workspace() -> Buffer:
    """One workspace for all cuBLAS kernels of a process: only one stream is active at a time."""
    return allocate(WORKSPACE_BYTES)


def product_fp64(
    handle: int, m: int, n: int, k: int, a: int, b: int, d: int, *, b_row_major: bool
) -> None:
    """D[m,n] = A[m,k]·B[k,n] in FP64 on packed buffers; A and D row-major, B as said."""
    one, zero = np.ones(1), np.zeros(1)
    operation, ldb = (OP_N, n) if b_row_major else (OP_T, k)
    cublas.gemm_ex(
        handle, operation, OP_N, n, m, k, one.ctypes.data, b, CUDA_R_64F, ldb, a, CUDA_R_64F, k,
        zero.ctypes.data, d, CUDA_R_64F, n, COMPUTE_64F, ALGO_DEFAULT,
    )  # fmt: skip


class CublasKernel:
    """`cublasGemmEx` with its default algorithm.

    cuBLAS is column-major: the row-major D = A·B is computed as D^T = B^T·A^T on the same bytes.
    """

    in_place = True

    def __init__(self) -> None:
        self.stream = Stream()
        self._handle = cublas.create()
        self._calls: list[tuple[Any, ...]] = []

    def prepare(self, problem: GemmProblem, operands: Operands) -> None:
        lda, ldb, ldd = problem.leading_dimensions
        cublas.set_stream(self._handle, int(self.stream.handle))
        cublas.set_workspace(self._handle, workspace().address, WORKSPACE_BYTES)
        # FP16 output would otherwise let split-K reduce in FP16; accumulation is to be FP32.
        mode = DISALLOW_REDUCED_PRECISION if problem.output == "f16" else DEFAULT_MATH
        cublas.set_math_mode(self._handle, mode)
        self._scalars = np.array([problem.alpha, problem.beta], dtype=np.float32)
        alpha = self._scalars.ctypes.data
        operation = OP_T if problem.layout == "tn" else OP_N
        self._calls = [
            (
                self._handle, operation, OP_N, problem.n, problem.m, problem.k, alpha,
                s.b, CUDA_R_16F, ldb, s.a, CUDA_R_16F, lda, alpha + 4,
                s.d, DATA_TYPE[problem.output], ldd, COMPUTE_32F, ALGO_DEFAULT,
            )
            for s in operands.sets
        ]  # fmt: skip

    def launch(self, index: int) -> None:
        cublas.gemm_ex(*self._calls[index])

    def close(self) -> None:
        cublas.destroy(self._handle)


class CublasLtKernel:
    """The fastest of cuBLASLt's heuristic candidates, tried on the problem itself."""

    in_place = False

    def __init__(self, choice: int | None = None) -> None:
        """`choice` names the candidate if it was chosen before; else `prepare` tries them all."""
        self.stream = Stream()
        self.choice, self._given = choice, choice
        self._handle = cublasLt.create()
        self._described = False
        self._calls: list[tuple[Any, ...]] = []

    def prepare(self, problem: GemmProblem, operands: Operands) -> None:
        self._scalars = np.array([problem.alpha, problem.beta], dtype=np.float32)
        self._describe(problem)
        candidates = self._candidates()
        self.choice = self._given
        if self.choice is None or self.choice >= len(candidates):
            self.choice = self._fastest(operands.sets, candidates)
        self._bind(operands.sets, candidates[self.choice])

    def _fastest(self, sets: list[OperandSet], candidates: list[int]) -> int:
        """The candidate with the least median over interleaved rounds, after all have run once."""
        first = []
        for algorithm in candidates:
            self._bind(sets, algorithm)
            self.launch(0)  # loads the kernel
            self.stream.synchronize()
            first.append(self._timed(1, len(sets)))
        if min(first) > LT_LONG_MS:
            return int(np.argmin(first))
        times = np.empty((LT_ROUNDS, len(candidates)))
        for round_, index in itertools.product(range(LT_ROUNDS), range(len(candidates))):
            self._bind(sets, candidates[index])
            launches = min(LT_MOST_LAUNCHES, max(2, math.ceil(LT_REGION_MS / first[index])))
            times[round_, index] = self._timed(launches, len(sets))
        return int(np.argmin(np.median(times, axis=0)))

    def _describe(self, problem: GemmProblem) -> None:
        self._forget_description()
        lda, ldb, ldd = problem.leading_dimensions
        self._operation = cublasLt.matmul_desc_create(COMPUTE_32F, CUDA_R_32F)
        transpose = ctypes.c_int32(OP_T if problem.layout == "tn" else OP_N)
        cublasLt.matmul_desc_set_attribute(
            self._operation,
            int(cublasLt.MatmulDescAttribute.TRANSA),
            ctypes.addressof(transpose),
            4,
        )
        b_shape = (problem.k, problem.n) if problem.layout == "tn" else (problem.n, problem.k)
        self._b = cublasLt.matrix_layout_create(CUDA_R_16F, *b_shape, ldb)
        self._a = cublasLt.matrix_layout_create(CUDA_R_16F, problem.k, problem.m, lda)
        self._d = cublasLt.matrix_layout_create(
            DATA_TYPE[problem.output], problem.n, problem.m, ldd
        )
        self._described = True

    def _candidates(self) -> list[int]:
        preference = cublasLt.matmul_preference_create()
        limit = ctypes.c_uint64(WORKSPACE_BYTES)
        cublasLt.matmul_preference_set_attribute(
            preference,
            int(cublasLt.MatmulPreferenceAttribute.MAX_WORKSPACE_BYTES),
            ctypes.addressof(limit),
            8,
        )
        # The array starts as garbage: only the first `count` entries with state 0 are answers.
        self._results = np.zeros(LT_CANDIDATES, dtype=cublasLt.matmul_heuristic_result_dtype)
        count = ctypes.c_int(0)
        try:
            cublasLt.matmul_algo_get_heuristic(
                self._handle, self._operation, self._b, self._a, self._d, self._d, preference,
                LT_CANDIDATES, self._results.ctypes.data, ctypes.addressof(count),
            )  # fmt: skip
        except cublasLt.cuBLASLtError as error:
            raise NotImplementable(f"cuBLASLt has no algorithm: {error}") from error
        finally:
            cublasLt.matmul_preference_destroy(preference)
        size = self._results.itemsize  # `algo` is the first member of each result
        found = [i for i in range(count.value) if int(self._results["state"][i]) == 0]
        if not found:
            raise NotImplementable("cuBLASLt offers no algorithm for this problem")
        return [self._results.ctypes.data + i * size for i in found]

    def _bind(self, sets: list[OperandSet], algorithm: int) -> None:
        alpha = self._scalars.ctypes.data
        self._calls = [
            (
                self._handle, self._operation, alpha, s.b, self._b, s.a, self._a, alpha + 4,
                s.c or s.d, self._d, s.d, self._d, algorithm, workspace().address,
                WORKSPACE_BYTES, int(self.stream.handle),
            )
            for s in sets
        ]  # fmt: skip

    def _timed(self, launches: int, sets: int) -> float:
        """Milliseconds per launch, as one graph: else small kernels would be timed by the host."""

        def queue() -> None:
            for index in range(launches):
                self.launch(index % sets)

        graph, start, end = Graph(self.stream, queue), Event(), Event()
        start.record(self.stream)
        graph.launch()
        end.record(self.stream)
        self.stream.synchronize()
        graph.destroy()
        return start.elapsed_ms(end) / launches

    def launch(self, index: int) -> None:
        cublasLt.matmul(*self._calls[index])

    def _forget_description(self) -> None:
        if self._described:
            for layout in (self._a, self._b, self._d):
                cublasLt.matrix_layout_destroy(layout)
            cublasLt.matmul_desc_destroy(self._operation)
            self._described = False

    def close(self) -> None:
        self._forget_description()
        cublasLt.destroy(self._handle)
