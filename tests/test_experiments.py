"""The experiments on simulated kernels: which rows, what is kept apart, and what is concluded."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cutlass_study import experiment_cases as cases
from cutlass_study import experiment_frames, experiment_tables, experiments, label_check, stats
from cutlass_study.conditions import CACHE_CONDITIONS, INTERLEAVED, NAMES, OWN_ALONE, PEER, SERIAL
from cutlass_study.config import UsageError
from cutlass_study.drift import drift
from cutlass_study.experiment_command import ExperimentCall, chosen
from cutlass_study.experiments import Experiment, Name
from cutlass_study.prepare import Inputs
from cutlass_study.render import render_all
from cutlass_study.rounds import MIN_ROUNDS
from cutlass_study.space import CUBLAS, sm80
from cutlass_study.study import Measurement
from cutlass_study.study_data import load
from cutlass_study.sweep_options import SweepOptions
from tests.experiment_lab import BESIDE_C, HOPPER, NEW, OLD, PROBLEM, Lab, hasten, rows_of
from tests.fake_sessions import Behaviour, Script
from tests.scripts import run_here
from tests.sweep_records import DEVICE, samples


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    hasten(monkeypatch)
    return Lab(tmp_path)


def drawn(done: Measurement) -> set[str]:
    """Names of files, without suffix; nothing may have been left out."""
    assert done.report.left_out == ()
    return {path.name for path in (*done.report.tables, *done.report.figures)}


# --- which rows ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_no_two_rows_of_an_experiment_share_an_identity(name: Name) -> None:
    options = SweepOptions(("burst",), Inputs(), 1.0)
    items = rows_of(Experiment(name, PROBLEM, (OLD, NEW), options))
    counts = Counter(item.row.identity for item in items)
    assert set(counts.values()) == {1}


def test_alphabeta_reads_c_only_where_a_kernel_has_one() -> None:
    found = {
        (case.entry.config.family, case.entry.config.source_c, case.entry.problem.beta)
        for case in cases.alphabeta_cases((OLD, NEW), PROBLEM)
    }
    assert found == {
        ("cublas", None, 0), ("cublas", None, 1), ("sm80", None, 0), ("sm80", None, 1),
        ("sm90", "void", 0), ("sm90", "float", 0), ("sm90", "float", 1),
    }  # fmt: skip
    stages = {
        case.entry.config.stages
        for case in cases.alphabeta_cases((NEW,), PROBLEM)
        if case.entry.config.family == "sm90"
    }
    assert stages == {3}, "as many as fit beside a C, with and without one; 4 fit without"


def test_labels_have_their_repetitions_control() -> None:
    items = rows_of(
        Experiment("labels", PROBLEM, (), SweepOptions(("burst",), Inputs(), 1.0), 3, 2)
    )
    identities = [item.row.identity for item in items]
    controls = [one for one in identities if stats.is_control_of(one, one)]
    assert [one.condition for one in controls] == ["repetition 1", "repetition 2"]
    for control, first in zip(controls, (0, 4), strict=True):
        mine = [one for one in identities if stats.is_control_of(control, one)]
        assert mine == identities[first : first + 4]


# --- one experiment each -------------------------------------------------------------------


def test_inputs_are_measured_in_the_same_rounds_and_told_apart(lab: Lab) -> None:
    done = lab.run("inputs", Script({NEW.name: Behaviour(0.9)}), regimes=("burst", "sustained"))
    assert done.useful
    assert drawn(done) >= {"inputs.csv", "inputs.md", "inputs.png", "inputs.pdf"}
    data = lab.data("inputs")
    assert len(data.results) == 4 * 3 * 2
    assert set(data.results["distribution"]) == {"zeros", "integers", "uniform", "normal"}
    opened = [name for what, name in lab.worker.calls if what == "open"]
    assert len(opened) == 4, "all four inputs are open at once"
    names = [name for what, name in lab.worker.calls if what == "sample"]
    assert Counter(names[:12]) == Counter({CUBLAS.name: 4, OLD.name: 4, NEW.name: 4})
    frame = experiment_frames.inputs(data)
    own = frame[(frame["distribution"] == "zeros") & (frame["regime"] == "burst")]
    assert own["ratio_to_cublas"].to_list() == pytest.approx([1, 1, 1 / 0.9], rel=1e-5)
    assert frame["ratio_to_uniform"].to_list() == pytest.approx([1.0] * len(frame))
    assert frame["sm_clock_mhz"].notna().all()


def test_the_cost_of_beta_is_paired_with_the_same_kernels_beta_0(lab: Lab) -> None:
    sourced = replace(BESIDE_C, source_c="float")
    behaviours = {sourced.name: Behaviour(1.02), BESIDE_C.name: Behaviour(1.0)}
    done = lab.run("alphabeta", Script(behaviours, drift_per_sample=1e-4))
    assert drawn(done) >= {"alphabeta.csv", "alphabeta.png"}
    frame = experiment_frames.alphabeta(lab.data("alphabeta"))
    assert frame["step"].to_list().count("beta=1") == 3
    costs = dict(zip(zip(frame["family"], frame["step"], strict=True), frame["cost_percent"],
                     strict=True))  # fmt: skip
    assert costs["sm90", "C present, beta=0"] == pytest.approx(2, abs=0.2)
    assert costs["sm90", "beta=1"] == pytest.approx(0, abs=0.2), "against its own beta=0"
    assert (frame["cost_percent_low"] <= frame["cost_percent"]).all()
    added = frame[frame["step"] == "beta=1"].iloc[0]
    size = 2048 * 2048
    assert added["moved_bytes"] == 2 * 2 * size + 2 * 4 * size
    assert added["reference_moved_bytes"] == 2 * 2 * size + 4 * size, "C only where beta is not 0"


def test_cache_modes_reach_the_gpu_and_stay_apart(lab: Lab) -> None:
    modes = {"rotate": 1.3, "hot": 1.0, "flush": 1.8, "alone": 1.2}
    done = lab.run("cache", Script(modes=modes))
    assert drawn(done) >= {"cache.csv", "cache.pdf"}
    data = lab.data("cache")
    assert set(data.results["condition"]) == set(CACHE_CONDITIONS)
    assert len(data.results) == 3 * 3 * 4
    assert (data.results["ratio_to_cublas"] == 1).all(), "each to the control of its own condition"
    frame = experiment_frames.cache(data)
    for way, ratio in (("rotated", 1.3), ("flushed", 1.5)):
        assert frame.loc[frame["cold"] == way, "ratio"].to_list() == pytest.approx([ratio] * 9)
    sizes = dict(zip(frame["extent"], frame["working_set_bytes"], strict=True))
    assert [sizes[n] >> 20 for n in (1024, 2048, 4096)] == [8, 32, 128]  # M2, FP32 D


def test_a_folder_of_an_experiment_is_drawn_by_figures_too(lab: Lab, tmp_path: Path) -> None:
    lab.run("cache", Script())
    report = render_all(lab.data("cache"), tmp_path / "again")
    assert {path.stem for path in (*report.tables, *report.figures)} == {"cache"}
    unknown = replace(lab.data("cache"), summary={"experiment": "tea leaves"})
    assert "is not known" in str(render_all(unknown, tmp_path / "none").left_out)


# --- shuffled labels -----------------------------------------------------------------------


def test_the_whole_chain_calls_no_kernel_different_from_itself(lab: Lab) -> None:
    """20 repetitions from simulated samples to the table: at least 19 without a difference."""
    noisy = {CUBLAS.name: Behaviour(noise=0.01)}
    done = lab.run("labels", Script(noisy, drift_per_sample=1e-5), (), labels=8, repetitions=20)
    assert drawn(done) >= {"labels.csv", "labels.png"}
    data = lab.data("labels")
    assert len(data.results) == 20 * 9
    frame = experiment_frames.labels(data)
    assert frame["repetition"].to_list() == list(range(1, 21))
    assert set(frame["comparisons"]) == {8 + 28}
    assert (frame["significant"] == 0).sum() >= 19
    assert (frame["significant_to_control"] == 0).sum() >= 19
    assert (frame["declared_by_interval"] == 0).sum() >= 19
    assert frame["largest_effect"].max() > 0, "the samples do differ"
    assert "repetitions without a significant difference" in experiment_tables.labels(data).caption


def simulated_labels(seed: int, rounds_: int, slow: float = 1.0) -> label_check.LabelCheck:
    """A control and eight labels of one kernel: noise of 0.3 %, a common drift of 3 %."""
    random = np.random.default_rng(seed)
    common = 1 + 0.03 * np.sin(np.arange(rounds_) / 5)
    times = common * random.normal(1, 0.003, (9, rounds_))
    times[1] *= slow
    own = [samples(row) for row in times]
    return label_check.check(own[0], {str(label): own[label] for label in range(1, 9)})


def test_false_differences_are_no_more_than_5_percent_over_many_seeds() -> None:
    """Binomial(600, 0.05) is above 43 once in 100: seeds are many, none is chosen."""
    checks = [simulated_labels(seed, rounds_=24) for seed in range(600)]
    for count in ("significant", "significant_to_control", "declared"):
        assert sum(getattr(check, count) > 0 for check in checks) <= 43


def test_a_real_difference_is_found() -> None:
    found = simulated_labels(1, rounds_=40, slow=1.01)
    assert found.significant >= 8
    assert found.significant_to_control == 1


# --- control drift (M8) --------------------------------------------------------------------


def test_drift_beyond_the_controls_own_noise_is_told_from_noise() -> None:
    random = np.random.default_rng(0)
    noise = random.normal(1, 0.002, 60)
    steady, slower = drift(samples(noise)), drift(samples(noise * np.linspace(1, 1.15, 60)))
    assert steady is not None
    assert not steady.excessive
    assert slower is not None
    assert slower.excessive
    assert slower.change == pytest.approx(0.1, abs=0.02)
    assert drift(samples(noise[:8])) is None


def test_steady_controls_rarely_warn() -> None:
    found = [
        drift(samples(np.random.default_rng(seed).normal(1, 0.002, 36))) for seed in range(300)
    ]
    assert sum(one is not None and one.excessive for one in found) <= 3


# --- interleave and nvbench ----------------------------------------------------------------


def test_interleaving_is_timed_against_one_after_the_other(lab: Lab) -> None:
    done = lab.run("interleave", Script({NEW.name: Behaviour(2.0)}), (NEW,))
    assert drawn(done) >= {"interleave.csv", "interleave.png"}
    assert done.useful
    assert set(lab.data("interleave").results["launch_bound"]) == {""}
    frame = experiment_frames.interleave(lab.data("interleave"))
    assert frame["condition"].to_list() == [SERIAL, SERIAL, INTERLEAVED, INTERLEAVED]
    assert frame["wall_ms"].to_list() == pytest.approx([3.0] * 4)
    assert frame["time_ms"].to_list() == pytest.approx([1.0, 2.0, 3.0, 3.0])


@pytest.mark.parametrize(("fault", "outcome"), [("LAUNCH_FAILED", "launch_failed")])
def test_a_crash_while_interleaved_costs_the_interleaved_rows_only(
    lab: Lab, fault: str, outcome: str
) -> None:
    script = Script({NEW.name: Behaviour(fault=fault, at="interleave", at_count=3)})
    done = lab.run("interleave", script, (NEW,))
    results = lab.data("interleave").results
    by_condition = results.groupby("condition")["outcome"].agg(set).to_dict()
    assert by_condition == {SERIAL: {"ok"}, INTERLEAVED: {outcome}}
    assert "2 of 4 rows failed" in experiment_tables.interleave(lab.data("interleave")).caption
    assert done.outcomes["ok"] == 2


def test_a_wrong_d_after_interleaving_is_a_wrong_result(lab: Lab) -> None:
    lab.run("interleave", Script(wrong_interleaved="wrong at (0,0)"), (NEW,))
    results = lab.data("interleave").results
    wrong = results[results["outcome"] == "wrong_result"]
    assert set(wrong["condition"]) == {INTERLEAVED}
    assert wrong["time_ms"].isna().all()


def test_cuda_bench_and_we_are_compared_per_kernel(lab: Lab) -> None:
    done = lab.run("nvbench", Script(peer_factor={NEW.name: 1.02}), (OLD, NEW))
    assert drawn(done) >= {"nvbench.csv", "nvbench.png"}
    frame = experiment_frames.nvbench(lab.data("nvbench")).set_index("family")
    assert frame["agree"].to_dict() == {"cublas": "yes", "sm80": "yes", "sm90": "no"}
    assert frame.loc["sm90", "difference_percent"] == pytest.approx(100 * (1 / 1.02 - 1))
    conditions = set(lab.data("nvbench").results["condition"])
    assert conditions == {"", PEER, OWN_ALONE}
    assert len(lab.data("nvbench").samples.query("condition == ''")) >= MIN_ROUNDS


# --- what is chosen ------------------------------------------------------------------------


def test_the_best_kernels_are_those_on_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent.parent)
    recorded = load("paper/data/h200")
    assert recorded.device is not None
    own = chosen(ExperimentCall("inputs"), recorded.device)
    rows = recorded.results.query("regime == 'burst' and n == 8192 and outcome == 'ok'")
    for config in own.kernels:
        family = rows[(rows["family"] == config.family) & (rows["source_c"] != "float")]
        best = family.loc[family["ratio_to_cublas"].idxmax(), "name"]
        assert best.startswith(config.name + "__")
    assert [config.family for config in own.kernels] == ["sm80", "sm90"]


def test_without_records_there_is_a_fallback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert chosen(ExperimentCall("inputs"), DEVICE).kernels == (OLD,)
    families = [c.family for c in chosen(ExperimentCall("nvbench"), HOPPER).kernels]
    assert families == ["sm80", "sm80", "sm80", "sm90", "wmma"]
    name = sm80((128, 128, 64), 3).name
    named = chosen(ExperimentCall("inputs", config=f"{name}__8192x8192x8192_tn_f32"), DEVICE)
    assert [config.name for config in named.kernels] == [name]
    with pytest.raises(UsageError, match="in no preset"):
        chosen(ExperimentCall("inputs", config="sm80_1x1x1"), DEVICE)


def test_a_problem_that_does_not_fit_four_times_shrinks() -> None:
    small = replace(DEVICE, memory_bytes=6 << 30)
    assert experiments.fitted("inputs", 8192, small).n < 8192
    assert experiments.fitted("alphabeta", 8192, HOPPER).beta == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": "tea"}, "use one of: inputs"),
        ({"name": "cache", "n": 4096}, "sizes of its own"),
        ({"name": "inputs", "n": 100}, "multiple of 64"),
        ({"name": "nvbench", "regime": "sustained"}, "one way of measuring"),
        ({"name": "labels", "config": "x"}, "leave out --config"),
        ({"name": "labels", "labels": 1}, "2 to 64 labels"),
        ({"name": "inputs", "time_budget_s": 0}, "above 0"),
    ],
)
def test_wrong_options_are_said_in_one_sentence(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        ExperimentCall(**options)
    assert "\n" not in str(caught.value)


# --- the command line ----------------------------------------------------------------------

ROOT = Path(__file__).resolve().parent.parent


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    "arguments",
    [("scripts/experiment.py", "alphabeta"), ("scripts/sweep.py", "--interleave")],
)
def test_without_a_gpu_it_is_one_sentence_and_exit_3(arguments: tuple[str, ...]) -> None:
    done = command(*arguments)
    assert done.returncode == 3
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("experiment", "inputs", "--n", "100"), "multiple of 64"),
        (("sweep", "--interleave", "--tile", "128x128x32"), "no other axis"),
        (("sweep", "--interleave", "--preset", "quick"), "no preset"),
    ],
)
def test_wrong_usage_is_exit_2(arguments: tuple[str, ...], words: str) -> None:
    done = run_here(*arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_an_interruption_before_any_result_leaves_the_earlier_export(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    folder = lab.folder / "cache"
    folder.mkdir()
    monkeypatch.setattr(experiments, "measure_ceilings", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lab.run("cache", Script())
    assert list(folder.iterdir()) == []
