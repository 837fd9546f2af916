"""The child process that owns the GPU, and the parent's handle on it.

A crash, a hang or a poisoned context costs the configuration that caused it: the parent kills the
child, reports the failure and starts a fresh one.
"""

from __future__ import annotations

import multiprocessing
import signal
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Literal

from cutlass_study.records import EnvironmentProblem

FailureKind = Literal["not_implementable", "launch_failed", "timeout", "died"]
START_TIMEOUT_S = 120.0  # importing and loading cuBLAS from a cold disk
SessionFactory = Callable[[], Any]


class WorkerFailure(RuntimeError):
    """A request failed on the GPU side, in one line; `Worker.alive` tells what is left."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class WorkerBug(RuntimeError):
    """The child raised something unforeseen; the message is its traceback."""


def gpu_session() -> Any:
    from cutlass_study.gpu_session import GpuSession

    return GpuSession()


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
        return "launch_failed", str(error)
    except Exception as error:
        if type(error).__name__ in ("cuBLASError", "cuBLASLtError"):
            return "launch_failed", f"{type(error).__name__}: {error}"
        return "bug", traceback.format_exc()


def serve(connection: Connection, make_session: SessionFactory) -> None:
    """Answer requests until the parent hangs up. Runs in the child."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    try:
        session = make_session()
    except EnvironmentProblem as problem:
        connection.send(("environment", str(problem)))
        return
    except Exception:
        connection.send(("bug", traceback.format_exc()))
        return
    connection.send(("ok", None))
    while True:
        try:
            method, arguments = connection.recv()
        except EOFError:
            return
        connection.send(_answer(session, method, arguments))


class Worker:
    """Starts the child on first use; replaces it after it died, hung or poisoned its context."""

    def __init__(self, make_session: SessionFactory = gpu_session) -> None:
        self._make_session = make_session
        self._process: Any = None
        self._connection: Connection | None = None
        self.restarts = 0

    def start(self) -> None:
        """Start the child; raises `EnvironmentProblem` if there is no usable GPU."""
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=serve, args=(theirs, self._make_session), daemon=True
        )
        self._process.start()
        theirs.close()
        kind, value = self._receive(START_TIMEOUT_S)
        if kind == "environment":
            self.stop()
            raise EnvironmentProblem(value)
        if kind != "ok":
            self.stop()
            raise WorkerBug(value)

    def _receive(self, timeout_s: float) -> tuple[str, Any]:
        assert self._connection is not None
        try:
            if not self._connection.poll(timeout_s):
                return "hung", f"no answer within {timeout_s:g} s: hang, or a watchdog reset"
            answer: tuple[str, Any] = self._connection.recv()
            return answer
        except (EOFError, OSError):
            self._process.join(5)
            return "died", f"the GPU process died (exit code {self._process.exitcode})"

    def request(self, method: str, *arguments: Any, timeout_s: float) -> Any:
        """Call `method` of the child's session; raises `WorkerFailure` or `WorkerBug`.

        After a failed launch the context is not trusted again: the child is stopped, and the next
        request starts a fresh one whose state must be set up anew (`alive` tells).
        """
        if self._process is None:
            self.start()
        assert self._connection is not None
        try:
            self._connection.send((method, arguments))
            kind, value = self._receive(timeout_s)
        except (BrokenPipeError, ConnectionResetError):
            kind, value = "died", "the GPU process died between requests"
        if kind == "ok":
            return value
        if kind == "not_implementable":
            raise WorkerFailure("not_implementable", value)
        if kind == "too_long":
            raise WorkerFailure("timeout", value)
        self.stop()
        self.restarts += 1
        if kind == "bug":
            raise WorkerBug(value)
        if kind == "launch_failed":
            raise WorkerFailure("launch_failed", value)
        raise WorkerFailure("timeout" if kind == "hung" else "died", value)

    @property
    def alive(self) -> bool:
        return self._process is not None

    def stop(self) -> None:
        """Kill the child; safe to call twice."""
        if self._process is None:
            return
        self._process.kill()
        self._process.join()
        if self._connection is not None:
            self._connection.close()
        self._process = self._connection = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
