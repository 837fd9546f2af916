"""How rounds go: their order, when a configuration has enough, and how long the card rests."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from cutlass_study import stats
from cutlass_study.prepare import Prepared
from cutlass_study.records import Identity, Regime, RowOutcome, Sample
from cutlass_study.regimes import BURST_GAP_S, names_power

# Configurations between two control samples within a round. Under the power limit a control is as
# noisy as what is compared with it, so it is sampled more often there.
CONTROL_EVERY: dict[Regime, int] = {"burst": 12, "sustained": 6}
TARGET_HALF_WIDTH: dict[Regime, float] = {"burst": 0.002, "sustained": 0.01}
# The fewest in which a sign test can decide a hundred comparisons at once: 100·2·0.5^12 < 5 %.
MIN_ROUNDS = 12
MAX_ROUNDS: dict[Regime, int] = {"burst": 400, "sustained": 100}
LEAST_GAP_S, MOST_GAP_S = BURST_GAP_S, 0.2
SETTLE_TIMEOUT_S = 5.0  # of warming up before the rounds of a problem and regime
STEADY_CLOCK = 0.02  # relative: a control this far off its own median means an unrested card


@dataclass(slots=True)
class Candidate:
    """A verified kernel during sampling."""

    item: Prepared
    row: RowOutcome
    estimate_ms: float
    choice: int | None = None
    samples: list[Sample] = field(default_factory=list)
    spent_s: float = 0.0
    stop_reason: str = ""

    @property
    def identity(self) -> Identity:
        return self.row.identity

    @property
    def is_control(self) -> bool:
        return stats.is_control_of(self.identity, self.identity)

    @property
    def expected_ms(self) -> float:
        """Milliseconds of a launch: as in this regime's first sample, once there is one.

        The estimate is of a single launch; under a power limit it takes a third longer.
        """
        first_ms = self.samples[0].time_ms if self.samples else 0.0
        return first_ms if first_ms > 0 else self.estimate_ms

    @property
    def failed(self) -> bool:
        return self.stop_reason == "failed"

    def begin(self) -> None:
        """Forget the last regime's samples."""
        self.samples, self.spent_s, self.stop_reason = [], 0.0, ""


def control_of(candidate: Candidate, controls: Sequence[Candidate]) -> Candidate | None:
    """The control on the very same work, if it is among `controls`."""
    return next((c for c in controls if stats.is_control_of(c.identity, candidate.identity)), None)


def round_order(
    active: Sequence[Candidate],
    controls: Sequence[Candidate],
    regime: Regime,
    shuffler: random.Random,
) -> list[Candidate]:
    """All active candidates in fresh random order, the controls before every few of them."""
    others = [candidate for candidate in active if not candidate.is_control]
    shuffler.shuffle(others)
    usable = [control for control in controls if not control.failed]
    order: list[Candidate] = []
    for position, candidate in enumerate(others):
        if position % CONTROL_EVERY[regime] == 0:
            order += usable
        order.append(candidate)
    return order or usable


def stop_reason(
    candidate: Candidate, control: Candidate | None, regime: Regime, budget_s: float
) -> str:
    """`interval` or `budget` if the candidate has enough, else "".

    A narrow interval counts from `MIN_ROUNDS` rounds on; the budget ends it as soon as there can be
    an interval at all.
    """
    rounds = len(candidate.samples)
    if control is not None and control is not candidate and rounds >= MIN_ROUNDS:
        ratios = stats.paired_ratios(candidate.samples, control.samples)
        if stats.interval_half_width(ratios) <= TARGET_HALF_WIDTH[regime]:
            return "interval"
    another_s = candidate.spent_s / max(rounds, 1)
    spent = candidate.spent_s + another_s > budget_s
    return "budget" if spent and rounds >= stats.MIN_ROUNDS else ""


THROTTLED = "throttled: "  # how the rejection of such a sample begins


def met_power_limit(sample: Sample) -> bool:
    """Whether a sample was rejected since the power limit was active."""
    return sample.rejected.startswith(THROTTLED) and names_power(sample.rejected)


class BurstGap:
    """The idle time before a burst sample, grown while the card is not rested.

    A sample during which a throttle reason was active is rejected, and the gap doubles. So it does
    when the control's delivered clock leaves its own median. Otherwise the gap shrinks slowly.
    """

    def __init__(self) -> None:
        self.seconds = LEAST_GAP_S
        self._clocks: dict[str, list[float]] = {}

    def _unsteady(self, candidate: Candidate, sample: Sample) -> bool:
        if not candidate.is_control or sample.sm_clock_mhz is None:
            return False
        clocks = self._clocks.setdefault(candidate.identity.name, [])
        clocks.append(sample.sm_clock_mhz)
        middle = median(clocks)
        return abs(sample.sm_clock_mhz - middle) > STEADY_CLOCK * middle

    def judge(self, candidate: Candidate, sample: Sample) -> Sample:
        """The sample, rejected if the card was throttled during it; the gap adapts."""
        throttled = bool(sample.throttle_reasons)
        if throttled or self._unsteady(candidate, sample):
            self.seconds = min(2 * self.seconds, MOST_GAP_S)
        else:
            self.seconds = max(0.9 * self.seconds, LEAST_GAP_S)
        if throttled and not sample.rejected:
            return replace(sample, rejected=f"{THROTTLED}{sample.throttle_reasons}")
        return sample
