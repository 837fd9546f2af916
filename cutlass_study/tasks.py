"""What the sweep sends to the child process and gets back. Imports nothing of CUDA."""

from __future__ import annotations

from dataclasses import dataclass

from cutlass_study.config import GemmConfig, GemmProblem
from cutlass_study.records import Distribution, Sample
from cutlass_study.regimes import GRAPH_BELOW_MS


@dataclass(frozen=True, slots=True)
class KernelTask:
    """A kernel to run: its compiled image (none for cuBLAS) and its resident CTAs per SM."""

    config: GemmConfig
    image: bytes | None
    ctas_per_sm: int
    choice: int | None = None  # cuBLASLt's candidate, once chosen: a new child must not try again


@dataclass(frozen=True, slots=True)
class Verification:
    """How D compared with the reference; `reason` is "" if it is right. Time of one launch.

    `overflows` counts infinite FP16 results that are right: the exact value does not fit.
    `ctas_per_sm` is the driver's occupancy query; None for cuBLAS, whose kernels are its own.
    """

    reason: str
    max_abs_error: float
    max_rel_error: float
    estimate_ms: float
    overflows: int = 0
    ctas_per_sm: int | None = None


@dataclass(frozen=True, slots=True)
class Taken:
    """A sample as the child took it, and when (`time.monotonic`), to be joined with telemetry."""

    sample: Sample
    started_s: float
    ended_s: float


@dataclass(frozen=True, slots=True)
class Interleaved:
    """Two kernels run together or one after the other, each `launches` times.

    Milliseconds per launch of each stream's events, host milliseconds per pair of launches, what
    verification said of each D, and when it was.
    """

    launches: int
    event_ms: tuple[float, float]
    wall_ms: float
    reasons: tuple[str, str]
    started_s: float
    ended_s: float


@dataclass(frozen=True, slots=True)
class PeerTimes:
    """One kernel timed by `cuda.bench` and by us in turns; milliseconds per launch.

    `own_alone_ms` are samples in the peer's way (cold, one launch at a time, back to back), taken
    right before and right after its own.
    """

    name: str
    repeat: int
    peer_ms: tuple[float, ...]
    peer_clock_mhz: float | None
    own_alone_ms: tuple[float, ...]
    own_clock_mhz: float | None


@dataclass(frozen=True, slots=True)
class ProblemSetup:
    """A problem with its inputs; several can be open at once."""

    problem: GemmProblem
    distribution: Distribution
    seed: int
    allow_long_launches: bool = False
    graph_below_ms: float = GRAPH_BELOW_MS  # shorter launches are replayed as CUDA graphs
