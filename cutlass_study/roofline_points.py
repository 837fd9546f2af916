"""Measured kernels on the roofline: the best of each tile, beside the model of that tile."""

from __future__ import annotations

from typing import Any

from cutlass_study.comparisons import best_per, measured_rows
from cutlass_study.config import parse_shape
from cutlass_study.roofline import Work
from cutlass_study.roofline_options import element_types
from cutlass_study.roofline_rows import (
    Measured,
    RooflineRow,
    RooflineTask,
    one_pass_row,
    tile_row,
)
from cutlass_study.views import NothingToShow, StudyRecords, StudyView, make_views

INPUT_DTYPE = "fp16"  # of every kernel of the study
_OUTPUTS = {"f32": "fp32", "f16": "fp16"}


def measured_view(data: StudyRecords, problem: str | None = None) -> StudyView:
    """The view of `problem` (`MxNxK`; default: the data's main one) that has measurements.

    Raises `NothingToShow` where nothing was measured, `UsageError` for a problem not in the data.
    """
    for view in make_views(data, problem):
        if view.regimes:
            return view
    raise NothingToShow("nothing in this data was measured")


def work_of(view: StudyView) -> tuple[Work, str]:
    """The GEMM that every row of the view computes, and its output's type; C if it was read."""
    row = view.rows.iloc[0]
    types, output = element_types(INPUT_DTYPE, _OUTPUTS[row["output"] or "f32"])
    reads_c = bool(row["beta"] > 0 or row["beta"] < 0)
    return Work(int(row["m"]), int(row["n"]), int(row["k"]), types, reads_c), output


def measured_points(task: RooflineTask, view: StudyView) -> list[RooflineRow]:
    """The fastest of each family and tile, fastest first, in the view's first regime.

    A kernel's row is the model of its own threadblock tile, with no reuse between CTAs; cuBLAS,
    which does not tell its tile, gets one pass.
    """
    regime = view.regimes[0]
    best = best_per(measured_rows(view, regime), ["family", "threadblock_shape", "variant"])
    return [_point(task, row, regime) for _, row in best.iterrows()]


def _point(task: RooflineTask, row: Any, regime: str) -> RooflineRow:
    family = "cublas_lt" if row["variant"] == "lt_best" else str(row["family"])
    measured = Measured(str(row["label"]), family, regime, float(row["tflops"]))
    if not row["threadblock_shape"]:
        return one_pass_row(task, measured)
    return tile_row(task, parse_shape(row["threadblock_shape"], "threadblock shape"), measured)
