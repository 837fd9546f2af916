"""The worklog's claims about hand-written kernels, judged on made-up rows of the ladder preset."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cutlass_study import claims
from cutlass_study.config import GemmConfig
from cutlass_study.presets import PRESETS, preset
from cutlass_study.simt_source import simt_threads
from cutlass_study.space import CUBLAS, Entry
from cutlass_study.study_data import StudyData
from cutlass_study.wgmma_source import wgmma_threads
from tests import synthetic
from tests.test_claims import CLAIMS, write_folder

H200 = replace(synthetic.DEVICE, name="NVIDIA H200", sm_count=132)
H100 = replace(H200, name="NVIDIA H100 80GB HBM3")
LADDER = (
    "simt_ladder",
    "wgmma_shapes",
    "threads_256",
    "pipeline_not_faster",
    "scaling_cost_size",
    "best_tflops",
)
Speed = Callable[[Entry], float]


def as_the_worklog_says(entry: Entry) -> float:
    """TFLOPS of a ladder row, as the worklog has them or between its own."""
    config, problem = entry.config, entry.problem
    if config.family == "simt":
        steps = {"naive": 4.2, "shared": 7.1, "register_2d": 19.1, "vectorized": 37.2}
        return steps.get(str(config.variant), 41.4)
    if config.family != "wgmma":
        return 740.0 if config.family == "cublas" else 150.0
    if config.variant == "pipelined_n128":
        return 356.0 if problem.beta else 436.7
    if config.variant == "pipelined_n256":
        return 463.9
    by_columns = {"serial_n128": 420.0, "serial_n64": 290.0, "serial_n32": 150.0}
    columns = by_columns.get(str(config.variant), 60.0)
    return columns * (0.97 if wgmma_threads(config) == 256 else 1.0)


def as_a_good_pipeline_would(entry: Entry) -> float:
    """Another card: everything that the worklog says of kernels 8 and 9 is the other way round."""
    config = entry.config
    if config.family == "simt":
        return 30.0 if config.variant == "warp_tiling" else as_the_worklog_says(entry)
    if config.family != "wgmma":
        return as_the_worklog_says(entry)
    if str(config.variant).startswith("pipelined"):
        return 600.0 if entry.problem.beta else 610.0
    wide = {"serial_n256": 1.3, "serial_n128": 1.0}.get(str(config.variant), 0.7)
    return 400.0 * wide * (1.05 if wgmma_threads(config) == 256 else 1.0)


def threads_of(config: GemmConfig) -> int:
    """What compiling would tell."""
    if config.family == "wgmma":
        return wgmma_threads(config)
    return simt_threads(config) if config.family == "simt" else 256


def rows_of(entries: Iterable[Entry], speed: Speed) -> list[dict[str, Any]]:
    found = []
    for entry in entries:
        problem, tflops = entry.problem, speed(entry)
        timing = {"tflops": tflops, "time_ms": problem.flop / tflops / 1e9, "regime": "burst"}
        found.append(
            synthetic.row(
                entry.config, problem, beta=problem.beta, threads=threads_of(entry.config), **timing
            )
        )
    return found


def ladder_folder(
    folder: Path, speed: Speed, device: Any = H200, *, apart: bool = True
) -> StudyData:
    """A data folder whose ladder rows stand in `experiments/ladder`, or beside the others."""
    rows = rows_of(preset("ladder", "sm_90a"), speed)
    if not apart:
        return write_folder(folder, {}, device, extra=rows)
    data = write_folder(folder, {(CUBLAS, 8192): 740.0}, device)
    write_folder(folder / "experiments" / "ladder", {}, device, extra=rows)
    return data


def judged(data: StudyData) -> dict[str, claims.Verdict]:
    found = claims.audit(data, None, claims.load_claims(CLAIMS))
    return {one.id.partition(".")[2]: one for one in found if one.document == "hopper"}


@pytest.mark.parametrize("apart", [True, False])
def test_a_card_that_behaves_as_the_worklog_says(tmp_path: Path, apart: bool) -> None:
    found = judged(ladder_folder(tmp_path / "h200", as_the_worklog_says, apart=apart))
    for name in LADDER[:-1]:
        assert found[name].verdict == "reproduced", found[name]
        assert "taken as the same chip as the H100" in found[name].evidence
    assert found["best_tflops"].verdict == "not_testable"
    assert "on this GPU it holds" in found["best_tflops"].evidence
    threads = found["threads_256"].evidence
    assert "128 threads direct 420.0" in threads and "256 threads direct 407.4" in threads
    assert "−18.5 %" in found["scaling_cost_size"].evidence


def test_a_card_that_behaves_otherwise(tmp_path: Path) -> None:
    found = judged(ladder_folder(tmp_path / "h200", as_a_good_pipeline_would))
    for name in LADDER[:-1]:
        assert found[name].verdict == "contradicted", found[name]


def test_the_worklogs_own_card_is_judged_by_its_tflops(tmp_path: Path) -> None:
    own = judged(ladder_folder(tmp_path / "own", as_the_worklog_says, H100))
    assert all(own[name].verdict == "reproduced" for name in LADDER)
    other = judged(ladder_folder(tmp_path / "other", as_a_good_pipeline_would, H100))
    assert other["best_tflops"].verdict == "contradicted"


def test_without_the_ladder_the_claims_name_a_command_that_exists(tmp_path: Path) -> None:
    data = write_folder(tmp_path / "h200", {(CUBLAS, 8192): 740.0}, H200)
    for name in LADDER:
        verdict = judged(data)[name]
        assert verdict.verdict == "not_testable"
        _, _, command = verdict.reason.rpartition("run ")
        words = command.split()
        assert words[:3] == ["python", "scripts/sweep.py", "--preset"]
        assert words[3] == "ladder" and words[3] in PRESETS
        assert words[words.index("--export") + 1] == "DIR/experiments/ladder"
