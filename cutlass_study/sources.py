"""Where the C++ sources lie: beside the package in a clone, inside it in an installed wheel."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from cutlass_study.records import EnvironmentProblem

SourceFolder = Literal["instantiations", "wmma_custom"]


def source_folder(name: SourceFolder) -> Path:
    """The folder of CUTLASS templates or of hand-written kernels.

    Raise `EnvironmentProblem` if neither a wheel's copy nor a clone's folder exists.
    """
    package = Path(__file__).resolve().parent
    candidates = (package / "_sources" / name, package.parent / name)
    for folder in candidates:
        if folder.is_dir():
            return folder
    looked = " and ".join(str(folder) for folder in candidates)
    raise EnvironmentProblem(
        f"the C++ sources '{name}' are missing (looked in {looked}); "
        "install the project again from a complete clone with pip install -e ."
    )
