"""The content-addressed cache of compiled kernels: safe for several processes and to copy.

A key covers everything that determines a cubin: source, headers, flags, arch, compiler and CUTLASS
version. An entry is written to a temporary folder and renamed, so it is whole or absent. Failures
are cached like successes. A damaged entry is a miss.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs

from cutlass_study.cubin import read_resources
from cutlass_study.nvrtc import blames_machine
from cutlass_study.records import BuildRecord, EnvironmentProblem, Resources


@dataclass(frozen=True, slots=True)
class KernelBuild:
    """A kernel as compiled, or why it could not be (`error`, then no resources and no cubin)."""

    record: BuildRecord
    cubin: bytes | None
    error: str | None


def default_cache_folder() -> Path:
    """`CUTLASS_STUDY_CACHE`, or the user's cache folder of this platform."""
    named = os.environ.get("CUTLASS_STUDY_CACHE", "")
    return Path(named) if named else Path(platformdirs.user_cache_dir("cutlass-study", False))


def _refuse_foreign(folder: Path) -> None:
    """Machine code from a folder that another user can write to must never be run (POSIX)."""
    if os.name != "posix":
        return
    status = folder.stat()
    if status.st_uid not in (os.geteuid(), 0) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise EnvironmentProblem(
            f"the kernel cache '{folder}' belongs to or is writable by another user; "
            "choose a private folder with --cache-dir, or chmod go-w it"
        )


def _record(meta: dict[str, Any], resources: Resources | None) -> BuildRecord:
    fields = {name: value for name, value in meta["record"].items() if name != "resources"}
    record = BuildRecord(**fields, resources=resources)
    texts = (record.key, record.arch, record.toolchain, record.flags, record.cutlass_version)
    if not all(isinstance(text, str) for text in (*texts, record.source_hash)):
        raise ValueError("a text of the record is none")
    if not isinstance(record.compile_seconds, int | float):
        raise ValueError("the record's seconds are no number")
    return record


def _read_success(entry: Path, meta: dict[str, Any]) -> KernelBuild:
    """The entry's kernel; raises `ValueError` unless its image and log bear out the record."""
    cubin = (entry / "kernel.cubin").read_bytes()
    if hashlib.sha256(cubin).hexdigest() != meta["sha256"]:
        raise ValueError("the image is not the one that was stored")
    resources = read_resources(cubin, (entry / "log.txt").read_text(encoding="utf-8"))
    if dataclasses.asdict(resources) != meta["record"]["resources"]:
        raise ValueError("the record's resources are not those of the image")
    return KernelBuild(_record(meta, resources), cubin, None)


def _read_failure(meta: dict[str, Any]) -> KernelBuild:
    """The failure stored; raises `ValueError` if it has no reason, or none about the source."""
    error = meta["error"]
    if not isinstance(error, str) or not error or blames_machine(error):
        raise ValueError("the failure has no reason that would still hold")
    return KernelBuild(_record(meta, None), None, error)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


class KernelCache:
    """One folder per key: `build.json`, `kernel.cubin`, `source.cu`, `log.txt`."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or default_cache_folder()
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder):
                pass
        except OSError as error:
            raise EnvironmentProblem(
                f"the kernel cache '{self.folder}' can't be written ({error.strerror}); "
                "choose another folder with --cache-dir"
            ) from error
        _refuse_foreign(self.folder)

    def _entry(self, key: str) -> Path:
        return self.folder / key[:2] / key

    def load(self, key: str) -> KernelBuild | None:
        """The entry of `key`, or `None` if there is none, it is damaged, or it isn't ours."""
        entry = self._entry(key)
        try:
            _refuse_foreign(entry.parent)
            _refuse_foreign(entry)
            meta = json.loads((entry / "build.json").read_text(encoding="utf-8"))
            build = _read_success(entry, meta) if meta["sha256"] else _read_failure(meta)
        except (OSError, ValueError, TypeError, KeyError, AttributeError, EnvironmentProblem):
            return None
        return build if build.record.key == key else None

    def store(self, build: KernelBuild, source: str, log: str) -> bool:
        """Write an entry; if another process wrote it first, theirs stays.

        False if it can't be written (a full disk): the build is as good, and compiled anew by the
        next run.
        """
        try:
            self._write(build, source, log)
        except OSError:
            return False
        return True

    def _write(self, build: KernelBuild, source: str, log: str) -> None:
        entry = self._entry(build.record.key)
        if entry.parent.is_file():
            entry.parent.unlink()
        entry.parent.mkdir(mode=0o700, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=".new-", dir=self.folder))
        try:
            meta = {
                "record": dataclasses.asdict(build.record),
                "error": build.error,
                "sha256": hashlib.sha256(build.cubin).hexdigest() if build.cubin else None,
            }
            (staging / "source.cu").write_text(source, encoding="utf-8")
            (staging / "log.txt").write_text(log, encoding="utf-8")
            if build.cubin:
                (staging / "kernel.cubin").write_bytes(build.cubin)
            (staging / "build.json").write_text(json.dumps(meta, indent=1), encoding="utf-8")
            if entry.exists() and self.load(build.record.key) is None:
                _remove(entry)
            with contextlib.suppress(OSError):  # someone else's equal entry is as good
                staging.rename(entry)
        finally:
            shutil.rmtree(staging, ignore_errors=True)


def tree_digest(folder: Path, suffixes: tuple[str, ...]) -> str:
    """SHA-256 over relative names and contents of the header files below `folder`."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.suffix in suffixes and path.is_file():
            digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
