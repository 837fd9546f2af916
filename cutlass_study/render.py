"""Every table and figure that a data folder can fill, as files; the rest as reasons."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cutlass_study import experiment_tables, table_formats, tables
from cutlass_study.csv_files import replace_files
from cutlass_study.records import EnvironmentProblem
from cutlass_study.table_formats import Table
from cutlass_study.views import NothingToShow, StudyRecords, StudyView, make_views

if TYPE_CHECKING:  # drawing is imported when tables are made
    from cutlass_study.style import Figure

CAPTIONS = "captions.json"
FIGURE_FORMS = ("png", "pdf")
_SUFFIXES = ("csv", "md", "tex", "typ", *FIGURE_FORMS)


@dataclass(frozen=True)
class RenderReport:
    """Files written, and (name, why) for each table or figure that the data can't show."""

    tables: tuple[Path, ...]
    figures: tuple[Path, ...]
    captions: tuple[Path, ...]
    left_out: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class TableJob:
    """What to call a table in a message, and how to make it."""

    name: str
    make: Callable[[], Table]


@dataclass(frozen=True)
class FigureJob:
    """What to call a figure in a message, and how to make it."""

    name: str
    make: Callable[[], Figure]


def table_jobs(views: tuple[StudyView, ...]) -> Iterator[TableJob]:
    """Every table; those of measurements once, those of compiling once per architecture."""
    for view in _measured(views):
        for make in (
            tables.ranking,
            tables.best_by_family,
            tables.pipeline_depth,
            tables.epilogue_width,
            tables.scaling,
        ):
            yield TableJob(make.__name__, partial(make, view))
    for view in views:
        for make in (
            tables.configurations,
            tables.resources,
            tables.occupancy_over_depth,
            tables.outcomes,
            tables.outcome_counts,
        ):
            name = f"{make.__name__} of {view.arch}"
            yield TableJob(name, partial(make, view))


def _measured(views: tuple[StudyView, ...]) -> list[StudyView]:
    return [view for view in views if view.regimes]


def figure_jobs(views: tuple[StudyView, ...]) -> Iterator[FigureJob]:
    """Every figure; one that shows a single regime comes again, with its name, for the second."""
    from cutlass_study import figures, maps, resource_figures, trends

    for view in _measured(views):
        for place, regime in enumerate(view.regimes):
            for draw in (figures.pipeline_depth, figures.epilogue_width, maps.throughput_map):
                suffix = f"_{regime}" if place else ""
                yield FigureJob(
                    draw.__name__ + suffix,
                    partial(_renamed, draw, view, regime, suffix),
                )
        for make in (figures.ranking, trends.scaling, trends.drift):
            yield FigureJob(make.__name__, partial(make, view))
    for view in views:
        for family in resource_figures.compiled_families(view) or ["sm80"]:
            yield FigureJob(
                f"resources_{view.arch}_{family}",
                partial(resource_figures.resources, view, family),
            )
        for make in (resource_figures.occupancy, maps.feasibility_map):
            name = f"{make.__name__} of {view.arch}"
            yield FigureJob(name, partial(make, view))


def _experiment_figures(data: StudyRecords) -> Iterator[FigureJob]:
    from cutlass_study import experiment_figures

    yield FigureJob(data.experiment, partial(experiment_figures.figure, data))


def _renamed(
    draw: Callable[[StudyView, str], Figure], view: StudyView, regime: str, suffix: str
) -> Figure:
    figure = draw(view, regime)
    return replace(figure, name=figure.name + suffix)


def render_all(
    data: StudyRecords,
    out_dir: Path,
    problem: str | None = None,
    forms: Sequence[str] = FIGURE_FORMS,
) -> RenderReport:
    """Write every table and figure of `data` into `out_dir`, and their captions: all or none.

    Files of an earlier rendering there that are not made again are removed, so that no picture of
    other data stays behind. Raises `EnvironmentProblem` if the folder can't be written.
    """
    left_out: list[tuple[str, str]] = []
    if data.experiment:
        tables_wanted: Iterable[TableJob] = [
            TableJob(data.experiment, partial(experiment_tables.table, data))
        ]
        return render_jobs(tables_wanted, partial(_experiment_figures, data), out_dir, forms=forms)
    try:
        views = make_views(data, problem)
    except NothingToShow as nothing:
        return RenderReport((), (), (), (("all tables and figures", str(nothing)),))
    if not _measured(views):
        why = "nothing in this data was measured"
        left_out.append(("tables and figures of throughput, clocks and drift", why))
    return render_jobs(
        table_jobs(views), partial(figure_jobs, views), out_dir, left_out, forms=forms
    )


