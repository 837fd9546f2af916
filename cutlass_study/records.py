"""What is recorded: frozen rows that cross from measuring to storing to explaining.

Units stand in the field names. A value that was not measured is `None`, never a placeholder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cutlass_study.config import GemmConfig, GemmProblem, full_name

Outcome = Literal[
    "ok",
    "infeasible",
    "duplicate",
    "compile_failed",
    "not_implementable",
    "launch_failed",
    "timeout",
    "wrong_result",
    "no_valid_samples",
]
Regime = Literal["burst", "sustained"]
UNRESTED = "power limit in every sample"  # why a problem has no burst regime
FAILED = "failed"  # begins the part of a stop reason whose regime came to nothing
Distribution = Literal["uniform", "normal", "integers", "zeros"]
# How a launch finds its operands: rotated over several L2 sizes (the study's way), always the same
# set, the same set after the L2 was flushed, or the same set launched as alone as a flushed one.
CacheMode = Literal["rotate", "hot", "flush", "alone"]


class EnvironmentProblem(RuntimeError):
    """This machine can't do what was asked; one sentence with the remedy (exit code 3)."""


def is_whole(stop_reason: str) -> bool:
    """Whether sampling has ended in every regime of the row."""
    return stop_reason not in ("", f"burst: {UNRESTED}")


@dataclass(frozen=True, slots=True)
class DeviceRecord:
    """The GPU and the software under it, as found when measuring."""

    name: str
    arch: str  # what kernels are compiled for: sm_89, sm_90a
    uuid: str
    sm_count: int
    memory_bytes: int
    l2_bytes: int
    smem_per_block_optin: int
    smem_per_sm: int
    smem_reserved_per_block: int
    registers_per_sm: int
    warps_per_sm: int
    ctas_per_sm_limit: int
    max_sm_clock_mhz: float | None
    power_limit_w: float | None
    watchdog: bool
    driver_version: str
    cuda_driver_version: str
    operating_system: str
    python_version: str
    study_version: str
    git_commit: str | None

    @property
    def card(self) -> str:
        """The start of the card's UUID: `GPU-70089c8b`."""
        return "-".join(self.uuid.split("-")[:2])


@dataclass(frozen=True, slots=True)
class Resources:
    """What compiling told: independent of any GPU being present."""

    registers: int
    smem_bytes: int  # dynamic shared memory per CTA as launched
    spill_bytes: int
    threads: int
    warnings: str  # ptxas performance warnings, "; "-joined, empty if none
    code_hash: str  # SHA-256 of the kernel's machine code; equal means duplicate


@dataclass(frozen=True, slots=True)
class BuildRecord:
    """One compiled kernel: `key` addresses everything that determined it."""

    key: str
    arch: str
    toolchain: str  # e.g. "nvrtc 13.0.88"
    flags: str
    cutlass_version: str
    source_hash: str
    resources: Resources | None  # None when compiling failed
    compile_seconds: float


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Resident CTAs per SM and what binds them ("registers", "shared memory", joined by " + ")."""

    ctas_per_sm: int
    occupancy: float  # resident warps / maximum warps
    limiter: str


@dataclass(frozen=True, slots=True)
class Identity:
    """What a result belongs to. `regime` is in the sample, since one verified kernel has both.

    `condition` is empty for the study's own way of measuring. An experiment that measures a kernel
    in another way (hot, flushed, under a mere label) names it here, which keeps its rows apart.
    """

    config: GemmConfig
    problem: GemmProblem
    arch: str
    distribution: Distribution
    seed: int
    condition: str = ""

    @property
    def name(self) -> str:
        return full_name(self.config, self.problem)


@dataclass(frozen=True, slots=True)
class Sample:
    """One timed region of `launches` launches. `time_ms` is per launch, from CUDA events.

    `host_ms` is per launch, host clock around a synchronized batch, taken in some rounds only.
    `sm_clock_mhz` is the clock delivered during the region (SM cycles over global time),
    `nvml_clock_mhz` what NVML reported. `rejected` holds the reason a filter gave, or "".
    """

    regime: Regime
    round: int
    time_ms: float
    launches: int
    host_ms: float | None = None
    sm_clock_mhz: float | None = None
    nvml_clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    throttle_reasons: str = ""
    rejected: str = ""
    submission: str = "stream"  # "graph": replayed as one CUDA graph; "alone": one by one
    energy_j: float | None = None  # per launch, where the region was long enough to tell


@dataclass(frozen=True, slots=True)
class RowOutcome:
    """How a configuration ended, with its static facts. Timing is derived from samples."""

    identity: Identity
    outcome: Outcome
    reason: str = ""
    build_key: str | None = None
    resources: Resources | None = None
    occupancy: Occupancy | None = None
    max_abs_error: float | None = None
    max_rel_error: float | None = None
    driver_ctas_per_sm: int | None = None  # what the CUDA driver says of the loaded kernel
    stop_reason: str = ""  # "interval", "budget", …: why sampling ended


IDENTITY_COLUMNS = (
    "name",
    "family",
    "arch",
    "m",
    "n",
    "k",
    "layout",
    "output",
    "alpha",
    "beta",
    "lda",
    "threadblock_shape",
    "warp_shape",
    "cluster_shape",
    "stages",
    "epilogue_width",
    "alignment",
    "swizzle",
    "split_k",
    "schedule",
    "epilogue",
    "source_c",
    "raster",
    "variant",
    "distribution",
    "seed",
    "condition",
)
STATIC_COLUMNS = (
    "registers",
    "smem_bytes",
    "spill_bytes",
    "threads",
    "warnings",
    "ctas_per_sm",
    "occupancy",
    "limiter",
)
RESULT_COLUMNS = (
    *IDENTITY_COLUMNS,
    "outcome",
    "reason",
    "regime",
    *STATIC_COLUMNS,
    "driver_ctas_per_sm",
    "time_ms",
    "time_iqr_ms",
    "tflops",
    "host_time_ms",
    "launch_bound",
    "ratio_to_cublas",
    "ratio_low",
    "ratio_high",
    "samples",
    "sm_clock_mhz",
    "power_w",
    "energy_j",
    "flop_per_clk_sm",
    "peak_share",
    "max_abs_error",
    "max_rel_error",
    "stop_reason",
)
SAMPLE_COLUMNS = (
    "name",
    "arch",
    "distribution",
    "seed",
    "regime",
    "round",
    "time_ms",
    "launches",
    "host_ms",
    "sm_clock_mhz",
    "nvml_clock_mhz",
    "power_w",
    "temperature_c",
    "throttle_reasons",
    "rejected",
    "submission",
    "energy_j",
    "condition",
)
# Columns that recorded folders may lack: they read as empty, which is what they would hold.
NEWER_COLUMNS = ("condition", "launch_bound", "driver_ctas_per_sm")
