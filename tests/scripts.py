"""A script run in this process: without the second that a fresh one takes to import."""

from __future__ import annotations

import io
import os
import runpy
import signal
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Done:
    """What a script left; named as `subprocess.CompletedProcess` names it."""

    returncode: int
    stdout: str
    stderr: str


def run_here(name: str, *arguments: str, cwd: Path = ROOT) -> Done:
    """Run `scripts/<name>.py` as a command in the folder `cwd`.

    An exception other than `SystemExit` is the test's: nothing can end in a traceback unseen.
    """
    script = str(ROOT / "scripts" / f"{name}.py")
    out, err = io.StringIO(), io.StringIO()
    before, on_term = Path.cwd(), signal.getsignal(signal.SIGTERM)
    os.chdir(cwd)
    try:
        with (
            mock.patch.object(sys, "argv", [script, *arguments]),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            runpy.run_path(script, run_name="__main__")
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        os.chdir(before)
        signal.signal(signal.SIGTERM, on_term)
    return Done(code, out.getvalue(), err.getvalue())
