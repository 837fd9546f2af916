"""Null models: what a prediction is worth must be seen beside one that knows nothing of GPUs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cutlass_study.models.fitting import refuse_too_few
from cutlass_study.models.rows import Floats, ModelRows


def constant(rows: ModelRows) -> Callable[[ModelRows], Floats]:
    """One TFLOPS for the whole family, the geometric mean: it picks blindly among all."""
    refuse_too_few(len(rows), 1, "the constant")
    value = float(np.exp(np.log(rows.tflops).mean()))
    return lambda new: np.full(len(new), value)


def per_tile(rows: ModelRows) -> Callable[[ModelRows], Floats]:
    """One TFLOPS per tile, the geometric mean at every N; the family's for an unknown tile.

    It always picks the tile that was best on average, and blindly within it.
    """
    refuse_too_few(len(rows), len(set(rows.tile)), "one value per tile")
    logs = np.log(rows.tflops)
    means = {tile: float(np.exp(logs[rows.tile == tile].mean())) for tile in set(rows.tile)}
    overall = float(np.exp(logs.mean()))
    return lambda new: np.array([means.get(tile, overall) for tile in new.tile])


def per_configuration(rows: ModelRows) -> Callable[[ModelRows], Floats]:
    """What was best on average at the other problems: each configuration's mean share of the best.

    Scaled to TFLOPS by the geometric mean of the problems' best; NaN for a configuration not seen.
    """
    keys = _configurations(rows)
    refuse_too_few(len(rows), len(set(keys)), "one share per configuration")
    best = {problem: rows.tflops[rows.problem == problem].max() for problem in set(rows.problem)}
    share = np.log(rows.tflops / np.array([best[problem] for problem in rows.problem]))
    scale = float(np.exp(np.mean(np.log(sorted(best.values())))))
    gathered: dict[str, list[float]] = {}
    for key, value in zip(keys, share, strict=True):
        gathered.setdefault(key, []).append(float(value))
    means = {key: scale * float(np.exp(np.mean(values))) for key, values in gathered.items()}
    return lambda new: np.array([means.get(key, np.nan) for key in _configurations(new)])


def _configurations(rows: ModelRows) -> list[str]:
    return [str(name).split("__")[0] for name in rows.name]
