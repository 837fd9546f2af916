"""The delivered SM clock of a configuration that was not measured: a power model, 5 parameters.

At the power limit, clock·(energy per clock) is constant if the voltage stays, and falls more slowly
since the voltage falls along: P = (e_t·t + e_l·l + e_d·d)·(1 + g·log2(duration/5.5 ms)) with t the
share of the tensor rate 4096 FLOP/clk/SM, l the L2 bytes per clock and SM / 32, d the DRAM bytes
per clock and SM / 16, and clock = cap·(1 + P^12)^(-1/24): the cap below P = 1, cap/√P above.
`duration` is that of a burst sample, at least two launches: the limiter needs milliseconds to act.
It is an empirical stand-in for the card's limiter, fitted from N = 1024 up; below that clocks
depend on what ran before. Shared-memory energy as a sixth parameter hardly helped (median error
0.7 % either way).

Bounds: DRAM at full rate takes at most about a quarter of 700 W (3.2 TB/s at 7 pJ/bit), so its
share stays below 0.5; without this bound small problems, which hardly read DRAM, leave it free, and
a fit to N ≤ 4096 mispredicted the clock at 16384 by half (its cycles were right within 5 %).
"""

from __future__ import annotations

import numpy as np

from cutlass_study.models import physical
from cutlass_study.models.fitting import Parameter
from cutlass_study.models.rows import Floats, ModelRows
from cutlass_study.regimes import PLANS

LEAST_EXTENT = 1024
SAMPLE_LAUNCHES = 2  # at least: an untimed and a timed one
LEAST_SAMPLE_MS = PLANS["burst"].untimed_ms + PLANS["burst"].timed_ms
PARAMETERS = (
    Parameter("clock_cap", "MHz", "clock when power does not bind", 1800, 1000, 3000),
    Parameter("tensor_power", "1", "per 4096 FLOP/clk/SM", 1, 0, 10),
    Parameter("l2_power", "1", "per 32 B/clk/SM from L2", 0.3, 0, 10),
    Parameter("dram_power", "1", "per 16 B/clk/SM from DRAM", 0.1, 0, 0.5),
    Parameter("duration_power", "1", "more per doubling of the sample's duration", 0.05, 0, 0.2),
)


def clock_mhz(rows: ModelRows, values: Floats, cycles: Floats, time_ms: Floats) -> Floats:
    """Delivered clock of kernels that take `cycles` and about `time_ms` a launch."""
    cap, tensor, l2, dram, lasting = values
    rate = rows.flop / cycles / rows.machine.sm_count  # FLOP/clk/SM
    steps = rate / rows.flop_step  # main-loop steps per clock and SM
    read = (rows.a_bytes + rows.b_bytes - _saved(rows)) * steps
    from_dram = rows.streamed_bytes * physical.dram_share(rows, rows.ctas_per_sm) * steps
    sample_ms = np.maximum(SAMPLE_LAUNCHES * time_ms, LEAST_SAMPLE_MS)
    longer = 1 + lasting * np.log2(sample_ms / LEAST_SAMPLE_MS)
    power = (tensor * rate / 4096 + l2 * read / 32 + dram * from_dram / 16) * longer
    return np.asarray(cap * (1 + power**12) ** (-1 / 24))


def _saved(rows: ModelRows) -> Floats:
    """Bytes a step does not read from L2 since the cluster shares them."""
    return rows.a_bytes + rows.b_bytes - rows.streamed_bytes - rows.held_bytes


def time_and_clock(
    rows: ModelRows, cycle_values: Floats, clock_values: Floats
) -> tuple[Floats, Floats]:
    """(ms, MHz) of configurations whose clock is unknown: a fixed point of cycles and clock."""
    clock = np.full(len(rows), clock_values[0])
    cycles = physical.cycles(rows, cycle_values, clock)
    for _ in range(6):
        time_ms = cycles / clock / 1e3
        clock = clock_mhz(rows, clock_values, cycles, time_ms)
        cycles = physical.cycles(rows, cycle_values, clock)
    return cycles / clock / 1e3, clock
