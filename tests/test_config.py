"""Problems and configurations: what is accepted, and that a name is an identity."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from cutlass_study.config import (
    MAX_EXTENT,
    GemmConfig,
    GemmProblem,
    UsageError,
    format_shape,
    full_name,
    parse_shape,
)
from cutlass_study.ladder import simt, wgmma
from cutlass_study.space import CUBLAS, sm80, sm90, wmma

SM80, SM90 = sm80((256, 128, 32), 3), sm90((128, 256, 64), None)

# Another legal value for every field that a family sweeps; the rest stay None in that family.
OTHER_VALUES: list[tuple[GemmConfig, dict[str, object]]] = [
    (
        SM80,
        {
            "threadblock_shape": (128, 128, 32),
            "warp_shape": (64, 32, 32),
            "stages": 4,
            "epilogue_width": 2,
            "alignment": 4,
            "swizzle": 8,
            "split_k": 2,
        },
    ),
    (
        SM90,
        {
            "threadblock_shape": (128, 128, 64),
            "cluster_shape": (1, 2, 1),
            "stages": 4,
            "epilogue_width": 2,
            "alignment": 4,
            "swizzle": 8,
            "schedule": "streamk",
            "epilogue": "nosmem",
            "source_c": "float",
            "raster": "m",
        },
    ),
    (CUBLAS, {"variant": "lt_best"}),
    (wmma(3), {"threadblock_shape": (64, 64, 32), "warp_shape": (32, 32, 32), "stages": 4}),
    (
        simt("warp_tiling"),
        {
            "threadblock_shape": (64, 64, 16),
            "warp_shape": (32, 32, 16),
            "variant": "vectorized",
        },
    ),
    (
        wgmma("pipelined_n128"),
        {
            "threadblock_shape": (256, 128, 64),
            "warp_shape": (64, 128, 64),
            "stages": 3,
            "epilogue": "staged",
            "variant": "pipelined_n256",
        },
    ),
]
OTHER_PROBLEMS: dict[str, object] = {
    "m": 128,
    "n": 128,
    "k": 128,
    "layout": "nn",
    "output": "f16",
    "alpha": 0.5,
    "beta": 1.0,
    "lda": 72,
}


@pytest.mark.parametrize(
    ("config", "field", "value"),
    [(config, field, value) for config, others in OTHER_VALUES for field, value in others.items()],
)
def test_every_swept_field_is_in_the_name(config: GemmConfig, field: str, value: object) -> None:
    changed = replace(config, **{field: value})  # type: ignore[arg-type]
    assert changed != config
    assert changed.name != config.name


@pytest.mark.parametrize(("config", "others"), OTHER_VALUES)
def test_no_swept_field_is_forgotten_above(config: GemmConfig, others: dict[str, object]) -> None:
    unset = {f.name for f in fields(config) if getattr(config, f.name) is None}
    if config.family == "sm90":
        unset.discard("stages")  # None is "auto" here
    given_by_others = {"wmma": {"variant"}, "simt": {"stages"}}.get(config.family, set())
    assert {f.name for f in fields(config)} - unset - given_by_others - {"family"} == set(others)


@pytest.mark.parametrize("field", list(OTHER_PROBLEMS))
def test_every_field_of_a_problem_is_in_its_name(field: str) -> None:
    problem = GemmProblem(64, 64, 64)
    changed = replace(problem, **{field: OTHER_PROBLEMS[field]})  # type: ignore[arg-type]
    assert changed.name != problem.name
    assert full_name(SM80, changed) != full_name(SM80, problem)
    assert set(OTHER_PROBLEMS) == {f.name for f in fields(problem)}


def test_single_and_multistage_wmma_kernels_have_their_own_names() -> None:
    assert len({wmma(stages).name for stages in (1, 2, 3, 4)}) == 4


def test_names_are_readable() -> None:
    assert SM80.name == "sm80_256x128x32_w64x64x32_s3_e4_a8_z1_k1"
    assert SM90.name == ("sm90_128x256x64_c2x1x1_sauto_cooperative_tma4_cvoid_a8_z1_rheuristic")
    assert full_name(CUBLAS, GemmProblem(4096, 4096, 4096)) == (
        "cublas_default__4096x4096x4096_tn_f32"
    )
    assert [SM80.stages_text, SM90.stages_text, CUBLAS.stages_text] == ["3", "auto", ""]


def test_shapes_are_read_as_they_are_written() -> None:
    assert parse_shape(" 256X128×32 ", "tile") == (256, 128, 32)
    assert parse_shape(format_shape((1, 2, 3)), "tile") == (1, 2, 3)


@pytest.mark.parametrize(
    "text", ["256x128", "256x128x32x1", "0x0x0", "-1x2x3", "big", "", "1.5x2x3", "²x2x3", "1x2x"]
)
def test_a_malformed_shape_is_named_with_what_is_wanted(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_shape(text, "threadblock shape")
    message = str(caught.value)
    assert f"threadblock shape '{text}'" in message
    assert "such as 256x128x32" in message
    assert "\n" not in message


@pytest.mark.parametrize("stages", [0, 1, -1, 17, None])
def test_a_pipeline_has_two_to_sixteen_stages(stages: int | None) -> None:
    with pytest.raises(UsageError, match=rf"S={stages} .* 2 to 16"):
        replace(SM80, stages=stages)


@pytest.mark.parametrize(
    ("field", "value", "options"),
    [
        ("epilogue_width", 3, "1, 2, 4, 8, 16"),
        ("epilogue_width", 32, "1, 2, 4, 8, 16"),
        ("alignment", 16, "1, 2, 4, 8"),
        ("swizzle", 3, "1, 2, 4, 8"),
        ("split_k", 0, "outside 1..64"),
        ("threadblock_shape", (2048, 128, 32), "1 to 1024"),
        ("warp_shape", None, "needs a threadblock shape and a warp shape"),
        ("family", "sm70", "sm80, sm90, cublas, wmma"),
    ],
)
def test_impossible_values_are_named_with_the_possible_ones(
    field: str, value: object, options: str
) -> None:
    with pytest.raises(UsageError) as caught:
        replace(SM80, **{field: value})  # type: ignore[arg-type]
    assert options in str(caught.value)
    if not isinstance(value, tuple) and value is not None:
        assert str(value) in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [("schedule", "x"), ("epilogue", "x"), ("source_c", "x"), ("raster", "x"), ("stages", 1)],
)
def test_sm90_words_are_checked(field: str, value: object) -> None:
    with pytest.raises(UsageError, match=str(value)):
        replace(SM90, **{field: value})  # type: ignore[arg-type]


def test_wmma_variants_have_their_stages() -> None:
    with pytest.raises(UsageError, match="S=1, not S=2"):
        replace(wmma(1), stages=2)
    with pytest.raises(UsageError, match="S=1"):
        replace(wmma(2), stages=1)


@pytest.mark.parametrize("extent", [0, -1, MAX_EXTENT + 1])
def test_a_problem_has_positive_extents(extent: int) -> None:
    with pytest.raises(UsageError, match=rf"K={extent} is outside 1\.\.{MAX_EXTENT}"):
        GemmProblem(64, 64, extent)


def test_a_problem_knows_its_leading_dimensions_and_flop() -> None:
    assert GemmProblem(3, 5, 7).leading_dimensions == (7, 7, 5)
    assert GemmProblem(3, 5, 7, layout="nn", lda=8).leading_dimensions == (8, 5, 5)
    assert GemmProblem(3, 5, 7).flop == 210
    assert [GemmProblem(1, 1, 1, output=o).output_bytes for o in ("f32", "f16")] == [4, 2]
    with pytest.raises(UsageError, match="lda=6 is less than K=7"):
        GemmProblem(3, 5, 7, lda=6)
