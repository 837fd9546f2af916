"""Every number of the paper's text, computed from recorded data: a tree that becomes JSON.

A value that the data can't give is `None`, and the template leaves its sentence out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import pandas as pd

from cutlass_study.comparisons import control, epilogue_effect, measured_rows, paired_ratio
from cutlass_study.paper_numbers import letters, number, ratio_interval, ratio_percent
from cutlass_study.peaks import Accumulate, nominal_flop_per_clk_sm
from cutlass_study.study_data import StudyData
from cutlass_study.views import NothingToShow, StudyView, make_views

Tree = dict[str, Any]
STUDY_TILES = ("256x128x32", "128x128x32")  # of the primary document
WIDTHS = (1, 2, 4)  # of the epilogue; the document's headline is of the last
REGIMES = ("burst", "sustained")
MIB = 2**20


def device(data: StudyData) -> Tree:
    """The hardware table."""
    assert data.device is not None
    found = data.device
    return {
        "name": found.name,
        "arch": found.arch,
        "sm_count": str(found.sm_count),
        "memory": f"{found.memory_bytes / 2**30:.0f} GiB",
        "l2": f"{found.l2_bytes / MIB:.0f} MiB",
        "smem_per_sm": f"{found.smem_per_sm / 1024:.0f} KiB",
        "smem_optin": f"{found.smem_per_block_optin} B",
        "max_clock": number(found.max_sm_clock_mhz, 0),
        "power_limit": number(found.power_limit_w, 0),
        "driver": found.driver_version,
        "cuda": found.cuda_driver_version,
        "system": found.operating_system,
        "watchdog": "active" if found.watchdog else "none",
    }


def ceilings(data: StudyData) -> list[Tree]:
    """The card's own peaks, as measured; empty where none were recorded."""
    name = data.device.name if data.device else ""
    rows = []
    for found in data.ceilings.values():
        accumulate: Accumulate = "f16" if "_f16" in found["name"] else "f32"
        nominal = nominal_flop_per_clk_sm(name, accumulate) if found["unit"] == "TFLOPS" else None
        rate = found["flop_per_clk_sm"]
        rows.append(
            {
                "name": found["name"],
                "value": f"{found['value']:.0f} {found['unit']}",
                "clock": number(found["sm_clock_mhz"], 0),
                "rate": number(rate, 0),
                "nominal": str(nominal) if nominal else None,
                "share": number(100 * rate / nominal, 1) if rate and nominal else None,
            }
        )
    return rows


def _own_shares(rows: pd.DataFrame, mma_rate: float | None) -> pd.Series[float]:
    """What each kernel of `mma.sync` reached of its own instruction's rate; NaN for others."""
    shares = rows["flop_per_clk_sm"] / (mma_rate or float("nan"))
    return shares.where(rows["family"].isin(["sm80", "wmma"]))


def _row(row: Any) -> Tree:
    return {
        "label": str(row["label"]),
        "name": str(row["name"]),
        "tflops": number(row["tflops"], 1),
        "own_share": number(100 * row["own_share"], 1),
        "ratio": ratio_percent(row["ratio_to_cublas"]),
        "interval": ratio_interval(row["ratio_low"], row["ratio_high"]),
        "clock": number(row["sm_clock_mhz"], 0),
        "power": number(row["power_w"], 0),
        "energy": number(row.get("energy_j"), 2),
        "rate": number(row.get("flop_per_clk_sm"), 0),
        "share": number(100 * row["peak_share"], 1),
        "ctas": number(row["ctas_per_sm"], 0),
    }


def _best(rows: pd.DataFrame, **wanted: str) -> Tree | None:
    for column, value in wanted.items():
        rows = rows[rows[column] == value]
    rows = rows.sort_values("tflops", ascending=False)
    return _row(rows.iloc[0]) if len(rows) else None


