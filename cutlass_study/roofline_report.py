"""The roofline of recorded data, with the card's own measured peaks as the roof."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cutlass_study import roofline_figure
from cutlass_study.peaks import peak_flop_per_clk_sm_of
from cutlass_study.roofline import Machine
from cutlass_study.roofline_points import measured_points, measured_view, work_of
from cutlass_study.roofline_rows import RooflineTask, table
from cutlass_study.study_data import StudyData
from cutlass_study.style import styled

FIGURE = "roofline.pdf"


def machine_of(data: StudyData) -> Machine | None:
    """Peak at the card's maximum clock and copy bandwidth, both measured; `None` without them."""
    found = data.ceilings
    rate = peak_flop_per_clk_sm_of(found.values())
    device = data.device
    if rate is None or "dram_copy" not in found or device is None or not device.max_sm_clock_mhz:
        return None
    peak = rate * device.sm_count * device.max_sm_clock_mhz / 1e6
    return Machine(peak_tflops=round(peak, 1), bandwidth_gbs=round(found["dram_copy"]["value"]))


def section(data: StudyData, folder: Path) -> dict[str, Any] | None:
    """Draw the roofline into `folder`; what the text says of it. `None` without ceilings."""
    machine = machine_of(data)
    if machine is None:
        return None
    view = measured_view(data)
    work, output = work_of(view)
    task = RooflineTask(work, "fp16", output, machine)
    points = measured_points(task, view)
    rows = table(task, [], with_one_pass=True) + points
    with styled():
        figure = roofline_figure.draw(task, rows, view.title)
    roofline_figure.save_file(figure, folder / FIGURE)
    one_pass = rows[1]
    return {
        "figure": FIGURE,
        "caption": figure.caption,
        "peak": f"{machine.peak_tflops:.0f}",
        "bandwidth": f"{machine.bandwidth_gbs:.0f}",
        "ridge": f"{machine.ridge_flop_per_byte:.0f}",
        "one_pass": f"{one_pass.intensity:.0f}",
        "regime": view.regimes[0],
    }
