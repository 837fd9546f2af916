"""Work, traffic, ceilings and times of a GEMM by tile; the roofline as a figure. Needs no GPU.

Example: python scripts/roofline.py --n 4096 --tile 32,64,128 --peak-tflops 20 --bandwidth-gbs 1000
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

try:
    import typer

    from cutlass_study import console, roofline_formats
    from cutlass_study.config import UsageError, format_shape
    from cutlass_study.gpus import LIMITS, limits_of
    from cutlass_study.records import EnvironmentProblem
    from cutlass_study.roofline import Machine, Work
    from cutlass_study.roofline_options import (
        INPUT_BYTES,
        OUTPUT_BYTES,
        check_figure_path,
        element_types,
        parse_extent,
        parse_positive,
        parse_tiles,
    )
    from cutlass_study.roofline_rows import RooflineRow, RooflineTask, table
except ImportError as error:
    print(f"{error}; install the project: pip install -e . in its folder", file=sys.stderr)
    raise SystemExit(3) from None
except KeyboardInterrupt:
    print("interrupted", file=sys.stderr)
    raise SystemExit(130) from None

if TYPE_CHECKING:
    from cutlass_study.views import StudyView

FORMATS = ("text", "csv", "json")
LECTURE_EXTENT, LECTURE_DTYPE = "4096", "fp32"
LECTURE_PEAK_TFLOPS, LECTURE_BANDWIDTH_GBS = "20", "1000"
WHOLE, NUMBER = "INTEGER", "NUMBER"


@dataclass(frozen=True)
class Call:
    """The options as given, as text; None where not given."""

    m: str | None
    n: str | None
    k: str | None
    tile: list[str]
    dtype: str | None
    output_dtype: str | None
    read_c: bool
    peak_tflops: str | None
    bandwidth_gbs: str | None
    double_buffer: bool
    one_pass: bool
    gpu: str | None
    threads: str
    sms: str | None
    data: Path | None


def problem_of(call: Call) -> tuple[int, int, int]:
    """M, N, K; N is 4096 by default, M and K are N by default."""
    n = parse_extent(call.n or LECTURE_EXTENT, "--n")
    m = n if call.m is None else parse_extent(call.m, "--m")
    k = n if call.k is None else parse_extent(call.k, "--k")
    return m, n, k


def view_of(call: Call) -> StudyView | None:
    """The measured part of --data, or None with a message; refuses options that data decides."""
    if call.data is None:
        return None
    from cutlass_study.roofline_points import INPUT_DTYPE, measured_view
    from cutlass_study.study_data import load
    from cutlass_study.views import NothingToShow

    if call.peak_tflops is None or call.bandwidth_gbs is None:
        raise UsageError(
            "--data needs --peak-tflops and --bandwidth-gbs of the GPU that was measured"
        )
    if call.output_dtype or call.read_c or call.dtype not in (None, INPUT_DTYPE):
        raise UsageError(
            f"--data has {INPUT_DTYPE} inputs and its own output and beta; leave out --dtype, "
            "--output-dtype and --read-c"
        )
    given = any((call.m, call.n, call.k))
    try:
        return measured_view(load(call.data), format_shape(problem_of(call)) if given else None)
    except NothingToShow as nothing:
        print(f"no measured points: {nothing}", file=sys.stderr)
        return None


def task_of(call: Call, view: StudyView | None) -> RooflineTask:
    """Every value checked; the work is the data's where there is data."""
    if view is not None:
        from cutlass_study.roofline_points import INPUT_DTYPE, work_of

        work, output = work_of(view)
        dtype = INPUT_DTYPE
    else:
        dtype = call.dtype or ("fp16" if call.data else LECTURE_DTYPE)
        types, output = element_types(dtype, call.output_dtype)
        work = Work(*problem_of(call), types, call.read_c)
    limits = None if call.gpu is None else limits_of(call.gpu)
    return RooflineTask(
        work=work,
        dtype=dtype,
        output_dtype=output,
        machine=Machine(
            parse_positive(call.peak_tflops or LECTURE_PEAK_TFLOPS, "--peak-tflops"),
            parse_positive(call.bandwidth_gbs or LECTURE_BANDWIDTH_GBS, "--bandwidth-gbs"),
        ),
        copies=2 if call.double_buffer else 1,
        limits=limits,
        threads=parse_extent(call.threads, "--threads", 1024),
        sm_count=None if call.sms is None else parse_extent(call.sms, "--sms", 10_000),
    )


