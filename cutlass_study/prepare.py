"""The static half: entries → legality → compiled kernels → resources, occupancy, duplicates.

Needs no GPU. The sweep measures what is left `pending`; without a GPU this is all there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from cutlass_study.cache import KernelBuild, KernelCache
from cutlass_study.compile import Job, compile_kernels
from cutlass_study.families import FrontEnd, infeasible_reason, source
from cutlass_study.gpus import GpuLimits
from cutlass_study.occupancy import occupancy
from cutlass_study.records import Distribution, Identity, Occupancy, Outcome, Resources, RowOutcome
from cutlass_study.space import Entry

OnDone = Callable[[Job, KernelBuild], None]


@dataclass(frozen=True, slots=True)
class Prepared:
    """An entry after its static half. `row` is final if `pending` is false."""

    entry: Entry
    row: RowOutcome
    pending: bool
    build: KernelBuild | None = None


@dataclass(frozen=True, slots=True)
class Inputs:
    """Which inputs the rows are about; recorded in every identity."""

    distribution: Distribution = "uniform"
    seed: int = 0


def judge(entries: Iterable[Entry], limits: GpuLimits, inputs: Inputs) -> list[Prepared]:
    """Apply the legality rules; what passes is pending."""
    judged = []
    for entry in entries:
        identity = Identity(
            entry.config, entry.problem, limits.arch, inputs.distribution, inputs.seed
        )
        reason = infeasible_reason(entry.config, entry.problem, limits)
        outcome: Outcome = "infeasible" if reason else "ok"
        judged.append(Prepared(entry, RowOutcome(identity, outcome, reason or ""), reason is None))
    return judged


def _jobs(judged: Iterable[Prepared], arch: str, front_end: FrontEnd) -> dict[Entry, Job]:
    jobs = {}
    for item in judged:
        unit = source(item.entry.config, item.entry.problem, front_end) if item.pending else None
        if unit is not None:
            jobs[item.entry] = Job(item.entry.config.family, arch, unit)
    return jobs


def _no_residency(resources: Resources, limits: GpuLimits) -> str:
    total = resources.registers * resources.threads
    return (
        f"needs {resources.threads} threads of {resources.registers} registers "
        f"({total}), limit {limits.registers_per_sm} per SM"
    )


def _with_build(item: Prepared, build: KernelBuild, limits: GpuLimits) -> Prepared:
    row = replace(item.row, build_key=build.record.key)
    resources = build.record.resources
    if resources is None:
        failed = replace(row, outcome="compile_failed", reason=build.error or "no message")
        return replace(item, row=failed, pending=False, build=build)
    resident: Occupancy = occupancy(
        resources.registers, resources.smem_bytes, resources.threads, limits
    )
    row = replace(row, resources=resources, occupancy=resident)
    if resident.ctas_per_sm == 0:
        row = replace(row, outcome="infeasible", reason=_no_residency(resources, limits))
        return replace(item, row=row, pending=False, build=build)
    return replace(item, row=row, build=build)


def _mark_duplicates(items: Iterable[Prepared]) -> list[Prepared]:
    """A kernel with the code, memory and launch of an earlier one on the same problem is it."""
    first: dict[tuple[object, ...], str] = {}
    marked = []
    for item in items:
        resources, config = item.row.resources, item.entry.config
        if item.pending and resources is not None:
            key = (item.entry.problem, resources.code_hash, resources.smem_bytes,
                   resources.threads, config.swizzle, config.split_k, config.raster)  # fmt: skip
            original = first.setdefault(key, item.row.identity.name)
            if original != item.row.identity.name:
                reason = f"compiles to the same code as {original}"
                row = replace(item.row, outcome="duplicate", reason=reason)
                item = replace(item, row=row, pending=False)
        marked.append(item)
    return marked


def prepare(
    entries: Iterable[Entry],
    limits: GpuLimits,
    cache: KernelCache,
    inputs: Inputs,
    *,
    front_end: FrontEnd = "templates",
    workers: int | None = None,
    on_done: OnDone = lambda job, build: None,
) -> list[Prepared]:
    """Judge, compile and describe every entry, in the order given.

    Raises `EnvironmentProblem` if something must be compiled and there is no toolchain.
    """
    judged = judge(entries, limits, inputs)
    jobs = _jobs(judged, limits.arch, front_end)
    builds = compile_kernels(jobs.values(), cache, workers=workers, on_done=on_done) if jobs else {}
    built = [
        _with_build(item, builds[jobs[item.entry]], limits) if item.entry in jobs else item
        for item in judged
    ]
    return _mark_duplicates(built)


def compilations(
    entries: Iterable[Entry], limits: GpuLimits, front_end: FrontEnd = "templates"
) -> list[Job]:
    """One job per entry that `prepare` would have to compile (equal sources count each time)."""
    return list(_jobs(judge(entries, limits, Inputs()), limits.arch, front_end).values())
