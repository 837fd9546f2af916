from __future__ import annotations

import errno
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from cutlass_study.config import GemmConfig
from cutlass_study.published import export, write_static
from cutlass_study.records import (
    RESULT_COLUMNS,
    SAMPLE_COLUMNS,
    EnvironmentProblem,
    RowOutcome,
)
from cutlass_study.results import ResultsStore
from cutlass_study.stats import derive
from cutlass_study.study_data import DataError, StudyData, load, readable
from tests.sweep_records import (
    CUBLAS,
    DEVICE,
    PROBLEM,
    RESOURCES,
    fill,
    identity,
    ok,
    samples,
    sm80,
)

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new folder" / "results.sqlite"


@pytest.fixture
def folder(path: Path, tmp_path: Path) -> Path:
    with ResultsStore.open(path, DEVICE, resume=False, arguments=("--seed", "1"), seed=1) as store:
        fill(store)
        export(store, tmp_path / "gpu", planned=5, peak_flop_per_clk_sm=512)
    return tmp_path / "gpu"


def row_of(data: StudyData, config: GemmConfig, regime: str) -> pd.Series:
    rows = data.results
    rows = rows[(rows["name"] == identity(config).name) & (rows["regime"] == regime)]
    assert len(rows) == 1
    return rows.iloc[0]


def test_published_rows(folder: Path) -> None:
    data = load(folder)
    assert tuple(data.results.columns) == RESULT_COLUMNS
    assert tuple(data.samples.columns) == SAMPLE_COLUMNS
    assert (data.device, data.complete, data.name) == (DEVICE, True, "gpu")
    assert len(data.results) == 3 * 2 + 2
    assert len(data.samples) == 3 * 20 + 3
    control = row_of(data, CUBLAS, "burst")
    assert (control.ratio_to_cublas, control.ratio_low, control.ratio_high) == (1, 1, 1)
    row = row_of(data, sm80(3), "sustained")
    assert row.tflops == pytest.approx(PROBLEM.flop / row.time_ms / 1e9, rel=1e-5)
    assert row.ratio_low < row.ratio_to_cublas < row.ratio_high
    assert (row.samples, row.registers, row.limiter) == (8, 226, "registers + shared memory")
    assert row.peak_share == pytest.approx(row.tflops / 30.72, rel=1e-5)


def test_rows_without_a_measurement_have_no_numbers(folder: Path) -> None:
    data = load(folder)
    infeasible = row_of(data, sm80(6), "")
    assert (infeasible.outcome, infeasible.reason) == (
        "infeasible",
        "needs 147456 B, limit 101376 B",
    )
    throttled = row_of(data, sm80(2), "burst")
    assert (throttled.outcome, throttled.reason) == (
        "no_valid_samples",
        "no valid samples (throttled: 3 of 3)",
    )
    for row in (infeasible, throttled):
        assert pd.isna(row[["time_ms", "tflops", "ratio_to_cublas", "samples"]]).all()
    text = (folder / "results.csv").read_text().lower()
    assert "nan" not in text
    assert not text.startswith("#")


def test_published_columns_follow_from_published_samples(folder: Path) -> None:
    data = load(folder)
    for regime in ("burst", "sustained"):
        own = data.samples_of(identity(sm80(4)).name, regime)
        control = data.samples_of(identity(CUBLAS).name, regime)
        derived = derive(PROBLEM, own, control, sm_count=24, peak_flop_per_clk_sm=512)
        row = row_of(data, sm80(4), regime)
        assert derived is not None
        for field in fields(derived):
            value = getattr(derived, field.name)
            if isinstance(value, bool):
                assert row[field.name] == str(value).lower()
            else:
                assert row[field.name] == pytest.approx(value, rel=1e-5), field.name


def test_device_json(folder: Path) -> None:
    summary = json.loads((folder / "device.json").read_text())
    assert summary["device"]["name"] == DEVICE.name
    assert summary["builds"] == [
        {
            "arch": "sm_89",
            "toolchain": "nvrtc 13.0.88",
            "flags": "-DNDEBUG",
            "cutlass_version": "4.2.0",
            "kernels": 1,
        }
    ]
    assert summary["runs"][0]["arguments"] == ["--seed", "1"]
    assert (summary["planned"], summary["recorded"], summary["complete"]) == (5, 5, True)


def test_exporting_twice_gives_the_same_bytes(folder: Path, path: Path, tmp_path: Path) -> None:
    with ResultsStore.read(path) as store:
        export(store, tmp_path / "again", planned=5, peak_flop_per_clk_sm=512)
    for file in folder.iterdir():
        assert file.read_bytes() == (tmp_path / "again" / file.name).read_bytes()
    text = gzip.decompress((folder / "samples.csv.gz").read_bytes()).decode()
    assert text.count("\n") == 64
    assert "\r" not in text


