"""Rows of the roofline model as JSON, CSV and text for people."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, fields

from cutlass_study import roofline
from cutlass_study.config import format_shape
from cutlass_study.roofline import Work
from cutlass_study.roofline_rows import RooflineRow, RooflineTask

COLUMNS = tuple(field.name for field in fields(RooflineRow))


def to_json(rows: Sequence[RooflineRow]) -> str:
    """A list of objects, every column in each; null where one does not apply."""
    return json.dumps([asdict(row) for row in rows], indent=1) + "\n"


def to_csv(rows: Sequence[RooflineRow]) -> str:
    """A header and the rows with all digits; booleans are true/false, absent values empty."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        values = asdict(row).values()
        writer.writerow(str(v).lower() if isinstance(v, bool) else v for v in values)
    return buffer.getvalue()


def to_text(task: RooflineTask, rows: Sequence[RooflineRow]) -> str:
    """Aligned columns with the digits that the lecture prints, then what holds for all rows."""
    measured = [row for row in rows if row.measured_tflops is not None]
    model = [row for row in rows if row.measured_tflops is None]
    parts = [_title(task), _grid(_traffic_cells(task, model)), _grid(_time_cells(task, model))]
    if measured:
        parts += ["Measured, against the model of its own tile:", _grid(_measured_cells(measured))]
    return "\n\n".join([*parts, "\n".join(notes(task, model))]) + "\n"


def _title(task: RooflineTask) -> str:
    shape = format_shape((task.work.m, task.work.n, task.work.k)).replace("x", "×")
    return (
        f"GEMM M×N×K = {shape}, {task.dtype} to {task.output_dtype}: {task.work.flops:,} FLOP; "
        f"peak {task.machine.peak_tflops:g} TFLOPS, {task.machine.bandwidth_gbs:g} GB/s"
    )


def _traffic_cells(task: RooflineTask, rows: Sequence[RooflineRow]) -> list[list[str]]:
    head = ["tile", "read B", "written B", "total B", "FLOP/B", "input buffer B", "sums B"]
    cells = [[*head, "CTAs/SM"] if task.limits else head]
    for row in rows:
        line = [row.tile.replace("x", "×"), f"{row.read_bytes:,}", f"{row.write_bytes:,}"]
        line += [f"{row.total_bytes:,}", f"{row.intensity:.6f}"]
        line += [_count(row.input_buffer_bytes), _count(row.accumulator_bytes)]
        cells.append([*line, _count(row.ctas_per_sm)] if task.limits else line)
    return cells


def _time_cells(task: RooflineTask, rows: Sequence[RooflineRow]) -> list[list[str]]:
    head = ["tile", "compute ms", "memory ms", "ideal ms", "ceiling TFLOPS", "bound", "speed-up"]
    cells = [[*head, "CTAs", "waves full"] if task.sm_count else head]
    for row in rows:
        line = [row.tile.replace("x", "×")]
        line += [f"{ms:.6f}" for ms in (row.compute_ms, row.memory_ms, row.ideal_ms)]
        line += [f"{row.ceiling_tflops:.6f}", row.bound, f"{row.speedup:.3f}×"]
        if task.sm_count:
            share = row.wave_efficiency
            line += [_count(row.output_tiles), "" if share is None else f"{share:.2%}"]
        cells.append(line)
    return cells


def _measured_cells(rows: Sequence[RooflineRow]) -> list[list[str]]:
    cells = [["configuration", "regime", "TFLOPS", "traffic", "FLOP/B", "ceiling", "share of it"]]
    for row in rows:
        line = [str(row.label), str(row.regime), f"{row.measured_tflops:.1f}"]
        line += [row.tile.replace("x", "×"), f"{row.intensity:.1f}", f"{row.ceiling_tflops:.1f}"]
        cells.append([*line, f"{row.roof_share:.1%}"])
    return cells


def _count(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _grid(cells: Sequence[Sequence[str]]) -> str:
    """The first column to the left, the others to the right, two spaces between."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for line in cells:
        first, *others = zip(line, widths, strict=True)
        padded = [first[0].ljust(first[1]), *(text.rjust(width) for text, width in others)]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def notes(task: RooflineTask, rows: Sequence[RooflineRow]) -> list[str]:
    """Sentences on the ridge, the smallest compute-bound tile, one pass, edges and residency."""
    work, machine = task.work, task.machine
    edge, whole = (
        roofline.compute_bound_tile(work, machine),
        roofline.compute_bound_whole_tile(work, machine),
    )
    least = roofline.one_pass(work)
    found = [f"Ridge: {machine.ridge_flop_per_byte:g} FLOP/B."]
    if edge is None:
        found.append("No tile makes this compute-bound: even one pass is below the ridge.")
    else:
        found.append(f"Compute-bound from square tiles of T = {edge:.3f} on; in whole, {whole}.")
    found.append(
        f"One pass over the matrices: {least.total_bytes:,} B, "
        f"{work.flops / least.total_bytes:.3f} FLOP/B; tiles share nothing in this model."
    )
    ragged = [row.tile for row in rows if row.tile_m and row.tile_n and not _divides(work, row)]
    if ragged:
        found.append(f"Tiles that do not divide the matrix, cut off at its edge: {_list(ragged)}.")
    if task.limits:
        found.append(
            f"CTAs/SM on {task.limits.arch}: at most, with {task.threads} threads and registers "
            "for the partial sums alone."
        )
    if task.sm_count:
        resident = "as many CTAs on each as stated" if task.limits else "one CTA on each"
        found.append(f"Waves: {task.sm_count} SMs, {resident}.")
    return found + [f"Tile {row.tile} can't run: {row.reason}." for row in rows if row.reason]


def _divides(work: Work, row: RooflineRow) -> bool:
    assert row.tile_m and row.tile_n and row.tile_k
    return not (work.m % row.tile_m or work.n % row.tile_n or work.k % row.tile_k)


def _list(tiles: Sequence[str]) -> str:
    return ", ".join(tile.replace("x", "×") for tile in tiles)
