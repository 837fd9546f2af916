"""One table for each experiment: pure functions of loaded records."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from cutlass_study import experiment_frames as frames
from cutlass_study import settle_frames
from cutlass_study.table_formats import Table
from cutlass_study.views import NothingToShow, StudyRecords


def about(data: StudyRecords) -> str:
    """Device, problems and how far the run came: the opening of every caption."""
    results = data.results
    extents = sorted({int(n) for n in results["n"]})
    device = data.device.name if data.device else "unknown device"
    sizes = ", ".join(str(n) for n in extents)
    unfinished = "" if data.complete else "; unfinished experiment"
    return f"{device}; M = N = K = {sizes}{unfinished}"


def _present(frame: pd.DataFrame) -> pd.DataFrame:
    """Without columns that hold nothing."""
    return frame.loc[:, ~(frame.isna() | (frame == "")).all()].reset_index(drop=True)


def inputs(data: StudyRecords) -> Table:
    """Throughput, clock and power by input distribution and regime."""
    caption = (
        f"Effect of the input values. {about(data)}. All rows of a regime were measured in the "
        "same interleaved rounds. Ratio to uniform: throughput relative to the same kernel on "
        "uniform inputs, median within rounds with a 95 % bootstrap interval. The clock is the "
        "delivered one."
    )
    return Table("inputs", _present(frames.inputs(data)), caption)


def alphabeta(data: StudyRecords) -> Table:
    """What C and beta cost."""
    caption = (
        f"Cost of reading C. {about(data)}. Extra time in percent against the same kernel with "
        "beta=0, or without a C, in the same rounds: median with a 95 % bootstrap interval. Bytes: "
        "each operand once, C only where beta is not 0. cuBLAS adds in place."
    )
    return Table("alphabeta", _present(frames.alphabeta(data)), caption)


def cache(data: StudyRecords) -> Table:
    """Hot against cold operands."""
    caption = (
        f"Cold operands against hot ones. {about(data)}. Ratio: time with cold operands over time "
        "with the same operand set hot, median within rounds with a 95 % bootstrap interval. "
        "Rotated: batches of launches over several L2 sizes of operands. Flushed: the L2 is "
        "overwritten outside the timed region and each launch is timed alone, as is its hot "
        "counterpart."
    )
    frame = _present(frames.cache(data))
    return Table("cache", frame, caption, csv_only=("family", "configuration"))


def labels(data: StudyRecords) -> Table:
    """False differences between a kernel and itself."""
    frame = frames.labels(data)
    caption = f"Shuffled labels: cuBLAS against itself. {about(data)}."
    for regime, group in frame.groupby("regime"):
        clean = int((group["significant"] == 0).sum())
        caption += (
            f" {regime}: {clean} of {len(group)} repetitions without a significant difference."
        )
    caption += (
        " Significant: sign test within rounds, Holm-corrected at a family-wise level of 5 % over "
        "all comparisons of a repetition, or over those with the control alone."
    )
    return Table("labels", frame, caption)


INTERLEAVE_RUNS = "cuBLAS and CUTLASS one after the other and taking turns on two streams."


def interleave(data: StudyRecords) -> Table:
    """Serial and interleaved launches of two kernels."""
    frame = frames.interleave(data)
    ratios = frames.interleaved_ratios(frames.pair_samples(data))
    caption = (
        f"{INTERLEAVE_RUNS} {about(data)}. "
        "Event time: from a stream's first launch to its last, per launch; it counts waiting for "
        "the other kernel. Wall time: host, per pair of launches."
    )
    if len(ratios):
        caption += (
            f" Interleaved pairs take {np.median(ratios):.3f} of a serial one, median over rounds."
        )
    bad = int((frame["outcome"] != "ok").sum())
    caption += f" {bad} of {len(frame)} rows failed." if bad else " Every D was right, no crash."
    return Table("interleave", _present(frame), caption)


def nvbench_runs(data: StudyRecords) -> str:
    """Who timed what, and how."""
    return (
        f"The same kernels timed by NVIDIA's cuda.bench and by us in turns. {about(data)}. Both "
        "flush the L2 and time one launch at a time, each after the same rest, and drop no slow "
        "sample."
    )


def nvbench(data: StudyRecords) -> Table:
    """Our times against those of `cuda.bench`."""
    frame = frames.nvbench(data)
    agree = int((frame["agree"] == "yes").sum())
    caption = (
        f"{nvbench_runs(data)} Cold GPU medians agree within {100 * frames.PEER_TOLERANCE:g} % for "
        f"{agree} of {len(frame)} kernels. Burst: the study's own samples (idle gaps, no flush)."
    )
    return Table("nvbench", _present(frame), caption)


def settle(data: StudyRecords) -> Table:
    """What samples of other lengths would have scattered and been biased by."""
    frame = settle_frames.plans(data)
    caption = (
        f"Untimed and timed work of a sustained sample. {about(data)}. {settle_runs(data)} A plan "
        "is a block of such a span; the plan in use is marked. Spread: standard deviation of a "
        "kernel's blocks over its visits, root mean square over kernels. ±: half-width of a 95 % "
        "interval of the median of 10 s of such samples, if they scatter normally; empty for too "
        "few. Bias: mean of the blocks against the span from "
        f"{settle_frames.LATE_MS / 1000:g} s on, mean over kernels and the largest."
    )
    return Table("settle", frame, caption)


def settle_runs(data: StudyRecords) -> str:
    """How the spans were run, as one sentence."""
    chunks, kernels = settle_frames.chunks(data), settle_frames.kernels(data)
    span_s, chunk_ms = chunks["span_ms"].median() / 1000, chunks["length_ms"].median()
    visits = kernels["visits"].median()
    return (
        f"{len(kernels)} kernels ran back to back, each for {span_s:.1f} s and then another, in "
        f"random order, {visits:.0f} times each, in chunks of {chunk_ms:.0f} ms."
    )


TABLES: dict[str, Callable[[StudyRecords], Table]] = {
    "inputs": inputs,
    "alphabeta": alphabeta,
    "cache": cache,
    "labels": labels,
    "interleave": interleave,
    "nvbench": nvbench,
    "settle": settle,
}


def table(data: StudyRecords) -> Table:
    """The table of the data's experiment; raises `NothingToShow` for an unknown one."""
    if data.experiment not in TABLES:
        raise NothingToShow(f"experiment '{data.experiment}' is not known to this toolkit")
    return TABLES[data.experiment](data)
