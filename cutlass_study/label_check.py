"""The shuffled-labels check: how often the chain calls a kernel different from itself.

All "configurations" of a repetition are one kernel under other names, so every significant
difference is a false one. At a family-wise level of 5 % at most one repetition in 20 may have any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from cutlass_study.records import Sample
from cutlass_study.stats import CONFIDENCE, compare, holm


@dataclass(frozen=True, slots=True)
class LabelCheck:
    """What one repetition gave. The control's comparisons are counted among all of them too."""

    comparisons: int
    significant: int  # Holm-adjusted p below 5 %, of all comparisons
    significant_to_control: int  # the same with only the comparisons to the control as the family
    declared: int  # "faster" or "slower" by interval, corrected for all comparisons
    smallest_p: float  # adjusted
    largest_effect: float  # of the median ratios, as a distance from 1


def check(control: Sequence[Sample], labels: Mapping[str, Sequence[Sample]]) -> LabelCheck:
    """Compare every label with the control and with every other; samples of one regime."""
    level = 1 - CONFIDENCE
    to_control = [(control, own) for own in labels.values()]
    pairs = [*to_control, *combinations(labels.values(), 2)]
    found = [compare(a, b, comparisons=len(pairs)) for a, b in pairs]
    adjusted = holm([comparison.p_value for comparison in found])
    first = holm([comparison.p_value for comparison in found[: len(to_control)]])
    return LabelCheck(
        comparisons=len(pairs),
        significant=sum(p < level for p in adjusted),
        significant_to_control=sum(p < level for p in first),
        declared=sum(comparison.verdict != "tie" for comparison in found),
        smallest_p=min(adjusted, default=1.0),
        largest_effect=max(
            (abs(c.ratio - 1) for c in found if c.ratio is not None), default=float("nan")
        ),
    )
