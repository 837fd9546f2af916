"""Where CUDA is installed: folders that hold `include`, `bin` and `lib` of one CUDA version.

They come from pip (`nvidia/cu13` in site-packages), from environment variables, from the nvcc on
PATH, and from the places the system installers use. Nothing is loaded or run here.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Origin = Literal["pip", "system"]
# CUTLASS's Python interface reads CUDA_INSTALL_PATH; the other two are set by installers.
ROOT_VARIABLES = ("CUDA_INSTALL_PATH", "CUDA_PATH", "CUDA_HOME")


@dataclass(frozen=True, slots=True)
class CudaRoot:
    """One CUDA installation. `found_by` says how, in words fit to print."""

    path: Path
    origin: Origin
    found_by: str

    @property
    def include(self) -> Path | None:
        """The folder that holds `cuda.h`, or None: a pip root may have nvcc and no headers."""
        folders = [self.path / "include", *sorted(self.path.glob("targets/*/include"))]
        return next((folder for folder in folders if (folder / "cuda.h").is_file()), None)

    @property
    def cccl(self) -> Path | None:
        """The folder that holds `cuda/std` (libcu++), or None."""
        folders = [
            self.path / "include" / "cccl",
            *sorted(self.path.glob("targets/*/include/cccl")),
        ]
        folders.append(self.path / "include")  # before CUDA 13
        return next((f for f in folders if (f / "cuda" / "std" / "type_traits").is_file()), None)

    @property
    def version(self) -> tuple[int, int] | None:
        """(13, 0) from `CUDA_VERSION` in `cuda.h`."""
        if self.include is None:
            return None
        text = (self.include / "cuda.h").read_text(encoding="utf-8", errors="replace")
        match = re.search(r"^#define\s+CUDA_VERSION\s+(\d+)", text, re.MULTILINE)
        return divmod(int(match[1]) // 10, 100) if match else None

    def tool(self, name: str) -> Path | None:
        """`bin/<name>`, with `.exe` on Windows, or None."""
        path = self.path / "bin" / (f"{name}.exe" if on_windows() else name)
        return path if path.is_file() else None


def on_windows() -> bool:
    return platform.system() == "Windows"


def variables_or_environment(variables: Mapping[str, str] | None) -> Mapping[str, str]:
    return os.environ if variables is None else variables


def pip_roots() -> list[CudaRoot]:
    """`nvidia/cu13` of every site-packages folder that has one (the wheels share a namespace)."""
    spec = importlib.util.find_spec("nvidia")
    locations = list(spec.submodule_search_locations or []) if spec else []
    folders = (Path(location) / "cu13" for location in locations)
    return [CudaRoot(folder, "pip", "pip packages") for folder in folders if folder.is_dir()]


def variable_roots(variables: Mapping[str, str] | None = None) -> list[CudaRoot]:
    """The folders that `ROOT_VARIABLES` name, where they exist."""
    environment = variables_or_environment(variables)
    named = ((name, environment.get(name, "")) for name in ROOT_VARIABLES)
    return [
        CudaRoot(Path(value), "system", f"the variable {name}")
        for name, value in named
        if value and Path(value).is_dir()
    ]


def nvcc_on_path(variables: Mapping[str, str] | None = None) -> Path | None:
    found = shutil.which("nvcc", path=variables_or_environment(variables).get("PATH", ""))
    return Path(found) if found else None


def _default_folders(variables: Mapping[str, str]) -> Iterator[Path]:
    if on_windows():
        program_files = Path(variables.get("ProgramFiles", r"C:\Program Files"))
        toolkits = program_files / "NVIDIA GPU Computing Toolkit" / "CUDA"
        yield from sorted(toolkits.glob("v*"), reverse=True)
        return
    yield Path("/usr/local/cuda")
    yield from sorted(Path("/usr/local").glob("cuda-*"), reverse=True)
    yield Path("/opt/cuda")


def cuda_roots(variables: Mapping[str, str] | None = None) -> list[CudaRoot]:
    """Every CUDA installation found, each once, in the order in which they are tried.

    The order is that of `cuda.pathfinder`, which chooses the NVRTC that is loaded: pip first.
    """
    environment = variables_or_environment(variables)
    roots = [*pip_roots(), *variable_roots(environment)]
    nvcc = nvcc_on_path(environment)
    if nvcc is not None:
        roots.append(CudaRoot(nvcc.resolve().parent.parent, "system", "the nvcc on PATH"))
    for folder in _default_folders(environment):
        if folder.is_dir():
            roots.append(CudaRoot(folder, "system", f"the folder {folder}"))
    unique: dict[Path, CudaRoot] = {}
    for root in roots:
        unique.setdefault(root.path.resolve(), root)
    return list(unique.values())
