"""The experiments of a data folder as the paper prints them: a figure and numbers for each.

They lie in published folders below `experiments/`, where the audit looks for them too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cutlass_study import experiment_figures
from cutlass_study.claims import Experiments
from cutlass_study.conditions import NAMES, QUESTIONS
from cutlass_study.csv_files import replace_files
from cutlass_study.experiment_values import VALUES
from cutlass_study.study_data import StudyData
from cutlass_study.style import figure_bytes, styled
from cutlass_study.views import NothingToShow

Tree = dict[str, Any]


def section(data: StudyData, experiments: Experiments, folder: Path) -> Tree:
    """What the text says of each experiment, its figure drawn into `folder`.

    `None` for an experiment that was not recorded or has nothing to show; `absent` says why.
    """
    folders = experiments.folders
    recorded = {one.experiment: one for one in folders}
    tree: Tree = dict.fromkeys(NAMES)
    absent: list[Tree] = []
    for name in NAMES:
        why = "not measured on this GPU"
        try:
            if name in recorded:
                own = recorded[name]
                tree[name] = {
                    **VALUES[name](own),
                    "figure": _figure(own, folder),
                    "complete": own.complete,
                    "other_card": None if _card(own) == _card(data) else _card(own),
                }
                continue
        except NothingToShow as nothing:
            why = f"nothing to show: {nothing}"
        absent.append({"name": name, "question": QUESTIONS[name], "why": why})
    commands = [command for one in folders for command in one.commands]
    return tree | {"absent": absent, "cards": _cards([data, *folders]), "commands": commands}


def _card(data: StudyData) -> str:
    return data.device.card if data.device else ""


def _cards(folders: Sequence[StudyData]) -> list[Tree]:
    """Which records each card gave, the sweep's first."""
    found: dict[str, list[str]] = {}
    for number, one in enumerate(folders):
        found.setdefault(_card(one), []).append(one.name if number else "the sweep")
    return [{"card": card, "records": records} for card, records in found.items()]


def _figure(data: StudyData, folder: Path) -> Tree:
    """The figure's file below `folder`, its caption, and the label that the text refers to."""
    label = f"experiment_{data.experiment}"
    name = f"{label}.pdf"
    with styled():
        figure = experiment_figures.figure(data)
        replace_files(folder, {name: figure_bytes(figure, "pdf")})
    return {"file": name, "caption": figure.caption, "label": label}
