"""What the sweep sends to the child process and gets back. Imports nothing of CUDA."""

from __future__ import annotations

from dataclasses import dataclass

from cutlass_study.config import GemmConfig, GemmProblem
from cutlass_study.records import Distribution


@dataclass(frozen=True, slots=True)
class KernelTask:
    """A kernel to run: its compiled image (none for cuBLAS) and its resident CTAs per SM."""

    config: GemmConfig
    image: bytes | None
    ctas_per_sm: int


@dataclass(frozen=True, slots=True)
class Verification:
    """How D compared with the reference; `reason` is "" if it is right. Time of one launch."""

    reason: str
    max_abs_error: float
    max_rel_error: float
    estimate_ms: float


@dataclass(frozen=True, slots=True)
class ProblemSetup:
    """What is measured next: problem and inputs. `budget_s` None means the device's own."""

    problem: GemmProblem
    distribution: Distribution
    seed: int
    allow_long_launches: bool = False
