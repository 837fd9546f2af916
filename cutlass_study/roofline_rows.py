"""One row per tile of a GEMM: traffic, ceilings, times, on-chip space and what an SM holds."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from cutlass_study import roofline
from cutlass_study.config import Shape, format_shape
from cutlass_study.gpus import GpuLimits
from cutlass_study.occupancy import occupancy
from cutlass_study.roofline import Bound, Machine, Traffic, Work
from cutlass_study.waves import wave_efficiency

NO_REUSE, ONE_PASS = "none", "one-pass"
_REGISTER_BYTES = 4


@dataclass(frozen=True, slots=True)
class Measured:
    """A measured kernel that a row belongs to."""

    label: str
    family: str
    regime: str
    tflops: float


@dataclass(frozen=True, slots=True)
class RooflineRow:
    """One way to tile the work; fields are the columns, in order. None: does not apply.

    `tile` is `none` (no reuse), `T` for a square one, `MxNxK`, or `one-pass`. `input_buffer_bytes`
    holds every copy of the buffers. `roof_share` above 1 says that a measured kernel moved less
    than the model counts: caches shared operands between tiles.
    """

    tile: str
    flops: int
    read_bytes: int
    write_bytes: int
    total_bytes: int
    intensity: float
    ceiling_tflops: float
    compute_ms: float
    memory_ms: float
    ideal_ms: float
    bound: Bound
    input_buffer_bytes: int | None
    accumulator_bytes: int | None
    speedup: float  # of the ideal time, against no reuse
    memory_ceiling_tflops: float
    ridge_intensity: float
    one_pass_intensity: float
    compute_bound_tile: float | None
    m: int
    n: int
    k: int
    dtype: str
    output_dtype: str
    tile_m: int | None
    tile_n: int | None
    tile_k: int | None
    output_tiles: int | None
    k_steps: int | None
    fits: bool | None = None
    reason: str | None = None
    ctas_per_sm: int | None = None
    occupancy: float | None = None
    limiter: str | None = None
    wave_efficiency: float | None = None
    label: str | None = None
    family: str | None = None
    regime: str | None = None
    measured_tflops: float | None = None
    roof_share: float | None = None


@dataclass(frozen=True, slots=True)
class RooflineTask:
    """The work, its types by name, the machine, and what decides residency.

    `copies` 2 means double-buffered inputs; `limits` and `sm_count` None leave their columns empty.
    """

    work: Work
    dtype: str
    output_dtype: str
    machine: Machine
    copies: int = 1
    limits: GpuLimits | None = None
    threads: int = 256
    sm_count: int | None = None


def tile_name(tile: Shape) -> str:
    """`64` for a cube, else `128x64x32`."""
    return str(tile[0]) if len(set(tile)) == 1 else format_shape(tile)


def table(
    task: RooflineTask, tiles: Iterable[Shape], *, with_one_pass: bool = False
) -> list[RooflineRow]:
    """The no-reuse row, a row per tile in the order given, and the one-pass row if wanted."""
    rows = [no_reuse_row(task), *(tile_row(task, tile) for tile in tiles)]
    return [*rows, one_pass_row(task)] if with_one_pass else rows


def no_reuse_row(task: RooflineTask) -> RooflineRow:
    """Its buffers are the least state of one output, not what a CTA or a GPU holds."""
    buffers = roofline.buffers((1, 1, 1), task.work.types, task.copies)
    return _row(task, NO_REUSE, roofline.no_reuse(task.work), buffers)


def one_pass_row(task: RooflineTask, measured: Measured | None = None) -> RooflineRow:
    """The least traffic possible; no statement about the on-chip space that it would take."""
    return _row(task, ONE_PASS, roofline.one_pass(task.work), None, measured=measured)


def tile_row(task: RooflineTask, tile: Shape, measured: Measured | None = None) -> RooflineRow:
    """A tile's model and, with limits given, whether and how often an SM holds it."""
    buffers = roofline.buffers(tile, task.work.types, task.copies)
    traffic = roofline.tiled(task.work, tile)
    return _row(task, tile_name(tile), traffic, buffers, tile=tile, measured=measured)


