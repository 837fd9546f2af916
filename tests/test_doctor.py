"""The diagnosis: each check in a made-up environment, and the script as a whole."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cutlass_study import checks_build, checks_device, diagnosis
from cutlass_study.check import Check, run_check
from cutlass_study.diagnosis import Diagnosis, python_interface_notes, version_matrix
from cutlass_study.host_tools import HostCompiler, Nvcc

PROJECT = Path(__file__).resolve().parent.parent
DOCTOR = PROJECT / "scripts" / "doctor.py"
# Fails the process at the first write below the current folder, and at any touch of a planted
# database or of the module that would load it. Permissions would not stop root.
GUARD = """
import os, runpy, sys
here = os.getcwd()
def watch(event, arguments):
    if event == "import" and arguments[0] == "cutlass_cppgen":
        os._exit(91)
    if event in ("open", "sqlite3.connect") and isinstance(arguments[0], (str, bytes)):
        path = os.path.abspath(os.fsdecode(arguments[0]))
        if path.endswith("compiled_cache.db"):
            os._exit(92)
        writes = event != "open" or arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if writes and path.startswith(here + os.sep):
            os._exit(93)
sys.addaudithook(watch)
"""


def doctor(
    *arguments: str, folder: Path, cache: Path, **variables: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(DOCTOR), *arguments],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(PROJECT),
            "CUTLASS_STUDY_CACHE": str(cache),
            **variables,
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def fake_wsl(root: Path, libraries: bool) -> Path:
    """A root folder of a WSL2 system, with or without the libraries that Windows provides."""
    (root / "proc").mkdir(parents=True)
    (root / "proc" / "version").write_text("Linux version 6.6.87.2-microsoft-standard-WSL2\n")
    if libraries:
        folder = root / "usr" / "lib" / "wsl" / "lib"
        folder.mkdir(parents=True)
        (folder / "libcuda.so.1").touch()
    return root


@pytest.mark.parametrize(("version", "status"), [("12.9.0", "missing"), ("13.4.4", "ok")])
def test_cuda_python_12_is_named_with_the_version_needed(
    monkeypatch: pytest.MonkeyPatch, version: str, status: str
) -> None:
    """Case E1: never "not installed" for a version that merely doesn't fit."""
    monkeypatch.setattr(checks_build, "version_of", lambda package: version)
    check = checks_build.check_cuda_python()
    assert (check.status, check.found) == (status, version)
    assert ("needs version 13" in check.advice) == (status == "missing")


@pytest.mark.parametrize(
    ("nvcc", "cuda_python", "works", "outcome"),
    [
        ("13.0.88", "12.6.2", False, "at least nvcc's version"),
        ("13.0.88", "12.9.0", False, "at least nvcc's version"),
        ("13.0.88", "13.4.4", False, "no attribute '__version__'"),
        ("12.8.93", "13.4.4", False, "no attribute '__version__'"),
        ("12.8.93", "12.6.2", False, "at least nvcc's version"),
        ("12.6.85", "12.9.0", True, "only pair"),
    ],
)
def test_the_version_matrix_marks_this_machines_row(
    nvcc: str, cuda_python: str, works: bool, outcome: str
) -> None:
    """Cases E1 and E2."""
    (row,) = [row for row in version_matrix(nvcc, cuda_python) if row.present]
    assert row.works is works
    assert outcome in row.outcome


@pytest.mark.parametrize(("nvcc", "cuda_python"), [(None, "13.4.4"), ("13.0.88", None)])
def test_the_matrix_marks_no_row_where_one_is_missing(
    nvcc: str | None, cuda_python: str | None
) -> None:
    assert not any(row.present for row in version_matrix(nvcc, cuda_python))


def test_import_cutlass_is_explained() -> None:
    """Case E3."""
    assert any(
        "`import cutlass`" in note and "nvidia-cutlass-dsl" in note
        for note in python_interface_notes()
    )


def test_nvcc_off_path_is_advised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks_build, "find_nvcc", lambda variables: None)
    check = checks_build.check_nvcc({"PATH": "/usr/bin:/bin"})
    assert check.status == "warn"
    assert "CUDA_INSTALL_PATH" in check.advice


@pytest.mark.parametrize("arguments", [("--format", "text"), ("--format", "json")])
def test_the_current_folder_is_neither_written_nor_loaded_from(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """Case E6: a planted database is reported, never opened; cutlass_cppgen is never imported."""
    folder = tmp_path / "folder"
    folder.mkdir()
    planted = folder / "compiled_cache.db"
    planted.write_bytes(b"planted")
    code = f"{GUARD}\nsys.argv = {['doctor.py', *arguments]!r}\n"
    code += f"runpy.run_path({str(DOCTOR)!r}, run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(PROJECT),
            "CUTLASS_STUDY_CACHE": str(tmp_path / "cache"),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "current folder" in done.stdout
    assert ("delete it unless you made it" in done.stdout) == ("json" in arguments)  # else wrapped
    assert planted.read_bytes() == b"planted"
    assert list(folder.iterdir()) == [planted]


def test_cutlass_library_does_not_touch_the_current_folder(tmp_path: Path) -> None:
    (tmp_path / "compiled_cache.db").write_bytes(b"planted")
    code = f"{GUARD}\nimport cutlass_library, cutlass_study.toolchain as t\nt.find_toolchain()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        check=False,
    )
    assert done.returncode == 0


