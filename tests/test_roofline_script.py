"""The roofline script: options, rows, formats, figure, exit codes."""

from __future__ import annotations

import csv
import errno
import gzip
import importlib.util
import io
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import matplotlib
import pytest
import typer
from typer.testing import CliRunner

from cutlass_study import console, roofline_figure, style
from cutlass_study.config import UsageError
from cutlass_study.csv_files import csv_bytes
from cutlass_study.gpus import limits_of
from cutlass_study.records import RESULT_COLUMNS, SAMPLE_COLUMNS, EnvironmentProblem
from cutlass_study.roofline import ElementTypes, Machine, Work
from cutlass_study.roofline_formats import COLUMNS, to_text
from cutlass_study.roofline_options import element_types, parse_extent, parse_positive, parse_tiles
from cutlass_study.roofline_points import measured_points, measured_view, work_of
from cutlass_study.roofline_rows import RooflineTask, table
from cutlass_study.schema import SCHEMA_VERSION
from tests import synthetic
from tests.scripts import run_here
from tests.test_roofline import KIB, LECTURE, MACHINE, ROOT, TABLE_8_2, TABLE_8_3, cube

SCRIPT = ROOT / "scripts" / "roofline.py"


# --- options and rows ---------------------------------------------------------------------------


def lecture_task(**more) -> RooflineTask:
    return RooflineTask(LECTURE, "fp32", "fp32", MACHINE, **more)


def test_tiles_are_read_in_every_form():
    assert parse_tiles(["32,128x64x16", " 8 "]) == ((32, 32, 32), (128, 64, 16), (8, 8, 8))
    assert parse_tiles(["32,32x32x32"]) == ((32, 32, 32),)
    for wrong in ("", "32,,64", "0", "-8", "1.5", "a", "8x8", "8x8x8x8", "8x0x8", "3²", "9999999"):
        with pytest.raises(UsageError, match="tile"):
            parse_tiles([wrong])


def test_numbers_are_read_and_refused():
    assert parse_extent(" 4096 ", "--n") == 4096
    assert parse_positive("1e3", "--bandwidth-gbs") == 1000
    for wrong in ("", "0", "-1", "1.5", "x", "1e3", "9" * 40, "٣"):
        with pytest.raises(UsageError, match="--n"):
            parse_extent(wrong, "--n")
    for wrong in ("", "0", "-1", "x", "nan", "inf", "1e400"):
        with pytest.raises(UsageError, match="--peak-tflops"):
            parse_positive(wrong, "--peak-tflops")


def test_types_of_inputs_sums_and_output():
    assert element_types("fp32") == (ElementTypes(4, 4, 4), "fp32")
    assert element_types("fp16") == (ElementTypes(2, 4, 4), "fp32")
    assert element_types("fp16", "fp16") == (ElementTypes(2, 4, 2), "fp16")
    assert element_types("fp64") == (ElementTypes(8, 8, 8), "fp64")
    for dtype, output in (("fp12", None), ("fp16", "half")):
        with pytest.raises(UsageError, match="use one of"):
            element_types(dtype, output)


def test_rows_put_no_reuse_first_and_one_pass_last():
    rows = table(lecture_task(), [cube(64), (128, 64, 32)], with_one_pass=True)
    assert [row.tile for row in rows] == ["none", "64", "128x64x32", "one-pass"]
    assert rows[0].input_buffer_bytes == 8
    assert rows[-1].input_buffer_bytes is None
    assert rows[-1].total_bytes == 201_326_592


def test_double_buffering_doubles_the_inputs_alone():  # 9.1
    (_, row) = table(lecture_task(copies=2), [cube(128)])
    assert (row.input_buffer_bytes, row.accumulator_bytes) == (256 * KIB, 64 * KIB)


def test_what_a_real_sm_holds():  # 9.2.6: T=128 can be impossible
    rows = table(lecture_task(limits=limits_of("sm_89"), sm_count=24), [cube(64), cube(128)])
    assert rows[0].fits is None
    assert (rows[1].fits, rows[1].ctas_per_sm, rows[1].limiter) == (True, 3, "shared memory")
    assert rows[2].fits is False
    assert rows[2].reason == "input buffers of 131072 B exceed 101376 B per CTA"
    assert rows[2].wave_efficiency is None
    (_, spilled) = table(lecture_task(limits=limits_of("sm_90a"), threads=128), [(256, 256, 8)])
    assert spilled.reason is not None
    assert "512 registers per thread" in spilled.reason


