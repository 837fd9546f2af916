"""Runs each hand-written kernel once, small, for NVIDIA's compute-sanitizer.

    compute-sanitizer --tool memcheck  python tests/sanitizer_target.py
    compute-sanitizer --tool racecheck python tests/sanitizer_target.py
    compute-sanitizer --tool initcheck python tests/sanitizer_target.py
    compute-sanitizer --tool synccheck python tests/sanitizer_target.py

Words given as arguments choose the kernels whose names contain one of them; by default all run.
No cuBLAS: the reference product is made by numpy, so that only our kernels are under the tool.
Exits 1 if a result is wrong, 3 without a GPU.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cuda.bindings import driver

from cutlass_study import nvrtc
from cutlass_study.config import GemmProblem
from cutlass_study.device import open_device, query_device
from cutlass_study.driver import Stream, allocate, call, download
from cutlass_study.families import infeasible_reason, source
from cutlass_study.gpus import limits_from
from cutlass_study.ladder import SIMT_ALL, WGMMA_ALL
from cutlass_study.measure import ClockProbe
from cutlass_study.operands import Operands, OperandSet
from cutlass_study.records import EnvironmentProblem
from cutlass_study.space import WMMA_ALL
from cutlass_study.verify import Reference
from cutlass_study.wgmma_kernel import hand_written_kernel

PROBLEMS = (
    GemmProblem(256, 128, 64),
    GemmProblem(257, 519, 1000),
    GemmProblem(257, 519, 1000, layout="nn", beta=0.5),
    GemmProblem(128, 256, 576, output="f16", beta=0.5),  # a ring of 4 stages goes round twice
)
KERNELS = (*WMMA_ALL, *SIMT_ALL, *WGMMA_ALL)


class HostReference(Reference):
    """The product by numpy; everything around it by the kernels of support.cu."""

    def _compute_product(self, operands: OperandSet, budget_s: float) -> None:
        p = self._operands.problem
        lda, ldb, ldd = p.leading_dimensions
        b_shape = (p.n, p.k) if p.layout == "tn" else (p.k, p.n)
        wide = [allocate(8 * p.m * p.k), allocate(8 * p.n * p.k), allocate(8 * p.m * p.n)]
        self._widen(operands.a, wide[0].address, p.m, p.k, lda)
        self._widen(operands.b, wide[1].address, *b_shape, ldb)
        a, b = (np.frombuffer(download(w.address, w.size_bytes)) for w in wide[:2])
        b = b.reshape(b_shape).T if p.layout == "tn" else b.reshape(b_shape)
        product = np.ascontiguousarray(a.reshape(p.m, p.k) @ b)
        call(driver.cuMemcpyHtoD, wide[2].address, product.ctypes.data, product.nbytes)
        self._finish(operands, wide[2].address, 0, p.m, ldd)
        for buffer in wide:
            buffer.free()


def main() -> int:
    """Run everything; print one line a kernel."""
    try:
        device = query_device(open_device())
    except EnvironmentProblem as problem:
        print(problem, file=sys.stderr)
        return 3
    words, stream, wrong = sys.argv[1:], Stream(), 0
    probe = ClockProbe(device.arch, device.sm_count)
    for problem in PROBLEMS:
        operands = Operands(problem, "uniform", 1, device.arch, 1, stream)
        reference = HostReference(operands, device.arch, 0.5, stream)
        for config in KERNELS:
            if words and not any(word in config.name for word in words):
                continue
            if infeasible_reason(config, problem, limits_from(device)):
                continue
            unit = source(config, problem)
            assert unit
            kernel = hand_written_kernel(config, nvrtc.compile_cubin(unit, device.arch).cubin)
            kernel.prepare(problem, operands)
            operands.poison(0, copy_c=kernel.in_place)
            probe.hold(kernel, 0.001)
            probe.record(0, kernel)
            kernel.launch(0)
            probe.record(1, kernel)
            kernel.stream.synchronize()
            probe.clock_mhz()
            reason = reference.compare().reason
            wrong += bool(reason)
            print(f"{config.name} {problem.name}: {reason or 'right'}")
            kernel.close()
        reference.free()
        operands.free()
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
