"""The toolchain that compiles: CUTLASS headers, CUDA and CCCL headers, NVRTC, and maybe nvcc.

Importing this module loads nothing of CUDA, and nothing here needs a driver or a GPU. What is
missing raises `EnvironmentProblem`: what, where it was looked for, and what to install.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from cutlass_study.cuda_roots import CudaRoot, cuda_roots, variables_or_environment
from cutlass_study.host_tools import (
    HostCompiler,
    Nvcc,
    find_host_compiler,
    find_nvcc,
    host_compiler_problem,
)
from cutlass_study.records import EnvironmentProblem

__all__ = [
    "HostCompiler",
    "Nvcc",
    "Nvrtc",
    "Toolchain",
    "cccl_include",
    "cuda_include",
    "cutlass_include",
    "cutlass_version",
    "find_host_compiler",
    "find_nvcc",
    "find_nvrtc",
    "find_toolchain",
    "host_compiler_problem",
    "nvrtc_version",
]

INSTALL_CUDA = "pip install 'cuda-toolkit[nvcc,cccl,cudart,cublas,nvrtc]==13.0.*'"


def cutlass_include(variables: Mapping[str, str] | None = None) -> Path:
    """The folder that holds `cutlass/cutlass.h` and `cute/`.

    CUTLASS_PATH (a CUTLASS clone) wins over the package nvidia-cutlass. The package is located
    without importing it: its sister cutlass_cppgen writes into the current folder on import.
    """
    named = variables_or_environment(variables).get("CUTLASS_PATH", "")
    if named:
        include = Path(named) / "include"
        if not (include / "cutlass" / "version.h").is_file():
            raise EnvironmentProblem(
                f"CUTLASS_PATH is '{named}' but holds no include/cutlass/version.h; "
                "set it to a CUTLASS clone, or unset it and pip install nvidia-cutlass==4.2.0.0"
            )
        return include
    spec = importlib.util.find_spec("cutlass_library")
    locations = list(spec.submodule_search_locations or []) if spec else []
    for location in locations:
        include = Path(location) / "source" / "include"
        if (include / "cutlass" / "version.h").is_file():
            return include
    looked = ", ".join(locations) or "no installed package cutlass_library"
    raise EnvironmentProblem(
        f"the CUTLASS headers are missing (looked in CUTLASS_PATH, {looked}); "
        "pip install nvidia-cutlass==4.2.0.0"
    )


def cutlass_version(include: Path | None = None) -> str:
    """`4.2.0`, from the headers that are compiled."""
    header = (include or cutlass_include()) / "cutlass" / "version.h"
    text = header.read_text(encoding="utf-8")
    parts = [re.search(rf"#define CUTLASS_{p}\s+(\d+)", text) for p in ("MAJOR", "MINOR", "PATCH")]
    return ".".join(part[1] if part else "0" for part in parts)


def _suitability(root: CudaRoot, wanted: tuple[int, int] | None) -> int:
    """0 for NVRTC's own version, 1 for the same major version, 2 for any other."""
    version = root.version
    if wanted is None or version == wanted:
        return 0
    return 1 if version is not None and version[0] == wanted[0] else 2


def cuda_header_root(variables: Mapping[str, str] | None = None) -> CudaRoot:
    """The installation whose headers are used: the one that best fits the NVRTC that is loaded."""
    roots = cuda_roots(variables)
    with_headers = [root for root in roots if root.include and root.cccl]
    if with_headers:
        try:
            wanted = find_nvrtc().release
        except EnvironmentProblem:
            wanted = None
        return min(with_headers, key=lambda root: _suitability(root, wanted))  # first among equals
    looked = ", ".join(str(root.path) for root in roots) or "site-packages, CUDA_PATH, CUDA_HOME"
    raise EnvironmentProblem(
        "the CUDA headers (cuda.h and cccl/cuda/std/type_traits) are missing "
        f"(looked in {looked}, nvcc on PATH and the usual system folders); {INSTALL_CUDA}"
    )


def cuda_include() -> Path:
    """The folder that holds `cuda.h`, `cuda_fp16.h` and `mma.h`."""
    include = cuda_header_root().include
    assert include
    return include


def cccl_include() -> Path:
    """The folder that holds `cuda/std`, from the same installation as `cuda_include`."""
    cccl = cuda_header_root().cccl
    assert cccl
    return cccl


@dataclass(frozen=True, slots=True)
class Nvrtc:
    """The NVRTC library that cuda-python loads. `version` names the very build, for cache keys."""

    version: str  # "13.0.88", or "13.0+<hash>" where the build number can't be told
    release: tuple[int, int]
    library: Path


