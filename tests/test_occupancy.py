"""Resident CTAs per SM, against values worked out by hand."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from cutlass_study.config import UsageError
from cutlass_study.gpus import LIMITS, arch_of, limits_of
from cutlass_study.occupancy import ctas_by_registers, ctas_by_shared_memory, occupancy

ADA, HOPPER = limits_of("sm_89"), limits_of("sm_90a")
BOTH = "registers + shared memory"


@pytest.mark.parametrize(
    ("registers", "smem_bytes", "threads", "ctas", "limiter"),
    [
        # 256x128x32, S=2/3/4: one CTA at every depth (the primary paper says 2 at S=3)
        (240, 49152, 256, 1, "registers"),
        (226, 73728, 256, 1, BOTH),
        (226, 98304, 256, 1, BOTH),
        # 128x128x32, S=2/3/4: here the drop at S=4 is real (case F16 and design section 8)
        (248, 32768, 128, 2, "registers"),
        (250, 32768, 128, 2, "registers"),
        (232, 49152, 128, 2, BOTH),
        (232, 65536, 128, 1, "shared memory"),
    ],
)
def test_the_papers_tiles_on_ada(
    registers: int, smem_bytes: int, threads: int, ctas: int, limiter: str
) -> None:
    found = occupancy(registers, smem_bytes, threads, ADA)
    assert (found.ctas_per_sm, found.limiter) == (ctas, limiter)
    assert found.occupancy == ctas * threads / 32 / 48


def test_two_ctas_of_49152_bytes_would_fit_ada() -> None:
    assert 2 * (49152 + 1024) <= 102400
    assert ctas_by_shared_memory(49152, ADA) == 2
    assert ctas_by_registers(240, 256, ADA) == 1


def test_hopper_has_the_memory_but_not_the_registers() -> None:
    assert ctas_by_shared_memory(49152, HOPPER) == 4
    found = occupancy(228, 49152, 128, HOPPER)
    assert (found.ctas_per_sm, found.limiter) == (2, "registers")
    assert found.occupancy == 8 / 64


def test_the_reserve_and_the_limit_count_in_bytes() -> None:
    assert ctas_by_shared_memory(ADA.smem_per_block_optin, ADA) == 1
    assert ctas_by_shared_memory(ADA.smem_per_block_optin + 1, ADA) == 0
    assert occupancy(32, ADA.smem_per_block_optin + 1, 128, ADA).ctas_per_sm == 0
    assert ctas_by_shared_memory(102400 // 4 - 1024, ADA) == 4
    assert ctas_by_shared_memory(102400 // 4 - 1024 + 1, ADA) == 3


def test_registers_are_allotted_in_units_of_256_per_warp_and_partition() -> None:
    assert ctas_by_registers(32, 128, ADA) == 16
    assert ctas_by_registers(33, 128, ADA) == 12  # 40 per thread, 12 warps a partition
    assert ctas_by_registers(255, 1024, ADA) == 0
    assert ctas_by_registers(64, 1024, ADA) == 1
    assert ctas_by_registers(65, 1024, ADA) == 0
    assert ctas_by_registers(168, 96, ADA) == 4  # 12 warps of 3 a CTA; the lecture's 65536/R is not


def test_small_kernels_meet_warps_or_slots() -> None:
    assert occupancy(16, 0, 1024, ADA).limiter == "warps"
    assert occupancy(16, 0, 1024, ADA).ctas_per_sm == 1
    tiny = occupancy(16, 0, 32, ADA)
    assert (tiny.ctas_per_sm, tiny.limiter) == (24, "CTA slots")
    assert occupancy(16, 0, 64, ADA).limiter == "warps + CTA slots"
    assert occupancy(16, 0, 33, ADA).ctas_per_sm == 24  # a part of a warp takes a warp


@pytest.mark.parametrize("arch", sorted(LIMITS))
def test_tabulated_limits_are_consistent(arch: str) -> None:
    limits = limits_of(arch)
    assert limits.smem_per_sm - limits.smem_per_block_optin == limits.smem_reserved_per_block
    assert limits.warps_per_sm * 32 in (1536, 2048)


def test_archs_are_named_for_the_compiler() -> None:
    assert [arch_of(c) for c in ((8, 0), (8, 9), (9, 0), (12, 0))] == [
        "sm_80", "sm_89", "sm_90a", "sm_120",
    ]  # fmt: skip
    with pytest.raises(UsageError, match="arch 'sm_75' is not known; use one of: sm_80"):
        limits_of("sm_75")


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program around NVIDIA's cuda_occupancy.h."""
    from cutlass_study.records import EnvironmentProblem
    from cutlass_study.toolchain import cccl_include, cuda_include

    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++ to compile cuda_occupancy.h with")
    try:
        folders = [cuda_include(), cccl_include()]
    except EnvironmentProblem as problem:
        pytest.skip(str(problem))
    if not (folders[0] / "cuda_occupancy.h").is_file():
        pytest.skip("the CUDA headers lack cuda_occupancy.h")
    program = tmp_path_factory.mktemp("oracle") / "oracle"
    source = Path(__file__).with_name("occupancy_oracle.cpp")
    includes = [f"-I{folder}" for folder in folders]
    subprocess.run([compiler, *includes, str(source), "-o", str(program)], check=True)
    return program


@pytest.mark.parametrize(
    ("arch", "compute_capability"),
    [("sm_80", (8, 0)), ("sm_86", (8, 6)), ("sm_89", (8, 9)), ("sm_90a", (9, 0))],
)
def test_nvidias_own_calculation_agrees(
    oracle: Path, arch: str, compute_capability: tuple[int, int]
) -> None:
    limits = limits_of(arch)
    sizes = (limits.warps_per_sm, limits.smem_per_sm, limits.smem_per_block_optin)
    call = [str(oracle), *map(str, (*compute_capability, *sizes))]
    output = subprocess.run(call, check=True, capture_output=True, text=True).stdout
    rows = [[int(part) for part in line.split()] for line in output.splitlines()]
    assert len(rows) > 5000
    different = [
        (threads, registers, smem_bytes, ctas)
        for threads, registers, smem_bytes, ctas in rows
        if occupancy(registers, smem_bytes, threads, limits).ctas_per_sm != ctas
    ]
    assert different == []
