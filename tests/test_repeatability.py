"""How far two runs agree: pairing, verdicts, refusals, figure, script, the paper's section."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cutlass_study import repeatability_text, style
from cutlass_study.agreement import GOAL_SHARE, TOLERANCES, agreement
from cutlass_study.published import export
from cutlass_study.records import DeviceRecord
from cutlass_study.repeatability import Repeat, compare_runs
from cutlass_study.repeatability_figure import draw
from cutlass_study.repeatability_report import Repeats, repeats_of, section
from cutlass_study.repeatability_tables import comparison, summary
from cutlass_study.results import ResultsStore
from cutlass_study.study_data import DataError, StudyData, load
from tests import synthetic
from tests.scripts import run_here
from tests.sweep_records import DEVICE, fill

PROJECT = Path(__file__).resolve().parent.parent
SCRIPT = PROJECT / "scripts" / "compare.py"
H200 = PROJECT / "paper" / "data" / "h200"
Change = Callable[[pd.DataFrame], object]
RATIO = ["ratio_to_cublas", "ratio_low", "ratio_high"]


@cache
def made_up() -> synthetic.Records:
    return synthetic.hopper()


def study(
    name: str = "a",
    hour: int = 10,
    device: DeviceRecord | None = None,
    change: Change | None = None,
    change_samples: Change | None = None,
) -> StudyData:
    """Made-up records of one problem and two regimes, as if loaded from a folder `name`."""
    records = made_up()
    results = records.results[records.results["n"] == 8192].reset_index(drop=True)
    results["flop_per_clk_sm"] = results["tflops"] * 1e6 / results["sm_clock_mhz"] / 100
    if change:
        change(results)
    samples = records.samples[records.samples["name"].isin(results["name"])].copy()
    if change_samples:
        change_samples(samples)
    started = datetime(2026, 1, 1, hour, tzinfo=UTC).isoformat()
    summary = {"runs": [{"started_at": started, "arguments": ["--preset", "paper"]}]}
    device = device or synthetic.DEVICE
    return StudyData(Path("/data") / name, device, True, summary, results, samples)


def rows_of(results: pd.DataFrame, regime: str, **wanted: Any) -> pd.Series:
    chosen = (results["regime"] == regime) & (results["outcome"] == "ok")
    for column, value in wanted.items():
        chosen &= results[column] == value
    return chosen


def scaled(factor: float, columns: list[str], regime: str, **wanted: Any) -> Change:
    def change(results: pd.DataFrame) -> None:
        results.loc[rows_of(results, regime, **wanted), columns] *= factor

    return change


def drop(results: pd.DataFrame, rows: pd.Series) -> None:
    """Let a run lack rows that the other has."""
    results.loc[rows, ["outcome", "tflops"]] = ["timeout", float("nan")]


def by_regime(repeat: Repeat) -> dict[str, Any]:
    return {found.regime: found for found in repeat.agreements}


# --- pairing and verdicts ---------------------------------------------------------------------


def test_the_same_data_agrees_fully():
    data = study()
    repeat = compare_runs(data, data)
    assert (repeat.same_card, repeat.same_run, repeat.hours) == (True, True, 0)
    assert (repeat.alone, repeat.changed) == ((0, 0), ())
    assert [found.regime for found in repeat.agreements] == ["burst", "sustained"]
    for found in repeat.agreements:
        assert found.tolerance == TOLERANCES[found.regime]
        assert (found.agree, found.beyond, found.median, found.p95) == (found.rows, 0, 0, 0)
        assert (found.clock_largest, found.cycles_agree, found.swaps) == (0, found.rows, ())
        assert found.meets_goal
    assert repeat.rows["agrees"].all()
    assert (repeat.rows["difference_low"] < 0).all()
    assert (repeat.rows["difference_high"] > 0).all()


def test_cublas_is_no_row_but_cublaslt_is():
    data = study()
    repeat = compare_runs(data, data)
    assert set(repeat.rows.loc[repeat.rows["family"] == "cublas", "variant"]) == {"lt_best"}
    measured = data.results["outcome"] == "ok"
    assert len(repeat.rows) == measured.sum() - 2  # the control in both regimes


def test_a_shifted_ratio_is_found_in_its_regime_alone():
    other = study("b", change=scaled(1.005, RATIO, "burst", stages="3", family="sm80"))
    repeat = compare_runs(study(), other)
    shifted = (repeat.rows["stages"] == "3") & (repeat.rows["family"] == "sm80")
    shifted &= repeat.rows["regime"] == "burst"
    assert shifted.any()
    assert (~repeat.rows["agrees"]).equals(shifted)
    assert repeat.rows.loc[shifted, "difference"].to_numpy() == pytest.approx(0.005)
    burst, sustained = (by_regime(repeat)[name] for name in ("burst", "sustained"))
    assert burst.agree == burst.rows - shifted.sum()
    assert burst.beyond == 0  # intervals of ±0.4 % each: 0.5 % is not surely above 0.3 %
    assert sustained.agree == sustained.rows


def test_each_regime_has_its_tolerance():
    def change(results: pd.DataFrame) -> None:
        for regime in ("burst", "sustained"):
            scaled(1.005, RATIO, regime)(results)

    found = by_regime(compare_runs(study(), study("b", change=change)))
    assert (found["burst"].agree, found["burst"].meets_goal) == (0, False)
    assert (found["sustained"].agree, found["sustained"].meets_goal) == (
        found["sustained"].rows,
        True,
    )


def test_a_large_shift_is_beyond_noise():
    found = by_regime(compare_runs(study(), study("b", change=scaled(1.03, RATIO, "burst"))))
    assert found["burst"].beyond == found["burst"].rows
    assert found["sustained"].beyond == 0


def test_the_interval_adds_both_runs_in_quadrature():
    def change(results: pd.DataFrame) -> None:
        results["ratio_low"] = results["ratio_to_cublas"] * math.exp(-0.03)
        results["ratio_high"] = results["ratio_to_cublas"] * math.exp(0.04)

    rows = compare_runs(study(change=change), study("b", change=change)).rows
    assert rows["difference_low"].to_numpy() == pytest.approx(math.expm1(-0.05))
    assert rows["difference_high"].to_numpy() == pytest.approx(math.expm1(0.05))


def test_clocks_and_cycles_explain_the_ratio_together():
    clock, cublas, cycles = 1.02, 1.01, 1.004

    def change(results: pd.DataFrame) -> None:
        scaled(clock, ["sm_clock_mhz"], "burst", family="sm80")(results)
        scaled(clock / cublas * cycles, RATIO, "burst", family="sm80")(results)

    def change_samples(samples: pd.DataFrame) -> None:
        for family, faster, better in (("sm80", clock, cycles), ("cublas_default", cublas, 1.0)):
            rows = (samples["regime"] == "burst") & samples["name"].str.startswith(family)
            samples.loc[rows, "sm_clock_mhz"] *= faster
            samples.loc[rows, "time_ms"] /= faster * better

    rows = compare_runs(study(), study("b", 10, None, change, change_samples)).rows
    rows = rows[(rows["family"] == "sm80") & (rows["regime"] == "burst")]
    assert rows["clock_difference"].to_numpy() == pytest.approx(clock - 1)
    assert rows["clock_part"].to_numpy() == pytest.approx(clock / cublas - 1)
    assert rows["cycles_part"].to_numpy() == pytest.approx(cycles - 1)
    product = (1 + rows["clock_part"]) * (1 + rows["cycles_part"]) - 1
    assert rows["difference"].to_numpy() == pytest.approx(product.to_numpy())


def test_clocks_are_compared_within_rounds():
    """cuBLAS ran on at another clock after the others had ended: its rows' medians say nothing."""

    def change_samples(samples: pd.DataFrame) -> None:
        late = samples["round"] >= 10
        own = samples["name"].str.startswith("cublas_default")
        samples.loc[late & own, "sm_clock_mhz"] *= 1.05
        samples.loc[late & ~own, "rejected"] = "the others had ended"

    rows = compare_runs(study(), study("b", change_samples=change_samples)).rows
    assert rows["clock_part"].abs().max() == pytest.approx(0, abs=1e-12)


