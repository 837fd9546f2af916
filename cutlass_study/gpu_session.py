"""What the child process does on the GPU: open a problem, verify a kernel, take a sample."""

from __future__ import annotations

from dataclasses import replace

from cutlass_study.config import GemmProblem
from cutlass_study.cublas import CublasKernel, CublasLtKernel
from cutlass_study.device import open_device, query_device
from cutlass_study.driver import Stream
from cutlass_study.kernels import CutlassKernel, Kernel, NotImplementable, WmmaKernel
from cutlass_study.measure import ClockProbe, Sampler
from cutlass_study.operands import Operands
from cutlass_study.records import DeviceRecord, Regime, Sample
from cutlass_study.sweep_options import queue_budget_s
from cutlass_study.tasks import KernelTask, ProblemSetup, Verification
from cutlass_study.telemetry import Telemetry
from cutlass_study.verify import Reference

PROBE_EXTENTS = (1024, 2048, 4096, 8192)  # sizes tried before a launch that may be too long
SAFE_FLOP = 2 * 2048**3  # needs no probe: 17 ms at 1 TFLOPS, a speed every kernel here exceeds


class TooLong(RuntimeError):
    """A single launch is predicted to exceed the watchdog budget."""


class GpuSession:
    """State of the child: the device, the open problem, and the kernels prepared for it."""

    def __init__(self) -> None:
        self.device = query_device(open_device())
        self._budget_s = queue_budget_s(self.device.watchdog)
        self._stream = Stream()
        probe = ClockProbe(self.device.arch, self.device.sm_count)
        self._sampler = Sampler(probe, Telemetry(self.device.uuid), self._budget_s)
        self._setup: ProblemSetup | None = None
        self._operands: Operands | None = None
        self._reference: Reference | None = None
        self._kernels: dict[str, Kernel] = {}

    def describe(self) -> DeviceRecord:
        return self.device

    def open_problem(self, setup: ProblemSetup, with_reference: bool) -> int:
        """Make operands (and the reference) of a problem; return the number of operand sets."""
        self.close_problem()
        self._setup = setup
        self._operands = Operands(
            setup.problem, setup.distribution, setup.seed, self.device.arch,
            self.device.l2_bytes, self._stream,
        )  # fmt: skip
        if with_reference:
            self._reference = Reference(
                self._operands, self.device.arch, self._budget_s, self._stream
            )
        return len(self._operands.sets)

    def close_problem(self) -> None:
        for kernel in self._kernels.values():
            self._sampler.forget(kernel)
            kernel.close()
        self._kernels.clear()
        for part in (self._operands, self._reference):
            if part is not None:
                part.free()
        self._operands = self._reference = self._setup = None

    def _make(self, task: KernelTask) -> Kernel:
        if task.config.family == "cublas":
            return CublasKernel() if task.config.variant == "default" else CublasLtKernel()
        assert task.image is not None
        if task.config.family == "wmma":
            return WmmaKernel(task.config, task.image)
        return CutlassKernel(task.config, task.image, self.device.sm_count, task.ctas_per_sm)

    def _predict_ms(self, kernel: Kernel, problem: GemmProblem) -> float:
        """Upper estimate of one launch, from ever larger probes that stay within the budget.

        A smaller problem uses the GPU less well, so scaling it up by FLOP over-predicts.
        """
        assert self._operands
        predicted = 0.0
        for extent in PROBE_EXTENTS:
            m, n, k = (min(side, extent) for side in problem.shape)
            small = replace(problem, m=m, n=n, k=k)  # lda stays: it decides what can be loaded
            if small.flop >= problem.flop or predicted * small.flop > (
                self._budget_s * 1000 * problem.flop
            ):
                break
            kernel.prepare(small, self._operands)
            self._sampler.time_once(kernel)  # loads the kernel
            predicted = self._sampler.time_once(kernel) * problem.flop / small.flop
        return predicted

    def _refuse_long(self, kernel: Kernel, problem: GemmProblem) -> None:
        assert self._setup
        if problem.flop <= SAFE_FLOP or self._setup.allow_long_launches:
            return
        predicted = self._predict_ms(kernel, problem)
        if predicted > self._budget_s * 1000:
            raise TooLong(
                f"one launch is predicted to take {predicted / 1000:.2f} s, above the budget of "
                f"{self._budget_s} s between synchronizations; --allow-long-launches runs it"
            )

    def load(self, task: KernelTask) -> None:
        """Prepare a kernel for the open problem, after predicting that a launch is short enough.

        It is launched once: code that is loaded lazily must not slow the first timed launch.
        """
        assert self._setup and self._operands
        kernel = self._make(task)
        try:
            self._refuse_long(kernel, self._setup.problem)
            kernel.prepare(self._setup.problem, self._operands)
        except (NotImplementable, TooLong):  # after any other failure the process is replaced
            kernel.close()
            raise
        kernel.launch(0)
        kernel.stream.synchronize()
        self._kernels[task.config.name] = kernel

    def verify(self, name: str) -> Verification:
        """Run a loaded kernel once into a poisoned D and compare all of D."""
        assert self._operands and self._reference
        kernel = self._kernels[name]
        self._operands.poison(0, copy_c=kernel.in_place)
        kernel.launch(0)
        kernel.stream.synchronize()
        verdict = self._reference.compare()
        estimate = self._sampler.time_once(kernel)
        return Verification(
            verdict.reason, verdict.max_abs_error, verdict.max_rel_error, max(estimate, 1e-3)
        )

    def sample(self, name: str, regime: Regime, round_: int, estimate_ms: float) -> Sample:
        assert self._operands
        return self._sampler.sample(
            self._kernels[name], len(self._operands.sets), regime, round_, estimate_ms
        )
