"""S/(S+κ) and γ(S) as the primary document (seeds/003) prints them, from its own numbers alone.

T(S) = A·S/(S+κ), TFLOPS. The document prints T(3) = 31.9 and T(4) = 31.1 as measured and says that
the model is 13.8 % too high at S=4. Fitted at S=3 this leaves one equation for κ:
T(4)/T(3) = 4(3+κ) / (3(4+κ)) = r, so κ = 12(r-1)/(4-3r) with r = 31.1·1.138/31.9.

γ(S), the "occupancy cap", has no formula in the document. Taken here as γ = (CTAs(S)/CTAs_max)^p.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from cutlass_study.gpus import limits_of
from cutlass_study.occupancy import ctas_by_shared_memory

MEASURED_S3_TFLOPS, MEASURED_S4_TFLOPS, OVERPREDICTION = 31.9, 31.1, 0.138
_HALF_DIGIT, _HALF_PERMILLE = 0.05, 0.0005  # rounding of the printed numbers
DOCUMENT_CTAS = {3: 2, 4: 1}
_SMEM_BYTES = {3: 73_728, 4: 98_304}  # 256x128x32, FP16: (256 + 128)·32·2 B a stage
ARCH = "sm_89"


def depth_efficiency(stages: float, kappa: float) -> float:
    """S/(S+κ), dimensionless."""
    return stages / (stages + kappa)


def kappa_from(s3_tflops: float, s4_tflops: float, overprediction: float) -> float:
    """κ that, fitted at S=3, over-predicts S=4 by `overprediction`. Raises ValueError if none."""
    ratio = s4_tflops * (1 + overprediction) / s3_tflops
    if not 1 <= ratio < 4 / 3:  # S/(S+κ) can only grow from S=3 to 4, and by less than 4/3
        raise ValueError(f"a predicted ratio T(4)/T(3) of {ratio:.3f} fits no κ of 0 or more")
    return 12 * (ratio - 1) / (4 - 3 * ratio)


@dataclass(frozen=True, slots=True)
class DocumentModel:
    """What the document's three numbers imply; `_low` and `_high` span their rounding."""

    kappa: float
    kappa_low: float
    kappa_high: float
    asymptote_tflops: float
    asymptote_low: float
    asymptote_high: float
    s2_tflops: float  # predicted; the document never measured S=2
    s2_low: float
    s2_high: float
    kappa_2_overprediction: float  # at S=4, had κ been 2 exactly
    finding: str


def document_model() -> DocumentModel:
    """κ, the asymptote A = T(3)·(3+κ)/3 and T(2) = A·2/(2+κ), with their rounding intervals."""
    steps = (-1, 1)
    corners = []
    for a, b, c in itertools.product(steps, steps, steps):
        s3 = MEASURED_S3_TFLOPS + a * _HALF_DIGIT
        s4 = MEASURED_S4_TFLOPS + b * _HALF_DIGIT
        kappa = kappa_from(s3, s4, OVERPREDICTION + c * _HALF_PERMILLE)
        asymptote = s3 / depth_efficiency(3, kappa)
        corners.append((kappa, asymptote, asymptote * depth_efficiency(2, kappa)))
    lows, highs = (tuple(map(pick, zip(*corners, strict=True))) for pick in (min, max))
    kappa = kappa_from(MEASURED_S3_TFLOPS, MEASURED_S4_TFLOPS, OVERPREDICTION)
    asymptote = MEASURED_S3_TFLOPS / depth_efficiency(3, kappa)
    two = MEASURED_S3_TFLOPS * depth_efficiency(4, 2) / depth_efficiency(3, 2)
    return DocumentModel(
        kappa, lows[0], highs[0], asymptote, lows[1], highs[1],
        asymptote * depth_efficiency(2, kappa), lows[2], highs[2],
        two / MEASURED_S4_TFLOPS - 1,
        "The document calls the model accurate at S=2 but reports measurements at S=3 and 4 only; "
        "its two parameters (A and κ in A·S/(S+κ)) are solved from those two points and the error "
        "that it states, so nothing is left to test.",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class OccupancyCap:
    """γ(S) under one set of CTAs per SM. `exponent` is None where no p can correct anything."""

    form: str
    ctas_s3: int
    ctas_s4: int
    gamma_s4_needed: float  # what brings the prediction at S=4 onto the measurement
    exponent: float | None
    error_s4: float  # relative error of the corrected prediction at S=4
    free_parameters: int
    points: int
    finding: str


def true_ctas(stages: int) -> int:
    """CTAs per SM of 256x128x32 on sm_89 that shared memory holds; registers allow 1 as well."""
    return ctas_by_shared_memory(_SMEM_BYTES[stages], limits_of(ARCH))


def occupancy_caps() -> tuple[OccupancyCap, OccupancyCap]:
    """γ(S) = (CTAs(S)/CTAs_max)^p with the document's CTAs per SM and with the true ones."""
    return (
        _cap("CTAs per SM as the document prints them", DOCUMENT_CTAS[3], DOCUMENT_CTAS[4]),
        _cap("CTAs per SM as the hardware allows", true_ctas(3), true_ctas(4)),
    )


def _cap(form: str, ctas_s3: int, ctas_s4: int) -> OccupancyCap:
    needed = 1 / (1 + OVERPREDICTION)
    count = (
        "Three free parameters (A, κ, p) meet the two points measured (three with the S=2 that the "
        "document claims but does not show): agreement within 1 % is no test of the model."
    )
    if ctas_s3 == ctas_s4:
        finding = (
            f"{ctas_s3} CTA per SM at S=3 and at S=4: γ is 1 at both for every p, "
            f"so the cap cannot correct anything. {count}"
        )
        return OccupancyCap(form, ctas_s3, ctas_s4, needed, None, OVERPREDICTION, 3, 2, finding)
    exponent = math.log(needed) / math.log(ctas_s4 / ctas_s3)
    return OccupancyCap(form, ctas_s3, ctas_s4, needed, exponent, 0.0, 3, 2, count)
