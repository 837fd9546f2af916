"""nvcc and the host compiler it needs. Both are optional: NVRTC compiles without them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cutlass_study.cuda_roots import (
    CudaRoot,
    Origin,
    cuda_roots,
    nvcc_on_path,
    on_windows,
    variable_roots,
    variables_or_environment,
)

CompilerKind = Literal["gcc", "clang", "msvc"]
# nvcc reads the first, CMake the second, everything else the third.
HOST_COMPILER_VARIABLES = ("NVCC_CCBIN", "CUDAHOSTCXX", "CXX")


@dataclass(frozen=True, slots=True)
class Nvcc:
    """An nvcc that runs. `root` is its installation, `link_flags` what linking also wants."""

    path: Path
    version: str  # "13.0.88"
    origin: Origin
    root: Path
    link_flags: tuple[str, ...]

    @property
    def description(self) -> str:
        return f"nvcc {self.version} ({self.origin}, {self.path})"


@dataclass(frozen=True, slots=True)
class HostCompiler:
    """A C++ compiler that runs. `version` is that of the compiler: 15 for gcc, 19.44 for cl."""

    path: Path
    kind: CompilerKind
    version: str

    @property
    def description(self) -> str:
        return f"{self.kind} {self.version} ({self.path})"


def output_of(*command: str | Path) -> str | None:
    """What a version query prints (stdout and stderr together), or None if it can't be run."""
    try:
        done = subprocess.run(
            [str(part) for part in command],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=30,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C"},
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout + done.stderr


def _root_of_wrapper(nvcc: Path) -> Path | None:
    """Where an nvcc that is a wrapper script leads: nvcc's dry run prints its own folder."""
    text = output_of(nvcc, "--dryrun", "-x", "cu", "-c", os.devnull, "-o", os.devnull) or ""
    match = re.search(r"^#\$ _HERE_=(.+)$", text, re.MULTILINE)
    return Path(match[1].strip()).parent if match else None


def _link_flags(root: Path, origin: Origin) -> tuple[str, ...]:
    """pip's nvcc looks for libraries in `lib64`, but the wheels put them into `lib`."""
    if origin == "system":
        return ()
    folders = [root / "lib" / "x64", root / "lib"]
    names = ("libcudart_static.a", "cudart_static.lib")
    holds = (folder for folder in folders if any((folder / name).is_file() for name in names))
    folder = next(holds, None)
    return ("-L", str(folder)) if folder else ()


def _try_nvcc(path: Path, root: Path, origin: Origin) -> Nvcc | None:
    match = re.search(r"V(\d+\.\d+\.\d+)", output_of(path, "--version") or "")
    if match is None:
        return None
    if CudaRoot(root, origin, "").include is None and origin == "system":
        root = _root_of_wrapper(path) or root
    return Nvcc(path, match[1], origin, root, _link_flags(root, origin))


def find_nvcc(variables: Mapping[str, str] | None = None) -> Nvcc | None:
    """The first nvcc that runs: of CUDA_INSTALL_PATH, then in the order of `cuda_roots`.

    CUDA_INSTALL_PATH comes first because no installer sets it: whoever sets it means it. PATH is
    searched by Python, never by a `which` program.
    """
    environment = variables_or_environment(variables)
    wanted = [root for root in variable_roots(environment) if "CUDA_INSTALL_PATH" in root.found_by]
    for root in [*wanted, *cuda_roots(environment)]:
        path = root.tool("nvcc")
        found = _try_nvcc(path, root.path, root.origin) if path else None
        if found:
            return found
    on_path = nvcc_on_path(environment)  # a wrapper outside any installation
    return _try_nvcc(on_path, on_path.parent.parent, "system") if on_path else None


def _read_compiler(path: Path) -> HostCompiler | None:
    """Ask a compiler what it is; `cl` answers without arguments, the others to `--version`."""
    if path.stem.lower() == "cl":
        match = re.search(r"(\d+\.\d+)\.\d+", output_of(path) or "")
        return HostCompiler(path, "msvc", match[1]) if match else None
    text = output_of(path, "--version") or ""
    if clang := re.search(r"clang version (\d+[.\d]*)", text):
        return HostCompiler(path, "clang", clang[1])
    if "Free Software Foundation" not in text:
        return None
    version = (output_of(path, "-dumpfullversion", "-dumpversion") or "").strip()
    return HostCompiler(path, "gcc", version) if re.fullmatch(r"\d+[.\d]*", version) else None


def _visual_studio_compilers(variables: Mapping[str, str]) -> Iterator[Path]:
    for name in ("ProgramFiles", "ProgramFiles(x86)"):
        if folder := variables.get(name):
            pattern = "Microsoft Visual Studio/*/*/VC/Tools/MSVC/*/bin/Hostx64/x64/cl.exe"
            yield from sorted(Path(folder).glob(pattern), reverse=True)


def _compiler_paths(variables: Mapping[str, str]) -> Iterator[Path]:
    """Compilers in the order of preference: named ones, then the default, then numbered ones."""
    search = variables.get("PATH", "")
    for variable in HOST_COMPILER_VARIABLES:
        value = variables.get(variable, "").strip()
        if value and (found := shutil.which(value, path=search)):
            yield Path(found)
    names = ["cl"] if on_windows() else ["g++", "c++"]
    if not on_windows():
        names += [f"g++-{version}" for version in range(20, 8, -1)] + ["clang++"]
        names += [f"clang++-{version}" for version in range(24, 13, -1)]
    for name in names:
        if found := shutil.which(name, path=search):
            yield Path(found)
    if on_windows():
        yield from _visual_studio_compilers(variables)


def find_host_compiler(
    nvcc: Nvcc | None = None, variables: Mapping[str, str] | None = None
) -> HostCompiler | None:
    """The first C++ compiler that runs and that `nvcc` supports, else the first that runs.

    What comes back may still be unsupported: `host_compiler_problem` says why.
    """
    environment = variables_or_environment(variables)
    first: HostCompiler | None = None
    for path in _compiler_paths(environment):
        compiler = _read_compiler(path)
        if compiler and (nvcc is None or host_compiler_problem(compiler, nvcc) is None):
            return compiler
        first = first or compiler
    return first


def _host_config(nvcc: Nvcc) -> str:
    """The header in which each nvcc states the compilers it supports; "" if it is missing."""
    candidates = [nvcc.root / "include" / "crt" / "host_config.h"]
    candidates += sorted(nvcc.root.glob("targets/*/include/crt/host_config.h"))
    path = next((path for path in candidates if path.is_file()), None)
    return path.read_text(encoding="utf-8", errors="replace") if path else ""


def maximum_host_version(kind: CompilerKind, nvcc: Nvcc) -> int | None:
    """The newest compiler version that `nvcc` accepts, from its own `crt/host_config.h`.

    The major version for gcc and clang, `_MSC_VER` (1949: 19.49) for msvc; None if not stated.
    """
    text = _host_config(nvcc)
    if kind == "gcc":
        match = re.search(r"^#if __GNUC__ > (\d+)", text, re.MULTILINE)
        return int(match[1]) if match else None
    macro = r"\(?__clang_major__" if kind == "clang" else "_MSC_VER"
    match = re.search(rf"^#if .*?{macro} >= (\d+)", text, re.MULTILINE)
    return int(match[1]) - 1 if match else None


def host_compiler_problem(compiler: HostCompiler, nvcc: Nvcc) -> str | None:
    """Why `nvcc` can't use this host compiler, with the remedy; None if it can."""
    if compiler.kind == "msvc":
        return (
            "CUTLASS 4 does not build with Microsoft's compiler (NVIDIA/cutlass#2911); "
            "use NVRTC, which is the default, or WSL2"
        )
    maximum = maximum_host_version(compiler.kind, nvcc)
    if maximum is None or int(compiler.version.split(".")[0]) <= maximum:
        return None
    program = "g++" if compiler.kind == "gcc" else "clang++"
    return (
        f"{compiler.kind} {compiler.version} is newer than the {compiler.kind} {maximum} that nvcc "
        f"{nvcc.version} supports; install {program}-{maximum} and set NVCC_CCBIN to it, "
        f"or pass -ccbin {program}-{maximum}"
    )
