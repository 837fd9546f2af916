"""The named presets and the spaces that axes span."""

from __future__ import annotations

import pytest

from cutlass_study.axes import Axes
from cutlass_study.chosen_space import entries
from cutlass_study.config import UsageError, full_name
from cutlass_study.families import infeasible_reason
from cutlass_study.gpus import LIMITS, limits_of
from cutlass_study.presets import PRESETS, preset
from cutlass_study.space import NATURAL_WARPS, Entry, natural_warp_shape

ARCHS = ("sm_89", "sm_90a")


def of_family(found: list[Entry], family: str) -> list[Entry]:
    return [entry for entry in found if entry.config.family == family]


def extents(found: list[Entry]) -> set[tuple[int, int, int]]:
    return {entry.problem.shape for entry in found}


@pytest.mark.parametrize("arch", sorted(LIMITS))
@pytest.mark.parametrize("name", PRESETS)
def test_names_are_unique_in_every_preset(name: str, arch: str) -> None:
    found = preset(name, arch)
    assert len({full_name(e.config, e.problem) for e in found}) == len(found)
    if name != "ladder":  # which also has the problems of the worklog
        assert all((e.problem.layout, e.problem.output) == ("tn", "f32") for e in found)


@pytest.mark.parametrize("arch", ARCHS)
def test_paper_is_the_primary_document(arch: str) -> None:
    found = preset("paper", arch)
    swept = of_family(found, "sm80")
    assert {
        (e.config.threadblock_shape, e.config.stages, e.config.epilogue_width) for e in swept
    } == {
        (tile, stages, width)
        for tile in ((256, 128, 32), (128, 128, 32))
        for stages in (2, 3, 4)
        for width in (1, 2, 4)
    }
    assert len(swept) == 18
    assert {e.config.warp_shape for e in swept} == {(64, 64, 32)}
    assert extents(swept) == {(8192,) * 3}
    for family in ("cublas", "wmma"):
        assert extents(of_family(found, family)) == {(4096,) * 3, (8192,) * 3}
    assert {e.config.stages for e in of_family(found, "wmma")} >= {1}
    assert len(of_family(found, "sm90")) == 0


@pytest.mark.parametrize("arch", ARCHS)
def test_quick_is_small(arch: str) -> None:
    found = preset("quick", arch)
    assert len(found) <= 6
    assert extents(found) == {(2048,) * 3}
    assert {e.config.family for e in found} == {"sm80", "cublas", "wmma"}


@pytest.mark.parametrize("arch", ARCHS)
def test_ada_has_every_sensible_tile(arch: str) -> None:
    found = preset("ada", arch)
    tiles = {
        (m, n)
        for m in (64, 128, 256)
        for n in (64, 128, 256)
        if (m, n) != (256, 256)  # needs more accumulators than a CTA of natural warps can hold
    }
    assert {(e.config.threadblock_shape, e.config.stages) for e in of_family(found, "sm80")} == {
        ((m, n, k), s) for m, n in tiles for k in (32, 64) for s in (2, 3, 4)
    }
    assert {e.config.family for e in found} == {"sm80", "cublas", "wmma"}


def test_ada_is_feasible_up_to_shared_memory() -> None:
    reasons = {
        (e.config.threadblock_shape, e.config.stages): infeasible_reason(
            e.config, e.problem, limits_of("sm_89")
        )
        for e in preset("ada", "sm_89")
        if e.config.family == "sm80"
    }
    refused = {key: reason for key, reason in reasons.items() if reason}
    assert len(refused) == 9
    assert all(reason.endswith("shared memory, limit 101376 B") for reason in refused.values())
    assert all(tile and tile[2] == 64 for tile, _ in refused)
    assert all(
        infeasible_reason(e.config, e.problem, limits_of("sm_90a")) is None
        for e in preset("ada", "sm_90a")
    )