def _row(
    task: RooflineTask,
    name: str,
    traffic: Traffic,
    buffers: roofline.Buffers | None,
    *,
    tile: Shape | None = None,
    measured: Measured | None = None,
) -> RooflineRow:
    work, machine = task.work, task.machine
    roof = roofline.roof(work.flops, traffic, machine)
    base = roofline.roof(work.flops, roofline.no_reuse(work), machine)
    least = roofline.roof(work.flops, roofline.one_pass(work), machine)
    resident = _residency(task, tile, buffers) if tile and buffers else _Residency()
    tiles = roofline.output_tiles(work, tile) if tile else None
    wave = None
    if tiles and task.sm_count and resident.fits is not False:
        wave = wave_efficiency(tiles, task.sm_count, resident.ctas_per_sm or 1)
    return RooflineRow(
        tile=name,
        flops=work.flops,
        read_bytes=traffic.read_bytes,
        write_bytes=traffic.write_bytes,
        total_bytes=traffic.total_bytes,
        intensity=roof.intensity_flop_per_byte,
        ceiling_tflops=roof.ceiling_tflops,
        compute_ms=roof.compute_ms,
        memory_ms=roof.memory_ms,
        ideal_ms=roof.ideal_ms,
        bound=roof.bound,
        input_buffer_bytes=buffers.input_bytes if buffers else None,
        accumulator_bytes=buffers.accumulator_bytes if buffers else None,
        speedup=base.ideal_ms / roof.ideal_ms,
        memory_ceiling_tflops=roof.memory_ceiling_tflops,
        ridge_intensity=machine.ridge_flop_per_byte,
        one_pass_intensity=least.intensity_flop_per_byte,
        compute_bound_tile=roofline.compute_bound_tile(work, machine),
        m=work.m,
        n=work.n,
        k=work.k,
        dtype=task.dtype,
        output_dtype=task.output_dtype,
        tile_m=tile[0] if tile else None,
        tile_n=tile[1] if tile else None,
        tile_k=tile[2] if tile else None,
        output_tiles=tiles,
        k_steps=roofline.k_steps(work, tile) if tile else None,
        **asdict(resident),
        wave_efficiency=wave,
        label=measured.label if measured else None,
        family=measured.family if measured else None,
        regime=measured.regime if measured else None,
        measured_tflops=measured.tflops if measured else None,
        roof_share=measured.tflops / roof.ceiling_tflops if measured else None,
    )


@dataclass(frozen=True, slots=True)
class _Residency:
    fits: bool | None = None
    reason: str | None = None
    ctas_per_sm: int | None = None
    occupancy: float | None = None
    limiter: str | None = None


def _residency(task: RooflineTask, tile: Shape, buffers: roofline.Buffers) -> _Residency:
    """At best: the input buffers in shared memory and nothing but the sums in registers."""
    limits = task.limits
    if limits is None:
        return _Residency()
    smem = buffers.input_bytes
    per_thread = roofline.accumulators_per_thread(tile, task.threads)
    registers = math.ceil(per_thread * task.work.types.accumulator_bytes / _REGISTER_BYTES)
    if smem > limits.smem_per_block_optin:
        reason = f"input buffers of {smem} B exceed {limits.smem_per_block_optin} B per CTA"
        return _Residency(False, reason, 0, 0.0, "shared memory")
    if registers > limits.registers_per_thread:
        reason = (
            f"the partial sums take {registers} registers per thread, more than "
            f"{limits.registers_per_thread}, and would spill"
        )
        return _Residency(False, reason, 0, 0.0, "registers")
    found = occupancy(registers, smem, task.threads, limits)
    if found.ctas_per_sm == 0:
        reason = f"an SM holds no CTA of {task.threads} threads ({found.limiter})"
        return _Residency(False, reason, 0, 0.0, found.limiter)
    return _Residency(True, "", found.ctas_per_sm, found.occupancy, found.limiter)
