"""Checks of what compiling and the paper need; none needs a GPU or a driver."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from cutlass_study.cache import KernelCache, default_cache_folder
from cutlass_study.check import Check, Status
from cutlass_study.free_memory import available_bytes
from cutlass_study.host_tools import (
    HostCompiler,
    Nvcc,
    find_host_compiler,
    find_nvcc,
    host_compiler_problem,
)
from cutlass_study.nvrtc import CompileError, Source, compile_cubin, first_error_line
from cutlass_study.records import EnvironmentProblem
from cutlass_study.sources import source_folder
from cutlass_study.toolchain import (
    INSTALL_CUDA,
    cccl_include,
    cuda_header_root,
    cuda_include,
    cutlass_include,
    cutlass_version,
    find_nvrtc,
)

MINIMUM_PYTHON = (3, 11)
# One worker's precompiled header is 447 MB and its peak memory 1.3 GiB (NVRTC 13.0.88, sm80).
ENOUGH_DISK_BYTES = 2 << 30
ENOUGH_MEMORY_BYTES = 2 << 30
TRIAL_SOURCE = """
#include <cuda/std/type_traits>
#include <cuda_fp16.h>
#include <cutlass/cutlass.h>
extern "C" __global__ void trial(__half *value) { *value = __float2half(1.0f); }
"""
CUDA_PYTHON = "cuda-python"
PACKAGES = ("nvidia-cutlass", "cuda-toolkit", "nvmath-python", "nvidia-ml-py", "pyelftools")
PAPER_PACKAGES = ("matplotlib", "pandas", "scipy", "seaborn", "typst")


def version_of(package: str) -> str | None:
    """The installed version of a distribution, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def megabytes(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"


def check_python() -> Check:
    version = platform.python_version()
    if sys.version_info[:2] >= MINIMUM_PYTHON:
        return Check("Python", "ok", f"{version} ({sys.executable})")
    wanted = ".".join(map(str, MINIMUM_PYTHON))
    return Check("Python", "missing", version, f"use Python {wanted} or newer")


def check_cuda_python() -> Check:
    """cuda-python 12 has no `cuda.bindings` of CUDA 13; a newer major is untested."""
    version = version_of(CUDA_PYTHON) or version_of("cuda-bindings")
    if version is None:
        advice = "pip install 'cuda-python>=13,<14'"
        return Check(CUDA_PYTHON, "missing", "not installed", advice)
    if version.split(".")[0] != "13":
        advice = "the toolkit needs version 13: pip install 'cuda-python>=13,<14'"
        return Check(CUDA_PYTHON, "missing", version, advice)
    return Check(CUDA_PYTHON, "ok", version)


def check_nvrtc() -> Check:
    try:
        nvrtc = find_nvrtc()
    except EnvironmentProblem as problem:
        return Check("NVRTC", "missing", "not usable", str(problem))
    found = f"{nvrtc.version} ({nvrtc.library})"
    if nvrtc.release[0] != 13:
        return Check("NVRTC", "warn", found, "CUDA 13 is tested: pip install nvidia-cuda-nvrtc")
    return Check("NVRTC", "ok", found)


def check_cuda_headers() -> Check:
    """Headers of another CUDA release than NVRTC's may use what NVRTC does not know."""
    try:
        root = cuda_header_root()
    except EnvironmentProblem as problem:
        return Check("CUDA headers", "missing", "not found", str(problem))
    version = root.version or (0, 0)
    found = f"{version[0]}.{version[1]} from {root.found_by} ({root.include})"
    try:
        release = find_nvrtc().release
    except EnvironmentProblem:
        return Check("CUDA headers", "ok", found)
    if version != release:
        advice = f"they don't match NVRTC {release[0]}.{release[1]}; {INSTALL_CUDA}"
        return Check("CUDA headers", "warn", found, advice)
    return Check("CUDA headers", "ok", found)


def check_cutlass_headers() -> Check:
    try:
        include = cutlass_include()
    except EnvironmentProblem as problem:
        return Check("CUTLASS headers", "missing", "not found", str(problem))
    version = cutlass_version(include)
    found = f"{version} ({include})"
    if version != "4.2.0":
        advice = "the study was made with 4.2.0: pip install nvidia-cutlass==4.2.0.0"
        return Check("CUTLASS headers", "warn", found, advice)
    return Check("CUTLASS headers", "ok", found)


def check_sources() -> Check:
    try:
        folders = [source_folder("instantiations"), source_folder("wmma_custom")]
    except EnvironmentProblem as problem:
        return Check("C++ sources", "missing", "not found", str(problem))
    return Check("C++ sources", "ok", ", ".join(str(folder) for folder in folders))


def check_trial_compilation() -> Check:
    """Compile an empty kernel that includes a header of each kind: 0.2 s."""
    try:
        folders = (cutlass_include(), cuda_include(), cccl_include())
    except EnvironmentProblem as problem:
        return Check("trial compilation", "missing", "not possible", str(problem))
    source = Source(TRIAL_SOURCE, folders)
    try:
        compiled = compile_cubin(source, "sm_89")
    except CompileError as error:
        advice = f"NVRTC and its headers don't fit together; {INSTALL_CUDA}"
        return Check("trial compilation", "missing", first_error_line(str(error)), advice)
    return Check("trial compilation", "ok", f"{len(compiled.cubin)} B for sm_89")


def check_cache(folder: Path | None = None) -> Check:
    """The kernel cache is private and its own: nothing is ever loaded from the current folder."""
    try:
        cache = KernelCache(folder)
    except EnvironmentProblem as problem:
        advice = f"{problem}, or set CUTLASS_STUDY_CACHE"
        return Check("kernel cache", "missing", str(folder or default_cache_folder()), advice)
    return Check("kernel cache", "ok", f"{cache.folder} is writable")


def check_disk(folder: Path | None = None) -> Check:
    place = (folder or default_cache_folder()).absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    status: Status = "ok" if free >= ENOUGH_DISK_BYTES else "warn"
    advice = "" if status == "ok" else f"free {megabytes(ENOUGH_DISK_BYTES)} for header caches"
    return Check("free disk", status, f"{megabytes(free)} at {place}", advice)


def check_memory() -> Check:
    free = available_bytes()
    cores = os.cpu_count() or 1
    status: Status = "ok" if free >= ENOUGH_MEMORY_BYTES else "warn"
    advice = "" if status == "ok" else "compiling one kernel takes up to 2 GiB; close programs"
    return Check("free memory", status, f"{megabytes(free)}, {cores} cores", advice)


def check_packages() -> Check:
    versions = {name: version_of(name) for name in PACKAGES}
    found = ", ".join(f"{name} {version or 'missing'}" for name, version in versions.items())
    absent = [name for name, version in versions.items() if version is None]
    if not absent:
        return Check("packages", "ok", found)
    advice = f"pip install {' '.join(absent)} (fine without, where a system toolkit replaces them)"
    return Check("packages", "warn", found, advice)


def check_nvcc(variables: Mapping[str, str] | None = None) -> Check:
    """Optional: NVRTC compiles every family. nvcc only cross-checks it."""
    nvcc = find_nvcc(variables)
    if nvcc is None:
        advice = "only comparing front ends needs it: set CUDA_INSTALL_PATH, or " + INSTALL_CUDA
        return Check("nvcc", "warn", "not found (looked beyond PATH too)", advice)
    flags = f", links with {' '.join(nvcc.link_flags)}" if nvcc.link_flags else ""
    return Check("nvcc", "ok", nvcc.description + flags)


def check_host_compiler(nvcc: Nvcc | None = None, compiler: HostCompiler | None = None) -> Check:
    """Said once, before a hundred equal compile failures. Pass both to judge a given pair."""
    nvcc = nvcc or find_nvcc()
    compiler = compiler or find_host_compiler(nvcc)
    if compiler is None:
        advice = "only nvcc needs one; install g++"
        return Check("host compiler", "warn", "not found", advice)
    problem = host_compiler_problem(compiler, nvcc) if nvcc else None
    return Check("host compiler", "warn" if problem else "ok", compiler.description, problem or "")


def check_working_folder(folder: Path | None = None) -> Check:
    """cutlass_cppgen unpickles a `compiled_cache.db` of the current folder on import."""
    place = folder or Path.cwd()
    planted = place / "compiled_cache.db"
    if planted.exists():
        advice = (
            "the toolkit never opens it, but cutlass_cppgen loads such a file as code when it is "
            "imported here; delete it unless you made it"
        )
        return Check("current folder", "warn", str(planted), advice)
    return Check("current folder", "ok", f"{place} holds no compiled_cache.db")


def check_typst() -> Check:
    """typst brings its fonts, so that a one-line document tells whether a PDF can be made."""
    if importlib.util.find_spec("typst") is None:
        return Check("typst", "missing", "not installed", "pip install typst")
    import typst

    pdf = typst.compile(b"#set page(width: 3cm, height: 1cm)\n$S/(S + kappa)$")
    status: Status = "ok" if pdf and bytes(pdf).startswith(b"%PDF") else "missing"
    advice = "" if status == "ok" else "pip install --force-reinstall typst"
    return Check("typst", status, f"{version_of('typst')}, makes a PDF from its own fonts", advice)


def check_fonts() -> Check:
    """Figures use the font that matplotlib brings."""
    from matplotlib import font_manager

    path = font_manager.findfont("DejaVu Sans", fallback_to_default=False)
    return Check("figure font", "ok", str(path))


def check_paper_packages() -> Check:
    versions = {name: version_of(name) for name in PAPER_PACKAGES}
    found = ", ".join(f"{name} {version or 'missing'}" for name, version in versions.items())
    absent = [name for name, version in versions.items() if version is None]
    advice = f"pip install {' '.join(absent)}" if absent else ""
    return Check("paper packages", "missing" if absent else "ok", found, advice)