@functools.cache
def find_nvrtc() -> Nvrtc:
    """Load NVRTC and say which it is. Needs no driver."""
    try:
        from cuda import pathfinder
        from cuda.bindings import nvrtc
    except ImportError as error:
        raise EnvironmentProblem(
            f"cuda-python 13 is missing or broken ({error}); pip install 'cuda-python>=13,<14'"
        ) from error
    try:
        library = Path(str(pathfinder.load_nvidia_dynamic_lib("nvrtc").abs_path))
        status, major, minor = nvrtc.nvrtcVersion()
    except Exception as error:  # pathfinder and bindings each have their own exception types
        first_line = next(iter(str(error).splitlines()), type(error).__name__)
        raise EnvironmentProblem(
            "NVRTC can't be loaded (looked in site-packages, on the loader path and in CUDA_PATH: "
            f"{first_line}); pip install 'nvidia-cuda-nvrtc==13.0.*'"
        ) from error
    if int(status) != 0:
        raise EnvironmentProblem(
            f"NVRTC at {library} does not tell its version (error {int(status)}); "
            "pip install 'nvidia-cuda-nvrtc==13.0.*'"
        )
    return Nvrtc(_nvrtc_build(library, f"{major}.{minor}"), (major, minor), library)


def _nvrtc_build(library: Path, release: str) -> str:
    """The full version of the loaded library: from its package, its file name, or its content."""
    try:
        package = metadata.distribution("nvidia-cuda-nvrtc")
    except metadata.PackageNotFoundError:
        package = None
    if package is not None and package.version.startswith(f"{release}."):
        files = (Path(str(package.locate_file(file))) for file in package.files or ())
        if library.resolve() in {file.resolve() for file in files}:
            return package.version
    named = re.search(rf"{re.escape(release)}\.\d+$", library.resolve().name)
    if named:
        return named[0]  # a system toolkit's libnvrtc.so.13.0.88
    with library.open("rb") as stream:
        return f"{release}+{hashlib.file_digest(stream, 'sha256').hexdigest()[:12]}"


def nvrtc_version() -> str:
    """`13.0.88`: the build of the NVRTC that is loaded; it belongs into every cache key."""
    return find_nvrtc().version


@dataclass(frozen=True, slots=True)
class Toolchain:
    """Everything that compiling uses. `nvcc` and `host_compiler` are None where there are none."""

    cutlass_include: Path
    cutlass_version: str
    cuda_include: Path
    cuda_version: str  # of the headers
    cccl_include: Path
    nvrtc: Nvrtc
    nvcc: Nvcc | None
    host_compiler: HostCompiler | None

    @property
    def include_paths(self) -> tuple[Path, Path, Path]:
        """CUTLASS, CUDA, CCCL: in the order in which they are searched."""
        return self.cutlass_include, self.cuda_include, self.cccl_include

    @property
    def host_problem(self) -> str | None:
        """Why code that needs nvcc and a host compiler can't be built; None if it can."""
        if self.nvcc is None:
            return f"nvcc is missing; {INSTALL_CUDA}"
        if self.host_compiler is None:
            return "nvcc finds no C++ compiler; install g++"
        return host_compiler_problem(self.host_compiler, self.nvcc)

    def describe(self) -> list[str]:
        """One line a part, fit to print."""
        return [
            f"CUTLASS {self.cutlass_version} ({self.cutlass_include})",
            f"CUDA headers {self.cuda_version} ({self.cuda_include})",
            f"CCCL headers ({self.cccl_include})",
            f"NVRTC {self.nvrtc.version} ({self.nvrtc.library})",
            self.nvcc.description if self.nvcc else "no nvcc (NVRTC does not need it)",
            self.host_compiler.description if self.host_compiler else "no host compiler",
        ]


@functools.cache
def find_toolchain() -> Toolchain:
    """Gather the toolchain once a process; raise `EnvironmentProblem` for what NVRTC can't miss."""
    cutlass = cutlass_include()
    nvrtc = find_nvrtc()
    root = cuda_header_root()
    assert root.include and root.cccl
    nvcc = find_nvcc()
    return Toolchain(
        cutlass_include=cutlass,
        cutlass_version=cutlass_version(cutlass),
        cuda_include=root.include,
        cuda_version=".".join(str(part) for part in root.version or ()),
        cccl_include=root.cccl,
        nvrtc=nvrtc,
        nvcc=nvcc,
        host_compiler=find_host_compiler(nvcc),
    )
