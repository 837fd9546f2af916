"""The whole of lint, format and type checking, so that one test command runs all."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent
CPP_SUFFIXES = {".hpp", ".cuh", ".cu", ".h"}


def run(*command: str) -> None:
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.fail(f"{' '.join(command[:6])}\n{done.stdout}{done.stderr}", pytrace=False)


@pytest.mark.parametrize("arguments", [("check",), ("format", "--check")], ids=["lint", "format"])
def test_ruff_has_no_complaint(arguments: tuple[str, ...]) -> None:
    run(sys.executable, "-m", "ruff", *arguments, ".")


def test_the_package_is_strictly_typed() -> None:
    run(sys.executable, "-m", "mypy")


def test_the_cpp_sources_are_formatted() -> None:
    folders = [PROJECT / name for name in ("instantiations", "wmma_custom", "tests/host_cuda")]
    sources = [p for folder in folders for p in folder.rglob("*") if p.suffix in CPP_SUFFIXES]
    beside_python = str(Path(sys.executable).parent)
    program = shutil.which("clang-format", path=beside_python) or shutil.which("clang-format")
    assert sources
    assert program, "pip install clang-format"
    run(program, "--dry-run", "-Werror", *map(str, sorted(sources)))
