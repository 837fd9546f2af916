"""Errors, held-out errors and regret of any model that predicts TFLOPS: plain frozen records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cutlass_study.models.rows import Floats, ModelError, ModelRows

Learn = Callable[[ModelRows], Callable[[ModelRows], Floats]]
AXES = ("tile", "N")


@dataclass(frozen=True, slots=True)
class Errors:
    """Relative errors |predicted/measured - 1| of TFLOPS; R² as it comes out, also below 0."""

    rows: int
    median: float
    p90: float
    r2: float


@dataclass(frozen=True, slots=True, eq=False)
class HeldOut:
    """Predictions of each row by a model fitted without its tile (or its N).

    `extrapolated` rows lie outside the N that the model was fitted to. `skipped` groups could not
    be left out, because too few rows remained; their predictions are NaN.
    """

    axis: str
    errors: Errors
    predicted: Floats
    extrapolated: NDArray[np.bool_]
    extrapolated_errors: Errors | None
    skipped: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Regret:
    """Speed lost by running the model's favourite: 1 - favourite/best, for one problem.

    Where a model can't tell configurations apart, the mean loss over those it ties at the top.
    """

    problem: str
    configurations: int
    favourite: str
    best: str
    lost: float
    extrapolated: bool = False


def errors(predicted: Floats, measured: Floats) -> Errors:
    """Raises `ModelError` where nothing was predicted."""
    known = np.isfinite(predicted)
    if not known.any():
        raise ModelError("the model predicted none of the rows")
    p, m = predicted[known], measured[known]
    relative = np.abs(p / m - 1)
    spread = float(((m - m.mean()) ** 2).sum())
    r2 = 1 - float(((p - m) ** 2).sum()) / spread if spread > 0 else float("nan")
    median, p90 = np.quantile(relative, [0.5, 0.9])
    return Errors(int(known.sum()), float(median), float(p90), r2)


def groups(rows: ModelRows, axis: str) -> NDArray[np.object_]:
    """Which group each row belongs to when one tile, or one problem, is left out."""
    return rows.tile if axis == "tile" else rows.problem


def extrapolates(extent: Floats, fitted: Floats) -> NDArray[np.bool_]:
    """Whether an N lies outside the fitted ones by more than rounding."""
    return np.asarray(
        (extent < fitted.min() * (1 - 1e-9)) | (extent > fitted.max() * (1 + 1e-9)), dtype=bool
    )


def held_out(learn: Learn, rows: ModelRows, axis: str) -> HeldOut:
    """Leave each tile, or each problem, out in turn. Raises `ModelError` if none could be."""
    key = groups(rows, axis)
    predicted = np.full(len(rows), np.nan)
    outside = np.zeros(len(rows), dtype=bool)
    skipped = []
    for value in sorted(set(key)):
        left_out = key == value
        if left_out.all():
            skipped.append(str(value))
            continue
        known = rows.take(~left_out)
        try:
            predicted[left_out] = learn(known)(rows.take(left_out))
        except ModelError:
            skipped.append(str(value))
            continue
        outside[left_out] = extrapolates(rows.extent[left_out], known.extent)
    found = errors(predicted, rows.tflops)
    beyond = outside & np.isfinite(predicted)
    apart = errors(predicted[beyond], rows.tflops[beyond]) if beyond.any() else None
    return HeldOut(axis, found, predicted, outside, apart, tuple(skipped))


def regrets(
    rows: ModelRows, predicted: Floats, extrapolated: NDArray[np.bool_] | None = None
) -> tuple[Regret, ...]:
    """One per problem with a choice: among the rows predicted, against the best of all rows."""
    found = []
    order = sorted(set(zip(rows.extent, rows.problem, strict=True)))
    for _, problem in order:
        places = np.flatnonzero(rows.problem == problem)
        guess = predicted[places]
        if len(places) < 2 or not np.isfinite(guess).any():
            continue
        tflops, guess = rows.tflops[places], np.nan_to_num(guess, nan=-np.inf)
        top = np.flatnonzero(guess >= guess.max() * (1 - 1e-9))
        lost = float(np.mean(1 - tflops[top] / tflops.max()))
        favourite = str(rows.name[places[top[0]]]).split("__")[0] if len(top) == 1 else ""
        beyond = extrapolated is not None and bool(extrapolated[places].any())
        best = str(rows.name[places[tflops.argmax()]]).split("__")[0]
        found.append(Regret(str(problem), len(places), favourite, best, lost, beyond))
    return tuple(found)
