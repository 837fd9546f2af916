"""Every model on one set of recorded data: `evaluate(data) -> ModelReport`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import mean

import numpy as np

from cutlass_study.models import null
from cutlass_study.models.depth import DepthCurve, depth_curves, depth_series
from cutlass_study.models.depth_pool import DepthPool, depth_pool
from cutlass_study.models.document import (
    DocumentModel,
    OccupancyCap,
    document_model,
    occupancy_caps,
)
from cutlass_study.models.evaluation import (
    AXES,
    Errors,
    HeldOut,
    Learn,
    Regret,
    errors,
    held_out,
    regrets,
)
from cutlass_study.models.fitting import Estimate
from cutlass_study.models.heuristics import HeuristicsReport, heuristics_report
from cutlass_study.models.physical_fit import (
    PhysicalModel,
    clock_errors,
    cycle_learner,
    fit_physical,
    learner,
    parameter_estimates,
)
from cutlass_study.models.rows import (
    MODELLED,
    Floats,
    ModelError,
    ModelRows,
    model_rows,
    undecided_shapes,
    unrested_rows,
    usable,
)
from cutlass_study.study_data import StudyData

PHYSICAL, CONSTANT, PER_TILE = "physical", "constant (null)", "one value per tile (null)"
PER_CONFIGURATION = "best elsewhere (null)"


@dataclass(frozen=True, slots=True, eq=False)
class ModelResult:
    """One model of one family: all errors are relative errors of TFLOPS.

    `at_measured_clock` judges the cycles alone (physical model). `regrets` is of the model that saw
    every row, `held_out_regrets` of the one that never saw that problem; problems without a burst
    regime, which no fit saw, are the last of either. With a `refusal`, nothing else is filled.
    """

    model: str
    family: str
    rows: int
    free_parameters: int
    parameters: tuple[Estimate, ...] = ()
    in_sample: Errors | None = None
    predicted: Floats | None = None
    at_measured_clock: Errors | None = None
    held_out: tuple[HeldOut, ...] = ()
    held_out_at_measured_clock: tuple[HeldOut, ...] = ()
    clock: Errors | None = None
    regrets: tuple[Regret, ...] = ()
    held_out_regrets: tuple[Regret, ...] = ()
    fitted: PhysicalModel | None = None
    refusal: str = ""

    @property
    def mean_regret(self) -> float | None:
        """Over all problems with a choice; None without one."""
        return mean(regret.lost for regret in self.regrets) if self.regrets else None

    @property
    def worst_regret(self) -> float | None:
        """Over all problems with a choice; None without one."""
        return max((regret.lost for regret in self.regrets), default=None)


@dataclass(frozen=True, slots=True, eq=False)
class ModelReport:
    """Everything that tables, figures, paper and audit need. `notes` are sentences to print."""

    document: DocumentModel
    occupancy_caps: tuple[OccupancyCap, OccupancyCap]
    depth: tuple[DepthCurve, ...]
    pools: dict[str, DepthPool]
    results: tuple[ModelResult, ...]
    heuristics: HeuristicsReport
    rows: dict[str, ModelRows]
    notes: tuple[str, ...]

    def result(self, model: str, family: str) -> ModelResult:
        """Raises KeyError for a model or family that the data could not fill."""
        for found in self.results:
            if (found.model, found.family) == (model, family):
                return found
        raise KeyError(f"no model '{model}' of family '{family}'")


def evaluate(
    data: StudyData, *, regime: str = "burst", intervals: bool = True, outside: bool = True
) -> ModelReport:
    """Fit, hold out and rank on recorded data; deterministic, seconds, no GPU.

    Without `intervals` the bootstrap is left out (intervals are then empty); without `outside`
    NVIDIA's heuristics are not asked. A model that can't be fitted becomes a result with a refusal.
    """
    rows: dict[str, ModelRows] = {}
    notes = ["cuBLAS rows are not modelled: their configurations are unknown."]
    notes += [
        f"{m}×{n}×{k} is left out: {lacking} kernels have no valid sample there."
        for (m, n, k), lacking in undecided_shapes(data, regime).items()
    ]
    results: list[ModelResult] = []
    ranked: dict[str, ModelRows] = {}
    unrested_problems: set[str] = set()  # problems without a burst regime
    curves: list[DepthCurve] = []
    pools: dict[str, DepthPool] = {}
    for family in MODELLED:
        try:
            rows[family] = model_rows(data, family, regime)
        except ModelError as problem:
            results.append(ModelResult(PHYSICAL, family, 0, 0, refusal=str(problem)))
            continue
        left_out = usable(data, family, regime)[1]
        if left_out:
            rows_are = "row (N ≤ 512) is" if left_out == 1 else "rows (N ≤ 512) are"
            notes.append(f"{left_out} launch-bound {family} {rows_are} left out.")
        unrested = unrested_rows(data, family) if regime == "burst" else None
        ranked[family] = rows[family].joined(unrested) if unrested else rows[family]
        unrested_problems |= set(map(str, unrested.problem)) if unrested else set()
        results += _family_results(rows[family], unrested, intervals)
        curves += depth_curves(rows[family])
        pools[family] = depth_pool(family, depth_series(rows[family]))
    notes += _unrested_notes(unrested_problems)
    asked = heuristics_report(ranked, data) if outside else HeuristicsReport(reason="not asked")
    return ModelReport(
        document_model(), occupancy_caps(), tuple(curves), pools, tuple(results), asked, rows,
        tuple(notes),
    )  # fmt: skip


def measured_intervals(data: StudyData, regime: str = "burst") -> dict[str, tuple[float, float]]:
    """(low, high) TFLOPS by row name: the interval of the ratio to cuBLAS, scaled to the row."""
    frame = data.results
    chosen = frame[(frame["regime"] == regime) & (frame["ratio_to_cublas"] > 0)]
    scale = chosen["tflops"] / chosen["ratio_to_cublas"]
    lows, highs = chosen["ratio_low"] * scale, chosen["ratio_high"] * scale
    return {
        str(name): (float(low), float(high))
        for name, low, high in zip(chosen["name"], lows, highs, strict=True)
        if low == low and high == high
    }


def _unrested_notes(problems: set[str]) -> list[str]:
    return [
        f"{problem.replace('x', '×')} has no burst regime: no model is fitted to it, but the speed "
        "lost there, in the sustained regime, is counted too."
        for problem in sorted(problems)
    ]


def _family_results(
    rows: ModelRows, unrested: ModelRows | None, intervals: bool
) -> list[ModelResult]:
    tiles = len(set(rows.tile))
    configurations = len({str(name).split("__")[0] for name in rows.name})
    return [
        _physical(rows, unrested, intervals),
        _plain(rows, unrested, CONSTANT, 1, null.constant),
        _plain(rows, unrested, PER_TILE, tiles, null.per_tile),
        _plain(rows, unrested, PER_CONFIGURATION, configurations, null.per_configuration),
    ]


def _unrested_regrets(
    unrested: ModelRows | None, predict: Callable[[ModelRows], Floats]
) -> tuple[Regret, ...]:
    if unrested is None:
        return ()
    return regrets(unrested, predict(unrested), np.ones(len(unrested), dtype=np.bool_))


def _plain(
    rows: ModelRows, unrested: ModelRows | None, model: str, parameters: int, learn: Learn
) -> ModelResult:
    try:
        predict = learn(rows)
        predicted = predict(rows)
    except ModelError as refusal:
        return ModelResult(model, rows.family, len(rows), parameters, refusal=str(refusal))
    apart = _held_out_axes(learn, rows)
    beyond = _unrested_regrets(unrested, predict)
    return ModelResult(
        model, rows.family, len(rows), parameters,
        in_sample=errors(predicted, rows.tflops),
        predicted=predicted,
        held_out=apart,
        regrets=regrets(rows, predicted) + beyond,
        held_out_regrets=_regrets_by_problem(rows, apart) + beyond,
    )  # fmt: skip


def _held_out_axes(learn: Learn, rows: ModelRows) -> tuple[HeldOut, ...]:
    found = []
    for axis in AXES:
        try:
            found.append(held_out(learn, rows, axis))
        except ModelError:  # a single tile, or a single problem: nothing can be left out
            continue
    return tuple(found)


def _regrets_by_problem(rows: ModelRows, apart: tuple[HeldOut, ...]) -> tuple[Regret, ...]:
    for one in apart:
        if one.axis == "N":
            return regrets(rows, one.predicted, one.extrapolated)
    return ()


def _physical(rows: ModelRows, unrested: ModelRows | None, intervals: bool) -> ModelResult:
    from cutlass_study.models import clock, physical

    count = len(physical.PARAMETERS[rows.family]) + len(clock.PARAMETERS)
    try:
        model = fit_physical(rows)
        found = parameter_estimates(rows, model) if intervals else ()
    except ModelError as refusal:
        return ModelResult(PHYSICAL, rows.family, len(rows), count, refusal=str(refusal))
    predicted = model.predict(rows)
    apart = _held_out_axes(learner(model), rows)
    beyond = _unrested_regrets(unrested, model.predict)
    at_clock = rows.flop / (model.cycles(rows) / rows.clock_mhz / 1e3) / 1e9
    return ModelResult(
        PHYSICAL, rows.family, len(rows), count,
        parameters=found,
        in_sample=errors(predicted, rows.tflops),
        predicted=predicted,
        at_measured_clock=errors(np.asarray(at_clock), rows.tflops),
        held_out=apart,
        held_out_at_measured_clock=_held_out_axes(cycle_learner(model), rows),
        clock=clock_errors(rows, model),
        regrets=regrets(rows, predicted) + beyond,
        held_out_regrets=_regrets_by_problem(rows, apart) + beyond,
        fitted=model,
    )  # fmt: skip
