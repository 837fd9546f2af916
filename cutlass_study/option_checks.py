"""Options of `scripts/sweep.py` that contradict each other, do nothing, or are empty."""

from __future__ import annotations

from collections.abc import Sequence

from cutlass_study.axes import split_values
from cutlass_study.config import UsageError
from cutlass_study.sweep_command import SweepCall, check_form


def check_mode(call: SweepCall, form: str, *, list_: bool, static: bool, interleave: bool) -> None:
    """Raise `UsageError` for options that contradict each other or would do nothing."""
    check_form(form)
    flags = {"--list": list_, "--static": static, "--interleave": interleave}
    modes = [name for name, on in flags.items() if on]
    if len(modes) > 1:
        raise UsageError(f"{' and '.join(modes)} exclude each other; give one of them")
    if list_ or static:
        _refuse_keeping(call, modes[0])
    elif form != "csv":
        raise UsageError(f"--format {form} means nothing to a sweep; add --list or --static")


def _refuse_keeping(call: SweepCall, mode: str) -> None:
    given = {"--resume": call.resume, "--export": call.export, "--results": call.results}
    for name, value in given.items():
        if value:
            raise UsageError(
                f"{name} means nothing to {mode}, which prints to stdout and keeps nothing; "
                "leave it out"
            )


def given_archs(texts: Sequence[str] | None) -> tuple[str, ...]:
    """The distinct archs of a repeatable, comma-separated option."""
    archs = tuple(dict.fromkeys(split_values(texts or ())))
    if texts and not archs:
        raise UsageError("--arch is empty; give one such as sm_89, or leave it out")
    return archs
