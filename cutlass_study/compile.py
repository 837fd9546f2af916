"""Compile many kernels in parallel through NVRTC, into the cache.

Worker processes keep a precompiled header each, so a worker takes jobs of one family and arch. The
number of workers is capped by cores and by free memory.
"""

from __future__ import annotations

import functools
import hashlib
import json
import multiprocessing
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import psutil

from cutlass_study import nvrtc
from cutlass_study.cache import KernelBuild, KernelCache, tree_digest
from cutlass_study.cubin import BrokenCubin, read_resources
from cutlass_study.free_memory import available_bytes
from cutlass_study.nvrtc import CompileError, Source, compile_cubin
from cutlass_study.records import BuildRecord, EnvironmentProblem
from cutlass_study.toolchain import Toolchain, find_toolchain

# Peak resident memory of one worker, measured with NVRTC 13.0.88: what may run side by side.
WORKER_BYTES = {
    "sm80": 1_300 << 20, "sm90": 3_000 << 20, "wmma": 400 << 20, "simt": 400 << 20,
    "wgmma": 400 << 20,
}  # fmt: skip
# Seconds per kernel on one core of a 2024 server, header cache warm: for the plan only.
EXPECTED_SECONDS = {"sm80": 1.8, "sm90": 22.0, "wmma": 0.3, "simt": 0.4, "wgmma": 0.3}
_HEADER_SUFFIXES = (".h", ".hpp", ".cuh", ".inl")
# Faults of the run and not of the source: tried again, and never cached.
DIED = "the compiler process died"
UNUSABLE = "the compiler's output is unusable"
HINDERED = "this machine kept the compiler from working"
_SCRATCH = "cutlass-study-"
_header_cache: Path | None = None
Result = tuple[bytes | None, str, float, str | None]  # cubin, log, seconds, error


@dataclass(frozen=True, slots=True)
class Job:
    """One kernel to compile. `family` groups jobs that share a precompiled header."""

    family: str
    arch: str
    source: Source


_cutlass_digest = functools.cache(functools.partial(tree_digest, suffixes=_HEADER_SUFFIXES))


@functools.cache
def _header_text(folders: tuple[Path, ...], name: str) -> str | None:
    """The text of a header of ours, or `None` if it is CUTLASS's or CUDA's."""
    for folder in folders:
        if (folder / name).is_file():
            return (folder / name).read_text(encoding="utf-8")
    return None


def own_headers(text: str, folders: tuple[Path, ...]) -> dict[str, str]:
    """Every header of ours that a source includes, directly or through another one: name → text.

    So a change to one family's templates leaves the other families' cached kernels valid.
    """
    found: dict[str, str] = {}
    waiting = [text]
    while waiting:
        for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', waiting.pop(), re.MULTILINE):
            header = None if name in found else _header_text(folders, name)
            if header is not None:
                found[name] = header
                waiting.append(header)
    return found


def toolchain_name(toolchain: Toolchain) -> str:
    return f"nvrtc {toolchain.nvrtc.version} + CUDA headers {toolchain.cuda_version}"


