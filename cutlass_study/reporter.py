"""Progress: a bar with the time left on a terminal, plain lines in a pipe. Always to stderr.

A line in a pipe says how long after the program's start its stage began.
"""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from cutlass_study import STARTED_S


class Reporter(Protocol):
    """What long work tells while it runs."""

    def stage(self, text: str, total: int) -> None:
        """A new stage of `total` steps begins."""

    def step(self) -> None:
        """A step of the current stage is done."""

    def message(self, text: str) -> None:
        """Something worth knowing happened."""


class TerminalReporter:
    """Shows stages on stderr: as a bar on a terminal, as one line each elsewhere."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self._console,
            disable=not sys.stderr.isatty(),
        )
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def stage(self, text: str, total: int) -> None:
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(text, total=total)
        if self._progress.disable:
            elapsed_s = time.monotonic() - STARTED_S
            self._console.print(f"{elapsed_s:.1f} s: {text} ({total})", markup=False)

    def step(self) -> None:
        if self._task is not None:
            self._progress.advance(self._task)

    def message(self, text: str) -> None:
        self._console.print(text, markup=False)
