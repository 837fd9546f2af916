"""Values as CSV text, and several files of one folder replaced without a half-written one."""

from __future__ import annotations

import contextlib
import csv
import io
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from cutlass_study.columns import Value
from cutlass_study.records import EnvironmentProblem

# Significant digits: nine keep nanoseconds in a launch of up to a second.
_DIGITS = {"time_ms": 9, "time_iqr_ms": 6, "host_ms": 9, "host_time_ms": 9}
_OTHER_DIGITS = 6
_EXACT = ("alpha", "beta")


def csv_bytes(columns: Sequence[str], lines: Iterable[Sequence[Value]]) -> bytes:
    """A header and the lines, UTF-8 with line feeds on every system."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    for line in lines:
        writer.writerow(map(csv_text, columns, line))
    return buffer.getvalue().encode()


def csv_text(column: str, value: Value) -> str:
    """Empty for what is not known; floats to the digits that mean something."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        digits = _DIGITS.get(column, _OTHER_DIGITS)
        text = repr(value) if column in _EXACT else f"{value:.{digits}g}"
        return text.removesuffix(".0")
    # A compiler's message may hold line breaks, which break the tools that read line by line.
    return " ".join(value.split()) if isinstance(value, str) else str(value)


def write_all(directory: Path, files: Mapping[str, bytes], aside: Path | None = None) -> None:
    """Make the folder if missing and `replace_files` in it.

    Raises EnvironmentProblem, leaving what was there, if the folder can't be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        replace_files(directory, files, aside)
    except OSError as error:
        raise EnvironmentProblem(
            f"folder '{directory}' can't be written ({error.strerror or error}); give a folder "
            "that can be written and has free space"
        ) from error


def file_to_replace(path: Path, option: str) -> Path:
    """Where a file that `option` names really goes: links are followed.

    Raises `EnvironmentProblem` for a folder, a device or a pipe, which a file must not replace, and
    for a path into a folder that can't be entered.
    """
    try:
        final = path.resolve()
        replaceable = final.is_file() or not final.exists()
    except OSError as error:
        raise EnvironmentProblem(
            f"'{path}' can't be reached ({error.strerror or error}); give another {option}"
        ) from error
    if not replaceable:
        kind = "a folder" if final.is_dir() else "no ordinary file"
        raise EnvironmentProblem(f"'{path}' is {kind}; give the name of a file with {option}")
    return final


def replace_files(directory: Path, files: Mapping[str, bytes], aside: Path | None = None) -> None:
    """Write all beside their places, then rename each, in the order given.

    With `aside`, a folder that is made, what stands in their places moves there before. Raises
    OSError, leaving no half-written file and what was there, if one can't be written.
    """
    written: list[tuple[Path, Path]] = []
    try:
        for name, content in files.items():
            part = directory / f".{name}.{os.getpid()}.tmp"
            written.append((part, directory / name))
            with part.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        if aside is not None:
            aside.mkdir(parents=True, exist_ok=True)
            for _, final in written:
                if final.exists():
                    final.replace(aside / final.name)
        for part, final in written:
            part.replace(final)
    except BaseException:  # an interrupt must not leave them either
        for part, _ in written:
            with contextlib.suppress(OSError):
                part.unlink()
        raise
