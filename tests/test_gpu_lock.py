"""Two programs that measure on one GPU at once: the second refuses, or both are warned."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from cutlass_study import experiment_command, gpu_lock, study, sweep_command
from cutlass_study.axes import Axes
from cutlass_study.experiment_command import ExperimentCall
from cutlass_study.gpu_lock import measuring_alone
from cutlass_study.records import EnvironmentProblem
from cutlass_study.sweep_command import SweepCall
from tests.fake_sessions import InProcess, Script
from tests.sweep_records import DEVICE
from tests.test_sweep import Quiet

ROOT = Path(__file__).resolve().parent.parent
HOLDER = """
import sys
from pathlib import Path
from cutlass_study import gpu_lock
from tests.sweep_records import DEVICE
gpu_lock.lock_path = lambda uuid: Path(sys.argv[1]) / f"{uuid}.lock"
with gpu_lock.measuring_alone(DEVICE, print):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "state"
    monkeypatch.setattr(gpu_lock, "lock_path", lambda uuid: folder / f"{uuid}.lock")
    return folder


@contextmanager
def another_process(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock of `DEVICE` until it is ended."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def refuse(text: str) -> None:
    raise AssertionError(text)


def test_a_gpu_that_another_process_holds_is_refused(own_folder: Path) -> None:
    with another_process(own_folder) as holder:
        words = rf"^process {holder.pid} measures on {DEVICE.name} \({DEVICE.uuid}\) already.*wait"
        with pytest.raises(EnvironmentProblem, match=words), measuring_alone(DEVICE, refuse):
            pytest.fail("held twice")
        with measuring_alone(replace(DEVICE, uuid="GPU-other"), refuse):
            pass


def test_a_holder_that_is_killed_frees_the_gpu(own_folder: Path) -> None:
    with another_process(own_folder) as holder:
        holder.kill()
        holder.wait()
        with measuring_alone(DEVICE, refuse):
            text = gpu_lock.lock_path(DEVICE.uuid).read_text(encoding="utf-8")
            assert int(text) == os.getpid()


def test_the_lock_ends_with_the_measuring(own_folder: Path) -> None:
    for _ in range(2):
        with pytest.raises(KeyError), measuring_alone(DEVICE, refuse):
            raise KeyError


def test_without_a_writable_place_it_is_said_and_measured_all_the_same(own_folder: Path) -> None:
    own_folder.write_text("a file where the folder should be")
    said: list[str] = []
    with measuring_alone(DEVICE, said.append):
        pass
    assert len(said) == 1
    assert "can't be locked" in said[0] and str(own_folder) in said[0]


def test_a_file_system_without_locks_is_said(
    own_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without(_: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(gpu_lock, "_lock", without)
    said: list[str] = []
    with measuring_alone(DEVICE, said.append):
        pass
    assert len(said) == 1
    assert "No locks available" in said[0]


def test_the_file_stands_in_the_users_state_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    path = gpu_lock.lock_path("GPU-1/2")
    assert path.name == "GPU-1_2.lock"
    assert "cutlass-study" in path.parts


@pytest.mark.parametrize("kind", ["sweep", "experiment"])
def test_a_second_measurement_refuses_before_it_touches_the_results(
    kind: str, own_folder: Path, tmp_path: Path
) -> None:
    worker, results, cache = InProcess(Script()), tmp_path / "r.sqlite", tmp_path / "cache"
    axes, out = Axes(family=["cublas"], problem=["256x256x256"]), tmp_path / "out"
    sweep = SweepCall(None, axes, cache_dir=cache, results=results, export=out)
    labels = ExperimentCall("labels", 256, cache_dir=cache, results=results, export=out)
    measure = {
        "sweep": partial(sweep_command._run_measured, sweep),
        "experiment": partial(experiment_command._run_measured, labels),
    }
    with another_process(own_folder) as holder, pytest.raises(EnvironmentProblem) as refused:
        measure[kind](worker, DEVICE)
    assert f"process {holder.pid} measures" in str(refused.value)
    assert not results.exists()


def test_a_dry_run_needs_no_free_gpu(own_folder: Path, tmp_path: Path) -> None:
    axes = Axes(family=["cublas"], problem=["256x256x256"])
    call = SweepCall(None, axes, cache_dir=tmp_path / "cache", dry_run=True)
    with another_process(own_folder):
        assert sweep_command._run_measured(call, InProcess(Script()), DEVICE) == 0


# --- programs that are not ours -----------------------------------------------------------------


def nvml_lists(
    monkeypatch: pytest.MonkeyPatch, computing: list[int], drawing: list[int] | None
) -> None:
    """NVML that lists these processes; `None`: it can't tell."""
    pynvml = pytest.importorskip("pynvml")

    def listed(numbers: list[int] | None) -> object:
        def query(_: object) -> list[SimpleNamespace]:
            if numbers is None:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
            return [SimpleNamespace(pid=number) for number in numbers]

        return query

    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", lambda uuid: object())
    monkeypatch.setattr(pynvml, "nvmlDeviceGetComputeRunningProcesses", listed(computing))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetGraphicsRunningProcesses", listed(drawing))
    monkeypatch.setattr("cutlass_study.telemetry.Nvml.read", lambda self: None)


@pytest.mark.parametrize(
    ("computing", "drawing", "message"),
    [
        ([7], [], None),  # our own
        ([], [], None),  # a container that hides numbers
        ([7, 8], [8], None),  # a desktop
        ([7, 8], [], "1 other process may compute on this GPU"),
        ([7, 8, 9, 9], [], "2 other processes may compute on this GPU"),
        ([7, 8], None, None),  # NVML can't tell
    ],
)
def test_other_programs_on_the_gpu_are_told_once(
    computing: list[int],
    drawing: list[int] | None,
    message: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nvml_lists(monkeypatch, computing, drawing)
    reporter = Quiet()
    study.start_telemetry(DEVICE, reporter).stop()
    assert len(reporter.messages) == (0 if message is None else 1)
    assert message is None or reporter.messages[0].startswith(message)
