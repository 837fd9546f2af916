"""What one check of the environment found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warn", "missing"]


@dataclass(frozen=True, slots=True)
class Check:
    """`found` is what is there, `advice` what to do about it ("" if nothing)."""

    name: str
    status: Status
    found: str
    advice: str = ""


def run_check(check: Callable[[], Check]) -> Check:
    """Run a check; one that breaks is itself a finding, so that a diagnosis never ends early."""
    try:
        return check()
    except Exception as error:  # whatever a foreign, broken installation raises on contact
        name = check.__name__.removeprefix("check_").replace("_", " ")
        summary = next(iter(str(error).splitlines()), "")
        return Check(
            name,
            "missing",
            f"the check failed: {type(error).__name__}: {summary}",
            "reinstall the project's packages: pip install -e .",
        )
