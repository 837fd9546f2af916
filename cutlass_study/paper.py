"""The study as a PDF, rebuilt from recorded data: figures, tables, numbers, then typst.

Needs no GPU, no compiler and no network. The template `paper/study.typ` holds the words; every
number in it comes from `values.json`.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typst

from cutlass_study import (
    audit_report,
    experiment_report,
    model_report,
    repeatability_report,
    roofline_report,
)
from cutlass_study.claims import experiments_of
from cutlass_study.csv_files import file_to_replace
from cutlass_study.neighbours import LeftOut
from cutlass_study.paper_values import depth_changes, values
from cutlass_study.records import EnvironmentProblem
from cutlass_study.render import render_all
from cutlass_study.study_data import DataError, StudyData, load

PDF = b"%PDF-"  # how such a file begins
TEMPLATE = "study.typ"
INCLUDED = ("experiments.typ", "parts.typ")
REFERENCE = "h200"  # the recorded device that other devices are shown beside


@dataclass(frozen=True, slots=True)
class PaperReport:
    """The PDF written, and what the data could not show."""

    pdf: Path
    left_out: LeftOut


def _static_of(project: Path) -> StudyData | None:
    folder = project / "paper" / "data" / "static"
    return load(folder) if (folder / "results.csv").is_file() else None


def _reference_of(project: Path, data: StudyData) -> tuple[StudyData | None, LeftOut]:
    """The reference GPU's records, unless they are the data themselves or can't be read."""
    folder = project / "paper" / "data" / REFERENCE
    if folder.resolve() == data.directory.resolve() or not (folder / "device.json").is_file():
        return None, ()
    try:
        return load(folder), ()
    except DataError as error:
        return None, (("the reference GPU", str(error)),)


def _captions(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "captions.json").read_text(encoding="utf-8"))
    return found


def _assemble(data: StudyData, project: Path, folder: Path) -> LeftOut:
    """Everything the template reads, written into `folder`; what could not be shown, and why."""
    static = _static_of(project)
    report = render_all(data, folder / "figures", forms=("pdf",))
    tree = values(data, static)
    tree["captions"] = _captions(folder / "figures")
    tree["roofline"] = roofline_report.section(data, folder / "figures")
    tree["models"] = model_report.section(data, folder / "figures")
    experiments = experiments_of(data)
    tree["experiments"] = experiment_report.section(data, experiments, folder / "figures")
    repeats = repeatability_report.repeats_of(data)
    tree["repeats"] = repeatability_report.section(data, repeats, project, folder / "figures")
    tree["depth_changes"] = depth_changes(repeats.runs)
    tree["audit"] = audit_report.section(data, experiments, static, project)
    reference, apart = _reference_of(project, data)
    tree["reference"] = values(reference, static) if reference else None
    (folder / "values.json").write_text(json.dumps(tree, indent=1), encoding="utf-8")
    return report.left_out + experiments.left_out + repeats.left_out + apart


@contextmanager
def _writing(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise EnvironmentProblem(
            f"'{out}' can't be written ({error.strerror or error}); give another --out"
        ) from error


def _beginning(path: Path) -> bytes:
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        return file.read(len(PDF))


@contextmanager
def _replacing(out: Path) -> Iterator[Path]:
    """A file beside `out` that takes its place at the end; raises `EnvironmentProblem` at once."""
    final = file_to_replace(out, "--out")
    with _writing(out):
        holds = _beginning(final)
    if holds not in (b"", PDF):
        raise EnvironmentProblem(f"'{out}' holds no PDF and stays; give another file with --out")
    part = final.with_name(f".{final.name}.{os.getpid()}.tmp")
    try:
        with _writing(out):
            final.parent.mkdir(parents=True, exist_ok=True)
            part.touch()
        yield part
        with _writing(out):
            part.replace(final)
    finally:
        with suppress(OSError):
            part.unlink()


def build(data_folder: Path, project: Path, out: Path) -> PaperReport:
    """Make the PDF of `data_folder`'s study. Raises `DataError` and `EnvironmentProblem`."""
    templates = [project / "paper" / name for name in (TEMPLATE, *INCLUDED)]
    for template in templates:
        if not template.is_file():
            raise EnvironmentProblem(
                f"'{template}' is missing; run in a complete clone of the project"
            )
    data = load(data_folder)
    if data.device is None:
        raise DataError(f"'{data_folder}' holds nothing measured, so there is no study to print")
    with _replacing(out) as part, tempfile.TemporaryDirectory(prefix="cutlass-study-") as name:
        folder = Path(name)
        left_out = _assemble(data, project, folder)
        for template in templates:
            shutil.copy(template, folder)
        with _writing(out):
            typst.compile(str(folder / TEMPLATE), output=str(part), root=name)
    return PaperReport(out, left_out)
