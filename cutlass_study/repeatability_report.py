"""The repeats of a data folder as the paper prints them.

A repeat is an ordinary export of another run of the same sweep, in a folder of its own below
`repeats/` of the data. Every pair of runs is compared, since two repeats may come from one card
where the data and either of them do not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from pathlib import Path
from typing import Any

from cutlass_study import repeatability_figure
from cutlass_study import repeatability_text as text
from cutlass_study.agreement import GOAL_SHARE, agreement
from cutlass_study.neighbours import EXPERIMENTS, REPEATS, LeftOut, usable_in
from cutlass_study.paper_numbers import letters as letters_for
from cutlass_study.repeatability import Repeat, compare_runs, run_of
from cutlass_study.repeatability_tables import SUMMARY_CAPTION
from cutlass_study.study_data import DataError, StudyData, readable
from cutlass_study.style import save, styled

CLEARLY = 1.5  # clocks move a ratio by so much more than cycles do, before the text says so
Tree = dict[str, Any]
Pair = tuple[StudyData, StudyData, Repeat]
Letters = dict[Path, str]  # what stands for a run, by its folder


@dataclass(frozen=True, slots=True, eq=False)
class Repeats:
    """The runs of a data folder and its repeats in order of time, and every pair of them."""

    runs: tuple[StudyData, ...]
    pairs: tuple[Pair, ...]
    left_out: LeftOut


def repeats_of(data: StudyData) -> Repeats:
    """Load and compare the repeats of `data`; one that can't be compared with it is left out."""
    found, unusable = usable_in(
        data.directory / REPEATS, "repeat", lambda one, known: _check(one, data, known)
    )
    usable, left_out = [data, *found], list(unusable)
    usable.sort(key=_start)
    pairs = []
    for first, second in combinations(usable, 2):
        try:
            pairs.append((first, second, compare_runs(first, second)))
        except DataError as error:
            left_out.append((f"{first.name} against {second.name}", str(error)))
    return Repeats(tuple(usable), tuple(pairs), tuple(left_out))


def _check(repeat: StudyData, data: StudyData, known: Sequence[StudyData]) -> None:
    """Raises `DataError` for what is no run to compare with `data`, or a copy of a known one."""
    if repeat.experiment:
        raise DataError(
            f"'{repeat.directory}' holds the experiment {repeat.experiment}, no run of a sweep; "
            f"move it to {EXPERIMENTS}/"
        )
    compare_runs(data, repeat)
    for other in (data, *known):
        if run_of(repeat).is_same(run_of(other)):
            raise DataError(
                f"'{repeat.directory}' holds the very same run as '{other.directory}'; remove one"
            )


def _start(data: StudyData) -> float:
    started_at = run_of(data).started_at
    return started_at.timestamp() if started_at else math.inf


def _named(data: StudyData, base: Path) -> str:
    """The folder as a command in the folder `base` names it; in full where a link leads out."""
    folder = data.directory
    return readable(folder.relative_to(base) if folder.is_relative_to(base) else folder)


def _run(data: StudyData, letter: str, base: Path) -> Tree:
    run = run_of(data)
    return {
        "letter": letter,
        "name": run.name,
        "folder": _named(data, base),
        "started": text.started(run),
        "card": run.card,
        "driver": run.device.driver_version,
        "code": run.device.git_commit or "unknown",
        "commands": data.commands,
        "drift": _drift(data),
    }


def _drift(data: StudyData) -> list[str]:
    """What cuBLAS's time did where it drifted beyond its own noise."""
    return [
        f"{100 * one['change']:+.2f} % in the {one['regime']} regime of {one['problem']}"
        for one in data.summary.get("control_drift", [])
        if one["warning"]
    ]


