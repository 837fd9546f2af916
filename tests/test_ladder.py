"""The worklog's ladder without a GPU: names, rules, descriptors, compiled resources."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest

from cutlass_study import cubin, nvrtc
from cutlass_study.axes import Axes
from cutlass_study.chosen_space import entries
from cutlass_study.config import (
    SIMT_VARIANTS,
    WGMMA_VARIANTS,
    GemmConfig,
    GemmProblem,
    UsageError,
)
from cutlass_study.families import infeasible_reason, smem_bytes, source
from cutlass_study.gpus import LIMITS, limits_of
from cutlass_study.ladder import SIMT_ALL, WGMMA_ALL, simt, wgmma
from cutlass_study.occupancy import occupancy
from cutlass_study.operands import OperandSet
from cutlass_study.presets import preset
from cutlass_study.records import Resources
from cutlass_study.simt_source import VARIANTS, simt_threads
from cutlass_study.space import Entry, square
from cutlass_study.wgmma_kernel import descriptors
from cutlass_study.wgmma_source import wgmma_source, wgmma_threads

ADA, HOPPER = limits_of("sm_89"), limits_of("sm_90a")
STUDY = square(8192)
COLLAPSED = wgmma("serial_n256")  # as the worklog says: its sums do not fit one warpgroup


def why_not(config: GemmConfig, problem: GemmProblem = STUDY) -> str:
    reason = infeasible_reason(config, problem, HOPPER)
    assert reason is not None
    assert "\n" not in reason
    return reason


# --- names and spaces ----------------------------------------------------------------------


def test_names_say_what_varies() -> None:
    assert simt("naive").name == "simt_naive_32x32x1_s1"
    assert simt("warp_tiling").name == "simt_warp_tiling_128x128x16_w64x64x16_s1"
    assert COLLAPSED.name == "wgmma_serial_n256_128x256x64_w128x256x64_s1_direct"
    assert wgmma("pipelined_n256", epilogue="staged").name == (
        "wgmma_pipelined_n256_128x256x64_w64x256x64_s4_staged"
    )
    every = [*SIMT_ALL, *WGMMA_ALL]
    assert len({config.name for config in every}) == len(every)


def test_the_preset_is_the_worklogs_ladder() -> None:
    found = preset("ladder", "sm_90a")
    study = {entry.config for entry in found if entry.problem == STUDY}
    assert set(WGMMA_ALL) < study
    assert {config.family for config in study} == {"cublas", "wmma", "wgmma"}
    steps = {
        entry.config.variant: entry.problem for entry in found if entry.config.family == "simt"
    }
    assert tuple(steps) == SIMT_VARIANTS
    assert {(p.shape, p.layout) for p in steps.values()} == {((6144,) * 3, "nn")}
    scaled = {entry.problem.beta for entry in found if entry.problem.output == "f16"}
    assert scaled == {0, 1}
    by_problem = {entry.problem for entry in found}
    controls = {e.problem for e in found if e.config == GemmConfig("cublas", variant="default")}
    assert controls == by_problem


@pytest.mark.parametrize("arch", sorted(LIMITS))
def test_only_wgmma_kernels_of_the_ladder_need_hopper(arch: str) -> None:
    for entry in preset("ladder", arch):
        reason = infeasible_reason(entry.config, entry.problem, limits_of(arch))
        if entry.config.family == "wgmma" and arch != "sm_90a":
            assert reason == f"TMA and WGMMA kernels need sm_90a, not {arch}"
        else:
            assert reason is None


def by_hand(**axes: list[str]) -> list[GemmConfig]:
    return [entry.config for entry in entries(None, Axes(**axes), "sm_90a")]


def test_a_family_alone_is_all_of_it() -> None:
    assert by_hand(family=["simt"]) == list(SIMT_ALL)
    assert by_hand(family=["wgmma"]) == list(WGMMA_ALL)


def test_axes_choose_among_the_ladder() -> None:
    assert by_hand(family=["simt"], variant=["naive,shared"]) == [simt("naive"), simt("shared")]
    assert {c.variant for c in by_hand(family=["wgmma"], stages=["3"])} == {
        "pipelined_n128", "pipelined_n256",
    }  # fmt: skip
    (chosen,) = by_hand(family=["wgmma"], variant=["pipelined_n128"], stages=["5"],
                        warp=["64x128x64"], epilogue=["staged"])  # fmt: skip
    assert (chosen.stages, chosen.warp_shape, chosen.epilogue) == (5, (64, 128, 64), "staged")
    for variant in ("serial_n64", "pipelined_n256"):
        (wide,) = by_hand(family=["wgmma"], variant=[variant], tile=["64x256x64"])
        assert wide.warp_shape == (64, 256, 64)


@pytest.mark.parametrize(
    ("axes", "words"),
    [
        ({"family": ["simt"], "variant": ["fast"]}, "SIMT variant 'fast'"),
        ({"family": ["simt"], "tile": ["64x64x8"]}, "--tile means nothing to family simt"),
        ({"family": ["wgmma"], "variant": ["serial"]}, "WGMMA variant 'serial'"),
        ({"family": ["wgmma"], "variant": ["serial_n64"], "stages": ["2"]}, "S=1, not S=2"),
        ({"family": ["wgmma"], "stages": ["auto"]}, "S='auto' exists only in the sm90 family"),
        ({"family": ["wgmma"], "epilogue": ["tma"]}, "epilogue 'tma'"),
        ({"family": ["wgmma"], "align": ["8"]}, "--align means nothing to family wgmma"),
    ],
)
def test_what_the_ladder_does_not_have_is_said(axes: dict[str, list[str]], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        by_hand(**axes)


@pytest.mark.parametrize(
    ("config", "field", "value"),
    [
        (simt("naive"), "threadblock_shape", None),
        (simt("naive"), "stages", 2),
        (wgmma("serial_n64"), "warp_shape", None),
        (wgmma("serial_n64"), "epilogue", None),
        (wgmma("pipelined_n128"), "stages", 1),
    ],
)
def test_impossible_configurations_are_refused(
    config: GemmConfig, field: str, value: object
) -> None:
    with pytest.raises(UsageError):
        replace(config, **{field: value})  # type: ignore[arg-type]


# --- rules ---------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 1, 1), (257, 519, 1000), (8192, 8192, 8192)])
@pytest.mark.parametrize("layout", ["tn", "nn"])
@pytest.mark.parametrize("output", ["f32", "f16"])
def test_simt_kernels_take_every_problem(shape, layout, output) -> None:
    problem = GemmProblem(*shape, layout=layout, output=output, beta=0.5, lda=shape[2] + 1)
    assert all(infeasible_reason(config, problem, ADA) is None for config in SIMT_ALL)


def test_a_simt_variant_has_one_tile() -> None:
    other = replace(simt("vectorized"), threadblock_shape=(64, 64, 8))
    assert why_not(other) == "variant vectorized has tile 128x128x8, not 64x64x8"
    assert why_not(replace(simt("warp_tiling"), warp_shape=None)).startswith("variant warp_tiling")
    with pytest.raises(UsageError, match="has tile 128x128x8"):
        source(other, STUDY)


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (replace(STUDY, layout="nn"), "must be column-major (layout tn)"),
        (replace(STUDY, m=8193), "M=8193 is not a multiple of the tile's M=128"),
        (replace(STUDY, n=64), "N=64 is not a multiple of the tile's N=128"),
        (replace(STUDY, k=96), "K=96 is not a multiple of the tile's K=64"),
        (replace(STUDY, lda=8196), "leading dimension 8196 of A is not a multiple of 8"),
    ],
)
def test_problems_that_tma_and_whole_tiles_refuse(problem: GemmProblem, words: str) -> None:
    for variant in ("serial_n128", "pipelined_n128"):
        assert words in why_not(wgmma(variant), problem)
    assert infeasible_reason(wgmma("serial_n128"), replace(STUDY, lda=8200), HOPPER) is None


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (wgmma("serial_n64", tile=(128, 64, 32)), "tile K=32 is not 64"),
        (wgmma("serial_n64", warpgroup=(128, 32, 64)), "warpgroups divide its rows"),
        (wgmma("serial_n64", warpgroup=(32, 64, 64)), "must be a multiple of 64"),
        (wgmma("serial_n128", tile=(128, 64, 64)), "not a multiple of the instruction's N=128"),
        (wgmma("serial_n64", tile=(512, 64, 64), warpgroup=(256, 64, 64)), "256 rows of a TMA box"),
        (wgmma("serial_n64", tile=(256, 64, 64), warpgroup=(64, 64, 64)), "4 warpgroups"),
        (wgmma("serial_n256", tile=(256, 256, 64)), "512 partial sums per thread, limit 256"),
        (wgmma("pipelined_n256", warpgroup=(128, 256, 64)), "256 partial sums per thread"),
        (wgmma("pipelined_n256", stages=5), "needs 245840 B of shared memory, limit 232448 B"),
    ],
)
def test_shapes_that_divide_nowhere(config: GemmConfig, words: str) -> None:
    assert words in why_not(config)


def test_a_source_is_not_made_of_what_can_not_be_compiled() -> None:
    with pytest.raises(UsageError, match="tile K=32"):
        wgmma_source(wgmma("serial_n64", tile=(128, 64, 32)), STUDY)


# --- resources -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "threads", "size"),
    [
        (wgmma("serial_n32"), 128, (128 + 32) * 128 + 16),
        (wgmma("serial_n128", warpgroup=(64, 128, 64)), 256, 2 * 128 * 128 + 16),
        (wgmma("serial_n128", epilogue="staged"), 128, 64 * (128 + 8) * 4 + 16),
        (wgmma("pipelined_n128"), 256, 4 * 2 * 128 * 128 + 64),
        (wgmma("pipelined_n256"), 384, 4 * (128 + 256) * 128 + 64),
        (wgmma("pipelined_n256", stages=2, epilogue="staged"), 384, 2 * 64 * 264 * 4 + 32),
    ],
)
def test_threads_and_shared_memory_by_hand(config: GemmConfig, threads: int, size: int) -> None:
    assert wgmma_threads(config) == threads
    assert smem_bytes(config, STUDY) == size


def test_registers_that_warpgroups_exchange_are_there() -> None:
    """`setmaxnreg`: what the producer keeps and the consumers take is what the CTA has."""
    for consumers, launched, taken in ((1, 128, 216), (2, 168, 232)):
        assert 40 + consumers * taken <= launched * (consumers + 1)
        assert all(count % 8 == 0 for count in (40, taken, launched))


COMPILED = [
    *(Entry(config, square(4096)) for config in (*SIMT_ALL, *WGMMA_ALL)),
    *(Entry(config, GemmProblem(4096, 4096, 4096, "nn")) for config in SIMT_ALL),
    *(Entry(config, replace(STUDY, output="f16", beta=1.0)) for config in (*SIMT_ALL, *WGMMA_ALL)),
]


@functools.cache
def resources_of(entry: Entry, arch: str) -> tuple[Resources, str, int]:
    """(resources, NVRTC's log, stages in the image)."""
    unit = source(entry.config, entry.problem)
    assert unit is not None
    done = nvrtc.compile_cubin(unit, arch)
    return (
        cubin.read_resources(done.cubin, done.log), done.log, cubin.read_info(done.cubin).stages,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("entry", COMPILED, ids=lambda e: f"{e.config.name}_{e.problem.name}")
def test_kernels_compile_without_spills_but_for_n256(entry: Entry) -> None:
    found, log, stages = resources_of(entry, "sm_90a")
    config = entry.config
    threads = simt_threads(config) if config.family == "simt" else wgmma_threads(config)
    assert (found.smem_bytes, found.threads) == (smem_bytes(config, entry.problem), threads)
    assert stages == config.stages
    assert "warning" not in log.lower()
    if config == COLLAPSED:
        assert found.registers == 255 and found.spill_bytes > 1000
        assert "C7511" in found.warnings
    else:
        assert found.spill_bytes == 0
        assert found.warnings == ""


@pytest.mark.slow
@pytest.mark.parametrize("config", SIMT_ALL, ids=lambda config: config.name)
def test_simt_kernels_compile_for_ada_too(config: GemmConfig) -> None:
    found, log, _ = resources_of(Entry(config, square(4096)), "sm_89")
    assert found.spill_bytes == 0
    assert "warning" not in log.lower()


@pytest.mark.slow
def test_resources_are_the_worklogs() -> None:
    """About 167 registers and 18 % occupancy of warp tiling; 256 threads raise that of kernel 8."""
    row_major = GemmProblem(4096, 4096, 4096, "nn")
    tiled, _, _ = resources_of(Entry(simt("warp_tiling"), row_major), "sm_90a")
    assert 165 <= tiled.registers <= 168
    assert occupancy(tiled.registers, tiled.smem_bytes, 128, HOPPER).occupancy == 12 / 64
    narrow, wide = (
        resources_of(Entry(config, square(4096)), "sm_90a")[0]
        for config in (wgmma("serial_n128"), wgmma("serial_n128", warpgroup=(64, 128, 64)))
    )
    shares = [
        occupancy(one.registers, one.smem_bytes, one.threads, HOPPER).occupancy
        for one in (narrow, wide)
    ]
    assert shares[0] < shares[1]


@pytest.mark.slow
@pytest.mark.parametrize("config", [c for c in WGMMA_ALL if str(c.variant).startswith("pipelined")],
                         ids=lambda config: config.name)  # fmt: skip
def test_a_pipelined_kernel_is_launched_with_the_registers_it_exchanges(config: GemmConfig) -> None:
    found, _, _ = resources_of(Entry(config, square(4096)), "sm_90a")
    assert found.registers == {256: 128, 384: 168}[found.threads]


# --- descriptors ---------------------------------------------------------------------------


def test_descriptors_are_the_operands_rows() -> None:
    problem = GemmProblem(256, 512, 128, lda=136)
    operands = OperandSet(0x1000, 0x2000, 0, 0x3000)
    a, b = descriptors(wgmma("pipelined_n256"), problem, operands)
    assert (a.global_address, a.global_dim, a.global_strides) == (0x1000, (128, 256), (272,))
    assert (b.global_address, b.global_dim, b.global_strides) == (0x2000, (128, 512), (256,))
    assert (a.box_dim, b.box_dim) == ((64, 128), (64, 256))
    for one in (a, b):
        assert one.box_dim[0] * 2 == 128  # one row of the swizzle
        assert (one.data_type, one.swizzle, one.element_strides) == (6, 3, (1, 1))


def test_words_of_both_sides_agree() -> None:
    assert tuple(VARIANTS) == SIMT_VARIANTS
    assert {config.variant for config in WGMMA_ALL} == set(WGMMA_VARIANTS)
