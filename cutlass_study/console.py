"""How every script begins and ends: its options, its exit code, its one sentence of trouble.

What the user or the machine got wrong is a sentence on stderr. Only a bug prints a traceback.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

import typer

from cutlass_study import usage
from cutlass_study.config import UsageError
from cutlass_study.records import EnvironmentProblem

EXIT_BROKEN_PIPE, EXIT_USAGE, EXIT_ENVIRONMENT, EXIT_INTERRUPTED = 1, 2, 3, 130


# What can befall any file at any time, whatever the program does.
MACHINE_FAULTS = (
    errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM,
)  # fmt: skip
REMEDY = "free space and memory there, or raise the system's limits"


class OutputProblem(OSError):
    """What is printed can't be written: told apart from the trouble of any other file."""


class _Output(io.TextIOWrapper):
    """stdout whose own trouble is an `OutputProblem`."""

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError as error:
            raise _problem(error) from error

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            raise _problem(error) from error


def _problem(error: OSError) -> OutputProblem:
    return OutputProblem(error.errno, error.strerror or str(error))


@contextlib.contextmanager
def one_sentence(interrupted: str = "interrupted") -> Iterator[None]:
    """Turn what the user or the machine got wrong into a sentence on stderr and its exit code."""
    try:
        yield
    except UsageError as error:
        raise _ended(error, EXIT_USAGE) from None
    except EnvironmentProblem as error:
        raise _ended(error, EXIT_ENVIRONMENT) from None
    except KeyboardInterrupt:
        raise _ended(interrupted, EXIT_INTERRUPTED) from None
    except OutputProblem:  # `run` judges it
        raise
    except MemoryError:
        raise _ended("memory is used up; close other programs", EXIT_ENVIRONMENT) from None
    except OSError as error:
        if error.errno not in MACHINE_FAULTS:
            raise  # a bug: nobody foresaw this file
        where = f"'{error.filename}'" if error.filename else "this machine"
        raise _ended(f"{where}: {error.strerror}; {REMEDY}", EXIT_ENVIRONMENT) from None


def _ended(why: object, code: int) -> typer.Exit:
    """Say why, on one line whatever a value contains, and the exception that ends the script."""
    print(*str(why).splitlines(), file=sys.stderr)
    return typer.Exit(code)


def guarded(function: Callable[..., Any], interrupted: str = "interrupted") -> Callable[..., None]:
    """A script's `main` with one sentence and an exit code for every expected failure."""

    @functools.wraps(function)
    def main(*arguments: Any, **options: Any) -> None:
        with one_sentence(interrupted):
            function(*arguments, **options)

    return main


def _call(function: Callable[..., Any], interrupted: str) -> int:
    """Run `main` with the command line's options; the exit code."""
    app = typer.Typer(add_completion=False)
    app.command()(guarded(function, interrupted))
    script, kinds, words = typer.main.get_command(app), usage.kinds_of(function), sys.argv[1:]
    try:
        with one_sentence():
            usage.refuse_empty_paths(script, kinds, words)
            return int(script.main(standalone_mode=False) or 0)
    except typer.TyperException as error:
        print(usage.sentence(error, script, kinds, words), file=sys.stderr)
        return EXIT_USAGE
    except typer.Exit as stop:
        return stop.exit_code


def run(function: Callable[..., Any], interrupted: str = "interrupted") -> None:
    """Run a script's `main`, whatever stdout is; always raises `SystemExit`, unless there is a bug.

    A sign that stdout's encoding lacks becomes `?`. A closed stdout swallows what is printed, a
    reader that has left ends the script quietly, any other trouble is one sentence and exit 3.
    `interrupted` is what to say after Ctrl-C or SIGTERM.
    """
    # Being terminated is being interrupted: compilers stop, and what was measured is exported.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.stderr = _writable(sys.stderr)
    output = sys.stdout = _watched(sys.stdout) if sys.stdout else _writable(None)
    try:
        try:
            code = _call(function, interrupted)
        finally:
            output.flush()
    except OutputProblem as error:
        _give_up(output)
        if _reader_left(error):
            raise SystemExit(EXIT_BROKEN_PIPE) from None
        print(
            f"stdout can't be written ({error.strerror}); send it to a place with free space",
            file=sys.stderr,
        )
        raise SystemExit(EXIT_ENVIRONMENT) from None
    raise SystemExit(code)


def _writable(stream: TextIO | None) -> TextIO:
    """The stream with unknown signs replaced; the null device where it is closed."""
    if stream is None:  # as after `>&-`, and in a program without a console on Windows
        return Path(os.devnull).open("w", encoding="utf-8")
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="replace")
    return stream


def _watched(stream: TextIO) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    return _Output(
        stream.buffer,
        encoding=stream.encoding,
        errors="replace",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def _reader_left(error: OutputProblem) -> bool:
    # Windows reports a pipe without a reader as an invalid argument.
    return error.errno == errno.EPIPE or (os.name == "nt" and error.errno == errno.EINVAL)


def _give_up(output: TextIO) -> None:
    """Let the rest go to the null device, so that Python's own last flush can't fail."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, output.fileno())
        os.close(null)
    with contextlib.suppress(OSError, ValueError):
        output.flush()
