"""The `settle` experiment: in which order kernels run, and what its frames make of the chunks."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cutlass_study import experiment_tables, settle_frames, settling
from cutlass_study.conditions import SETTLING
from cutlass_study.config import UsageError
from cutlass_study.experiment_command import ExperimentCall, chosen
from cutlass_study.experiments import LEAST_VISITS
from cutlass_study.regimes import PLANS
from cutlass_study.render import render_all
from cutlass_study.space import CUBLAS, sm80, wmma
from cutlass_study.study_data import StudyData
from tests.experiment_lab import H200_SCRIPT, HOPPER, OLD, Lab, hasten
from tests.fake_sessions import Behaviour, Script

KERNELS = (OLD, wmma(3))
PLAN = PLANS["sustained"]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    hasten(monkeypatch, draw=False)
    return Lab(tmp_path)


def settled(lab: Lab, script: Script, visits: int = 6) -> StudyData:
    budget_s = visits * settling.SPAN_S + 0.1
    lab.run("settle", script, KERNELS, ("sustained",), budget_s)
    return lab.data("settle")


# --- which kernels, in which order ---------------------------------------------------------


def test_kernels_from_most_to_least_power(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    own = chosen(ExperimentCall("settle"), HOPPER)
    tiles = (sm80((256, 128, 32), 3), sm80((128, 128, 32), 3))
    assert own.kernels == (OLD, *tiles, wmma(1), wmma(3))
    assert own.options.regimes == ("sustained",)
    assert {case.condition for case in own.cases()} == {SETTLING}
    assert own.cases()[0].entry.config == CUBLAS
    assert len(own.cases()) * own.options.budget_s == 60, "a minute of GPU time"


def test_there_is_only_one_regime() -> None:
    ExperimentCall("settle", regime="sustained")
    with pytest.raises(UsageError, match="one way of measuring"):
        ExperimentCall("settle", regime="burst")


def test_no_kernel_follows_itself_and_every_visit_has_all(lab: Lab) -> None:
    data = settled(lab, Script())
    spans = [name for what, name in lab.worker.calls if what == "span"]
    assert len(spans) == 1 + 6 * 3, "the first span, after an idle card, is not kept"
    assert all(before != after for before, after in pairwise(spans))
    assert len({tuple(spans[1 + 3 * v : 4 + 3 * v]) for v in range(6)}) > 1, "order changes"
    found = settle_frames.chunks(data)
    assert set(Counter(zip(found["label"], found["visit"], strict=True)).values()) == {94}
    assert sorted(found["visit"].unique()) == list(range(6))
    assert set(data.results["stop_reason"]) == {"sustained: rounds"}
    assert set(data.results["regime"]) == {"sustained"}


def test_a_short_budget_still_gives_two_visits(lab: Lab) -> None:
    lab.run("settle", Script(), KERNELS, ("sustained",), 0.1)
    found = settle_frames.chunks(lab.data("settle"))
    assert found["visit"].nunique() == LEAST_VISITS


def test_a_crash_in_a_span_costs_that_kernel_only(lab: Lab) -> None:
    script = Script({OLD.name: Behaviour(fault="LAUNCH_FAILED", at="span", at_count=3)})
    data = settled(lab, script)
    outcomes = dict(zip(data.results["family"], data.results["outcome"], strict=True))
    assert outcomes == {"cublas": "ok", "sm80": "launch_failed", "wmma": "ok"}
    assert len(settle_frames.kernels(data)) == 2


def test_a_problem_that_is_lost_meanwhile_is_recorded(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script(open_faults={lab.problem: "OUT_OF_MEMORY"})
    done = lab.run("settle", script, KERNELS, ("sustained",), 1.0)
    assert not done.useful
    assert set(lab.data("settle").results["outcome"]) == {"launch_failed"}
    assert any("could not be opened" in message for message in lab.reporter.messages)


# --- frames --------------------------------------------------------------------------------


def test_where_a_chunk_begins_follows_from_the_chunks_before(lab: Lab) -> None:
    found = settle_frames.chunks(settled(lab, Script()))
    one = found[(found["label"] == "cuBLAS") & (found["visit"] == 2)]
    assert one["offset_ms"].to_list() == pytest.approx(np.arange(94) * 25.0)
    assert one["span_ms"].unique() == pytest.approx([94 * 25.0])
    assert found["deviation"].abs().max() == pytest.approx(0, abs=1e-6)


def test_only_kernels_at_the_power_limit_hunt(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cutlass_study.gpu_client.GpuClient.with_telemetry", lambda _, t: t.sample)
    data = settled(lab, H200_SCRIPT)
    kernels = settle_frames.kernels(data).set_index("label")
    assert kernels["limited"].to_list() == ["yes", "yes", "no"]
    assert kernels["power_w"].is_monotonic_decreasing
    hunting, steady = kernels[kernels["limited"] == "yes"], kernels[kernels["limited"] == "no"]
    assert hunting["chunk_spread_percent"].min() > 10 * steady["chunk_spread_percent"].max()
    assert hunting["swing_percent"].min() > 10 * steady["swing_percent"].max()


def test_without_nvml_nobody_says_who_is_limited(lab: Lab) -> None:
    data = settled(lab, Script())
    assert set(settle_frames.kernels(data)["limited"]) == {""}
    report = render_all(data, lab.folder / "report")
    assert report.left_out == (), "drawn without power, and without any spread"
    names = {path.name for path in (*report.tables, *report.figures)}
    assert names >= {"settle.png", "settle.pdf", "settle.csv", "settle.typ"}


def test_the_spread_of_a_plan_is_that_of_its_blocks(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Visits are slower by 1, 2 and 3 % in the first half second only."""
    data = settled(lab, Script(), visits=3)
    found = settle_frames.chunks(data)
    early = found["offset_ms"] < 500
    found.loc[early, "time_ms"] *= 1 + 0.01 * (found.loc[early, "visit"] + 1)
    found["length_ms"] = found["time_ms"] * found["launches"]
    monkeypatch.setattr(settle_frames, "chunks", lambda data: found)
    plans = settle_frames.plans(data, (0.0, 500.0), (500.0, 1000.0))
    by_plan = plans.set_index(["untimed_ms", "timed_ms"])
    early_plan = by_plan.loc[(0.0, 500.0)]
    assert early_plan["spread_percent"] == pytest.approx(100 * 0.01 / 1.02)
    assert early_plan["bias_percent"] == pytest.approx(2)
    expected = 1.96 * math.sqrt(math.pi / 2) * early_plan["spread_percent"] / math.sqrt(20)
    assert early_plan["half_width_percent"] == pytest.approx(expected)
    assert by_plan.loc[(0.0, 1000.0), "bias_percent"] == pytest.approx(1)
    assert by_plan.loc[(500.0, 500.0), "spread_percent"] == pytest.approx(0)
    assert by_plan.loc[(500.0, 1000.0), "half_width_percent"] == pytest.approx(0)


