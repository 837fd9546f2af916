"""The WMMA kernels, as far as a compiler alone can tell: no GPU is used."""

from __future__ import annotations

import io
import re
import struct
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

from cutlass_study.wmma_source import (
    TILE,
    WARP,
    WMMA_VARIANTS,
    Layout,
    WmmaVariant,
    wmma_grid,
    wmma_name,
    wmma_problem_reason,
    wmma_reason,
    wmma_smem_bytes,
    wmma_smem_reason,
    wmma_source,
    wmma_threads,
)

nvrtc = pytest.importorskip("cuda.bindings.nvrtc")
elffile = pytest.importorskip("elftools.elf.elffile")

ROOT = Path(__file__).parents[1]
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
ARCHES = ("sm_89", "sm_90a")
SMALL_TILE, SMALL_WARP = (64, 64, 16), (32, 32, 16)


def include_folders() -> list[Path]:
    nvidia = pytest.importorskip("nvidia")
    toolkits = [Path(folder) / "cu13" / "include" for folder in nvidia.__path__]
    found = [folder for folder in toolkits if (folder / "mma.h").exists()]
    if not found:
        pytest.skip("pip's CUDA headers are not installed")
    return [found[0], found[0] / "cccl", ROOT / "wmma_custom", ROOT / "instantiations"]


@cache
def compile_text(source: str, arch: str) -> tuple[bytes, str]:
    """(cubin, or PTX for a compute_XX `arch`; NVRTC's log)."""
    options = [b"-std=c++17", f"-arch={arch}".encode(), b"-default-device", b"-DNDEBUG"]
    options += [b"--ptxas-options=-v", *(f"-I{folder}".encode() for folder in include_folders())]
    _, program = nvrtc.nvrtcCreateProgram(source.encode(), b"wmma.cu", 0, [], [])
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    _, log_bytes = nvrtc.nvrtcGetProgramLogSize(program)
    log = b" " * log_bytes
    nvrtc.nvrtcGetProgramLog(program, log)
    text = log.decode().rstrip("\0")
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS, text
    kind = "PTX" if arch.startswith("compute") else "CUBIN"
    _, size = getattr(nvrtc, f"nvrtcGet{kind}Size")(program)
    code = b" " * size
    getattr(nvrtc, f"nvrtcGet{kind}")(program, code)
    nvrtc.nvrtcDestroyProgram(program)
    return code, text


def default_source(variant: WmmaVariant, layout: Layout) -> str:
    return wmma_source(variant=variant.variant, stages=variant.stages, layout=layout)


def read_gemm_info(cubin: bytes) -> tuple[int, ...]:
    """KernelInfo's eight ints: smem_bytes, threads, params (2), cluster (3), stages."""
    elf = elffile.ELFFile(io.BytesIO(cubin))
    (symbol,) = elf.get_section_by_name(".symtab").get_symbol_by_name("gemm_info")
    data = elf.get_section(symbol["st_shndx"]).data()
    return struct.unpack_from("<8i", data, symbol["st_value"])


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("variant", WMMA_VARIANTS, ids=str)
def test_no_spills_and_two_ctas_by_registers(
    variant: WmmaVariant, layout: Layout, arch: str
) -> None:
    _, log = compile_text(default_source(variant, layout), arch)
    registers = [int(count) for count in re.findall(r"Used (\d+) registers", log)]
    assert len(registers) == 1
    assert registers[0] <= 128, "two CTAs of 256 threads must share 65536 registers"
    spills = re.findall(r"(\d+) bytes (?:stack frame|spill stores|spill loads)", log)
    assert spills == ["0", "0", "0"]
    assert "warning" not in log.lower()


@pytest.mark.parametrize(("tile", "warp"), [(TILE, WARP), (SMALL_TILE, SMALL_WARP)])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("variant", WMMA_VARIANTS, ids=str)
def test_gemm_info_in_the_cubin_equals_the_formula(
    variant: WmmaVariant,
    layout: Layout,
    tile: tuple[int, int, int],
    warp: tuple[int, int, int],
) -> None:
    source = wmma_source(
        variant=variant.variant, stages=variant.stages, tile=tile, warp=warp, layout=layout
    )
    cubin, _ = compile_text(source, "sm_89")
    smem_bytes = wmma_smem_bytes(stages=variant.stages, tile=tile, warp=warp, layout=layout)
    threads = wmma_threads(tile=tile, warp=warp)
    assert read_gemm_info(cubin) == (smem_bytes, threads, 0, 1, 1, 1, 1, variant.stages)


