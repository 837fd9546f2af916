"""Tables: what they hold, what they leave out, and every format they are written in."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from cutlass_study import table_formats, tables
from cutlass_study.config import GemmProblem, UsageError
from cutlass_study.table_formats import Table, to_csv, to_latex, to_markdown, to_typst
from cutlass_study.views import NothingToShow, make_views, prepare
from tests import synthetic


@pytest.fixture(scope="module")
def hopper():
    (view,) = make_views(synthetic.hopper())
    return view


@pytest.fixture(scope="module")
def o6():
    (view,) = make_views(synthetic.grid_o6())
    return view


def test_default_problem_is_the_one_with_most_sm80_rows(hopper):
    assert hopper.problem == "M = N = K = 8192"
    assert hopper.regimes == ("burst", "sustained")


def test_a_problem_can_be_asked_for():
    (view,) = make_views(synthetic.hopper(("burst",)), problem="512x512x512")
    assert set(view.rows["n"]) == {512}
    with pytest.raises(
        UsageError, match=r"512x512x511 is not in the data; use one of: 512x512x512"
    ):
        make_views(synthetic.hopper(("burst",)), problem="512x512x511")


def test_labels_are_short_and_tell_configurations_apart(hopper):
    rows = hopper.configurations
    assert rows["label"].is_unique
    assert rows["label"].str.len().max() < 40
    assert {"256×128×32 S3 e4", "128×256×64 c2×1 coop S=auto", "cuBLAS"} <= set(rows["label"])


def test_warp_shape_is_named_only_where_it_tells_rows_apart():
    problem = GemmProblem(64, 64, 64)
    configs = [synthetic.sm80(warp=warp) for warp in ((64, 64, 32), (32, 64, 32))]
    rows = prepare(pd.DataFrame([synthetic.row(config, problem) for config in configs]))
    labels = make_views(synthetic.Records(None, rows, pd.DataFrame()))[0].rows["label"]
    assert list(labels) == ["128×128×32 w64×64 S3", "128×128×32 w32×64 S3"]


def test_configurations_have_regimes_side_by_side(hopper):
    frame = tables.configurations(hopper).frame
    assert len(frame) == len(hopper.configurations)
    assert {"tflops_burst", "tflops_sustained", "ratio_low_burst", "peak_share_burst"} <= set(frame)
    assert frame.loc[frame["outcome"] != "ok", "tflops_burst"].isna().all()


def test_pipeline_depth_gives_the_change_all_else_equal(o6):
    frame = tables.pipeline_depth(o6).frame
    first = frame.iloc[0]
    assert (first["tflops_s3"], first["tflops_s4"]) == (51.0, 52.0)
    assert first["change_s3_to_s4"] == pytest.approx(52 / 51 - 1)
    assert "regime" not in frame  # the caption says it
    assert len(frame) == 2  # the two tiles with measurements


def test_epilogue_width_is_paired_with_width_four(hopper):
    frame = tables.epilogue_width(hopper).frame
    assert set(frame["epilogue_width"]) == {1, 2}
    burst = frame[frame["regime"] == "burst"]
    assert burst["ratio"].between(burst["ratio_low"], burst["ratio_high"]).all()
    expected = burst["tflops"] / burst["reference_tflops"]
    assert (burst["ratio"] - expected).abs().max() < 0.01


def test_epilogue_width_without_samples_claims_no_interval():
    records = synthetic.hopper(("burst",))
    bare = synthetic.Records(records.device, records.results, records.samples.iloc[:0])
    frame = tables.epilogue_width(make_views(bare)[0]).frame
    assert frame["ratio"].notna().all()
    assert "ratio_low" not in frame


def test_ranking_holds_only_verified_rows(o6):
    frame = tables.ranking(o6).frame
    assert list(frame["label"])[:2] == ["cuBLAS", "128×128×32 S4"]
    assert len(frame) == 7
    assert frame["tflops"].max() == 100.0  # not the wrong result's 9999


def test_outcomes_have_every_row_that_is_not_ok(o6):
    frame = tables.outcomes(o6).frame
    assert sorted(frame["outcome"]) == ["infeasible"] * 5 + ["wrong_result"]
    assert set(frame["reason"]) == {"needs 9999999 B", "NaN in D"}
    counts = tables.outcome_counts(o6).frame
    sm80 = counts[counts["family"] == "sm80"].iloc[0]
    assert (sm80["measured"], sm80["infeasible"], sm80["failed"], sm80["total"]) == (6, 5, 1, 12)


def test_scaling_has_every_size(hopper):
    frame = tables.scaling(hopper).frame
    assert sorted(set(frame["extent"])) == [512, 1024, 2048, 4096, 8192, 16384]
    assert {"tflops_cublas", "tflops_sm80", "tflops_sm90", "tflops_wmma"} <= set(frame)


def test_missing_pieces_say_what_is_missing(o6):
    with pytest.raises(NothingToShow, match="fewer than two sizes"):
        tables.scaling(o6)
    with pytest.raises(NothingToShow, match="differs in epilogue width alone"):
        tables.epilogue_width(o6)


def test_static_data_gives_tables_per_architecture_and_no_measured_number():
    ada, hopper = make_views(synthetic.static_only())
    assert (ada.arch, hopper.arch) == ("sm_89", "sm_90a")
    for view in (ada, hopper):
        frame = tables.configurations(view).frame
        assert set(frame["outcome"]) == {"compiled", "infeasible"}
        assert not {"tflops", "ratio_to_cublas", "samples"} & set(frame)
        assert len(tables.resources(view).frame)
        assert len(tables.occupancy_over_depth(view).frame)
        with pytest.raises(NothingToShow, match="nothing was measured"):
            tables.ranking(view)


def test_one_regime_only_leaves_the_other_unmeasured():
    records = synthetic.hopper()
    keep = (records.results["regime"] != "sustained") | (records.results["family"] == "cublas")
    partial = synthetic.Records(records.device, records.results[keep], records.samples)
    (view,) = make_views(partial)
    sustained = view.at("sustained")
    assert (sustained["state"] == "measured").sum() == 2
    assert sustained.loc[sustained["state"] == "not measured", "tflops"].isna().all()


AWKWARD = Table(
    "awkward",
    pd.DataFrame(
        {
            "label": ['a_b & 50% #1 "q" | ~^\\ {x} <$>', ""],
            "threadblock_shape": ["256x128x32", "64x64x32"],
            "tflops": [123.456, float("nan")],
            "ratio_to_cublas": [0.5, float("nan")],
            "ratio_low": [0.4, float("nan")],
            "ratio_high": [0.6, float("nan")],
        }
    ),
    "A caption_with 100 %.",
)


def test_csv_has_all_digits_machine_names_and_empty_for_unmeasured():
    header, first, second = csv.reader(io.StringIO(to_csv(AWKWARD)))
    assert header == list(AWKWARD.frame.columns)
    assert first[2] == "123.456"
    assert second[2:] == ["", "", "", ""]


def test_markdown_has_units_and_an_interval_in_one_cell():
    lines = to_markdown(AWKWARD).splitlines()
    assert lines[0] == AWKWARD.caption
    assert lines[2] == "| configuration | tile | TFLOPS | ratio to cuBLAS |"
    assert "| 256×128×32 | 123.5 | 0.5000 [0.4000, 0.6000] |" in lines[4]
    assert "\\|" in lines[4]


def test_latex_escapes_and_breaks_long_tables():
    text = to_latex(AWKWARD)
    assert r"a\_b \& 50\% \#1" in text
    assert r"\textbackslash{} \{x\} \textless{}\$\textgreater{}" in text
    assert r"256$\times$128$\times$32" in text
    assert text.count(r"\\") == 3
    long = Table("long", pd.DataFrame({"tflops": [1.0] * 50}), "Long.")
    assert r"\begin{longtable}" in to_latex(long)


def test_typst_compiles(tmp_path: Path):
    typst = pytest.importorskip("typst")
    source = tmp_path / "table.typ"
    source.write_text(to_typst(AWKWARD), encoding="utf-8")
    assert typst.compile(str(source)).startswith(b"%PDF")


def test_every_table_of_the_study_is_valid_typst(hopper, tmp_path: Path):
    typst = pytest.importorskip("typst")
    for table in (tables.ranking(hopper), tables.pipeline_depth(hopper), tables.outcomes(hopper)):
        paths = table_formats.save(table, tmp_path)
        assert [path.suffix for path in paths] == [".csv", ".md", ".tex", ".typ"]
        assert typst.compile(str(paths[-1])).startswith(b"%PDF")
        assert len(pd.read_csv(paths[0])) == len(table.frame)


def test_a_control_that_drifts_beyond_its_noise_is_a_warning_in_captions(hopper):
    """M8: a common slow-down over the run, which pairing cancels, must still be said."""
    steady = replace(hopper, samples=hopper.samples.assign(time_ms=1.0))
    assert "Warning" not in tables.ranking(steady).caption
    slower = hopper.samples.assign(time_ms=1.0 + 0.01 * hopper.samples["round"])
    for make in (tables.ranking, tables.configurations, tables.best_by_family):
        caption = make(replace(hopper, samples=slower)).caption
        assert "Warning: the control's time changed by +" in caption
        assert caption.endswith(".")


def test_launch_bound_rows_are_counted_in_captions(hopper):
    assert "launch-bound" not in tables.configurations(hopper).caption
    rows = hopper.rows.copy()
    rows.loc[rows.index[:3], "launch_bound"] = "true"
    assert "3 rows are launch-bound" in tables.configurations(replace(hopper, rows=rows)).caption


@pytest.mark.parametrize(
    ("drivers", "said"),
    [
        ([None, None], ""),
        ([2, None], "for 1 of 1 loaded kernels"),
        ([2, 2], "for 1 of 2 loaded kernels"),
    ],
)
def test_the_drivers_count_stands_beside_the_computed_one(
    drivers: list[int | None], said: str
) -> None:
    rows = pd.DataFrame({"ctas_per_sm": [2, 1], "driver_ctas_per_sm": drivers}, dtype="Int64")
    text = tables.driver_check(rows)
    assert text.removesuffix(".").endswith(said)
    assert bool(text) == bool(said)
