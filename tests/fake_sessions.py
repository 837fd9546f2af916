"""Stand-ins for `GpuSession` that a spawned child can import: simulated kernels, chosen failures.

`SimulatedGpu` answers every request of the sweep. How a kernel behaves is chosen by name; noise
and drift are functions of counters, so that a sweep on it is reproducible.
"""

from __future__ import annotations

import math
import os
import signal
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from cutlass_study.config import GemmProblem
from cutlass_study.records import (
    CacheMode,
    DeviceRecord,
    EnvironmentProblem,
    Regime,
    Sample,
)
from cutlass_study.regimes import rejection
from cutlass_study.tasks import (
    Interleaved,
    KernelTask,
    PeerTimes,
    ProblemSetup,
    Taken,
    Verification,
)
from cutlass_study.worker import Worker, WorkerFailure, _answer, _failure
from tests.sweep_records import DEVICE

Loaded = tuple[ProblemSetup, str, float]
GONE = 0.0  # a time that no kernel has: nothing ran


@dataclass(frozen=True)
class Behaviour:
    """A simulated kernel: its speed, and what goes wrong at which request, if anything."""

    time_ms: float = 1.0
    noise: float = 0.0  # relative spread
    fault: str = ""
    at: str = "verify"  # "load", "verify" or "sample"
    at_count: int = 1  # the first request of that kind that goes wrong
    wrong: str = ""  # the reason verification gives
    hunting: float = 0.0  # relative swing of its time while it runs for a span
    power_w: float = 100.0
    capped: bool = False  # NVML names the power limit while it runs for a span


@dataclass(frozen=True)
class Script:
    """Behaviours by kernel name, and what the card as a whole does."""

    kernels: Mapping[str, Behaviour] = field(default_factory=dict)
    drift_per_sample: float = 0.0  # how much slower everything gets with every sample
    open_faults: Mapping[GemmProblem, str] = field(default_factory=dict)
    log: str = ""  # a file that gets a line for every request
    sample_s: float = 0.0  # how long a sample takes
    seed: str = ""  # of the noise
    modes: Mapping[str, float] = field(default_factory=dict)  # cache mode → times slower
    inputs: Mapping[str, float] = field(default_factory=dict)  # distribution → times slower
    hot: frozenset[GemmProblem] = frozenset()  # NVML names the power limit during its samples
    reason: str = "sw_power_cap"  # what NVML names then
    beta_factor: float = 1.0  # times slower where beta is not 0
    wrong_interleaved: str = ""  # the reason D is wrong after interleaving
    peer_factor: Mapping[str, float] = field(default_factory=dict)  # cuda.bench's time over ours


def misbehave(fault: str) -> None:
    """Fail like a kernel: kill this process, hang, or raise."""
    from cutlass_study.driver import CudaError
    from cutlass_study.gpu_session import TooLong
    from cutlass_study.kernels import NotImplementable

    if fault == "exit":
        os._exit(7)
    if fault in ("SIGKILL", "SIGSEGV"):
        os.kill(os.getpid(), getattr(signal, fault))
    if fault == "hang":
        time.sleep(3600)
    if fault == "ctrl-c":
        raise KeyboardInterrupt
    if fault == "bug":
        raise KeyError("nobody thought of this")
    if fault == "refused":
        raise NotImplementable("CUTLASS refuses the problem: ErrorMisalignedOperand")
    if fault == "too long":
        raise TooLong("one launch is predicted to take 0.88 s, above the budget of 0.5 s")
    if fault == "environment":
        raise EnvironmentProblem("no usable GPU (CUDA_ERROR_NO_DEVICE)")
    raise CudaError(fault, "cuStreamSynchronize")