def rows_of(call: Call, task: RooflineTask, view: StudyView | None) -> list[RooflineRow]:
    """The model's rows, no reuse first, and after them those of measured kernels."""
    rows = table(task, parse_tiles(call.tile), with_one_pass=call.one_pass)
    if view is None:
        return rows
    from cutlass_study.roofline_points import measured_points

    return rows + measured_points(task, view)


def draw(task: RooflineTask, rows: list[RooflineRow], view: StudyView | None, out: Path) -> None:
    """Write the figure; raises `EnvironmentProblem` where it can't be drawn or written."""
    try:
        from cutlass_study import roofline_figure, style
    except (ImportError, ValueError) as error:  # ValueError: matplotlib refuses MPLBACKEND
        raise EnvironmentProblem(f"matplotlib can't be used here: {error}") from error
    with style.styled():
        figure = roofline_figure.draw(task, rows, view.title if view else "")
    roofline_figure.save_file(figure, out)
    print(f"{out}: {figure.caption}", file=sys.stderr)


def run(call: Call, format_: str, out: Path | None) -> None:
    """Print the rows; then, if wanted, draw them."""
    if format_ not in FORMATS:
        raise UsageError(f"format '{format_}' is not known; use one of: {', '.join(FORMATS)}")
    if out is not None:
        check_figure_path(out)
    view = view_of(call)
    task = task_of(call, view)
    rows = rows_of(call, task, view)
    if format_ == "text":
        print(roofline_formats.to_text(task, rows), end="")
    else:
        write = roofline_formats.to_json if format_ == "json" else roofline_formats.to_csv
        print(write(rows), end="")
    if out is not None:
        draw(task, rows, view, out)


def main(
    n: Annotated[
        str | None, typer.Option(metavar=WHOLE, help="Columns of B and D. (default: 4096)")
    ] = None,
    m: Annotated[
        str | None, typer.Option(metavar=WHOLE, help="Rows of A and D. (default: N)")
    ] = None,
    k: Annotated[
        str | None, typer.Option(metavar=WHOLE, help="Columns of A, rows of B. (default: N)")
    ] = None,
    tile: Annotated[
        list[str] | None,
        typer.Option(
            help="T for T×T×T, or MxNxK; repeat or separate by commas. (default: 32,64,128)"
        ),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(help=f"Type of A and B: {', '.join(INPUT_BYTES)}. (default: fp32)"),
    ] = None,
    output_dtype: Annotated[
        str | None,
        typer.Option(
            help=f"Type of C and D: {', '.join(OUTPUT_BYTES)}. (default: the accumulator's, "
            "fp32 for fp16 inputs)"
        ),
    ] = None,
    read_c: Annotated[bool, typer.Option("--read-c", help="C is read (beta is not 0).")] = False,
    peak_tflops: Annotated[
        str | None, typer.Option(metavar=NUMBER, help="Arithmetic peak. (default: 20)")
    ] = None,
    bandwidth_gbs: Annotated[
        str | None, typer.Option(metavar=NUMBER, help="Memory bandwidth, GB/s. (default: 1000)")
    ] = None,
    double_buffer: Annotated[
        bool, typer.Option("--double-buffer", help="Two input buffers per tile.")
    ] = False,
    one_pass: Annotated[
        bool, typer.Option("--one-pass", help="Add the row in which each matrix crosses once.")
    ] = False,
    gpu: Annotated[
        str | None,
        typer.Option(help=f"Say which tiles fit an SM of: {', '.join(LIMITS)}."),
    ] = None,
    threads: Annotated[
        str, typer.Option(metavar=WHOLE, help="Threads per CTA, for --gpu.")
    ] = "256",
    sms: Annotated[
        str | None, typer.Option(metavar=WHOLE, help="SMs of the GPU: adds wave quantization.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Data folder whose measured kernels to add.")
    ] = None,
    format_: Annotated[str, typer.Option("--format", help="text, csv or json.")] = "text",
    out: Annotated[
        Path | None, typer.Option(help="Draw the roofline into this .png or .pdf file.")
    ] = None,
) -> None:
    """Print work, traffic, ceilings and ideal times of a GEMM by tile; draw its roofline.

    Without options: the lecture note's example. Tiles share nothing through a cache in this model.

    Example: python scripts/roofline.py --n 4096 --tile 32,64,128x64x32 --dtype fp32
    --peak-tflops 20 --bandwidth-gbs 1000 --gpu sm_89 --out roofline.png
    """
    call = Call(
        m, n, k, tile or ["32,64,128"], dtype, output_dtype, read_c, peak_tflops, bandwidth_gbs,
        double_buffer, one_pass, gpu, threads, sms, data,
    )  # fmt: skip
    run(call, format_, out)


if __name__ == "__main__":
    console.run(main)