def test_without_clocks_nothing_is_said_of_them():
    def change(results: pd.DataFrame) -> None:
        results[["sm_clock_mhz", "flop_per_clk_sm"]] = float("nan")

    def change_samples(samples: pd.DataFrame) -> None:
        samples["sm_clock_mhz"] = float("nan")

    repeat = compare_runs(study(), study("b", 10, None, change, change_samples))
    assert by_regime(repeat)["burst"].cycles_rows == 0
    assert not any("clock" in text for text in repeatability_text.sentences(repeat.agreements[0]))
    with style.styled():
        draw(repeat)


def test_configurations_that_change_places_are_counted():
    def ratios(*values: float) -> Change:
        def change(results: pd.DataFrame) -> None:
            rows = results.index[rows_of(results, "burst", family="sm80")][:2]
            others = (results["family"] != "cublas") | (results["variant"] != "default")
            others[rows] = False
            drop(results, others)
            for row, ratio in zip(rows, values, strict=True):
                results.loc[row, RATIO] = [ratio, ratio * 0.999, ratio * 1.001]

        return change

    first = study(change=ratios(0.50, 0.51))
    for second, ordered, swaps in (((0.52, 0.51), 1, 1), ((0.4, 0.5), 1, 0), ((0.5, 0.5), 0, 0)):
        (found,) = compare_runs(first, study("b", change=ratios(*second))).agreements
        assert (found.ordered, len(found.swaps), found.swapped) == (ordered, swaps, swaps)
        text = repeatability_text.order(found)
        assert ("% slower than" in text) == bool(swaps)
        assert ("faster in b (" in text) == bool(swaps)
        assert bool(text) == bool(ordered)


