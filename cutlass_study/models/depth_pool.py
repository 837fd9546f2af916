"""One κ and one p for all tiles of a family: the only way in which γ(S) can be fitted at all.

log T = a(tile) + log(S/(S+κ)) + p·log(CTAs(S)/CTAs_max of the tile). The scales a(tile) count as
free parameters. `sm80` at S=2, another main loop, is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import least_squares
from scipy.stats import t as student

from cutlass_study.models.fitting import refuse_too_few
from cutlass_study.models.rows import Floats, ModelError, ModelRows

_LOW, _HIGH = np.array([0.0, -3.0]), np.array([50.0, 3.0])


@dataclass(frozen=True, slots=True)
class DepthPool:
    """κ and p shared by the tiles of a family, 95 % from the covariance; or the refusal.

    `deepest_errors`: |error| at each tile's deepest S, κ and p fitted without that tile and its
    scale taken from its shallowest S; the same for a null model that predicts no change with S.
    """

    family: str
    rows: int
    free_parameters: int
    kappa: float | None = None
    kappa_low: float | None = None
    kappa_high: float | None = None
    kappa_at_bound: bool = False
    exponent: float | None = None
    exponent_low: float | None = None
    exponent_high: float | None = None
    median_error: float | None = None  # in-sample
    deepest_errors: tuple[float, ...] = ()
    null_errors: tuple[float, ...] = ()
    refusal: str = ""


def depth_pool(family: str, series: Mapping[str, ModelRows]) -> DepthPool:
    """Fit κ and p over the depth series of every tile (`depth.depth_series`)."""
    kept = {
        tile: rows.take(rows.stages > 2) if family == "sm80" else rows
        for tile, rows in series.items()
    }
    kept = {tile: rows for tile, rows in kept.items() if len(rows) > 1}
    count = sum(map(len, kept.values()))
    varies = any(len(set(rows.ctas_per_sm)) > 1 for rows in kept.values())
    parameters = len(kept) + 1 + varies
    try:
        refuse_too_few(count, parameters, "one κ and p for all tiles")
        values, jacobian, residuals = _fit(kept, varies)
    except ModelError as refusal:
        return DepthPool(family, count, parameters, refusal=str(refusal))
    freedom = count - parameters
    covariance = float((residuals**2).sum()) / freedom * np.linalg.pinv(jacobian.T @ jacobian)
    half = student.ppf(0.975, freedom) * np.sqrt(np.maximum(np.diag(covariance), 0))
    deepest, unchanged = _deepest(kept, varies)
    exponent = float(values[1]) if varies else None
    return DepthPool(
        family, count, parameters,
        kappa=float(values[0]),
        kappa_low=float(max(values[0] - half[0], 0)),
        kappa_high=float(values[0] + half[0]),
        kappa_at_bound=bool(values[0] < 1e-3 or values[0] > _HIGH[0] - 1e-3),
        exponent=exponent,
        exponent_low=None if exponent is None else exponent - float(half[1]),
        exponent_high=None if exponent is None else exponent + float(half[1]),
        median_error=float(np.median(np.abs(np.expm1(residuals)))),
        deepest_errors=deepest,
        null_errors=unchanged,
    )  # fmt: skip


def _shape(rows: ModelRows, values: Floats) -> Floats:
    """log of S/(S+κ)·γ, without the tile's scale."""
    exponent = values[1] if len(values) > 1 else 0.0
    share = rows.ctas_per_sm / rows.ctas_per_sm.max()
    return np.asarray(np.log(rows.stages / (rows.stages + values[0])) + exponent * np.log(share))


def _fit(kept: Mapping[str, ModelRows], varies: bool) -> tuple[Floats, Floats, Floats]:
    """(values, jacobian, residuals); each tile's scale is the mean of its own residuals."""

    def residuals(values: Floats) -> Any:
        parts = []
        for rows in kept.values():
            gap = np.log(rows.tflops) - _shape(rows, values)
            parts.append(gap - gap.mean())
        return np.concatenate(parts)

    size = 2 if varies else 1
    start = np.array([2.0, 0.1])[:size]
    found = least_squares(residuals, start, bounds=(_LOW[:size], _HIGH[:size]))
    return np.asarray(found.x), np.asarray(found.jac), np.asarray(found.fun)


def _deepest(
    kept: Mapping[str, ModelRows], varies: bool
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    found, unchanged = [], []
    for tile, rows in kept.items():
        others = {name: other for name, other in kept.items() if name != tile}
        if not others:
            continue
        values = _fit(others, varies)[0]
        shape = _shape(rows, values)
        change = float(np.exp(shape[-1] - shape[0]))
        measured = float(rows.tflops[-1] / rows.tflops[0])
        found.append(abs(change / measured - 1))
        unchanged.append(abs(1 / measured - 1))
    return tuple(found), tuple(unchanged)
