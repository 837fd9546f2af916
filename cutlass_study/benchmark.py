"""What the toolkit's own speed is: ratios and times of one run, each beside its goal.

Nothing here runs on a GPU. Times depend on the machine; the ratio of two compilers is taken kernel
by kernel within one run, so that another user's load meets both.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from cutlass_study import nvrtc
from cutlass_study.axes import Axes
from cutlass_study.chosen_space import entries
from cutlass_study.families import infeasible_reason, source
from cutlass_study.gpus import limits_of
from cutlass_study.presets import PRESETS
from cutlass_study.records import EnvironmentProblem
from cutlass_study.reporter import Reporter
from cutlass_study.sm80_source import SHARED_LIBRARY, template_source
from cutlass_study.sources import source_folder
from cutlass_study.space import Entry
from cutlass_study.sweep_command import STATIC_ARCHS
from cutlass_study.toolchain import Toolchain, find_toolchain

RATIO_GOAL = 4.0  # NVRTC with a warm header cache against nvcc
LIST_GOAL_S = 2.0
STATIC_GOAL_S = 180.0  # on 2 cores
LIST_RUNS = 3
PARTS = ("compilers", "list", "static")


@dataclass(frozen=True, slots=True)
class Finding:
    """One number with its goal; `at_least` says on which side of it the goal is met."""

    name: str
    value: float
    unit: str
    goal: float | None = None
    at_least: bool = False
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; `None` without a goal."""
        if self.goal is None:
            return None
        return self.value >= self.goal if self.at_least else self.value <= self.goal


def cores() -> int:
    """CPU cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextlib.contextmanager
def one_core() -> Iterator[bool]:
    """Bind this process and its children to one core; yields whether the system allows it."""
    process = psutil.Process()
    try:
        allowed = process.cpu_affinity()  # macOS has no affinity
        process.cpu_affinity(allowed[-1:])
    except (AttributeError, psutil.Error, OSError):
        yield False
        return
    try:
        yield True
    finally:
        process.cpu_affinity(allowed)


def sm80_entries(arch: str) -> list[Entry]:
    """One entry per distinct feasible `sm80` kernel of the `paper` preset."""
    limits = limits_of(arch)
    found = entries("paper", Axes(family=("sm80",)), arch)
    legal = (e for e in found if infeasible_reason(e.config, e.problem, limits) is None)
    return list({template_source(e.config, e.problem): e for e in legal}.values())


def host_toolchain() -> Toolchain:
    """The toolchain with nvcc and its host compiler; raises `EnvironmentProblem` without them."""
    toolchain = find_toolchain()
    if toolchain.host_problem is not None:
        raise EnvironmentProblem(
            f"comparing with nvcc needs nvcc and a C++ compiler: {toolchain.host_problem}"
        )
    return toolchain


def shared_library_command(
    toolchain: Toolchain, arch: str, source_file: Path, library: Path
) -> list[str]:
    """nvcc's command line from a source with `SHARED_LIBRARY` exports to a shared library."""
    assert toolchain.nvcc and toolchain.host_compiler
    number = arch.removeprefix("sm_")
    includes = (source_folder("instantiations"), *toolchain.include_paths)
    return [
        str(toolchain.nvcc.path), "-shared", "-Xcompiler", "-fPIC", "-std=c++17", "-DNDEBUG",
        "--expt-relaxed-constexpr", f"-gencode=arch=compute_{number},code=sm_{number}",
        "-ccbin", str(toolchain.host_compiler.path), *toolchain.nvcc.link_flags,
        *(f"-I{folder}" for folder in includes), "-o", str(library), str(source_file),
    ]  # fmt: skip


def build_shared_library(entry: Entry, arch: str, toolchain: Toolchain, folder: Path) -> float:
    """Seconds nvcc takes for `<folder>/gemm.so`; raises `EnvironmentProblem` if it can't build."""
    source_file = folder / "gemm.cu"
    source_file.write_text(template_source(entry.config, entry.problem, SHARED_LIBRARY))
    command = shared_library_command(toolchain, arch, source_file, folder / "gemm.so")
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    seconds = time.perf_counter() - start
    if done.returncode != 0:
        reason = nvrtc.first_error_line(done.stderr or done.stdout)
        raise EnvironmentProblem(f"nvcc can't build {entry.config.name}: {reason}")
    return seconds


def compile_once(entry: Entry, arch: str, header_cache: Path) -> float:
    """Seconds NVRTC takes for the cubin of an entry."""
    unit = source(entry.config, entry.problem)
    assert unit is not None
    return nvrtc.compile_cubin(unit, arch, header_cache).seconds


