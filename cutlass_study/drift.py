"""Whether a control moved over a run by more than its own noise; pure functions of samples."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from cutlass_study.records import Identity, Sample
from cutlass_study.stats import MIN_ROUNDS, is_control_of, valid

DRIFT_SPREADS = 2.0  # a control that moved by more than this many of its spreads has drifted


@dataclass(frozen=True, slots=True)
class Drift:
    """How far a control moved over a run: relative change of its time, and its spread.

    `change` is from the median of the first third to that of the last; `spread` is one standard
    deviation from sample to sample, estimated from successive differences so that the drift itself
    does not count as noise.
    """

    change: float
    spread: float

    @property
    def excessive(self) -> bool:
        """Whether the drift is beyond the control's own noise."""
        return abs(self.change) > DRIFT_SPREADS * self.spread


def drift(samples: Iterable[Sample]) -> Drift | None:
    """Drift of one control in one regime, in the order taken; None for too few rounds to tell."""
    times = np.array([sample.time_ms for sample in valid(samples)])
    if len(times) < 2 * MIN_ROUNDS:
        return None
    third, middle = len(times) // 3, float(np.median(times))
    change = float(np.median(times[-third:]) - np.median(times[:third])) / middle
    # 1.4826 times the median absolute deviation estimates a normal's standard deviation; a
    # difference of two samples has sqrt(2) of it.
    spread = 1.4826 * float(np.median(np.abs(np.diff(times)))) / math.sqrt(2) / middle
    return Drift(change, spread)


def control_drifts(samples: Iterable[tuple[Identity, Sample]]) -> dict[tuple[Identity, str], Drift]:
    """Drift of every control in each of its regimes, where there are rounds enough to tell."""
    taken: dict[tuple[Identity, str], list[Sample]] = {}
    for identity, sample in samples:
        if is_control_of(identity, identity):
            taken.setdefault((identity, sample.regime), []).append(sample)
    drifts = {key: drift(own) for key, own in taken.items()}
    return {key: found for key, found in drifts.items() if found is not None}
