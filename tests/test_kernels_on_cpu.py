"""The ladder's own CUDA source on the CPU: right on odd shapes, no races, planted faults found.

`tests/host_cuda/` stands in for CUDA: every CUDA thread is a thread of the system, and TMA,
mbarriers and WGMMA are functions written from the PTX ISA's words. g++'s sanitizers watch. It says
nothing about whether the PTX itself is as meant; only a GPU does.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from cutlass_study.config import GemmConfig, GemmProblem
from cutlass_study.families import HAND_WRITTEN
from cutlass_study.ladder import simt, wgmma
from cutlass_study.simt_source import simt_source
from cutlass_study.wgmma_source import wgmma_source
from cutlass_study.wmma_source import wmma_grid

ROOT = Path(__file__).parents[1]
SANITIZER_EXIT = {"thread": 66, "address": 1}
FLAGS = ("-std=c++20", "-O1", "-g", "-pthread", "-w")
HANG_S, PLANTED_HANG_S = 60, 8  # a wait that long is a hang; right kernels get more time

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++"),
]


@dataclass(frozen=True)
class Case:
    """A kernel on a problem under one of g++'s sanitizers."""

    config: GemmConfig
    problem: GemmProblem
    sanitizer: str = "thread"

    @property
    def name(self) -> str:
        return f"{self.config.name}-{self.problem.name}-{self.sanitizer}"


Fault = tuple[str, str, str]  # header, a text of it, and what to put in its place