def test_native_windows_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Case E8."""
    monkeypatch.setattr(platform, "system", lambda: "Windows")
    check = checks_device.check_operating_system()
    assert check.status == "ok"  # NVRTC needs no host compiler
    assert "WSL2" in check.advice
    assert "NVRTC" in check.advice
    watchdog = checks_device.check_watchdog()
    assert watchdog.status == "warn"
    assert "TDR" in watchdog.advice


def test_other_systems_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    assert checks_device.check_operating_system().status == "missing"


def test_wsl_without_libcuda(tmp_path: Path) -> None:
    """Case E9: the folder is named, and the driver belongs on the Windows side."""
    check = checks_device.check_wsl(fake_wsl(tmp_path, libraries=False))
    assert check.status == "missing"
    assert "usr/lib/wsl/lib" in check.found
    assert "on Windows, never inside WSL" in check.advice


def test_wsl_with_its_folder_off_the_loader_path(tmp_path: Path) -> None:
    root = fake_wsl(tmp_path, libraries=True)
    check = checks_device.check_wsl(root, loads=False)
    assert check.status == "missing"
    assert "LD_LIBRARY_PATH" in check.advice
    assert checks_device.check_wsl(root, loads=True).status == "ok"


def test_wsl_with_a_linux_driver_inside(tmp_path: Path) -> None:
    root = fake_wsl(tmp_path, libraries=True)
    folder = root / "usr" / "lib" / "x86_64-linux-gnu"
    folder.mkdir(parents=True)
    (folder / "libcuda.so.1").touch()
    check = checks_device.check_wsl(root, loads=True)
    assert check.status == "warn"
    assert "cuda-drivers" in check.advice


def test_wsl_has_the_watchdog_of_windows(tmp_path: Path) -> None:
    check = checks_device.check_watchdog(fake_wsl(tmp_path, libraries=True))
    assert check.status == "warn"
    assert "TDR" in check.found


@pytest.mark.parametrize(
    ("version", "status"), [(None, "missing"), (12080, "missing"), (13000, "ok"), (13020, "ok")]
)
def test_the_driver_must_know_cuda_13(
    monkeypatch: pytest.MonkeyPatch, version: int | None, status: str
) -> None:
    monkeypatch.setattr(checks_device, "cuda_driver_version", lambda: version)
    check = checks_device.check_driver()
    assert check.status == status
    assert ("580" in check.advice) == (status == "missing")


def test_too_new_a_host_compiler_is_reported_once(tmp_path: Path) -> None:
    """Case E11."""
    header = tmp_path / "include" / "crt" / "host_config.h"
    header.parent.mkdir(parents=True)
    header.write_text("#if __GNUC__ > 13\n")
    nvcc = Nvcc(Path("nvcc"), "12.5.82", "system", tmp_path, ())
    check = checks_build.check_host_compiler(nvcc, HostCompiler(Path("g++"), "gcc", "14.2.0"))
    assert check.status == "warn"
    assert "-ccbin" in check.advice


def test_little_memory_and_disk_are_warned_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks_build, "ENOUGH_DISK_BYTES", 1 << 62)
    monkeypatch.setattr(checks_build, "ENOUGH_MEMORY_BYTES", 1 << 62)
    assert checks_build.check_disk(Path("not/made/yet")).status == "warn"
    assert checks_build.check_memory().status == "warn"


def test_a_check_that_breaks_is_a_finding() -> None:
    def check_something_foreign() -> Check:
        raise OSError("broken library\nsecond line")

    found = run_check(check_something_foreign)
    assert (found.name, found.status) == ("something foreign", "missing")
    assert "broken library" in found.found
    assert "second line" not in found.found


def make_diagnosis(static: Check, measure: Check) -> Diagnosis:
    return Diagnosis((static,), (measure,), (), (), (), ())


def test_the_verdict_says_which_half_runs() -> None:
    ok, bad = Check("NVRTC", "ok", ""), Check("NVRTC", "missing", "")
    assert make_diagnosis(ok, ok).verdict == "Everything can run here."
    assert "measuring can't" in make_diagnosis(ok, bad).verdict
    assert not make_diagnosis(bad, ok).can_measure
    assert "Not even the static half" in make_diagnosis(bad, ok).verdict


def test_every_check_answers_here() -> None:
    """Case E12: with or without a GPU, each check ends in a finding and says what to do."""
    found = diagnosis.diagnose()
    checks = (*found.static, *found.measure, *found.paper, *found.optional)
    assert not [check for check in checks if "the check failed" in check.found]
    assert not [check for check in checks if check.status != "ok" and not check.advice]
    assert found.can_run_static
    assert found.can_write_paper


def test_json_is_whole_and_exits_0_without_a_gpu(tmp_path: Path) -> None:
    done = doctor("--format", "json", folder=tmp_path, cache=tmp_path / "cache")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    data = json.loads(done.stdout)
    assert data["can_run_static"] is True
    assert {"name", "status", "found", "advice"} == set(data["static"][0])


@pytest.mark.parametrize("problem", ["cutlass", "cache"])
def test_exit_3_without_the_static_half(tmp_path: Path, problem: str) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    variables = {"CUTLASS_PATH": str(tmp_path)} if problem == "cutlass" else {}
    cache = tmp_path / "cache" if problem == "cutlass" else blocked / "cache"
    done = doctor(folder=tmp_path, cache=cache, **variables)
    assert done.returncode == 3
    assert "Not even the static half" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_a_missing_package_is_one_sentence(tmp_path: Path) -> None:
    """The script alone, in an interpreter that has nothing of the project."""
    script = shutil.copy(DOCTOR, tmp_path)
    done = subprocess.run(
        [sys.executable, "-I", "-S", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert "pip install -e ." in done.stderr
    assert "Traceback" not in done.stderr


def test_text_survives_a_narrow_encoding(tmp_path: Path) -> None:
    folder = tmp_path / "größe"
    folder.mkdir()
    done = doctor(folder=folder, cache=folder / "cache", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr


def test_wrong_usage_exits_2(tmp_path: Path) -> None:
    done = doctor("--format", "xml", folder=tmp_path, cache=tmp_path / "cache")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
