"""Resource limits of GPU architectures, for work without a GPU.

Source of every number: CUDA C++ Programming Guide 13.0, "Technical Specifications per Compute
Capability". A present GPU is queried instead (`device.query_device`).
"""

from __future__ import annotations

from dataclasses import dataclass

from cutlass_study.config import UsageError
from cutlass_study.records import DeviceRecord


@dataclass(frozen=True, slots=True)
class GpuLimits:
    """What bounds residency on one SM. Shared memory in bytes."""

    arch: str
    smem_per_sm: int
    smem_per_block_optin: int
    warps_per_sm: int
    ctas_per_sm: int
    smem_reserved_per_block: int = 1024
    smem_granularity: int = 128
    registers_per_sm: int = 65536
    registers_per_thread: int = 255
    register_unit_per_warp: int = 256
    sm_partitions: int = 4
    threads_per_block: int = 1024


_KIB = 1024
LIMITS: dict[str, GpuLimits] = {
    limits.arch: limits
    for limits in (
        GpuLimits("sm_80", 164 * _KIB, 163 * _KIB, 64, 32),
        GpuLimits("sm_86", 100 * _KIB, 99 * _KIB, 48, 16),
        GpuLimits("sm_87", 164 * _KIB, 163 * _KIB, 48, 16),
        GpuLimits("sm_89", 100 * _KIB, 99 * _KIB, 48, 24),
        GpuLimits("sm_90", 228 * _KIB, 227 * _KIB, 64, 32),
        GpuLimits("sm_90a", 228 * _KIB, 227 * _KIB, 64, 32),
        GpuLimits("sm_100", 228 * _KIB, 227 * _KIB, 64, 32),
        GpuLimits("sm_120", 100 * _KIB, 99 * _KIB, 48, 24),
    )
}


def limits_of(arch: str) -> GpuLimits:
    """Limits of a named architecture; raises `UsageError` for one that is not tabulated."""
    if arch not in LIMITS:
        raise UsageError(f"arch '{arch}' is not known; use one of: {', '.join(LIMITS)}")
    return LIMITS[arch]


def arch_of(compute_capability: tuple[int, int]) -> str:
    """The arch to compile for: `sm_90a` on Hopper (WGMMA needs the `a`), else `sm_XY`."""
    major, minor = compute_capability
    return "sm_90a" if (major, minor) == (9, 0) else f"sm_{major}{minor}"


def limits_from(record: DeviceRecord) -> GpuLimits:
    """The queried limits in the form that rules and occupancy take."""
    return GpuLimits(
        arch=record.arch,
        smem_per_sm=record.smem_per_sm,
        smem_per_block_optin=record.smem_per_block_optin,
        warps_per_sm=record.warps_per_sm,
        ctas_per_sm=record.ctas_per_sm_limit,
        smem_reserved_per_block=record.smem_reserved_per_block,
        registers_per_sm=record.registers_per_sm,
    )