def test_text_says_what_holds_for_all_rows():
    task = lecture_task(limits=limits_of("sm_89"), sm_count=24)
    text = to_text(task, table(task, [cube(32), (100, 64, 32)]))
    for words in (
        "137,438,953,472 FLOP",
        "Ridge: 20 FLOP/B.",
        "T = 80.789 on; in whole, 82.",
        "201,326,592 B, 682.667 FLOP/B",
        "cut off at its edge: 100×64×32.",
        "24 SMs",
    ):
        assert words in text
    narrow = RooflineTask(Work(4096, 8, 4096), "fp32", "fp32", MACHINE)
    assert "No tile makes this compute-bound" in to_text(narrow, table(narrow, []))


# --- the figure ---------------------------------------------------------------------------------


def measured_task():
    view = measured_view(synthetic.hopper())
    work, output = work_of(view)
    task = RooflineTask(work, "fp16", output, Machine(989, 4800))
    return view, task, measured_points(task, view)


def test_measured_rows_are_the_fastest_of_each_tile():
    view, task, points = measured_task()
    assert (task.work, task.output_dtype) == (Work(*cube(8192), ElementTypes(2, 4, 4)), "fp32")
    names = [(row.family, row.tile) for row in points]
    assert len(names) == len(set(names))
    assert {row.family for row in points} == {"cublas", "cublas_lt", "sm80", "sm90", "wmma"}
    assert all(row.regime == "burst" for row in points)
    for family, group in view.at("burst").query("family in ('sm80', 'sm90')").groupby("family"):
        best = max(row.measured_tflops for row in points if row.family == family)
        assert best == group["tflops"].max()
    for row in points:
        assert row.roof_share == pytest.approx(row.measured_tflops / row.ceiling_tflops)
        assert (row.tile == "one-pass") == row.family.startswith("cublas")
    assert "Measured" in to_text(task, points)


def legend_texts(figure) -> list[str]:
    return [text.get_text() for text in figure.figure.axes[0].get_legend().get_texts()]


def test_figure_has_log_axes_and_the_models_points():
    rows = table(lecture_task(), [cube(32), cube(64), cube(128)])
    with style.styled():
        figure = roofline_figure.draw(lecture_task(), rows)
    (axes,) = figure.figure.axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    (points,) = [line for line in axes.lines if line.get_marker() == "o"]
    assert list(points.get_xdata()) == [row.intensity for row in rows]
    assert list(points.get_ydata()) == [row.ceiling_tflops for row in rows]
    assert [text.get_text() for text in axes.texts] == ["no reuse", "T=32", "T=64", "T=128"]
    assert not [text for text in legend_texts(figure) if "measured" in text]
    assert "theoretical, not measured" in figure.caption
    texts = figure.figure.findobj(matplotlib.text.Text)
    assert min(text.get_fontsize() for text in texts if text.get_text()) >= 8


def test_figure_tells_measured_points_from_the_model():
    view, task, points = measured_task()
    with style.styled():
        figure = roofline_figure.draw(task, table(task, [cube(64)]) + points, view.title)
    assert "CUTLASS sm80 (measured)" in legend_texts(figure)
    assert "no reuse" not in [text.get_text() for text in figure.figure.axes[0].texts]
    for words in ("Synthetic GPU", "burst", "without reuse between CTAs"):
        assert words in figure.caption


@pytest.mark.parametrize("suffix", ["png", "pdf"])
def test_the_same_rows_give_the_same_file(tmp_path: Path, suffix: str):
    contents = []
    for number in range(2):
        path = tmp_path / f"{number}.{suffix}"
        with style.styled():
            figure = roofline_figure.draw(lecture_task(), table(lecture_task(), [cube(32)]))
        roofline_figure.save_file(figure, path)
        contents.append(path.read_bytes())
    assert contents[0] == contents[1]


# --- the script ---------------------------------------------------------------------------------

CONTRACT = [
    *("tile", "flops", "read_bytes", "write_bytes", "total_bytes", "intensity", "ceiling_tflops"),
    *("compute_ms", "memory_ms", "ideal_ms", "bound", "input_buffer_bytes", "accumulator_bytes"),
]


