"""The performance models as the paper prints them: tables, figures and two paragraphs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

from cutlass_study import table_formats
from cutlass_study.models import ModelReport, evaluate
from cutlass_study.models import figures as model_figures
from cutlass_study.models import tables as model_tables
from cutlass_study.models.report import PHYSICAL, ModelResult, measured_intervals
from cutlass_study.study_data import StudyData
from cutlass_study.style import Figure, save, styled
from cutlass_study.views import NothingToShow

Tree = dict[str, Any]
LONG_ROWS = 20  # of a table that may break over pages
IN_PAPER = (model_tables.document_depth_model, model_tables.parameters)  # the others are wide


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:.1f} %"


def _physical(result: ModelResult) -> Tree:
    return {
        "family": result.family,
        "rows": str(result.rows),
        "parameters": str(result.free_parameters),
        "refusal": result.refusal or None,
        "in_sample": _percent(result.in_sample.median if result.in_sample else None),
        "held_out": [
            {"axis": one.axis, "median": _percent(one.errors.median)} for one in result.held_out
        ],
        "mean_regret": _percent(result.mean_regret),
        "worst_regret": _percent(result.worst_regret),
    }


def _outside(report: ModelReport) -> Tree | None:
    """NVIDIA's heuristics and the physical model on the problems where both chose a kernel."""
    asked = report.heuristics
    if not asked.regrets:
        return None
    problems = {regret.problem for regret in asked.regrets}
    physical = report.result(PHYSICAL, asked.family)
    own = [regret.lost for regret in physical.regrets if regret.problem in problems]
    held_out = [regret.lost for regret in physical.held_out_regrets if regret.problem in problems]
    return {
        "version": asked.version,
        "family": asked.family,
        "problems": str(len(problems)),
        "shapes": ", ".join(regret.problem.replace("x", "×") for regret in asked.regrets),
        "lost": _percent(asked.mean_regret),
        "own": _percent(mean(own) if own else None),
        "held_out": _percent(mean(held_out) if held_out else None),
    }


def _figures(report: ModelReport, data: StudyData, folder: Path) -> list[Tree]:
    makers: tuple[Callable[[], Figure], ...] = (
        partial(model_figures.depth_models, report, measured_intervals(data)),
        partial(model_figures.predicted_measured, report),
    )
    found = []
    for make in makers:
        try:
            with styled():
                figure = make()
                save(figure, folder, ("pdf",))
        except NothingToShow:
            continue
        found.append({"file": f"{figure.name}.pdf", "caption": figure.caption})
    return found


def _tables(report: ModelReport, folder: Path) -> list[Tree]:
    found = []
    for make in IN_PAPER:
        try:
            table = make(report)
        except NothingToShow:
            continue
        table_formats.save(table, folder)
        long = len(table.frame) > LONG_ROWS
        found.append({"file": f"{table.name}.typ", "caption": table.caption, "long": long})
    return found


def section(data: StudyData, folder: Path) -> Tree:
    """Fit every model to `data`, write its tables and figures into `folder`."""
    report = evaluate(data)
    document = report.document
    return {
        "kappa": f"{document.kappa:.2f}",
        "kappa_low": f"{document.kappa_low:.2f}",
        "kappa_high": f"{document.kappa_high:.2f}",
        "asymptote": f"{document.asymptote_tflops:.1f}",
        "s2": f"{document.s2_tflops:.1f}",
        "finding": document.finding,
        "cap": report.occupancy_caps[1].finding,  # by the true CTAs; the other says less
        "physical": [_physical(r) for r in report.results if r.model == PHYSICAL],
        "outside": _outside(report),
        "notes": list(report.notes),
        "figures": _figures(report, data, folder),
        "tables": _tables(report, folder),
    }
