"""The recorded rows that models are fitted to, as arrays: what a kernel asks of each resource.

Left out, and counted: rows that are not `ok` or not of the asked regime, cuBLAS (its configuration
is unknown), launch-bound rows (N ≤ 512 whose host time exceeds 1.25 times the device time), and
problems where some kernel has no valid sample: which is fastest there, chance decided.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cutlass_study import peaks
from cutlass_study.columns import identity_from_values
from cutlass_study.config import GemmConfig, GemmProblem
from cutlass_study.records import UNRESTED
from cutlass_study.sm90_resources import pipeline_stages
from cutlass_study.study_data import StudyData

Floats = NDArray[np.float64]
LAUNCH_BOUND_EXTENT, LAUNCH_BOUND_RATIO = 512, 1.25
MODELLED = ("sm80", "sm90")
SHAPE = ["m", "n", "k"]


class ModelError(ValueError):
    """A model can't be fitted to these rows; one sentence."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What the models take from the device and its measured ceilings (`device.json`)."""

    sm_count: int
    l2_bytes: float
    dram_gb_s: float  # measured copy rate, 10^9 B/s
    flop_per_clk_sm: dict[str, float]  # by family: mma.sync for sm80, wgmma for sm90
    source: str


def machine_of(data: StudyData) -> Machine:
    """Ceilings as measured on this card; the documented tensor rate where none is recorded.

    Raises `ModelError` without a device or without a measured memory rate.
    """
    if data.device is None:
        raise ModelError("models need measured data; this folder is from compiling alone")
    ceilings = data.ceilings
    if "dram_copy" not in ceilings:
        raise ModelError("device.json has no measured memory ceiling; run sweep.py again")
    nominal = peaks.nominal_flop_per_clk_sm(data.device.name)
    rates = {}
    for family, prefix in (("sm80", "mma_f32"), ("sm90", "wgmma_ss_f32")):
        rate = (ceilings.get(prefix) or {}).get("flop_per_clk_sm") or nominal
        if rate:
            rates[family] = float(rate)
    return Machine(
        data.device.sm_count,
        float(data.device.l2_bytes),
        float(ceilings["dram_copy"]["value"]),
        rates,
        "measured ceilings in device.json",
    )


