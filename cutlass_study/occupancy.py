"""Resident CTAs per SM from registers, shared memory and warps, as the CUDA driver computes it.

Source of the formulas: CUDA Occupancy Calculator, allocation units of compute capability 8.x/9.0.
"""

from __future__ import annotations

from cutlass_study.gpus import GpuLimits
from cutlass_study.records import Occupancy


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def ctas_by_registers(registers: int, threads: int, limits: GpuLimits) -> int:
    """CTAs per SM that the register file holds; warps are allotted per SM partition."""
    if registers == 0:
        return limits.ctas_per_sm
    per_warp = _round_up(registers * 32, limits.register_unit_per_warp)
    per_partition = limits.registers_per_sm // limits.sm_partitions // per_warp
    return per_partition * limits.sm_partitions // (_round_up(threads, 32) // 32)


def ctas_by_shared_memory(smem_bytes: int, limits: GpuLimits) -> int:
    """CTAs per SM that shared memory holds; each CTA also costs the driver's reserve."""
    if smem_bytes > limits.smem_per_block_optin:
        return 0
    per_cta = _round_up(smem_bytes + limits.smem_reserved_per_block, limits.smem_granularity)
    return limits.smem_per_sm // per_cta


def occupancy(registers: int, smem_bytes: int, threads: int, limits: GpuLimits) -> Occupancy:
    """CTAs per SM, resident warps / maximum, and every resource that binds at that count."""
    warps = _round_up(threads, 32) // 32
    bounds = {
        "registers": ctas_by_registers(registers, threads, limits),
        "shared memory": ctas_by_shared_memory(smem_bytes, limits),
        "warps": limits.warps_per_sm // warps,
        "CTA slots": limits.ctas_per_sm,
    }
    ctas = min(bounds.values())
    limiter = " + ".join(name for name, bound in bounds.items() if bound == ctas)
    return Occupancy(ctas, ctas * warps / limits.warps_per_sm, limiter)
