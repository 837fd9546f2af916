"""NVIDIA's `nvidia-matmul-heuristics` (extra `heuristics`) as the outside reference.

Its library is asked in a process of its own, since version 0.1.0.27 crashes when its interface is
destroyed (`heuristics_query`). It needs no GPU. It knows the H200 for CUTLASS 3 kernels (target
CUTLASS3, precision HSS), so it is judged on the `sm90` family alone.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from statistics import mean
from typing import Any

import numpy as np

from cutlass_study.models.evaluation import Regret
from cutlass_study.models.rows import ModelRows
from cutlass_study.study_data import StudyData

PACKAGE = "nvMatmulHeuristics"
TIMEOUT_S = 60
SUGGESTIONS = 64
# Parts of the device's name → the package's name of the GPU (`NvMatmulHeuristicsNvidiaGpu`).
GPUS = {
    "H200": "H200_SXM",
    "H100 PCIe": "H100_PCIE",
    "H100 NVL": "H100_NVL",
    "H100": "H100_SXM",
    "H20": "H20_SXM",
}


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One kernel it proposes; shapes in elements, `runtime_s` its own estimate."""

    tile: tuple[int, int, int]
    cluster: tuple[int, int]
    stages: int
    runtime_s: float


@dataclass(frozen=True, slots=True)
class HeuristicsReport:
    """Regret of its first suggestion that was measured, or the `reason` why there is none.

    `rank` by problem: which place among its suggestions that kernel had, 1 the first.
    """

    reason: str = ""
    version: str = ""
    family: str = "sm90"
    regrets: tuple[Regret, ...] = ()
    rank: tuple[int, ...] = ()
    unmapped: tuple[str, ...] = ()  # problems where no suggestion was measured

    @property
    def mean_regret(self) -> float | None:
        """Over the problems it could be judged on; None without one."""
        return mean(regret.lost for regret in self.regrets) if self.regrets else None


def heuristics_report(rows: dict[str, ModelRows], data: StudyData) -> HeuristicsReport:
    """Ask it for every problem of the `sm90` rows and judge what it picks."""
    if "sm90" not in rows or data.device is None:
        return HeuristicsReport(reason="no sm90 row was measured, and it is judged on these alone")
    gpu = next((name for part, name in GPUS.items() if part in data.device.name), None)
    if gpu is None:
        return HeuristicsReport(reason=f"it is not asked about {data.device.name}")
    if importlib.util.find_spec(PACKAGE) is None:
        return HeuristicsReport(
            reason="nvidia-matmul-heuristics is not installed (the extra `heuristics` brings it)"
        )
    mine = rows["sm90"]
    problems = sorted(set(mine.problem), key=lambda text: [int(part) for part in text.split("x")])
    answer = ask(gpu, [str(problem) for problem in problems])
    if isinstance(answer, str):
        return HeuristicsReport(reason=answer)
    found, ranks, unmapped = [], [], []
    for problem in problems:
        judged = _judge(mine, str(problem), answer[1][str(problem)])
        if judged is None:
            unmapped.append(str(problem))
            continue
        found.append(judged[0])
        ranks.append(judged[1])
    return HeuristicsReport("", answer[0], "sm90", tuple(found), tuple(ranks), tuple(unmapped))


def ask(gpu: str, problems: list[str]) -> str | tuple[str, dict[str, list[Suggestion]]]:
    """(version, suggestions by problem), best first; or a sentence why it did not answer."""
    request = json.dumps({"gpu": gpu, "problems": problems, "count": SUGGESTIONS})
    command = [sys.executable, "-m", "cutlass_study.models.heuristics_query"]
    path = os.pathsep.join(part for part in sys.path if part)
    try:
        done = subprocess.run(
            command, input=request, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
            env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"nvidia-matmul-heuristics did not answer within {TIMEOUT_S} s"
    lines = done.stdout.strip().splitlines()
    if not lines:
        return f"nvidia-matmul-heuristics ended with code {done.returncode} and no answer"
    reply: dict[str, Any] = json.loads(lines[-1])
    if "reason" in reply:
        return str(reply["reason"])
    return str(reply["version"]), {
        problem: [
            Suggestion(tuple(one["tile"]), tuple(one["cluster"]), one["stages"], one["runtime_s"])
            for one in found
        ]
        for problem, found in reply["suggestions"].items()
    }


def _judge(
    rows: ModelRows, problem: str, suggestions: list[Suggestion]
) -> tuple[Regret, int] | None:
    """Regret of the first suggestion measured: same tile and cluster, the nearest stage count.

    It names no schedule, so the mean over the measured schedules is taken.
    """
    places = np.flatnonzero(rows.problem == problem)
    tflops = rows.tflops[places]
    names = [str(name).split("__")[0] for name in rows.name[places]]
    for rank, one in enumerate(suggestions, 1):
        tile = "x".join(map(str, one.tile))
        cluster = f"_c{one.cluster[0]}x{one.cluster[1]}x1_"
        same = [i for i, name in enumerate(names) if f"_{tile}_" in name and cluster in name]
        if not same:
            continue
        distance = np.abs(rows.stages[places][same] - one.stages)
        nearest = [i for i, gap in zip(same, distance, strict=True) if gap == distance.min()]
        lost = float(np.mean(1 - tflops[nearest] / tflops.max()))
        regret = Regret(problem, len(names), names[nearest[0]], names[int(tflops.argmax())], lost)
        return regret, rank
    return None
