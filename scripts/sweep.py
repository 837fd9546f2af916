"""Run the study on the present GPU: compile, verify, measure, then draw its tables and figures.

Example: python scripts/sweep.py --preset quick
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

try:
    import typer

    from cutlass_study import console, option_checks, sweep_command
    from cutlass_study.axes import Axes
    from cutlass_study.config import FAMILIES, SIMT_VARIANTS, WGMMA_VARIANTS
    from cutlass_study.presets import PRESETS
    from cutlass_study.sweep_command import SweepCall
except ImportError as error:
    print(f"{error}; install the project: pip install -e . in its folder", file=sys.stderr)
    raise SystemExit(3) from None
except KeyboardInterrupt:
    print("interrupted", file=sys.stderr)
    raise SystemExit(130) from None

AXES, RUN, OUTPUT = "Axes (repeat an option or separate values by commas)", "Measuring", "Output"
VARIANTS = "; ".join((
    "cuBLAS: default, lt_best", "WMMA: single, multistage",
    f"SIMT: {', '.join(SIMT_VARIANTS)}", f"WGMMA: {', '.join(WGMMA_VARIANTS)}",
))  # fmt: skip
Words = list[str] | None


def axis(text: str) -> object:
    """An axis of the space: repeatable, values separated by commas."""
    return typer.Option(help=text, rich_help_panel=AXES)


def main(
    preset: Annotated[
        str | None, typer.Option(help=f"Named space: {', '.join(PRESETS)}. (default: paper)")
    ] = None,
    arch: Annotated[Words, typer.Option(help="sm_89, sm_90a, … for --list and --static.")] = None,
    list_: Annotated[
        bool, typer.Option("--list", help="Print the space with feasibility; compile nothing.")
    ] = False,
    static: Annotated[
        bool, typer.Option("--static", help="Compile and print resources; measure nothing.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and stop.")] = False,
    interleave: Annotated[
        bool,
        typer.Option(
            "--interleave",
            help="Instead of a sweep, let cuBLAS and CUTLASS launches take turns on two streams "
            "(experiment.py interleave).",
        ),
    ] = False,
    format_: Annotated[
        str, typer.Option("--format", help="csv or json, for --list and --static.")
    ] = "csv",
    family: Annotated[Words, axis(", ".join(FAMILIES))] = None,
    tile: Annotated[Words, axis("Threadblock shape MxNxK")] = None,
    warp: Annotated[Words, axis("Warp shape MxNxK (sm80); a warpgroup's (wgmma)")] = None,
    cluster: Annotated[Words, axis("Cluster shape MxNxK (sm90)")] = None,
    stages: Annotated[Words, axis("Pipeline stages S; auto for sm90")] = None,
    epilogue_width: Annotated[Words, axis("Elements per access of C and D")] = None,
    align: Annotated[Words, axis("Elements per access of A and B")] = None,
    swizzle: Annotated[Words, axis("Threadblock swizzle 1, 2, 4, 8")] = None,
    split_k: Annotated[Words, axis("Slices of K (sm80)")] = None,
    schedule: Annotated[Words, axis("cooperative, pingpong, streamk (sm90)")] = None,
    epilogue: Annotated[Words, axis("tma, nosmem (sm90); direct, staged (wgmma)")] = None,
    source_c: Annotated[Words, axis("void, float, half (sm90)")] = None,
    raster: Annotated[Words, axis("heuristic, m, n (sm90)")] = None,
    variant: Annotated[Words, axis(VARIANTS)] = None,
    problem: Annotated[Words, axis("Problem MxNxK (default: 8192x8192x8192)")] = None,
    layout: Annotated[Words, axis("tn (B column-major) or nn")] = None,
    output: Annotated[Words, axis("f32 or f16")] = None,
    beta: Annotated[float, typer.Option(help="beta of D = AB + beta C.")] = 0.0,
    lda: Annotated[int | None, typer.Option(help="Leading dimension of A; zeros pad it.")] = None,
    regime: Annotated[
        str | None,
        typer.Option(
            help="burst, sustained or both. (default: both for paper, else burst)",
            rich_help_panel=RUN,
        ),
    ] = None,
    dist: Annotated[
        str, typer.Option(help="Inputs: uniform, normal, integers, zeros.", rich_help_panel=RUN)
    ] = "uniform",
    seed: Annotated[int, typer.Option(help="Seed of inputs and order.", rich_help_panel=RUN)] = 0,
    time_budget: Annotated[
        float | None,
        typer.Option(
            help="Seconds of GPU time per configuration and regime. (default: 25; 3 for quick)",
            rich_help_panel=RUN,
        ),
    ] = None,
    allow_long_launches: Annotated[
        bool,
        typer.Option(help="Run launches predicted above the watchdog budget.", rich_help_panel=RUN),
    ] = False,
    graphs: Annotated[
        str,
        typer.Option(
            help="Replay launches as CUDA graphs: auto (those under 0.06 ms), always, never.",
            rich_help_panel=RUN,
        ),
    ] = "auto",
    workers: Annotated[
        int | None,
        typer.Option(
            help="Compiler processes. (default: by cores and memory)", rich_help_panel=RUN
        ),
    ] = None,
    cache_dir: Annotated[
        Path | None,
        typer.Option(help="Kernel cache.", rich_help_panel=OUTPUT),
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option(
            help="Results store. (default: results/study.sqlite)",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(help="Skip what the results store has complete.", rich_help_panel=OUTPUT),
    ] = False,
    export: Annotated[
        Path | None,
        typer.Option(
            help="Folder for CSV data, tables and figures. (default: results/<gpu>)",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
) -> None:
    """Run the study on the present GPU; without a GPU, everything that needs none.

    Example: python scripts/sweep.py --preset quick

    Example: python scripts/sweep.py --list --arch sm_89 --tile 256x128x32 --stages 2,3,4
    """  # fmt: skip
    chosen = dict(
        family=family, tile=tile, warp=warp, cluster=cluster, stages=stages,
        epilogue_width=epilogue_width, align=align, swizzle=swizzle, split_k=split_k,
        schedule=schedule, epilogue=epilogue, source_c=source_c, raster=raster, variant=variant,
        problem=problem, layout=layout, output=output,
    )  # fmt: skip
    axes = Axes(**{name: values or () for name, values in chosen.items()}, beta=beta, lda=lda)
    given = any(chosen.values()) or beta != 0 or lda is not None
    call = SweepCall(
        preset="paper" if preset is None and not given else preset,
        axes=axes,
        archs=option_checks.given_archs(arch),
        regime=regime,
        distribution=dist,
        seed=seed,
        time_budget_s=time_budget,
        allow_long_launches=allow_long_launches,
        graphs=graphs,
        workers=workers,
        cache_dir=cache_dir,
        results=results,
        resume=resume,
        export=export,
        dry_run=dry_run,
    )
    option_checks.check_mode(call, format_, list_=list_, static=static, interleave=interleave)
    if list_:
        print(sweep_command.listing(call, format_), end="")
    elif interleave:
        raise typer.Exit(sweep_command.run_interleaved(call))
    elif static:
        print(sweep_command.static_listing(call, format_), end="")
    else:
        raise typer.Exit(sweep_command.run(call))


if __name__ == "__main__":
    console.run(main, "interrupted; what was measured is kept, --resume goes on")
