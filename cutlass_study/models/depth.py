"""S/(S+κ), and γ(S) with it, fitted to recorded data: one curve per tile, refused where too short.

T(S) = A·S/(S+κ)·(CTAs(S)/CTAs_max)^p in TFLOPS, least squares on log TFLOPS within A > 0,
0 ≤ κ ≤ 50, -3 ≤ p ≤ 3. Each tile is taken at its largest measured N with the other axes as in its
fastest configuration, so that only S varies.

`sm80` at S=2 is a different main loop (register-staged, no cp.async), not one stage fewer: the fit
without it is the one that tests the formula, and has one point fewer. Both are given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import least_squares
from scipy.stats import t as student

from cutlass_study.models.fitting import refuse_too_few
from cutlass_study.models.rows import Floats, ModelError, ModelRows

_LOW, _HIGH = np.array([1e-3, 0.0, -3.0]), np.array([1e5, 50.0, 3.0])
_AT_BOUND = 1e-3


@dataclass(frozen=True, slots=True)
class DepthCurve:
    """One tile's fit, or why there is none. Intervals are 95 %, from the covariance (Student's t).

    `s4_error` is the prediction at the deepest S by a fit to the shallower ones, relative: None
    where those are too few to fit.
    """

    family: str
    tile: str
    form: str  # "S/(S+κ)" or "γ(S)·S/(S+κ)"
    with_s2: bool
    stages: tuple[int, ...]
    ctas_per_sm: tuple[int, ...]
    measured_tflops: tuple[float, ...]
    free_parameters: int
    asymptote: float | None = None
    kappa: float | None = None
    kappa_low: float | None = None
    kappa_high: float | None = None
    exponent: float | None = None
    worst_error: float | None = None  # in-sample
    r2: float | None = None
    deepest_error: float | None = None
    refusal: str = ""

    def predict(self, stages: Floats) -> Floats:
        """TFLOPS at `stages`, the CTAs per SM held at their maximum. Raises `ModelError`."""
        if self.asymptote is None or self.kappa is None:
            raise ModelError(self.refusal)
        return np.asarray(self.asymptote * stages / (stages + self.kappa))


def depth_series(rows: ModelRows) -> dict[str, ModelRows]:
    """By tile: rows at its largest N that differ in S alone, as its fastest configuration does."""
    found = {}
    for tile in sorted(set(rows.tile)):
        mine = rows.take(rows.tile == tile)
        mine = mine.take(mine.extent == mine.extent[_problem_with_most_depths(mine)])
        fastest = str(mine.name[mine.tflops.argmax()])
        same = np.array(
            [_without_depth(str(name)) == _without_depth(fastest) for name in mine.name]
        )
        series = mine.take(same)
        series = series.take(np.argsort(series.stages, kind="stable"))
        _, first = np.unique(series.stages, return_index=True)
        found[tile] = series.take(first)
    return found


def _problem_with_most_depths(rows: ModelRows) -> int:
    counts = [
        (len(set(rows.stages[rows.extent == extent])), float(extent), place)
        for place, extent in enumerate(rows.extent)
    ]
    return max(counts)[2]


def _without_depth(name: str) -> str:
    return "_".join(part for part in name.split("_") if not _is_depth(part))


def _is_depth(part: str) -> bool:
    return part == "sauto" or (part[:1] == "s" and part[1:].isdigit() and len(part) < 4)


def depth_curves(rows: ModelRows) -> tuple[DepthCurve, ...]:
    """Every tile, both forms, with S=2 and (for `sm80`) without."""
    curves = []
    for tile, series in depth_series(rows).items():
        for with_s2 in (True, False) if rows.family == "sm80" else (True,):
            chosen = series if with_s2 else series.take(series.stages > 2)
            curves += [_curve(rows.family, tile, chosen, with_s2, cap) for cap in (False, True)]
    return tuple(curves)


def _curve(family: str, tile: str, series: ModelRows, with_s2: bool, cap: bool) -> DepthCurve:
    facts: dict[str, Any] = dict(
        family=family,
        tile=tile,
        form="γ(S)·S/(S+κ)" if cap else "S/(S+κ)",
        with_s2=with_s2,
        stages=tuple(int(s) for s in series.stages),
        ctas_per_sm=tuple(int(c) for c in series.ctas_per_sm),
        measured_tflops=tuple(float(v) for v in series.tflops),
        free_parameters=3 if cap else 2,
    )
    try:
        values, half = _fit(series, cap)
    except ModelError as refusal:
        return DepthCurve(**facts, refusal=str(refusal))
    predicted = _predict(series, values)
    measured = series.tflops
    spread = float(((measured - measured.mean()) ** 2).sum())
    r2 = 1 - float(((predicted - measured) ** 2).sum()) / spread if spread else float("nan")
    return DepthCurve(
        **facts,
        asymptote=float(values[0]),
        kappa=float(values[1]),
        kappa_low=max(0.0, float(values[1] - half)),
        kappa_high=float(values[1] + half),
        exponent=float(values[2]) if cap else None,
        worst_error=float(np.abs(predicted / measured - 1).max()),
        r2=r2,
        deepest_error=_deepest_error(series, cap),
    )


def _fit(series: ModelRows, cap: bool) -> tuple[Floats, float]:
    """(A, κ, p) and half the 95 % interval of κ."""
    what = "S/(S+κ) with γ(S)" if cap else "S/(S+κ)"
    count = 3 if cap else 2
    refuse_too_few(len(series), count, what)
    if cap and len(set(series.ctas_per_sm)) == 1:
        raise ModelError(
            f"the CTAs per SM are {series.ctas_per_sm[0]:g} at every S: γ(S) is 1 whatever p is"
        )
    start = np.array([series.tflops.max() * 1.5, 2.0, 0.0])[:count]
    logs = np.log(series.tflops)

    def residuals(values: Floats) -> Any:
        return np.log(_predict(series, values)) - logs

    found = least_squares(residuals, start, bounds=(_LOW[:count], _HIGH[:count]), x_scale=start + 1)
    freedom = len(series) - count
    variance = float((found.fun**2).sum()) / freedom
    covariance = variance * np.linalg.pinv(found.jac.T @ found.jac)
    half = float(student.ppf(0.975, freedom) * np.sqrt(max(covariance[1, 1], 0)))
    return np.asarray(found.x, dtype=float), half


def _predict(series: ModelRows, values: Floats) -> Floats:
    efficiency = series.stages / (series.stages + values[1])
    if len(values) == 2:
        return np.asarray(values[0] * efficiency)
    share = series.ctas_per_sm / series.ctas_per_sm.max()
    return np.asarray(values[0] * efficiency * share ** values[2])


def _deepest_error(series: ModelRows, cap: bool) -> float | None:
    """Fit without the deepest S, predict it; two points and two parameters are solved exactly."""
    shallow = series.take(series.stages < series.stages.max())
    if cap or len(shallow) < 2:
        return None
    (s, t), (u, v) = zip(shallow.stages[-2:], shallow.tflops[-2:], strict=True)
    rho = t * u / (v * s)  # = (u+κ)/(s+κ)
    if abs(rho - 1) < 1e-12:
        return None
    kappa = (u - rho * s) / (rho - 1)
    asymptote = v * (u + kappa) / u
    deepest = series.stages.argmax()
    depth = series.stages[deepest]
    predicted = asymptote * depth / (depth + kappa)
    if not np.isfinite(predicted) or predicted <= 0 or depth + kappa <= 0:
        return None  # a formula that gives a negative speed predicts nothing
    return float(predicted / series.tflops[deepest] - 1)
