"""Figures: what they show, how they look to a reader in numbers, and that no display is needed."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import matplotlib
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from cutlass_study import figures, maps, render, resource_figures, style, trends
from cutlass_study.csv_files import csv_bytes
from cutlass_study.records import RESULT_COLUMNS, UNRESTED, EnvironmentProblem
from cutlass_study.render import render_all
from cutlass_study.views import NothingToShow, make_views
from tests import synthetic
from tests.scripts import run_here

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "scripts" / "figures.py"


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hopper")
    return render_all(synthetic.hopper(), folder)


@pytest.fixture(scope="module")
def o6():
    (view,) = make_views(synthetic.grid_o6())
    return view


def legend_texts(figure) -> list[str]:
    return [text.get_text() for legend in figure.figure.legends for text in legend.get_texts()]


def cells(axes) -> list[tuple[str, str | None]]:
    """Fill and hatch of every cell: those of the heat map, then those without a number."""
    fills = [fill for mesh in axes.collections for fill in mesh.get_facecolors() if fill[3] > 0]
    drawn = [(to_hex(fill).upper(), None) for fill in fills]
    return drawn + [(to_hex(p.get_facecolor()).upper(), p.get_hatch()) for p in axes.patches]


def test_o6_each_state_has_its_own_colour_and_hatch(o6):
    with style.styled():
        figure = maps.throughput_map(o6, "burst")
    assert "6 measured, 5 infeasible, 1 failed" in figure.caption
    assert legend_texts(figure) == ["infeasible", "failed"]
    drawn = cells(figure.figure.axes[0])
    assert len(drawn) == 12
    assert drawn.count(style.STATE_CELLS["infeasible"]) == 5
    assert drawn.count(style.STATE_CELLS["failed"]) == 1
    measured = [fill for fill, hatch in drawn if hatch is None]
    assert len(set(measured)) == 6
    assert not set(measured) & {fill for fill, _ in style.STATE_CELLS.values()}


def test_o6_scale_and_annotations_hold_measured_numbers_only(o6):
    with style.styled():
        figure = maps.throughput_map(o6, "burst")
    axes, bar = figure.figure.axes
    assert bar.get_ylim() == (50.0, 55.0)  # not 0, not the wrong result's 9999
    assert sorted(text.get_text() for text in axes.texts) == [f"{50 + i}.0" for i in range(6)]


def test_states_differ_from_each_other_and_from_the_scale():
    fills, hatches = zip(*style.STATE_CELLS.values(), strict=True)
    assert len(set(fills)) == len(set(hatches)) == 4
    scale = {to_hex(matplotlib.colormaps["cividis"](i)).upper() for i in range(256)}
    assert not scale & set(fills)


def test_not_measured_and_duplicate_cells_are_in_the_legend():
    records = synthetic.grid_o6()
    results = records.results.copy()
    results.loc[1, ["outcome", "tflops", "regime"]] = ["duplicate", None, ""]
    results = results.drop(index=2)
    (view,) = make_views(synthetic.Records(records.device, results, records.samples))
    with style.styled():
        figure = maps.throughput_map(view, "burst")
    assert legend_texts(figure) == ["infeasible", "failed", "duplicate", "not measured"]
    assert "4 measured, 5 infeasible, 1 failed, 1 duplicate" in figure.caption


def test_best_of_a_cell_ignores_rows_that_are_not_ok():
    records = synthetic.grid_o6()
    results = records.results.copy()
    wrong = results.iloc[[1]].assign(outcome="wrong_result", tflops=500.0, name="x", split_k=2)
    results = pd.concat([results, wrong], ignore_index=True)
    (view,) = make_views(synthetic.Records(records.device, results, records.samples))
    with style.styled():
        figure = maps.throughput_map(view, "burst")
    assert "50.0" in [text.get_text() for text in figure.figure.axes[0].texts]
    assert "The best over every other axis" in figure.caption


@pytest.fixture(scope="module")
def drawn_o6(tmp_path_factory):
    folder = tmp_path_factory.mktemp("o6")
    render_all(synthetic.grid_o6(), folder)
    return folder


@pytest.fixture(scope="module")
def hopper_two_regimes():
    return synthetic.hopper()


def test_a_full_folder_gives_every_kind(rendered):
    names = {path.stem for path in rendered.figures}
    kinds = {"pipeline_depth", "epilogue_width", "throughput_map", "ranking", "scaling", "drift"}
    assert kinds <= names
    assert {"occupancy_sm_90a", "feasibility_sm_90a", "resources_sm_90a_sm90"} <= names
    assert {path.suffix for path in rendered.figures} == {".png", ".pdf"}
    assert rendered.left_out == ()
    assert {f"{name}_sustained" for name in ("pipeline_depth", "throughput_map")} <= names
    for path in (*rendered.figures, *rendered.tables):
        assert path.stat().st_size > 0


def test_captions_say_device_problem_regime_distribution_and_counts(rendered):
    captions = json.loads(rendered.captions[0].read_text(encoding="utf-8"))["figures"]
    assert set(captions) == {path.stem for path in rendered.figures}
    for name in ("pipeline_depth", "throughput_map", "ranking"):
        for part in ("Synthetic GPU", "8192", "burst", "uniform", "measured", "infeasible"):
            assert part in captions[name], (name, part)


def test_pdf_fonts_are_embedded_truetype_and_pages_undated(rendered):
    for path in rendered.figures:
        if path.suffix == ".pdf":
            content = path.read_bytes()
            assert b"/CreationDate" not in content
            assert b"/Type3" not in content
            assert b"/FontFile2" in content
            assert b"/Subtype /Image" not in content, f"{path.name} holds pixels"


def test_nothing_is_set_smaller_than_8_points_and_widths_fit_columns(o6):
    (hopper,) = make_views(synthetic.hopper(("burst",)))
    with style.styled():
        drawn = [
            figures.pipeline_depth(hopper, "burst"),
            figures.epilogue_width(hopper, "burst"),
            figures.ranking(hopper),
            maps.throughput_map(hopper, "burst"),
            maps.throughput_map(o6, "burst"),
            resource_figures.resources(hopper, "sm90"),
            trends.scaling(hopper),
            trends.drift(hopper),
        ]
    for figure in drawn:
        assert figure.figure.get_figwidth() in (style.COLUMN_INCHES, style.PAGE_INCHES)
        texts = figure.figure.findobj(matplotlib.text.Text)
        assert min(text.get_fontsize() for text in texts if text.get_text()) >= 8


def test_the_same_data_gives_the_same_bytes(o6, tmp_path: Path):
    made = []
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        with style.styled():
            figure = figures.pipeline_depth(o6, "burst")
        made.append([path.read_bytes() for path in style.save(figure, folder)])
    assert made[0] == made[1]


def test_static_data_gives_resource_occupancy_and_feasibility_figures(tmp_path: Path):
    result = render_all(synthetic.static_only(), tmp_path)
    names = {path.stem for path in result.figures}
    assert names == {
        f"{kind}_{arch}" for arch in ("sm_89", "sm_90a") for kind in ("occupancy", "feasibility")
    } | {f"resources_sm_89_{family}" for family in ("sm80", "wmma")} | {
        f"resources_sm_90a_{family}" for family in ("sm80", "sm90", "wmma")
    }
    assert len({path.stem for path in result.tables}) >= 4
    assert any("nothing in this data was measured" in why for _, why in result.left_out)
    everything = (tmp_path / "captions.md").read_text(encoding="utf-8")
    assert "TFLOPS" not in everything
    assert "0 measured" not in everything


def test_missing_pieces_are_messages_never_empty_pictures(tmp_path: Path):
    result = render_all(synthetic.grid_o6(), tmp_path)
    reasons = dict(result.left_out)
    assert "fewer than two sizes" in reasons["figure scaling"]
    assert not (tmp_path / "scaling.png").exists()
    with pytest.raises(NothingToShow):
        trends.scaling(make_views(synthetic.grid_o6())[0])


def test_sizes_without_a_burst_regime_are_hollow_points_of_the_other(hopper_two_regimes):
    results = hopper_two_regimes.results
    large, burst = results["m"] == 16384, results["regime"] == "burst"
    stops = {"stop_reason": f"burst: {UNRESTED}; sustained: interval"}
    only = results[~large & burst]
    hot = results[large & (results["regime"] == "sustained")].assign(**stops)
    records = synthetic.Records(
        hopper_two_regimes.device, pd.concat([only, hot]), hopper_two_regimes.samples
    )
    (view,) = make_views(records)
    with style.styled():
        drawn = trends.scaling(view)
    (axes,) = drawn.figure.axes
    assert axes.get_title() == "burst regime"
    hollow = [line for line in axes.lines if line.get_markerfacecolor() == "white"]
    lines = [line for line in axes.lines if line not in hollow]
    assert not any(16384 in line.get_xdata() for line in lines), "no line joins the regimes"
    assert {x for line in hollow for x in line.get_xdata()} == {16384}
    assert "Hollow points (16384): sustained regime" in drawn.caption

    only_hot = results[results["regime"] == "sustained"].assign(**stops)
    (view,) = make_views(
        synthetic.Records(hopper_two_regimes.device, only_hot, hopper_two_regimes.samples)
    )
    with style.styled():
        drawn = trends.scaling(view)
    assert "Hollow" not in drawn.caption, "no point is drawn hollow"

    (view,) = make_views(hopper_two_regimes)
    with style.styled():
        drawn = trends.scaling(view)
    assert [axes.get_title() for axes in drawn.figure.axes] == ["burst regime", "sustained regime"]
    assert "Hollow" not in drawn.caption


def test_points_beside_each_other_and_tiles_left_out_are_said(hopper_two_regimes):
    (view,) = make_views(hopper_two_regimes)
    with style.styled():
        drawn = figures.pipeline_depth(view, "burst")
    assert "points of one S are shifted sideways" in drawn.caption
    for caption in (drawn.caption, resource_figures.resources(view, "sm80").caption):
        assert "table" not in caption


def ranked(records: synthetic.Records, sustained: pd.Series):
    """The ranking of two-regime records, of whose sustained rows only some were measured."""
    results = records.results
    kept = results[(results["regime"] != "sustained") | sustained]
    (view,) = make_views(synthetic.Records(records.device, kept, records.samples))
    with style.styled():
        return figures.ranking(view)


def test_the_ranking_says_its_order_and_which_rows_the_second_regime_has(hopper_two_regimes):
    results = hopper_two_regimes.results
    cublas = results["family"] == "cublas"
    alone = ranked(hopper_two_regimes, cublas)
    assert "ordered by the median ratio to cuBLAS" in alone.caption
    assert "Hollow, lower: sustained regime, measured for cuBLASLt best alone." in alone.caption
    assert not {"burst", "sustained"} & set(legend_texts(alone))
    (axes, *_) = alone.figure.axes
    places = {y for line in axes.lines for y in line.get_ydata() if line.get_marker() == "s"}
    assert places == set(range(24)), "rows of one regime lie in the middle"

    every = ranked(hopper_two_regimes, results["regime"] == "sustained")
    assert "sustained regime, measured for every row." in every.caption
    assert {"burst", "sustained"} <= set(legend_texts(every))
    first = ranked(hopper_two_regimes, results["cluster_shape"] == "2x1x1")
    assert re.search(r"regime, measured for \d+ of these rows\.", first.caption)

    none = ranked(hopper_two_regimes, results["name"] == "")
    assert "Hollow" not in none.caption


def test_drift_has_a_range_for_each_regime(hopper_two_regimes):
    (view,) = make_views(hopper_two_regimes)
    with style.styled():
        drawn = trends.drift(view)
    burst, sustained, *_, burst_power, sustained_power = drawn.figure.axes
    assert burst.get_ylim() != sustained.get_ylim()
    assert burst_power.get_ylim() == sustained_power.get_ylim()
    labels = [axes.get_ylabel() for axes in drawn.figure.axes]
    assert labels == ["TFLOPS", "", "SM clock [MHz]", "", "power [W]", ""]
    assert "Each regime has its own ranges." in drawn.caption
    assert "idle gaps" in drawn.caption


def test_sizes_where_kernels_have_no_valid_sample_are_left_out_and_named(hopper_two_regimes):
    results = hopper_two_regimes.results.copy()
    large = results.index[(results["m"] == 16384) & (results["regime"] == "burst")]
    results.loc[large[:2], ["outcome", "tflops"]] = ["no_valid_samples", None]
    unsampled = results.index[results["m"] == 4096][:1]  # of a sweep that was interrupted
    results.loc[unsampled, ["outcome", "regime", "tflops"]] = ["no_valid_samples", "", None]
    (view,) = make_views(
        synthetic.Records(hopper_two_regimes.device, results, hopper_two_regimes.samples)
    )
    with style.styled():
        drawn = trends.scaling(view)
    burst, sustained = drawn.figure.axes
    assert max(max(line.get_xdata(), default=0) for line in burst.lines) == 8192
    assert max(max(line.get_xdata(), default=0) for line in sustained.lines) == 16384
    named = "Left out: 16384 in the burst regime, where kernels have no valid sample."
    assert drawn.caption.endswith(named)


def test_no_rows_at_all_is_a_message(tmp_path: Path):
    empty = synthetic.Records(None, pd.DataFrame(columns=list(RESULT_COLUMNS)), pd.DataFrame())
    result = render_all(empty, tmp_path)
    assert result.figures == ()
    assert result.left_out == (("all tables and figures", "the data has no results"),)


def test_only_cublas_still_gives_tables(tmp_path: Path):
    records = synthetic.grid_o6()
    lonely = synthetic.Records(records.device, records.results.iloc[:1], records.samples)
    result = render_all(lonely, tmp_path)
    assert "configurations" in {path.stem for path in result.tables}
    assert {path.stem for path in result.figures} == {"drift"}
    assert not [why for _, why in result.left_out if "could not be drawn" in why]


def test_one_broken_figure_does_not_cost_the_others(tmp_path: Path, monkeypatch):
    def broken(view):
        raise RuntimeError("font\ncache is gone")

    monkeypatch.setattr(figures, "ranking", broken)
    result = render_all(synthetic.grid_o6(), tmp_path)
    reasons = dict(result.left_out)
    assert reasons["figure broken"] == "could not be drawn: RuntimeError: font cache is gone"
    assert "drift" in {path.stem for path in result.figures}


def test_pictures_of_earlier_data_do_not_stay(tmp_path: Path, drawn_o6: Path):
    shutil.copytree(drawn_o6, tmp_path, dirs_exist_ok=True)
    (tmp_path / "mine.png").write_bytes(b"kept")
    assert (tmp_path / "drift.png").exists()
    render_all(synthetic.static_only(tiles=1), tmp_path)
    assert not (tmp_path / "drift.png").exists()
    assert (tmp_path / "mine.png").exists()


def test_a_folder_that_cannot_be_written_is_an_environment_problem(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentProblem, match="give another folder"):
        render_all(synthetic.grid_o6(), tmp_path / "file" / "out")


@pytest.mark.parametrize("torn", ["best.csv", "drift.pdf", "captions"])
def test_a_full_disk_tears_no_file(tmp_path: Path, monkeypatch, torn: str, drawn_o6: Path):
    data = synthetic.grid_o6()
    shutil.copytree(drawn_o6, tmp_path, dirs_exist_ok=True)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert any(name.startswith(torn) for name in before)
    fill_disk(monkeypatch, torn)
    with pytest.raises(EnvironmentProblem, match=r"No space left on device; give another folder"):
        render_all(data, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_full_disk_mixes_no_pictures_of_two_data(tmp_path: Path, monkeypatch):
    render_all(synthetic.static_only(tiles=1), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    fill_disk(monkeypatch, "drift.pdf")
    with pytest.raises(EnvironmentProblem, match=r"No space left on device; give another folder"):
        render_all(synthetic.grid_o6(), tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def fill_disk(monkeypatch, name: str) -> None:
    """Let each file whose name begins with `name`, and its temporary one, get half its bytes."""
    real = Path.open

    class Full(io.FileIO):
        def write(self, content) -> int:
            super().write(content[: len(content) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def opened(path: Path, mode: str = "r", *rest, **more):
        if "w" in mode and path.name.lstrip(".").startswith(name):
            return Full(path, "wb")
        return real(path, mode, *rest, **more)

    monkeypatch.setattr(Path, "open", opened)


# --- the script -------------------------------------------------------------------------------


def export(records, folder: Path) -> Path:
    """The static part of made-up records as a data folder."""
    folder.mkdir(parents=True)
    lines = records.results.astype(object).where(records.results.notna(), None)
    content = csv_bytes(RESULT_COLUMNS, [_whole(line) for line in lines.to_numpy().tolist()])
    (folder / "results.csv").write_bytes(content)
    return folder


def _whole(line: list) -> list:
    return [
        int(value) if isinstance(value, float) and value == int(value) else value for value in line
    ]


def run_script(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess:
    variables = {key: value for key, value in os.environ.items() if key != "DISPLAY"}
    variables |= {"PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        cwd=cwd,
        env=variables,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )


def test_script_draws_without_a_display_whatever_the_backend(tmp_path: Path):
    export(synthetic.static_only(tiles=1), tmp_path / "paper" / "data" / "h200")
    below = tmp_path / "somewhere" / "below"
    below.mkdir(parents=True)
    done = run_script("--out", str(tmp_path / "out"), cwd=below, MPLBACKEND="TkAgg")
    assert done.returncode == 0, done.stderr
    files = done.stdout.split()
    assert all(Path(name).exists() for name in files)
    assert sum(name.endswith(".png") for name in files) >= 6
    assert "left out: tables and figures of throughput" in done.stderr


@pytest.mark.parametrize("how", ["missing", "unknown backend"])
def test_without_matplotlib_the_tables_are_safe(tmp_path: Path, how: str):
    data = export(synthetic.static_only(), tmp_path / "data")
    environment = {"MPLBACKEND": "no_such_backend"}
    if how == "missing":
        blocked = tmp_path / "blocked" / "matplotlib"
        blocked.mkdir(parents=True)
        (blocked / "__init__.py").write_text("raise ImportError('matplotlib is not here')")
        environment = {"PYTHONPATH": os.pathsep.join([str(blocked.parent), str(ROOT)])}
    done = run_script("--data", str(data), "--out", "out", cwd=tmp_path, **environment)
    assert done.returncode == 0, done.stderr
    assert "left out: all figures: matplotlib can't be used here" in done.stderr
    assert len(list((tmp_path / "out").glob("*.csv"))) >= 4


def test_script_exit_codes_and_sentences(tmp_path: Path):
    data = export(synthetic.static_only(), tmp_path / "data")
    (tmp_path / "file").write_text("")
    for arguments, code, words in (
        (["--data", "nowhere"], 2, "does not exist"),
        ([], 2, "no paper/ folder here or above"),
        (["--data", str(data), "--problem", "8192"], 2, "three positive whole numbers"),
        (["--data", str(data), "--problem", "1x2x3"], 2, "is not in the data"),
        (["--data", str(data), "--out", "file/out"], 3, "can't write"),
    ):
        done = run_here("figures", *arguments, cwd=tmp_path)
        assert done.returncode == code, (arguments, done.stderr)
        assert words in done.stderr
        assert "Traceback" not in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


def test_script_help_has_an_example(tmp_path: Path):
    done = run_script("--help", cwd=tmp_path, COLUMNS="100")
    assert done.returncode == 0
    assert "scripts/figures.py --data paper/data/h200" in done.stdout


def test_nothing_here_imports_what_compiles_or_measures_or_opens_windows():
    code = (
        "import sys; from cutlass_study import figures, maps, trends, resource_figures, render, "
        "study_data; bad = [m for m in sys.modules if m.split('.')[0] in ('cuda', 'pynvml', "
        "'nvmath', 'cutlass_library', 'tkinter')]; import matplotlib; "
        "bad += [b for b in [matplotlib.get_backend()] if b.lower() != 'agg']; "
        "sys.exit(', '.join(bad) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "MPLBACKEND": "TkAgg"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_jobs_are_named_for_messages():
    views = make_views(synthetic.grid_o6())
    names = [job.name for job in render.figure_jobs(views)]
    assert len(names) == len(set(names))