def test_hopper_is_ada_and_sm90() -> None:
    found = preset("hopper", "sm_90a")
    assert set(preset("ada", "sm_90a")) < set(found)
    swept = [e.config for e in of_family(found, "sm90")]
    for schedule in ("cooperative", "pingpong"):
        chosen = [c for c in swept if c.schedule == schedule and c.source_c == "void"]
        chosen = [c for c in chosen if c.epilogue == "tma"]
        for cluster in ((1, 1, 1), (2, 1, 1), (1, 2, 1)):
            assert {c.stages for c in chosen if c.cluster_shape == cluster} == {2, 3, 4, None}
        sides = {side for c in chosen for side in (c.threadblock_shape or ())[:2]}
        assert min(sides) == 64
        assert max(sides) == 256
    assert {c.source_c for c in swept} == {"void", "float"}
    plain = [c for c in swept if c.epilogue == "nosmem"]
    assert {c.epilogue_width for c in plain} == {1, 2, 4}
    assert {c.epilogue_width for c in swept if c.epilogue == "tma"} == {4}  # TMA: 16 bytes


def test_hopper_refuses_only_what_does_not_fit() -> None:
    refused = {
        (e.config.threadblock_shape, e.config.source_c): reason
        for e in of_family(preset("hopper", "sm_90a"), "sm90")
        if (reason := infeasible_reason(e.config, e.problem, limits_of("sm_90a")))
    }
    assert set(refused.values()) == {"needs 264192 B of shared memory, limit 232448 B"}
    assert set(refused) == {((128, 256, 64), "float"), ((256, 128, 64), "float")}
    on_ada = [
        infeasible_reason(e.config, e.problem, limits_of("sm_89"))
        for e in of_family(preset("hopper", "sm_89"), "sm90")
    ]
    assert set(on_ada) == {"TMA and WGMMA kernels need sm_90a, not sm_89"}


@pytest.mark.parametrize("arch", ARCHS)
def test_scaling_runs_the_same_kernels_at_every_size(arch: str) -> None:
    found = preset("scaling", arch)
    sizes = (512, 1024, 2048, 4096, 8192, 16384)
    at = [{e.config for e in found if e.problem.shape == (size,) * 3} for size in sizes]
    assert sum(len(configs) for configs in at) == len(found)
    assert all(configs == at[0] for configs in at)
    counts = {f: sum(c.family == f for c in at[0]) for f in ("sm80", "sm90", "cublas", "wmma")}
    assert counts["sm80"] == 12
    assert counts["cublas"] > 0
    assert counts["wmma"] > 0
    assert (counts["sm90"] > 0) == (arch == "sm_90a")
    assert all(infeasible_reason(e.config, e.problem, limits_of(arch)) is None for e in found)


def test_axes_not_given_take_one_default() -> None:
    (entry,) = entries(None, Axes(tile=["128x64x32"]), "sm_89")
    assert entry.problem.shape == (8192, 8192, 8192)
    config = entry.config
    assert (config.family, config.warp_shape) == ("sm80", (64, 32, 32))
    assert (config.stages, config.epilogue_width, config.alignment) == (3, 4, 8)
    assert (config.swizzle, config.split_k) == (1, 1)


def test_axes_span_their_product_and_repeat_or_separate_by_commas() -> None:
    axes = Axes(tile=["256x128x32", "128x128x32"], stages=["2,3", "4"], epilogue_width=["1,2,4"])
    assert len(entries(None, axes, "sm_89")) == 18
    assert len(entries(None, Axes(stages=["2,2", "2"]), "sm_89")) == 1
    problems = Axes(problem=["64x64x64,128x128x128"], layout=["tn,nn"], output=["f32,f16"])
    assert len(entries(None, problems, "sm_89")) == 8


def test_axes_filter_a_preset_and_cublas_stays_as_control() -> None:
    found = entries("paper", Axes(stages=["3"]), "sm_89")
    assert {e.config.stages for e in of_family(found, "sm80")} == {3}
    assert len(of_family(found, "sm80")) == 6
    assert of_family(found, "cublas")
    only = entries("paper", Axes(family=["sm80"], tile=["256x128x32"]), "sm_89")
    assert len(only) == 9
    assert not of_family(only, "cublas")