def test_swaps_of_several_repeats_tell_how_many_pairs_they_are():
    def ratios(*values: float) -> Change:
        def change(results: pd.DataFrame) -> None:
            rows = results.index[rows_of(results, "burst", family="sm80")][:2]
            for row, ratio in zip(rows, values, strict=True):
                results.loc[row, RATIO] = [ratio, ratio * 0.9999, ratio * 1.0001]

        return change

    runs = [study(change=ratios(0.50, 0.51)), study("b", change=ratios(0.51, 0.50))]
    repeats = [compare_runs(*runs), compare_runs(*reversed(runs))]
    found = agreement("burst", [repeat.rows for repeat in repeats])
    one = by_regime(repeats[0])["burst"]
    assert (len(found.swaps), found.swapped) == (2 * len(one.swaps), one.swapped)
    assert f"({one.swapped} different pairs)" in repeatability_text.order(found)
    assert "different pairs" not in repeatability_text.order(one)


def test_the_change_between_two_kernels_is_told_by_the_worst_repeat():
    """One kernel up and all others down: what changes between them is the sum of both."""

    def change(results: pd.DataFrame) -> None:
        scaled(0.99, RATIO, "burst")(results)
        results.loc[results.index[rows_of(results, "burst", family="wmma")], RATIO] *= 1.03 / 0.99

    worse, same = (study("b", change=what) for what in (change, None))
    rows = [compare_runs(study(), other).rows for other in (worse, same)]
    rows = [one[one["family"].isin(("wmma", "sm90"))] for one in rows]
    few = [one.groupby("regime").head(2) for one in rows]
    found = agreement("burst", few)
    changes = [*few[0].loc[few[0]["regime"] == "burst", "difference"], 0.0]
    expected = [abs((1 + a) / (1 + b) - 1) for a, b in combinations(changes, 2)]
    assert found.between == pytest.approx(float(np.quantile(expected, 0.95)), rel=0.01)
    assert agreement("burst", few[1:]).between == 0


def test_rows_that_one_run_lacks_are_counted_and_not_compared():
    def without_wmma(results: pd.DataFrame) -> None:
        drop(results, results["family"] == "wmma")

    repeat = compare_runs(study(), study("b", change=without_wmma))
    assert repeat.alone == (2, 0)
    assert "wmma" not in set(repeat.rows["family"])
    assert "2 of the first run" in repeatability_text.counted(repeat)


