"""Experiments in the paper and in the audit: a simulated GPU's exports, from folder to sentence."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import typst

from cutlass_study import (
    claims,
    experiment_figures,
    experiment_frames,
    experiment_report,
    experiment_values,
    paper,
)
from cutlass_study.conditions import NAMES
from cutlass_study.config import GemmProblem
from cutlass_study.experiments import DEFAULT_REGIMES, Name
from cutlass_study.records import DeviceRecord
from cutlass_study.regimes import PLANS
from cutlass_study.render import CAPTIONS, RenderReport
from cutlass_study.study_data import (
    DEVICE_FILE,
    RESULTS_FILE,
    SAMPLES_FILE,
    StudyData,
    load,
)
from cutlass_study.style import styled
from tests.experiment_lab import (
    H200_KERNELS,
    H200_SCRIPT,
    HOPPER,
    NEW,
    OLD,
    Lab,
    hasten,
    record_all,
)
from tests.fake_sessions import Behaviour, Script

PROJECT = Path(__file__).resolve().parent.parent
HEADINGS = {
    "inputs": "Input data",
    "alphabeta": "Scaling by α and β",
    "cache": "Caches",
    "labels": "Shuffled labels",
    "nvbench": "A second opinion: cuda.bench",
    "interleave": "Interleaved streams",
    "settle": "Length of a sustained sample",
}


def section_of(data_folder: Path, figures: Path) -> dict[str, Any]:
    """What the paper says of a data folder's experiments."""
    data = load(data_folder)
    return experiment_report.section(data, claims.experiments_of(data), figures)


@dataclass(frozen=True)
class Printed:
    """A study with every experiment, and the folder that its PDF was made from."""

    data: StudyData
    sources: Path
    pdf: Path

    def headings(self) -> list[str]:
        found = json.loads(typst.query(str(self.sources / paper.TEMPLATE), "heading"))
        return [_plain(one["body"]) for one in found]


def _plain(content: Any) -> str:
    """The words of a heading as typst describes it."""
    if "children" in content:
        return "".join(_plain(child) for child in content["children"])
    return str(content.get("text", " ")).replace("’", "'")


def bare(folder: Path) -> DeviceRecord:
    """Some rows of the recorded sweep, without its experiments; returns its device."""
    source = PROJECT / "paper/data/h200"
    folder.mkdir()
    shutil.copy(source / DEVICE_FILE, folder)
    results = pd.read_csv(source / RESULTS_FILE, dtype=str)
    results = results[(results["n"] == "8192") & results["family"].isin(["cublas", "wmma"])]
    results.to_csv(folder / RESULTS_FILE, index=False)
    samples = pd.read_csv(source / SAMPLES_FILE, dtype=str)
    samples[samples["name"].isin(results["name"])].to_csv(folder / SAMPLES_FILE, index=False)
    device = load(folder).device
    assert device
    return device


def only_captions(data: StudyData, folder: Path, *, forms: Sequence[str]) -> RenderReport:
    """Stands for drawing the sweep, which is tested elsewhere."""
    folder.mkdir()
    (folder / CAPTIONS).write_text('{"figures": {}, "tables": {}}')
    return RenderReport((), (), (), ())


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Printed:
    home = tmp_path_factory.mktemp("study")
    device = bare(home / "h200")
    sources = home / "sources"
    compile_pdf = typst.compile

    def keeping(path: str, *, output: str, root: str) -> None:
        shutil.copytree(root, sources)
        compile_pdf(path, output=output, root=root)

    with pytest.MonkeyPatch.context() as patch:
        record_all(home / "h200" / "experiments", device, patch)
        patch.setattr(paper, "render_all", only_captions)
        patch.setattr(paper.model_report, "section", lambda *_: None)
        patch.setattr(paper.roofline_report, "section", lambda *_: None)
        patch.setattr(paper.typst, "compile", keeping)
        pdf = paper.build(home / "h200", PROJECT, home / "study.pdf").pdf
    return Printed(load(home / "h200"), sources, pdf)


@pytest.fixture(scope="module")
def tree(printed: Printed) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((printed.sources / "values.json").read_text("utf-8"))
    found: dict[str, Any] = values["experiments"]
    return found


def experiment(printed: Printed, name: Name) -> StudyData:
    return load(printed.data.directory / "experiments" / name)


# --- the document --------------------------------------------------------------------------


