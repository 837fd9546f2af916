"""Formulas for Hopper kernels against numbers read from really compiled ones."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from cutlass_study.cubin import read_info
from cutlass_study.nvrtc import Source, compile_cubin
from cutlass_study.sm90_headers import HeaderPatchError, header_overlays
from cutlass_study.sm90_resources import (
    Sm90Kernel,
    infeasible_reason,
    resolved_stages,
    smem_bytes,
)
from cutlass_study.sm90_source import sm90_source
from cutlass_study.toolchain import cutlass_include, find_toolchain

INSTANTIATIONS = Path(__file__).parents[1] / "instantiations"

COOPERATIVE = Sm90Kernel(
    tile=(128, 256, 64),
    cluster=(2, 1, 1),
    schedule="cooperative",
    stages=None,
    source_c="void",
    epilogue="tma",
    epilogue_width=4,
    alignment=8,
    layout="tn",
    output="f32",
)
PINGPONG = dataclasses.replace(
    COOPERATIVE, tile=(128, 128, 64), cluster=(1, 1, 1), schedule="pingpong", stages=4
)
HALF: dict[str, Any] = {"source_c": "half", "output": "f16", "epilogue_width": 8}
NO_SMEM: dict[str, Any] = {"epilogue": "nosmem", "epilogue_width": 1}

# Kernel, then gemm_info of its cubin: smem_bytes, stages (NVRTC 13.0, nvidia-cutlass 4.2.0.0).
COMPILED: list[tuple[Sm90Kernel, dict[str, Any], int, int]] = [
    (COOPERATIVE, {}, 231424, 4),
    (PINGPONG, {**HALF}, 148480, 4),
    (PINGPONG, {**HALF, **NO_SMEM}, 131456, 4),
    (COOPERATIVE, {**HALF, "cluster": (1, 1, 1), "stages": 4}, 230400, 4),
    (COOPERATIVE, {"stages": 4, "source_c": "float"}, 264192, 4),
    (COOPERATIVE, {"stages": 4}, 231424, 4),
    (COOPERATIVE, {"stages": 3, "source_c": "float"}, 215040, 3),
    (PINGPONG, {**HALF, "stages": 7}, 246784, 7),
    (COOPERATIVE, {"tile": (128, 128, 64), "schedule": "streamk"}, 231424, 6),
    (
        COOPERATIVE,
        {**NO_SMEM, "tile": (256, 128, 64), "schedule": "streamk", "source_c": "float"},
        196864,
        4,
    ),
    (
        PINGPONG,
        {"tile": (64, 256, 64), "cluster": (1, 2, 1), "stages": None, "layout": "nn"},
        223232,
        5,
    ),
    (PINGPONG, {"tile": (64, 128, 128), "stages": None}, 215040, 4),
    (
        COOPERATIVE,
        {"tile": (256, 128, 64), "cluster": (1, 2, 1), "source_c": "float", "layout": "nn"},
        215040,
        3,
    ),
    (
        COOPERATIVE,
        {"tile": (128, 64, 32), "source_c": "float", "epilogue_width": 8, "output": "f16"},
        223232,
        14,
    ),
    (
        PINGPONG,
        {"tile": (64, 64, 64), "stages": None, "epilogue_width": 8, "output": "f16"},
        222208,
        13,
    ),
    (COOPERATIVE, {"tile": (128, 16, 64), "stages": 3}, 64512, 3),
    (COOPERATIVE, {"tile": (128, 128, 16), "stages": 4}, 67584, 4),
    (PINGPONG, {"tile": (192, 128, 64), "stages": 2}, 100352, 2),
    (COOPERATIVE, {"tile": (128, 160, 64), "layout": "nn"}, 219136, 5),
    (COOPERATIVE, {**HALF, "tile": (128, 80, 64)}, 229888, 8),
]


@pytest.mark.parametrize(("base", "changes", "expected_bytes", "stages"), COMPILED)
def test_formula_agrees_with_compiled_kernel(
    base: Sm90Kernel, changes: dict[str, Any], expected_bytes: int, stages: int
) -> None:
    kernel = dataclasses.replace(base, **changes)
    assert resolved_stages(kernel) == stages
    assert smem_bytes(kernel) == expected_bytes


def test_automatic_stages_leave_room_for_the_epilogue() -> None:
    """F9: seven stages are what CUTLASS takes without the carve-out, and can't be launched."""
    automatic = dataclasses.replace(PINGPONG, stages=None, **HALF)
    assert resolved_stages(automatic) == 6
    assert infeasible_reason(automatic) is None
    assert (
        infeasible_reason(dataclasses.replace(automatic, stages=7))
        == "needs 246784 B of shared memory, limit 232448 B"
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        (
            {"stages": 4, "source_c": "float"},
            "needs 264192 B of shared memory, limit 232448 B",
        ),
        (
            {"tile": (64, 128, 64)},
            "cooperative schedule needs tile M to be a multiple of 128, not 64",
        ),
        ({"tile": (128, 100, 64)}, "WGMMA needs tile N to be a multiple of 8, not 100"),
        ({"tile": (128, 24, 64)}, "TMA epilogue needs tile N to be a multiple of 16, not 24"),
        ({"tile": (128, 128, 24)}, "WGMMA needs tile K to be a multiple of 16, not 24"),
        ({"tile": (512, 128, 64)}, "TMA loads at most 256 rows of a tile, not 512"),
        (
            {"tile": (256, 256, 64), "stages": 2},
            "needs 256 accumulator registers per thread, limit 240 with all others",
        ),
        ({"cluster": (3, 1, 1)}, "cluster extents must be powers of 2, not 3"),
        ({"cluster": (4, 4, 1)}, "cluster of 16 CTAs, portable limit 8"),
        (
            {"alignment": 4},
            "TMA needs 16 B accesses of A and B, alignment 4 gives 8 B",
        ),
        (
            {"epilogue_width": 1},
            "TMA epilogue needs 16 B accesses of D, width 1 gives 4 B",
        ),
        (NO_SMEM, None),
        (
            {"tile": (256, 128, 256)},
            "needs at least 2 stages, 1 fit beside the epilogue",
        ),
    ],
)
def test_reasons(changes: dict[str, Any], reason: str | None) -> None:
    assert infeasible_reason(dataclasses.replace(COOPERATIVE, **changes)) == reason


