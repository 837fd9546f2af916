"""What this machine can do: checks in groups, a verdict, and CUTLASS's Python against CUDA 13."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
from collections.abc import Callable
from dataclasses import dataclass

from cutlass_study import checks_build as build
from cutlass_study import checks_device as device
from cutlass_study.check import Check, run_check
from cutlass_study.host_tools import find_nvcc

CheckFunction = Callable[[], Check]
STATIC_CHECKS: tuple[CheckFunction, ...] = (
    build.check_python,
    device.check_operating_system,
    build.check_cuda_python,
    build.check_nvrtc,
    build.check_cuda_headers,
    build.check_cutlass_headers,
    build.check_sources,
    build.check_trial_compilation,
    build.check_cache,
    build.check_disk,
    build.check_memory,
    build.check_packages,
)
MEASURE_CHECKS: tuple[CheckFunction, ...] = (
    device.check_driver,
    device.check_gpu,
    device.check_wsl,
    device.check_watchdog,
    device.check_cublas,
)
PAPER_CHECKS: tuple[CheckFunction, ...] = (
    build.check_paper_packages,
    build.check_fonts,
    build.check_typst,
)
OPTIONAL_CHECKS: tuple[CheckFunction, ...] = (
    build.check_nvcc,
    build.check_host_compiler,
    build.check_working_folder,
)


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """What CUTLASS 4.2's Python interface does with a pair of nvcc and cuda-python versions."""

    nvcc: str
    cuda_python: str
    works: bool
    outcome: str
    present: bool  # whether this machine has the pair


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All that was checked. `can_run_static` decides the exit code."""

    static: tuple[Check, ...]
    measure: tuple[Check, ...]
    paper: tuple[Check, ...]
    optional: tuple[Check, ...]
    matrix: tuple[MatrixRow, ...]
    notes: tuple[str, ...]

    @property
    def can_run_static(self) -> bool:
        return all(check.status != "missing" for check in self.static)

    @property
    def can_measure(self) -> bool:
        return self.can_run_static and all(check.status != "missing" for check in self.measure)

    @property
    def can_write_paper(self) -> bool:
        return all(check.status != "missing" for check in self.paper)

    @property
    def verdict(self) -> str:
        """One sentence: what runs here, and if not everything does, what is in the way."""
        if not self.can_run_static:
            names = ", ".join(check.name for check in self.static if check.status == "missing")
            return f"Not even the static half can run here; missing: {names}."
        if not self.can_measure:
            names = ", ".join(check.name for check in self.measure if check.status == "missing")
            return f"The static half can run here; measuring can't, missing: {names}."
        return "Everything can run here."

    def to_json(self) -> dict[str, object]:
        """Plain data, for printing."""
        return {
            **dataclasses.asdict(self),
            "can_run_static": self.can_run_static,
            "can_measure": self.can_measure,
            "can_write_paper": self.can_write_paper,
            "verdict": self.verdict,
        }


def _major_minor(version: str | None) -> tuple[int, int] | None:
    match = re.match(r"(\d+)\.(\d+)", version or "")
    return (int(match[1]), int(match[2])) if match else None


def version_matrix(nvcc: str | None, cuda_python: str | None) -> tuple[MatrixRow, ...]:
    """Which pairs `cutlass_cppgen` 4.2.0 can compile and run with.

    The rows of nvcc 13 were tried, the others follow from the checks in its code. `nvcc` and
    `cuda_python` are the versions of this machine, to mark its row.
    """
    compiler, bindings = _major_minor(nvcc), _major_minor(cuda_python)
    new_compiler = compiler is not None and compiler >= (13, 0)
    new_bindings = bindings is not None and bindings >= (13, 0)
    both = compiler is not None and bindings is not None
    in_order = compiler is not None and bindings is not None and bindings >= compiler
    no_version = "AttributeError: module 'cuda' has no attribute '__version__'; cuda.cuda is gone"
    too_old = "refused: cuda-python must be at least nvcc's version"
    return (
        MatrixRow("13.x", "13.x", False, no_version, both and new_compiler and new_bindings),
        MatrixRow("13.x", "12.x", False, too_old, both and new_compiler and not new_bindings),
        MatrixRow("12.x", "13.x", False, no_version, both and not new_compiler and new_bindings),
        MatrixRow(
            "12.x",
            "12.x, older than nvcc",
            False,
            too_old,
            both and not new_compiler and not new_bindings and not in_order,
        ),
        MatrixRow(
            "12.x",
            "12.x, not older than nvcc",
            True,
            "the only pair its checks accept; this toolkit does not run on it",
            both and not new_compiler and not new_bindings and in_order,
        ),
    )


def _has_module(name: str) -> bool:
    """Whether a module is installed, without running any of its code."""
    return importlib.util.find_spec(name) is not None


def python_interface_notes() -> tuple[str, ...]:
    """What to know about CUTLASS's Python packages before trying them beside this toolkit."""
    other = (
        "is installed here" if _has_module("cutlass") else "is not installed here, and not needed"
    )
    return (
        "nvidia-cutlass 4.2 installs the modules cutlass_library and cutlass_cppgen. "
        f"`import cutlass` is another product, nvidia-cutlass-dsl (CuTe DSL): it {other}.",
        "This toolkit uses cutlass_library (declarations and emission, no GPU needed) and the C++ "
        "headers; it compiles and launches by its own path. So cutlass_cppgen's failures with "
        "CUDA 13 don't touch it, and cuda-python must not be lowered to 12 for its sake.",
        "cutlass_cppgen writes compiled_cache.db into the current folder on import and loads one "
        "found there as code: import it only in an empty folder of your own.",
    )


def diagnose() -> Diagnosis:
    """Run every check; takes a few seconds, needs nothing, changes only the kernel cache folder."""
    nvcc = find_nvcc()
    return Diagnosis(
        static=tuple(run_check(check) for check in STATIC_CHECKS),
        measure=tuple(run_check(check) for check in MEASURE_CHECKS),
        paper=tuple(run_check(check) for check in PAPER_CHECKS),
        optional=tuple(run_check(check) for check in OPTIONAL_CHECKS),
        matrix=version_matrix(
            nvcc.version if nvcc else None,
            build.version_of(build.CUDA_PYTHON) or build.version_of("cuda-bindings"),
        ),
        notes=python_interface_notes(),
    )