class SimulatedGpu:
    """Keeps `GpuSession`'s contract: verify needs a reference, sample a loaded kernel."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.device: DeviceRecord = DEVICE
        self.calls: list[tuple[str, str]] = []
        self._open: dict[ProblemSetup, bool] = {}  # → whether it has a reference
        self._loaded: set[tuple[ProblemSetup, str]] = set()
        self._counts: dict[tuple[str, str], int] = {}
        self._samples = 0

    def describe(self) -> DeviceRecord:
        return self.device

    def pid(self) -> int:
        return os.getpid()

    def misbehave(self, fault: str) -> None:
        misbehave(fault)

    def _note(self, what: str, name: str) -> Behaviour:
        self.calls.append((what, name))
        if self.script.log:
            with Path(self.script.log).open("a", encoding="utf-8") as log:
                log.write(f"{os.getpid()} {what} {name}\n")
        behaviour = self.script.kernels.get(name, Behaviour())
        count = self._counts[what, name] = self._counts.get((what, name), 0) + 1
        if behaviour.fault and behaviour.at == what and count >= behaviour.at_count:
            misbehave(behaviour.fault)
        return behaviour

    def open_problem(self, setup: ProblemSetup, with_reference: bool) -> int:
        self._note("open", setup.problem.name)
        self._open.pop(setup, None)
        self._loaded = {pair for pair in self._loaded if pair[0] != setup}
        fault = self.script.open_faults.get(setup.problem)
        if fault:
            misbehave(fault)
        self._open[setup] = with_reference
        return 4

    def close_all(self) -> None:
        self._open.clear()
        self._loaded.clear()

    def load(self, setup: ProblemSetup, task: KernelTask) -> int | None:
        assert setup in self._open, "load without an open problem"
        self._note("load", task.config.name)
        self._loaded.add((setup, task.config.name))
        return None

    def verify(self, setup: ProblemSetup, name: str) -> Verification:
        assert self._open[setup], "verify without a reference"
        assert (setup, name) in self._loaded, "verify without load"
        behaviour = self._note("verify", name)
        return Verification(behaviour.wrong, 1e-3, 1e-5, max(behaviour.time_ms, 1e-3))

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
        assert (setup, name) in self._loaded, "sample without load"
        behaviour = self._note("sample", name)
        self._samples += 1
        time.sleep(self.script.sample_s)
        count = self._counts["sample", name]
        seed = f"{self.script.seed}{name} {regime} {count}"
        wobble = math.sin(zlib.crc32(seed.encode()))
        drift = 1 + self.script.drift_per_sample * self._samples
        inputs = self.script.inputs.get(setup.distribution, 1.0)
        slower = self.script.modes.get(cache, 1.0) * inputs
        slower *= self.script.beta_factor if setup.problem.beta else 1.0
        time_ms = behaviour.time_ms * (1 + behaviour.noise * wobble) * drift * slower
        sample = Sample(
            regime,
            round_,
            time_ms,
            2,
            None,
            2500.0 / inputs,
            2505.0,
            behaviour.power_w,
            60.0,
            self.script.reason if setup.problem in self.script.hot else "",
            rejection(2 * time_ms),
        )
        return Taken(sample, time.monotonic(), time.monotonic())

    def span(self, kernels: Sequence[Loaded], round_: int) -> list[Taken]:
        """Chunks of 25 ms whose time swings with a period of 0.8 s, each visit in its own phase."""
        ((setup, name, _),) = kernels
        assert (setup, name) in self._loaded
        behaviour = self._note("span", name)
        phase = math.sin(zlib.crc32(f"{name} {round_}".encode()))
        launches = max(1, round(25.0 / behaviour.time_ms))
        found: list[Taken] = []
        at_ms = 0.0
        while at_ms < 2330.0:  # of 2.4 s: a little of each chunk passes in reading its clock
            wave = math.sin(2 * math.pi * at_ms / 800 + phase) * math.exp(-at_ms / 3000)
            noise = behaviour.noise * math.sin(zlib.crc32(f"{name} {round_} {at_ms}".encode()))
            slower = 1 + behaviour.hunting * wave + noise
            time_ms = behaviour.time_ms * slower
            reasons = "sw_power_cap" if behaviour.capped else ""
            sample = Sample(
                "sustained", round_, time_ms, launches, None, 1500.0 / slower, 1980.0,
                behaviour.power_w, 50.0, reasons,
            )  # fmt: skip
            found.append(Taken(sample, time.monotonic(), time.monotonic()))
            at_ms += time_ms * launches
        return found

    def interleave(self, kernels: Sequence[Loaded], alternate: bool) -> Interleaved:
        times = []
        for setup, name, _ in kernels:
            assert self._open[setup] and (setup, name) in self._loaded
            times.append(self._note("interleave" if alternate else "serial", name).time_ms)
        first, second = (sum(times), sum(times)) if alternate else times
        wrong = self.script.wrong_interleaved if alternate else ""
        now = time.monotonic()
        return Interleaved(2, (first, second), sum(times), (wrong, wrong), now, now)

    def cross_check(self, kernels: Sequence[Loaded], repeats: int) -> list[PeerTimes]:
        found = []
        for repeat in range(repeats):
            for setup, name, _ in kernels:
                assert (setup, name) in self._loaded
                own = self._note("cross_check", name).time_ms
                peer = own * self.script.peer_factor.get(name, 1.0)
                found.append(PeerTimes(name, repeat, (peer,) * 5, 1500.0, (own,) * 4, 1510.0))
        return found


def simulated(script: Script) -> partial[SimulatedGpu]:
    """A session factory for `Worker`."""
    return partial(SimulatedGpu, script)


def plain() -> SimulatedGpu:
    return SimulatedGpu(Script())


def without_gpu() -> Any:
    misbehave("environment")


def broken_installation() -> Any:
    raise ImportError("libcublas.so.13: cannot open shared object file")


def dies_at_start() -> Any:
    os._exit(9)


def out_of_memory_at_start() -> Any:
    misbehave("OUT_OF_MEMORY")


class InProcess(Worker):
    """A worker without a process, for what needs many samples: failures pass the same two ways."""

    def __init__(self, script: Script) -> None:
        super().__init__()
        self.script = script
        self.device = DEVICE
        self.session: SimulatedGpu | None = None
        self.calls: list[tuple[str, str]] = []

    def request(self, method: str, *arguments: Any, timeout_s: float) -> Any:
        if self.session is None:
            self.session = SimulatedGpu(self.script)
            self.session.calls, self.session.device = self.calls, self.device
        kind, value = _answer(self.session, method, arguments)
        if kind == "ok":
            return value
        if kind not in ("not_implementable", "too_long"):
            self.session = None
            self.generation += 1
        failure: WorkerFailure = _failure(kind, value)
        raise failure
