"""What every script shares: one sentence for wrong options, and a stdout of any kind."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import pytest
import typer

from cutlass_study import console
from cutlass_study.config import UsageError
from cutlass_study.records import EnvironmentProblem

ROOT = Path(__file__).resolve().parent.parent
posix = pytest.mark.skipif(os.name != "posix", reason="a POSIX shell's redirections")


def shell(name: str, rest: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`python scripts/<name>.py <rest>` by sh, `rest` with its redirections."""
    return subprocess.run(
        ["sh", "-c", f'"{sys.executable}" scripts/{name}.py {rest}'],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@posix
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("options", ["", "--help"])
def test_a_full_stdout_is_one_sentence(options: str) -> None:
    done = shell("roofline", f"{options} >/dev/full")
    assert done.returncode == 3
    assert re.fullmatch(r"stdout can't be written \(No space left on device\); .*\n", done.stderr)


@posix
def test_more_than_a_buffer_into_a_full_stdout() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    tiles = ",".join(map(str, range(1, 400)))
    done = shell("roofline", f"--tile {tiles} >/dev/full")
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)


@posix
@pytest.mark.parametrize("name", ["roofline", "doctor"])
@pytest.mark.parametrize("options", ["", "--help"])
def test_a_closed_stdout_changes_nothing_else(name: str, options: str) -> None:
    done = shell(name, f"{options} >&-")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@posix
def test_usage_errors_keep_their_exit_code_without_a_stdout() -> None:
    done = shell("roofline", "--tile x >&-")
    assert done.returncode == 2
    assert done.stderr.startswith("tile 'x' must be")


@posix
@pytest.mark.parametrize("encoding", ["cp1251", "cp437", "ascii"])
@pytest.mark.parametrize("options", ["", "--help"])
def test_signs_that_the_encoding_lacks_are_replaced(encoding: str, options: str) -> None:
    done = shell("roofline", options, PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stderr) == (0, "")
    assert "?" in done.stdout


@posix
def test_a_reader_that_has_left_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "scripts/roofline.py"],
        cwd=ROOT,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


# --- options ------------------------------------------------------------------------------------


class Form(StrEnum):
    text = "text"
    json = "json"


def example(
    name: Annotated[str, typer.Argument(help="one of: a, b")],
    stages: list[str] | None = None,
    workers: int | None = None,
    beta: float = 0.0,
    form: Annotated[Form, typer.Option("--format")] = Form.text,
    out: Path | None = None,
    static: Annotated[bool, typer.Option("--static")] = False,
) -> None:
    raise AssertionError(f"work begins: {name}")


def ended(
    function: Callable[..., None], monkeypatch: pytest.MonkeyPatch, *arguments: str
) -> int | str | None:
    """The exit code of a script with this `main` and these arguments."""
    monkeypatch.setattr(sys, "argv", ["example.py", *arguments])
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    with pytest.raises(SystemExit) as stop:
        console.run(function, "interrupted; all is kept")
    return stop.value.code


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["a", "--stages"], "--stages needs a value; give one, or leave it out"),
        (["a", "--workers", "abc"], "--workers 'abc' is not a whole number; give one such as 4"),
        (["a", "--workers=1.5"], "--workers '1.5' is not a whole number; give one such as 4"),
        (["a", "--workers", ""], "--workers '' is not a whole number; give one such as 4"),
        (
            ["a", "--workers", "1", "--workers", "x"],
            "--workers 'x' is not a whole number; give one such as 4",
        ),
        (
            ["a", "--workers", "9" * 5000],
            f"--workers '{'9' * 59}…' is not a whole number; give one such as 4",
        ),
        (["a", "--beta", "x\ny"], "--beta 'x y' is not a number; give one such as 0.5"),
        (["a", "--format", "pdf"], "--format 'pdf' is not known; use one of: text, json"),
        (["a", "--zzz"], "option '--zzz' is not known; --help lists what there is"),
        (["a", "--worker", "1"], "option '--worker' is not known; did you mean --workers?"),
        (["a", "--static=3"], "--static takes no value; give it alone, or leave it out"),
        (["a", "--out", ""], "--out is empty; give a path, or leave it out"),
        (["a", "--out= "], "--out is empty; give a path, or leave it out"),
        ([], "NAME is missing; give one of: a, b"),
        (["a", "3", "4"], "'3 4' belongs to no option; --help lists what there is"),
    ],
)
def test_a_wrong_option_is_one_sentence(
    arguments: list[str],
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ended(example, monkeypatch, *arguments) == 2
    assert capsys.readouterr() == ("", f"{sentence}\n")


def scripts() -> list[str]:
    return sorted(path.stem for path in (ROOT / "scripts").glob("*.py"))


@posix
@pytest.mark.parametrize("name", scripts())
def test_every_script_refuses_an_unknown_option_alike(name: str) -> None:
    done = shell(name, "--no-such-thing")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "option '--no-such-thing' is not known; --help lists what there is\n"


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UsageError("tile 'a\nb' is wrong"), 2, "tile 'a b' is wrong\n"),
        (EnvironmentProblem("no compiler"), 3, "no compiler\n"),
        (KeyboardInterrupt(), 130, "interrupted; all is kept\n"),
        (MemoryError(), 3, "memory is used up; close other programs\n"),
        (
            OSError(errno.ENOSPC, "No space left on device", "/tmp/x"),
            3,
            "'/tmp/x': No space left on device; free space and memory there, or raise the "
            "system's limits\n",
        ),
        (
            OSError(errno.EMFILE, "Too many open files"),
            3,
            "this machine: Too many open files; free space and memory there, or raise the "
            "system's limits\n",
        ),
        (typer.Exit(1), 1, ""),
    ],
)
def test_expected_failures_are_one_sentence_and_an_exit_code(
    error: BaseException,
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def main() -> None:
        raise error

    assert ended(main, monkeypatch) == code
    assert capsys.readouterr().err == said


def test_a_bug_prints_a_plain_traceback() -> None:
    code = (
        "from cutlass_study import console\n"
        "def main() -> None:\n"
        "    secret = 'a local value'\n"
        "    raise KeyError(1)\n"
        "console.run(main)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback (most recent call last):")
    assert done.stderr.endswith("KeyError: 1\n")
    assert "a local value" not in done.stderr


def test_every_script_begins_through_console() -> None:
    missing = [
        path.name
        for path in sorted((ROOT / "scripts").glob("*.py"))
        if "console.run(main" not in path.read_text(encoding="utf-8")
    ]
    assert missing == []


@posix
@pytest.mark.parametrize("name", scripts())
def test_an_interrupt_while_a_script_is_imported_is_one_word(name: str, tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt")
    done = shell(name, "", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")
