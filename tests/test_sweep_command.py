"""`sweep.py` around the work: options that clash, plans, the folder checked first, exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic import DEVICE
from test_listing import sweep

from cutlass_study import option_checks, plan, sweep_command
from cutlass_study.axes import Axes
from cutlass_study.cache import KernelCache
from cutlass_study.compile import HINDERED, Job
from cutlass_study.config import MAX_LEADING, GemmProblem, UsageError
from cutlass_study.export_folder import check_export_folder
from cutlass_study.footprint import SCRATCH_BYTES, fitting_problem, least_bytes
from cutlass_study.gpus import limits_of
from cutlass_study.nvrtc import Source
from cutlass_study.prepare import Inputs, Prepared, judge
from cutlass_study.records import EnvironmentProblem
from cutlass_study.rules import sm80_reason
from cutlass_study.space import CUBLAS, Entry, sm80, sm90, square
from cutlass_study.study_data import DEVICE_FILE, RESULTS_FILE
from cutlass_study.sweep_command import SweepCall

ADA = limits_of("sm_89")

# --- options ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("--list", "--static"), ("--list and --static exclude each other",)),
        (("--list", "--interleave"), ("--list and --interleave",)),
        (("--list", "--resume"), ("--resume means nothing to --list",)),
        (("--static", "--export", "x"), ("--export means nothing to --static",)),
        (("--static", "--results", "x"), ("--results means nothing to --static",)),
        (("--format", "json"), ("--format json", "--list or --static")),
        (("--list", "--tile", ""), ("--tile is empty",)),
        (("--list", "--tile", ","), ("--tile is empty",)),
        (("--list", "--split-k", ""), ("--split-k is empty",)),
        (("--list", "--family", ""), ("--family is empty",)),
        (("--list", "--problem", ""), ("--problem is empty",)),
        (("--list", "--preset", ""), ("preset ''", "paper")),
        (("--list", "--arch", ""), ("--arch is empty",)),
        (("--static", "--cache-dir", ""), ("--cache-dir is empty",)),
        (("--export", ""), ("--export is empty",)),
        (("--results", ""), ("--results is empty",)),
        (("--time-budget", "inf"), ("time budget inf s", "below 1e6")),
        (("--list", "--problem", "64x64x64", "--lda", "9999999"), ("lda=9999999", "2097152")),
    ],
)
def test_clashing_idle_and_empty_options_are_one_sentence(
    arguments: tuple[str, ...], parts: tuple[str, ...], tmp_path: Path
) -> None:
    done = sweep(*arguments, folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert all(part in done.stderr for part in parts)
    assert not list(tmp_path.iterdir())


def test_each_arch_is_listed_once() -> None:
    assert option_checks.given_archs(["sm_89, sm_90a", "sm_89"]) == ("sm_89", "sm_90a")
    assert option_checks.given_archs(None) == ()


def test_a_dry_static_run_prints_the_plan_alone(tmp_path: Path) -> None:
    done = sweep(
        "--static", "--dry-run", "--arch", "sm_89", "--tile", "128x128x32",
        "--cache-dir", str(tmp_path / "cache"),
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "1 kernels, 1 of them to compile" in done.stderr
    assert not list((tmp_path / "cache").iterdir())


def test_a_leading_dimension_has_the_limit_of_an_extent() -> None:
    assert GemmProblem(64, 64, 64, lda=MAX_LEADING).lda == MAX_LEADING
    with pytest.raises(UsageError, match="lda=2097153 is above 2097152"):
        GemmProblem(64, 64, 64, lda=MAX_LEADING + 1)


# --- the plan -----------------------------------------------------------------------------------


def test_a_plan_tells_asked_for_kernels_from_those_to_compile(tmp_path: Path) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    jobs = [Job("wmma", arch, Source(text, ())) for arch in ("sm_89", "sm_90a") for text in "aab"]
    made = plan.make_plan([], jobs, KernelCache(tmp_path / "cache"), None, None)
    assert (made.kernels, made.compilations) == (6, 4)
    assert "6 kernels, 4 of them to compile" in made.lines()[1]


def test_starting_workers_costs_time_for_each_arch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "worker_count", lambda family, jobs: 1)
    jobs = [Job("wmma", arch, Source("", ())) for arch in ("sm_89", "sm_90a")]
    assert plan.compile_seconds(jobs) == pytest.approx(
        2 * (plan.STARTUP_S + plan.EXPECTED_SECONDS["wmma"])
    )
    assert plan.compile_seconds([]) == 0


@pytest.mark.parametrize("shape", [(8192, 8192, 8192), (16, 65536, 65536), (100, 30000, 300)])
def test_a_problem_that_does_not_fit_shrinks_and_never_grows(shape: tuple[int, int, int]) -> None:
    problem = GemmProblem(*shape)
    memory = (SCRATCH_BYTES + least_bytes(problem)) // 2
    smaller = fitting_problem(problem, memory)
    assert least_bytes(smaller) <= memory
    assert all(new <= old for new, old in zip(smaller.shape, shape, strict=True))
    assert smaller != problem
    assert fitting_problem(problem, least_bytes(problem)) is problem


def test_a_gpu_without_room_for_any_problem_is_said() -> None:
    with pytest.raises(EnvironmentProblem, match=r"8192.* even as 256x256x256.* more memory"):
        fitting_problem(square(8192), SCRATCH_BYTES)


# --- reasons with a remedy ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "stages", "width", "remedy"),
    [
        ((4096, 4096, 4100), 3, 4, "use alignment 4"),
        ((4096, 4096, 4097), 3, 4, "use alignment 1 with S=2"),
        ((4096, 4096, 4097), 2, 4, "use alignment 1"),
        ((4096, 4098, 4096), 3, 4, "use epilogue width 2"),
        ((4096, 4097, 4096), 3, 4, "use epilogue width 1"),
    ],
)
def test_a_remedy_is_one(shape: tuple[int, int, int], stages: int, width: int, remedy: str) -> None:
    config, problem = sm80((128, 128, 32), stages, width), GemmProblem(*shape)
    assert str(sm80_reason(config, problem, ADA)).endswith(f"; {remedy}")
    if "alignment" in remedy:
        better = replace(config, alignment=int(remedy.split()[2]), stages=2)
    else:
        better = replace(config, epilogue_width=int(remedy.split()[-1]))
    assert "multiple" not in str(sm80_reason(better, problem, ADA))


def test_a_tma_kernel_is_not_told_to_use_what_tma_can_not() -> None:
    item = Entry(sm90((128, 256, 64), None), GemmProblem(4096, 4098, 4100))
    (judged,) = judge([item], limits_of("sm_90a"), Inputs())
    assert "TMA needs multiples of 8" in judged.row.reason


# --- folders and exit codes ---------------------------------------------------------------------


def test_an_export_folder_is_checked_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / DEVICE_FILE).write_text("{}")
    monkeypatch.setattr("cutlass_study.study.static_half", refuse)
    call = SweepCall(
        None, Axes(family=["cublas"]), ("sm_89",), cache_dir=tmp_path / "cache", export=tmp_path
    )
    with pytest.raises(EnvironmentProblem, match=r"holds measured results.*--export"):
        sweep_command._run_static(call)


def refuse(*_: object) -> None:
    raise AssertionError("work begins before the folder is checked")


def test_folders_that_can_not_hold_the_records_are_refused(tmp_path: Path) -> None:
    check_export_folder(tmp_path / "new" / "folder", None)
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentProblem, match=r"can't be written.*--export"):
        check_export_folder(tmp_path / "file", None)
    (tmp_path / RESULTS_FILE).write_text("")
    check_export_folder(tmp_path, None)
    with pytest.raises(EnvironmentProblem, match="holds static records"):
        check_export_folder(tmp_path, DEVICE)


def ended(outcome: str, reason: str = "") -> Prepared:
    (item,) = judge([Entry(CUBLAS, square(1024))], ADA, Inputs())
    row = replace(item.row, outcome=outcome, reason=reason)  # type: ignore[arg-type]
    return replace(item, row=row)


@pytest.mark.parametrize(
    ("items", "code"),
    [
        ([ended("ok"), ended("infeasible", "x")], 0),
        ([ended("ok"), ended("compile_failed", "error: bad source")], 0),
        ([ended("ok"), ended("compile_failed", f"{HINDERED}: no space")], 1),
        ([ended("compile_failed", "error: bad source")], 1),
        ([ended("infeasible", "x")], 1),
    ],
)
def test_the_static_half_says_what_failed(
    items: list[Prepared], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep_command.static_exit_code(items) == code
    said = capsys.readouterr().err
    for outcome, count in Counter(item.row.outcome for item in items).items():
        assert f"{count} {outcome}" in said
    named = [line for line in said.splitlines() if line.startswith("not compiled: ")]
    failed = [item.row for item in items if item.row.outcome == "compile_failed"]
    assert named == [f"not compiled: {r.identity.name} (sm_89): {r.reason}" for r in failed]


@pytest.mark.skipif(os.name != "posix", reason="POSIX signals")
def test_being_terminated_is_being_interrupted() -> None:
    """SIGTERM comes while the space is listed; the script says so and ends like on Ctrl-C."""
    code = (
        "import os, runpy, signal, sys\n"
        "from cutlass_study import sweep_command\n"
        "sweep_command.listing = lambda *_: os.kill(os.getpid(), signal.SIGTERM)\n"
        "sys.argv = ['sweep.py', '--list']\n"
        f"runpy.run_path({str(sweep_script())!r}, run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 130
    assert done.stderr.startswith("interrupted")


def sweep_script() -> Path:
    return Path(__file__).parents[1] / "scripts" / "sweep.py"


def test_the_first_words_of_a_driver_message_do_not_end_in_two_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("cuda.bindings.driver")
    from cutlass_study import device

    def missing(*_: object) -> None:
        raise RuntimeError("libcuda.so is not installed.\nmore")

    monkeypatch.setattr(device.driver, "cuInit", missing)
    with pytest.raises(EnvironmentProblem, match=r"is not installed; install the NVIDIA driver$"):
        device.open_device()