def depth(view: StudyView, regime: str, tile: str, width: int = 4) -> Tree | None:
    """TFLOPS of one `sm80` tile over S at one width, and what S=4 changes against S=3, paired."""
    rows = measured_rows(view, regime)
    rows = rows[
        (rows["family"] == "sm80")
        & (rows["threadblock_shape"] == tile)
        & (rows["epilogue_width"] == width)
        & (rows["split_k"] == 1)
        & (rows["swizzle"] == 1)
    ]
    by_stage = {str(row["stages"]): row for _, row in rows.iterrows()}
    if not {"3", "4"} <= by_stage.keys():
        return None
    samples = view.samples[view.samples["regime"] == regime]
    paired = paired_ratio(samples, str(by_stage["4"]["name"]), str(by_stage["3"]["name"]))
    return {
        "tile": tile.replace("x", "×"),
        "stages": {s: number(row["tflops"], 1) for s, row in by_stage.items()},
        "ctas": {s: number(row["ctas_per_sm"], 0) for s, row in by_stage.items()},
        "registers": {s: number(row["registers"], 0) for s, row in by_stage.items()},
        "ratio": paired[0] if paired else None,
        "change": ratio_percent(paired[0]) if paired else None,
        "interval": ratio_interval(paired[1], paired[2]) if paired else None,
        "loses": bool(paired and paired[2] < 1),
        "gains": bool(paired and paired[1] > 1),
    }


def depth_changes(runs: Sequence[StudyData]) -> Tree:
    """What S=4 changes against S=3, by tile, regime and width, a cell for each run.

    `spans` by tile and regime: the smallest and the largest change at width 4 of several cards.
    """
    views = [next(iter(make_views(run)), None) for run in runs]
    cards = [run.device.card if run.device else "unknown" for run in runs]
    rows, spans = [], []
    for tile, name in product(STUDY_TILES, REGIMES):
        for width in WIDTHS:
            found = [
                depth(view, name, tile, width) if view and name in view.regimes else None
                for view in views
            ]
            ratios = [one["ratio"] if one else None for one in found]
            known = [ratio for ratio in ratios if ratio]
            if not known:
                continue
            which: Tree = {"tile": tile.replace("x", "×"), "regime": name}
            rows.append(which | {"width": width, "changes": list(map(ratio_percent, ratios))})
            count = len({card for card, ratio in zip(cards, ratios, strict=True) if ratio})
            if width == WIDTHS[-1] and count > 1:
                low, high = ratio_percent(min(known)), ratio_percent(max(known))
                spans.append(which | {"cards": count, "low": low, "high": high})
    heads = letters(len(runs)) if len(runs) > 1 else cards
    several = len(set(cards)) > 1
    return {"heads": heads, "rows": rows, "spans": spans, "several_cards": several}


def _widths(view: StudyView, regime: str) -> Tree | None:
    try:
        effect = epilogue_effect(view, regime)
    except NothingToShow:
        return None
    if effect.empty:
        return None
    low, high = effect["ratio"].min(), effect["ratio"].max()
    return {
        "low": ratio_percent(low),
        "high": ratio_percent(high),
        "groups": str(effect["group"].nunique()),
    }


def _host(rows: pd.DataFrame) -> str | None:
    """How much longer the host clock says a launch takes, for the control."""
    row = control(rows)
    if row is None or pd.isna(row["host_time_ms"]):
        return None
    return ratio_percent(row["host_time_ms"] / row["time_ms"], 2)


def _clocks(view: StudyView, regime: str, highest_mhz: float) -> Tree | None:
    samples = view.samples[view.samples["regime"] == regime]
    samples = samples[samples["sm_clock_mhz"].notna()]
    if samples.empty:
        return None
    nvml_mhz = samples["nvml_clock_mhz"].median()
    valid = samples[samples["rejected"] == ""]
    unlimited = int((valid["throttle_reasons"].fillna("") == "").sum())
    return {
        "delivered_low": number(samples["sm_clock_mhz"].quantile(0.05), 0),
        "delivered_high": number(samples["sm_clock_mhz"].quantile(0.95), 0),
        "nvml": number(nvml_mhz, 0),
        "power": number(samples["power_w"].median(), 0),
        "samples": str(len(samples)),
        "rejected": str(int((samples["rejected"] != "").sum())),
        "highest": number(highest_mhz, 0),
        "unlimited": str(unlimited),
        # Every kernel's clock is below what NVML reports, mostly without a throttle reason.
        "unexplained": bool(highest_mhz < 0.99 * nvml_mhz and 2 * unlimited > len(samples)),
    }


def _block_ms(view: StudyView, regime: str) -> str | None:
    """Median length of a sample's timed region."""
    samples = view.samples[view.samples["regime"] == regime]
    return number((samples["time_ms"] * samples["launches"]).median(), 0)