def test_other_inputs_and_seeds_are_other_rows():
    for column, value in (("distribution", "normal"), ("seed", 2), ("arch", "sm_90")):

        def change(results: pd.DataFrame, column: str = column, value: Any = value) -> None:
            results[column] = value

        with pytest.raises(DataError, match="no measured kernel in common"):
            compare_runs(study(), study("b", change=change))


def test_a_repeat_of_cublaslt_that_is_another_kernel_does_not_count():
    def change(results: pd.DataFrame) -> None:
        chosen = results["variant"] == "lt_best"
        results.loc[chosen, "reason"] = "heuristic candidate 3"
        results.loc[chosen, RATIO] *= 1.1

    same = compare_runs(study(), study())
    repeat = compare_runs(study(), study("b", change=change))
    assert "lt_best" not in set(repeat.rows["variant"])
    assert set(repeat.rechosen["variant"]) == {"lt_best"}
    assert len(repeat.rows) + len(repeat.rechosen) == len(same.rows)
    assert all(found.agree == found.rows for found in repeat.agreements)
    assert repeat.alone == same.alone
    (sentence,) = repeatability_text.noted(repeat)
    assert "nothing, then heuristic candidate 3" in sentence
    assert repeatability_text.noted(same) == []


def test_what_else_changed_is_told():
    other = replace(synthetic.DEVICE, uuid="GPU-1-2", driver_version="1", git_commit="abc")
    second = study("b", hour=13, device=other)
    longer = second.samples.assign(launches=second.samples["launches"] * 2)
    repeat = compare_runs(study(), replace(second, samples=longer))
    assert (repeat.same_card, repeat.hours, repeat.second.card) == (False, 3, "GPU-1")
    assert repeat.changed[:2] == (("driver", "0", "1"), ("code", "unknown", "abc"))
    assert [change.what for change in repeat.changed[2:]] == [
        "timed work in a burst sample of M = N = K = 8192",
        "timed work in a sustained sample of M = N = K = 8192",
    ]
    assert "driver 0 and 1; code unknown and abc" in repeatability_text.also_changed(repeat)
    back = compare_runs(second, study())
    assert repeatability_text.all_changed([repeat, back])[0] == "driver (0, 1)"
    assert "another card of the same model" in repeatability_text.about(repeat)
    assert repeatability_text.later(compare_runs(second, study())) == "3.0 h earlier"


# --- what is refused --------------------------------------------------------------------------


def test_other_models_of_gpu_are_refused_by_name():
    other = study("b", device=replace(synthetic.DEVICE, name="Other GPU"))
    with pytest.raises(DataError, match=r"'/data/a' .*Synthetic GPU.* '/data/b' on Other GPU"):
        compare_runs(study(), other)
    with pytest.raises(DataError, match=r"\(100 SMs\).*\(99 SMs\)"):
        compare_runs(study(), study("b", device=replace(synthetic.DEVICE, sm_count=99)))


def test_nothing_measured_is_refused():
    with pytest.raises(DataError, match="holds nothing measured"):
        compare_runs(study(), replace(study("b"), device=None))

    def conditions(results: pd.DataFrame) -> None:
        results["condition"] = "hot"

    with pytest.raises(DataError, match=r"'/data/b' can't be compared: .*experiment"):
        compare_runs(study(), study("b", change=conditions))


# --- tables and figure ------------------------------------------------------------------------


def test_tables_hold_both_runs():
    repeat = compare_runs(study(), study("b", hour=12, change=scaled(1.01, RATIO, "burst")))
    frame = comparison(repeat).frame
    for column in ("ratio_to_cublas", "sm_clock_mhz", "flop_per_clk_sm"):
        assert {f"{column}_first", f"{column}_second"} <= set(frame.columns)
    assert len(frame) == len(repeat.rows)
    lines = summary([repeat]).frame
    assert lines["goal"].tolist() == ["missed", "met"]
    assert lines["hours_later"].tolist() == [2, 2]


