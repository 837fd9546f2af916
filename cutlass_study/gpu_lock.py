"""One measuring process per GPU: two at once would disturb each other's numbers unnoticed.

A file per GPU in the user's state folder is held with a lock of the operating system, which ends
with the process that holds it, however that ends. The file itself stays; it names the holder.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import platformdirs

from cutlass_study.records import DeviceRecord, EnvironmentProblem

if sys.platform == "win32":
    import msvcrt

    _FAR = 1 << 20  # a locked byte can't be read there, so it lies behind the text

    def _lock(file: int) -> None:
        os.lseek(file, _FAR, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


_DIGITS = 20  # of a process number, padded: a new one covers all of an old one
_HELD = (errno.EAGAIN, errno.EACCES, errno.EDEADLK)  # what POSIX and Windows report


def lock_path(uuid: str) -> Path:
    """The GPU's lock file."""
    folder = platformdirs.user_state_path("cutlass-study", appauthor=False)
    return folder / f"{re.sub(r'[^A-Za-z0-9-]', '_', uuid)}.lock"


@contextmanager
def measuring_alone(device: DeviceRecord, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the GPU while measuring.

    Raises `EnvironmentProblem` if another process holds it. Where no lock can be had, that is said
    and the measuring goes on.
    """
    path = lock_path(device.uuid)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        _say_unlocked(path, error, say)
        yield
        return
    try:
        _take(file, path, device, say)
        yield
    finally:
        os.close(file)


def _take(file: int, path: Path, device: DeviceRecord, say: Callable[[str], None]) -> None:
    try:
        _lock(file)
    except OSError as error:
        if error.errno not in _HELD:
            _say_unlocked(path, error, say)
            return
        raise EnvironmentProblem(
            f"{_holder(path)} measures on {device.name} ({device.uuid}) already, and two at once "
            "disturb each other; wait for it, or end it"
        ) from None
    with suppress(OSError):  # a full disk; the lock holds without a name
        os.lseek(file, 0, os.SEEK_SET)
        os.write(file, f"{os.getpid():<{_DIGITS}}\n".encode())


def _holder(path: Path) -> str:
    with suppress(OSError):
        text = path.read_text(encoding="utf-8", errors="replace").strip()
        if text.isascii() and text.isdigit():
            return f"process {text}"
    return "another process"


def _say_unlocked(path: Path, error: OSError, say: Callable[[str], None]) -> None:
    say(
        f"the GPU can't be locked ('{path}': {error.strerror or error}), so nothing keeps a second "
        "sweep from measuring on it at the same time"
    )
