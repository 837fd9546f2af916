"""Performance models: the document's numbers, refusals, held-out errors, regret, determinism."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cutlass_study import study_data
from cutlass_study.config import GemmConfig, GemmProblem
from cutlass_study.models import document, evaluate, figures, heuristics, null, physical, tables
from cutlass_study.models.depth import depth_curves, depth_series
from cutlass_study.models.depth_pool import depth_pool
from cutlass_study.models.evaluation import errors, extrapolates, held_out, regrets
from cutlass_study.models.fitting import refuse_too_few
from cutlass_study.models.physical_fit import fit_physical, learner
from cutlass_study.models.report import (
    CONSTANT,
    PER_CONFIGURATION,
    PER_TILE,
    PHYSICAL,
    measured_intervals,
)
from cutlass_study.models.rows import (
    ModelError,
    features,
    machine_of,
    model_rows,
    undecided_shapes,
    unrested_rows,
    usable,
)
from cutlass_study.style import styled
from cutlass_study.table_formats import to_markdown
from cutlass_study.views import NothingToShow

ROOT = Path(__file__).parents[1]
H200 = ROOT / "paper" / "data" / "h200"
STATIC = ROOT / "paper" / "data" / "static"


@pytest.fixture(scope="module")
def data():
    return study_data.load(H200)


@pytest.fixture(scope="module")
def report(data):
    return evaluate(data)


@pytest.fixture(scope="module")
def sm80(data):
    return model_rows(data, "sm80")


@pytest.fixture(scope="module")
def sm90(data):
    return model_rows(data, "sm90")


# --- the document's own numbers (design, section 8) ---


def test_kappa_of_the_document_with_its_rounding():
    model = document.document_model()
    assert model.kappa == pytest.approx(1.96, abs=0.005)
    assert (model.kappa_low, model.kappa_high) == pytest.approx((1.85, 2.06), abs=0.006)
    assert model.asymptote_tflops == pytest.approx(53, abs=0.5)
    assert model.s2_tflops == pytest.approx(26.6, abs=0.05)
    assert model.kappa_2_overprediction == pytest.approx(0.1397, abs=5e-5)
    assert model.s2_low < model.s2_tflops < model.s2_high
    assert "S=3 and 4 only" in model.finding


def test_kappa_meets_the_numbers_it_came_from():
    kappa = document.kappa_from(31.9, 31.1, 0.138)
    scale = 31.9 / document.depth_efficiency(3, kappa)
    assert scale * document.depth_efficiency(4, kappa) == pytest.approx(31.1 * 1.138)
    with pytest.raises(ValueError, match="fits no κ"):
        document.kappa_from(31.9, 31.1, 0.5)


def test_occupancy_cap_in_both_forms():
    printed, true = document.occupancy_caps()
    assert (printed.ctas_s3, printed.ctas_s4) == (2, 1)
    assert printed.exponent == pytest.approx(0.19, abs=0.005)
    assert printed.gamma_s4_needed == pytest.approx(0.878, abs=0.001)
    assert (true.ctas_s3, true.ctas_s4) == (1, 1)  # F16: never two on sm_89
    assert true.exponent is None
    assert true.error_s4 == pytest.approx(0.138)
    assert "cannot correct anything" in true.finding
    for cap in (printed, true):
        assert cap.free_parameters > cap.points
        assert "Three free parameters" in cap.finding


# --- rows ---


def test_what_is_left_out(data, sm80, sm90):
    frame, bound = usable(data, "sm90")
    small = data.results.query("family == 'sm90' and m == 512 and regime == 'burst'")
    assert bound == (small["host_time_ms"] > 1.25 * small["time_ms"]).sum() > 0
    assert len(frame) == len(sm90)
    assert not undecided_shapes(data, "burst")
    assert set(sm80.problem) == {f"{n}x{n}x{n}" for n in (512, 1024, 2048, 4096, 8192)}
    assert len(set(sm80.name)) == len(sm80)


@pytest.mark.parametrize("family", ["sm80", "sm90"])
def test_a_problem_without_bursts_is_ranked_but_not_fitted(data, report, family):
    unrested = unrested_rows(data, family)
    assert set(unrested.problem) == {"16384x16384x16384"}, "one launch outlasts the power limit"
    assert not set(unrested.problem) & set(report.rows[family].problem)
    for model in (PHYSICAL, CONSTANT, PER_TILE, PER_CONFIGURATION):
        result = report.result(model, family)
        for found in (result.regrets, result.held_out_regrets):
            assert found[-1].problem == "16384x16384x16384"
            assert found[-1].extrapolated
            assert found[-1].configurations == len(unrested)
    assert sum("no burst regime" in note for note in report.notes) == 1


def test_rates_are_the_card_s_own(data):
    machine = machine_of(data)
    assert machine.flop_per_clk_sm["sm80"] == pytest.approx(2720, rel=0.01)
    assert machine.flop_per_clk_sm["sm90"] == pytest.approx(4058, rel=0.01)
    assert machine.dram_gb_s == pytest.approx(3841, rel=0.02)


def test_recorded_rate_agrees_with_cycles(data, sm90):
    rate = sm90.flop / sm90.cycles / sm90.machine.sm_count
    frame, _ = usable(data, "sm90")
    recorded = frame.set_index("name")["flop_per_clk_sm"]
    ratio = rate / np.array([float(recorded[name]) for name in sm90.name])
    assert np.median(np.abs(ratio - 1)) < 0.003


@pytest.mark.parametrize(
    ("tile", "cluster", "streamed", "multicast"),
    [
        ((128, 128, 64), (1, 1, 1), 128 * 64 * 2, 1),  # as many tiles each way: along N, B streams
        ((128, 128, 64), (2, 1, 1), 128 * 64 * 2 / 2, 2),  # two rows of tiles share B
        ((256, 128, 64), (1, 2, 1), 256 * 64 * 2 / 2, 2),  # more tiles along N: along M, A streams
        ((256, 128, 64), (2, 1, 1), 256 * 64 * 2, 1),
    ],
)
def test_streamed_operand_follows_the_raster(tile, cluster, streamed, multicast):
    config = GemmConfig(
        "sm90", tile, cluster_shape=cluster, schedule="cooperative", epilogue="tma",
        source_c="void", raster="heuristic", epilogue_width=4, alignment=8, swizzle=1,
    )  # fmt: skip
    found = features(config, GemmProblem(8192, 8192, 8192))
    assert (found["streamed_bytes"], found["streamed_multicast"]) == (streamed, multicast)
    assert found["stages"] >= 3  # auto is resolved


# --- S/(S+κ) and γ(S) on recorded data ---


def test_s2_of_sm80_is_its_own_class(sm80):
    """F13: the fit without S=2 is tried apart, and has too few points; S=2 shares no latency."""
    curves = depth_curves(sm80)
    without = [c for c in curves if not c.with_s2]
    assert without
    assert all(2 not in c.stages and "refused" in c.refusal for c in without)
    two = sm80.take(sm80.stages == 2)
    values = np.array([parameter.start for parameter in physical.PARAMETERS["sm80"]], dtype=float)
    names = [parameter.name for parameter in physical.PARAMETERS["sm80"]]
    changed = values.copy()
    changed[names.index("latency")] *= 3
    assert physical.cycles(two, changed) == pytest.approx(physical.cycles(two, values))
    more = sm80.take(sm80.stages > 2)
    changed = values.copy()
    changed[names.index("s2_staging")] *= 3
    assert physical.cycles(more, changed) == pytest.approx(physical.cycles(more, values))


def test_gamma_is_refused_where_it_can_t_be_told(sm80, sm90):
    for rows in (sm80, sm90):
        for curve in depth_curves(rows):
            if curve.free_parameters == 3:
                assert curve.kappa is None
                assert "refused" in curve.refusal or "γ(S) is 1" in curve.refusal
                with pytest.raises(ModelError):
                    curve.predict(np.array([2.0]))


def test_depth_series_differ_in_s_alone(sm90):
    for rows in depth_series(sm90).values():
        assert len(set(rows.problem)) == 1
        assert list(rows.stages) == sorted(set(rows.stages))


def test_one_kappa_for_all_tiles_counts_its_scales(sm80, sm90):
    pool = depth_pool("sm80", depth_series(sm80))
    assert pool.rows > pool.free_parameters == len(depth_series(sm80)) + 2
    assert pool.exponent_low < pool.exponent < pool.exponent_high
    assert depth_pool("sm90", depth_series(sm90)).exponent is None


# --- O8 ---


def test_as_many_rows_as_parameters_is_refused(sm80):
    with pytest.raises(ModelError, match=r"8 free parameters and 8 rows.* is refused") as caught:
        refuse_too_few(8, 8, "a model")
    assert "\n" not in str(caught.value)
    refuse_too_few(9, 8, "a model")
    count = len(physical.PARAMETERS["sm80"])
    with pytest.raises(ModelError, match=f"physical model of sm80 has {count} free parameters"):
        fit_physical(sm80.take(np.arange(count)))


def test_refusal_becomes_a_result(data):
    few = data.results[(data.results["family"] == "sm80")].iloc[:6]
    found = evaluate(replace(data, results=few), intervals=False, outside=False)
    result = found.result(PHYSICAL, "sm80")
    assert "refused" in result.refusal
    assert result.in_sample is None
    assert "no sm90 row was measured" in found.result(PHYSICAL, "sm90").refusal
    assert "refused" in to_markdown(tables.errors(found))
    with pytest.raises(NothingToShow):
        figures.predicted_measured(found)


def test_negative_r2_is_shown_as_it_is(report):
    result = report.result(CONSTANT, "sm80")
    assert result.in_sample.r2 < 0
    assert f"{result.in_sample.r2:.3f}" in to_markdown(tables.errors(report))


def test_extrapolation_is_marked(report, sm80):
    least, most = sm80.extent.min(), sm80.extent.max()
    asked = np.array([least / 2, least, most, 2 * most])
    assert list(extrapolates(asked, sm80.extent)) == [True, False, False, True]
    by_axis = {one.axis: one for one in report.result(PHYSICAL, "sm80").held_out}
    assert set(sm80.extent[by_axis["N"].extrapolated]) == {least, most}
    assert by_axis["N"].extrapolated_errors.rows == int(by_axis["N"].extrapolated.sum())
    assert not by_axis["tile"].extrapolated.any()


def test_extrapolating_to_twice_the_size(sm90):
    most = sm90.extent.max()
    near = fit_physical(sm90.take(sm90.extent < most))
    far = sm90.take(sm90.extent == most)
    assert near.extrapolates(far).all()
    predicted = near.predict(far)
    assert (predicted > 0).all()
    assert errors(predicted, far.tflops).median < 0.15
    at_measured_clock = far.flop / (near.cycles(far) / far.clock_mhz / 1e3) / 1e9
    assert errors(at_measured_clock, far.tflops).median < 0.08


def test_no_negative_tflops(report):
    for result in report.results:
        assert (result.predicted > 0).all()
        for one in result.held_out:
            known = one.predicted[np.isfinite(one.predicted)]
            assert (known > 0).all()


def test_predictions_stay_below_the_tensor_peak(sm80, sm90):
    for rows in (sm80, sm90):
        model = fit_physical(rows)
        rate = rows.flop / model.cycles(rows) / rows.machine.sm_count
        assert (rate < rows.machine.flop_per_clk_sm[rows.family]).all()


# --- goals on the H200 data ---


@pytest.mark.parametrize("family", ["sm80", "sm90"])
def test_goals_of_the_physical_model(report, family):
    result = report.result(PHYSICAL, family)
    assert result.rows > 100
    assert result.free_parameters == 12
    for one in (*result.held_out, *result.held_out_at_measured_clock):
        assert one.errors.median <= 0.08
        assert one.errors.rows == result.rows
    assert result.clock.median < 0.03
    assert result.mean_regret <= 0.03
    assert np.mean([regret.lost for regret in result.held_out_regrets]) <= 0.03
    for null_model in (CONSTANT, PER_TILE, PER_CONFIGURATION):
        beside = report.result(null_model, family)
        assert result.mean_regret < beside.mean_regret
        assert result.in_sample.median < beside.in_sample.median


def test_intervals_hold_their_values(report):
    for result in report.results:
        for one in result.parameters:
            assert one.low <= one.value <= one.high
    assert len(report.result(PHYSICAL, "sm80").parameters) == 12


# --- evaluation ---


def test_regret_of_ties_is_their_mean(sm80):
    rows = sm80.take(sm80.problem == "1024x1024x1024")
    (blind,) = regrets(rows, np.ones(len(rows)))
    assert blind.lost == pytest.approx(float(np.mean(1 - rows.tflops / rows.tflops.max())))
    assert blind.favourite == ""
    (perfect,) = regrets(rows, rows.tflops)
    assert perfect.lost == 0
    assert perfect.favourite == perfect.best


def test_unseen_configurations_are_no_candidates_but_count_as_best(sm80):
    rows = sm80.take(sm80.problem == "8192x8192x8192")
    guess = np.full(len(rows), np.nan)
    slow = int(rows.tflops.argmin())
    guess[slow] = 1.0
    (found,) = regrets(rows, guess)
    assert found.lost == pytest.approx(1 - rows.tflops[slow] / rows.tflops.max())


def test_held_out_rows_are_not_seen(sm80):
    seen = []

    def learn(rows):
        seen.append(set(rows.tile))
        return null.constant(rows)

    held_out(learn, sm80, "tile")
    tiles = sorted(set(sm80.tile))
    assert [set(tiles) - one for one in seen] == [{tile} for tile in tiles]


def test_single_group_can_t_be_left_out(sm80):
    one = sm80.take(sm80.problem == "8192x8192x8192")
    with pytest.raises(ModelError):
        held_out(learner(None), one, "N")


def test_same_numbers_every_time(data, report):
    again = evaluate(data, outside=False)
    for first, second in zip(report.results, again.results, strict=True):
        assert first.parameters == second.parameters
        assert np.array_equal(first.predicted, second.predicted)
        assert first.regrets == second.regrets
    assert report.depth == again.depth
    assert report.pools == again.pools


# --- the outside reference ---


def test_heuristics_not_installed(data, sm90, monkeypatch):
    monkeypatch.setattr(heuristics.importlib.util, "find_spec", lambda name: None)
    found = heuristics.heuristics_report({"sm90": sm90}, data)
    assert "not installed" in found.reason
    assert found.mean_regret is None


def test_heuristics_of_an_unknown_gpu(data, sm90):
    other = replace(data, device=replace(data.device, name="NVIDIA GeForce RTX 4060"))
    assert "RTX 4060" in heuristics.heuristics_report({"sm90": sm90}, other).reason
    assert "no sm90 row" in heuristics.heuristics_report({}, data).reason


def test_a_crash_of_the_library_is_a_reason(monkeypatch):
    def crashed(*args, **kwargs):
        return subprocess.CompletedProcess(args, -11, stdout="", stderr="")

    monkeypatch.setattr(heuristics.subprocess, "run", crashed)
    assert "ended with code -11" in heuristics.ask("H200_SXM", ["512x512x512"])


def test_heuristics_regret_is_above_the_physical_model_s(report):
    pytest.importorskip("nvMatmulHeuristics")
    asked = report.heuristics
    assert asked.reason == ""
    judged = {regret.problem: regret.lost for regret in asked.regrets}
    assert len(judged) >= 4
    mine = [r.lost for r in report.result(PHYSICAL, "sm90").regrets if r.problem in judged]
    assert np.mean(mine) < asked.mean_regret < 0.1


def test_suggestion_is_mapped_by_tile_cluster_and_nearest_stages(sm90):
    here = sm90.take(sm90.problem == "4096x4096x4096")
    one = heuristics.Suggestion((128, 256, 64), (2, 1), 4, 1e-4)
    absent = heuristics.Suggestion((128, 192, 64), (2, 1), 5, 1e-4)
    regret, rank = heuristics._judge(here, "4096x4096x4096", [absent, one])
    assert rank == 2
    assert regret.favourite.startswith("sm90_128x256x64_c2x1x1_sauto")
    assert heuristics._judge(here, "4096x4096x4096", [absent]) is None


# --- tables and figures ---


def test_tables_are_full(report):
    made = {make(report).name: to_markdown(make(report)) for make in tables.ALL}
    assert len(made) == len(tables.ALL)
    assert "1.956" in made["model_document"]
    assert "nan" not in "".join(made.values()).lower().replace("nvidia", "")


def test_figures_are_drawn(data, report):
    intervals = measured_intervals(data)
    assert all(low <= high for low, high in intervals.values())
    with styled():
        drawn = (figures.depth_models(report, intervals), figures.predicted_measured(report))
    for figure in drawn:
        assert len(figure.figure.axes) == 2
        assert figure.caption
    assert "Median errors" in drawn[1].caption
    depth, predictions = (figure.figure for figure in drawn)
    assert "does not start at zero" in drawn[0].caption
    assert depth.axes[0].get_ylim() != depth.axes[1].get_ylim()
    (legend,) = depth.legends
    assert [text.get_text() for text in legend.get_texts()] == list(figures.DEPTH_LINES)
    looks = {
        line.get_label(): (line.get_marker(), line.get_markerfacecolor())
        for line in predictions.axes[0].lines
    }
    assert looks["tile held out"][0] != looks["N held out"][0], "they look alike in grey"
    assert looks["N held out, extrapolated"] == (looks["N held out"][0], "none")


def test_static_data_can_t_be_modelled():
    static = study_data.load(STATIC)
    found = evaluate(static, intervals=False)
    assert all("compiling alone" in result.refusal for result in found.results)
    assert found.document.kappa == pytest.approx(1.96, abs=0.005)
    assert tables.document_depth_model(found)
    with pytest.raises(NothingToShow):
        tables.depth_fits(found)


def test_nothing_here_imports_what_compiles_or_measures():
    code = (
        "import sys; from cutlass_study.models import tables, figures; "
        "bad = [m for m in sys.modules if m.split('.')[0] in ('cuda', 'pynvml', 'nvmath', "
        "'cutlass_library', 'nvMatmulHeuristics')]; "
        "own = ('compile', 'nvrtc', 'toolchain', 'kernels', 'measure', 'driver', 'worker'); "
        "bad += [m for m in sys.modules if m in tuple('cutlass_study.' + name for name in own)]; "
        "sys.exit(', '.join(bad) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, "MPLBACKEND": "TkAgg"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