def test_the_figure_tells_agreement_by_fill_and_counts_it():
    change = scaled(1.01, RATIO, "burst", family="sm80")
    repeat = compare_runs(study(), study("b", change=change))
    with style.styled():
        figure = draw(repeat)
    titles = [axes.get_title() for axes in figure.figure.axes]
    for found, title in zip(repeat.agreements, titles, strict=True):
        assert f"{found.agree} of {found.rows} agree" in title
    faces = {
        container.get_label(): container.lines[0].get_markerfacecolor()
        for container in figure.figure.axes[0].containers
    }
    assert faces["agrees"] != "white"
    assert faces["does not agree"] == "white"
    assert "configurations that differ less, in any regime, are not drawn" in figure.caption


def test_the_figure_shows_what_differs_most_in_each_regime():
    """Many large differences in one regime must not hide the few of the other."""

    def change(results: pd.DataFrame) -> None:
        scaled(1.05, RATIO, "burst", family="sm80")(results)
        scaled(1.02, RATIO, "sustained", family="wmma")(results)

    with style.styled():
        figure = draw(compare_runs(study(), study("b", change=change)))
    _, sustained = figure.figure.axes
    (apart,) = [one for one in sustained.containers if one.get_label() == "does not agree"]
    assert apart.lines[0].get_xdata() == pytest.approx([2.0])


# --- the recorded data ------------------------------------------------------------------------


def recorded() -> list[Path]:
    return sorted(path for path in (H200 / "repeats").iterdir() if path.is_dir())


def test_every_recorded_repeat_is_an_export_that_can_be_compared():
    assert recorded()
    repeats = repeats_of(load(H200))
    assert repeats.left_out == ()
    assert len(repeats.runs) == len(recorded()) + 1
    for folder in recorded():
        names = {path.name for path in folder.iterdir()}
        assert names == {"device.json", "results.csv", "samples.csv.gz"}
    for _, _, repeat in repeats.pairs:
        assert not repeat.same_run
        for found in repeat.agreements:
            assert found.rows >= 1 / (1 - GOAL_SHARE)  # fewer could not miss the goal by one
            assert 0 <= found.agree <= found.rows
            assert math.isfinite(found.median)
            assert repeatability_text.sentences(found)


# --- the paper's section ----------------------------------------------------------------------


def exported(folder: Path, uuid: str = "GPU-11111111", name: str = DEVICE.name) -> StudyData:
    """A small real export of a made-up campaign."""
    store_path = folder.parent / f"{folder.name}.sqlite"
    store_path.parent.mkdir(parents=True, exist_ok=True)
    device = replace(DEVICE, uuid=uuid, name=name)
    with ResultsStore.open(store_path, device, resume=False, arguments=("--seed", "1")) as store:
        fill(store)
        export(store, folder, planned=5)
    store_path.unlink()
    return load(folder)


def begun(folder: Path, hour: int) -> None:
    """Let the export say when its run began."""
    record = json.loads((folder / "device.json").read_text())
    record["runs"][0]["started_at"] = f"2026-01-01T{hour:02}:00:00+00:00"
    (folder / "device.json").write_text(json.dumps(record))


def drifted(folder: Path) -> None:
    """Let its control have drifted in one regime, beyond its noise, and not in the other."""
    record = json.loads((folder / "device.json").read_text())
    found = {"problem": "8192x8192x8192_tn_f32", "spread": 0.001, "change": -0.0021}
    record["control_drift"] = [
        found | {"regime": "burst", "warning": True},
        found | {"regime": "sustained", "warning": False},
    ]
    (folder / "device.json").write_text(json.dumps(record))


def test_without_repeats_there_is_no_section(tmp_path: Path):
    data = exported(tmp_path / "gpu")
    assert section(data, repeats_of(data), tmp_path, tmp_path) is None
    assert repeats_of(data).left_out == ()
    (tmp_path / "gpu" / "repeats" / ".hidden").mkdir(parents=True)
    (tmp_path / "gpu" / "repeats" / "note.txt").touch()
    assert section(data, repeats_of(data), tmp_path, tmp_path) is None
    assert repeats_of(data).left_out == ()