def test_verified_but_never_sampled_is_no_result(path: Path, tmp_path: Path) -> None:
    with ResultsStore.open(path, DEVICE, resume=False) as store:
        store.add_outcome(ok(identity(CUBLAS)))
        export(store, tmp_path / "gpu", planned=2)
    data = load(tmp_path / "gpu")
    assert row_of(data, CUBLAS, "").outcome == "no_valid_samples"
    assert not data.complete


def test_exports_never_overwrite_foreign_records(folder: Path, tmp_path: Path) -> None:
    other = replace(DEVICE, name="NVIDIA H200", uuid="GPU-2")
    write_static([ok(identity(sm80()))], tmp_path / "static")
    with ResultsStore.open(tmp_path / "other.sqlite", other, resume=False) as store:
        store.add_outcome(ok(identity(CUBLAS)))
        with pytest.raises(EnvironmentProblem, match=r"RTX 4060.*not of NVIDIA H200"):
            export(store, folder, planned=1)
        with pytest.raises(EnvironmentProblem, match="static"):
            export(store, tmp_path / "static", planned=1)
    with pytest.raises(EnvironmentProblem, match="measured"):
        write_static([], folder)
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentProblem, match="can't be written"):
        write_static([], tmp_path / "file")


def test_static_folder(tmp_path: Path) -> None:
    rows = [
        ok(identity(sm80(3), arch=arch), resources=replace(RESOURCES, registers=registers))
        for arch, registers in (("sm_89", 226), ("sm_90a", 228))
    ]
    write_static([*rows, RowOutcome(identity(sm80(6)), "infeasible", "too big")], tmp_path)
    data = load(tmp_path)
    assert data.device is None
    assert len(data.samples) == 0
    assert tuple(data.samples.columns) == SAMPLE_COLUMNS
    assert list(data.results["arch"]) == ["sm_89", "sm_89", "sm_90a"]
    assert data.results["time_ms"].isna().all()
    assert data.results["registers"].dropna().tolist() == [226, 228]


