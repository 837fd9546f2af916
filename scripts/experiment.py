"""Run one experiment of the study on the present GPU, then draw its table and figure.

Example: python scripts/experiment.py inputs
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

try:
    import typer

    from cutlass_study import console, experiment_command
    from cutlass_study.conditions import NAMES
    from cutlass_study.experiment_command import ExperimentCall
except ImportError as error:
    print(f"{error}; install the project: pip install -e . in its folder", file=sys.stderr)
    raise SystemExit(3) from None
except KeyboardInterrupt:
    print("interrupted", file=sys.stderr)
    raise SystemExit(130) from None


def main(
    name: Annotated[str, typer.Argument(help=f"one of: {', '.join(NAMES)}")],
    n: Annotated[int, typer.Option(help="M = N = K; the cache experiment has its own.")] = 8192,
    regime: Annotated[
        str | None,
        typer.Option(
            help="burst, sustained or both. (default: both for inputs and alphabeta, sustained for "
            "settle, else burst)"
        ),
    ] = None,
    time_budget: Annotated[
        float | None,
        typer.Option(
            help="Seconds of GPU time per row and regime. "
            "(default: 25; 10 for settle, 3 for labels and cache)"
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of inputs and order.")] = 0,
    config: Annotated[
        str | None,
        typer.Option(help="CUTLASS kernel by the name sweep.py --list prints, not the best one."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Sweep that tells the best kernels. (default: this GPU's)"),
    ] = None,
    labels: Annotated[int, typer.Option(help="Names for one kernel (labels).")] = 8,
    repetitions: Annotated[int, typer.Option(help="Independent checks (labels).")] = 20,
    workers: Annotated[
        int | None, typer.Option(help="Compiler processes. (default: by cores and memory)")
    ] = None,
    cache_dir: Annotated[Path | None, typer.Option(help="Kernel cache.")] = None,
    results: Annotated[
        Path | None,
        typer.Option(help="Results store. (default: results/experiments/NAME.sqlite)"),
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(
            help="Folder for CSV data, table and figure. (default: results/<gpu>/experiments/NAME)"
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and stop.")] = False,
) -> None:
    """Run one experiment on the present GPU: cuBLAS and the best CUTLASS kernels on record.

    inputs: zeros, small integers, uniform and normal inputs. alphabeta: what C and beta cost.
    cache: hot, rotated and flushed operands. labels: one kernel under many names. interleave:
    cuBLAS and CUTLASS taking turns on two streams. nvbench: cuda.bench as a second opinion.
    settle: how long a sustained sample must be.

    Example: python scripts/experiment.py inputs

    Example: python scripts/experiment.py cache --export paper/data/h200/experiments/cache
    """
    call = ExperimentCall(
        name=name,
        n=n,
        regime=regime,
        time_budget_s=time_budget,
        seed=seed,
        config=config,
        data=data,
        labels=labels,
        repetitions=repetitions,
        workers=workers,
        cache_dir=cache_dir,
        results=results,
        export=export,
        dry_run=dry_run,
    )
    raise typer.Exit(experiment_command.run(call))


if __name__ == "__main__":
    console.run(main, "interrupted; what was measured is kept and exported")