@pytest.fixture(scope="module")
def app() -> typer.Typer:
    """The script as a command of this process: most cases need no process of their own."""
    spec = importlib.util.spec_from_file_location("roofline_script", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    command = typer.Typer()
    command.command()(console.guarded(module.main))
    return command


def run_script(*arguments: str, cwd: Path = ROOT, **environment: str):
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )


def test_script_gives_the_contracts_rows():
    done = run_here(
        "roofline",
        *("--n", "4096", "--tile", "32,64,128", "--dtype", "fp32", "--peak-tflops", "20"),
        *("--bandwidth-gbs", "1000", "--format", "json"),
    )
    assert (done.returncode, done.stderr) == (0, "")
    rows = json.loads(done.stdout)
    assert [row["tile"] for row in rows] == ["none", "32", "64", "128"]
    assert [list(row)[: len(CONTRACT)] for row in rows] == [CONTRACT] * 4
    for row, (_, read, total, _, flop_per_byte) in zip(rows, TABLE_8_2, strict=True):
        assert (row["read_bytes"], row["total_bytes"]) == (read, total)
        assert f"{row['intensity']:.6f}" == flop_per_byte
    for row, (_, memory, ceiling, ideal, bound, speedup) in zip(rows, TABLE_8_3, strict=True):
        shown = [f"{row[name]:.6f}" for name in ("memory_ms", "ceiling_tflops", "ideal_ms")]
        assert shown == [memory, ceiling, ideal]
        assert (row["bound"], f"{row['speedup']:.3f}") == (bound, speedup)
    assert [row["input_buffer_bytes"] for row in rows] == [8, 8192, 32768, 131072]
    assert [row["accumulator_bytes"] for row in rows] == [4, 4096, 16384, 65536]


def test_script_csv_keeps_all_digits_and_text_is_the_lecture_without_options():
    done = run_here(
        "roofline", "--format", "csv", "--gpu", "sm_89", "--one-pass", "--double-buffer"
    )
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert tuple(rows[0]) == COLUMNS
    assert rows[0]["memory_ms"] == "549.822922752"
    assert [row["fits"] for row in rows] == ["", "true", "true", "false", ""]
    text = run_here("roofline").stdout
    for row in TABLE_8_3:
        assert all(number in text for number in row[1:])


def test_script_takes_other_shapes_and_types():
    done = run_here(
        "roofline",
        *("--m", "100", "--n", "70", "--k", "33", "--tile", "16x32x8", "--dtype", "fp16"),
        *("--output-dtype", "fp16", "--read-c", "--format", "json"),
    )
    row = json.loads(done.stdout)[1]
    assert row["read_bytes"] == 2 * (100 * 33 * 3 + 33 * 70 * 7) + 2 * 100 * 70
    assert row["write_bytes"] == 2 * 100 * 70
    assert row["input_buffer_bytes"] == 2 * (16 * 8 + 8 * 32)
    assert row["accumulator_bytes"] == 4 * 16 * 32


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--n", "0"], "--n '0' must be a whole number"),
        (["--m", "-4"], "--m '-4' must be a whole number"),
        (["--k", "many"], "--k 'many' must be a whole number"),
        (["--n", "9" * 30], "must be a whole number of 1 to"),
        (["--tile", "32x32"], "tile '32x32' must be"),
        (["--tile", ""], "tile '' must be"),
        (["--dtype", "fp12"], "dtype 'fp12' is not known"),
        (["--output-dtype", "fp12"], "output dtype 'fp12' is not known"),
        (["--peak-tflops", "0"], "--peak-tflops '0' must be a number above 0"),
        (["--bandwidth-gbs", "nan"], "--bandwidth-gbs 'nan' must be a number above 0"),
        (["--format", "xml"], "format 'xml' is not known"),
        (["--gpu", "sm_1"], "arch 'sm_1' is not known"),
        (["--threads", "2048"], "--threads '2048' must be"),
        (["--sms", "0"], "--sms '0' must be"),
        (["--out", "roofline.gif"], "must end in .png or .pdf"),
        (["--data", "nowhere"], "--data needs --peak-tflops and --bandwidth-gbs"),
        (
            ["--data", "nowhere", "--peak-tflops", "9", "--bandwidth-gbs", "9"],
            "does not exist",
        ),
    ],
)
def test_script_refuses_wrong_values_in_one_sentence(app, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2
    assert words in done.stderr
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_script_draws_a_file_and_says_where(tmp_path: Path):
    for name in ("new/roofline.png", "roofline.PDF"):
        done = run_script("--out", name, "--format", "json", cwd=tmp_path, MPLBACKEND="TkAgg")
        assert done.returncode == 0, done.stderr
        assert len(json.loads(done.stdout)) == 4
        assert name in done.stderr.replace("\\", "/")
        assert (tmp_path / name).stat().st_size > 1000


@pytest.mark.parametrize("suffix", [".png", ".pdf"])
def test_a_full_disk_keeps_the_earlier_figure(tmp_path: Path, monkeypatch, suffix: str):
    task = lecture_task()
    file = tmp_path / f"roofline{suffix}"
    file.write_bytes(b"earlier")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with style.styled():
        figure = roofline_figure.draw(task, table(task, [(64, 64, 64)]))
    with pytest.raises(EnvironmentProblem, match="No space left on device"):
        roofline_figure.save_file(figure, file)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"earlier"]


