"""`sweep.py --list`: what it prints, what it refuses, and what it must not touch."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cutlass_study.axes import Axes
from cutlass_study.config import UsageError
from cutlass_study.presets import PRESETS
from cutlass_study.sweep_command import SweepCall, listing

SWEEP = Path(__file__).parents[1] / "scripts" / "sweep.py"
CONTRACT = (
    "name", "family", "arch", "m", "n", "k", "layout", "output", "threadblock_shape", "warp_shape",
    "cluster_shape", "stages", "epilogue_width", "alignment", "smem_bytes", "feasible", "reason",
)  # fmt: skip


def sweep(*arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SWEEP), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def rows(call: SweepCall) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(listing(call, "csv"))))


def by_hand(arch: str = "sm_89", **axes: object) -> list[dict[str, str]]:
    return rows(SweepCall(None, Axes(**axes), (arch,)))  # type: ignore[arg-type]


def test_the_columns_of_the_contract_come_first_in_csv_and_json() -> None:
    call = SweepCall("paper", Axes(), ("sm_89",))
    header = listing(call, "csv").splitlines()[0].split(",")
    assert tuple(header[: len(CONTRACT)]) == CONTRACT
    objects = json.loads(listing(call, "json"))
    assert list(objects[0]) == header
    assert len(objects) == len(rows(call))
    assert len(header) == len(set(header))


def test_csv_and_json_say_the_same() -> None:
    call = SweepCall("ada", Axes(), ("sm_89",))
    for text, value in zip(rows(call), json.loads(listing(call, "json")), strict=True):
        assert text["name"] == value["name"]
        assert text["feasible"] == str(value["feasible"]).lower()
        assert text["reason"] == value["reason"]
        assert text["smem_bytes"] == (
            "" if value["smem_bytes"] is None else str(value["smem_bytes"])
        )


def test_cublas_and_hand_written_rows_are_listed() -> None:
    found = rows(SweepCall("paper", Axes(), ("sm_89",)))
    assert {row["family"] for row in found} == {"sm80", "cublas", "wmma"}
    cublas = next(row for row in found if row["family"] == "cublas")
    assert (cublas["feasible"], cublas["smem_bytes"], cublas["threadblock_shape"]) == (
        "true", "", "",
    )  # fmt: skip


def test_several_archs_are_listed_one_after_the_other() -> None:
    found = rows(SweepCall("quick", Axes(), ("sm_89", "sm_90a")))
    assert [row["arch"] for row in found] == ["sm_89"] * 6 + ["sm_90a"] * 6


# F1: on Ada S=3 and S=4 of this tile are dropped before any compiler runs; on Hopper all fit.
def test_shared_memory_is_listed_in_bytes_with_the_limit() -> None:
    axes = {"tile": ["256x128x64"], "stages": ["2,3,4"]}
    on_ada, on_hopper = by_hand(**axes), by_hand("sm_90", **axes)
    assert [row["smem_bytes"] for row in on_ada] == ["98304", "147456", "196608"]
    assert [row["feasible"] for row in on_ada] == ["true", "false", "false"]
    assert on_ada[2]["reason"] == "needs 196608 B of shared memory, limit 101376 B"
    assert [row["feasible"] for row in on_hopper] == ["true"] * 3


# F3, F4 and the issue: problems that only some widths can load.
@pytest.mark.parametrize(
    ("problem", "width", "feasible", "reason"),
    [
        ("4096x4096x4097", "4", "false", "leading dimension 4097 of A"),
        ("4096x4097x4096", "4", "false", "leading dimension 4097 of D"),
        ("4097x4096x4096", "4", "true", ""),
        ("4096x4097x4096", "1", "true", ""),
    ],
)
def test_an_unloadable_problem_is_a_row_with_a_reason(
    problem: str, width: str, feasible: str, reason: str
) -> None:
    (row,) = by_hand(tile=["128x128x32"], problem=[problem], epilogue_width=[width])
    assert row["feasible"] == feasible
    assert row["reason"].startswith(reason)


# F10: impossible pairs are rows beside a good one.
@pytest.mark.parametrize(
    ("tile", "warp", "reason"),
    [
        ("160x128x32", "64x64x32", "not divisible by warp tile"),
        ("128x128x16", "64x64x16", "an even number of at least 2"),
        ("96x128x32", "48x64x32", ""),
        ("128x128x32", "64x64x32", ""),
        ("192x128x32", "64x64x32", "evenly"),
    ],
)
def test_impossible_tiles_are_rows_with_a_reason(tile: str, warp: str, reason: str) -> None:
    (row,) = by_hand(tile=[tile], warp=[warp])
    assert row["feasible"] == ("false" if reason else "true")
    assert reason in row["reason"]


@pytest.mark.parametrize(
    ("width", "output", "feasible"),
    [(1, "f32", "true"), (4, "f32", "true"), (4, "f16", "true"), (8, "f16", "false")],
)
def test_a_small_tile_is_limited_by_its_epilogue(width: int, output: str, feasible: str) -> None:
    (row,) = by_hand(
        tile=["32x32x32"], warp=["16x16x32"], epilogue_width=[str(width)], output=[output]
    )
    assert row["feasible"] == feasible


# F8 and F9: Hopper's epilogue memory stands beside the main loop's.
@pytest.mark.parametrize(
    ("source_c", "output", "stages", "smem_bytes", "feasible"),
    [
        ("half", "f16", "4", "230400", "true"),
        ("float", "f32", "4", "264192", "false"),
        ("void", "f32", "4", "231424", "true"),
        ("float", "f32", "3", "215040", "true"),
    ],
)
def test_hopper_counts_the_epilogue(
    source_c: str, output: str, stages: str, smem_bytes: str, feasible: str
) -> None:
    (row,) = by_hand(
        "sm_90a", family=["sm90"], tile=["128x256x64"], cluster=["1x1x1"], stages=[stages],
        source_c=[source_c], output=[output], epilogue_width=["8" if output == "f16" else "4"],
    )  # fmt: skip
    assert (row["smem_bytes"], row["feasible"]) == (smem_bytes, feasible)


# F7: narrow stores need the epilogue without TMA, and the row says so.
def test_hopper_widths_below_16_bytes_name_tma() -> None:
    axes = {"family": ["sm90"], "tile": ["128x128x64"], "schedule": ["pingpong"], "stages": ["4"]}
    widths = {"output": ["f16"], "source_c": ["half"], "epilogue_width": ["8,4,1"]}
    found = by_hand("sm_90a", **axes, **widths)
    assert [row["feasible"] for row in found] == ["true", "false", "false"]
    assert found[0]["smem_bytes"] == "148480"
    assert all("TMA" in row["reason"] for row in found[1:])
    (plain,) = by_hand(
        "sm_90a", **axes, output=["f16"], source_c=["half"], epilogue_width=["1"],
        epilogue=["nosmem"],
    )  # fmt: skip
    assert (plain["feasible"], plain["epilogue"]) == ("true", "nosmem")


def test_automatic_stages_leave_room_for_the_epilogue() -> None:
    (row,) = by_hand(
        "sm_90a", family=["sm90"], tile=["128x128x64"], schedule=["pingpong"], output=["f16"],
        source_c=["half"], epilogue_width=["8"], stages=["auto"],
    )  # fmt: skip
    assert row["feasible"] == "true"
    assert int(row["smem_bytes"]) <= 232448


# F14: a TMA kernel compiled for sm_90 would be a stub.
def test_plain_sm_90_is_refused_for_tma_kernels() -> None:
    with pytest.raises(UsageError, match=r"'sm_90' compiles .* give sm_90a"):
        SweepCall(None, Axes(family=["sm90"]), ("sm_90",))


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("--tile", "256x128"), ("threadblock shape '256x128'", "such as 256x128x32")),
        (("--stages", "1"), ("S=1", "2 to 16")),
        (("--preset", "nope"), ("preset 'nope'", "paper, quick, ada, hopper, scaling")),
        (("--arch", "sm_12"), ("arch 'sm_12'", "sm_89")),
        (("--family", "sm90", "--arch", "sm_90"), ("sm_90a",)),
        (("--format", "xml"), ("format 'xml'", "csv, json")),
        (("--epilogue-width", "3"), ("epilogue width 3", "1, 2, 4, 8, 16")),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    arguments: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    done = sweep("--list", *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1
    assert all(part in done.stderr for part in parts)


@pytest.mark.parametrize("name", PRESETS)
def test_listing_a_preset_takes_under_two_seconds(name: str) -> None:
    """The contract is 2 s; best of three, since other work may share the machine."""
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        assert sweep("--list", "--preset", name, "--arch", "sm_90a").returncode == 0
        seconds.append(time.perf_counter() - start)
        if seconds[-1] < 2:
            break
    assert min(seconds) < 2


def test_listing_works_from_a_folder_that_can_not_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir()
    folder.chmod(0o555)
    done = sweep("--list", "--preset", "quick", folder=folder)
    folder.chmod(0o755)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1 + 2 * 6
    assert os.listdir(folder) == []  # noqa: PTH208


def test_listing_loads_nothing_of_cuda() -> None:
    """E12: no GPU library, no compiler and no CUTLASS interface, for any preset."""
    code = (
        "import runpy, sys\n"
        f"sys.argv = ['sweep.py', '--list', '--preset', 'hopper', '--arch', 'sm_90a']\n"
        "try:\n"
        f"    runpy.run_path({str(SWEEP)!r}, run_name='__main__')\n"
        "except SystemExit as stop:\n"
        "    assert not stop.code, stop.code\n"
        "heavy = {'cuda', 'nvmath', 'pynvml', 'cutlass_library', 'cutlass_cppgen', 'pandas'}\n"
        "print(sorted(heavy & {name.partition('.')[0] for name in sys.modules}), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr.strip() == "[]"
