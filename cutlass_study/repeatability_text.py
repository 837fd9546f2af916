"""What a repeat says, in sentences: for the terminal and for the paper."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import pandas as pd

from cutlass_study.agreement import GOAL_SHARE, TOLERANCES, Agreement
from cutlass_study.repeatability import Repeat, Run

LABELS = "In labels S is the number of pipeline stages and e the epilogue width."


def percent(share: float, digits: int = 1) -> str:
    """0.0148 → `1.5 %`."""
    return f"{100 * share:.{digits}f} %"


def exact_percent(share: float) -> str:
    """A setting, without needless zeros: 0.01 → `1 %`."""
    return f"{100 * share:g} %"


def tolerances() -> str:
    """`0.3 % (burst) and 1 % (sustained)`."""
    return " and ".join(f"{exact_percent(value)} ({name})" for name, value in TOLERANCES.items())


def relation(repeat: Repeat) -> str:
    """How the two runs' cards relate."""
    if repeat.same_run:
        return "the very same run"
    return "the same card" if repeat.same_card else "another card of the same model"


def started(run: Run) -> str:
    """`2026-11-29 22:45 UTC`, or that it is unknown."""
    return f"{run.started_at:%Y-%m-%d %H:%M} UTC" if run.started_at else "at an unknown time"


def later(repeat: Repeat) -> str:
    """How long after the first run the second one began."""
    hours = repeat.hours
    if hours is None:
        return "at an unknown time"
    return f"{abs(hours):.1f} h {'later' if hours >= 0 else 'earlier'}"


def about(repeat: Repeat) -> str:
    """Device, both runs and how they relate: the opening of every caption."""
    first, second = repeat.first, repeat.second
    return (
        f"{first.device.name}; first run: {first.name} (card {first.card}, {started(first)}); "
        f"second run: {second.name} (card {second.card}, {later(repeat)}), {relation(repeat)}"
    )


def also_changed(repeat: Repeat) -> str:
    """A sentence on what else differs, else nothing."""
    found = "; ".join(f"{what} {first} and {second}" for what, first, second in repeat.changed)
    return f"Also different, first run and second: {found}." if found else ""


def all_changed(repeats: Sequence[Repeat]) -> list[str]:
    """What else differs between any two of several runs: `driver (580.95, 590.10)`."""
    found: dict[str, dict[str, None]] = {}
    for change in (change for repeat in repeats for change in repeat.changed):
        found.setdefault(change.what, {}).update(dict.fromkeys(change[1:]))
    return [f"{what} ({', '.join(values)})" for what, values in found.items()]


def noted(repeat: Repeat) -> list[str]:
    """Rows that do not count since another kernel stands behind each run's, a sentence for each."""
    rows = repeat.rechosen.drop_duplicates(["label", "problem", "note"])
    return [
        f"{row['label']} ({row['problem']}) does not count either, as it was {row['note']}."
        for _, row in rows.iterrows()
    ]


def all_noted(repeats: Sequence[Repeat]) -> list[str]:
    """The same of several pairs of runs: in how many of them a row does not count."""
    if len(repeats) == 1:
        return noted(repeats[0])
    found = [repeat.rechosen[["label", "problem"]].drop_duplicates() for repeat in repeats]
    pairs = Counter(pd.concat(found).itertuples(index=False, name=None))
    return [
        f"{label} ({problem}) does not count in {count} of the pairs, as it was another of "
        "cuBLASLt's candidates in the second run."
        for (label, problem), count in sorted(pairs.items())
    ]


def counted(repeat: Repeat) -> str:
    """How many rows were paired, and how many could not be."""
    text = f"{len(repeat.rows)} rows in common"
    if len(repeat.rechosen):
        text += f", {len(repeat.rechosen)} of cuBLASLt left out since its candidate changed"
    if any(repeat.alone):
        one, other = repeat.alone
        text += f"; {one} of the first run and {other} of the second have no counterpart"
    return f"{text}; cuBLAS, which ratios refer to, does not count"


def verdict(found: Agreement) -> str:
    """How many agree, and whether that meets the goal."""
    return (
        f"{found.agree} of {found.rows} configurations agree within "
        f"{exact_percent(found.tolerance)} ({percent(found.share, 0)}); the goal of "
        f"{exact_percent(GOAL_SHARE)} is {'met' if found.meets_goal else 'missed'}."
    )


def pooled_verdict(found: Agreement, met: Sequence[bool]) -> str:
    """The verdict over several pairs of runs, each of which meets the goal or does not."""
    return (
        f"{found.agree} of {found.rows} comparisons ({found.configurations} configurations, "
        f"{len(met)} pairs of runs) agree within {exact_percent(found.tolerance)} "
        f"({percent(found.share, 0)}); {sum(met)} of {len(met)} pairs meet the goal of "
        f"{exact_percent(GOAL_SHARE)}."
    )


def sizes(found: Agreement) -> str:
    """How large the differences are, and whether noise can explain them."""
    text = (
        f"The median difference is {percent(found.median, 2)}, the 95th percentile "
        f"{percent(found.p95, 2)}, the largest {percent(found.largest, 1)}."
    )
    if found.beyond:
        lie = "lies" if found.beyond == 1 else "lie"
        text += (
            f" {found.beyond} {lie} outside the tolerance with the whole 95 % interval: noise does "
            "not explain that."
        )
    return text


def clocks(found: Agreement) -> str:
    """What the delivered clocks say; nothing where they are unknown."""
    if math.isnan(found.clock_part):
        return ""
    return (
        f"A kernel's delivered clock differs by {percent(found.clock_median, 2)} in the median and "
        f"by {percent(found.clock_largest, 2)} at most. Against cuBLAS's in the same rounds, "
        f"clocks move a ratio by {percent(found.clock_part, 2)} in the median and cycles by "
        f"{percent(found.cycles_part, 2)}; with the clock divided out, {found.cycles_agree} of "
        f"{found.cycles_rows} agree."
    )


def order(found: Agreement) -> str:
    """How many configurations change places."""
    if not found.ordered:
        return ""
    number = len(found.swaps)
    text = (
        f"Of {found.ordered} comparisons of two configurations whose intervals do not overlap in "
        f"either run, {number or 'none'} {'change' if number > 1 else 'changes'} places"
    )
    if found.swapped < number:
        text += f" ({found.swapped} different pairs)"
    if not number:
        return f"{text}."
    return f"{text}{', most clearly' if number > 1 else ''}: {found.swaps[0]}."


def sentences(found: Agreement, met: Sequence[bool] = ()) -> list[str]:
    """Everything said of one regime, the verdict first.

    `met`: which pairs of runs meet the goal, if `found` is of several.
    """
    judged = pooled_verdict(found, met) if len(met) > 1 else verdict(found)
    texts = (judged, sizes(found), clocks(found), order(found))
    return [text for text in texts if text]
