"""Fitting the physical model: cycles at the measured clock, then the clock, then both together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cutlass_study.models import clock, physical
from cutlass_study.models.evaluation import Errors, errors, extrapolates
from cutlass_study.models.fitting import (
    BOOTSTRAP_RESAMPLES,
    SEED,
    Estimate,
    estimates,
    fit,
    resample,
)
from cutlass_study.models.rows import Floats, ModelError, ModelRows


@dataclass(frozen=True, slots=True, eq=False)
class PhysicalModel:
    """Fitted numbers of one family and the range of N they come from."""

    family: str
    cycle_values: Floats
    clock_values: Floats
    least_extent: float
    most_extent: float

    def cycles(self, rows: ModelRows) -> Floats:
        """SM cycles of a launch, DRAM's share at the measured clock of `rows`."""
        return physical.cycles(rows, self.cycle_values)

    def predict(self, rows: ModelRows) -> Floats:
        """TFLOPS with the clock predicted too; always above 0."""
        time_ms, _ = clock.time_and_clock(rows, self.cycle_values, self.clock_values)
        return np.asarray(rows.flop / time_ms / 1e9)

    def clocks(self, rows: ModelRows) -> Floats:
        """Predicted delivered clock in MHz."""
        return clock.time_and_clock(rows, self.cycle_values, self.clock_values)[1]

    def extrapolates(self, rows: ModelRows) -> NDArray[np.bool_]:
        """Whether a row's N lies outside what the model was fitted to."""
        return extrapolates(rows.extent, np.array([self.least_extent, self.most_extent]))


def fit_physical(rows: ModelRows, start: PhysicalModel | None = None) -> PhysicalModel:
    """Raises `ModelError` unless there are more rows than free parameters."""
    family = rows.family
    if family not in physical.PARAMETERS:
        raise ModelError(f"the physical model knows the families sm80 and sm90, not {family}")
    cycle_values = fit(
        physical.cycles, rows.cycles, rows, physical.PARAMETERS[family],
        f"the physical model of {family}", start.cycle_values if start else None,
    )  # fmt: skip
    settled = rows.take(rows.extent >= clock.LEAST_EXTENT * (1 - 1e-9))

    def clock_of(chosen: ModelRows, values: Floats) -> Floats:
        return clock.clock_mhz(chosen, values, chosen.cycles, chosen.time_ms)

    clock_values = fit(
        clock_of, settled.clock_mhz, settled, clock.PARAMETERS,
        f"the clock model of {family}", start.clock_values if start else None,
    )  # fmt: skip
    return PhysicalModel(
        family, cycle_values, clock_values, float(rows.extent.min()), float(rows.extent.max())
    )


def learner(start: PhysicalModel | None) -> Callable[[ModelRows], Callable[[ModelRows], Floats]]:
    """For `evaluation.held_out`: TFLOPS with predicted clock."""
    return lambda rows: fit_physical(rows, start).predict


def cycle_learner(
    start: PhysicalModel | None,
) -> Callable[[ModelRows], Callable[[ModelRows], Floats]]:
    """For `evaluation.held_out`: TFLOPS at the measured clock, so that only cycles are judged."""

    def learn(rows: ModelRows) -> Callable[[ModelRows], Floats]:
        model = fit_physical(rows, start)
        return lambda new: new.flop / (model.cycles(new) / new.clock_mhz / 1e3) / 1e9

    return learn


def parameter_estimates(rows: ModelRows, model: PhysicalModel) -> tuple[Estimate, ...]:
    """All parameters with 95 % intervals, seeded bootstrap; () if too few draws can be fitted."""
    generator = np.random.default_rng(SEED)
    samples: list[Floats] = []
    for _ in range(BOOTSTRAP_RESAMPLES):
        try:
            drawn = fit_physical(rows.take(resample(rows, generator)), model)
        except ModelError:  # a draw without enough rows
            continue
        samples.append(np.concatenate([drawn.cycle_values, drawn.clock_values]))
    if len(samples) < BOOTSTRAP_RESAMPLES // 2:
        return ()
    parameters = (*physical.PARAMETERS[rows.family], *clock.PARAMETERS)
    values = np.concatenate([model.cycle_values, model.clock_values])
    return estimates(parameters, values, np.array(samples))


def clock_errors(rows: ModelRows, model: PhysicalModel) -> Errors:
    """Relative errors of the predicted clock, R² in MHz."""
    return errors(model.clocks(rows), rows.clock_mhz)
