"""How much memory new processes may take: what the machine has free, or less in a container.

A control group (Docker, Kubernetes, Slurm, systemd) may hold this process to a part of the machine.
Its files tell the limit and what is used of it. Source: Linux's `cgroup-v2.rst` ("memory.max",
"memory.current", "memory.stat") and `cgroup-v1/memory.rst`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import psutil


@dataclass(frozen=True, slots=True)
class _Files:
    """What one version of control groups calls its files."""

    limits: tuple[str, ...]
    used: str
    reclaimable: str  # the line of memory.stat that counts what a full group gives back


_V1 = _Files(("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_inactive_file")
_V2 = _Files(("memory.max", "memory.high"), "memory.current", "inactive_file")


def available_bytes() -> int:
    """Free memory of the machine, or of the control group that has the least left."""
    rooms = group_rooms(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))
    return min([int(psutil.virtual_memory().available), *rooms])


def group_rooms(membership: Path, mount: Path) -> list[int]:
    """Bytes left in each limited control group that this process is in; none on other systems.

    `membership` is `/proc/self/cgroup`, `mount` the folder where the groups' files are.
    """
    try:
        lines = membership.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
    rooms = []
    for line in lines:
        controllers, _, path = line.partition(":")[2].partition(":")
        if line.startswith("0::"):
            rooms += [_room(folder, _V2) for folder in _with_parents(mount, path)]
        elif "memory" in controllers.split(","):
            rooms += [_room(folder, _V1) for folder in _with_parents(mount / "memory", path)]
    return [room for room in rooms if room is not None]


def _with_parents(mount: Path, path: str) -> Iterator[Path]:
    """The group's folder and those above it, whose limits hold as well.

    In a container `path` may be the host's, where the mount shows the container's group alone.
    """
    group = PurePosixPath(path.lstrip("/"))
    if ".." not in group.parts:
        yield from (mount / folder for folder in (group, *group.parents))


def _room(folder: Path, files: _Files) -> int | None:
    """Bytes that the group may still take; `None` if it has no limit, or no such files."""
    limits = [limit for name in files.limits if (limit := _number(folder / name)) is not None]
    used = _number(folder / files.used)
    if not limits or used is None:
        return None
    return max(0, min(limits) - used + _reclaimable(folder / "memory.stat", files.reclaimable))


def _number(path: Path) -> int | None:
    """The file's number; `None` if it has none, such as `max`."""
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _reclaimable(statistics: Path, wanted: str) -> int:
    """Cached files that the kernel drops when the group needs their memory."""
    try:
        words = statistics.read_text(encoding="ascii").split()
        return int(words[words.index(wanted) + 1])
    except (OSError, ValueError, IndexError):
        return 0
