"""What tables and figures compare: the best of a group, and one axis with all else equal.

Two configurations are compared within rounds, where both met the same clock, so drift cancels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from cutlass_study.drift import drift
from cutlass_study.records import UNRESTED
from cutlass_study.stats import LAUNCH_BOUND, bootstrap_interval
from cutlass_study.study_data import sample_records
from cutlass_study.views import CONFIG_COLUMNS, NothingToShow, StudyView, short_labels

EPILOGUE_REFERENCE = 4
RANKED_ROWS = 25  # of the ranking, as a table and as a figure
NAMED_KINDS = 6  # of launch-bound rows, that a caption still names


def paired_ratio(
    samples: pd.DataFrame, name: str, reference: str
) -> tuple[float, float, float] | None:
    """Median within-round throughput ratio of `name` to `reference`, with its 95 % interval.

    None where no round holds both; the interval is NaN where `stats` allows none.
    """
    kept = samples[(samples["rejected"] == "") & (samples["time_ms"] > 0)]
    own, other = (
        kept[kept["name"] == wanted].groupby("round")["time_ms"].median()
        for wanted in (name, reference)
    )
    ratios = (other / own).dropna().to_numpy(dtype=float)
    if not len(ratios):
        return None
    low, high = bootstrap_interval(ratios) or (float("nan"), float("nan"))
    return float(np.median(ratios)), low, high


def drift_warning(view: StudyView) -> str:
    """A sentence for a caption if the control drifted beyond its own noise, else nothing."""
    texts = []
    for regime in view.regimes:
        found = control(measured_rows(view, regime))
        if found is None:
            continue
        samples = view.samples[view.samples["regime"] == regime]
        change = drift(sample_records(samples[samples["name"] == found["name"]]))
        if change is not None and change.excessive:
            texts.append(
                f"the control's time changed by {change.change:+.1%} over the {regime} run, "
                f"its samples spread by {change.spread:.1%}"
            )
    return f" Warning: {'; '.join(texts)}." if texts else ""


def launch_bound_note(rows: pd.DataFrame) -> str:
    """A sentence for a caption on how many rows are launch-bound, else nothing."""
    bound = rows[rows["launch_bound"] == "true"]
    count = len(bound)
    if not count:
        return ""
    named = [
        f"{label} at {', '.join(f'{n:g}' for n in sorted(group['n'].unique()))}"
        for label, group in bound.assign(label=short_labels(bound)).groupby("label", sort=False)
    ]
    which = f" ({'; '.join(named)})" if len(named) <= NAMED_KINDS else ""
    return (
        f" {count} row{'s are' if count > 1 else ' is'} launch-bound{which}: the host took more "
        f"than {LAUNCH_BOUND:g} times as long for a launch as the GPU."
    )


def groups_over(rows: pd.DataFrame, axis: str) -> list[pd.DataFrame]:
    """Rows that differ in `axis` alone, as one frame a group; groups of one are left out."""
    others = [column for column in CONFIG_COLUMNS if column != axis]
    grouped = rows.groupby(others, dropna=False, sort=False)
    return [group for _, group in grouped if group[axis].nunique() > 1]


def epilogue_effect(view: StudyView, regime: str) -> pd.DataFrame:
    """Throughput at each epilogue width relative to width 4, a row per group and other width.

    Columns: `family`, `group` (label without the width), `epilogue_width`, `tflops`,
    `reference_tflops`, `ratio`, `low`, `high` (NaN without paired samples), `paired`.
    """
    rows = view.at(regime)
    rows = rows[(rows["state"] == "measured") & rows["epilogue_width"].notna()]
    samples = view.samples[view.samples["regime"] == regime]
    rows = rows.assign(_group=short_labels(rows.assign(epilogue_width=float("nan"))))
    found: list[dict[str, Any]] = []
    for group in groups_over(rows, "epilogue_width"):
        reference = group[group["epilogue_width"] == EPILOGUE_REFERENCE]
        if reference.empty:
            continue
        base = reference.iloc[0]
        for _, row in group[group["epilogue_width"] != EPILOGUE_REFERENCE].iterrows():
            paired = paired_ratio(samples, row["name"], base["name"])
            nothing = float("nan")
            ratio, low, high = paired or (row["tflops"] / base["tflops"], nothing, nothing)
            found.append(
                {
                    "family": row["family"],
                    "group": row["_group"],
                    "epilogue_width": row["epilogue_width"],
                    "tflops": row["tflops"],
                    "reference_tflops": base["tflops"],
                    "ratio": ratio,
                    "low": low,
                    "high": high,
                    "paired": paired is not None,
                }
            )
    if not found:
        raise NothingToShow(
            f"no {regime} pair of configurations differs in epilogue width alone, one of them at "
            f"width {EPILOGUE_REFERENCE}"
        )
    return pd.DataFrame(found)


def measured_rows(view: StudyView, regime: str) -> pd.DataFrame:
    """Measured rows of a regime; raises `NothingToShow` when there are none."""
    rows = view.at(regime)
    rows = rows[rows["state"] == "measured"]
    if rows.empty:
        raise NothingToShow(f"no {regime} measurement of {view.problem} on {view.arch}")
    return rows


def best_per(rows: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """The row with most TFLOPS of each group."""
    return rows.sort_values("tflops", ascending=False, kind="stable").drop_duplicates(keys)


def control(rows: pd.DataFrame) -> pd.Series[Any] | None:
    """The cuBLAS default row, to which ratios refer."""
    found = rows[(rows["family"] == "cublas") & (rows["variant"] == "default")]
    return None if found.empty else found.iloc[0]


def _lacking(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows without a valid sample: which kernel is the best of their problem, nobody knows."""
    lacking = (rows["outcome"] == "no_valid_samples") & (rows["regime"] != "")
    return rows.loc[lacking, ["regime", "extent"]].drop_duplicates()


