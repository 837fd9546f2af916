"""Wave quantization: how full the last round of CTAs leaves the GPU."""

from __future__ import annotations


def wave_count(tiles: int, sm_count: int, ctas_per_sm: int = 1) -> int:
    """Rounds in which `tiles` CTAs run when the GPU holds sm_count·ctas_per_sm at a time.

    Raises ValueError unless all are at least 1.
    """
    if min(tiles, sm_count, ctas_per_sm) < 1:
        raise ValueError("tiles, SMs and CTAs per SM must be at least 1")
    return -(-tiles // (sm_count * ctas_per_sm))


def wave_efficiency(tiles: int, sm_count: int, ctas_per_sm: int = 1) -> float:
    """Share of the CTA places of all waves that get a tile: 1 where the last wave is full.

    Source: CUTLASS documentation, "Efficient GEMM in CUDA"; NVIDIA, "Matrix Multiplication
    Background User's Guide", wave quantization.
    """
    waves = wave_count(tiles, sm_count, ctas_per_sm)
    return tiles / (waves * sm_count * ctas_per_sm)