def test_every_recorded_experiment_has_its_section(printed: Printed, tree: dict[str, Any]) -> None:
    assert printed.pdf.read_bytes().startswith(b"%PDF-")
    assert set(HEADINGS.values()) <= set(printed.headings())
    assert "Experiments left out" not in printed.headings()
    assert tree["absent"] == []
    for name in NAMES:
        assert (printed.sources / "figures" / tree[name]["figure"]["file"]).is_file()
        assert tree[name]["complete"]
        assert tree[name]["other_card"] is None
    assert len(tree["cards"]) == 1


def test_another_card_of_the_model_is_named(printed: Printed, tmp_path: Path) -> None:
    folder = tmp_path / "gpu"
    shutil.copytree(printed.data.directory, folder)
    device = folder / "experiments" / "labels" / DEVICE_FILE
    record = json.loads(device.read_text(encoding="utf-8"))
    own, record["device"]["uuid"] = record["device"]["uuid"], "GPU-12345678-and-more"
    device.write_text(json.dumps(record), encoding="utf-8")
    found = section_of(folder, tmp_path)
    assert found["labels"]["other_card"] == "GPU-12345678"
    assert found["inputs"]["other_card"] is None
    first, second = found["cards"]
    assert (first["records"][0], second["records"]) == ("the sweep", ["labels"])
    assert own.startswith(first["card"])


def test_what_was_not_measured_is_one_sentence_each(printed: Printed, tmp_path: Path) -> None:
    bare(tmp_path / "bare")
    found = section_of(tmp_path / "bare", tmp_path)
    assert [one["name"] for one in found["absent"]] == list(NAMES)
    assert {one["why"] for one in found["absent"]} == {"not measured on this GPU"}
    sources = tmp_path / "sources"
    shutil.copytree(printed.sources, sources)
    values = json.loads((sources / "values.json").read_text("utf-8"))
    (sources / "values.json").write_text(json.dumps(values | {"experiments": found}), "utf-8")
    headings = Printed(printed.data, sources, printed.pdf).headings()
    assert "Experiments left out" in headings
    assert not {*HEADINGS.values(), "Checks of the method"} & set(headings)


@pytest.mark.parametrize("name", paper.INCLUDED)
def test_no_template_holds_a_measured_number(name: str) -> None:
    """Decimals or units in the words could only be typed results; lengths and levels are not."""
    text = (PROJECT / "paper" / name).read_text(encoding="utf-8")
    words = re.sub(r"//.*|#let .*|#set .*|#show .*", "", text).replace("95 %", "")
    assert re.findall(r"(?<![\w.])\d+\.\d+(?!\w|em|cm|pt|fr)", words) == []
    assert re.findall(r"\d+ (?:%|TFLOPS|MHz|W|ms|MB)\b", words) == []


def test_an_experiment_without_a_measured_row_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hasten(monkeypatch, draw=False)
    device = bare(tmp_path / "h200")
    wrong = {config.name: Behaviour(wrong="wrong at (0,0)") for config in H200_KERNELS}
    Lab(tmp_path / "h200" / "experiments", device).run("cache", Script(wrong))
    found = section_of(tmp_path / "h200", tmp_path)
    assert found["cache"] is None
    why = {one["name"]: one["why"] for one in found["absent"]}["cache"]
    assert why == "nothing to show: no row of this experiment was measured"


