"""The toolkit's own speed: what is compared, what is said, and the shared library it builds."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from pathlib import Path

import pytest

from cutlass_study import benchmark, presets, space
from cutlass_study.benchmark import Finding
from cutlass_study.records import EnvironmentProblem
from cutlass_study.sm80_source import SHARED_LIBRARY, template_source
from cutlass_study.toolchain import find_toolchain

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "benchmark.py"


def run_script(*arguments: str, cwd: Path) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )


def test_a_goal_has_a_side():
    assert Finding("ratio", 4.0, "x", 4.0, at_least=True).met
    assert not Finding("ratio", 3.9, "x", 4.0, at_least=True).met
    assert Finding("seconds", 1.9, "s", 2.0).met
    assert not Finding("seconds", 2.1, "s", 2.0).met
    assert Finding("seconds", 2.1, "s").met is None


def test_every_distinct_kernel_of_the_paper_preset_is_compared():
    entries = benchmark.sm80_entries("sm_89")
    assert len(entries) == 18
    assert len({entry.config.name for entry in entries}) == 18


def test_both_compilers_get_the_same_kernel():
    config, problem = space.sm80((128, 128, 32), 3), space.square(8192)
    ours = template_source(config, problem).splitlines()
    theirs = template_source(config, problem, SHARED_LIBRARY).splitlines()
    assert ours[:-1] == theirs[:-1]
    assert (ours[-1], theirs[-1]) == (
        '#include "sm80_exports.hpp"',
        '#include "sm80_shared_library.hpp"',
    )


def test_without_a_host_compiler_there_is_one_sentence(monkeypatch, tmp_path: Path):
    monkeypatch.setattr(
        benchmark.Toolchain, "host_problem", property(lambda self: "nvcc is missing")
    )
    with pytest.raises(EnvironmentProblem, match=r"needs nvcc and a C\+\+ compiler: nvcc is"):
        benchmark.run_parts(("list", "compilers"), "sm_89", tmp_path / "none.py", None)


def test_wrong_words_are_refused(tmp_path: Path):
    for arguments, words in (
        (["--only", "compiler"], "use one of: compilers, list, static"),
        (["--format", "xml"], "use one of: text, json"),
        (["--arch", "sm_1"], "sm_1"),
    ):
        done = run_script(*arguments, cwd=tmp_path)
        assert done.returncode == 2, done.stderr
        assert words in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.slow
def test_listing_is_reported_as_json(tmp_path: Path):
    done = run_script("--only", "list", "--format", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [row["name"] for row in rows] == [f"--list --preset {p}" for p in presets.PRESETS]
    assert all(row["value"] > 0 and row["goal"] == 2 for row in rows)


@pytest.mark.slow
def test_a_shared_library_exports_gemm_run(tmp_path: Path):
    toolchain = find_toolchain()
    if toolchain.host_problem is not None:
        pytest.skip(toolchain.host_problem)
    entry = space.Entry(space.sm80((64, 64, 32), 3), space.square(256))
    assert benchmark.build_shared_library(entry, "sm_89", toolchain, tmp_path) > 0
    library = ctypes.CDLL(str(tmp_path / "gemm.so"))
    no_operands = ctypes.create_string_buffer(112)  # GemmArguments with every extent 0
    assert library.gemm_run(no_operands, None) != 0