def compare_compilers(arch: str, reporter: Reporter) -> list[Finding]:
    """NVRTC with a warm header cache against nvcc -shared: the same kernels in turn on one core.

    Must be the first thing in a process that compiles: NVRTC's header heap is sized only once.
    """
    toolchain = host_toolchain()
    chosen = sm80_entries(arch)
    reporter.stage(f"NVRTC and nvcc, {arch}", len(chosen))
    nvrtc.prepare_header_cache()
    ours: list[float] = []
    theirs: list[float] = []
    with tempfile.TemporaryDirectory(prefix="cutlass-study-") as name, one_core() as bound:
        folder = Path(name)
        compile_once(chosen[0], arch, folder)  # makes the header cache
        build_shared_library(chosen[0], arch, toolchain, folder)  # headers are in the page cache
        for entry in chosen:
            ours.append(compile_once(entry, arch, folder))
            theirs.append(build_shared_library(entry, arch, toolchain, folder))
            reporter.step()
    ratios = [slow / fast for fast, slow in zip(ours, theirs, strict=True)]
    where = "one core" if bound else "one process, not bound to a core"
    span = f"{min(ratios):.1f} to {max(ratios):.1f}, {len(ratios)} kernels, {arch}, {where}"
    return [
        Finding("NVRTC, header cache warm", statistics.median(ours), "s/kernel"),
        Finding("nvcc -shared", statistics.median(theirs), "s/kernel"),
        Finding(
            "nvcc over NVRTC", statistics.median(ratios), "x", RATIO_GOAL, at_least=True, note=span
        ),
    ]


def _run(command: Sequence[str]) -> float:
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    seconds = time.perf_counter() - start
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise EnvironmentProblem(f"{Path(command[1]).name} failed: {last}")
    return seconds


def time_listing(sweep_script: Path, reporter: Reporter) -> list[Finding]:
    """Seconds of `--list` for every preset, interpreter start included; median of some runs."""
    reporter.stage("--list", len(PRESETS))
    findings = []
    for preset in PRESETS:
        command = [sys.executable, str(sweep_script), "--list", "--preset", preset]
        median = statistics.median(_run(command) for _ in range(LIST_RUNS))
        findings.append(Finding(f"--list --preset {preset}", median, "s", LIST_GOAL_S))
        reporter.step()
    return findings


def _compiled(cache: Path) -> set[tuple[str, int]]:
    """Entries of a kernel cache with the time they were written."""
    return {
        (path.parent.name, path.stat().st_mtime_ns)
        for path in cache.glob("[0-9a-f][0-9a-f]/*/build.json")
    }


def time_static(sweep_script: Path, reporter: Reporter) -> list[Finding]:
    """The `paper` preset's static half for Ada and Hopper, from an empty cache and again.

    Uses every core this process may use, and a cache folder of its own.
    """
    archs = ",".join(STATIC_ARCHS)
    reporter.stage("static half, empty and full cache", 2)
    cache = Path(tempfile.mkdtemp(prefix="cutlass-study-"))
    command = [sys.executable, str(sweep_script), "--static", "--preset", "paper", "--arch", archs,
               "--cache-dir", str(cache)]  # fmt: skip
    before = os.times()
    try:
        cold = _run(command)
        after = os.times()
        first = _compiled(cache)
        reporter.step()
        warm = _run(command)
        again = _compiled(cache) - first
        reporter.step()
    finally:
        shutil.rmtree(cache, ignore_errors=True)
    used = after.children_user + after.children_system - before.children_user
    used -= before.children_system
    note = f"{len(first)} kernels, {archs}, {cores()} cores"
    if used:  # Windows doesn't tell; far below cores times seconds: the machine was busy
        note += f", {used:.0f} s of CPU time"
    return [
        Finding("--static, empty cache", cold, "s", STATIC_GOAL_S, note=note),
        Finding("--static, full cache", warm, "s"),
        Finding("compiled with a full cache", len(again), "kernels", 0),
    ]


def run_parts(
    parts: Sequence[str], arch: str, sweep_script: Path, reporter: Reporter
) -> list[Finding]:
    """The findings of the chosen parts, in the order of `PARTS`.

    Raises `EnvironmentProblem` before any work if a chosen part can't be done here.
    """
    if "compilers" in parts:
        host_toolchain()
    makers: dict[str, Callable[[], list[Finding]]] = {
        "compilers": lambda: compare_compilers(arch, reporter),
        "list": lambda: time_listing(sweep_script, reporter),
        "static": lambda: time_static(sweep_script, reporter),
    }
    return [finding for part in PARTS if part in parts for finding in makers[part]()]
