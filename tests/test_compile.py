"""Compiling and its cache: keys, failures, damage, strangers, several processes, front ends."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from cutlass_study import compile as compile_module
from cutlass_study import prepare as prepare_module
from cutlass_study.cache import KernelBuild, KernelCache, tree_digest
from cutlass_study.compile import DIED, Job, compile_kernels, job_key, missing_jobs, own_headers
from cutlass_study.config import GemmProblem
from cutlass_study.cubin import read_resources
from cutlass_study.families import FrontEnd, source
from cutlass_study.gpus import limits_of
from cutlass_study.nvrtc import (
    Compiled,
    CompileError,
    Source,
    compile_cubin,
    first_error_line,
)
from cutlass_study.prepare import Inputs, prepare
from cutlass_study.records import BuildRecord, EnvironmentProblem, Resources
from cutlass_study.sm80_resources import sm80_smem_bytes
from cutlass_study.space import CUBLAS, Entry, sm80, square
from cutlass_study.toolchain import find_toolchain

pytest.importorskip("cuda.bindings.nvrtc")

# The least that a module of this toolkit exports: compiles in a fraction of a second.
TINY = """
struct KernelInfo { int smem_bytes, threads, params_bytes, params_alignment, cluster[3], stages; };
extern "C" __device__ const KernelInfo gemm_info = {1024, 128, 8, 8, {1, 1, 1}, 3};
extern "C" __global__ void gemm(float* d) { d[threadIdx.x] = 1.0f; }
"""


def tiny(extra: str = "", arch: str = "sm_89") -> Job:
    return Job("wmma", arch, Source(TINY + extra, ()))


@functools.cache
def compiled_tiny() -> Compiled:
    return compile_cubin(Source(TINY, ()), "sm_89")


def a_build(key: str, error: str | None = None) -> KernelBuild:
    done = compiled_tiny()
    resources = None if error else read_resources(done.cubin, done.log)
    record = BuildRecord(key, "sm_89", "nvrtc 13", "-arch", "4.2.0", "def", resources, 1.5)
    return KernelBuild(record, None if error else done.cubin, error)


def store(cache: KernelCache, build: KernelBuild) -> bool:
    return cache.store(build, "source", compiled_tiny().log)


KEY = "ab" + 62 * "0"


@pytest.fixture
def cache(tmp_path: Path) -> KernelCache:
    return KernelCache(tmp_path / "cache")


@pytest.fixture
def entry(cache: KernelCache) -> Path:
    assert store(cache, a_build(KEY))
    return cache.folder / KEY[:2] / KEY


# --- keys ---------------------------------------------------------------------------------------


def test_everything_that_determines_a_cubin_is_in_the_key(tmp_path: Path) -> None:
    toolchain, job = find_toolchain(), tiny()
    own = tmp_path / "own"
    own.mkdir()
    (own / "mine.hpp").write_text("// first\n")
    with_header = Job("wmma", "sm_89", Source('#include "mine.hpp"\n' + TINY, (own,)))
    other_cutlass = tmp_path / "include"
    (other_cutlass / "cutlass").mkdir(parents=True)
    (other_cutlass / "cutlass" / "gemm.h").write_text("// changed\n")
    keys = {
        "plain": job_key(job, toolchain),
        "arch": job_key(tiny(arch="sm_90a"), toolchain),
        "source": job_key(tiny("// more"), toolchain),
        "flags": job_key(Job("wmma", "sm_89", replace(job.source, options=("-G",))), toolchain),
        "memory headers": job_key(
            Job("wmma", "sm_89", replace(job.source, memory_headers=(("a.h", "//"),))), toolchain
        ),
        "compiler": job_key(
            job, replace(toolchain, nvrtc=replace(toolchain.nvrtc, version="13.0.99"))
        ),
        "CUDA headers": job_key(job, replace(toolchain, cuda_version="13.1")),
        "CUTLASS version": job_key(job, replace(toolchain, cutlass_version="4.3.0")),
        "CUTLASS content": job_key(job, replace(toolchain, cutlass_include=other_cutlass)),
        "own header": job_key(with_header, toolchain),
    }
    compile_module._header_text.cache_clear()
    (own / "mine.hpp").write_text("// second\n")
    keys["own header changed"] = job_key(with_header, toolchain)
    assert len(set(keys.values())) == len(keys)


def test_where_headers_lie_is_not_in_the_key(tmp_path: Path) -> None:
    keys = set()
    for name in ("here", "there"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "mine.hpp").write_text("// same\n")
        job = Job("wmma", "sm_89", Source('#include "mine.hpp"\n' + TINY, (folder,)))
        keys.add(job_key(job, find_toolchain()))
    assert len(keys) == 1


def test_own_headers_are_followed_and_others_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a.hpp").write_text('  #  include "b.hpp"\n#include "cutlass/cutlass.h"\n')
    (tmp_path / "b.hpp").write_text('#pragma once\n#include "a.hpp"\n')
    (tmp_path / "unused.hpp").write_text("")
    found = own_headers('#include "a.hpp"\n#include <c.hpp>\n', (tmp_path,))
    assert set(found) == {"a.hpp", "b.hpp"}


def test_a_tree_digest_sees_names_and_contents(tmp_path: Path) -> None:
    header = tmp_path / "a.h"
    digests = []
    for text in ("1", "2"):
        header.write_text(text)
        digests.append(tree_digest(tmp_path, (".h",)))
    header.rename(tmp_path / "b.h")
    digests.append(tree_digest(tmp_path, (".h",)))
    (tmp_path / "notes.txt").write_text("no header")
    assert digests[-1] == tree_digest(tmp_path, (".h",))
    assert len(set(digests)) == 3


def test_sm80_kernels_are_told_apart_by_their_keys() -> None:
    toolchain, problem = find_toolchain(), square(8192)
    configs = [
        sm80((128, 128, 32), 3),
        sm80((128, 128, 32), 4),
        sm80((128, 128, 32), 3, 2),
        sm80((128, 128, 32), 3, alignment=4),
        sm80((128, 128, 32), 3, swizzle=4),
        sm80((128, 128, 64), 3, warp=(64, 64, 32)),
    ]
    units = [
        source(config, problem, end) for config in configs for end in ("templates", "interface")
    ]  # type: ignore[arg-type]
    assert len({job_key(Job("sm80", "sm_89", unit), toolchain) for unit in units if unit}) == 12


# --- the cache alone ----------------------------------------------------------------------------


def test_what_is_stored_is_loaded(cache: KernelCache) -> None:
    assert cache.load(KEY) is None
    for build in (a_build(KEY), a_build("cd" + KEY[2:], error="first error line")):
        store(cache, build)
        assert cache.load(build.record.key) == build
    assert sorted(path.name for path in cache.folder.iterdir()) == ["ab", "cd"]  # nothing staged


@pytest.mark.parametrize("name", ["build.json", "kernel.cubin"])
@pytest.mark.parametrize("content", [None, b"", b"{}", b"[1]", b'{"record": 1, "sha256": ""}'])
def test_a_damaged_entry_is_a_miss_and_is_replaced(
    cache: KernelCache, entry: Path, name: str, content: bytes | None
) -> None:
    if content is None:
        (entry / name).unlink()
    else:
        (entry / name).write_bytes(content)
    assert cache.load(KEY) is None
    assert store(cache, a_build(KEY))
    assert cache.load(KEY) == a_build(KEY)


@pytest.mark.parametrize("registers", ["abc", None, 9999, [40]])
def test_resources_that_the_image_does_not_have_are_a_miss(
    cache: KernelCache, entry: Path, registers: object
) -> None:
    meta = json.loads((entry / "build.json").read_text())
    meta["record"]["resources"]["registers"] = registers
    (entry / "build.json").write_text(json.dumps(meta))
    assert cache.load(KEY) is None
    assert store(cache, a_build(KEY))
    assert cache.load(KEY) == a_build(KEY)


@pytest.mark.parametrize(
    "error", [None, "", 7, "catastrophic error: unable to obtain mapped memory"]
)
def test_a_failure_without_a_reason_about_the_source_is_a_miss(
    cache: KernelCache, entry: Path, error: object
) -> None:
    meta = json.loads((entry / "build.json").read_text()) | {"sha256": None, "error": error}
    (entry / "build.json").write_text(json.dumps(meta))
    assert cache.load(KEY) is None


@pytest.mark.parametrize("depth", [0, 1])
def test_a_file_in_an_entrys_place_is_a_miss_and_is_replaced(
    cache: KernelCache, entry: Path, depth: int
) -> None:
    place = (entry.parent, entry)[depth]
    shutil.rmtree(place)
    place.write_text("")
    assert cache.load(KEY) is None
    assert store(cache, a_build(KEY))
    assert cache.load(KEY) == a_build(KEY)


def test_a_full_disk_costs_the_entry_and_not_the_kernel(
    cache: KernelCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("cutlass_study.cache.tempfile.mkdtemp", full)
    assert not store(cache, a_build(KEY))
    assert cache.load(KEY) is None


def test_an_entry_of_another_version_or_key_is_a_miss(cache: KernelCache, entry: Path) -> None:
    meta = json.loads((entry / "build.json").read_text())
    meta["record"]["new_field"] = 1
    (entry / "build.json").write_text(json.dumps(meta))
    assert cache.load(KEY) is None
    moved = cache.folder / "cd" / ("cd" + KEY[2:])
    moved.parent.mkdir(mode=0o700)
    shutil.copytree(entry, moved)
    assert cache.load(moved.name) is None


def test_a_whole_entry_is_kept_when_another_process_stores_it_too(
    cache: KernelCache, entry: Path
) -> None:
    before = (entry / "build.json").stat().st_mtime_ns
    store(cache, a_build(KEY))
    assert (entry / "build.json").stat().st_mtime_ns == before


def test_a_copied_cache_still_hits(cache: KernelCache, entry: Path, tmp_path: Path) -> None:
    shutil.copytree(cache.folder, tmp_path / "elsewhere")
    assert KernelCache(tmp_path / "elsewhere").load(KEY) == a_build(KEY)


@pytest.mark.skipif(os.name != "posix", reason="POSIX permissions")
@pytest.mark.parametrize("mode", [0o770, 0o702])
def test_a_cache_that_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(EnvironmentProblem, match=r"open.*writable by another user.*--cache-dir"):
        KernelCache(folder)


@pytest.mark.skipif(os.name != "posix", reason="POSIX permissions")
def test_an_entry_that_others_can_write_is_a_miss(cache: KernelCache, entry: Path) -> None:
    entry.chmod(0o777)
    assert cache.load(KEY) is None
    entry.chmod(0o700)
    assert cache.load(KEY) is not None
    entry.parent.chmod(0o777)
    assert cache.load(KEY) is None


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root gives files away")
def test_an_entry_of_another_user_is_a_miss(cache: KernelCache, entry: Path) -> None:
    os.chown(entry, 12345, 12345)
    assert cache.load(KEY) is None
    os.chown(cache.folder, 12345, 12345)
    with pytest.raises(EnvironmentProblem, match="belongs to"):
        KernelCache(cache.folder)


def test_a_cache_that_can_not_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentProblem, match=r"can't be written.*--cache-dir"):
        KernelCache(tmp_path / "file" / "cache")


# --- compiling small kernels --------------------------------------------------------------------


class DeadlySource(Source):
    """Kills the compiler process that unpacks it, as a crash or the memory killer would."""

    def __reduce__(self) -> tuple[object, tuple[int]]:
        return os._exit, (1,)


def refuse(*_: object) -> None:
    raise AssertionError("nothing should be compiled")


def test_a_compiled_kernel_is_found_again(
    cache: KernelCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, twin, bad = tiny(), tiny(), tiny('static_assert(false, "as meant");')
    first = compile_kernels([job, twin, bad], cache)
    build = first[job]
    assert first[twin] is build
    assert build.error is None
    assert build.record.resources
    assert (build.record.resources.smem_bytes, build.record.resources.threads) == (1024, 128)
    assert build.record.key == job_key(job, find_toolchain())
    failed = first[bad]
    assert failed.error
    assert "as meant" in failed.error
    assert (failed.cubin, failed.record.resources) == (None, None)

    monkeypatch.setattr(compile_module, "_run_pool", refuse)  # both are cached, failures too
    seen: list[Job] = []
    again = compile_kernels([job, bad], cache, on_done=lambda done, _: seen.append(done))
    assert again == {job: build, bad: failed}
    assert seen == [job, bad]
    assert missing_jobs([job, bad, tiny("// new")], cache) == [tiny("// new")]


def test_a_job_whose_compiler_dies_fails_alone_and_is_tried_again(cache: KernelCache) -> None:
    deadly = Job("wmma", "sm_89", DeadlySource(TINY + "// deadly", ()))
    good = [tiny(f"// {number}") for number in range(3)]
    builds = compile_kernels([good[0], deadly, *good[1:]], cache, workers=2)
    assert builds[deadly].error == DIED
    assert [builds[job].error for job in good] == [None] * 3
    assert missing_jobs([deadly, *good], cache) == [deadly]


@pytest.mark.parametrize(
    ("log", "status", "passing"),
    [
        ("catastrophic error: unable to obtain mapped memory", "NVRTC_ERROR_COMPILATION", True),
        ("error: cannot open temporary file", "NVRTC_ERROR_COMPILATION", True),
        ("a.h: Too many open files", "NVRTC_ERROR_COMPILATION", True),
        ("", "NVRTC_ERROR_OUT_OF_MEMORY", True),
        ("catastrophic error: cannot open source file", "NVRTC_ERROR_COMPILATION", False),
    ],
)
def test_faults_of_the_machine_are_told_from_those_of_the_source(
    monkeypatch: pytest.MonkeyPatch, log: str, status: str, passing: bool
) -> None:
    def fail(*_: object) -> Compiled:
        raise CompileError(log, status)

    monkeypatch.setattr(compile_module, "compile_cubin", fail)
    error = compile_module._compile_job(tiny())[3]
    assert compile_module.is_passing(error) is passing
    assert error
    assert (status in error) is passing


def failing_pool(jobs_seen: list[Job], good: Job | None = None):  # type: ignore[no-untyped-def]
    """Stands for `_run_pool` on a machine that lets only `good` through."""

    def run_them(jobs, workers):  # type: ignore[no-untyped-def]
        jobs_seen.extend(jobs)
        done = compiled_tiny()
        for index, job in enumerate(jobs):
            if job == good:
                yield index, (done.cubin, done.log, 1.0, None)
            else:
                yield index, (None, "", 0.0, f"{compile_module.HINDERED}: no space")

    return run_them


def test_a_hindered_job_is_tried_without_the_header_cache_and_not_cached(
    cache: KernelCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Job] = []
    good = tiny("// good")
    hindered = Job("wmma", "sm_89", replace(tiny().source, use_header_cache=True))
    monkeypatch.setattr(compile_module, "_run_pool", failing_pool(seen, good))
    builds = compile_kernels([good, hindered], cache)
    assert compile_module.is_passing(builds[hindered].error)
    assert seen == [good, hindered, tiny()]
    assert missing_jobs([good, hindered], cache) == [hindered]


def test_a_machine_on_which_nothing_compiles_is_said(
    cache: KernelCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compile_module, "_run_pool", failing_pool([]))
    with pytest.raises(EnvironmentProblem, match=r"none of 2 kernels.*no space.*free memory"):
        compile_kernels([tiny(), tiny("// other")], cache)


def test_a_session_that_can_start_no_process_is_said(
    cache: KernelCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse_to_start(*_: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(compile_module, "ProcessPoolExecutor", refuse_to_start)
    with pytest.raises(EnvironmentProblem, match=r"Too many open files.*limits.*--workers"):
        compile_kernels([tiny()], cache)


def test_scratch_folders_of_dead_processes_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    for name in (f"{dead.pid}-a", f"{os.getpid()}-b", "notes-c"):
        (tmp_path / f"cutlass-study-{name}" / "inside").mkdir(parents=True)
    made = Path(compile_module._make_scratch())
    assert {path.name for path in tmp_path.iterdir()} == {
        f"cutlass-study-{os.getpid()}-b", "cutlass-study-notes-c", made.name,
    }  # fmt: skip


@pytest.mark.skipif(os.name != "posix", reason="POSIX: a child sees that its parent changed")
def test_a_worker_ends_with_its_parent(tmp_path: Path) -> None:
    """The middle process is killed; the worker it started must go, and its folder with it."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    worker = (
        "import os, sys, time; from cutlass_study import compile\n"
        "compile._start_worker(sys.argv[1], os.getppid())\n"
        "print(os.getpid(), flush=True); time.sleep(60)\n"
    )
    middle = (
        f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {worker!r}, sys.argv[1]])\n"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    process = subprocess.Popen(
        [sys.executable, "-c", middle, str(scratch)],
        stdout=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    assert process.stdout
    number = int(process.stdout.readline())
    process.kill()
    process.wait()
    for _ in range(100):
        if not psutil.pid_exists(number) or psutil.Process(number).status() == "zombie":
            break
        time.sleep(0.1)
    else:
        pytest.fail("the worker outlives its parent")
    assert not scratch.exists()


