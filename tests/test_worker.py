"""The child process: what its death, silence, refusals and errors become in the parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cutlass_study.records import EnvironmentProblem
from cutlass_study.worker import Worker, WorkerBug, WorkerFailure
from tests import fake_sessions

PROJECT = Path(__file__).resolve().parent.parent
SOON_S = 30.0
posix = pytest.mark.skipif(os.name != "posix", reason="POSIX signals")


@pytest.fixture
def worker() -> Iterator[Worker]:
    with Worker(fake_sessions.plain) as worker:
        yield worker


def ask_pid(worker: Worker) -> int:
    return int(worker.request("pid", timeout_s=SOON_S))


def failure_of(worker: Worker, fault: str, timeout_s: float = SOON_S) -> WorkerFailure:
    with pytest.raises(WorkerFailure) as caught:
        worker.request("misbehave", fault, timeout_s=timeout_s)
    return caught.value


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_requests_are_answered_by_one_other_process(worker: Worker) -> None:
    assert not worker.alive
    first = ask_pid(worker)
    assert first != os.getpid()
    assert ask_pid(worker) == first
    assert worker.alive
    assert worker.generation == 0


@posix
@pytest.mark.parametrize(
    ("fault", "code"), [("exit", 7), ("SIGKILL", -signal.SIGKILL), ("SIGSEGV", -signal.SIGSEGV)]
)
def test_a_crash_is_reported_and_the_next_request_gets_a_fresh_child(
    worker: Worker, fault: str, code: int
) -> None:
    first = ask_pid(worker)
    failure = failure_of(worker, fault)
    assert failure.kind == "died"
    assert f"exit code {code}" in str(failure)
    assert (worker.alive, worker.generation) == (False, 1)
    assert ask_pid(worker) != first


@posix
def test_a_child_that_died_between_requests_is_a_failure_not_an_error(worker: Worker) -> None:
    os.kill(ask_pid(worker), signal.SIGKILL)
    time.sleep(0.2)
    with pytest.raises(WorkerFailure, match="died") as caught:
        ask_pid(worker)
    assert caught.value.kind == "died"
    ask_pid(worker)


@posix
def test_a_hang_is_killed_after_the_timeout(worker: Worker) -> None:
    pid = ask_pid(worker)
    start = time.monotonic()
    failure = failure_of(worker, "hang", timeout_s=0.5)
    assert failure.kind == "timeout"
    assert "no answer within 0.5 s" in str(failure)
    assert time.monotonic() - start < 10
    assert not is_running(pid)


def test_a_bug_is_one_line_with_its_place_and_keeps_the_traceback(worker: Worker) -> None:
    ask_pid(worker)
    failure = failure_of(worker, "bug")
    assert isinstance(failure, WorkerBug)
    assert failure.kind == "bug"
    assert "\n" not in str(failure)
    assert "KeyError" in str(failure)
    assert "fake_sessions.py" in str(failure)
    assert "Traceback" in failure.trace
    assert not worker.alive, "what a bug left behind is not trusted"
    ask_pid(worker)


@pytest.mark.parametrize(
    ("fault", "kind"), [("refused", "not_implementable"), ("too long", "timeout")]
)
def test_a_refusal_keeps_the_child(worker: Worker, fault: str, kind: str) -> None:
    first = ask_pid(worker)
    assert failure_of(worker, fault).kind == kind
    assert ask_pid(worker) == first
    assert worker.generation == 0


def test_a_cuda_error_replaces_the_child(worker: Worker) -> None:
    first = ask_pid(worker)
    failure = failure_of(worker, "ILLEGAL_ADDRESS")
    assert failure.kind == "launch_failed"
    assert str(failure) == "cuStreamSynchronize failed: ILLEGAL_ADDRESS"
    assert ask_pid(worker) != first


def test_errors_of_a_watchdog_reset_say_so(worker: Worker) -> None:
    # the fake device has a watchdog, as in E10
    for name in ("LAUNCH_TIMEOUT", "LAUNCH_FAILED", "NOT_READY"):
        assert "possible watchdog reset (TDR)" in str(failure_of(worker, name))
    assert "watchdog" not in str(failure_of(worker, "ILLEGAL_ADDRESS"))


def test_no_gpu_is_an_environment_problem() -> None:
    worker = Worker(fake_sessions.without_gpu)
    with pytest.raises(EnvironmentProblem, match="no usable GPU"):
        worker.request("describe", timeout_s=SOON_S)
    assert not worker.alive


@pytest.mark.parametrize(
    ("factory", "kind", "words"),
    [
        (fake_sessions.broken_installation, "bug", "ImportError: libcublas"),
        (fake_sessions.dies_at_start, "died", "exit code 9"),
        (fake_sessions.out_of_memory_at_start, "bug", "OUT_OF_MEMORY"),
    ],
)
def test_a_child_that_can_not_start_is_one_sentence(
    factory: fake_sessions.Any, kind: str, words: str
) -> None:
    worker = Worker(factory)
    with pytest.raises(WorkerFailure, match=words) as caught:
        worker.request("describe", timeout_s=SOON_S)
    assert caught.value.kind == kind
    assert "\n" not in str(caught.value)
    assert not worker.alive


def test_stop_may_be_called_twice_and_counts_once(worker: Worker) -> None:
    ask_pid(worker)
    worker.stop()
    worker.stop()
    assert worker.generation == 1


INTERRUPTED = """
import sys, time
from cutlass_study.worker import Worker
from tests import fake_sessions

if __name__ == "__main__":
    worker = Worker(fake_sessions.plain)
    print(worker.request("pid", timeout_s=30), flush=True)
    try:
        worker.request("misbehave", "hang", timeout_s=60)
    except KeyboardInterrupt:
        print("interrupted", worker.alive, worker.request("pid", timeout_s=30) > 0, flush=True)
"""


@posix
def test_ctrl_c_reaches_the_parent_alone_and_leaves_no_stale_answer() -> None:
    """The whole process group gets SIGINT, as from a terminal."""
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED],
        cwd=PROJECT, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout
    child = int(process.stdout.readline())
    time.sleep(0.5)
    os.killpg(process.pid, signal.SIGINT)
    out, error = process.communicate(timeout=60)
    assert out.split() == ["interrupted", "False", "True"], error
    assert "Traceback" not in error
    assert not is_running(child)


@posix
def test_a_killed_parent_takes_an_idle_child_along() -> None:
    program = INTERRUPTED.replace(
        'worker.request("misbehave", "hang", timeout_s=60)', "time.sleep(60)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], cwd=PROJECT, text=True, stdout=subprocess.PIPE
    )
    assert process.stdout
    child = int(process.stdout.readline())
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 20
    while is_running(child) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not is_running(child)
