"""Made-up records for the tests of storing and deriving."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from cutlass_study.config import GemmConfig, GemmProblem
from cutlass_study.records import (
    BuildRecord,
    DeviceRecord,
    Identity,
    Occupancy,
    Resources,
    RowOutcome,
    Sample,
)
from cutlass_study.results import ResultsStore

DEVICE = DeviceRecord(
    name="NVIDIA GeForce RTX 4060",
    arch="sm_89",
    uuid="GPU-11111111",
    sm_count=24,
    memory_bytes=8 << 30,
    l2_bytes=24 << 20,
    smem_per_block_optin=101376,
    smem_per_sm=102400,
    smem_reserved_per_block=1024,
    registers_per_sm=65536,
    warps_per_sm=48,
    ctas_per_sm_limit=24,
    max_sm_clock_mhz=3105.0,
    power_limit_w=None,
    watchdog=True,
    driver_version="581.29",
    cuda_driver_version="13.0",
    operating_system="Windows 11",
    python_version="3.12.1",
    study_version="0.1",
    git_commit=None,
)
PROBLEM = GemmProblem(4096, 4096, 4096)
RESOURCES = Resources(226, 73728, 0, 256, "", "c0de")
BUILD = BuildRecord("key1", "sm_89", "nvrtc 13.0.88", "-DNDEBUG", "4.2.0", "5ca1e", RESOURCES, 1.6)


def sm80(stages: int = 3, **changes: Any) -> GemmConfig:
    values: dict[str, Any] = {
        "family": "sm80",
        "threadblock_shape": (256, 128, 32),
        "warp_shape": (64, 64, 32),
        "stages": stages,
        "epilogue_width": 4,
        "alignment": 8,
        "swizzle": 1,
        "split_k": 1,
    }
    return GemmConfig(**{**values, **changes})


CUBLAS = GemmConfig(family="cublas", variant="default")


def identity(config: GemmConfig, problem: GemmProblem = PROBLEM, **changes: Any) -> Identity:
    values: dict[str, Any] = {"arch": "sm_89", "distribution": "uniform", "seed": 1}
    return Identity(config, problem, **{**values, **changes})


def numbered(count: int, first: int = 1) -> list[Identity]:
    """Identities that differ in the problem alone."""
    return [identity(sm80(), GemmProblem(8 * (first + i), 64, 64)) for i in range(count)]


def ok(owner: Identity, build_key: str | None = "key1", **changes: Any) -> RowOutcome:
    values: dict[str, Any] = {
        "build_key": build_key,
        "resources": RESOURCES,
        "occupancy": Occupancy(1, 8 / 48, "registers + shared memory"),
        "max_abs_error": 1e-3,
        "max_rel_error": 2.5e-5,
        "stop_reason": "interval",
    }
    return RowOutcome(owner, "ok", **{**values, **changes})


def sample(number: int, time_ms: float, **changes: Any) -> Sample:
    values: dict[str, Any] = {
        "regime": "burst",
        "launches": 10,
        "host_ms": time_ms + 0.01,
        "energy_j": 0.5 * time_ms,
        "sm_clock_mhz": 2500.0,
        "nvml_clock_mhz": 2505.0,
        "power_w": 115.25,
        "temperature_c": 61.0,
        "throttle_reasons": "",
    }
    return Sample(round=number, time_ms=time_ms, **{**values, **changes})


def samples(times: Iterable[float], **changes: Any) -> list[Sample]:
    return [sample(number, float(time), **changes) for number, time in enumerate(times)]


def noisy(center_ms: float, rounds: int, seed: int, noise: float = 0.01) -> list[Sample]:
    rng = np.random.default_rng(seed)
    return samples(center_ms * rng.normal(1, noise, rounds))


def fill(store: ResultsStore) -> None:
    """A control, two measured rows in two regimes, one infeasible and one throttled row."""
    store.add_build(BUILD)
    for number, (config, time_ms) in enumerate([(CUBLAS, 1.0), (sm80(3), 1.05), (sm80(4), 1.1)]):
        row = identity(config)
        store.add_outcome(ok(row, None if config is CUBLAS else "key1"))
        store.add_samples(row, noisy(time_ms, 12, number))
        sustained = [replace(s, regime="sustained") for s in noisy(time_ms * 1.2, 8, number)]
        store.add_samples(row, sustained)
    infeasible = RowOutcome(identity(sm80(6)), "infeasible", "needs 147456 B,\nlimit 101376 B")
    store.add_outcome(infeasible)
    throttled = identity(sm80(2))
    store.add_outcome(ok(throttled))
    store.add_samples(throttled, samples([1.0] * 3, rejected="throttled"))
