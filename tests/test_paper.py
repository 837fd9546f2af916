"""The paper: rebuilt from recorded data on a machine without a GPU, every number computed."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from cutlass_study.csv_files import file_to_replace
from cutlass_study.device_file import read_device_file
from cutlass_study.paper import TEMPLATE, build
from cutlass_study.paper_values import depth_changes, values
from cutlass_study.records import EnvironmentProblem
from cutlass_study.study_data import DataError, load
from cutlass_study.views import NothingToShow
from tests.scripts import run_here

PROJECT = Path(__file__).resolve().parent.parent
H200, STATIC = PROJECT / "paper/data/h200", PROJECT / "paper/data/static"


def card_of(folder: Path) -> str:
    return read_device_file(folder / "device.json")[1].card


CARD = card_of(H200)
AGAIN = next(run for run in (H200 / "repeats").iterdir() if card_of(run) == CARD)
LOADS_NO_CUDA = """
import sys
import cutlass_study.paper, cutlass_study.claims, cutlass_study.models, cutlass_study.render
bad = [n for n in sys.modules if n.split(".")[0] in ("cuda", "nvmath", "pynvml", "cutlass_library")]
bad += [n for n in sys.modules if n in ("cutlass_study.compile", "cutlass_study.driver",
                                        "cutlass_study.measure", "cutlass_study.worker")]
sys.exit(" ".join(bad) or 0)
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("paper") / "study.pdf"
    assert build(H200, PROJECT, out).pdf == out
    return out


def test_the_recorded_study_becomes_a_pdf(printed: Path) -> None:
    assert printed.read_bytes().startswith(b"%PDF-")
    assert printed.stat().st_size > 100_000
    assert [path.name for path in printed.parent.iterdir()] == [printed.name]


def test_the_template_holds_no_measured_number() -> None:
    """Decimals in the words could only be typed results; lengths and sizes have units."""
    text = (PROJECT / "paper" / TEMPLATE).read_text(encoding="utf-8")
    words = re.sub(r"//.*|#let .*|#set .*|#show .*", "", text)
    found = re.findall(r"(?<![\w.])\d+\.\d+(?!\w|em|cm|pt|fr)", words)
    assert set(found) <= {"3.0", "2.0"}


def test_values_are_those_of_the_records() -> None:
    data = load(H200)
    tree = values(data, load(STATIC))
    rows = data.results
    control = rows[
        (rows["name"] == "cublas_default__8192x8192x8192_tn_f32") & (rows["regime"] == "burst")
    ]
    assert tree["regimes"]["burst"]["cublas"]["tflops"] == f"{control['tflops'].iloc[0]:.1f}"
    assert tree["samples"] == str(len(data.samples))
    ctas = {(r["tile"], r["stages"]): r["ctas"] for r in tree["static"]["sm_89"]}
    assert [ctas["256×128×32", s] for s in "234"] == ["1", "1", "1"]
    assert [ctas["128×128×32", s] for s in "234"] == ["2", "2", "1"]


def test_the_fourth_stage_is_shown_at_each_width_of_each_run() -> None:
    other = next(path for path in (H200 / "repeats").iterdir() if path != AGAIN)
    data = load(H200)
    alone = depth_changes([data])
    assert (alone["heads"], alone["several_cards"]) == ([CARD], False)
    assert [(row["tile"], row["regime"], row["width"]) for row in alone["rows"][:4]] == [
        ("256×128×32", "burst", 1), ("256×128×32", "burst", 2), ("256×128×32", "burst", 4),
        ("256×128×32", "sustained", 1),
    ]  # fmt: skip
    assert alone["spans"] == []
    same = depth_changes([data, load(AGAIN)])
    assert same["spans"] == [], "one card"
    assert (same["heads"], same["several_cards"]) == (["A", "B"], False)
    burst = [row["changes"] for row in same["rows"] if row["regime"] == "burst"]
    assert all(None not in changes for changes in burst)
    assert all(row["changes"][1] is None for row in same["rows"] if row["regime"] == "sustained")
    several = depth_changes([data, load(other)])
    found = {(span["tile"], span["regime"]): span for span in several["spans"]}
    wide = next(row for row in several["rows"] if row["width"] == 4)
    span = found[wide["tile"], wide["regime"]]
    assert span["cards"] == 2
    assert {span["low"], span["high"]} == set(wide["changes"])


