"""How a sweep measures: what the command line chooses and what safety dictates."""

from __future__ import annotations

from dataclasses import dataclass

from cutlass_study.prepare import Inputs
from cutlass_study.records import Regime

QUEUE_BUDGET_S = 0.5  # most work ever queued between synchronizations
WATCHDOG_BUDGET_S = 0.25  # the same where the operating system resets a busy GPU


def queue_budget_s(watchdog: bool) -> float:
    """Seconds of work that may be queued between two synchronizations."""
    return WATCHDOG_BUDGET_S if watchdog else QUEUE_BUDGET_S


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """How to measure. `budget_s` is GPU time per configuration and regime, gaps included."""

    regimes: tuple[Regime, ...]
    inputs: Inputs
    budget_s: float
    allow_long_launches: bool = False
    resume: bool = False
    graphs: str = "auto"  # a key of regimes.GRAPHS
