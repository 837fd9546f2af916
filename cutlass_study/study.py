"""The study from end to end: with a GPU the measured half, without one the static half."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cutlass_study import peaks
from cutlass_study.axes import Axes
from cutlass_study.cache import KernelCache
from cutlass_study.chosen_space import entries
from cutlass_study.compile import Job
from cutlass_study.config import UsageError
from cutlass_study.footprint import fit_entries
from cutlass_study.gpus import GpuLimits, limits_of
from cutlass_study.plan import Plan, make_plan
from cutlass_study.prepare import Prepared, compilations, judge, prepare
from cutlass_study.published import export, write_static
from cutlass_study.records import DeviceRecord
from cutlass_study.render import RenderReport, render_all
from cutlass_study.reporter import Reporter
from cutlass_study.results import ResultsStore
from cutlass_study.space import Entry
from cutlass_study.study_data import StudyData, load
from cutlass_study.sweep import Sweep, with_controls
from cutlass_study.sweep_options import SweepOptions
from cutlass_study.telemetry import Nvml, TelemetryLog
from cutlass_study.worker import Worker, WorkerFailure

CEILINGS_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line asked for, already checked."""

    preset: str | None
    axes: Axes
    options: SweepOptions
    cache: KernelCache
    workers: int | None = None


def peak_rate(store: ResultsStore) -> float | None:
    """FLOP/clk/SM with FP32 accumulate: as measured on this card, else as documented for it."""
    measured = peaks.peak_flop_per_clk_sm(store.ceilings())
    return measured or peaks.nominal_flop_per_clk_sm(store.device().name)


def slug(device_name: str) -> str:
    """`NVIDIA GeForce RTX 4060` → `geforce-rtx-4060`: a folder's name."""
    words = re.sub(r"[^a-z0-9]+", "-", device_name.lower().removeprefix("nvidia")).strip("-")
    return words or "gpu"


def compiled(
    request: Request, found: Sequence[Entry], limits: GpuLimits, reporter: Reporter
) -> list[Prepared]:
    """Compile what `found` needs on one arch, with progress."""
    jobs = compilations(found, limits)
    reporter.stage(f"compile for {limits.arch}", len(jobs))
    return prepare(
        found,
        limits,
        request.cache,
        request.options.inputs,
        workers=request.workers,
        on_done=lambda job, build: reporter.step(),
    )


def static_plan(request: Request, archs: Sequence[str]) -> Plan:
    """The plan of the static half on several archs."""
    items: list[Prepared] = []
    jobs: list[Job] = []
    for arch in archs:
        found = entries(request.preset, request.axes, arch)
        items += judge(found, limits_of(arch), request.options.inputs)
        jobs += compilations(found, limits_of(arch))
    return make_plan(items, jobs, request.cache, None, None)


def static_half(request: Request, archs: Sequence[str], reporter: Reporter) -> list[Prepared]:
    """Feasibility, registers, shared memory and occupancy for each arch; measures nothing."""
    items: list[Prepared] = []
    for arch in archs:
        found = entries(request.preset, request.axes, arch)
        items += compiled(request, found, limits_of(arch), reporter)
    return items


def publish_static(items: Sequence[Prepared], directory: Path) -> RenderReport:
    """Write the static records, then their tables and figures beside them."""
    write_static([item.row for item in items], directory)
    return render_all(load(directory), directory / "report")


@dataclass(frozen=True, slots=True)
class Measurement:
    """What a measured sweep left behind."""

    outcomes: Counter[str]
    directory: Path
    report: RenderReport
    complete: bool

    @property
    def useful(self) -> bool:
        """Whether the sweep is finished, with at least one row and valid samples for each."""
        invalid = self.outcomes["no_valid_samples"]
        return self.outcomes["ok"] > 0 and invalid == 0 and self.complete


def open_store(results: Path, device: DeviceRecord, request: Request) -> ResultsStore:
    """The results store of this run; raises `EnvironmentProblem` before any work is done.

    Raises `UsageError` if the runs to be resumed replayed graphs otherwise: a row's samples are of
    one kind.
    """
    options = request.options
    store = ResultsStore.open(
        results, device, resume=options.resume, arguments=sys.argv[1:], seed=options.inputs.seed
    )
    for run in store.runs():
        used = _graphs_of(run.arguments)
        if used != options.graphs:
            store.close()
            raise UsageError(
                f"--graphs {options.graphs} can't resume a sweep that ran with --graphs {used}; "
                f"give --graphs {used}, or leave out --resume"
            )
    return store


def _graphs_of(arguments: Sequence[str]) -> str:
    """What `--graphs` was, in either of its forms."""
    joined = re.search(r"--graphs[= ](\S+)", " ".join(arguments))
    return joined[1] if joined else "auto"


def measured_entries(
    request: Request, device: DeviceRecord, say: Callable[[str], None]
) -> list[Entry]:
    """The entries for this GPU; problems too large for its memory shrink, and it is said."""
    found, messages = fit_entries(
        entries(request.preset, request.axes, device.arch), int(device.memory_bytes * 0.9)
    )
    for message in messages:
        say(message)
    return found


def measured_plan(
    request: Request, found: Sequence[Entry], limits: GpuLimits, device: DeviceRecord
) -> Plan:
    """The plan of a sweep on this GPU."""
    items = judge(found, limits, request.options.inputs)
    return make_plan(items, compilations(found, limits), request.cache, request.options, device)


def measure_ceilings(worker: Worker, store: ResultsStore, reporter: Reporter) -> None:
    """Measure and record the card's own peaks; a failure costs the shares of peak, no more."""
    reporter.stage("measure the card's peaks", 1)
    try:
        store.add_ceilings(worker.request("ceilings", timeout_s=CEILINGS_TIMEOUT_S))
    except WorkerFailure as failure:
        reporter.message(f"the card's peaks are not measured: {failure}")


def start_telemetry(device: DeviceRecord, reporter: Reporter) -> TelemetryLog:
    """Begin to log the card; say so if other programs compute on it while ours measures."""
    nvml = Nvml(device.uuid)
    others = nvml.other_processes()
    if others:
        reporter.message(
            f"{others} other process{'es' if others > 1 else ''} may compute on this GPU and "
            "disturb the measurement; nvidia-smi lists them"
        )
    return TelemetryLog(nvml.read)


def measure(
    request: Request,
    found: Sequence[Entry],
    limits: GpuLimits,
    worker: Worker,
    store: ResultsStore,
    directory: Path,
    reporter: Reporter,
) -> Measurement:
    """Compile, verify and measure everything, then export it and draw its tables and figures.

    An interrupted sweep is exported as far as it came, marked incomplete, before the interruption
    goes on.
    """
    device = store.device()
    items = compiled(request, found, limits, reporter)
    items = with_controls(items, device.arch, request.options.inputs)
    telemetry = start_telemetry(device, reporter)
    try:
        measure_ceilings(worker, store, reporter)
        Sweep(worker, store, request.options, reporter, telemetry).run(items)
    finally:
        telemetry.stop()
        if store.outcomes():  # else an earlier export is worth more than an empty one
            export(store, directory, planned=len(items), peak_flop_per_clk_sm=peak_rate(store))
    data = load(directory)
    report = render_all(data, directory / "report")
    return Measurement(count_outcomes(data), directory, report, data.complete)


def count_outcomes(data: StudyData) -> Counter[str]:
    """How many rows ended how."""
    return Counter(data.results["outcome"].astype(str))
