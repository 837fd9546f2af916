"""Which recorded rows one table or figure shows, with what readers call them.

A `StudyView` is one problem, one input distribution and one architecture. Everything here is a
pure function of loaded records; nothing compiles or measures.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import pandas as pd

from cutlass_study.columns import FLOAT_COLUMNS, INTEGER_COLUMNS
from cutlass_study.config import HAND_WRITTEN, GemmConfig, UsageError
from cutlass_study.records import RESULT_COLUMNS, SAMPLE_COLUMNS, DeviceRecord

STATES = ("measured", "infeasible", "failed", "duplicate", "not measured")
FAMILY_TITLES = {
    "sm80": "CUTLASS sm80",
    "sm90": "CUTLASS sm90",
    "cublas": "cuBLAS",
    "wmma": "WMMA",
    "simt": "SIMT",
    "wgmma": "WGMMA",
}
TILED_FAMILIES = ("sm80", "sm90", *HAND_WRITTEN)
CONFIG_COLUMNS = tuple(GemmConfig.__dataclass_fields__)
_NUMERIC = INTEGER_COLUMNS | FLOAT_COLUMNS
_SCHEDULES = {"cooperative": "coop", "pingpong": "pingpong", "streamk": "stream-K"}
# What a label may name after the tile, and how; the starred ones always stand in it.
_LABEL_FIELDS = (
    ("variant", ""),
    ("warp_shape", "w"),
    ("cluster_shape", "*c"),
    ("schedule", "*"),
    ("stages", "*S"),
    ("epilogue", ""),
    ("epilogue_width", "e"),
    ("source_c", "C="),
    ("alignment", "a"),
    ("swizzle", "z"),
    ("split_k", "k"),
    ("raster", "r="),
)


class NothingToShow(Exception):
    """The data can't fill a table or figure; the message says what is missing."""


class StudyRecords(Protocol):
    """What `results.load` returns, as far as tables and figures use it."""

    @property
    def device(self) -> DeviceRecord | None: ...
    @property
    def results(self) -> pd.DataFrame: ...
    @property
    def samples(self) -> pd.DataFrame: ...
    @property
    def complete(self) -> bool: ...
    @property
    def experiment(self) -> str: ...


@dataclass(frozen=True)
class StudyView:
    """Rows of one architecture, problem, distribution and seed, prepared by `prepare`."""

    device: DeviceRecord | None
    arch: str
    problem: str
    distribution: str
    rows: pd.DataFrame
    samples: pd.DataFrame
    all_problems: pd.DataFrame  # the same architecture, distribution and seed, every problem
    complete: bool  # False for an export of an unfinished sweep

    @property
    def regimes(self) -> tuple[str, ...]:
        """Regimes with at least one measured row, `burst` first."""
        present = set(self.rows.loc[self.rows["state"] == "measured", "regime"])
        return tuple(sorted(present))

    @property
    def title(self) -> str:
        """Device, problem and distribution in words, the opening of every caption."""
        device = self.device.name if self.device and self.device.arch == self.arch else None
        if device is None:
            return f"{self.arch}, from compiling alone; {self.problem}"
        unfinished = "" if self.complete else "; unfinished sweep"
        return f"{device} ({self.arch}); {self.problem}; {self.distribution} inputs{unfinished}"

    def at(self, regime: str) -> pd.DataFrame:
        """One row per configuration: its row of `regime`, else the row that says why there is none.

        A configuration measured only in another regime is "not measured" here.
        """
        own = self.rows["regime"] == regime
        foreign = ~own & (self.rows["regime"] != "") & (self.rows["state"] == "measured")
        rows = self.rows.assign(_rank=(~own).astype(int))
        rows.loc[foreign, "state"] = "not measured"
        measured = ["tflops", "time_ms", "ratio_to_cublas", "ratio_low", "ratio_high", "peak_share"]
        rows.loc[foreign, measured] = float("nan")
        rows = rows.sort_values("_rank", kind="stable").drop_duplicates("name")
        return rows.drop(columns="_rank").sort_index()

    @property
    def configurations(self) -> pd.DataFrame:
        """One row per configuration, for facts that no regime changes; best state first."""
        order = self.rows["state"].map({state: rank for rank, state in enumerate(STATES)})
        rows = self.rows.assign(_rank=order).sort_values("_rank", kind="stable")
        return rows.drop_duplicates("name").drop(columns="_rank").sort_index()


