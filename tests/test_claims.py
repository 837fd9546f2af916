"""The claims audit: its file, its tests by value, other devices, and what it refuses."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from cutlass_study import audit_report, claims, space
from cutlass_study.claim_arithmetic import kappa_span
from cutlass_study.claim_formats import to_text
from cutlass_study.claim_rows import Part, Row, by_regime, ratio_of, select
from cutlass_study.claim_tests import Evidence, Span, change, known_tests, number, percent, printed
from cutlass_study.config import GemmConfig, GemmProblem, UsageError
from cutlass_study.csv_files import csv_bytes
from cutlass_study.records import RESULT_COLUMNS, SAMPLE_COLUMNS
from cutlass_study.schema import SCHEMA_VERSION
from cutlass_study.study_data import DataError, StudyData, load
from tests import synthetic
from tests.scripts import run_here

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "scripts" / "audit.py"
CLAIMS = ROOT / "paper" / "claims.toml"
TILE = (256, 128, 32)
REQUIRED = {
    "ada.ctas_per_sm",
    "ada.registers",
    "ada.peak",
    "ada.best_configuration",
    "ada.s4_loss",
}
# Arithmetic and compilation decide these, on any machine.
FIXED_CONTRADICTED = {
    "ada.ctas_per_sm",
    "ada.registers",
    "ada.peak",
    "ada.peak_share",
    "ada.wmma_share",
    "ada.two_ctas_fit",
    "ada.occupancy_collapse",
    "ada.occupancy_cap",
    "ada.model_points",
    "ada.profiler_kernel_name",
    "hopper.peak_clock",
    "hopper.input_data_arithmetic",
    "hopper.tensor_baseline",
    "hopper.register_tiling_gain",
}


# --- made-up data -----------------------------------------------------------------------------

RTX_4060 = replace(
    synthetic.DEVICE,
    name="NVIDIA GeForce RTX 4060",
    arch="sm_89",
    sm_count=24,
    max_sm_clock_mhz=3105.0,
    operating_system="Windows-11-10.0.26100",
    watchdog=True,
)


MMA_RATE = 512.0  # FLOP/clk/SM of the made-up card's mma.sync, FP32 accumulate


def document_speeds() -> dict[tuple[GemmConfig, int], float]:
    """TFLOPS as the primary document has them, with plausible ones around."""
    speeds = {(space.CUBLAS, 8192): 31.5, (space.CUBLAS, 4096): 31.2}
    for stages, tflops in ((2, 26.6), (3, 31.9), (4, 31.1)):
        for width, share in ((1, 0.98), (2, 0.99), (4, 1.0)):
            speeds[space.sm80(TILE, stages, width), 8192] = tflops * share
    for stages, tflops in ((2, 29.0), (3, 28.7), (4, 25.0)):
        speeds[space.sm80((128, 128, 32), stages), 8192] = tflops
    speeds |= {(space.sm80(TILE, 3), 4096): 31.5}
    speeds |= {(space.wmma(1), 4096): 25.1, (space.wmma(3), 4096): 29.5}
    return speeds


def write_folder(
    folder: Path,
    speeds: dict[tuple[GemmConfig, int], float],
    device=RTX_4060,
    distribution: str = "uniform",
    extra=(),
) -> StudyData:
    """Made-up measurements as a published folder, read back by the loader."""
    rows = [made_up(c, n, t, device.arch, distribution) for (c, n), t in speeds.items()]
    rows += extra
    random = np.random.default_rng(5)
    samples = [line for row in rows if row["tflops"] for line in made_up_samples(row, random)]
    folder.mkdir(parents=True)
    summary = {"schema_version": SCHEMA_VERSION, "complete": True, "device": asdict(device)}
    peak = {"name": "mma_f32", "unit": "TFLOPS", "value": 32.0, "sm_clock_mhz": 2600.0}
    summary["ceilings"] = [peak | {"flop_per_clk_sm": MMA_RATE}]
    (folder / "device.json").write_text(json.dumps(summary), encoding="utf-8")
    for name, columns, lines in (
        ("results.csv", RESULT_COLUMNS, rows),
        ("samples.csv.gz", SAMPLE_COLUMNS, samples),
    ):
        content = csv_bytes(columns, [[line.get(column) for column in columns] for line in lines])
        (folder / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    return load(folder)


def made_up(config: GemmConfig, n: int, tflops: float, arch: str, distribution: str, **more):
    problem = GemmProblem(n, n, n, beta=more.pop("beta", 0.0))
    tile = config.threadblock_shape or (1, 1, 1)
    usual = {
        "regime": "burst",
        "tflops": tflops,
        "beta": problem.beta,
        "time_ms": problem.flop / tflops / 1e9,
        "host_time_ms": problem.flop / tflops / 1e9 * 1.002,
        "sm_clock_mhz": 2600.0,
        "power_w": 115.0,
        "flop_per_clk_sm": MMA_RATE * tflops / 32.0,
        "occupancy": 0.25 if tile[0] == 128 else 1 / 6,
        "max_rel_error": 1e-5,
    }
    return synthetic.row(config, problem, arch=arch, distribution=distribution, **(usual | more))


def made_up_samples(row: dict, random, rounds: int = 25) -> list[dict]:
    drift = 1 + 0.02 * np.sin(np.arange(rounds) / 4)
    times = row["time_ms"] * drift * (1 + 0.001 * random.standard_normal(rounds))
    keep = ("name", "arch", "distribution", "seed", "regime", "condition", "power_w")
    keep += ("sm_clock_mhz",)
    return [
        {column: row.get(column) for column in keep}
        | {"round": count, "time_ms": float(time_ms), "launches": 2, "submission": "stream"}
        | {"throttle_reasons": "sw_power_cap" if row["regime"] == "sustained" and count else ""}
        for count, time_ms in enumerate(times)
    ]


@pytest.fixture(scope="module")
def static() -> StudyData:
    return load(ROOT / "paper" / "data" / "static")


@pytest.fixture(scope="module")
def h200(static):
    data = load(ROOT / "paper" / "data" / "h200")
    return {one.id: one for one in claims.audit(data, static)}


def judged(data: StudyData | None, static: StudyData | None) -> dict[str, claims.Verdict]:
    return {one.id: one for one in claims.audit(data, static, claims.load_claims(CLAIMS))}


# --- the file ---------------------------------------------------------------------------------


def test_claims_are_many_unique_and_cover_every_document():
    found = claims.load_claims(CLAIMS)
    ids = [claim.id for claim in found]
    assert len(ids) == len(set(ids)) >= 25
    assert set(ids) >= REQUIRED
    assert {claim.document for claim in found} == {"ada", "hopper", "lecture"}
    assert {claim.kind for claim in found} == {"arithmetic", "static", "measured"}


def test_every_test_is_used_and_every_claim_names_a_test():
    used = {claim.test for claim in claims.load_claims(CLAIMS)}
    assert used == set(known_tests())
    assert all(test.__doc__ for test in known_tests().values())


def test_the_file_holds_no_verdict():
    text = CLAIMS.read_text(encoding="utf-8")
    for word in ("reproduced", "contradicted", "not_testable"):
        assert word not in text


# --- recorded data ----------------------------------------------------------------------------


def test_arithmetic_and_static_verdicts_by_value(h200):
    fixed = [one for one in h200.values() if one.kind != "measured"]
    assert {one.id for one in fixed if one.verdict == "contradicted"} == FIXED_CONTRADICTED
    assert all(one.verdict != "not_testable" for one in fixed)
    assert h200["ada.shared_memory"].verdict == "reproduced"
    assert all(one.verdict == "reproduced" for one in fixed if one.document == "lecture")


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        ("ada.ctas_per_sm", ["S=3: 1 (226 registers", "S=4: 1 (226", "registers + shared memory"]),
        ("ada.registers", ["226 and 226", "claimed 64 and 72", "128"]),
        ("ada.peak", ["30.2 TFLOPS", "2,464 MHz", "30.3 TFLOPS", "105 %"]),
        ("ada.shared_memory", ["73,728 B = 72 KiB", "98,304 B = 96 KiB"]),
        ("ada.two_ctas_fit", ["149,504 B", "102,400"]),
        ("ada.model_kappa", ["κ = 1.96", "1.85 to 2.06", "52.7", "26.6"]),
        ("ada.occupancy_cap", ["0.879", "exactly 1 for every exponent"]),
        ("ada.occupancy_collapse", ["8 and 8 warps", "2 and 1 CTAs"]),
        ("ada.profiler_kernel_name", ["16×8×16"]),
        ("hopper.tensor_baseline", ["717.5 to 720.9", "no single reference"]),
        ("hopper.register_tiling_gain", ["1.566"]),
        ("hopper.sm_count", ["NVIDIA H200 has 132 SMs"]),
        ("hopper.shared_memory", ["shared memory of an SM of sm_90a is 228 KiB"]),
        ("hopper.shared_memory_reserve", ["for a thread block of sm_90a is 1 KiB"]),
        ("hopper.threads_per_block", ["largest thread block of sm_90a is 1024 threads"]),
        ("lecture.tile_64", ["8,657,043,456", "15.87596899"]),
        ("lecture.occupancy", ["37.5 %"]),
        ("lecture.compute_bound_tile", ["80.78895"]),
    ],
)
def test_evidence_holds_the_numbers(h200, claim, words):
    for word in words:
        assert word in h200[claim].evidence


def test_ada_measurements_are_not_judged_on_another_gpu(h200):
    ada = [one for one in h200.values() if one.kind == "measured" and one.devices == ("RTX 4060",)]
    assert len(ada) >= 12
    for one in ada:
        assert one.verdict == "not_testable"
        assert one.reason == "needs an RTX 4060"
        assert one.evidence.startswith("needs an RTX 4060. On NVIDIA H200 the same test gives: ")
    loss = h200["ada.s4_loss"].evidence
    assert "burst" in loss and "S=4" in loss and "claimed −2.5 %" in loss


def test_h100_ratios_are_judged_on_an_h200_but_absolute_speeds_are_not(h200):
    assert h200["hopper.cublas_scaling"].verdict != "not_testable"
    assert "taken as the same chip as the H100" in h200["hopper.clock_drops"].evidence
    assert h200["hopper.best_tflops"].verdict == "not_testable"
    assert h200["hopper.best_tflops"].reason.startswith("needs an H100")


def test_what_was_never_recorded_says_what_to_run(h200):
    shapes = h200["hopper.wgmma_shapes"]
    assert shapes.verdict in ("not_testable", "reproduced", "contradicted")
    if shapes.verdict == "not_testable":
        assert shapes.reason.startswith("no recorded data: run ")


def test_verdicts_are_counted_by_what_decided_them(h200, static):
    data = load(ROOT / "paper" / "data" / "h200")
    told = audit_report.section(data, claims.experiments_of(data), static, ROOT)

    def count(verdict: str, *kinds: str) -> str:
        return str(sum(one.verdict == verdict and one.kind in kinds for one in h200.values()))

    assert told["total"] == str(len(h200))
    for verdict in ("reproduced", "contradicted"):
        assert told[f"measured_{verdict}"] == count(verdict, "measured")
        assert told[f"computed_{verdict}"] == count(verdict, "arithmetic", "static")
    assert told["computed_contradicted"] == str(len(FIXED_CONTRADICTED))
    parts = [int(told[f"{how}_{what}"]) for how in ("measured", "computed") for what in
             ("reproduced", "contradicted")]  # fmt: skip
    assert sum(parts) + int(told["not_testable"]) == len(h200)


# --- an RTX 4060 ------------------------------------------------------------------------------


def test_an_rtx_4060_that_behaves_as_the_document_says(tmp_path, static):
    found = judged(write_folder(tmp_path / "rtx", document_speeds()), static)
    for name in (
        "best_configuration",
        "best_tflops",
        "cublas_tflops",
        "cublas_margin",
        "profiler_parity",
        "epilogue_width",
        "s4_loss",
        "s4_tflops",
        "model_s2",
        "model_s4_error",
        "wmma_tflops",
        "wmma_pipelining",
        "wmma_causes",
        "accuracy",
        "host_timing",
        "deeper_not_always_faster",
    ):
        assert found[f"ada.{name}"].verdict == "reproduced", found[f"ada.{name}"]
    assert found["ada.peak_share_measured"].verdict == "contradicted"
    assert "99.7 %" in found["ada.peak_share_measured"].evidence
    assert found["ada.ctas_per_sm"].verdict == "contradicted"
    assert found["ada.tdr"].reason.startswith("no recorded data: run ")
    assert found["hopper.clock_drops"].reason.startswith("needs an H100")
    assert found["lecture.occupancy_not_speed"].verdict == "reproduced"


def test_an_rtx_4060_that_behaves_otherwise(tmp_path, static):
    speeds = document_speeds()
    for config, n in list(speeds):
        if config.stages == 4 and config.threadblock_shape == TILE:
            speeds[config, n] = 33.9
    speeds[space.CUBLAS, 8192] = 34.5
    speeds[space.wmma(3), 4096] = 24.0
    found = judged(write_folder(tmp_path / "rtx", speeds), static)
    for name in (
        "best_configuration",
        "cublas_tflops",
        "cublas_margin",
        "profiler_parity",
        "s4_loss",
        "s4_tflops",
        "model_s4_error",
        "wmma_pipelining",
        "wmma_causes",
    ):
        assert found[f"ada.{name}"].verdict == "contradicted", found[f"ada.{name}"]
    assert "+6.3 %" in found["ada.s4_loss"].evidence
    assert found["ada.best_tflops"].verdict == "reproduced"


@pytest.mark.parametrize(
    "name", ["NVIDIA GeForce RTX 4060 Ti", "NVIDIA GeForce RTX 4060 Laptop GPU"]
)
def test_a_sibling_is_another_device(tmp_path, static, name):
    data = write_folder(tmp_path / "rtx", document_speeds(), replace(RTX_4060, name=name))
    assert judged(data, static)["ada.s4_loss"].reason == "needs an RTX 4060"


def test_device_names():
    assert claims.names_device("RTX 4060", "NVIDIA GeForce RTX 4060")
    assert claims.names_device("H100", "NVIDIA H100 80GB HBM3")
    assert not claims.names_device("H100", "NVIDIA H200")
    assert not claims.names_device("H100", "")


def test_interleaving_on_windows(tmp_path, static):
    rows = [
        made_up(space.CUBLAS, 8192, 31.0, "sm_89", "uniform") | {"condition": "interleaved"},
        synthetic.row(space.sm80(TILE, 3), GemmProblem(8192, 8192, 8192), arch="sm_89")
        | {"condition": "interleaved", "outcome": "timeout", "reason": "reset"},
    ]
    data = write_folder(tmp_path / "rtx", document_speeds())
    write_folder(tmp_path / "rtx" / "experiments" / "interleave", {}, extra=rows)
    verdict = judged(data, static)["ada.tdr"]
    assert verdict.verdict == "reproduced"
    assert "2 rows measured interleaved, 1 of them lost" in verdict.evidence


def test_compiling_alone_judges_what_needs_no_measurement(static):
    found = judged(static, None)
    assert found["ada.registers"].verdict == "contradicted"
    measured = [one for one in found.values() if one.kind == "measured"]
    assert all(one.verdict == "not_testable" and one.reason for one in measured)
    assert judged(None, None)["ada.registers"].reason.startswith("no static records: run ")


# --- experiments ------------------------------------------------------------------------------

H200 = replace(synthetic.DEVICE, name="NVIDIA H200", sm_count=132, max_sm_clock_mhz=1980.0)


def test_experiments_judge_inputs_and_scaling(tmp_path, static):
    data = write_folder(tmp_path / "h", {(space.CUBLAS, 8192): 700.0}, H200)
    folder = tmp_path / "h" / "experiments"
    inputs = [
        made_up(space.CUBLAS, 8192, tflops, "sm_90a", distribution)
        for distribution, tflops in (("integers", 775.0), ("zeros", 790.0))
    ]
    write_folder(folder / "inputs", {(space.CUBLAS, 8192): 700.0}, H200, extra=inputs)
    tile = (128, 256, 64)
    sourced = space.sm90(tile, 4, source_c="float")
    added = [made_up(sourced, 8192, 650, "sm_90a", "uniform", beta=1.0)]
    write_folder(folder / "alphabeta", {(sourced, 8192): 740.0}, H200, extra=added)
    (folder / "notes").mkdir()
    found = judged(data, static)
    for name in ("input_data", "input_data_zeros", "scaling_cost"):
        assert found[f"hopper.{name}"].verdict == "reproduced", found[f"hopper.{name}"]
    cited = found["hopper.input_data_size"]
    assert (cited.verdict, cited.reason) == (
        "not_testable",
        "needs an unnamed GPU of a cited benchmark",
    )
    assert "on this GPU it holds" in cited.evidence
    assert "(integers)" in found["hopper.input_data"].evidence


@pytest.mark.parametrize("other", [{"name": "NVIDIA H20"}, {"sm_count": 114}])
def test_an_experiment_of_another_device_judges_nothing(tmp_path, static, other):
    data = write_folder(tmp_path / "h", {(space.CUBLAS, 8192): 700.0}, H200)
    alone = judged(data, static)
    own = replace(H200, **other)
    write_folder(tmp_path / "h" / "experiments" / "inputs", {(space.CUBLAS, 8192): 31.0}, own)
    ((name, why),) = claims.experiments_of(data).left_out
    assert (name, "one folder per device" in why) == ("experiment inputs", True)
    assert judged(data, static) == alone


def test_what_was_only_compiled_is_no_experiment(tmp_path, static):
    data = write_folder(tmp_path / "h", {(space.CUBLAS, 8192): 700.0}, H200)
    shutil.copytree(static.directory, tmp_path / "h" / "experiments" / "static")
    ((name, why),) = claims.experiments_of(data).left_out
    assert (name, "holds nothing measured" in why) == ("experiment static", True)


def test_an_empty_static_folder_beside_the_data_is_passed_over(tmp_path):
    """A static half that was killed leaves one."""
    data = write_folder(tmp_path / "h", {(space.CUBLAS, 8192): 700.0}, H200)
    (tmp_path / "static").mkdir()
    found = claims.load_static(data)
    assert found is None or found.directory != tmp_path / "static"


def test_measurements_are_no_static_records(tmp_path, static):
    data = write_folder(tmp_path / "h", {(space.CUBLAS, 8192): 700.0}, H200)
    with pytest.raises(DataError, match="not what compiling alone tells"):
        claims.load_static(data, data.directory)
    found = claims.load_static(data, static.directory)
    assert found.device is None


UNIFORM = (630.0, 712.0, 1281.0)  # TFLOPS, W and MHz of cuBLAS, sustained


@pytest.mark.parametrize(
    ("integers", "verdict"),
    [
        ((720.0, 590.0, 1470.0), "reproduced"),
        ((720.0, 712.0, 1470.0), "reproduced"),  # both draw the limit
        ((720.0, 730.0, 1470.0), "contradicted"),  # faster, but for more power
        ((720.0, 590.0, 1281.0), "contradicted"),  # the clock did not change
        ((720.0, 590.0, 1290.0), "contradicted"),  # it makes up a small share of the gain
        ((600.0, 590.0, 1470.0), "contradicted"),  # no gain
        ((630.1, 590.0, 1470.0), "not_testable"),  # a tie
    ],
)
def test_less_power_is_the_cause_if_the_clock_rises(tmp_path, static, integers, verdict):
    rows = [sustained("integers", *integers), sustained("uniform", *UNIFORM)]
    rows.append(sustained("normal", 660.0, 700.0, 1340.0))
    rows.append(made_up(space.CUBLAS, 8192, 775.0, "sm_90a", "integers"))
    data = write_folder(tmp_path / "h", {(space.CUBLAS, 8192): 700.0}, H200, extra=rows)
    found = judged(data, static)["hopper.input_data_power"]
    assert found.verdict == verdict, found
    assert f"cuBLAS (integers) drew {integers[1]:.0f} W at {integers[2]:,.0f} MHz" in found.evidence
    assert "cuBLAS (uniform) drew 712 W at 1,281 MHz" in found.evidence
    assert "normal" not in found.evidence
    assert "burst" not in found.evidence


def sustained(distribution: str, tflops: float, power_w: float, clock_mhz: float) -> dict:
    return made_up(
        space.CUBLAS, 8192, tflops, "sm_90a", distribution,
        regime="sustained", power_w=power_w, sm_clock_mhz=clock_mhz,
    )  # fmt: skip


def test_inputs_are_compared_with_uniform_ones_and_power_in_the_sustained_regime(tmp_path, static):
    rows = [sustained(name, *UNIFORM) for name in ("uniform", "normal")]
    rows += [made_up(space.CUBLAS, 8192, 720.0, "sm_90a", "normal")]
    for name in ("integers", "zeros"):
        rows += [
            made_up(space.CUBLAS, 8192, 775.0, "sm_90a", name),
            sustained(name, 720, 590, 1470),
        ]
    data = write_folder(tmp_path / "h", {(space.CUBLAS, 8192): 700.0}, H200, extra=rows)
    found = judged(data, static)
    for name in ("input_data", "input_data_zeros", "input_data_size"):
        assert found[f"hopper.{name}"].evidence.count("cuBLAS (uniform)") == 2
        assert "normal" not in found[f"hopper.{name}"].evidence
    assert "flip" not in found["hopper.input_data_zeros"].statement
    assert found["hopper.clock_drops"].verdict == "reproduced"
    assert found["hopper.clock_drops"].evidence.endswith(
        "sustained: cuBLAS ran at 1,281 of 1,980 MHz, 712 of 700 W, "
        "throttle reason sw_power_cap in 24 of 25 samples"
    ), "a low clock in bursts is not said to be power's doing"


def test_a_low_clock_for_no_named_reason_proves_nothing(tmp_path, static):
    data = write_folder(
        tmp_path / "h", {(space.CUBLAS, 8192): 700.0}, H200, extra=[sustained("uniform", *UNIFORM)]
    )
    unnamed = replace(data, samples=data.samples.assign(throttle_reasons=""))
    found = judged(unnamed, static)["hopper.clock_drops"]
    assert found.verdict == "not_testable"
    assert "1,281 of 1,980 MHz" in found.evidence


# --- regimes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize("regime", ["burst", "sustained"])
def test_a_regime_that_cannot_tell_is_named(regime, exists):
    def judge(this):
        return Part(None if this == regime else True, "numbers")

    found = by_regime(judge, exists=exists)
    assert found.holds is True
    assert found.text == f"burst: numbers; sustained: numbers; the {regime} regime can't tell"
    both = by_regime(lambda this: Part(True, "numbers"), exists=exists)
    assert both.text == "burst: numbers; sustained: numbers"
    neither = by_regime(lambda this: Part(None, "numbers"), exists=exists)
    assert (neither.holds, neither.reason) == (None, "no regime can tell: measure more rounds")


def test_an_undecided_regime_stands_beside_what_the_other_gives_elsewhere(tmp_path, static):
    """The widths on a card that no document speaks of: too few rounds in the sustained regime."""
    configs = [(space.sm80(TILE, 3, width), tflops) for width, tflops in ((1, 393.5), (4, 391.9))]
    rows = [made_up(one, 8192, tflops, "sm_90a", "uniform", regime="sustained")
            for one, tflops in configs]  # fmt: skip
    speeds = {(space.sm80(TILE, 3, width), 8192): 440.0 + width for width in (1, 4)}
    data = write_folder(tmp_path / "h", speeds, H200, extra=rows)
    few = (data.samples["regime"] == "burst") | (data.samples["round"] < 4)
    found = judged(replace(data, samples=data.samples[few]), static)["ada.epilogue_width"]
    assert found.evidence.endswith("; the sustained regime can't tell (on this GPU it holds)")


def test_no_sure_loss_is_not_called_one(tmp_path):
    data = write_folder(tmp_path / "rtx", document_speeds())
    data = replace(data, samples=data.samples[data.samples["round"] < 4])
    claim = next(c for c in claims.load_claims(CLAIMS) if c.id == "ada.deeper_not_always_faster")
    found = known_tests()[claim.test](Evidence((data,), None, 80), **claim.parameters)
    assert found.holds is None
    assert (
        "S=4 is surely slower than S=3 for 0 of 4 kernels (4 have too few rounds for a corrected "
        "interval); the worst change is that of sm80 128×128×32 S=4 width 4, −1"
    ) in found.text


# --- the parts --------------------------------------------------------------------------------


def test_printed_numbers_stand_for_what_rounds_to_them():
    assert printed("31.9") == Span(pytest.approx(31.85), pytest.approx(31.95))
    for text in ("-2.5%", "−2.5 %"):
        assert printed(text) == Span(pytest.approx(-0.0255), pytest.approx(-0.0245))
    assert printed("8,657,043,456").middle == 8657043456
    for text in ("", "1.3.4", "about 3", "nan", "1e3"):
        with pytest.raises(UsageError, match="no number"):
            printed(text)
    with pytest.raises(UsageError, match="can be 0"):
        printed("1").over(printed("0"))


def test_numbers_in_evidence_have_one_style():
    assert (number(-1234.5, ",.1f"), number(2.5)) == ("−1,234.5", "2.5")
    assert (percent(0.527), percent(-0.05, 0), percent(1.05, 0)) == ("52.7 %", "−5 %", "105 %")
    assert (change(0.04), change(-0.0251), change(-0.0001)) == ("+4.0 %", "−2.5 %", "0.0 %")


def test_every_evidence_has_that_style(tmp_path, static, h200):
    rows = [made_up(space.CUBLAS, 8192, 31.5, "sm_89", "integers")]
    other = judged(write_folder(tmp_path / "rtx", document_speeds(), extra=rows), static)
    for one in (*h200.values(), *other.values()):
        text = f"{one.evidence} {one.statement}"
        assert not re.search(r"\d%", text), one
        assert not re.search(r"(?<![\w.])-\d|\de-\d", text), one


def test_kappa_from_the_document():
    span = kappa_span(printed("31.9"), printed("13.8%"), printed("31.1"), 3, 4)
    assert (round(span.low, 2), round(span.high, 2)) == (1.85, 2.06)


def test_rows_of_different_rounds_meet_through_cublas(tmp_path):
    a, b = space.sm80(TILE, 3), space.sm80(TILE, 4)
    speeds = {(space.CUBLAS, 8192): 31.5, (a, 8192): 31.9, (b, 8192): 31.1}
    data = write_folder(tmp_path / "rtx", speeds)
    own = {row["name"]: Row(data, row) for _, row in data.results.iterrows()}
    first, second = (next(r for n, r in own.items() if f"_s{s}_" in n) for s in (3, 4))
    direct = ratio_of(second, first, 30)
    assert direct.how == "paired"
    names = data.samples["name"]
    split = (names == first.values["name"]) & (data.samples["round"] >= 12)
    split |= (names == second.values["name"]) & (data.samples["round"] < 12)
    apart = replace(data, samples=data.samples[~split])
    indirect = ratio_of(Row(apart, second.values), Row(apart, first.values), 30)
    assert indirect.how == "through cuBLAS"
    assert indirect.span
    assert indirect.span.low < 31.1 / 31.9 < indirect.span.high < 1
    control = data.samples[names != own[next(n for n in own if "cublas" in n)].values["name"]]
    unpaired = replace(data, samples=control[~split[control.index]])
    assert ratio_of(Row(unpaired, second.values), Row(unpaired, first.values), 30).how == "unpaired"


def test_selecting_an_unknown_column_is_refused(static):
    with pytest.raises(UsageError, match="no column"):
        select(static.results, {"tile": "256x128x32"})


def test_missing_rows_are_no_data():
    empty = Evidence((), None)
    for name in ("host_timing", "some_deeper_is_slower", "below_peak", "interleaving_fails"):
        claim = next(c for c in claims.load_claims(CLAIMS) if c.test == name)
        assert known_tests()[name](empty, **claim.parameters).reason == "no recorded data"


# --- bad claim files --------------------------------------------------------------------------

GOOD = """
[[claim]]
id = "lecture.ridge"
document = "lecture"
section = "4.1"
kind = "arithmetic"
statement = "The ridge is at 20."
test = "lecture_ridge"
parameters = { claimed = "20" }
"""
LIMIT = GOOD.replace("lecture_ridge", "gpu_limit").replace(
    '{ claimed = "20" }', '{ arch = "sm_89", limit = "no_such", value = 1 }'
)
PAIRS = GOOD.replace("lecture_ridge", "one_baseline").replace(
    '{ claimed = "20" }', '{ pairs = [["1.0", "2%"]] }'
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (GOOD.replace("lecture_ridge", "no_such"), "unknown test 'no_such'"),
        (GOOD + GOOD, "the id 'lecture.ridge' twice"),
        (GOOD.replace('section = "4.1"\n', ""), "lacks 'section'"),
        (GOOD.replace("section", "chapter = 4\nsection"), "unknown key 'chapter'"),
        (GOOD.replace("claimed", "claim"), "unknown parameter 'claim'"),
        (GOOD.replace('parameters = { claimed = "20" }', ""), "lacks the parameter 'claimed'"),
        (GOOD.replace('"20" }', "20 }"), "which is no str"),
        (GOOD.replace('"20" }', '"twenty" }'), "no number"),
        (GOOD.replace('"arithmetic"', '"guessed"'), "kind 'guessed'"),
        (GOOD.replace('"lecture.ridge"', '"ada.ridge"'), "beginning with its document"),
        (GOOD.replace('"4.1"', "4.1"), "of the wrong kind"),
        (PAIRS.replace('"2%"]', '"2%", "3"]'), "which is no list[list[str]]"),
        (PAIRS.replace('"2%"', '"0%"'), "can't be tested with its parameters"),
        (LIMIT, "the limit 'no_such'; known are smem_per_sm, "),
        ("verdict = 1\n" + GOOD, "unknown key 'verdict'"),
        ("", "no [[claim]] tables"),
        ("claim = 3", "no [[claim]] tables"),
        (GOOD[:-4], "can't be read"),
        (f"a = {'[' * 100_000}", "can't be read: maximum recursion depth"),
    ],
)
def test_bad_claim_files_are_one_sentence(tmp_path, text, words):
    path = tmp_path / "claims.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=r".") as caught:
        claims.audit(None, None, claims.load_claims(path))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


# --- the script -------------------------------------------------------------------------------


def run_script(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )


def test_script_prints_json_with_the_contract_s_keys():
    done = run_script("--data", "paper/data/h200", "--format", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found) >= 25
    for one in found:
        assert {"id", "document", "kind", "statement", "verdict", "evidence"} <= one.keys()
        assert one["verdict"] in ("reproduced", "contradicted", "not_testable")
        assert one["evidence"]


def test_text_groups_by_document_and_counts(static):
    data = load(ROOT / "paper" / "data" / "static")
    verdicts = claims.audit(data)
    text = to_text(verdicts, data)
    for one in verdicts:
        assert f"\n{one.id}: " in text
    for title in claims.DOCUMENTS.values():
        assert title in text
    assert f"{len(verdicts)} claims: " in text
    assert max(len(line) for line in text.splitlines()) <= 100


def test_script_exit_codes_and_sentences(tmp_path):
    bad = tmp_path / "claims.toml"
    bad.write_text(GOOD.replace("lecture_ridge", "no_such"), encoding="utf-8")
    torn = tmp_path / "torn"
    torn.mkdir()
    (torn / "results.csv").write_text("name,family\n")
    static_folder = str(ROOT / "paper" / "data" / "static")
    for arguments, words in (
        (["--data", "nowhere"], "does not exist"),
        (["--data", str(torn)], "lacks the columns"),
        (["--data", static_folder, "--claims", str(bad)], "unknown test 'no_such'"),
        (["--data", static_folder, "--claims", "nowhere.toml"], "can't be read"),
        (["--data", static_folder], "no paper/ folder here or above"),
    ):
        done = run_here("audit", *arguments, cwd=tmp_path)
        assert done.returncode == 2, (arguments, done.stderr)
        assert words in done.stderr
        assert not done.stdout
        assert len(done.stderr.strip().splitlines()) == 1


def test_the_audit_imports_nothing_that_compiles_or_measures():
    code = (
        "import sys; from cutlass_study import claims, claim_formats; bad = [m for m in "
        "sys.modules if m.split('.')[0] in ('cuda', 'pynvml', 'nvmath', 'cutlass_library')]; "
        "sys.exit(', '.join(bad) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
