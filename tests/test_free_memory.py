"""Free memory where a control group holds this process to a part of the machine (fake files)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from cutlass_study import checks_build, compile, free_memory
from cutlass_study.compile import WORKER_BYTES, worker_count
from cutlass_study.free_memory import group_rooms

GIB = 1 << 30


def group(folder: Path, stat: str = "", **files: object) -> None:
    """A control group's files; `memory_max=1` is `memory.max`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        (folder / name.replace("_", ".", 1)).write_text(f"{value}\n")
    (folder / "memory.stat").write_text(stat)


def rooms(tmp_path: Path, membership: str) -> list[int]:
    (tmp_path / "cgroup").write_text(membership)
    return group_rooms(tmp_path / "cgroup", tmp_path / "mount")


def test_version_2_counts_what_is_left(tmp_path: Path) -> None:
    stat = f"anon 5\ninactive_file {GIB}\nactive_file 7\n"
    group(tmp_path / "mount", stat, memory_max=8 * GIB, memory_current=3 * GIB)
    assert rooms(tmp_path, "0::/\n") == [6 * GIB]


def test_every_group_above_holds_too(tmp_path: Path) -> None:
    mount = tmp_path / "mount"
    group(mount / "a" / "b", memory_max="max", memory_high="max", memory_current=GIB)
    group(mount / "a", memory_max=4 * GIB, memory_high=3 * GIB, memory_current=GIB)
    group(mount, memory_max=16 * GIB, memory_current=2 * GIB)
    assert rooms(tmp_path, "0::/a/b\n") == [2 * GIB, 14 * GIB]


def test_a_container_may_see_its_own_group_at_the_top(tmp_path: Path) -> None:
    group(tmp_path / "mount", memory_max=4 * GIB, memory_current=GIB)
    assert rooms(tmp_path, "0::/docker/0123\n") == [3 * GIB]
    assert rooms(tmp_path, "0::/../outside\n") == []


def test_version_1_has_other_names(tmp_path: Path) -> None:
    stat = f"inactive_file 1\ntotal_inactive_file {GIB}\n"
    mount = tmp_path / "mount" / "memory"
    group(mount / "job", stat, memory_limit_in_bytes=4 * GIB, memory_usage_in_bytes=2 * GIB)
    group(mount, memory_limit_in_bytes=9223372036854771712, memory_usage_in_bytes=GIB)
    lines = "5:cpu,cpuacct:/job\n4:memory:/job\n1:name=systemd:/\n0::/\n"
    assert min(rooms(tmp_path, lines)) == 3 * GIB


def test_a_full_group_leaves_nothing(tmp_path: Path) -> None:
    group(tmp_path / "mount", memory_max=GIB, memory_current=2 * GIB)
    assert rooms(tmp_path, "0::/\n") == [0]


@pytest.mark.parametrize("membership", ["", "nonsense", "0:", "0::/", "x:memory:/a"])
def test_what_is_missing_or_strange_limits_nothing(tmp_path: Path, membership: str) -> None:
    assert rooms(tmp_path, membership) == []
    assert group_rooms(tmp_path / "nowhere", tmp_path) == []


def test_strange_numbers_limit_nothing(tmp_path: Path) -> None:
    group(tmp_path / "mount", "inactive_file", memory_max="lots", memory_current=GIB)
    assert rooms(tmp_path, "0::/\n") == []
    group(tmp_path / "mount", "inactive_file", memory_max=2 * GIB, memory_current=GIB)
    assert rooms(tmp_path, "0::/\n") == [GIB]


@pytest.mark.parametrize(("room", "workers"), [(None, 8), (2, 2), (0, 1)])
def test_compilers_and_doctor_keep_to_the_group(
    room: int | None, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`room` counts compiler processes; the machine itself has memory for a hundred."""
    size = int(WORKER_BYTES["sm80"] / 0.8) + 1
    left = [] if room is None else [room * size]
    machine = SimpleNamespace(available=100 * size)
    monkeypatch.setattr(free_memory.psutil, "virtual_memory", lambda: machine)
    monkeypatch.setattr(free_memory, "group_rooms", lambda *_: left)
    monkeypatch.setattr(compile.os, "sched_getaffinity", lambda _: range(64), raising=False)
    assert worker_count("sm80", 8) == workers
    assert checks_build.check_memory().status == ("warn" if room == 0 else "ok")
