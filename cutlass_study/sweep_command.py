"""What `scripts/sweep.py` does with its options: list, compile, or run the whole study."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from cutlass_study.axes import Axes
from cutlass_study.chosen_space import entries
from cutlass_study.config import UsageError
from cutlass_study.gpus import limits_from, limits_of
from cutlass_study.listing import render
from cutlass_study.prepare import Inputs, Prepared, judge
from cutlass_study.project import project_folder
from cutlass_study.records import DeviceRecord, Distribution, EnvironmentProblem, Regime
from cutlass_study.regimes import GRAPHS
from cutlass_study.sweep_options import SweepOptions

if TYPE_CHECKING:  # what only the longer ways need is imported there: --list answers at once
    from cutlass_study.render import RenderReport
    from cutlass_study.study import Request
    from cutlass_study.worker import Worker

STATIC_ARCHS = ("sm_89", "sm_90a")  # Ada and Hopper, what the documents speak of
DISTRIBUTIONS = ("uniform", "normal", "integers", "zeros")
REGIMES: dict[str, tuple[Regime, ...]] = {
    "burst": ("burst",),
    "sustained": ("sustained",),
    "both": ("burst", "sustained"),
}
# A burst sample is a tenth work and else gap: kernels whose launches scatter by percents need 350.
DEFAULT_BUDGET_S, QUICK_BUDGET_S = 25.0, 3.0
STORE_NAME = "study.sqlite"


@dataclass(frozen=True, slots=True)
class SweepCall:
    """The options as given; what is wrong with them raises `UsageError` here."""

    preset: str | None
    axes: Axes
    archs: tuple[str, ...] = ()
    regime: str | None = None
    distribution: str = "uniform"
    seed: int = 0
    time_budget_s: float | None = None
    allow_long_launches: bool = False
    graphs: str = "auto"
    workers: int | None = None
    cache_dir: Path | None = None
    results: Path | None = None
    resume: bool = False
    export: Path | None = None
    dry_run: bool = False

    def __post_init__(self) -> None:
        for arch in self.archs:
            limits_of(arch)
        if self.distribution not in DISTRIBUTIONS:
            raise UsageError(
                f"distribution '{self.distribution}' is not known; use one of: "
                f"{', '.join(DISTRIBUTIONS)}"
            )
        if self.regime is not None and self.regime not in REGIMES:
            raise UsageError(
                f"regime '{self.regime}' is not known; use one of: {', '.join(REGIMES)}"
            )
        if self.graphs not in GRAPHS:
            raise UsageError(
                f"graphs '{self.graphs}' is not known; use one of: {', '.join(GRAPHS)}"
            )
        if self.time_budget_s is not None and not 0 < self.time_budget_s < 1e6:
            raise UsageError(
                f"time budget {self.time_budget_s:g} s must be above 0 and below 1e6, such as "
                f"{DEFAULT_BUDGET_S:g}"
            )
        if self.workers is not None and self.workers < 1:
            raise UsageError(f"workers {self.workers} must be at least 1")
        if not 0 <= self.seed < 2**63:
            raise UsageError(f"seed {self.seed} must be from 0 to 2^63 - 1")
        self._check_space()

    def _check_space(self) -> None:
        """TMA and WGMMA by hand on plain sm_90 can only be a slip of the pen."""
        if "sm_90" in self.archs and "sm90" in self.axes.families():
            raise UsageError(
                "arch 'sm_90' compiles TMA and WGMMA kernels to stubs; give sm_90a for family sm90"
            )
        for arch in self.archs or STATIC_ARCHS:
            entries(self.preset, self.axes, arch)

    @property
    def options(self) -> SweepOptions:
        """How to measure, with the preset's defaults."""
        return SweepOptions(
            REGIMES[self.regime or ("both" if self.preset == "paper" else "burst")],
            Inputs(cast("Distribution", self.distribution), self.seed),
            self.time_budget_s or (QUICK_BUDGET_S if self.preset == "quick" else DEFAULT_BUDGET_S),
            self.allow_long_launches,
            self.resume,
            self.graphs,
        )


def check_form(word: str) -> str:
    """The form of a listing; raises `UsageError` for another word."""
    if word not in ("csv", "json"):
        raise UsageError(f"format '{word}' is not known; use one of: csv, json")
    return word


def listing(call: SweepCall, form: str) -> str:
    """Every configuration with its feasibility, as CSV or JSON. Loads nothing of CUDA."""
    items: list[Prepared] = []
    for arch in call.archs or STATIC_ARCHS:
        found = entries(call.preset, call.axes, arch)
        items += judge(found, limits_of(arch), call.options.inputs)
    return render(items, check_form(form), compiled=False)


def static_listing(call: SweepCall, form: str) -> str:
    """The same rows with what compiling tells; of a dry run the plan alone, to stderr."""
    from cutlass_study import study
    from cutlass_study.reporter import TerminalReporter

    check_form(form)
    request, archs = _request(call), call.archs or STATIC_ARCHS
    if call.dry_run:
        _say_static_plan(request, archs)
        return ""
    with TerminalReporter() as reporter:
        items = study.static_half(request, archs, reporter)
    return render(items, form, compiled=True)


def _request(call: SweepCall) -> Request:
    from cutlass_study.cache import KernelCache
    from cutlass_study.study import Request

    return Request(call.preset, call.axes, call.options, KernelCache(call.cache_dir), call.workers)


def say(text: str) -> None:
    """A line for the person, not for the pipe."""
    print(text, file=sys.stderr, flush=True)


