"""The study from end to end: with a GPU the measured half, without one the static half."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cutlass_study.cache import KernelCache
from cutlass_study.compile import Job
from cutlass_study.footprint import fit_entries
from cutlass_study.gpus import GpuLimits, limits_of
from cutlass_study.plan import Plan, make_plan
from cutlass_study.prepare import Prepared, compilations, judge, prepare
from cutlass_study.published import export, write_static
from cutlass_study.records import DeviceRecord
from cutlass_study.render import RenderReport, render_all
from cutlass_study.reporter import Reporter
from cutlass_study.results import ResultsStore
from cutlass_study.space import Axes, Entry, entries
from cutlass_study.study_data import load
from cutlass_study.sweep import Sweep, with_controls
from cutlass_study.sweep_options import SweepOptions
from cutlass_study.worker import Worker

# Dense FP16 FLOP/clk/SM with FP32 accumulate, by device name. Sources: H100/H200 4096 and
# L4/L40S 1024, NVIDIA H100 and Ada architecture white papers; GeForce Ada has half its rate.
PEAK_FLOP_PER_CLK_SM = (
    (r"H100|H200|GH200", 4096.0),
    (r"\bL4\b|L40", 1024.0),
    (r"RTX 40\d\d", 512.0),
)


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line asked for, already checked."""

    preset: str | None
    axes: Axes
    options: SweepOptions
    cache: KernelCache
    workers: int | None = None


def peak_flop_per_clk_sm(device_name: str) -> float | None:
    """Documented tensor rate per clock and SM of a named device; `None` if not tabulated."""
    for pattern, rate in PEAK_FLOP_PER_CLK_SM:
        if re.search(pattern, device_name):
            return rate
    return None


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

    @property
    def useful(self) -> bool:
        """Whether every verified row has valid samples, and there is at least one."""
        return self.outcomes["ok"] > 0 and self.outcomes["no_valid_samples"] == 0


def open_store(results: Path, device: DeviceRecord, request: Request) -> ResultsStore:
    """The results store of this run; raises `EnvironmentProblem` before any work is done."""
    options = request.options
    return ResultsStore.open(
        results, device, resume=options.resume, arguments=sys.argv[1:], seed=options.inputs.seed
    )


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
    try:
        Sweep(worker, store, request.options, reporter).run(items)
    finally:
        export(
            store,
            directory,
            planned=len(items),
            peak_flop_per_clk_sm=peak_flop_per_clk_sm(device.name),
        )
    data = load(directory)
    return Measurement(
        Counter(data.results["outcome"].astype(str)),
        directory,
        render_all(data, directory / "report"),
    )