def test_source_holds_every_parameter() -> None:
    source = sm90_source(**dataclasses.asdict(COOPERATIVE))
    assert "cute::Shape<cute::Int<128>, cute::Int<256>, cute::Int<64>>" in source
    assert "requested_stages = 0;" in source
    assert len(source.splitlines()) < 20


def test_source_refuses_unknown_words() -> None:
    with pytest.raises(ValueError, match="schedule 'basic' is not one of"):
        sm90_source(**{**dataclasses.asdict(COOPERATIVE), "schedule": "basic"})


@pytest.mark.slow
def test_compiled_kernel_tells_what_the_formula_told() -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    kernel = dataclasses.replace(PINGPONG, **{**HALF, **NO_SMEM})  # the cheapest to compile
    source = Source(
        text=sm90_source(**dataclasses.asdict(kernel)),
        include_folders=(INSTANTIATIONS, *find_toolchain().include_paths),
        memory_headers=header_overlays(cutlass_include()),
    )
    compiled = compile_cubin(source, "sm_90a")
    info = read_info(compiled.cubin)
    assert info.smem_bytes == smem_bytes(kernel) == 131456
    assert info.stages == resolved_stages(kernel) == 4
    assert (info.threads, info.params_alignment, info.cluster_shape) == (384, 64, (1, 1, 1))
    assert 0 < info.params_bytes <= 4096
    assert "Potential Performance Loss" not in compiled.log


def test_an_unknown_cutlass_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "cutlass"
    folder.mkdir()
    (folder / "version.h").write_text(
        "#define CUTLASS_MAJOR 9\n#define CUTLASS_MINOR 1\n#define CUTLASS_PATCH 0\n"
    )
    (folder / "uint128.h").write_text("")
    with pytest.raises(HeaderPatchError, match=r"CUTLASS 9\.1\.0 can't be patched"):
        header_overlays(tmp_path)
