"""Scripts whose stdout is full, closed, left by its reader, or of an encoding without ×."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_every_script_begins_through_console() -> None:
    missing = [
        path.name
        for path in sorted((ROOT / "scripts").glob("*.py"))
        if "console.run(main)" not in path.read_text(encoding="utf-8")
    ]
    assert missing == []