def state_of(row: Any) -> str:
    """One of `STATES`: what a cell of a map says about a row."""
    outcome = row["outcome"]
    if outcome in ("infeasible", "duplicate"):
        return str(outcome)
    if outcome in ("", "ok"):
        return "measured" if outcome == "ok" and row["tflops"] > 0 else "not measured"
    return "failed"


def count_states(rows: pd.DataFrame) -> str:
    """`6 measured, 5 infeasible, 1 failed`; states that do not occur are not named."""
    counts = rows["state"].value_counts()
    parts = [f"{counts[state]} {state}" for state in STATES if counts.get(state, 0)]
    return ", ".join(parts) or "no configurations"


def pretty_shape(shape: str) -> str:
    """`256x128x32` → `256×128×32`."""
    return shape.replace("x", "×")


def area_key(shape: str) -> tuple[int, ...]:
    """Sort key for tiles: smaller output tiles first, then by extents."""
    extents = tuple(int(part) for part in shape.split("x") if part.isdigit())
    return (extents[0] * extents[1], *extents) if len(extents) >= 2 else (0,)


def stage_key(stages: str) -> tuple[int, str]:
    """Sort key for stages: numbers in order, then `auto`."""
    return (int(stages), "") if stages.isdigit() else (1 << 30, stages)


def _problem_text(row: Any) -> str:
    m, n, k = int(row["m"]), int(row["n"]), int(row["k"])
    parts = [f"M = N = K = {n}" if m == n == k else f"M×N×K = {m}×{n}×{k}"]
    parts += [f"layout {row['layout']}"] if row["layout"] not in ("", "tn") else []
    parts += [f"output {row['output']}"] if row["output"] not in ("", "f32") else []
    parts += [f"alpha {row['alpha']:g}"] if row["alpha"] not in (1,) and row["alpha"] >= 0 else []
    parts += [f"beta {row['beta']:g}"] if row["beta"] > 0 or row["beta"] < 0 else []
    parts += [f"lda {row['lda']:g}"] if row["lda"] > 0 and row["lda"] != k else []
    return ", ".join(parts)


def _field_text(field: str, value: str, tile: str) -> str:
    if field == "warp_shape":
        depth = tile.rpartition("x")[2]
        return pretty_shape(value.removesuffix(f"x{depth}"))
    if field == "cluster_shape":
        return pretty_shape(value.removesuffix("x1"))
    if field == "stages" and not value.isdigit():
        return f"={value}"
    return _SCHEDULES.get(value, value)


def _needed_fields(rows: pd.DataFrame) -> set[str]:
    """Fields that tell configurations of one family and tile apart."""
    names = [name for name, _ in _LABEL_FIELDS]
    varies = rows.groupby(["family", "threadblock_shape"])[names].nunique()
    return {name for name in names if bool((varies[name] > 1).any())}


def short_labels(rows: pd.DataFrame) -> pd.Series[str]:
    """Readable names such as `256×128×32 S3 e4`: the tile and what tells rows apart."""
    labels = pd.Series("", index=rows.index, dtype=object)
    for family, group in rows.groupby("family"):
        if family == "cublas":
            best = group["variant"] != "default"
            labels.loc[group.index] = best.map({True: "cuBLASLt best", False: "cuBLAS"})
            continue
        needed = _needed_fields(group)
        texts = []
        for _, row in group.iterrows():
            tile = row["threadblock_shape"]
            parts = [FAMILY_TITLES[str(family)]] if family in HAND_WRITTEN else []
            parts.append(pretty_shape(tile))
            for field, prefix in _LABEL_FIELDS:
                value = row[field]
                value = f"{value:g}" if isinstance(value, float) and value == value else value
                if value in ("", None) or value != value:
                    continue
                if field in needed or prefix.startswith("*"):
                    parts.append(prefix.lstrip("*") + _field_text(field, str(value), tile))
            texts.append(" ".join(parts))
        labels.loc[group.index] = pd.Series(texts, index=group.index, dtype=object)
    return labels