def _half_widths(rows: pd.DataFrame) -> Tree | None:
    """How narrow the intervals are: the promise of the measurement."""
    known = rows[rows["ratio_low"].notna() & (rows["family"] != "cublas")]
    if known.empty:
        return None
    half = (known["ratio_high"] - known["ratio_low"]) / 2 / known["ratio_to_cublas"]
    return {
        "median": number(100 * half.median(), 2),
        "p95": number(100 * half.quantile(0.95), 2),
        "rows": str(len(known)),
    }


def regime(view: StudyView, name: str, mma_rate: float | None = None) -> Tree:
    """Everything the text says of one regime on the study's problem.

    `mma_rate` in FLOP/clk/SM is what this card's `mma.sync` reached in a loop of nothing else.
    """
    rows = measured_rows(view, name)
    rows = rows.assign(own_share=_own_shares(rows, mma_rate))
    reference = control(rows)
    return {
        "rows": str(len(rows)),
        "cublas": _row(reference) if reference is not None else None,
        "cublas_lt": _best(rows, family="cublas", variant="lt_best"),
        "sm80": _best(rows, family="sm80"),
        "sm90": _best(rows, family="sm90"),
        "wmma_single": _best(rows, family="wmma", variant="single"),
        "wmma_multistage": _best(rows, family="wmma", variant="multistage"),
        "depth": [d for tile in STUDY_TILES if (d := depth(view, name, tile)) is not None],
        "widths": _widths(view, name),
        "host": _host(rows),
        "clocks": _clocks(view, name, rows["sm_clock_mhz"].max()),
        "block": _block_ms(view, name),
        "half_widths": _half_widths(rows),
    }


def outcomes(results: pd.DataFrame) -> Tree:
    """How many configurations ended how."""
    last = results.drop_duplicates(["name", "distribution", "seed"])
    return {str(name): str(count) for name, count in last["outcome"].value_counts().items()}


def no_valid(results: pd.DataFrame) -> list[Tree]:
    """Where kernels have no valid sample, and whether the power limit is all that was wrong."""
    rows = results[results["outcome"] == "no_valid_samples"]
    return [
        {
            "problem": f"{m}×{n}×{k}",
            "rows": str(len(group)),
            "throttled": bool(group["reason"].str.contains("throttled: sw_power_cap").all()),
        }
        for (m, n, k), group in rows.groupby(["m", "n", "k"])
    ]


def driver_ctas(results: pd.DataFrame) -> Tree:
    """How often the CUDA driver counts as many CTAs per SM as the toolkit."""
    rows = results.drop_duplicates(["name", "distribution", "seed"])
    rows = rows[rows["driver_ctas_per_sm"].notna()]
    agree = int((rows["driver_ctas_per_sm"] == rows["ctas_per_sm"]).sum())
    return {"rows": str(len(rows)), "agree": str(agree)}


def _static_rows(static: StudyData, arch: str) -> Iterable[Tree]:
    rows = static.results
    rows = rows[
        (rows["arch"] == arch)
        & (rows["family"] == "sm80")
        & (rows["epilogue_width"] == 4)
        & rows["threadblock_shape"].isin(STUDY_TILES)
    ]
    for _, row in rows.iterrows():
        yield {
            "tile": str(row["threadblock_shape"]).replace("x", "×"),
            "stages": str(row["stages"]),
            "registers": number(row["registers"], 0),
            "threads": number(row["threads"], 0),
            "smem": number(row["smem_bytes"], 0),
            "ctas": number(row["ctas_per_sm"], 0),
            "occupancy": number(100 * row["occupancy"], 1),
            "limiter": str(row["limiter"]),
        }


def values(data: StudyData, static: StudyData | None) -> Tree:
    """The whole tree. Raises `NothingToShow` if nothing in `data` was measured."""
    views = [view for view in make_views(data) if view.regimes]
    if data.device is None or not views:
        raise NothingToShow("the paper needs measured data; this folder has none")
    view = views[0]
    archs = ("sm_89", "sm_90a")
    return {
        "device": device(data),
        "ceilings": ceilings(data),
        "complete": data.complete,
        "problem": view.problem,
        "distribution": view.distribution,
        "samples": str(len(data.samples)),
        "rows": str(data.results["name"].nunique()),
        "outcomes": outcomes(data.results),
        "no_valid": no_valid(data.results),
        "driver_ctas": driver_ctas(data.results),
        "builds": data.summary.get("builds", []),
        "runs": data.summary.get("runs", []),
        "regimes": {name: regime(view, name, data.mma_rate) for name in view.regimes},
        "static": {arch: list(_static_rows(static, arch)) for arch in archs} if static else None,
    }