def edit_results(change: Callable[[str], str]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        file = folder / "results.csv"
        file.write_text(change(file.read_text()))

    return apply


def edit_frame(name: str, change: Callable[[pd.DataFrame], pd.DataFrame]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        frame = pd.read_csv(folder / name, dtype=str, keep_default_na=False)
        change(frame).to_csv(folder / name, index=False)

    return apply


def with_first(column: str, value: str) -> Callable[[pd.DataFrame], pd.DataFrame]:
    def apply(frame: pd.DataFrame) -> pd.DataFrame:
        frame.loc[0, column] = value
        return frame

    return apply


def cut(name: str) -> Callable[[Path], None]:
    return lambda folder: os.truncate(folder / name, (folder / name).stat().st_size * 2 // 3)


def with_summary(**changes: Any) -> Callable[[Path], None]:
    """Another value in device.json; `device` changes parts of the device."""

    def apply(folder: Path) -> None:
        file = folder / "device.json"
        summary = json.loads(file.read_text())
        device = summary["device"] | changes.get("device", {})
        file.write_text(json.dumps(summary | changes | {"device": device}))

    return apply


another_device = with_summary(device={"name": "NVIDIA H200", "arch": "sm_90a"})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "results.csv").unlink(), "results.csv' is missing"),
        (lambda folder: (folder / "device.json").unlink(), "device.json' is missing"),
        (lambda folder: (folder / "samples.csv.gz").unlink(), "samples.csv.gz' is missing"),
        (lambda folder: (folder / "results.csv").write_text(""), "is empty"),
        (lambda folder: (folder / "device.json").write_text("{"), "no device record"),
        (edit_results(lambda text: text.replace("tflops", "speed", 1)), "columns tflops;"),
        (edit_results(lambda text: "x"), "columns name, family, arch, m, n and 48 more; export"),
        (edit_results(lambda text: text[:-60]), "cut short"),
        (cut("samples.csv.gz"), "cut short"),
        (edit_frame("results.csv", with_first("time_ms", "nan")), "row 2 of .* time_ms 'nan'"),
        (edit_frame("results.csv", with_first("time_ms", "-1")), "can't be negative"),
        (edit_frame("results.csv", with_first("time_ms", "")), "without a time"),
        (edit_frame("results.csv", with_first("time_ms", "0")), "without a time"),
        (edit_frame("results.csv", with_first("outcome", "fine")), "outcome 'fine'"),
        (edit_frame("results.csv", with_first("m", "8x")), "m '8x', no number"),
        (edit_frame("results.csv", with_first("arch", "sm_90a")), "two devices"),
        (edit_frame("samples.csv.gz", with_first("time_ms", "NaN")), "time_ms 'NaN'"),
        (edit_frame("samples.csv.gz", with_first("time_ms", "0")), "no time above 0"),
        (edit_frame("samples.csv.gz", with_first("time_ms", "-2")), "can't be negative"),
        (edit_frame("results.csv", lambda f: pd.concat([f, f])), "twice: results of two devices"),
        (another_device, "two devices: sm_89, sm_90a"),
        (edit_results(lambda text: text.replace("tflops", "speed", 1)), "sweep.py"),
        (edit_results(lambda text: text.replace("host_time_ms", "tflops", 1)), "lacks the columns"),
        (edit_results(lambda text: text.replace("\n", ",tflops\n", 1)), "columns tflops twice"),
        (edit_results(lambda text: text.rstrip("\n") + ",7\n"), "fields instead of"),
        (edit_frame("results.csv", with_first("tflops", "1")), "row 2 of .* 1 TFLOPS, but"),
        (edit_frame("results.csv", with_first("time_ms", "7")), "TFLOPS, but its time"),
        (edit_frame("results.csv", with_first("name", "wmma")), "row 2 of .* is named wmma, but"),
        (edit_frame("results.csv", with_first("layout", "tt")), "row 2 of .* no configuration"),
        (edit_frame("results.csv", with_first("family", "sm70")), "family 'sm70' is not known"),
        (edit_frame("results.csv", with_first("alpha", "")), "row 2 of .* no configuration"),
        (edit_frame("samples.csv.gz", with_first("name", "wmma")), "row 2 .* is of wmma, which"),
        (edit_frame("results.csv", with_first("m", "9" * 5000)), "m '9{59}…', no number"),
        (edit_frame("results.csv", with_first("registers", str(2**63))), "measurement gives that"),
        (edit_frame("results.csv", with_first("sm_clock_mhz", "-1")), "can't be negative"),
        (edit_frame("results.csv", with_first("sm_clock_mhz", "0")), "can't be 0"),
        (edit_frame("results.csv", with_first("ratio_to_cublas", "0")), "can't be 0"),
        (edit_frame("results.csv", with_first("occupancy", "7")), "can't be above 1"),
        (edit_frame("results.csv", with_first("ratio_to_cublas", "inf")), "measurement gives that"),
        (edit_frame("samples.csv.gz", with_first("power_w", "-1")), "can't be negative"),
        (edit_frame("samples.csv.gz", with_first("round", "-1")), "can't be negative"),
        (edit_frame("samples.csv.gz", with_first("launches", "0")), "launches 0"),
        (lambda folder: (folder / "device.json").write_text("[" * 100_000), "RecursionError"),
        (lambda folder: (folder / "device.json").write_text("[1]"), "a JSON object is wanted"),
        (with_summary(schema_version=99), "has schema version 99, this toolkit reads 1"),
        (with_summary(device={"name": None}), "device: name is None"),
        (with_summary(device={"sm_count": "many"}), "device: sm_count is 'many'"),
        (with_summary(device={"sm_count": 0}), "sm_count is not above 0"),
        (with_summary(device={"l2_bytes": 0}), "l2_bytes is not above 0"),
        (
            with_summary(runs=[{"started_at": "2026-01-01T00:00:00", "arguments": []}]),
            "started_at has no time zone",
        ),
        (with_summary(device={"watchdog": 1}), "device: watchdog is 1"),
        (with_summary(device={"colour": "green"}), "unexpected keyword argument 'colour'"),
        (with_summary(device={"max_sm_clock_mhz": float("nan")}), "max_sm_clock_mhz is nan"),
        (with_summary(ceilings="x"), "ceilings: a list is wanted"),
        (with_summary(ceilings=[{"name": "dram_copy"}]), "ceilings: value is missing"),
        (with_summary(control_drift=[{"problem": "x"}]), "control_drift: regime is missing"),
        (with_summary(runs=["x"]), "runs: a JSON object is wanted"),
        (with_summary(runs=[{"started_at": "now", "arguments": []}]), "started_at: Invalid"),
        (
            with_summary(runs=[{"started_at": "2026-01-01", "arguments": [1]}]),
            "arguments are not all texts",
        ),
        (with_summary(builds=[{"arch": "sm_89"}]), "builds: toolchain is missing"),
        (with_summary(experiment=3), "experiment: a text is wanted"),
    ],
)
def test_damaged_folders_are_refused(
    folder: Path, damage: Callable[[Path], None], message: str
) -> None:
    damage(folder)
    with pytest.raises(DataError, match=message) as caught:
        load(folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("changes", [{"runs": "x"}, {"device": {"sm_count": None}}])
def test_a_folder_that_can_not_be_read_is_left_as_it_is(
    folder: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    with_summary(**changes)(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with ResultsStore.open(tmp_path / "new.sqlite", DEVICE, resume=False) as store:
        store.add_outcome(ok(identity(CUBLAS)))
        with pytest.raises(EnvironmentProblem, match="left as it is; give another folder"):
            export(store, folder, planned=1)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_folder_that_cant_be_entered_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_file", refuse)
    with pytest.raises(DataError, match=r"can't be read \(Permission denied\); make it readable"):
        load(tmp_path / "data")


def test_a_name_that_is_no_utf8_can_be_printed(tmp_path: Path) -> None:
    assert readable(os.fsdecode(b"caf\xe9")) == "caf\ufffd"
    assert readable(tmp_path / "x y") == (tmp_path / "x y").as_posix()


def exported_again(folder: Path, store_path: Path) -> None:
    """Export a later campaign of the same device into the folder."""
    with_summary(runs=[{"started_at": "2026-01-01T00:00:00+00:00", "arguments": []}])(folder)
    with ResultsStore.open(store_path, DEVICE, resume=False) as store:
        store.add_outcome(ok(identity(CUBLAS)))
        export(store, folder, planned=1)


def test_an_export_keeps_that_of_an_earlier_campaign(folder: Path, tmp_path: Path) -> None:
    results = (folder / "results.csv").read_bytes()
    exported_again(folder, tmp_path / "new.sqlite")
    assert len(load(folder).results) == 1
    kept = folder / "previous" / "2026-01-01T000000+0000"
    assert (kept / "results.csv").read_bytes() == results
    assert len(load(kept).results) > 1


@pytest.mark.parametrize("full", ["samples.csv.gz", "previous"])
def test_a_full_disk_leaves_the_earlier_export_in_its_place(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: str
) -> None:
    before = {path.name for path in folder.iterdir()}
    results = (folder / "results.csv").read_bytes()
    for method in ("open", "mkdir"):
        real = getattr(Path, method)

        def failing(path: Path, *args: Any, real: Any = real, **options: Any) -> Any:
            if full in path.as_posix():
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(path, *args, **options)

        monkeypatch.setattr(Path, method, failing)
    with pytest.raises(EnvironmentProblem, match="No space left on device"):
        exported_again(folder, tmp_path / "new.sqlite")
    monkeypatch.undo()
    assert {path.name for path in folder.iterdir()} == before
    assert (folder / "results.csv").read_bytes() == results


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        load(tmp_path / "none")
    file = tmp_path / "results.csv"
    file.write_text("")
    with pytest.raises(DataError, match="is a file, not a data folder; give the folder"):
        load(file)


def test_loading_needs_no_cuda() -> None:
    program = (
        "import sys, cutlass_study.study_data, cutlass_study.stats, cutlass_study.published\n"
        "heavy = {'cuda', 'pynvml', 'nvmath', 'cutlass_library', 'cutlass_cppgen'}\n"
        "print(sorted(heavy & {name.split('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_folders_recorded_before_a_column_existed_still_load() -> None:
    data = load(Path(__file__).parent.parent / "paper" / "data" / "h200")
    assert set(data.results["condition"]) == {""}
    assert set(data.samples["condition"]) == {""}
    assert len(data.samples_of(data.results["name"].iloc[0], "burst")) > 0


def test_conditions_keep_rows_apart(tmp_path: Path) -> None:
    """The same kernel under two conditions: two rows with samples and controls of their own."""
    times = {"": 1.0, "hot": 0.8}
    with ResultsStore.open(tmp_path / "s.sqlite", DEVICE, resume=False) as store:
        for condition, time_ms in times.items():
            for config in (CUBLAS, sm80(3)):
                row = identity(config, condition=condition)
                store.add_outcome(ok(row, None))
                store.add_samples(row, samples([time_ms] * 8))
        export(store, tmp_path / "out", planned=4, experiment="cache")
    data = load(tmp_path / "out")
    assert data.experiment == "cache"
    assert (data.results["ratio_to_cublas"] == 1).all()
    for condition, time_ms in times.items():
        own = data.samples_of(identity(sm80(3)).name, "burst", condition=condition)
        assert [s.time_ms for s in own] == [time_ms] * 8


def test_a_drifting_control_is_a_warning_in_device_json(tmp_path: Path) -> None:
    with ResultsStore.open(tmp_path / "s.sqlite", DEVICE, resume=False) as store:
        store.add_outcome(ok(identity(CUBLAS), None))
        store.add_samples(identity(CUBLAS), samples(1 + 0.01 * n for n in range(20)))
        export(store, tmp_path / "out", planned=1)
    (found,) = json.loads((tmp_path / "out" / "device.json").read_text())["control_drift"]
    assert found["warning"] is True
    assert found["regime"] == "burst"