def job_key(job: Job, toolchain: Toolchain) -> str:
    """The cache key: everything that determines the cubin, nothing that does not (no paths)."""
    folders = tuple(f for f in job.source.include_folders if f not in toolchain.include_paths)
    own = own_headers(job.source.text, folders)
    parts = [
        job.source.text,
        json.dumps(sorted(job.source.memory_headers)),
        " ".join((*nvrtc.BASE_OPTIONS, *job.source.options)),
        job.arch,
        toolchain_name(toolchain),
        toolchain.cutlass_version,
        json.dumps(sorted(own.items())),
        _cutlass_digest(toolchain.cutlass_include),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _start_worker(scratch: str, parent: int) -> None:
    global _header_cache
    if os.name == "posix":  # elsewhere a child can't see by its parent's number that it is gone
        threading.Thread(target=_end_with, args=(parent, scratch), daemon=True).start()
    try:
        _header_cache = Path(tempfile.mkdtemp(dir=scratch))
    except OSError:  # a full disk: slower, but works
        _header_cache = None
    nvrtc.prepare_header_cache()


def _end_with(parent: int, scratch: str) -> None:
    """End this process once its parent is gone, killed without a chance to clean up."""
    while os.getppid() == parent:
        time.sleep(1.0)
    shutil.rmtree(scratch, ignore_errors=True)
    os._exit(1)


def _remove_leftovers() -> None:
    """Remove the scratch folders of processes that no longer run."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_SCRATCH}*-*"):
        number = folder.name.removeprefix(_SCRATCH).partition("-")[0]
        if number.isascii() and number.isdigit() and not psutil.pid_exists(int(number)):
            shutil.rmtree(folder, ignore_errors=True)


def _make_scratch() -> str:
    try:
        _remove_leftovers()
        return tempfile.mkdtemp(prefix=f"{_SCRATCH}{os.getpid()}-")
    except OSError as error:
        raise EnvironmentProblem(
            f"no temporary folder can be made ({error.strerror}); free space, or set TMPDIR to a "
            "folder with about 0.5 GB per compiler process"
        ) from error


def _compile_job(job: Job) -> Result:
    """(cubin, log, seconds, error) of one job, in a worker process."""
    try:
        compiled = compile_cubin(job.source, job.arch, _header_cache)
        read_resources(compiled.cubin, compiled.log)
    except CompileError as error:
        line = nvrtc.first_error_line(str(error))
        if error.is_machine_fault:
            line = f"{HINDERED} ({error.status}): {line}"
        return None, str(error), 0.0, line
    except OSError as error:  # such as too many open files
        return None, "", 0.0, f"{HINDERED}: {error}"
    except BrokenCubin as error:
        return None, compiled.log, compiled.seconds, f"{UNUSABLE}: {error}"
    return compiled.cubin, compiled.log, compiled.seconds, None


def worker_count(family: str, jobs: int, requested: int | None = None) -> int:
    """Workers for `jobs` jobs: no more than cores, than free memory holds, or than asked for."""
    memory = max(1, int(available_bytes() * 0.8) // WORKER_BYTES[family])
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(jobs, requested or cores or 1, memory))


def _build(job: Job, key: str, toolchain: Toolchain, result: Result) -> KernelBuild:
    cubin, log, seconds, error = result
    record = BuildRecord(
        key=key,
        arch=job.arch,
        toolchain=toolchain_name(toolchain),
        flags=" ".join((f"-arch={job.arch}", *nvrtc.BASE_OPTIONS, *job.source.options)),
        cutlass_version=toolchain.cutlass_version,
        source_hash=hashlib.sha256(job.source.text.encode()).hexdigest(),
        resources=read_resources(cubin, log) if cubin else None,
        compile_seconds=seconds,
    )
    return KernelBuild(record, cubin, error)


def _run_pool(jobs: list[Job], workers: int) -> Iterator[tuple[int, Result]]:
    """Results of `jobs` by index as they finish; a job whose worker dies is reported as failed."""
    scratch = _make_scratch()
    context = multiprocessing.get_context("spawn")
    pool = None
    try:
        pool = ProcessPoolExecutor(workers, context, _start_worker, (scratch, os.getpid()))
        futures: dict[Future[Result], int] = {}
        for index, job in enumerate(jobs):
            try:
                futures[pool.submit(_compile_job, job)] = index
            except BrokenProcessPool:  # a worker died before all jobs were handed out
                yield index, (None, "", 0.0, DIED)
        for future in as_completed(futures):
            try:
                yield futures[future], future.result()
            except BrokenProcessPool:
                yield futures[future], (None, "", 0.0, DIED)
    except OSError as error:
        raise EnvironmentProblem(
            f"compiler processes can't be started ({error.strerror or error}); raise this "
            "session's limits of open files and processes, or give fewer --workers"
        ) from error
    finally:
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)
        shutil.rmtree(scratch, ignore_errors=True)


def _compile_all(jobs: list[Job], workers: int) -> Iterator[tuple[int, Result]]:
    """Like `_run_pool`, with a second try for what failed by no fault of its source.

    It goes without the header cache, which needs the most memory and disk. A dying worker breaks
    its pool, so each job that a death may have taken along runs alone.
    """
    alone, together = [], []
    for index, result in _run_pool(jobs, workers):
        if not is_passing(result[3]):
            yield index, result
        elif result[3] == DIED:
            alone.append(index)
        else:
            together.append(index)
    for group in ([together] if together else []) + [[index] for index in alone]:
        for place, result in _run_pool([_plain(jobs[index]) for index in group], workers):
            yield group[place], result


def _plain(job: Job) -> Job:
    """The job without the header cache; a source that needs none stays as it is."""
    if not job.source.use_header_cache:
        return job
    return replace(job, source=replace(job.source, use_header_cache=False))


def is_passing(error: str | None) -> bool:
    """Whether an error says nothing about the source: want of memory or disk, a garbled log."""
    return error is not None and error.startswith((DIED, UNUSABLE, HINDERED))


def missing_jobs(jobs: Iterable[Job], cache: KernelCache) -> list[Job]:
    """The distinct jobs that the cache can't answer."""
    toolchain = find_toolchain()
    keys = {job_key(job, toolchain): job for job in jobs}
    return [job for key, job in keys.items() if cache.load(key) is None]


def compile_kernels(
    jobs: Iterable[Job],
    cache: KernelCache,
    *,
    workers: int | None = None,
    on_done: Callable[[Job, KernelBuild], None] = lambda job, build: None,
) -> dict[Job, KernelBuild]:
    """Compile what the cache lacks and return every job's build.

    Equal sources are compiled once. Raises `EnvironmentProblem` if there is no toolchain, or if
    nothing compiled for want of memory or disk.
    """
    toolchain = find_toolchain()
    builds: dict[Job, KernelBuild] = {}
    missing: dict[str, list[Job]] = {}
    for job in jobs:
        key = job_key(job, toolchain)
        cached = cache.load(key)
        if cached is None:
            missing.setdefault(key, []).append(job)
        else:
            builds[job] = cached
            on_done(job, cached)
    todo = sorted(missing.items(), key=lambda item: (item[1][0].family, item[1][0].arch))
    for (family, _), group in groupby(todo, key=lambda i: (i[1][0].family, i[1][0].arch)):
        entries = list(group)
        count = worker_count(family, len(entries), workers)
        for index, result in _compile_all([same[0] for _, same in entries], count):
            key, same = entries[index]
            build = _build(same[0], key, toolchain, result)
            if not is_passing(build.error):
                cache.store(build, same[0].source.text, result[1])
            for job in same:
                builds[job] = build
                on_done(job, build)
    _refuse_total_failure(builds)
    return builds


def _refuse_total_failure(builds: dict[Job, KernelBuild]) -> None:
    """Raise `EnvironmentProblem` if the machine let no kernel at all through the compiler."""
    errors = [build.error for build in builds.values()]
    if errors and all(is_passing(error) for error in errors):
        raise EnvironmentProblem(
            f"none of {len(errors)} kernels could be compiled ({errors[0]}); free memory and space "
            f"in '{tempfile.gettempdir()}', a compiler process needs about 0.5 GB there, or give "
            "fewer --workers"
        )