def output_folder() -> Path:
    """`results/` of the project, or the user's data folder where that can't be written."""
    import platformdirs

    candidate = (project_folder() or Path.cwd()) / "results"
    try:
        candidate.mkdir(exist_ok=True)
        (candidate / ".writable").touch()
        (candidate / ".writable").unlink()
    except OSError as error:
        fallback = Path(platformdirs.user_data_dir("cutlass-study", False)) / "results"
        say(f"'{candidate}' can't be written ({error.strerror}): results go to '{fallback}'")
        return fallback
    return candidate


class NoGpu(EnvironmentProblem):
    """There is no GPU to measure on."""


def start_worker() -> tuple[Worker, DeviceRecord]:
    """The GPU process and its device.

    Raises `NoGpu`, or another `EnvironmentProblem` if the process can't start.
    """
    from cutlass_study.worker import Worker, WorkerFailure

    worker = Worker()
    try:
        worker.begin()
        importlib.import_module("cutlass_study.study")  # a second's work, while the child starts
        device: DeviceRecord = worker.request("describe", timeout_s=60)
    except EnvironmentProblem as problem:
        raise NoGpu(str(problem)) from problem
    except WorkerFailure as failure:
        raise EnvironmentProblem(
            f"the GPU process could not start: {failure}; scripts/doctor.py looks for the cause"
        ) from failure
    except BaseException:
        worker.stop()
        raise
    return worker, device


def run(call: SweepCall) -> int:
    """The whole study; returns the exit code. Without a GPU: the static half."""
    try:
        worker, device = start_worker()
    except NoGpu as problem:
        say(f"{problem}.\nNothing is measured: this is the static half for "
            f"{' and '.join(call.archs or STATIC_ARCHS)}.")  # fmt: skip
        return _run_static(call)
    with worker:
        if call.archs and call.archs != (device.arch,):
            raise UsageError(
                f"arch {','.join(call.archs)} can't be measured on {device.name} ({device.arch}); "
                "use --static or --list for it"
            )
        return _run_measured(call, worker, device)


def run_interleaved(call: SweepCall) -> int:
    """cuBLAS and the best CUTLASS kernel taking turns on two streams; returns the exit code."""
    from cutlass_study.experiment_command import ExperimentCall
    from cutlass_study.experiment_command import run as run_experiment

    problem, *others = call.axes.problems()
    if others or len(set(problem.shape)) > 1 or call.preset not in (None, "paper"):
        raise UsageError("--interleave takes one square --problem and no preset or other axis")
    if call.axes != Axes(problem=call.axes.problem):
        raise UsageError("--interleave takes one square --problem and no other axis")
    return run_experiment(
        ExperimentCall(
            "interleave", problem.n, call.regime, seed=call.seed, workers=call.workers,
            cache_dir=call.cache_dir, results=call.results, export=call.export,
            dry_run=call.dry_run,
        )
    )  # fmt: skip


def _run_static(call: SweepCall) -> int:
    from cutlass_study import study
    from cutlass_study.export_folder import check_export_folder
    from cutlass_study.reporter import TerminalReporter

    request, archs = _request(call), call.archs or STATIC_ARCHS
    _say_static_plan(request, archs)
    if call.dry_run:
        return 0
    directory = call.export or output_folder() / "static"
    check_export_folder(directory, None)
    with TerminalReporter() as reporter:
        items = study.static_half(request, archs, reporter)
    report = study.publish_static(items, directory)
    say(f"compiled, nothing measured: {len(items)} rows")
    print_files(directory, report)
    return static_exit_code(items)


def _say_static_plan(request: Request, archs: Sequence[str]) -> None:
    from cutlass_study import study

    for line in study.static_plan(request, archs).lines():
        say(line)


def static_exit_code(items: Sequence[Prepared]) -> int:
    """Say how the rows ended and which did not compile.

    1 if another run on this machine may compile more, or if nothing is left to measure.
    """
    from cutlass_study.compile import is_passing

    counts = Counter[str](item.row.outcome for item in items)
    say(_counted(counts))
    failed = [item.row for item in items if item.row.outcome == "compile_failed"]
    for row in failed:
        say(f"not compiled: {row.identity.name} ({row.identity.arch}): {row.reason}")
    return 1 if not counts["ok"] or any(is_passing(row.reason) for row in failed) else 0


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))


def _run_measured(call: SweepCall, worker: Worker, device: DeviceRecord) -> int:
    from cutlass_study import study
    from cutlass_study.export_folder import check_export_folder
    from cutlass_study.gpu_lock import measuring_alone
    from cutlass_study.reporter import TerminalReporter

    request, limits = _request(call), limits_from(device)
    say(f"{device.name} ({device.arch}), driver {device.driver_version}")
    found = study.measured_entries(request, device, say)
    for line in study.measured_plan(request, found, limits, device).lines():
        say(line)
    if call.dry_run:
        return 0
    results = call.results or output_folder() / STORE_NAME
    directory = call.export or output_folder() / study.slug(device.name)
    check_export_folder(directory, device)
    with (
        measuring_alone(device, say),
        study.open_store(results, device, request) as store,
        TerminalReporter() as reporter,
    ):
        done = study.measure(request, found, limits, worker, store, directory, reporter)
    say(_counted(done.outcomes))
    print_files(directory, done.report)
    return 0 if done.useful else 1


def print_files(directory: Path, report: RenderReport) -> None:
    """The folder and its files to stdout, what is missing to stderr."""
    print(directory)
    for path in (*report.tables, *report.figures, *report.captions):
        print(path)
    for name, why in report.left_out:
        say(f"left out: {name}: {why}")