def test_an_experiment_that_cant_stand_beside_the_sweep_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another GPU's, a torn one and one without its device.json cost only themselves."""
    hasten(monkeypatch, draw=False)
    device, folder = bare(tmp_path / "h200"), tmp_path / "h200" / "experiments"
    Lab(folder, device).run("cache", Script())
    Lab(folder, replace(HOPPER, name="NVIDIA H100 NVL")).run("interleave", Script(), (NEW,))
    for name in ("false", "torn", "twice", "unnamed"):
        shutil.copytree(folder / "cache", folder / name)
    record = (folder / "false" / DEVICE_FILE).read_text(encoding="utf-8")
    named = record.replace('"experiment": "cache"', '"experiment": "inputs"')
    (folder / "false" / DEVICE_FILE).write_text(named, encoding="utf-8")
    (folder / "torn" / DEVICE_FILE).write_text("{", encoding="utf-8")
    (folder / "unnamed" / DEVICE_FILE).unlink()
    found = claims.experiments_of(load(tmp_path / "h200"))
    assert [one.name for one in found.folders] == ["cache"]
    reasons = dict(found.left_out)
    left = ("false", "interleave", "torn", "twice", "unnamed")
    assert list(reasons) == [f"experiment {name}" for name in left]
    assert "holds the experiment cache, as" in reasons["experiment twice"]
    assert "rows under conditions" in reasons["experiment false"]
    assert "one folder per device" in reasons["experiment interleave"]
    assert DEVICE_FILE in reasons["experiment torn"]
    assert f"{DEVICE_FILE}' is missing" in reasons["experiment unnamed"]
    command = [sys.executable, str(PROJECT / "scripts/audit.py"), "--data", str(tmp_path / "h200")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    told = [f"left out: {name}: {why}" for name, why in found.left_out]
    assert done.stderr.splitlines() == told


# --- its numbers ---------------------------------------------------------------------------


def test_inputs_are_told_per_regime_and_kernel(printed: Printed, tree: dict[str, Any]) -> None:
    frame = experiment_frames.inputs(experiment(printed, "inputs"))
    assert [one["name"] for one in tree["inputs"]["regimes"]] == ["burst", "sustained"]
    for regime in tree["inputs"]["regimes"]:
        assert len(regime["kernels"]) == 3
        for kernel in regime["kernels"]:
            own = frame[(frame["regime"] == regime["name"]) & (frame["label"] == kernel["label"])]
            by_input = own.set_index("distribution")
            assert [one["inputs"] for one in kernel["others"]] == ["zeros", "integers", "normal"]
            for one in kernel["others"]:
                ratio = by_input.loc[one["inputs"], "ratio_to_uniform"]
                assert one["change"] == f"{100 * (ratio - 1):+.1f} %".replace("-", "−")
                assert one["interval"].count("%") == 2
            assert kernel["uniform"]["change"] is None
            assert kernel["uniform"]["clock"] == "2500"
            assert float(kernel["others"][0]["change"].split()[0]) == pytest.approx(11.1, abs=0.5)
    cublas = tree["inputs"]["regimes"][0]["kernels"][0]
    assert {one["ratio"] for one in cublas["rows"]} == {None}, "the control has no ratio to itself"


def test_captions_describe_what_the_figures_show(printed: Printed, tree: dict[str, Any]) -> None:
    with styled():
        drawn = experiment_figures.figure(experiment(printed, "inputs"))
    panels = [axes for axes in drawn.figure.axes if axes.axison]
    titles = [axes.get_ylabel() for axes in panels if axes.yaxis.label.get_visible()]
    assert titles == ["TFLOPS", "SM clock [MHz]", "power [W]"]
    assert len(panels) == 5, "bursts have no power"
    assert "not drawn for bursts" in tree["inputs"]["figure"]["caption"]
    for name, column in (("inputs", "Ratio to uniform"), ("alphabeta", "Bytes")):
        assert column not in tree[name]["figure"]["caption"]


def test_scaling_has_costs_intervals_and_bytes(printed: Printed, tree: dict[str, Any]) -> None:
    rows = [row for row in tree["alphabeta"]["rows"] if row["regime"] == "burst"]
    assert [row["added"] for row in rows].count(True) == 3
    assert len(rows) == 4, "only sm90 has a kernel without a C"
    added = next(row for row in rows if row["label"] == "cuBLAS")
    assert float(added["cost"].split()[0]) == pytest.approx(2.0, abs=0.3)
    assert added["interval"].startswith("+1.")
    size = 8192 * 8192
    assert (added["moved"], added["reference_moved"]) == (
        f"{(4 * size + 8 * size) / 1e6:.0f}", f"{(4 * size + 4 * size) / 1e6:.0f}",
    )  # fmt: skip
    assert tree["alphabeta"]["extra"] == "268 MB"
    assert tree["alphabeta"]["bandwidth"] is None, "the simulated card has no measured peaks"
    own = experiment(printed, "alphabeta")
    known = replace(
        own, summary=own.summary | {"ceilings": [{"name": "dram_read", "value": 4000.0}]}
    )
    told = experiment_values.alphabeta(known)
    shares = {row["label"]: row["read_share"] for row in told["rows"] if row["added"]}
    assert shares["cuBLAS"] == "+4.2 %", "268 MB at 4000 GB/s are 0.067 ms of 1.6 ms"
    assert [row["read_share"] for row in told["rows"] if not row["added"]] == [None, None]


def test_the_checks_of_the_method_are_counted(tree: dict[str, Any]) -> None:
    (labels,) = tree["labels"]["regimes"]
    assert (labels["repetitions"], labels["comparisons"]) == (20, "36")
    assert labels["false"] <= 1
    assert labels["kept"]
    assert labels["share"] == f"{100 * labels['false'] / 20:.0f} %"
    assert tree["labels"]["level"] == "5 %"
    assert (tree["nvbench"]["agree"], tree["nvbench"]["kernels"]) == (3, 4)
    assert tree["nvbench"]["differences"] == "−1.96 to +0.00 %"
    assert tree["interleave"]["change"] == "0.0 %"
    assert tree["interleave"]["failed"] == []
    assert tree["interleave"]["timed"] == 2 * tree["interleave"]["rounds"], "two runs a round"
    assert tree["interleave"]["tied"]
    ways = {way["name"]: way for way in tree["cache"]["ways"]}
    assert ways["flushed"]["range"].startswith("+5.")
    assert ways["rotated"]["range"].startswith("+3.")
    assert [size["bytes"] for size in tree["cache"]["sizes"]] == ["8 MB", "34 MB", "134 MB"]


def test_too_many_false_positives_are_said(
    printed: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = experiment_frames.labels(experiment(printed, "labels"))
    monkeypatch.setattr(experiment_frames, "labels", lambda data: frame.assign(significant=1))
    (told,) = experiment_values.labels(printed.data)["regimes"]
    assert (told["false"], told["share"], told["interval"]) == (20, "100 %", "83 to 100 %")
    assert not told["kept"]


def test_settling_tells_hunting_kernels_from_steady_ones(tree: dict[str, Any]) -> None:
    own = tree["settle"]
    assert (own["limited"]["count"], own["free"]["count"]) == (4, 2)
    assert own["limited"]["power"] == "696 to 699 W"
    assert own["free"]["power"] == "420 to 560 W"
    assert float(own["free"]["chunks"].split()[0]) < 0.1
    plan = PLANS["sustained"]
    assert own["used"]["untimed"] == f"{plan.untimed_ms:.0f}"
    assert own["used"]["timed"] == f"{plan.timed_ms:.0f}"
    assert [plan["in_use"] for plan in own["plans"]].count(True) == 1
    assert own["used"] in own["plans"]


def test_a_limiter_that_acts_far_below_the_power_limit_is_told() -> None:
    data = load(PROJECT / "paper/data/h200/experiments/inputs")
    low = experiment_values.inputs(data)["capped_low"]
    assert low["inputs"] == "zeros"
    assert float(low["power"]) < 0.9 * float(low["limit"])
    assert 2 * int(low["limited"]) > int(low["samples"])
    silent = replace(data, samples=data.samples.assign(throttle_reasons=""))
    assert experiment_values.inputs(silent)["capped_low"] is None


# --- the audit -----------------------------------------------------------------------------

JUDGED = ("input_data", "input_data_zeros", "scaling_cost")


def judged(data: StudyData) -> dict[str, claims.Verdict]:
    found = claims.audit(data, None, claims.load_claims(PROJECT / "paper/claims.toml"))
    return {one.id.removeprefix("hopper."): one for one in found}


def test_the_audit_judges_inputs_and_scaling_from_such_exports(
    printed: Printed, tmp_path: Path
) -> None:
    found = judged(printed.data)
    assert {found[name].verdict for name in JUDGED} == {"reproduced"}
    assert found["input_data_size"].verdict == "not_testable", "speaks of a GPU it does not name"
    assert "cuBLAS (integers)" in found["input_data"].evidence
    assert "(beta=0)" in found["scaling_cost"].evidence
    assert "(beta=1)" in found["scaling_cost"].evidence
    bare(tmp_path / "bare")
    without = judged(load(tmp_path / "bare"))
    for name in JUDGED:
        assert without[name].verdict == "not_testable"
        assert "experiments/" in without[name].reason


def test_the_verdict_follows_the_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A card on which integers and zeros are slower, and reading C makes a kernel faster."""
    hasten(monkeypatch, draw=False)
    device = bare(tmp_path / "h200")
    lab = Lab(tmp_path / "h200" / "experiments", device, GemmProblem(8192, 8192, 8192))
    kernels = {name: replace(one, noise=0.0005) for name, one in H200_SCRIPT.kernels.items()}
    slow = {"integers": 1.04, "zeros": 1.05}
    script = replace(H200_SCRIPT, kernels=kernels, inputs=slow, beta_factor=0.98)
    for name in ("inputs", "alphabeta"):
        lab.run(name, script, (OLD, NEW), DEFAULT_REGIMES[name])
    found = judged(load(tmp_path / "h200"))
    assert {name: found[name].verdict for name in JUDGED} == dict.fromkeys(JUDGED, "contradicted")