def decided_squares(rows: pd.DataFrame) -> pd.DataFrame:
    """Measured rows of square problems where every kernel has a valid sample.

    Raises `NothingToShow` if they are of one size.
    """
    found = rows[(rows["state"] == "measured") & rows["extent"].notna()]
    lacking = pd.MultiIndex.from_frame(_lacking(rows))
    found = found[~pd.MultiIndex.from_frame(found[["regime", "extent"]]).isin(lacking)]
    if found["extent"].nunique() < 2:
        raise NothingToShow("fewer than two sizes of square problems were measured")
    return found


def undecided_note(rows: pd.DataFrame) -> str:
    """For a caption: what `decided_squares` leaves out."""
    lacking = _lacking(rows).dropna()
    if lacking.empty:
        return ""
    named = (f"{row.extent:g} in the {row.regime} regime" for row in lacking.itertuples())
    return f" Left out: {', '.join(named)}, where kernels have no valid sample."


def _stands_in(rows: pd.DataFrame) -> pd.Series[bool]:
    """Which rows are sustained since their problem has no burst regime."""
    return rows["stop_reason"].str.contains(UNRESTED, regex=False)


def scaling_rows(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Rows by regime. Where a problem has no burst regime, its sustained rows stand in for it."""
    stands_in = _stands_in(rows)
    found = {}
    for regime in sorted(rows["regime"].unique()):
        own = rows[rows["regime"] == regime]
        if regime == "burst":
            own = pd.concat([own, rows[stands_in]])
        elif stands_in[own.index].all() and not stands_in.all():
            continue
        found[str(regime)] = own
    return found


def stand_in_note(rows: pd.DataFrame) -> str:
    """For the caption of a figure of `scaling_rows`: which points are of the other regime."""
    stands_in = _stands_in(rows)
    extents = sorted(rows.loc[stands_in, "extent"].unique())
    if not extents or not (rows["regime"] == "burst").any():
        return ""
    return (
        f" Hollow points ({', '.join(f'{extent:g}' for extent in extents)}): sustained regime, "
        "since the power limit acts in nearly every burst there, however long the card rests "
        "(samples of that trial are not kept)."
    )


def scaling_series(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Per series (a family, `cublas_lt` apart from `cublas`) its best row at each size."""
    series = rows["family"].where(
        (rows["family"] != "cublas") | (rows["variant"] == "default"), "cublas_lt"
    )
    found = {}
    for name in ("cublas", "cublas_lt", "sm90", "sm80", "wgmma", "wmma", "simt"):
        points = rows[series == name]
        if not points.empty:
            found[name] = best_per(points, ["extent"]).sort_values("extent")
    return found
