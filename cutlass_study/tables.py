"""Tables: pure functions from a `StudyView` to a `Table`.

Each raises `NothingToShow` when the data can't fill it. Those of resources, outcomes and counts
need no measurement.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from cutlass_study.comparisons import (
    RANKED_ROWS,
    best_per,
    decided_squares,
    drift_warning,
    epilogue_effect,
    launch_bound_note,
    scaling_series,
    undecided_note,
)
from cutlass_study.table_formats import Table
from cutlass_study.views import (
    CONFIG_COLUMNS,
    STATES,
    TILED_FAMILIES,
    NothingToShow,
    StudyView,
    area_key,
    count_states,
    short_labels,
    stage_key,
)

_MEASURED = (
    "tflops",
    "peak_share",
    "ratio_to_cublas",
    "ratio_low",
    "ratio_high",
    "samples",
    "sm_clock_mhz",
)
_RESOURCES = (
    "registers",
    "smem_bytes",
    "spill_bytes",
    "threads",
    "ctas_per_sm",
    "occupancy",
    "limiter",
    "warnings",
)


def _filled(frame: pd.DataFrame, keep: tuple[str, ...] = ()) -> pd.DataFrame:
    """Without columns that hold nothing at all."""
    empty = [
        column
        for column in frame.columns
        if column not in keep and (frame[column].isna() | (frame[column] == "")).all()
    ]
    return frame.drop(columns=empty)


def _informative(rows: pd.DataFrame, axis: str = "") -> list[str]:
    """Columns, but `axis`, that tell configurations of a family apart; family and tile always."""
    varies = rows.groupby("family")[list(CONFIG_COLUMNS)].nunique().max() > 1
    always = ("family", "threadblock_shape")
    return [name for name in CONFIG_COLUMNS if name != axis and (name in always or varies[name])]


def _ordered(rows: pd.DataFrame) -> pd.DataFrame:
    """By family, tile, the other axes, and S."""
    keys = [
        (row["family"], area_key(row["threadblock_shape"]), stage_key(row["stages"]), row["label"])
        for _, row in rows.iterrows()
    ]
    order = sorted(range(len(rows)), key=keys.__getitem__)
    return rows.iloc[order]


def configurations(view: StudyView) -> Table:
    """Every configuration with what was measured, regimes side by side."""
    rows = _ordered(view.configurations)
    frame = rows[["label", *_informative(rows), "outcome"]].copy()
    for regime in view.regimes:
        measured = view.at(regime).loc[lambda all_rows: all_rows["state"] == "measured"]
        measured = measured.set_index("name").reindex(rows["name"])
        suffix = f"_{regime}" if len(view.regimes) > 1 else ""
        for column in _MEASURED:
            frame[column + suffix] = measured[column].to_numpy()
    if len(view.regimes) == 0:
        known = rows["registers"].notna().map({True: "compiled", False: "not measured"})
        frame["outcome"] = frame["outcome"].where(~frame["outcome"].isin(["ok", ""]), known)
    caption = (
        f"Configurations. {view.title}. {count_states(rows)}."
        + f" Regimes: {' and '.join(view.regimes)}." * bool(view.regimes)
        + " Ratios are medians within rounds, with a 95 % bootstrap interval." * bool(view.regimes)
        + launch_bound_note(view.rows)
        + drift_warning(view)
    )
    return Table(_named("configurations", view), _filled(frame), caption, csv_only=("label",))


def _named(name: str, view: StudyView) -> str:
    """Static tables carry the architecture, since a data folder may hold several."""
    return name if view.regimes else f"{name}_{view.arch}"


def ranking(view: StudyView) -> Table:
    """The fastest configurations of the first regime."""
    if not view.regimes:
        raise NothingToShow(f"nothing was measured on {view.arch}")
    regime = view.regimes[0]
    rows = view.at(regime)
    rows = rows[rows["state"] == "measured"]
    rows = rows.sort_values(["ratio_to_cublas", "tflops"], ascending=False, kind="stable")
    top = rows.head(RANKED_ROWS).reset_index(drop=True)
    top.insert(0, "rank", range(1, len(top) + 1))
    columns = ["rank", "label", "family", *_MEASURED, "registers", "ctas_per_sm"]
    caption = f"The {len(top)} fastest of {len(rows)} measured. {view.title}; {regime} regime."
    caption += drift_warning(view)
    return Table("ranking", _filled(top[columns]), caption)


def pipeline_depth(view: StudyView) -> Table:
    """TFLOPS over S with everything else equal, and the change from S=3 to S=4."""
    found: list[dict[str, Any]] = []
    depths: set[str] = set()
    for regime in view.regimes:
        rows = view.at(regime)
        rows = rows[(rows["state"] == "measured") & rows["family"].isin(TILED_FAMILIES)]
        keys = _informative(_ordered(rows), "stages")
        for _, group in _ordered(rows).groupby(keys, dropna=False, sort=False):
            by_depth = dict(zip(group["stages"], group["tflops"], strict=True))
            depths |= by_depth.keys()
            line = {"regime": regime, **{key: group.iloc[0][key] for key in keys}}
            line |= {f"tflops_s{depth}": value for depth, value in by_depth.items()}
            if {"3", "4"} <= by_depth.keys():
                line["change_s3_to_s4"] = by_depth["4"] / by_depth["3"] - 1
            found.append(line)
    if len(depths) < 2:
        raise NothingToShow("no configuration was measured at more than one pipeline depth S")
    frame = pd.DataFrame(found)
    last = [f"tflops_s{depth}" for depth in sorted(depths, key=stage_key)] + ["change_s3_to_s4"]
    first = [column for column in frame.columns if column not in last]
    frame = frame[first + [column for column in last if column in frame.columns]]
    caption = f"TFLOPS over pipeline depth S, all else equal. {view.title}; {_regimes(view)}."
    return Table("pipeline_depth", _filled(_one_regime(view, frame)), caption)


def _regimes(view: StudyView) -> str:
    return f"{' and '.join(view.regimes)} regime"


def _one_regime(view: StudyView, frame: pd.DataFrame) -> pd.DataFrame:
    """Without the regime column where the caption can say it: there is one only."""
    return frame if len(view.regimes) > 1 else frame.drop(columns="regime")


def epilogue_width(view: StudyView) -> Table:
    """Throughput at each epilogue width relative to width 4, everything else equal."""
    frames = []
    problem = f"nothing was measured on {view.arch}"
    for regime in view.regimes:
        try:
            effect = epilogue_effect(view, regime)
            effect.insert(0, "regime", regime)
            frames.append(effect)
        except NothingToShow as nothing:
            problem = str(nothing)
    if not frames:
        raise NothingToShow(problem)
    frame = pd.concat(frames, ignore_index=True)
    frame = frame.rename(columns={"group": "label", "low": "ratio_low", "high": "ratio_high"})
    frame = frame.drop(columns="paired")
    caption = (
        f"Throughput at epilogue widths relative to width 4, all else equal. {view.title}; "
        f"{_regimes(view)}. Median within-round ratios with a 95 % bootstrap interval where "
        "samples allow."
    )
    return Table("epilogue_width", _filled(_one_regime(view, frame)), caption)


def resources(view: StudyView) -> Table:
    """Registers, shared memory and occupancy of every compiled configuration."""
    rows = _ordered(view.configurations)
    rows = rows[rows["registers"].notna()]
    if rows.empty:
        raise NothingToShow(f"no kernel for {view.arch} has known registers")
    frame = rows[["label", *_informative(rows), *_RESOURCES]]
    frame = _filled(frame, keep=("spill_bytes", "warnings"))
    spilling = int((rows["spill_bytes"] > 0).sum())
    warned = int((rows["warnings"] != "").sum())
    caption = (
        f"Resources and occupancy on {view.arch}, as compiled; {view.problem}. {len(rows)} "
        f"kernels, {spilling} with spills, {warned} with a ptxas performance warning."
    ) + driver_check(rows)
    return Table(f"resources_{view.arch}", frame, caption, csv_only=("label",))


def driver_check(rows: pd.DataFrame) -> str:
    """How many of the computed CTAs per SM the CUDA driver confirmed, as a sentence; "" if none."""
    asked = rows[rows["driver_ctas_per_sm"].notna()]
    if asked.empty:
        return ""
    equal = int((asked["driver_ctas_per_sm"] == asked["ctas_per_sm"]).sum())
    return f" The CUDA driver counts as many CTAs for {equal} of {len(asked)} loaded kernels."


def occupancy_over_depth(view: StudyView) -> Table:
    """Resident CTAs per SM over S for every tile: smallest and largest over the other axes."""
    rows = view.configurations
    rows = rows[rows["ctas_per_sm"].notna() & rows["family"].isin(TILED_FAMILIES)]
    rows = rows[rows["state"] != "infeasible"]
    if rows.empty:
        raise NothingToShow(f"no kernel for {view.arch} has known occupancy")
    stages = sorted(rows["stages"].unique(), key=stage_key)
    found: list[dict[str, Any]] = []
    kinds = rows[["family", "threadblock_shape"]].drop_duplicates().to_numpy().tolist()
    for family, tile in sorted(kinds, key=lambda kind: (kind[0], area_key(kind[1]))):
        group = rows[(rows["family"] == family) & (rows["threadblock_shape"] == tile)]
        line: dict[str, Any] = {"family": family, "threadblock_shape": tile}
        for stage in stages:
            counts = group.loc[group["stages"] == stage, "ctas_per_sm"]
            low, high = counts.min(), counts.max()
            text = f"{low:.0f}" if low == high else f"{low:.0f}–{high:.0f}"
            line[f"ctas_per_sm_s{stage}"] = "" if counts.empty else text
        found.append(line)
    caption = f"Resident CTAs per SM over stages S on {view.arch}, computed; {view.problem}."
    return Table(f"occupancy_{view.arch}", _filled(pd.DataFrame(found)), caption)


def scaling(view: StudyView) -> Table:
    """Best TFLOPS of each family over the size of square problems."""
    rows = decided_squares(view.all_problems)
    found: dict[tuple[str, float], dict[str, Any]] = {}
    for regime, group in rows.groupby("regime"):
        for series, points in scaling_series(group).items():
            for _, point in points.iterrows():
                line = found.setdefault((str(regime), point["extent"]), {})
                line[f"tflops_{series}"] = point["tflops"]
                if not series.startswith("cublas"):
                    line[f"ratio_to_cublas_{series}"] = point["ratio_to_cublas"]
                    line[f"ratio_low_{series}"] = point["ratio_low"]
                    line[f"ratio_high_{series}"] = point["ratio_high"]
    frame = pd.DataFrame(
        [{"regime": key[0], "extent": key[1], **found[key]} for key in sorted(found)]
    )
    device = view.title.split(";")[0]
    caption = (
        f"Throughput over problem size M = N = K. {device}; {view.distribution} inputs. CUTLASS "
        "and hand-written kernels: the best configuration at each size."
    ) + (launch_bound_note(rows) + undecided_note(view.all_problems))
    return Table("scaling", _filled(frame), caption)


def outcomes(view: StudyView) -> Table:
    """Every row that is not `ok`, of every problem, with its reason."""
    rows = view.all_problems
    rows = rows[~rows["outcome"].isin(["ok", ""])].drop_duplicates(["name", "outcome", "reason"])
    if rows.empty:
        raise NothingToShow(f"every configuration on {view.arch} ended ok")
    rows = rows.assign(label=short_labels(rows))
    rows = rows.sort_values(["outcome", "family", "m", "n", "k", "name"], kind="stable")
    frame = rows[["name", "family", "label", "problem", "outcome", "reason"]]
    caption = f"Configurations without a result on {view.arch}, and why: {count_states(rows)}."
    return Table(_named("outcomes", view), frame, caption, csv_only=("name",))


def outcome_counts(view: StudyView) -> Table:
    """How many configurations of each family and problem ended how."""
    rows = view.all_problems.assign(
        _rank=view.all_problems["state"].map({state: rank for rank, state in enumerate(STATES)})
    )
    rows = rows.sort_values("_rank", kind="stable").drop_duplicates("name")
    keys = ["m", "n", "k", "problem", "family", "state"]
    counts = rows.groupby(keys).size().unstack(fill_value=0).droplevel(["m", "n", "k"])
    counts = counts.reindex(columns=[state for state in STATES if state in counts.columns])
    counts.columns = [str(state).replace(" ", "_") for state in counts.columns]
    counts["total"] = counts.sum(axis=1)
    caption = f"Configurations by outcome on {view.arch}: {count_states(rows)}."
    return Table(_named("outcome_counts", view), counts.reset_index(), caption)


def best_by_family(view: StudyView) -> Table:
    """The fastest configuration of each family in each regime."""
    found = []
    for regime in view.regimes:
        rows = view.at(regime)
        best = best_per(rows[rows["state"] == "measured"], ["family"])
        found.append(best.assign(regime=regime))
    if not found:
        raise NothingToShow(f"nothing was measured on {view.arch}")
    frame = pd.concat(found)[["regime", "family", "label", *_MEASURED, "registers", "smem_bytes"]]
    caption = f"The fastest configuration of each family. {view.title}; {_regimes(view)}."
    caption += drift_warning(view)
    return Table("best", _filled(frame), caption)
