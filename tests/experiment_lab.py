"""Experiments on a simulated GPU, and the folders they export."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cutlass_study import experiment_cases as cases
from cutlass_study import experiments, rounds, sweep
from cutlass_study.conditions import NAMES
from cutlass_study.config import GemmConfig, GemmProblem
from cutlass_study.experiment_cases import nvbench_kernels, settle_kernels
from cutlass_study.experiments import DEFAULT_REGIMES, Experiment, Name
from cutlass_study.gpu_client import GpuClient
from cutlass_study.prepare import Inputs, Prepared
from cutlass_study.records import DeviceRecord, RowOutcome
from cutlass_study.render import RenderReport
from cutlass_study.results import ResultsStore
from cutlass_study.space import CUBLAS, sm80, sm90, wmma
from cutlass_study.study import Measurement
from cutlass_study.study_data import StudyData, load
from cutlass_study.sweep_options import SweepOptions
from tests.fake_sessions import Behaviour, InProcess, Script
from tests.sweep_records import DEVICE
from tests.test_sweep import Quiet

PROBLEM = GemmProblem(2048, 2048, 2048)
OLD, NEW = sm80((256, 128, 32), 4), sm90((128, 256, 64), None)
BESIDE_C = replace(NEW, stages=3)  # as many as fit beside a C, which the alphabeta experiment takes
HOPPER = replace(DEVICE, arch="sm_90a", name="NVIDIA H200", l2_bytes=60 << 20)


def hasten(monkeypatch: pytest.MonkeyPatch, *, draw: bool = True) -> None:
    """Few rounds, no waiting for a clock that never moves, and without `draw` no figures."""
    if not draw:
        nothing = RenderReport((), (), (), ())
        monkeypatch.setattr(experiments, "render_all", lambda data, folder: nothing)
    monkeypatch.setitem(rounds.MAX_ROUNDS, "burst", 14)
    monkeypatch.setitem(rounds.MAX_ROUNDS, "sustained", 8)
    monkeypatch.setattr(sweep, "SETTLE_TIMEOUT_S", 0.0)


def rows_of(experiment: Experiment) -> list[Prepared]:
    """The rows without compiling: `as_rows` on entries that need no image in the simulation."""
    wanted = experiment.cases()
    identity: Any = None
    compiled = {
        case.entry: Prepared(case.entry, RowOutcome(identity, "ok"), True) for case in wanted
    }
    return cases.as_rows(wanted, compiled.values(), HOPPER.arch, experiment.options.inputs)


class Lab:
    """Runs an experiment on a simulated GPU, from rows to the rendered folder."""

    def __init__(
        self, folder: Path, device: DeviceRecord = HOPPER, problem: GemmProblem = PROBLEM
    ) -> None:
        self.folder, self.reporter = folder, Quiet()
        self.device, self.problem = device, problem
        self.worker = InProcess(Script())

    def run(
        self,
        name: Name,
        script: Script,
        kernels: Sequence[GemmConfig] = (OLD, NEW),
        regimes: tuple[Any, ...] = ("burst",),
        budget_s: float = 1000.0,
        **more: int,
    ) -> Measurement:
        options = SweepOptions(regimes, Inputs("uniform", 1), budget_s)
        experiment = Experiment(name, self.problem, tuple(kernels), options, **more)
        self.worker = InProcess(script)
        self.worker.device = self.device
        with ResultsStore.open(self.folder / f"{name}.sqlite", self.device, resume=False) as store:
            items = rows_of(experiment)
            directory = self.folder / name
            return experiments.run(experiment, items, self.worker, store, directory, self.reporter)

    def data(self, name: Name) -> StudyData:
        return load(self.folder / name)


# Kernels of about an H200's speed; those above its power limit hunt.
H200_KERNELS = {
    CUBLAS: Behaviour(1.6, 0.002, hunting=0.02, power_w=699.0, capped=True),
    NEW: Behaviour(1.55, 0.002, power_w=699.0, capped=True),
    BESIDE_C: Behaviour(1.55, 0.002, power_w=699.0, capped=True),
    replace(BESIDE_C, source_c="float"): Behaviour(1.56, 0.002, power_w=699.0, capped=True),
    OLD: Behaviour(2.3, 0.002, hunting=0.015, power_w=698.0, capped=True),
    sm80((256, 128, 32), 3): Behaviour(2.4, 0.002, hunting=0.01, power_w=697.0, capped=True),
    sm80((128, 128, 32), 3): Behaviour(2.7, 0.002, hunting=0.005, power_w=696.0, capped=True),
    wmma(1): Behaviour(7.0, 0.0004, power_w=420.0),
    wmma(3): Behaviour(4.2, 0.0004, power_w=560.0),
}
H200_SCRIPT = Script(
    {config.name: behaviour for config, behaviour in H200_KERNELS.items()},
    modes={"flush": 1.12, "alone": 1.06, "hot": 0.97},
    inputs={"zeros": 0.9, "integers": 0.91, "normal": 1.004},
    beta_factor=1.02,
    peer_factor={NEW.name: 1.02},
)


def record_all(folder: Path, device: DeviceRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every experiment at 8192³ as exports in `folder`, the way `experiment.py` names them."""
    hasten(monkeypatch, draw=False)
    monkeypatch.setattr(GpuClient, "with_telemetry", lambda self, taken: taken.sample)
    lab = Lab(folder, device, GemmProblem(8192, 8192, 8192))
    kernels: dict[str, Sequence[GemmConfig]] = {
        "labels": (),
        "interleave": (NEW,),
        "nvbench": nvbench_kernels([OLD], NEW),
        "settle": settle_kernels([OLD]),
    }
    for name in NAMES:
        more = {"repetitions": 20} if name == "labels" else {}
        budget_s = 10.0 if name == "settle" else 1000.0
        chosen = kernels.get(name, (OLD, NEW))
        lab.run(name, H200_SCRIPT, chosen, DEFAULT_REGIMES[name], budget_s, **more)
        (folder / f"{name}.sqlite").unlink()