def build(folder: Path, case: Case, fault: Fault | None = None) -> Path:
    """The program, with a fault planted in it or without."""
    for source in ((ROOT / "wmma_custom"), (ROOT / "tests" / "host_cuda")):  # the latter wins
        for header in source.iterdir():
            shutil.copy(header, folder)
    if fault is not None:
        header, right, wrong = folder / fault[0], *fault[1:]
        assert header.read_text().count(right) == 1, "the fault must have exactly one place"
        header.write_text(header.read_text().replace(right, wrong))
    is_wgmma = case.config.family == "wgmma"
    text = (wgmma_source if is_wgmma else simt_source)(case.config, case.problem)
    define = "#define CUTLASS_STUDY_WGMMA\n" * is_wgmma
    program = folder / "program"
    unit = folder / "program.cpp"
    unit.write_text(f'#include "device.hpp"\n{text}{define}#include "main.hpp"\n')
    command = [
        "g++", *FLAGS, f"-DHANG_S={PLANTED_HANG_S if fault else HANG_S}",
        f"-fsanitize={case.sanitizer}", f"-I{folder}", f"-I{ROOT}/instantiations",
        str(unit), "-o", str(program),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if f"cannot find -l{case.sanitizer[0]}san" in done.stderr:
        pytest.skip(f"g++ comes without its {case.sanitizer} sanitizer")
    assert done.returncode == 0, done.stderr[:3000]
    return program


def operands(problem: GemmProblem) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A, B and C of small integers: every sum is exact in FP32."""
    random = np.random.default_rng(1)
    lda = problem.leading_dimensions[0]
    a = np.full((problem.m, lda), np.nan, np.float16)  # what pads A must not be read
    a[:, : problem.k] = random.integers(-4, 5, (problem.m, problem.k))
    b_shape = (problem.n, problem.k) if problem.layout == "tn" else (problem.k, problem.n)
    b = random.integers(-4, 5, b_shape).astype(np.float16)
    c = random.integers(-8, 9, (problem.m, problem.n))
    return a, b, c.astype(np.float16 if problem.output == "f16" else np.float32)


def run(program: Path, case: Case) -> tuple[int, str, int]:
    """(exit code, message, wrong elements of D)."""
    p = case.problem
    a, b, c = operands(p)
    lda, ldb, ldd = p.leading_dimensions
    assert case.config.threadblock_shape
    grid = wmma_grid(m=p.m, n=p.n, tile=case.config.threadblock_shape)[:2]
    job = struct.pack(
        "<5i2fi6q", *p.shape, *grid, p.alpha, p.beta, p.beta != 0, lda, ldb, ldd, a.nbytes,
        b.nbytes, c.nbytes,
    )  # fmt: skip
    given, result = program.with_name("in"), program.with_name("out")
    given.write_bytes(job + a.tobytes() + b.tobytes() + (c.tobytes() if p.beta else b""))
    command = [str(program), str(given), str(result)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("this kernel's address randomization is more than g++'s sanitizer can take")
    if done.returncode:
        return done.returncode, done.stderr[:2000], p.m * p.n
    wide_b = b.astype(np.float64).T if p.layout == "tn" else b.astype(np.float64)
    product = a[:, : p.k].astype(np.float64) @ wide_b
    wanted = (p.alpha * product + p.beta * c.astype(np.float64)).astype(c.dtype)
    d = np.frombuffer(result.read_bytes(), c.dtype).reshape(p.m, p.n)
    return 0, "", int((d != wanted).sum())


def simt_cases() -> list[Case]:
    """Every variant, both layouts and outputs, shapes that no tile divides, odd and padded rows."""
    found = []
    for variant in ("naive", "shared", "register_2d", "vectorized", "warp_tiling"):
        small = variant in ("naive", "shared")  # 1024 threads a CTA: slow to start here
        # Rows of 136 and of 40 can be read by vectors of 8, which end inside the last tiles.
        shape = (20, 37, 40) if small else (70, 136, 40)
        plain = GemmProblem(*shape, layout="nn", alpha=0.5, beta=0.25, lda=48)
        found.append(Case(simt(variant), plain))
        if not small:
            found.append(Case(simt(variant), plain, "address"))
        odd = replace(plain, n=shape[1] - 2, k=37, layout="tn", output="f16", beta=0.0, lda=41)
        found.append(Case(simt(variant), odd, "address"))
    return found


def wgmma_cases() -> list[Case]:
    five = GemmProblem(128, 256, 5 * 64, alpha=0.5, lda=5 * 64 + 8)
    half = replace(five, output="f16", beta=0.25)
    return [
        Case(wgmma("serial_n32", tile=(128, 128, 64)), replace(five, n=128)),
        Case(wgmma("serial_n64", warpgroup=(64, 64, 64)), replace(half, m=256, n=64)),
        Case(wgmma("serial_n128", epilogue="staged"), half, "address"),
        Case(wgmma("serial_n256"), five),
        Case(wgmma("pipelined_n128", stages=3), replace(half, n=128)),
        Case(wgmma("pipelined_n128", warpgroup=(64, 128, 64), epilogue="staged"), half),
        Case(wgmma("pipelined_n256", stages=2, epilogue="staged"), replace(five, beta=1.0)),
        Case(wgmma("pipelined_n256"), replace(five, k=2 * 64, lda=None), "address"),
    ]


@pytest.mark.parametrize("case", [*simt_cases(), *wgmma_cases()], ids=lambda case: case.name)
def test_the_source_is_right_and_free_of_races(tmp_path: Path, case: Case) -> None:
    assert case.config.family in HAND_WRITTEN
    assert run(build(tmp_path, case), case) == (0, "", 0)


VECTORIZED = Case(simt("vectorized"), GemmProblem(100, 100, 16, layout="nn"))
SERIAL = Case(wgmma("serial_n64"), GemmProblem(128, 64, 128))
# Two steps along K let a race be won now and then.
LONG = Case(wgmma("serial_n64"), GemmProblem(128, 64, 32 * 64))
PIPELINED = Case(wgmma("pipelined_n128", stages=2, epilogue="staged"), GemmProblem(128, 128, 384))
SERIAL_LOOP, PIPELINE, TILE = "wgmma_serial.cuh", "wgmma_pipelined.cuh", "wgmma_tile.cuh"
FAULTS: dict[str, tuple[Case, Fault]] = {
    "no barrier before multiplying": (
        VECTORIZED,
        ("simt_vectorized.cuh", "k0);\n    __syncthreads();", "k0);"),
    ),
    "the next tile too early": (LONG, (SERIAL_LOOP, "    __syncthreads();\n  }\n", "  }\n")),
    "the tile not waited for": (SERIAL, (SERIAL_LOOP, "    barrier_wait(full, parity);\n", "")),
    "products not waited for": (SERIAL, (TILE, "  wgmma_wait();\n", "")),
    "a wrong step along K": (SERIAL, (TILE, "kInstructionK * 2 >> 4", "kInstructionK * 4 >> 4")),
    "rows of a warp mixed up": (
        SERIAL,
        (TILE, "thread / 32 * 16 + thread % 32 / 4", "thread / 4"),
    ),
    "the producer does not wait": (
        PIPELINED,
        (PIPELINE, "    barrier_wait(empty + stage, parity ^ 1);\n", ""),
    ),
    "the round's parity kept": (PIPELINED, (PIPELINE, "stage, parity ^ 1", "stage, 1")),
    "the block read too early": (
        PIPELINED,
        (TILE, "    synchronize<1, 128 * kWarpgroups>();  // the block is complete\n", ""),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(tmp_path: Path, name: str) -> None:
    """Else the tests above would prove nothing."""
    case, fault = FAULTS[name]
    code, message, wrong = run(build(tmp_path, case, fault), case)
    assert code == 0 or code in (SANITIZER_EXIT[case.sanitizer], 3), message
    assert wrong