def test_script_exits_3_where_it_can_not_draw(tmp_path: Path):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.png").mkdir()
    blocked = tmp_path / "blocked" / "matplotlib"
    blocked.mkdir(parents=True)
    (blocked / "__init__.py").write_text("raise ImportError('matplotlib is not here')")
    without = {"PYTHONPATH": os.pathsep.join([str(blocked.parent), str(ROOT)])}
    for out, environment, words in (
        ("file/x.png", {}, "can't write"),
        ("folder.png", {}, "is a folder; give the name of a file with --out"),
        ("x.png", without, "matplotlib can't be used here"),
    ):
        done = run_script("--out", out, cwd=tmp_path, **environment)
        assert done.returncode == 3, done.stderr
        assert words in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
        assert "549.822923" in done.stdout  # the numbers are safe


def write_data(records: synthetic.Records, folder: Path) -> Path:
    """Made-up records as a data folder, measured ones with their device."""
    folder.mkdir(parents=True)
    for name, columns, frame in (
        ("results.csv", RESULT_COLUMNS, records.results),
        ("samples.csv.gz", SAMPLE_COLUMNS, records.samples),
    ):
        plain = frame.reindex(columns=list(columns)).astype(object)
        lines = plain.where(plain.notna(), None).to_numpy().tolist()
        whole = [[_whole(value) for value in line] for line in lines]
        content = csv_bytes(columns, whole)
        (folder / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    if records.device is not None:
        summary = {"schema_version": SCHEMA_VERSION, "device": asdict(records.device)}
        (folder / "device.json").write_text(json.dumps(summary), encoding="utf-8")
    return folder


def _whole(value):
    return int(value) if isinstance(value, float) and value == int(value) else value


def test_script_adds_measured_kernels(tmp_path: Path):
    data = write_data(synthetic.hopper(("burst",)), tmp_path / "data")
    common = ("--data", str(data), "--peak-tflops", "989", "--bandwidth-gbs", "4800")
    done = run_script(*common, "--format", "json", "--out", "r.pdf", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert {(row["n"], row["dtype"], row["output_dtype"]) for row in rows} == {
        (8192, "fp16", "fp32")
    }
    assert rows[0]["tile"] == "none"
    assert rows[0]["measured_tflops"] is None
    assert "sm90" in [row["family"] for row in rows]
    assert "Synthetic GPU" in done.stderr
    assert (tmp_path / "r.pdf").exists()
    for more, words in (
        (["--dtype", "fp32"], "leave out --dtype"),
        (["--n", "77"], "problem 77x77x77 is not in the data"),
    ):
        refused = run_script(*common, *more, cwd=tmp_path)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert words in refused.stderr


def test_script_says_when_the_data_holds_no_measurement(tmp_path: Path):
    data = write_data(synthetic.static_only(), tmp_path / "data")
    done = run_here(
        "roofline",
        *("--data", str(data), "--peak-tflops", "989", "--bandwidth-gbs", "4800"),
        cwd=tmp_path,
    )
    assert done.returncode == 0
    assert done.stderr == "no measured points: nothing in this data was measured\n"
    assert "fp16 to fp32" in done.stdout


def test_script_help_has_an_example():
    done = run_script("--help", COLUMNS="100")
    assert done.returncode == 0
    assert "scripts/roofline.py --n 4096 --tile 32,64" in done.stdout