@pytest.mark.parametrize("variant", WMMA_VARIANTS, ids=str)
def test_only_the_pipeline_differs(variant: WmmaVariant) -> None:
    ptx = compile_text(default_source(variant, "tn"), "compute_89")[0].decode()
    copies = len(re.findall(r"\bcp\.async\.cg", ptx))
    commits = len(re.findall(r"\bcp\.async\.commit_group", ptx))
    pending = re.findall(r"\bcp\.async\.wait_group (\d+)", ptx)
    if variant.variant == "single":
        assert (copies, commits, pending) == (0, 0, [])
    else:
        # stages - 1 in the prologue and one in the loop; four 16-byte copies a thread and stage.
        assert (copies, commits) == (4 * variant.stages, variant.stages)
        assert pending == [str(variant.stages - 2)]
    # The same tensor-core work: 2 steps of (4 + 2) fragment loads and 8 products.
    assert len(re.findall(r"\bwmma\.load\.[ab]\.\S+\.shared", ptx)) == 12
    assert len(re.findall(r"\bwmma\.mma\.", ptx)) == 16
    assert len(re.findall(r"\bbar\.sync", ptx)) == 2  # multistage: one in the loop, one after it


def test_shared_memory_by_hand() -> None:
    # tn: (128 + 128) rows of 32 + 8 halves; nn: 128 rows of 40 and 32 rows of 128 + 8.
    assert wmma_smem_bytes(stages=1, layout="tn") == 20_480
    assert wmma_smem_bytes(stages=4, layout="tn") == 81_920
    assert wmma_smem_bytes(stages=1, layout="nn") == 10_240 + 8_704
    # Here the epilogue's staging, 4 warps of 16x20 floats, is less than one stage; with 16 warps
    # of 16x16 fragments it is more.
    assert wmma_smem_bytes(stages=1, tile=SMALL_TILE, warp=SMALL_WARP, layout="tn") == 6_144
    assert (
        wmma_smem_bytes(stages=1, tile=(64, 64, 32), warp=(16, 16, 32), layout="tn")
        == 16 * 16 * 20 * 4
    )


def test_defaults_are_legal_and_names_unique() -> None:
    names = set()
    for variant in WMMA_VARIANTS:
        assert (
            wmma_reason(variant=variant.variant, stages=variant.stages, tile=TILE, warp=WARP)
            is None
        )
        for layout in LAYOUTS:
            names.add(wmma_name(variant=variant.variant, stages=variant.stages, layout=layout))
    assert len(names) == len(WMMA_VARIANTS) * len(LAYOUTS)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"variant": "single"}, "has 1 stage"),
        ({"stages": 1}, "2 to 4 stages"),
        ({"stages": 5}, "2 to 4 stages"),
        ({"tile": (128, 128, 24)}, "multiples of 16"),
        ({"warp": (64, 8, 32)}, "multiples of 16"),
        ({"warp": (48, 32, 32)}, "does not divide"),
        ({"warp": (64, 32, 16)}, "do not split K"),
        ({"warp": (16, 16, 32)}, "2048 threads"),
        ({"tile": (128, 32, 32), "warp": (16, 32, 32)}, "128 16-byte vectors of B"),
    ],
)
def test_what_is_forbidden_says_why(change: dict[str, object], words: str) -> None:
    parameters = {"variant": "multistage", "stages": 3, "tile": TILE, "warp": WARP, **change}
    reason = wmma_reason(**parameters)  # type: ignore[arg-type]
    assert reason is not None
    assert words in reason
    with pytest.raises(ValueError, match=re.escape(reason)):
        wmma_source(**parameters, layout="tn")  # type: ignore[arg-type]


def test_limits_of_device_and_problem() -> None:
    assert wmma_smem_reason(smem_bytes=81_920, smem_optin_bytes=101_376) is None
    assert wmma_smem_reason(smem_bytes=101_377, smem_optin_bytes=101_376) is not None
    assert wmma_grid(m=8192, n=4097) == (33, 64, 1)
    assert wmma_problem_reason(m=8192, n=8192, k=8192) is None
    assert wmma_problem_reason(m=1, n=1, k=1) is None
    assert wmma_problem_reason(m=65535 * 128, n=1, k=1) is None
    assert wmma_problem_reason(m=65535 * 128 + 1, n=1, k=1) is not None
    assert wmma_problem_reason(m=1, n=2**31 - 1, k=1) is not None