@pytest.mark.parametrize(
    ("axes", "sentence"),
    [
        (Axes(tile=["64x64x32"]), "has no --tile 64x64x32; it has 128x128x32, 256x128x32"),
        (
            Axes(problem=["512x512x512"]),
            "has no --problem 512x512x512; it has 4096x4096x4096, 8192x8192x8192",
        ),
        (Axes(epilogue_width=["3"]), "has no --epilogue-width 3; it has 1, 2, 4"),
        (Axes(stages=["0,auto"]), "has no --stages 0, auto; it has 1, 2, 3, 4"),
        (
            Axes(cluster=["1x1x1"]),
            "has no --cluster 1x1x1; nothing there has one, leave it out",
        ),
    ],
)
def test_a_filter_that_leaves_nothing_is_said(axes: Axes, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        entries("paper", axes, "sm_89")
    assert str(caught.value) == f"preset 'paper' {sentence}"


def test_filters_that_leave_nothing_together_are_named() -> None:
    axes = Axes(tile=["256x128x32"], stages=["1"])
    with pytest.raises(UsageError, match=r"has all of --tile, --stages as given; leave one out$"):
        entries("paper", axes, "sm_89")


def test_automatic_stages_are_for_sm90_only() -> None:
    (entry,) = entries(None, Axes(family=["sm90"], stages=["auto"]), "sm_90a")
    assert entry.config.stages is None
    for axes in (Axes(stages=["auto"]), Axes(family=["wmma"], stages=["2,auto"])):
        with pytest.raises(UsageError, match="'auto' exists only in the sm90 family"):
            entries(None, axes, "sm_89")


def test_natural_warps_divide_their_tiles() -> None:
    for (m, n), warp in NATURAL_WARPS.items():
        assert (m % warp[0], n % warp[1]) == (0, 0)
        assert natural_warp_shape((m, n, 64)) == (*warp, 64)
    assert natural_warp_shape((96, 96, 32)) == (64, 64, 32)


@pytest.mark.parametrize(
    ("axes", "parts"),
    [
        (Axes(tile=["256x128"]), ("threadblock shape '256x128'", "such as 256x128x32")),
        (Axes(tile=["0x0x0"]), ("threadblock shape '0x0x0'", "positive")),
        (Axes(tile=["big"]), ("threadblock shape 'big'", "such as")),
        (Axes(stages=["0"]), ("S=0", "2 to 16", "use")),
        (Axes(stages=["1"]), ("S=1", "2 to 16")),
        (Axes(stages=["-1"]), ("S=-1", "2 to 16")),
        (Axes(family=["wmma"], stages=["0"]), ("S=0", "2 to 16")),
        (Axes(stages=["9" * 5000]), (f"stages S '{'9' * 59}…'", "such as 2,3,4")),
        (Axes(tile=[f"{'9' * 5000}x128x32"]), (f"threadblock shape '{'9' * 59}…'", "such as")),
        (Axes(stages=["three"]), ("stages S 'three'", "such as 2,3,4")),
        (Axes(epilogue_width=["3"]), ("epilogue width 3", "1, 2, 4, 8, 16")),
        (Axes(problem=["8192x8192x0"]), ("problem '8192x8192x0'", "positive")),
        (Axes(family=["sm70"]), ("family 'sm70'", "sm80, sm90, cublas, wmma")),
        (Axes(layout=["nt"]), ("layout 'nt'", "tn, nn")),
        (Axes(output=["f64"]), ("output type 'f64'", "f32, f16")),
        (Axes(align=["3"]), ("alignment 3", "1, 2, 4, 8")),
        (Axes(swizzle=["3"]), ("threadblock swizzle 3", "1, 2, 4, 8")),
        (Axes(split_k=["0"]), ("split-K 0", "1..64")),
        (Axes(lda=4096), ("lda=4096", "K=8192")),
    ],
)
def test_bad_axes_name_value_and_remedy(axes: Axes, parts: tuple[str, ...]) -> None:
    with pytest.raises(UsageError) as caught:
        entries(None, axes, "sm_89")
    assert all(part in str(caught.value) for part in parts)
    assert "\n" not in str(caught.value)


def test_an_unknown_preset_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"preset 'papr' .*paper, quick, ada, hopper, scaling"):
        entries("papr", Axes(), "sm_89")
