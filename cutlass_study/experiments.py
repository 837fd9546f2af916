"""The experiments: what each asks, and how its rows are measured on one GPU.

Four are sweeps over `experiment_cases` rows; `interleave`, `nvbench` and `settle` measure in ways
of their own. Each leaves a published folder whose device.json names the experiment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cutlass_study import experiment_cases as cases
from cutlass_study.cache import KernelCache
from cutlass_study.conditions import QUESTIONS, Name
from cutlass_study.config import GemmConfig, GemmProblem
from cutlass_study.experiment_cases import Case
from cutlass_study.gpu_client import ProblemLost
from cutlass_study.gpus import limits_from
from cutlass_study.measure_special import run_interleave, run_nvbench, run_settle
from cutlass_study.plan import make_plan
from cutlass_study.prepare import Prepared, compilations, judge, prepare
from cutlass_study.published import export
from cutlass_study.records import DeviceRecord, Regime
from cutlass_study.render import render_all
from cutlass_study.reporter import Reporter
from cutlass_study.results import ResultsStore
from cutlass_study.settling import SPAN_S
from cutlass_study.study import (
    Measurement,
    count_outcomes,
    measure_ceilings,
    peak_rate,
    start_telemetry,
)
from cutlass_study.study_data import load
from cutlass_study.sweep import Sweep
from cutlass_study.sweep_options import SweepOptions
from cutlass_study.worker import Worker

DEFAULT_REGIMES: dict[Name, tuple[Regime, ...]] = {
    "inputs": ("burst", "sustained"),
    "alphabeta": ("burst", "sustained"),
    "cache": ("burst",),
    "labels": ("burst",),
    "interleave": ("burst",),
    "nvbench": ("burst",),
    "settle": ("sustained",),
}
LEAST_VISITS = 2  # of a kernel in `settle`: a spread needs two
OPEN_AT_ONCE: dict[Name, int] = {"inputs": 4, "alphabeta": 2, "interleave": 2}  # else 1


@dataclass(frozen=True, slots=True)
class Experiment:
    """An experiment with everything chosen. `kernels` are CUTLASS's; cuBLAS is always there."""

    name: Name
    problem: GemmProblem
    kernels: tuple[GemmConfig, ...]
    options: SweepOptions
    labels: int = 8
    repetitions: int = 20

    def cases(self) -> list[Case]:
        """Its rows."""
        if self.name == "labels":
            return [
                case
                for repetition in range(1, self.repetitions + 1)
                for case in cases.label_cases(self.problem, self.labels, repetition)
            ]
        makers = {
            "inputs": cases.inputs_cases,
            "alphabeta": cases.alphabeta_cases,
            "cache": cases.cache_cases,
            "interleave": cases.interleave_cases,
            "nvbench": cases.nvbench_cases,
            "settle": cases.settle_cases,
        }
        return list(makers[self.name](self.kernels, self.problem))


def compiled(
    experiment: Experiment,
    device: DeviceRecord,
    cache: KernelCache,
    workers: int | None,
    reporter: Reporter,
) -> list[Prepared]:
    """The experiment's rows, compiled, each with its own inputs and condition."""
    wanted = experiment.cases()
    entries = list(dict.fromkeys(case.entry for case in wanted))
    limits, inputs = limits_from(device), experiment.options.inputs
    reporter.stage(f"compile for {limits.arch}", len(compilations(entries, limits)))
    found = prepare(
        entries, limits, cache, inputs, workers=workers, on_done=lambda job, build: reporter.step()
    )
    return cases.as_rows(wanted, found, device.arch, inputs)


def plan_lines(experiment: Experiment, device: DeviceRecord, cache: KernelCache) -> list[str]:
    """What will be done and how long it may take, for the person."""
    wanted = experiment.cases()
    entries = list(dict.fromkeys(case.entry for case in wanted))
    limits, options = limits_from(device), experiment.options
    judged = {item.entry: item for item in judge(entries, limits, options.inputs)}
    items = [judged[case.entry] for case in wanted]
    plan = make_plan(items, compilations(entries, limits), cache, options, device)
    kernels = ", ".join(config.name for config in experiment.kernels) or "none"
    about = f"experiment {experiment.name}: {QUESTIONS[experiment.name]}"
    return [about, f"CUTLASS and hand-written kernels: {kernels}", *plan.lines()]


def _measure(
    sweep: Sweep,
    items: Sequence[Prepared],
    experiment: Experiment,
    store: ResultsStore,
    reporter: Reporter,
) -> None:
    """The experiment's rows, each kind in its own way."""
    options = experiment.options
    match experiment.name:
        case "labels":  # one sweep after the other: repetitions are independent of each other
            size = experiment.labels + 1
            for first in range(0, len(items), size):
                sweep.run(items[first : first + size])
        case "interleave":
            run_interleave(sweep, items, store, reporter, options.inputs.seed)
        case "nvbench":
            run_nvbench(sweep, items, store, reporter)
        case "settle":
            visits = max(LEAST_VISITS, int(options.budget_s / SPAN_S))
            run_settle(sweep, items, store, reporter, visits, options.inputs.seed)
        case _:
            sweep.run(items, together=experiment.name in ("inputs", "alphabeta"))


def _record_lost(items: Sequence[Prepared], store: ResultsStore, lost: ProblemLost) -> None:
    """What has no outcome yet can't run, because its problem can't be opened."""
    known = {row.identity for row in store.outcomes()}
    with store.batch():
        for item in items:
            if item.row.identity not in known:
                store.add_outcome(replace(item.row, outcome=lost.outcome, reason=str(lost)))


def run(
    experiment: Experiment,
    items: Sequence[Prepared],
    worker: Worker,
    store: ResultsStore,
    directory: Path,
    reporter: Reporter,
) -> Measurement:
    """Measure the rows, export them and draw the experiment's table and figure.

    What an interrupted experiment has measured is exported before the interruption goes on.
    """
    device = store.device()
    telemetry = start_telemetry(device, reporter)
    try:
        measure_ceilings(worker, store, reporter)
        sweep = Sweep(worker, store, experiment.options, reporter, telemetry)
        _measure(sweep, items, experiment, store, reporter)
    except ProblemLost as lost:
        _record_lost(items, store, lost)
        reporter.message(str(lost))
    finally:
        telemetry.stop()
        if store.outcomes():  # else an earlier export is worth more than an empty one
            export(
                store,
                directory,
                planned=len(items),
                peak_flop_per_clk_sm=peak_rate(store),
                experiment=experiment.name,
            )
    data = load(directory)
    report = render_all(data, directory / "report")
    return Measurement(count_outcomes(data), directory, report, data.complete)


def fitted(name: Name, extent: int, device: DeviceRecord) -> GemmProblem:
    """N³, or the largest cube of which the experiment's problems fit into memory together."""
    wanted = GemmProblem(extent, extent, extent)
    most = replace(wanted, beta=1.0) if name == "alphabeta" else wanted
    fit = cases.fitting(most, device.memory_bytes, OPEN_AT_ONCE.get(name, 1))
    return GemmProblem(fit.m, fit.n, fit.k)