def test_the_plan_in_use_is_among_the_plans_and_marked(lab: Lab) -> None:
    data = settled(lab, Script({CUBLAS.name: Behaviour(1.0, hunting=0.02)}))
    plans = settle_frames.plans(data, (50.0,), (200.0, 1600.0, 5000.0))
    assert plans[["untimed_ms", "timed_ms"]].to_numpy().tolist() == [
        [50.0, 200.0], [50.0, 1600.0], [PLAN.untimed_ms, PLAN.timed_ms],
    ]  # fmt: skip
    assert plans["in_use"].to_list() == ["", "", "yes"]
    table = experiment_tables.settle(data)
    assert table.frame["in_use"].to_list().count("yes") == 1
    assert "3 kernels ran back to back, each for 2.4 s" in table.caption
    assert "6 times each, in chunks of 25 ms" in table.caption


def test_too_few_samples_in_ten_seconds_give_no_interval(lab: Lab) -> None:
    plans = settle_frames.plans(settled(lab, Script()), (50.0, 400.0), (1600.0,))
    few = plans[plans["samples_in_10_s"] < 6]
    assert few["half_width_percent"].isna().all()
    assert len(few) == 1
    assert plans.loc[plans["samples_in_10_s"] >= 6, "half_width_percent"].notna().all()


def test_the_course_is_the_mean_over_visits(lab: Lab) -> None:
    data = settled(lab, Script({CUBLAS.name: Behaviour(1.0, hunting=0.02)}))
    course = settle_frames.course(data)
    own = course[course["label"] == "cuBLAS"]
    assert own["since_ms"].to_list() == pd.Series(range(25, 2350, 50)).astype(float).to_list()
    assert own["deviation_percent"].abs().max() > 0.5
    others = course[course["label"] != "cuBLAS"]
    assert others["deviation_percent"].abs().max() < 1e-6