def test_two_processes_may_compile_the_same_job_at_once(cache: KernelCache) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from cutlass_study.cache import KernelCache\n"
        "from cutlass_study.compile import Job, compile_kernels\n"
        "from cutlass_study.nvrtc import Source\n"
        "if __name__ == '__main__':\n"
        "    job = Job('wmma', 'sm_89', Source(sys.argv[2], ()))\n"
        "    (build,) = compile_kernels([job], KernelCache(Path(sys.argv[1]))).values()\n"
        "    print(build.record.resources.code_hash)\n"
    )
    script = cache.folder.parent / "compile_one.py"
    script.write_text(code)
    call = [sys.executable, str(script), str(cache.folder), TINY]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    both = [
        subprocess.Popen(call, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(2)
    ]
    hashes = {process.communicate(timeout=120)[0] for process in both}
    assert [process.returncode for process in both] == [0, 0]
    assert len(hashes) == 1
    assert len([path for path in cache.folder.glob("*/*") if path.is_dir()]) == 1
    assert not list(cache.folder.glob(".new-*"))
    assert cache.load(job_key(tiny(), find_toolchain()))


def test_the_first_error_line_is_what_a_table_shows() -> None:
    log = 'a.h(3): warning: x\nb.h(7): error: static assertion failed with "no"\nc.h: error: y\n'
    assert first_error_line(log) == 'b.h(7): error: static assertion failed with "no"'
    assert first_error_line("\n") == "the compiler gave no message"
    assert first_error_line("only this\nand that") == "only this"


# --- the static half ----------------------------------------------------------------------------


def fake_builds(hashes: dict[int, str], registers: int = 40):  # type: ignore[no-untyped-def]
    """Stands for `compile_kernels`: code by the number of stages in the source."""

    def compile_them(jobs, cache, **_):  # type: ignore[no-untyped-def]
        builds = {}
        for job in jobs:
            stages = next(s for s in hashes if f"kStages = {s};" in job.source.text)
            resources = Resources(registers, 32768, 0, 128, "", hashes[stages])
            build = a_build(KEY)
            builds[job] = KernelBuild(replace(build.record, resources=resources), b"image", None)
        return builds

    return compile_them


def test_equal_code_is_a_duplicate_of_the_first(
    cache: KernelCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare_module, "compile_kernels", fake_builds({2: "x", 3: "y", 4: "x"}))
    entries = [
        Entry(CUBLAS, square(1024)),
        *(Entry(sm80((128, 128, 32), stages), square(1024)) for stages in (2, 3, 4)),
        Entry(sm80((128, 128, 32), 4), square(2048)),  # another problem: measured
        Entry(sm80((128, 128, 32), 4, swizzle=2), square(1024)),  # launched in another order
        Entry(sm80((128, 128, 64), 4), square(1024)),  # infeasible on Ada
    ]
    prepared = prepare(entries, limits_of("sm_89"), cache, Inputs())
    assert [item.row.outcome for item in prepared] == [
        "ok", "ok", "ok", "duplicate", "ok", "ok", "infeasible",
    ]  # fmt: skip
    assert [item.pending for item in prepared] == [item.row.outcome == "ok" for item in prepared]
    first, duplicate = prepared[1].row, prepared[3].row
    assert duplicate.reason == f"compiles to the same code as {first.identity.name}"
    assert duplicate.resources
    assert [item.entry for item in prepared] == entries


def test_a_kernel_that_no_sm_can_hold_is_infeasible_after_compiling(
    cache: KernelCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_many(jobs, cache, **_):  # type: ignore[no-untyped-def]
        resources = Resources(255, 32768, 0, 512, "", "x")
        build = a_build(KEY)
        full = KernelBuild(replace(build.record, resources=resources), b"image", None)
        return dict.fromkeys(jobs, full)

    monkeypatch.setattr(prepare_module, "compile_kernels", too_many)
    (item,) = prepare(
        [Entry(sm80((128, 128, 32), 3), square(1024))], limits_of("sm_89"), cache, Inputs()
    )
    assert (item.row.outcome, item.pending) == ("infeasible", False)
    assert "512 threads of 255 registers (130560), limit 65536" in item.row.reason


def test_a_failed_compilation_is_a_row(cache: KernelCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        prepare_module,
        "compile_kernels",
        lambda jobs, cache, **_: dict.fromkeys(jobs, a_build(KEY, error="kernel.cu(3): error: x")),
    )
    (item,) = prepare(
        [Entry(sm80((128, 128, 32), 3), square(1024))], limits_of("sm_89"), cache, Inputs()
    )
    assert (item.row.outcome, item.row.reason) == ("compile_failed", "kernel.cu(3): error: x")
    assert not item.pending


# --- real sm80 kernels --------------------------------------------------------------------------


@pytest.mark.slow
def test_both_front_ends_declare_the_same_kernels(cache: KernelCache) -> None:
    half = GemmProblem(8192, 8192, 8192, output="f16")
    cases = [
        (sm80((128, 64, 32), 3), square(8192)),
        (sm80((128, 64, 32), 2, 2, alignment=4), square(8192)),
        (sm80((64, 64, 32), 3), GemmProblem(8192, 8192, 8192, layout="nn")),
        (sm80((64, 64, 32), 3, 8), half),
        (sm80((64, 64, 32), 3, swizzle=4), square(8192)),
        (sm80((64, 64, 64), 3, warp=(32, 32, 32)), square(8192)),  # sliced-K
    ]
    ends: tuple[FrontEnd, ...] = ("templates", "interface")
    jobs = {}
    for index, (config, problem) in enumerate(cases):
        for end in ends:
            unit = source(config, problem, end)
            assert unit
            jobs[index, end] = Job("sm80", "sm_89", unit)
    builds = compile_kernels(jobs.values(), cache, workers=2)
    hashes = set()
    for index, (config, problem) in enumerate(cases):
        found = [builds[jobs[index, end]].record.resources for end in ends]
        assert found[0] is not None
        assert found[0] == found[1], config.name
        assert found[0].smem_bytes == sm80_smem_bytes(config, problem)
        assert found[0].spill_bytes == 0
        hashes.add(found[0].code_hash)
    assert len(hashes) == len(cases), "the configurations differ, so their code should"


@pytest.mark.slow
def test_ptx_tells_store_widths_and_main_loops() -> None:
    """F6: widths 1, 2, 4, 8 store 2 to 16 bytes, wider ones no more. F13: S=2 has no cp.async."""
    from ptx import all_ptx, count, global_stores

    tile = (128, 128, 32)
    cases = [
        ("f16", 1, 3, {"u16": 256}, 24),
        ("f16", 2, 3, {"u32": 128}, 24),
        ("f16", 4, 3, {"v2.u32": 64}, 24),
        ("f16", 8, 3, {"v4.u32": 32}, 24),
        ("f16", 16, 3, {"v4.u32": 32}, 24),
        ("f32", 1, 3, {"u32": 256}, 24),
        ("f32", 2, 3, {"v2.u32": 128}, 24),
        ("f32", 4, 3, {"v4.u32": 64}, 24),
        ("f32", 8, 3, {"v4.u32": 64}, 24),
        ("f32", 4, 2, {"v4.u32": 64}, 0),
        ("f32", 4, 4, {"v4.u32": 64}, 32),
    ]
    sources = []
    for output, width, stages, _, _ in cases:
        problem = GemmProblem(8192, 8192, 8192, output=output)  # type: ignore[arg-type]
        unit = source(sm80(tile, stages, width), problem)
        assert unit
        sources.append(unit)
    for (output, width, stages, stores, copies), body in zip(cases, all_ptx(sources), strict=True):
        what = f"{output} width {width} S={stages}"
        assert global_stores(body) == stores, what
        assert count(r"cp\.async\.c[ag]\.", body) == copies, what