@dataclass(frozen=True, slots=True, eq=False)
class ModelRows:
    """One array entry per row; bytes and FLOP are per CTA and main-loop step unless said.

    "Streamed" is the operand indexed by the raster's fast axis: every row (or column) of tiles in a
    wave reads all of it. "Held" is the other one, shared by the CTAs along the fast axis.
    """

    family: str
    machine: Machine
    name: NDArray[np.object_]  # configuration and problem
    tile: NDArray[np.object_]
    problem: NDArray[np.object_]
    extent: Floats  # N; the cube root of M·N·K for other shapes
    time_ms: Floats
    clock_mhz: Floats  # delivered
    flop: Floats  # of the whole problem
    k_steps: Floats
    tiles: Floats
    fast_tiles: Floats  # tiles along the raster's fast axis
    flop_step: Floats
    a_bytes: Floats
    b_bytes: Floats
    streamed_bytes: Floats  # after multicast within the cluster
    held_bytes: Floats
    streamed_multicast: Floats  # CTAs of a cluster that share one read of the streamed operand
    held_multicast: Floats
    operand_bytes: Floats  # the whole streamed operand
    smem_read_bytes: Floats
    output_bytes: Floats  # per tile of D
    stages: Floats
    ctas_per_sm: Floats
    threads: Floats
    spill_bytes: Floats  # per thread
    clustered: NDArray[np.bool_]
    pingpong: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.name)

    def joined(self, other: ModelRows) -> ModelRows:
        """These rows, then those of another of the same family and machine."""
        values = {f.name: (getattr(self, f.name), getattr(other, f.name)) for f in fields(self)}
        arrays: dict[str, Any] = {
            name: np.concatenate(pair)
            for name, pair in values.items()
            if isinstance(pair[0], np.ndarray)
        }
        return replace(self, **arrays)

    def take(self, chosen: NDArray[Any]) -> ModelRows:
        """The rows of a mask or of indices, which may repeat."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return ModelRows(
            **{k: v[chosen] if isinstance(v, np.ndarray) else v for k, v in values.items()}
        )

    @property
    def cycles(self) -> Floats:
        """SM cycles of one launch: time × delivered clock."""
        return self.time_ms * self.clock_mhz * 1e3

    @property
    def tflops(self) -> Floats:
        """As measured."""
        return self.flop / self.time_ms / 1e9


def undecided_shapes(data: StudyData, regime: str) -> Counter[tuple[int, int, int]]:
    """(M, N, K) of the problems where kernels lack a valid sample → how many kernels."""
    frame = data.results
    lacking = frame[(frame["outcome"] == "no_valid_samples") & (frame["regime"] == regime)]
    return Counter(lacking[SHAPE].itertuples(index=False, name=None))


def usable(data: StudyData, family: str, regime: str = "burst") -> tuple[pd.DataFrame, int]:
    """(rows to fit, launch-bound rows left out). Plain conditions, one seed."""
    frame = data.results
    chosen = frame[
        (frame["outcome"] == "ok") & (frame["regime"] == regime) & (frame["family"] == family)
        & frame[["sm_clock_mhz", "ctas_per_sm", "threads"]].notna().all(axis=1)
        & (frame["ctas_per_sm"] > 0) & (frame["distribution"] == "uniform")
        & ~pd.MultiIndex.from_frame(frame[SHAPE]).isin(list(undecided_shapes(data, regime)))
    ]  # fmt: skip
    if "condition" in chosen:
        chosen = chosen[chosen["condition"] == ""]
    chosen = chosen[(chosen["layout"] == "tn") & (chosen["output"] == "f32")]
    chosen = chosen.sort_values("seed", kind="stable").drop_duplicates("name").sort_index()
    small = chosen[["m", "n", "k"]].max(axis=1) <= LAUNCH_BOUND_EXTENT
    bound = small & (chosen["host_time_ms"] > LAUNCH_BOUND_RATIO * chosen["time_ms"])
    return chosen[~bound].reset_index(drop=True), int(bound.sum())


def model_rows(data: StudyData, family: str, regime: str = "burst") -> ModelRows:
    """Features of every usable row of one family. Raises `ModelError` where there is none."""
    machine = machine_of(data)
    frame, _ = usable(data, family, regime)
    if frame.empty:
        raise ModelError(f"no {family} row was measured in the {regime} regime")
    return _rows(machine, family, frame)


def unrested_rows(data: StudyData, family: str) -> ModelRows | None:
    """Sustained rows of problems that have no burst regime, `None` without one.

    Models of bursts are not fitted to them, but can be asked which kernel is fastest there.
    """
    frame, _ = usable(data, family, "sustained")
    frame = frame[frame["stop_reason"].str.contains(UNRESTED, regex=False)]
    return None if frame.empty else _rows(machine_of(data), family, frame)


def _rows(machine: Machine, family: str, frame: pd.DataFrame) -> ModelRows:
    if family not in machine.flop_per_clk_sm:
        raise ModelError(f"no tensor rate is known for family {family} on this card")
    records = []
    for record in frame.to_dict("records"):
        plain = {str(key): None if pd.isna(v) or v == "" else v for key, v in record.items()}
        identity = identity_from_values(plain)
        measured = {
            "name": identity.name,
            "time_ms": float(record["time_ms"]),
            "clock_mhz": float(record["sm_clock_mhz"]),
            "ctas_per_sm": float(record["ctas_per_sm"]),
            "threads": float(record["threads"]),
            "spill_bytes": float(plain["spill_bytes"] or 0),
        }
        records.append(measured | features(identity.config, identity.problem))
    table = pd.DataFrame(records)
    columns = {
        f.name: table[f.name].to_numpy() for f in fields(ModelRows) if f.name in table.columns
    }
    return ModelRows(family=family, machine=machine, **columns)


def features(config: GemmConfig, problem: GemmProblem) -> dict[str, Any]:
    """What a kernel asks per CTA and main-loop step (see `ModelRows`), from its identity alone.

    The raster: `sm80` with swizzle 1 launches tiles along M first
    (`GemmIdentityThreadblockSwizzle`); `sm90` runs along M only if there are more tiles along N
    (`PersistentTileSchedulerSm90Params::get_rasterization_order`).
    """
    assert config.threadblock_shape
    rows, columns, depth = config.threadblock_shape
    cluster_m, cluster_n, _ = config.cluster_shape or (1, 1, 1)
    tiles_m, tiles_n = -(-problem.m // rows), -(-problem.n // columns)
    along_n = config.family == "sm90" and (
        tiles_n <= tiles_m if config.raster == "heuristic" else config.raster == "n"
    )
    a, b = rows * depth * 2.0, columns * depth * 2.0
    streamed, held = (b, a) if along_n else (a, b)
    multicast = (cluster_m, cluster_n) if along_n else (cluster_n, cluster_m)
    if config.warp_shape:
        warp_m, warp_n, _ = config.warp_shape
        warps = (rows // warp_m) * (columns // warp_n)
        smem = warps * (warp_m + warp_n) * depth * 2.0
    else:  # WGMMA reads A once and B once per 64 rows
        smem = a + b * -(-rows // 64)
    return {
        "tile": "x".join(map(str, config.threadblock_shape)),
        "problem": "x".join(map(str, problem.shape)),
        "extent": float((problem.m * problem.n * problem.k) ** (1 / 3)),
        "flop": float(problem.flop),
        "k_steps": float(-(-problem.k // depth)),
        "tiles": float(tiles_m * tiles_n),
        "fast_tiles": float(tiles_n if along_n else tiles_m),
        "flop_step": 2.0 * rows * columns * depth,
        "a_bytes": a,
        "b_bytes": b,
        "streamed_bytes": streamed / multicast[0],
        "held_bytes": held / multicast[1],
        "streamed_multicast": float(multicast[0]),
        "held_multicast": float(multicast[1]),
        "operand_bytes": 2.0 * problem.k * (problem.n if along_n else problem.m),
        "smem_read_bytes": smem,
        "output_bytes": float(rows * columns * problem.output_bytes),
        "stages": float(pipeline_stages(config, problem) or 0),
        "clustered": cluster_m * cluster_n > 1,
        "pingpong": config.schedule == "pingpong",
    }
