"""Least squares on log errors within bounds, with intervals, and the refusal to fit too little.

Intervals are percentiles of a bootstrap over whole tiles (rows of a tile share their errors), so
they are wider, and more honest, than those of a covariance matrix that takes rows as independent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from cutlass_study.models.rows import Floats, ModelError, ModelRows

LOSS_SCALE = 0.1  # log errors above it count linearly, not squared: outliers do not steer the fit
BOOTSTRAP_RESAMPLES = 100
SEED = 0
LEAST_TILES = 5


@dataclass(frozen=True, slots=True)
class Parameter:
    """One free number: where the search starts and between what it stays."""

    name: str
    unit: str
    meaning: str
    start: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """A fitted parameter with its 95 % interval. `at_bound`: the data alone did not hold it."""

    name: str
    unit: str
    meaning: str
    value: float
    low: float
    high: float
    at_bound: bool


Predict = Callable[[ModelRows, Floats], Floats]


def refuse_too_few(rows: int, parameters: int, what: str) -> None:
    """Raise `ModelError` unless there are more rows than free parameters."""
    if rows <= parameters:
        raise ModelError(
            f"{what} has {parameters} free parameters and {rows} rows: "
            "a fit that must have more rows than parameters is refused"
        )


def fit(
    predict: Predict,
    target: Floats,
    rows: ModelRows,
    parameters: Sequence[Parameter],
    what: str,
    start: Floats | None = None,
) -> Floats:
    """Parameters that minimize soft-L1 log(prediction/target). Raises `ModelError` (too few)."""
    refuse_too_few(len(rows), len(parameters), what)
    low = np.array([parameter.low for parameter in parameters])
    high = np.array([parameter.high for parameter in parameters])
    first = np.array([parameter.start for parameter in parameters]) if start is None else start
    inside = np.clip(first, low + 1e-6 * (high - low), high - 1e-6 * (high - low))
    log_target = np.log(target)

    def residuals(values: Floats) -> Any:
        return np.log(predict(rows, values)) - log_target

    scale = np.abs([parameter.start for parameter in parameters]) + 1e-9
    found = least_squares(
        residuals, inside, bounds=(low, high), x_scale=scale, loss="soft_l1", f_scale=LOSS_SCALE
    )
    return np.asarray(found.x, dtype=float)


def resample(rows: ModelRows, generator: np.random.Generator) -> NDArray[np.int64]:
    """Indices of a bootstrap over tiles: as many as there are, drawn with replacement.

    Below `LEAST_TILES` tiles single rows are drawn.
    """
    tiles = sorted(set(rows.tile))
    if len(tiles) < LEAST_TILES:
        return generator.integers(len(rows), size=len(rows))
    drawn = generator.integers(len(tiles), size=len(tiles))
    return np.concatenate([np.flatnonzero(rows.tile == tiles[place]) for place in drawn])


def estimates(
    parameters: Sequence[Parameter], values: Floats, samples: Floats
) -> tuple[Estimate, ...]:
    """Fitted values with the 2.5 and 97.5 percentiles of `samples` (resamples by parameters)."""
    lows, highs = np.percentile(samples, [2.5, 97.5], axis=0)
    found = []
    for parameter, value, low, high in zip(parameters, values, lows, highs, strict=True):
        slack = 1e-3 * (parameter.high - parameter.low)
        bound = value - parameter.low < slack or parameter.high - value < slack
        found.append(
            Estimate(
                parameter.name, parameter.unit, parameter.meaning, float(value),
                float(min(low, value)), float(max(high, value)), bool(bound),
            )
        )  # fmt: skip
    return tuple(found)
