"""Published folders that lie below a data folder: its experiments, and repeats of its sweep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from cutlass_study.study_data import DataError, StudyData, load

EXPERIMENTS, REPEATS = "experiments", "repeats"
LeftOut = tuple[tuple[str, str], ...]  # (what, why) of what can't be shown


def usable_in(
    parent: Path, noun: str, check: Callable[[StudyData, Sequence[StudyData]], None]
) -> tuple[tuple[StudyData, ...], LeftOut]:
    """The records in the folders below `parent`, and what had to be left out; no hidden folders.

    `check` is given one folder's records and those before it, and raises `DataError` for what can't
    be used. `noun` is what the reader calls such a folder.
    """
    try:
        folders = _folders_in(parent)
    except DataError as error:
        return (), ((parent.name, str(error)),)
    usable: list[StudyData] = []
    left_out = []
    for folder in folders:
        try:
            found = load(folder)
            check(found, usable)
        except DataError as error:
            left_out.append((f"{noun} {folder.name}", str(error)))
        else:
            usable.append(found)
    return tuple(usable), tuple(left_out)


def _folders_in(parent: Path) -> list[Path]:
    try:
        return sorted(
            one
            for one in (parent.iterdir() if parent.is_dir() else ())
            if one.is_dir() and not one.name.startswith(".")
        )
    except OSError as error:
        raise DataError(
            f"'{parent}' can't be read ({error.strerror or error}); make it readable"
        ) from error
