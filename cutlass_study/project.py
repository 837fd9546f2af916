"""Where the project is: the folder that holds `paper/`, seen from the current folder."""

from __future__ import annotations

from pathlib import Path

from cutlass_study.config import UsageError


def project_folder(start: Path | None = None) -> Path | None:
    """The nearest folder at or above `start` (default: the current one) that holds `paper/`."""
    start = (start or Path.cwd()).resolve()
    for folder in (start, *start.parents):
        if (folder / "paper").is_dir():
            return folder
    return None


def default_data() -> Path:
    """The study's own data; raises `UsageError` outside a project."""
    project = project_folder()
    if project is None:
        raise UsageError(
            "no paper/ folder here or above; give --data the folder that sweep.py --export wrote"
        )
    return project / "paper" / "data" / "h200"