def test_records_of_compiling_alone_are_refused(tmp_path: Path) -> None:
    with pytest.raises((DataError, NothingToShow), match="nothing measured"):
        build(STATIC, PROJECT, tmp_path / "x.pdf")
    assert not list(tmp_path.iterdir())


def test_another_gpu_is_shown_beside_the_reference_always_alike(tmp_path: Path) -> None:
    folder = tmp_path / "other"
    runs = sorted(
        (H200 / "repeats").iterdir(), key=lambda run: (run / "results.csv").stat().st_size
    )
    shutil.copytree(runs[0], folder)
    shutil.copytree(runs[0], folder / "repeats" / runs[0].name)
    record = json.loads((folder / "device.json").read_text(encoding="utf-8"))
    record["device"]["name"] = "NVIDIA Test GPU"
    (folder / "device.json").write_text(json.dumps(record), encoding="utf-8")
    for kind in ("repeats", "experiments"):
        (folder / kind / "torn").mkdir(parents=True)
        (folder / kind / "torn" / "results.csv").write_text("x", encoding="utf-8")
    report = build(folder, PROJECT, tmp_path / "other.pdf")
    assert report.pdf.stat().st_size > 100_000
    again = tmp_path / "again.pdf"
    done = run_here("paper", "--data", str(folder), "--out", str(again))
    assert (done.returncode, done.stdout) == (0, f"{again}\n")
    assert again.read_bytes() == report.pdf.read_bytes()
    told = [f"left out: {name}: {why}" for name, why in report.left_out]
    assert done.stderr.splitlines() == told
    reasons = dict(report.left_out)
    assert "NVIDIA Test GPU" in reasons[f"repeat {runs[0].name}"]
    assert "NVIDIA H200" in reasons[f"repeat {runs[0].name}"]
    assert {"repeat torn", "experiment torn"} <= set(reasons)


def test_an_unwritable_pdf_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentProblem, match="can't be written"):
        build(H200, PROJECT, tmp_path / "file" / "x.pdf")


def test_what_no_pdf_may_replace_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name, kind in (("folder", "a folder"), ("pipe", "no ordinary file")):
        with pytest.raises(EnvironmentProblem, match=kind):
            build(H200, PROJECT, tmp_path / name)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_pdf_in_a_folder_that_cant_be_entered_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", refuse)
    with pytest.raises(EnvironmentProblem, match=r"\(Permission denied\); give another --out"):
        file_to_replace(tmp_path / "x.pdf", "--out")


def test_no_recorded_data_is_replaced_by_a_pdf(tmp_path: Path) -> None:
    shutil.copytree(AGAIN, tmp_path / "data")
    for name in ("results.csv", "samples.csv.gz", "device.json"):
        before = (tmp_path / "data" / name).read_bytes()
        with pytest.raises(EnvironmentProblem, match=r"holds no PDF and stays; .* --out"):
            build(tmp_path / "data", PROJECT, tmp_path / "data" / name)
        assert (tmp_path / "data" / name).read_bytes() == before


def test_a_study_whose_cublas_failed_becomes_a_pdf(tmp_path: Path) -> None:
    """And one that is written through a link, whose target it replaces."""
    folder = tmp_path / "data"
    shutil.copytree(AGAIN, folder)
    frame = pd.read_csv(folder / "results.csv", dtype=str, keep_default_na=False)
    control = (frame["family"] == "cublas") & (frame["variant"] == "default")
    frame.loc[control, "outcome"] = "launch_failed"
    measured = ["tflops", "time_ms", "time_iqr_ms", "host_time_ms"]
    frame.loc[control, measured] = ""
    frame.loc[:, ["ratio_to_cublas", "ratio_low", "ratio_high"]] = ""
    frame.to_csv(folder / "results.csv", index=False, lineterminator="\n")
    link = tmp_path / "link.pdf"
    link.symlink_to("target.pdf")
    build(folder, PROJECT, link)
    assert link.is_symlink()
    assert (tmp_path / "target.pdf").read_bytes().startswith(b"%PDF-")


def test_nothing_behind_the_paper_loads_cuda() -> None:
    run = subprocess.run(
        [sys.executable, "-c", LOADS_NO_CUDA], capture_output=True, text=True, check=False
    )
    assert run.stderr.strip() == ""
    assert run.returncode == 0