def test_every_pair_of_runs_is_compared_in_order_of_time(tmp_path: Path):
    for name, uuid, hour in (
        ("gpu", "GPU-1", 9),
        ("gpu/repeats/late", "GPU-2", 15),
        ("gpu/repeats/early", "GPU-2", 8),
    ):
        exported(tmp_path / name, uuid)
        begun(tmp_path / name, hour)
    drifted(tmp_path / "gpu/repeats/late")
    exported(tmp_path / "gpu/repeats/foreign", name="Other GPU")
    (tmp_path / "gpu/repeats/torn").mkdir()
    shutil.copytree(tmp_path / "gpu/repeats/early", tmp_path / "gpu/repeats/twice")
    (tmp_path / "gpu/repeats/own").symlink_to(tmp_path / "gpu")
    data = load(tmp_path / "gpu")
    repeats = repeats_of(data)
    tree = section(data, repeats, tmp_path, tmp_path)
    reasons = dict(repeats.left_out)
    assert list(reasons) == [f"repeat {name}" for name in ("foreign", "own", "torn", "twice")]
    assert "the very same run as" in reasons["repeat own"]
    assert "early'; remove one" in reasons["repeat twice"]
    assert [run["name"] for run in tree["runs"]] == ["early", "gpu", "late"]
    assert [(kind["same_card"], kind["pairs"]) for kind in tree["kinds"]] == [(True, 1), (False, 2)]
    assert tree["several_cards"]
    told = "-0.21 % in the burst regime of 8192x8192x8192_tn_f32"
    assert [run["drift"] for run in tree["runs"]] == [[], [], [told]]
    one_pair, two_pairs = ([kind["regimes"][0]["sentences"][0]] for kind in tree["kinds"])
    assert one_pair == [
        "2 of 2 configurations agree within 0.3 % (100 %); the goal of 95 % is met."
    ]
    assert two_pairs == [
        "4 of 4 comparisons (2 configurations, 2 pairs of runs) agree within 0.3 % (100 %); 2 of 2 "
        "pairs meet the goal of 95 %."
    ]
    folders = [run["folder"] for run in tree["runs"]]
    assert folders == ["gpu/repeats/early", "gpu", "gpu/repeats/late"]
    assert tree["first_pair"] == "A, C"
    command = "python scripts/compare.py --data gpu/repeats/early --with gpu/repeats/late"
    assert tree["command"] == command
    for kind in tree["kinds"]:
        assert (tmp_path / kind["figure"]["file"]).read_bytes().startswith(b"%PDF-")
    assert tree["kinds"][1]["figure"]["caption"].startswith("Runs A, B of the list"), "with gpu"
    assert {(row["goal"], row["share"]) for row in tree["rows"]} == {("met", "100 %")}
    assert [run["letter"] for run in tree["runs"]] == ["A", "B", "C"]
    pairs = dict.fromkeys((row["runs"], row["card"]) for row in tree["rows"])
    assert list(pairs) == [("A, C", "same"), ("A, B", "another"), ("B, C", "another")]
    json.dumps(tree)


def test_the_figure_is_of_a_pair_with_the_data_and_letters_go_on_after_z(tmp_path: Path):
    """The data began last of 28 runs: the first pair in time is without it."""
    data = exported(tmp_path / "gpu")
    runs = [*(replace(data, directory=tmp_path / f"r{number}") for number in range(27)), data]
    pairs = [(one, other, compare_runs(one, other)) for one, other in (runs[:2], runs[-2:])]
    tree = section(data, Repeats(tuple(runs), tuple(pairs), ()), tmp_path, tmp_path)
    assert [run["letter"] for run in tree["runs"]][-3:] == ["Z", "AA", "AB"]
    (kind,) = tree["kinds"]
    assert kind["figure"]["caption"].startswith("Runs AA, AB of the list")


