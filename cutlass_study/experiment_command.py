"""What `scripts/experiment.py` does with its options."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from cutlass_study.conditions import NAMES, Name
from cutlass_study.config import MAX_EXTENT, GemmConfig, UsageError
from cutlass_study.prepare import Inputs
from cutlass_study.project import project_folder
from cutlass_study.records import DeviceRecord, EnvironmentProblem
from cutlass_study.sweep_command import (
    DEFAULT_BUDGET_S,
    REGIMES,
    output_folder,
    print_files,
    say,
    start_worker,
)
from cutlass_study.sweep_options import SweepOptions

if TYPE_CHECKING:
    from cutlass_study.experiments import Experiment
    from cutlass_study.worker import Worker

# What they look for needs no narrow intervals; four spans a kernel tell how it settles.
OWN_BUDGET_S = {"labels": 3.0, "cache": 3.0, "settle": 10.0}
ONE_REGIME = {"interleave": "burst", "nvbench": "burst", "settle": "sustained"}
MOST_LABELS = 64


@dataclass(frozen=True, slots=True)
class ExperimentCall:
    """The options as given; what is wrong with them raises `UsageError` here."""

    name: str
    n: int = 8192
    regime: str | None = None
    time_budget_s: float | None = None
    seed: int = 0
    config: str | None = None
    data: Path | None = None
    labels: int = 8
    repetitions: int = 20
    workers: int | None = None
    cache_dir: Path | None = None
    results: Path | None = None
    export: Path | None = None
    dry_run: bool = False

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise UsageError(
                f"experiment '{self.name}' is not known; use one of: {', '.join(NAMES)}"
            )
        if self.regime is not None and self.regime not in REGIMES:
            raise UsageError(
                f"regime '{self.regime}' is not known; use one of: {', '.join(REGIMES)}"
            )
        only = ONE_REGIME.get(self.name)
        if only is not None and self.regime not in (None, only):
            raise UsageError(f"experiment {self.name} has one way of measuring; leave out --regime")
        if not 64 <= self.n <= MAX_EXTENT or self.n % 64:
            raise UsageError(f"N={self.n} must be a multiple of 64 from 64 on, such as 8192")
        if self.name == "cache" and self.n != 8192:
            raise UsageError("experiment cache has sizes of its own; leave out --n")
        if self.time_budget_s is not None and not 0 < self.time_budget_s < 1e6:
            raise UsageError(
                f"time budget {self.time_budget_s} s must be above 0, such as {DEFAULT_BUDGET_S:g}"
            )
        if self.workers is not None and self.workers < 1:
            raise UsageError(f"workers {self.workers} must be at least 1")
        if not 0 <= self.seed < 2**63 - 1:
            raise UsageError(f"seed {self.seed} must be from 0 to 2^63 - 2")
        if not 2 <= self.labels <= MOST_LABELS or self.repetitions < 1:
            raise UsageError(
                f"labels {self.labels} and repetitions {self.repetitions}: give 2 to "
                f"{MOST_LABELS} labels and at least 1 repetition"
            )
        if self.config is not None and self.name == "labels":
            raise UsageError("experiment labels compares cuBLAS with itself; leave out --config")


def _kernels(call: ExperimentCall, device: DeviceRecord) -> tuple[GemmConfig, ...]:
    """The CUTLASS kernels: by name, else the best on record, else a list made beforehand."""
    from cutlass_study.best_kernels import best, named, recorded
    from cutlass_study.experiment_cases import nvbench_kernels, settle_kernels
    from cutlass_study.study import slug

    if call.name == "labels":
        return ()
    own = slug(device.name)
    project = project_folder() or Path.cwd()
    folders = [project / "paper" / "data" / own, project / "results" / own]
    data = recorded([call.data] if call.data else folders, device.name)
    if call.data and data is None:
        raise UsageError(f"'{call.data}' holds no sweep of {device.name}; give another --data")
    if call.config is not None:
        return (named(call.config, data, device.arch),)
    say(f"best kernels: {f'recorded in {data.directory}' if data else 'from the built-in list'}")
    # The study's size stands for the cache experiment's small ones: one kernel at all of them.
    extent = 4096 if call.name == "cache" else call.n
    sm80 = best(data, "sm80", device.arch, extent, 3 if call.name == "nvbench" else 1)
    sm90 = best(data, "sm90", device.arch, extent)
    if call.name == "nvbench":
        return tuple(nvbench_kernels(sm80, sm90[0] if sm90 else None))
    if call.name == "settle":
        return tuple(settle_kernels(sm80))
    return (*sm90, *sm80) if call.name == "interleave" else (*sm80, *sm90)


def chosen(call: ExperimentCall, device: DeviceRecord) -> Experiment:
    """The experiment with its kernels and problem chosen for this GPU."""
    from cutlass_study.experiments import DEFAULT_REGIMES, Experiment, fitted

    name = cast("Name", call.name)
    problem = fitted(name, call.n, device)
    if problem.n != call.n:
        say(f"N={call.n} does not fit into the GPU's memory: N={problem.n} is measured instead")
    options = SweepOptions(
        REGIMES[call.regime] if call.regime else DEFAULT_REGIMES[name],
        Inputs("uniform", call.seed),
        call.time_budget_s or OWN_BUDGET_S.get(name, DEFAULT_BUDGET_S),
    )
    kernels = _kernels(call, device)
    return Experiment(name, problem, kernels, options, call.labels, call.repetitions)


def conclusion(directory: Path) -> str:
    """What the experiment's table says under it, or why there is none."""
    from cutlass_study.experiment_tables import table
    from cutlass_study.study_data import load
    from cutlass_study.views import NothingToShow

    try:
        return table(load(directory)).caption
    except NothingToShow as nothing:
        return f"nothing to conclude: {nothing}"


def run(call: ExperimentCall) -> int:
    """The experiment; returns the exit code. Raises `EnvironmentProblem` without a GPU."""
    if call.name == "nvbench" and importlib.util.find_spec("cuda.bench") is None:
        raise EnvironmentProblem(
            "experiment nvbench needs the package cuda-bench (Linux): pip install '.[nvbench]'"
        )
    worker, device = start_worker()
    with worker:
        return _run_measured(call, worker, device)


def _run_measured(call: ExperimentCall, worker: Worker, device: DeviceRecord) -> int:
    from cutlass_study import experiments, study
    from cutlass_study.cache import KernelCache
    from cutlass_study.gpu_lock import measuring_alone
    from cutlass_study.reporter import TerminalReporter
    from cutlass_study.results import ResultsStore

    say(f"{device.name} ({device.arch}), driver {device.driver_version}")
    experiment, cache = chosen(call, device), KernelCache(call.cache_dir)
    for line in experiments.plan_lines(experiment, device, cache):
        say(line)
    if call.dry_run:
        return 0
    results = call.results or output_folder() / "experiments" / f"{call.name}.sqlite"
    own = output_folder() / study.slug(device.name) / "experiments" / call.name
    with (
        measuring_alone(device, say),
        ResultsStore.open(
            results, device, resume=False, arguments=sys.argv[1:], seed=call.seed
        ) as store,
        TerminalReporter() as reporter,
    ):
        items = experiments.compiled(experiment, device, cache, call.workers, reporter)
        done = experiments.run(experiment, items, worker, store, call.export or own, reporter)
    say(", ".join(f"{count} {outcome}" for outcome, count in sorted(done.outcomes.items())))
    say(conclusion(done.directory))
    print_files(done.directory, done.report)
    return 0 if done.useful else 1
