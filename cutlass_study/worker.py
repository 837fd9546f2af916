"""The child process that owns the GPU, and the parent's handle on it.

A crash, a hang or a poisoned context costs the configuration that caused it: the parent kills the
child, reports the failure and starts a fresh one.
"""

from __future__ import annotations

import multiprocessing
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal, cast

from cutlass_study.records import EnvironmentProblem

FailureKind = Literal["not_implementable", "launch_failed", "timeout", "died", "bug"]
START_TIMEOUT_S = 120.0  # importing and loading cuBLAS from a cold disk
STOP_TIMEOUT_S = 30.0  # a process that hangs inside the driver may outlive even SIGKILL
# What a kernel reports that a watchdog (TDR) ended, on Windows also much later calls.
WATCHDOG_ERRORS = ("LAUNCH_TIMEOUT", "LAUNCH_FAILED", "NOT_READY")
SessionFactory = Callable[[], Any]


class WorkerFailure(RuntimeError):
    """A request failed on the GPU side, in one line; `Worker.alive` tells what is left."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class WorkerBug(WorkerFailure):
    """The child raised something unforeseen: what and where in one line; `trace` is all of it."""

    def __init__(self, message: str, trace: str) -> None:
        super().__init__("bug", message)
        self.trace = trace


def gpu_session() -> Any:
    from cutlass_study.gpu_session import GpuSession

    return GpuSession()


def _bug(error: Exception) -> tuple[str, Any]:
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(place.filename).name}:{place.lineno} in {place.name}"
    first = next(iter(str(error).splitlines()), "")
    line = f"unforeseen {type(error).__name__}: {first} ({where})"
    return "bug", (line, traceback.format_exc())


def _launch_failed(session: Any, error: Any) -> tuple[str, Any]:
    watchdog = bool(getattr(getattr(session, "device", None), "watchdog", False))
    if error.name == "LAUNCH_TIMEOUT" or (watchdog and error.name in WATCHDOG_ERRORS):
        return "launch_failed", f"{error}; possible watchdog reset (TDR)"
    return "launch_failed", str(error)


def _answer(session: Any, method: str, arguments: tuple[Any, ...]) -> tuple[str, Any]:
    from cutlass_study.driver import CudaError
    from cutlass_study.gpu_session import TooLong
    from cutlass_study.kernels import NotImplementable

    try:
        return "ok", getattr(session, method)(*arguments)
    except NotImplementable as error:
        return "not_implementable", str(error)
    except TooLong as error:
        return "too_long", str(error)
    except CudaError as error:
        return _launch_failed(session, error)
    except Exception as error:
        if type(error).__name__ in ("cuBLASError", "cuBLASLtError"):
            return "launch_failed", f"{type(error).__name__}: {error}"
        return _bug(error)


def serve(connection: Connection, make_session: SessionFactory) -> None:
    """Answer requests until the parent hangs up. Runs in the child."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    try:
        session = make_session()
    except EnvironmentProblem as problem:
        connection.send(("environment", str(problem)))
        return
    except Exception as error:
        connection.send(_bug(error))
        return
    with suppress(BrokenPipeError, ConnectionResetError):  # a parent that is gone ends the loop
        connection.send(("ok", None))
    while True:
        try:
            method, arguments = connection.recv()
            connection.send(_answer(session, method, arguments))
        except (EOFError, BrokenPipeError, ConnectionResetError):  # the parent is gone
            return


def _failure(kind: str, value: Any) -> WorkerFailure:
    """The exception for an answer of the child that is not "ok"."""
    if kind == "bug":
        return WorkerBug(*value)
    kinds: dict[str, FailureKind] = {"too_long": "timeout", "hung": "timeout"}
    return WorkerFailure(kinds.get(kind, cast("FailureKind", kind)), value)


@contextmanager
def _ignoring_ctrl_c() -> Iterator[None]:
    """Where Python allows it: in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class Worker:
    """Starts the child on first use; replaces it after it died, hung or poisoned its context.

    `generation` counts the children that ended: what an earlier one had opened or loaded is gone.
    """

    def __init__(self, make_session: SessionFactory = gpu_session) -> None:
        self._make_session = make_session
        self._process: Any = None
        self._connection: Connection | None = None
        self._ready = False
        self.generation = 0

    def begin(self) -> None:
        """Start the child without waiting until it is ready."""
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=serve, args=(theirs, self._make_session), daemon=True
        )
        try:
            with _ignoring_ctrl_c():  # the child inherits it, from its very start
                self._process.start()
            theirs.close()
        except BaseException:
            self.stop()
            raise

    def start(self) -> None:
        """Have the child ready.

        Raises `EnvironmentProblem` if there is no usable GPU, `WorkerFailure` if the child died,
        hung or met something unforeseen before it was ready.
        """
        if self._process is None:
            self.begin()
        try:
            kind, value = self._receive(START_TIMEOUT_S)
        except BaseException:
            self.stop()
            raise
        self._ready = kind == "ok"
        if self._ready:
            return
        self.stop()
        if kind == "environment":
            raise EnvironmentProblem(value)
        raise _failure(kind, value)

    def _receive(self, timeout_s: float) -> tuple[str, Any]:
        assert self._connection is not None
        try:
            if not self._connection.poll(timeout_s):
                return "hung", f"no answer within {timeout_s:.1f} s: hang, or a watchdog reset"
            answer: tuple[str, Any] = self._connection.recv()
            return answer
        except (EOFError, OSError):
            self._process.join(5)
            return "died", f"the GPU process died (exit code {self._process.exitcode})"

    def request(self, method: str, *arguments: Any, timeout_s: float) -> Any:
        """Call `method` of the child's session; raises `WorkerFailure` (also `start`'s errors).

        After a failed launch the context is not trusted again: the child is stopped, and the next
        request starts a fresh one whose state must be set up anew (`generation` tells).
        """
        if not self._ready:
            self.start()
        assert self._connection is not None
        try:
            self._connection.send((method, arguments))
            kind, value = self._receive(timeout_s)
        except (BrokenPipeError, ConnectionResetError):
            kind, value = "died", "the GPU process died between requests"
        except BaseException:  # Ctrl-C: an answer that comes later must not answer the next request
            self.stop()
            raise
        if kind == "ok":
            return value
        if kind not in ("not_implementable", "too_long"):
            self.stop()
        raise _failure(kind, value)

    @property
    def alive(self) -> bool:
        return self._process is not None

    def stop(self) -> None:
        """Kill the child; safe to call twice."""
        if self._process is None:
            return
        if self._process.pid is not None:  # it was started
            self._process.kill()
            self._process.join(STOP_TIMEOUT_S)
        if self._connection is not None:
            self._connection.close()
        self._process = self._connection = None
        self._ready = False
        self.generation += 1

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
