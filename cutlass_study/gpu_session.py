"""What the child process does on the GPU: open a problem, verify a kernel, take a sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cutlass_study.config import HAND_WRITTEN
from cutlass_study.cublas import CublasKernel, CublasLtKernel
from cutlass_study.device import open_device, query_device
from cutlass_study.driver import Stream
from cutlass_study.kernels import CompiledKernel, CutlassKernel, Kernel, NotImplementable
from cutlass_study.measure import ClockProbe, Sampler
from cutlass_study.operands import Operands
from cutlass_study.peaks import Ceiling
from cutlass_study.records import CacheMode, DeviceRecord, Regime
from cutlass_study.regimes import PLANNED_SHARE
from cutlass_study.sweep_options import queue_budget_s
from cutlass_study.tasks import (
    Interleaved,
    KernelTask,
    PeerTimes,
    ProblemSetup,
    Taken,
    Verification,
)
from cutlass_study.verify import Reference
from cutlass_study.wgmma_kernel import hand_written_kernel

PROBE_EXTENTS = (1024, 2048, 4096, 8192)  # sizes tried before a launch that may be too long
SAFE_FLOP = 2 * 2048**3  # needs no probe: 17 ms at 1 TFLOPS, a speed every kernel here exceeds
Loaded = tuple[ProblemSetup, str, float]  # a loaded kernel and its estimated milliseconds


class TooLong(RuntimeError):
    """A single launch is predicted to exceed the watchdog budget."""


class OpenProblem:
    """Operands of one problem, the reference D if it was asked for, and its prepared kernels."""

    def __init__(self, setup: ProblemSetup, operands: Operands, reference: Reference | None):
        self.setup, self.operands, self.reference = setup, operands, reference
        self.kernels: dict[str, Kernel] = {}


class GpuSession:
    """State of the child: the device, and the problems that are open."""

    def __init__(self) -> None:
        self.device = query_device(open_device())
        self._budget_s = queue_budget_s(self.device.watchdog)
        self._stream = Stream()
        probe = ClockProbe(self.device.arch, self.device.sm_count)
        self._sampler = Sampler(probe, self._budget_s, self.device.l2_bytes)
        self._open: dict[ProblemSetup, OpenProblem] = {}

    def describe(self) -> DeviceRecord:
        return self.device

    def ceilings(self) -> list[Ceiling]:
        """Measure what this card can do at most; takes some seconds."""
        from cutlass_study.ceilings import measure_ceilings

        device = self.device
        return measure_ceilings(device.arch, device.sm_count, device.l2_bytes, self._sampler)

    def open_problem(self, setup: ProblemSetup, with_reference: bool) -> int:
        """Make operands (and the reference) of a problem; return the number of operand sets."""
        self.close_problem(setup)
        arch = self.device.arch
        operands = Operands(
            setup.problem, setup.distribution, setup.seed, arch, self.device.l2_bytes, self._stream
        )
        reference = None
        if with_reference:
            reference = Reference(operands, arch, self._budget_s, self._stream)
        self._open[setup] = OpenProblem(setup, operands, reference)
        return len(operands.sets)

    def close_problem(self, setup: ProblemSetup) -> None:
        """Free a problem and its kernels, if it is open."""
        found = self._open.pop(setup, None)
        if found is None:
            return
        for kernel in found.kernels.values():
            self._sampler.forget(kernel)
            kernel.close()
        found.operands.free()
        if found.reference is not None:
            found.reference.free()

    def close_all(self) -> None:
        """Free every open problem."""
        for setup in list(self._open):
            self.close_problem(setup)

    def _make(self, task: KernelTask) -> Kernel:
        if task.config.family == "cublas":
            is_default = task.config.variant == "default"
            return CublasKernel() if is_default else CublasLtKernel(task.choice)
        assert task.image is not None
        if task.config.family in HAND_WRITTEN:
            return hand_written_kernel(task.config, task.image)
        return CutlassKernel(task.config, task.image, self.device.sm_count, task.ctas_per_sm)

    def _predict_ms(self, kernel: Kernel, operands: Operands) -> float:
        """Upper estimate of one launch, from ever larger probes that stay within the budget.

        A smaller problem uses the GPU less well, so scaling it up by FLOP over-predicts.
        """
        predicted, problem = 0.0, operands.problem
        for extent in PROBE_EXTENTS:
            m, n, k = (min(side, extent) for side in problem.shape)
            small = replace(problem, m=m, n=n, k=k)  # lda stays: it decides what can be loaded
            if small.flop >= problem.flop or predicted * small.flop > (
                self._budget_s * 1000 * problem.flop
            ):
                break
            kernel.prepare(small, operands)
            self._sampler.time_once(kernel)  # loads the kernel
            predicted = self._sampler.time_once(kernel) * problem.flop / small.flop
        return predicted

    def _refuse_long(self, kernel: Kernel, found: OpenProblem) -> None:
        if found.setup.problem.flop <= SAFE_FLOP or found.setup.allow_long_launches:
            return
        predicted = self._predict_ms(kernel, found.operands)
        if predicted > self._budget_s * 1000:
            raise TooLong(
                f"one launch is predicted to take {predicted / 1000:.2f} s, above the budget of "
                f"{self._budget_s} s between synchronizations; --allow-long-launches runs it"
            )

    def load(self, setup: ProblemSetup, task: KernelTask) -> int | None:
        """Prepare a kernel for an open problem, after predicting that a launch is short enough.

        It is launched once: code that is loaded lazily must not slow the first timed launch.
        Returns which of its candidates cuBLASLt's kernel chose.
        """
        found = self._open[setup]
        kernel = self._make(task)
        try:
            self._refuse_long(kernel, found)
            kernel.prepare(setup.problem, found.operands)
        except (NotImplementable, TooLong):  # after any other failure the process is replaced
            kernel.close()
            raise
        kernel.launch(0)
        kernel.stream.synchronize()
        found.kernels[task.config.name] = kernel
        return kernel.choice if isinstance(kernel, CublasLtKernel) else None

    def verify(self, setup: ProblemSetup, name: str) -> Verification:
        """Run a loaded kernel once into a poisoned D and compare all of D."""
        found = self._open[setup]
        assert found.reference
        kernel = found.kernels[name]
        found.operands.poison(0, copy_c=kernel.in_place)
        kernel.launch(0)
        kernel.stream.synchronize()
        verdict = found.reference.compare(in_place=kernel.in_place)
        return Verification(
            verdict.reason,
            verdict.max_abs_error,
            verdict.max_rel_error,
            max(self._sampler.time_once(kernel), 1e-3),
            verdict.overflows,
            kernel.resident_ctas() if isinstance(kernel, CompiledKernel) else None,
        )

    def sample(
        self,
        setup: ProblemSetup,
        name: str,
        regime: Regime,
        round_: int,
        estimate_ms: float,
        gap_s: float | None,
        cache: CacheMode = "rotate",
    ) -> Taken:
        """One sample of a loaded kernel."""
        found = self._open[setup]
        sets = len(found.operands.sets)
        kernel = found.kernels[name]
        return self._sampler.take(
            kernel, sets, regime, round_, estimate_ms, gap_s, cache, setup.graph_below_ms
        )

    # --- experiments -----------------------------------------------------------------------

    def interleave(self, kernels: Sequence[Loaded], alternate: bool) -> Interleaved:
        """Two loaded kernels, launches alternating or one kernel after the other; see there."""
        from cutlass_study.interleave import run_pair

        first, second = (self._open[setup] for setup, _, _ in kernels)
        budget_ms = PLANNED_SHARE * self._budget_s * 1000
        launches = int(budget_ms / sum(estimate_ms for _, _, estimate_ms in kernels))
        return run_pair(
            ((first, kernels[0][1]), (second, kernels[1][1])), launches, alternate=alternate
        )

    def cross_check(self, kernels: Sequence[Loaded], repeats: int) -> list[PeerTimes]:
        """Loaded kernels timed by `cuda.bench` and by us in turns."""
        from cutlass_study.peer import Subject, time_in_turns

        subjects = {}
        for setup, name, _ in kernels:
            found = self._open[setup]
            subjects[name] = Subject(found.kernels[name], found.operands)
        return time_in_turns(subjects, repeats, self._sampler)

    def span(self, kernels: Sequence[Loaded], round_: int) -> list[Taken]:
        """One loaded kernel (a list of one) back to back, in chunks; see there."""
        from cutlass_study.settling import run_span

        ((setup, name, estimate_ms),) = kernels
        found = self._open[setup]
        sets = len(found.operands.sets)
        return run_span(self._sampler, found.kernels[name], sets, round_, estimate_ms)