def prepare(results: pd.DataFrame, *, conditions: bool = False) -> pd.DataFrame:
    """Results with plain types and the derived columns `state`, `problem` and `extent`.

    Text is never missing (empty instead), numbers are NaN where nothing was recorded; `extent` is
    N of a plain square problem, else NaN. Rows of an experiment's conditions are left out unless
    `conditions` are wanted. Raises `NothingToShow` without rows.
    """
    if results.empty:
        raise NothingToShow("the data has no results")
    rows = plain_types(results.reindex(columns=list(RESULT_COLUMNS)).reset_index(drop=True))
    if not conditions:
        rows = rows[rows["condition"] == ""].reset_index(drop=True)
        if rows.empty:
            raise NothingToShow("every row was measured under an experiment's condition")
    auto = (rows["family"] == "sm90") & (rows["stages"] == "")
    rows.loc[auto, "stages"] = "auto"
    rows["state"] = [state_of(row) for _, row in rows.iterrows()]
    rows["problem"] = [_problem_text(row) for _, row in rows.iterrows()]
    plain = rows["problem"].str.fullmatch(r"M = N = K = \d+")
    rows["extent"] = rows["n"].where(plain)
    return rows


def plain_types(frame: pd.DataFrame) -> pd.DataFrame:
    """Text that is never missing and numbers that are NaN where nothing was recorded."""
    for column in frame.columns:
        if column in _NUMERIC:
            frame[column] = pd.to_numeric(frame[column], errors="coerce").astype(float)
        else:
            text = frame[column].astype(object).where(frame[column].notna(), "").map(str)
            frame[column] = text.str.removesuffix(".0") if column == "stages" else text
    return frame


def _choose_problem(rows: pd.DataFrame) -> str:
    """The square problem with most `sm80` configurations, the larger N where two have as many."""
    pool = rows[rows["family"] == "sm80"]
    pool = rows if pool.empty else pool
    pool = pool if pool["extent"].isna().all() else pool[pool["extent"].notna()]
    counts = pool.groupby("problem").agg(
        count=("name", "nunique"), m=("m", "first"), n=("n", "first")
    )
    ordered = counts.sort_values(["count", "n", "m"], kind="stable")
    return str(ordered.index[-1])


def _choose_distribution(rows: pd.DataFrame) -> str:
    present = rows["distribution"].value_counts()
    return "uniform" if "uniform" in present else str(present.index[0])


def make_views(
    data: StudyRecords, problem: str | None = None, distribution: str | None = None
) -> tuple[StudyView, ...]:
    """One view per architecture in the data.

    `problem` is `MxNxK`; by default the largest square problem that has most `sm80` rows.
    Raises `UsageError` for a problem that the data lacks, `NothingToShow` when no row is left.
    """
    rows = prepare(data.results)
    if problem is not None:
        shapes = rows[["m", "n", "k"]].drop_duplicates().astype(int).to_numpy().tolist()
        known = ["x".join(map(str, shape)) for shape in sorted(shapes)]
        if problem not in known:
            raise UsageError(
                f"problem {problem} is not in the data; use one of: {', '.join(known)}"
            )
        same = [
            rows[letter] == int(part)
            for letter, part in zip("mnk", problem.split("x"), strict=True)
        ]
        rows = rows[rows["arch"].isin(rows.loc[same[0] & same[1] & same[2], "arch"])]
    samples = plain_types(data.samples.reindex(columns=list(SAMPLE_COLUMNS)).copy())
    samples = samples[samples["condition"] == ""]
    return tuple(
        _view_of(data, str(arch), group, samples, problem, distribution)
        for arch, group in rows.groupby("arch", sort=True)
    )


def _view_of(
    data: StudyRecords,
    arch: str,
    rows: pd.DataFrame,
    samples: pd.DataFrame,
    problem: str | None,
    distribution: str | None,
) -> StudyView:
    distribution = distribution or _choose_distribution(rows)
    rows = rows[rows["distribution"] == distribution]
    if rows.empty:
        raise NothingToShow(f"no {arch} row has {distribution} inputs")
    seeds = rows["seed"].value_counts()
    if len(seeds) > 1:
        rows = rows[rows["seed"] == seeds.index[0]]
    if problem is None:
        chosen = rows[rows["problem"] == _choose_problem(rows)].copy()
    else:
        m, n, k = (int(part) for part in problem.split("x"))
        chosen = rows[(rows["m"] == m) & (rows["n"] == n) & (rows["k"] == k)]
        chosen = chosen[chosen["problem"] == chosen["problem"].min()].copy()
        if chosen.empty:
            raise NothingToShow(f"no {arch} row has the problem {problem}")
    chosen["label"] = short_labels(chosen)
    mine = samples[(samples["arch"] == arch) & samples["name"].isin(chosen["name"])]
    mine = mine[mine["distribution"] == distribution]
    if len(seeds) > 1:
        mine = mine[mine["seed"] == seeds.index[0]]
    title = str(chosen["problem"].iloc[0])
    return StudyView(data.device, arch, title, distribution, chosen, mine, rows, data.complete)
