"""Made-up study records for tests of tables and figures. No number here was measured."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from cutlass_study.config import GemmConfig, GemmProblem, full_name
from cutlass_study.records import RESULT_COLUMNS, SAMPLE_COLUMNS, DeviceRecord

DEVICE = DeviceRecord(
    name="Synthetic GPU",
    arch="sm_90a",
    uuid="GPU-0",
    sm_count=100,
    memory_bytes=1 << 34,
    l2_bytes=1 << 25,
    smem_per_block_optin=232448,
    smem_per_sm=233472,
    smem_reserved_per_block=1024,
    registers_per_sm=65536,
    warps_per_sm=64,
    ctas_per_sm_limit=32,
    max_sm_clock_mhz=2000.0,
    power_limit_w=700.0,
    watchdog=False,
    driver_version="0",
    cuda_driver_version="13.0",
    operating_system="none",
    python_version="3.11",
    study_version="0",
    git_commit=None,
)
TILES_SM80 = (
    ((64, 64, 32), (32, 32, 32)),
    ((128, 64, 32), (64, 32, 32)),
    ((64, 128, 32), (32, 64, 32)),
    ((128, 128, 32), (64, 64, 32)),
    ((256, 128, 32), (64, 64, 32)),
    ((128, 256, 32), (64, 64, 32)),
    ((128, 128, 64), (64, 64, 64)),
    ((256, 128, 64), (64, 64, 64)),
)
TILES_SM90 = (
    (64, 128, 64),
    (128, 128, 64),
    (128, 192, 64),
    (128, 256, 64),
    (256, 128, 64),
    (256, 192, 64),
    (256, 256, 64),
)


@dataclass(frozen=True)
class Records:
    """The shape of what `load` returns."""

    device: DeviceRecord | None
    results: pd.DataFrame
    samples: pd.DataFrame
    complete: bool = True
    experiment: str = ""


def sm80(tile=(128, 128, 32), warp=(64, 64, 32), stages=3, width=4, **more) -> GemmConfig:
    fields = {"alignment": 8, "swizzle": 1, "split_k": 1, **more}
    return GemmConfig("sm80", tile, warp, stages=stages, epilogue_width=width, **fields)


def sm90(tile=(128, 256, 64), cluster=(2, 1, 1), stages=None, **more) -> GemmConfig:
    fields = {
        "epilogue_width": 4,
        "alignment": 8,
        "swizzle": 1,
        "schedule": "cooperative",
        "epilogue": "tma",
        "source_c": "void",
        "raster": "heuristic",
        **more,
    }
    return GemmConfig("sm90", tile, cluster_shape=cluster, stages=stages, **fields)


CUBLAS = GemmConfig("cublas", variant="default")
CUBLAS_LT = GemmConfig("cublas", variant="lt_best")
WMMA = GemmConfig("wmma", (128, 128, 32), (64, 64, 16), stages=3, variant="multistage")


def row(config: GemmConfig, problem: GemmProblem, **values) -> dict:
    """A result row; what is not given is missing."""
    shapes = {
        name: None if shape is None else "x".join(map(str, shape))
        for name, shape in (
            ("threadblock_shape", config.threadblock_shape),
            ("warp_shape", config.warp_shape),
            ("cluster_shape", config.cluster_shape),
        )
    }
    plain = (
        "family epilogue_width alignment swizzle split_k schedule epilogue source_c raster variant"
    )
    filled = {name: getattr(config, name) for name in plain.split()} | shapes
    filled |= {name: getattr(problem, name) for name in ("m", "n", "k", "layout", "output")}
    filled |= {
        "name": full_name(config, problem),
        "stages": config.stages_text,
        "alpha": 1.0,
        "beta": 0.0,
        "arch": "sm_90a",
        "distribution": "uniform",
        "seed": 1,
        "outcome": "ok",
        "reason": "",
        "regime": "",
        "warnings": "",
        "condition": "",
    }
    filled |= values
    return {name: filled.get(name) for name in RESULT_COLUMNS}


def static(config: GemmConfig, per_sm: int = 1, registers: int = 168) -> dict:
    """Made-up compile results."""
    tile = config.threadblock_shape
    if tile is None:
        return {}
    smem = (tile[0] + tile[1]) * tile[2] * 2 * (config.stages or 4)
    return {
        "registers": registers,
        "smem_bytes": smem,
        "spill_bytes": 0,
        "threads": 256,
        "ctas_per_sm": per_sm,
        "occupancy": per_sm * 8 / 64,
        "limiter": "registers + shared memory" if per_sm == 1 else "registers",
    }


def measured(tflops: float, problem: GemmProblem, control: float, spread: float = 0.004) -> dict:
    """Made-up timing with an interval of ± `spread`."""
    ratio = tflops / control
    return {
        "tflops": tflops,
        "time_ms": problem.flop / tflops / 1e9,
        "time_iqr_ms": 0.01,
        "ratio_to_cublas": ratio,
        "ratio_low": ratio * (1 - spread),
        "ratio_high": ratio * (1 + spread),
        "samples": 25,
        "sm_clock_mhz": 1600.0,
        "power_w": 600.0,
        "peak_share": tflops / 800,
    }


def samples_of(rows: list[dict], rounds: int = 25) -> pd.DataFrame:
    """A sample per measured row and round, with a common drift."""
    random = np.random.default_rng(7)
    drift = 1 + 0.03 * np.sin(np.arange(rounds) / 4)
    found = []
    for line in rows:
        if not line["tflops"]:
            continue
        noise = 0.002 if line["regime"] == "burst" else 0.03
        times = line["time_ms"] * drift * (1 + noise * random.standard_normal(rounds))
        for number, time_ms in enumerate(times):
            found.append(
                {
                    **{name: line[name] for name in (*SAMPLE_COLUMNS[:5], "condition")},
                    "round": number,
                    "time_ms": time_ms,
                    "launches": 2,
                    "host_ms": time_ms * 1.01,
                    "sm_clock_mhz": 1600 / drift[number],
                    "nvml_clock_mhz": 1980.0,
                    "power_w": 600 + 40 * drift[number],
                    "temperature_c": 50.0,
                    "throttle_reasons": "",
                    "rejected": "throttled" if number == 3 else "",
                }
            )
    return pd.DataFrame(found, columns=list(SAMPLE_COLUMNS))


def hopper(regimes: tuple[str, ...] = ("burst", "sustained")) -> Records:
    """A full made-up study: two CUTLASS families, WMMA, cuBLAS, six sizes, two regimes."""
    random = np.random.default_rng(3)
    rows: list[dict] = []
    for extent in (512, 1024, 2048, 4096, 8192, 16384):
        problem = GemmProblem(extent, extent, extent)
        control = 740 * extent / (extent + 900)
        configs = _hopper_configs() if extent == 8192 else _hopper_configs()[::9]
        for config in [CUBLAS, CUBLAS_LT, WMMA, *configs]:
            rows += _hopper_rows(config, problem, control, regimes, random)
    return Records(DEVICE, pd.DataFrame(rows), samples_of(rows))


def _hopper_configs() -> list[GemmConfig]:
    return _first_configs() + _second_configs()


def _first_configs(tiles: int = 99) -> list[GemmConfig]:
    return [
        sm80(tile, warp, stages, width)
        for tile, warp in TILES_SM80[-tiles:]
        for stages in (2, 3, 4)
        for width in (1, 2, 4)
    ]


def _second_configs(tiles: int = 99) -> list[GemmConfig]:
    return [
        sm90(tile, cluster, stages, schedule=schedule)
        for tile in TILES_SM90[-tiles:]
        for cluster in ((1, 1, 1), (2, 1, 1))
        for stages in (2, 3, 4, None)
        for schedule in ("cooperative", "pingpong")
    ]


def _hopper_rows(config, problem, control, regimes, random) -> list[dict]:
    if config.family == "sm80" and config.threadblock_shape[2] == 64 and config.stages == 4:
        return [row(config, problem, outcome="infeasible", reason="shared memory 270000 > 232448")]
    if config.family == "sm90" and config.threadblock_shape == (256, 256, 64):
        if config.schedule == "pingpong":
            return [row(config, problem, outcome="compile_failed", reason="static_assert")]
        return [row(config, problem, outcome="duplicate", reason="same code as another")]
    scale = {"cublas": 1.0, "wmma": 0.2, "sm80": 0.5, "sm90": 0.85}[config.family]
    if config.threadblock_shape:
        area = config.threadblock_shape[0] * config.threadblock_shape[1]
        scale *= area / (area + 4000) * (1 - 0.5 / (config.stages or 5) ** 2)
        scale *= 1 - 0.01 * (4 - (config.epilogue_width or 4)) + 0.02 * random.standard_normal()
    found = []
    for regime in regimes:
        level = control * (1 if regime == "burst" else 0.9)
        value = level if config == CUBLAS else level * scale * 1.2
        timing = measured(value, problem, level, 0.004 if regime == "burst" else 0.04)
        registers = int(random.integers(90, 250))
        compiled = static(config, 1 if registers > 128 else 2, registers)
        found.append(row(config, problem, regime=regime, **timing, **compiled))
    return found


def grid_o6() -> Records:
    """Case O6: 12 configurations, 6 measured, 5 infeasible, 1 failed; and the control."""
    problem = GemmProblem(8192, 8192, 8192)
    tiles = [pair for pair in TILES_SM80 if pair[0][2] == 32][2:]
    rows = [row(CUBLAS, problem, regime="burst", **measured(100.0, problem, 100.0))]
    configs = [sm80(tile, warp, stages) for tile, warp in tiles for stages in (2, 3, 4)]
    for number, config in enumerate(configs):
        if number < 6:
            timing = measured(50.0 + number, problem, 100.0)
            rows.append(row(config, problem, regime="burst", **timing, **static(config)))
        elif number < 11:
            # A number that must not count: the row is not ok.
            rows.append(row(config, problem, outcome="infeasible", reason="needs 9999999 B"))
        else:
            rows.append(
                row(config, problem, outcome="wrong_result", reason="NaN in D", tflops=9999.0)
            )
    return Records(DEVICE, pd.DataFrame(rows), samples_of(rows[:7]))


def static_only(tiles: int = 3) -> Records:
    """Two architectures from compiling alone: nothing measured, no device."""
    problem = GemmProblem(8192, 8192, 8192)
    rows = []
    for arch, configs in (
        ("sm_89", [*_first_configs(tiles), WMMA]),
        ("sm_90a", [*_first_configs(tiles), *_second_configs(tiles), WMMA]),
    ):
        for number, config in enumerate(configs):
            facts = static(config, 1 + number % 3, 100 + number)
            if facts["smem_bytes"] > (101376 if arch == "sm_89" else 232448):
                line = row(config, problem, outcome="infeasible", reason="shared memory", arch=arch)
                rows.append(line | {"smem_bytes": facts["smem_bytes"]})
            else:
                rows.append(row(config, problem, arch=arch, **facts))
    return Records(None, pd.DataFrame(rows), pd.DataFrame(columns=list(SAMPLE_COLUMNS)))


def on_device(records: Records, **changes) -> Records:
    """The same records said to come from another device."""
    assert records.device
    return replace(records, device=replace(records.device, **changes))