def render_jobs(
    tables_wanted: Iterable[TableJob],
    figures_wanted: Callable[[], Iterator[FigureJob]],
    out_dir: Path,
    left_out: Iterable[tuple[str, str]] = (),
    *,
    forms: Sequence[str] = FIGURE_FORMS,
) -> RenderReport:
    """Write these tables and figures into `out_dir`, as `render_all` does.

    `left_out` is what the caller already knows to be missing, for the report. Raises
    `EnvironmentProblem` if the folder can't be written.
    """
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
        return _render(tables_wanted, figures_wanted, out_dir, list(left_out), forms)
    except OSError as error:
        what = error.strerror or error
        raise EnvironmentProblem(
            f"can't write into '{out_dir}': {what}; give another folder"
        ) from error


def _render(
    tables_wanted: Iterable[TableJob],
    figures_wanted: Callable[[], Iterator[FigureJob]],
    out_dir: Path,
    left_out: list[tuple[str, str]],
    forms: Sequence[str],
) -> RenderReport:
    captions: dict[str, str] = {}
    # All are made aside first: a disk that fills up must not leave old and new side by side.
    with tempfile.TemporaryDirectory(prefix=".new-", dir=out_dir) as name:
        aside = Path(name)
        table_paths = _write_tables(tables_wanted, aside, captions, left_out)
        figure_paths = _write_figures(figures_wanted, aside, captions, left_out, forms)
        written = {path.name for path in (*table_paths, *figure_paths)}
        caption_paths = _write_captions(aside, captions, sorted(written))
        stale = [file for file in _earlier_names(out_dir) if file not in written]
        tables, figures, captioned = (
            tuple(path.replace(out_dir / path.name) for path in paths)
            for paths in (table_paths, figure_paths, caption_paths)
        )
        for file in stale:
            (out_dir / file).unlink(missing_ok=True)
    return RenderReport(tables, figures, captioned, tuple(left_out))


def _write_tables(
    jobs: Iterable[TableJob],
    out_dir: Path,
    captions: dict[str, str],
    left_out: list[tuple[str, str]],
) -> list[Path]:
    paths: list[Path] = []
    for job in jobs:
        try:
            table = job.make()
        except NothingToShow as nothing:
            left_out.append((f"table {job.name}", str(nothing)))
            continue
        paths += table_formats.save(table, out_dir)
        captions[f"table {table.name}"] = table.caption
    return paths


def _write_figures(
    make_jobs: Callable[[], Iterator[FigureJob]],
    out_dir: Path,
    captions: dict[str, str],
    left_out: list[tuple[str, str]],
    forms: Sequence[str],
) -> list[Path]:
    try:
        from cutlass_study import style
    except (ImportError, ValueError) as error:  # ValueError: matplotlib refuses MPLBACKEND
        left_out.append(("all figures", f"matplotlib can't be used here: {_sentence(error)}"))
        return []
    paths: list[Path] = []
    for job in make_jobs():
        try:
            with style.styled():
                figure = job.make()
            paths += style.save(figure, out_dir, forms)
        except NothingToShow as nothing:
            left_out.append((f"figure {job.name}", str(nothing)))
        except OSError:
            raise  # the folder, not the picture
        except Exception as error:  # one picture's trouble must not cost the others
            left_out.append((f"figure {job.name}", f"could not be drawn: {_sentence(error)}"))
        else:
            captions[f"figure {figure.name}"] = figure.caption
    return paths


def _sentence(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:200]}"


def _earlier_names(out_dir: Path) -> list[str]:
    """Files an earlier rendering listed in this folder; nothing if the list is not ours."""
    try:
        listed = json.loads((out_dir / CAPTIONS).read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    suffixes = "|".join(_SUFFIXES)
    pattern = re.compile(rf"[a-z0-9_]+\.({suffixes})")
    return [name for name in listed if isinstance(name, str) and pattern.fullmatch(name)]


def _write_captions(out_dir: Path, captions: dict[str, str], files: list[str]) -> tuple[Path, Path]:
    """`captions.json` for programs, `captions.md` for people."""
    machine, human = out_dir / CAPTIONS, out_dir / "captions.md"
    content = {
        kind + "s": {
            name.removeprefix(f"{kind} "): text
            for name, text in captions.items()
            if name.startswith(f"{kind} ")
        }
        for kind in ("table", "figure")
    }
    text = json.dumps({**content, "files": files}, indent=2, ensure_ascii=False)
    lines = [f"**{name.capitalize()}.** {caption}\n" for name, caption in captions.items()]
    replace_files(
        out_dir, {machine.name: f"{text}\n".encode(), human.name: "\n".join(lines).encode()}
    )
    return machine, human
