"""How much work a sample is in each regime, and what of it is queued together.

Pure functions and data; nothing of CUDA, so that what explains a measurement can read them too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from cutlass_study.records import Regime

# On an H200 at 8192^3 the first launch after a gap is 2 to 11 % slower than the next ones, which
# agree within 0.1 % for 10 ms if the gap was 50 ms or longer. After 20 ms they are 0.2 to 0.4 %
# slower, and 15 ms of work bring in the power limit.
BURST_GAP_S = 0.05
PLANNED_SHARE = 0.7  # of the budget: under a power limit a launch takes a third longer at first
GRAPH_BELOW_MS = 0.06  # shorter kernels would be timed by how fast the host can launch
# By `--graphs`: launches shorter than this are replayed as CUDA graphs, in ms.
GRAPHS = {"auto": GRAPH_BELOW_MS, "always": math.inf, "never": 0.0}
GRAPH_MS = 10.0  # work in one graph: the pause between two replays is far below a thousandth of it
ALONE_LAUNCHES = 16  # launches timed one by one in a sample
FLUSH_BYTES_PER_MS = 1e8  # 100 GB/s: no card in question writes slower
POWER_REASONS = ("sw_power_cap", "hw_power_brake")  # throttle reasons: a power limit acts
MIN_TIME_MS = 0.0005  # resolution of a CUDA event: a shorter "time" means that nothing ran


def names_power(reasons: str) -> bool:
    """Whether a text of throttle reasons names a power limit."""
    return any(reason in reasons for reason in POWER_REASONS)


@dataclass(frozen=True, slots=True)
class RegimePlan:
    """Milliseconds of untimed and of timed work in a sample, and the gap before it in seconds."""

    gap_s: float
    untimed_ms: float
    timed_ms: float


PLANS: dict[Regime, RegimePlan] = {
    "burst": RegimePlan(BURST_GAP_S, 1.5, 4.0),
    # Under a power limit the clock hunts with a period of about 0.8 s and remembers the kernel
    # before; `experiment.py settle` shows what other lengths would give.
    "sustained": RegimePlan(0.0, 200.0, 800.0),
}


def launch_counts(regime: Regime, estimate_ms: float) -> tuple[int, int]:
    """(untimed, timed) launches of a sample."""
    plan = PLANS[regime]
    return math.ceil(plan.untimed_ms / estimate_ms), math.ceil(plan.timed_ms / estimate_ms)


def submissions(untimed: int, timed: int, unit_ms: float, budget_s: float) -> list[tuple[int, int]]:
    """A sample as (untimed, timed) units of work to be queued together, each within the budget.

    A unit is a launch or the replay of a graph. All fits into one submission, or the untimed and
    the timed work are divided evenly into as few as possible.
    """
    allowed = max(1, int(PLANNED_SHARE * budget_s * 1000 / unit_ms))
    if untimed + timed <= allowed:
        return [(untimed, timed)]

    def divided(count: int) -> list[int]:
        parts = math.ceil(count / allowed)
        return [count // parts + (part < count % parts) for part in range(parts)]

    return [*((count, 0) for count in divided(untimed)), *((0, count) for count in divided(timed))]


def alone_count(estimate_ms: float, flush_bytes: int, budget_s: float) -> int:
    """Launches timed one by one in a sample, each after a flush and an untimed launch."""
    each_ms = 2 * estimate_ms + flush_bytes / FLUSH_BYTES_PER_MS
    return max(1, min(ALONE_LAUNCHES, int(PLANNED_SHARE * budget_s * 1000 / each_ms)))


def graph_counts(untimed: int, timed: int, estimate_ms: float) -> tuple[int, int, int]:
    """(launches in a graph, untimed replays, timed replays), no more timed work than asked for.

    Only the one untimed replay that loads the graph may be longer than `untimed` launches; without
    untimed launches there is none.
    """
    size = min(timed, math.ceil(GRAPH_MS / estimate_ms))
    return size, max(min(untimed, 1), untimed // size), timed // size


def rejection(region_ms: float) -> str:
    """Why a timed region cannot be a measurement, or ""."""
    if not region_ms > MIN_TIME_MS:
        return f"the timed region took {region_ms} ms, not above the {MIN_TIME_MS} ms of an event"
    return ""