def _kind(repeats: Sequence[Repeat]) -> Tree:
    """All pairs on one card, or all on two: what the text says of them, regime by regime."""
    regimes = sorted({found.regime for repeat in repeats for found in repeat.agreements})
    frames = [repeat.rows for repeat in repeats]
    pooled = [agreement(regime, frames) for regime in regimes]
    met = {
        regime: [a.meets_goal for one in repeats for a in one.agreements if a.regime == regime]
        for regime in regimes
    }
    return {
        "same_card": repeats[0].same_card,
        "pairs": len(repeats),
        "regimes": [
            {
                "name": found.regime,
                "sentences": text.sentences(found, met[found.regime]),
                "between": text.percent(math.ceil(1000 * found.between) / 1000),
            }
            for found in pooled
        ],
        "meets_goal": all(all(pairs) for pairs in met.values()),
        "by_clock": all(found.clock_part > CLEARLY * found.cycles_part for found in pooled),
        "changed": text.all_changed(repeats),
        "noted": text.all_noted(repeats),
    }


def _lettered(first: StudyData, second: StudyData, letters: Letters) -> str:
    return f"{letters[first.directory]}, {letters[second.directory]}"


def _rows(repeat: Repeat, letters: str) -> list[Tree]:
    """Lines of the summary table, one a regime. `letters` stand for its two runs."""
    return [
        {
            "runs": letters,
            "card": "same" if repeat.same_card else "another",
            "later": text.later(repeat),
            "regime": found.regime,
            "agree": f"{found.agree} of {found.rows}",
            "share": text.percent(found.share, 0),
            "goal": "met" if found.meets_goal else "missed",
            "median": text.percent(found.median, 2),
            "p95": text.percent(found.p95, 2),
            "clock": text.percent(found.clock_median, 2) if found.cycles_rows else None,
            "by_cycles": f"{found.cycles_agree} of {found.cycles_rows}"
            if found.cycles_rows
            else None,
        }
        for found in repeat.agreements
    ]


def _figure(pairs: Sequence[Pair], data: StudyData, letters: Letters, folder: Path) -> Tree:
    """A pair with the data itself if there is one; of those the one with most rows."""
    first, second, repeat = max(
        pairs, key=lambda pair: (data in (pair[0], pair[1]), len(pair[2].rows))
    )
    name = f"repeatability_{'same' if repeat.same_card else 'another'}_card"
    with styled():
        figure = repeatability_figure.draw(repeat, name)
        save(figure, folder, ("pdf",))
    drawn = f"Runs {_lettered(first, second, letters)} of the list. {figure.caption}"
    return {"file": f"{figure.name}.pdf", "caption": drawn, "label": name}


def section(data: StudyData, repeats: Repeats, project: Path, folder: Path) -> Tree | None:
    """What the paper says of `data`'s repeats, `None` without any. Figures go into `folder`."""
    if not repeats.pairs:
        return None
    base = project.resolve()
    if not data.directory.is_relative_to(base):
        base = data.directory.parent
    letters = dict(
        zip((run.directory for run in repeats.runs), letters_for(len(repeats.runs)), strict=True)
    )
    both = [[pair for pair in repeats.pairs if pair[2].same_card == same] for same in (True, False)]
    kinds = [pairs for pairs in both if pairs]
    pairs = list(chain.from_iterable(kinds))
    first, second, _ = pairs[0]
    return {
        "goal": text.exact_percent(GOAL_SHARE),
        "tolerances": text.tolerances(),
        "runs": [_run(one, letters[one.directory], base) for one in repeats.runs],
        "several_cards": bool(both[1]),
        "kinds": [
            {
                **_kind([repeat for _, _, repeat in kind]),
                "figure": _figure(kind, data, letters, folder),
            }
            for kind in kinds
        ],
        "rows": [
            row
            for first, second, repeat in pairs
            for row in _rows(repeat, _lettered(first, second, letters))
        ],
        "first_pair": _lettered(first, second, letters),
        "caption": SUMMARY_CAPTION,
        "command": f"python scripts/compare.py --data {_named(first, base)} "
        f"--with {_named(second, base)}",
    }