def test_a_run_whose_clocks_are_unknown_has_none_in_the_table(tmp_path: Path):
    first, second = exported(tmp_path / "a"), exported(tmp_path / "b")
    silent = second.samples.assign(sm_clock_mhz=float("nan"))
    results = second.results.assign(sm_clock_mhz=float("nan"), flop_per_clk_sm=float("nan"))
    runs = (first, replace(second, samples=silent, results=results))
    repeats = Repeats(runs, ((*runs, compare_runs(*runs)),), ())
    for row in section(first, repeats, tmp_path, tmp_path)["rows"]:
        assert (row["clock"], row["by_cycles"]) == (None, None)


def test_repeats_that_cant_be_listed_cost_only_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    data = exported(tmp_path / "gpu")

    def refuse(parent: Path) -> list[Path]:
        raise DataError(f"'{parent}' can't be read (Permission denied); make it readable")

    monkeypatch.setattr("cutlass_study.neighbours._folders_in", refuse)
    ((name, why),) = repeats_of(data).left_out
    assert (name, "Permission denied" in why) == ("repeats", True)


def test_an_experiments_records_are_no_repeat(tmp_path: Path):
    exported(tmp_path / "gpu")
    exported(tmp_path / "gpu/repeats/cache")
    record = json.loads((tmp_path / "gpu/repeats/cache/device.json").read_text())
    record["experiment"] = "cache"
    (tmp_path / "gpu/repeats/cache/device.json").write_text(json.dumps(record))
    ((name, why),) = repeats_of(load(tmp_path / "gpu")).left_out
    assert (name, "move it to experiments/" in why) == ("repeat cache", True)


def test_an_export_leaves_the_repeats_alone(tmp_path: Path):
    exported(tmp_path / "gpu")
    exported(tmp_path / "gpu/repeats/again")
    begun(tmp_path / "gpu/repeats/again", 5)
    repeat = tmp_path / "gpu" / "repeats" / "again"
    before = {path.name: path.read_bytes() for path in repeat.iterdir()}
    begun(tmp_path / "gpu", 1)
    exported(tmp_path / "gpu")  # another campaign: the earlier export moves aside
    assert {path.name: path.read_bytes() for path in repeat.iterdir()} == before
    assert (tmp_path / "gpu" / "previous").is_dir()
    assert len(repeats_of(load(tmp_path / "gpu")).runs) == 2


# --- the script -------------------------------------------------------------------------------


def run_script(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        cwd=cwd,
        env=os.environ
        | {"PYTHONPATH": str(PROJECT), "PYTHONIOENCODING": "utf-8", "COLUMNS": "100"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )


def test_script_prints_the_verdict_and_writes_files(tmp_path: Path):
    exported(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    begun(tmp_path / "b", 3)
    done = run_here("compare", "--data", "a", "--with", "b", "--out", "out", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "burst regime: 2 of 2 configurations agree within 0.3 % (100 %)" in done.stdout
    assert "the goal of 95 % is met" in done.stdout
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert {f"repeatability.{end}" for end in ("csv", "md", "tex", "typ", "png", "pdf")} <= written
    assert {"repeatability_summary.csv", "captions.json", "captions.md"} <= written
    assert not (tmp_path / "a" / "out").exists()


def test_script_exit_codes_and_sentences(tmp_path: Path):
    exported(tmp_path / "a")
    exported(tmp_path / "c", name="Other GPU")
    (tmp_path / "file").touch()
    for arguments, code, words in (
        (["--data", "a"], 2, "--with"),
        (["--data", "a", "--with", "nowhere"], 2, "does not exist"),
        (["--with", "a"], 2, "no paper/ folder here or above"),
        (["--data", "a", "--with", "c"], 2, "only runs on the same model of GPU"),
        (["--data", "a", "--with", "a", "--out", "file/out"], 3, "can't write"),
    ):
        done = run_here("compare", *arguments, cwd=tmp_path)
        assert done.returncode == code, (arguments, done.stderr)
        assert words in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


def test_script_says_that_a_run_is_compared_with_itself(tmp_path: Path):
    exported(tmp_path / "a")
    done = run_here("compare", "--data", "a", "--with", "a", cwd=tmp_path)
    assert "Both folders hold the same run" in done.stdout
    assert "scripts/compare.py --data" in run_script("--help", cwd=tmp_path).stdout
