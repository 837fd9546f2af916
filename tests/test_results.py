from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutlass_study.columns import identity_from_values, identity_values
from cutlass_study.config import GemmConfig, GemmProblem
from cutlass_study.csv_files import csv_text
from cutlass_study.published import export
from cutlass_study.records import (
    IDENTITY_COLUMNS,
    EnvironmentProblem,
    Identity,
    RowOutcome,
)
from cutlass_study.results import ResultsStore
from cutlass_study.study_data import load
from tests.sweep_records import (
    BUILD,
    CUBLAS,
    DEVICE,
    identity,
    numbered,
    ok,
    sample,
    samples,
    sm80,
)

ROOT = Path(__file__).resolve().parent.parent

# Writes COUNT rows, one at a time, from FIRST on; says so after each; waits at a barrier file.
WRITER = """
import sys, time
from pathlib import Path
from cutlass_study.results import ResultsStore
from tests.sweep_records import DEVICE, numbered, ok, samples
path, first, count, resume, barrier = sys.argv[1:6]
with ResultsStore.open(path, DEVICE, resume=resume == "resume") as store:
    print("open", flush=True)
    while not Path(barrier).exists():
        time.sleep(0.005)
    for row in numbered(int(count), int(first)):
        store.add_outcome(ok(row))
        store.add_samples(row, samples([1.0, 1.1]))
        print(row.name, flush=True)
    if len(sys.argv) > 6:
        store._connection.execute("BEGIN IMMEDIATE")
        store._configuration_id(numbered(1, 9999)[0])
        print("in flight", flush=True)
        time.sleep(60)
"""


def writer(path: Path, first: int, count: int, resume: str, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(path), str(first), str(count), resume, *more]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def wait_for(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout
    while (got := process.stdout.readline().strip()) != line:
        assert got, f"the writer ended before '{line}'"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new folder" / "results.sqlite"


# --- identities -----------------------------------------------------------------------------

EDGE_CONFIGS = [
    CUBLAS,
    GemmConfig(family="cublas", variant="lt_best"),
    sm80(2, swizzle=8, split_k=4, epilogue_width=1),
    GemmConfig(
        family="wmma",
        variant="single",
        threadblock_shape=(64, 64, 16),
        warp_shape=(32, 32, 16),
        stages=1,
    ),
    *(
        GemmConfig(
            family="sm90",
            threadblock_shape=(128, 256, 64),
            cluster_shape=(2, 1, 1),
            stages=stages,
            schedule="cooperative",
            epilogue="tma",
            source_c="void",
            raster="heuristic",
            epilogue_width=4,
            alignment=8,
            swizzle=1,
        )
        for stages in (None, 4)
    ),
]
POSITIVE = st.integers(1, 1 << 20)
FACTOR = st.floats(allow_nan=False, allow_infinity=False)


def test_columns_name_every_field() -> None:
    names = {f.name for kind in (GemmConfig, GemmProblem, Identity) for f in fields(kind)}
    assert names - {"config", "problem"} == set(IDENTITY_COLUMNS) - {"name"}


@given(
    st.sampled_from(EDGE_CONFIGS),
    st.tuples(POSITIVE, POSITIVE, POSITIVE),
    st.sampled_from(["tn", "nn"]),
    st.sampled_from(["f32", "f16"]),
    FACTOR,
    FACTOR,
    st.integers(0, 8) | st.none(),
    st.integers(0, 2**63 - 1),
)
def test_identity_survives_columns_and_csv(config, mnk, layout, output, alpha, beta, pad, seed):  # type: ignore[no-untyped-def]
    lda = None if pad is None else mnk[2] + pad
    problem = GemmProblem(*mnk, layout, output, alpha, beta, lda)
    owner = identity(config, problem, seed=seed)
    values = identity_values(owner)
    assert identity_from_values(values) == owner
    texts = {column: csv_text(column, value) for column, value in values.items()}
    assert identity_from_values(texts) == owner


# --- the store ------------------------------------------------------------------------------


def test_records_come_back_as_they_went_in(path: Path) -> None:
    rows = [ok(identity(config), build_key=None) for config in EDGE_CONFIGS]
    rows.append(RowOutcome(identity(sm80(5)), "compile_failed", "error: x\ny", build_key="k"))
    taken = [sample(0, 1.25), sample(1, 1.5, host_ms=None, power_w=None, rejected="throttled")]
    with ResultsStore.open(path, DEVICE, resume=False) as store:
        store.add_build(BUILD)
        store.add_build(replace(BUILD, key="k", resources=None))
        for row in rows:
            store.add_outcome(row)
        store.add_samples(rows[0].identity, taken)
        store.add_outcome(replace(rows[0], stop_reason="budget"))
    with ResultsStore.read(path) as store:
        assert store.outcomes() == [replace(rows[0], stop_reason="budget"), *rows[1:]]
        assert store.samples(rows[0].identity) == taken
        assert store.all_samples() == [(rows[0].identity, one) for one in taken]
        assert store.builds() == [replace(BUILD, key="k", resources=None)]
        assert store.device() == DEVICE


def test_numpy_scalars_are_stored_as_numbers(path: Path) -> None:
    owner = identity(CUBLAS)
    with ResultsStore.open(path, DEVICE, resume=False) as store:
        store.add_outcome(ok(owner, max_abs_error=np.float32(0.5)))
        store.add_samples(owner, [sample(np.int64(3), np.float64(1.5))])  # type: ignore[arg-type]
        assert store.outcomes()[0].max_abs_error == 0.5
        assert store.samples(owner) == [sample(3, 1.5, host_ms=1.51)]


def test_samples_need_an_outcome_and_a_time(path: Path) -> None:
    owner = identity(CUBLAS)
    with ResultsStore.open(path, DEVICE, resume=False) as store:
        with pytest.raises(ValueError, match="before an outcome"):
            store.add_samples(owner, samples([1.0]))
        store.add_outcome(ok(owner))
        for time_ms in (0.0, -1.0, float("nan"), float("inf")):
            with pytest.raises(ValueError, match="no time"):
                store.add_samples(owner, samples([1.0, time_ms]))
        assert store.samples(owner) == []


def test_done_needs_same_build_ok_and_a_valid_sample(path: Path) -> None:
    owner, other = identity(sm80(3)), identity(sm80(4))
    with ResultsStore.open(path, DEVICE, resume=True) as store:
        assert not store.done(owner, "key1")
        store.add_outcome(ok(owner))
        store.add_samples(owner, samples([1.0], rejected="throttled"))
        assert not store.done(owner, "key1")
        store.add_samples(owner, samples([1.0]))
        store.add_outcome(RowOutcome(other, "timeout", build_key="key1"))
    with ResultsStore.open(path, DEVICE, resume=True) as store:
        assert store.done(owner, "key1")
        assert store.done(owner, "key1", ["burst"])
        assert not store.done(owner, "key1", ["burst", "sustained"])
        assert not store.done(owner, "key2")
        assert not store.done(replace(owner, seed=9), "key1")
        assert not store.done(other, "key1")
    with ResultsStore.open(path, DEVICE, resume=False) as store:
        assert not store.done(owner, "key1")


def test_a_second_sweep_neither_loses_nor_mixes(path: Path) -> None:
    first, second = numbered(2)
    with ResultsStore.open(path, DEVICE, resume=False) as store:
        store.add_outcome(ok(first))
        store.add_samples(first, samples([1.0]))
    with ResultsStore.open(path, DEVICE, resume=False, seed=5) as store:
        assert store.outcomes() == []
        store.add_outcome(ok(second))
    with ResultsStore.read(path) as store:
        assert store.outcomes() == [ok(second)]
        assert [(run.seed, run.rows) for run in store.runs()] == [(5, 1)]
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT COUNT(*) FROM outcome").fetchone() == (2,)
        assert connection.execute("SELECT COUNT(*) FROM sample").fetchone() == (1,)


def test_resume_keeps_rounds_of_processes_apart_and_builds_too(path: Path) -> None:
    control, same, rebuilt = identity(CUBLAS), identity(sm80(3)), identity(sm80(4))
    with ResultsStore.open(path, DEVICE, resume=False) as store:
        for row in (control, same, rebuilt):
            store.add_outcome(ok(row))
            store.add_samples(row, samples([1.0, 1.0, 1.0]))
    with ResultsStore.open(path, DEVICE, resume=True) as store:
        store.add_outcome(ok(control))
        store.add_samples(control, samples([2.0, 2.0]))
        store.add_outcome(ok(rebuilt, build_key="key2"))
        store.add_samples(rebuilt, samples([4.0, 4.0]))
        assert [one.round for one in store.samples(control)] == [0, 1, 2, 3, 4]
        assert [one.round for one in store.samples(same)] == [0, 1, 2]
        assert [(one.round, one.time_ms) for one in store.samples(rebuilt)] == [(3, 4.0), (4, 4.0)]
        assert len(store.outcomes()) == 3


@pytest.mark.parametrize("resume", ["resume", "fresh"])
def test_two_writers_of_two_hundred_rows(path: Path, tmp_path: Path, resume: str) -> None:
    barrier = tmp_path / "go"
    writers = [writer(path, first, 200, resume, str(barrier)) for first in (1, 201)]
    for process in writers:
        wait_for(process, "open")
    barrier.touch()
    for process in writers:
        process.communicate(timeout=60)
        assert process.returncode == 0
    with ResultsStore.read(path) as store:
        assert {row.identity for row in store.outcomes()} == set(numbered(400))
        assert len(store.outcomes()) == 400
        assert len(store.all_samples()) == 800
        export(store, tmp_path / "out", planned=400)
    data = load(tmp_path / "out")
    assert len(data.results) == 400
    assert data.complete


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no kill -9 on this system")
@pytest.mark.parametrize("tear", [False, True])
def test_kill_after_three_rows_then_resume(path: Path, tmp_path: Path, tear: bool) -> None:
    rows = numbered(10)
    barrier = tmp_path / "go"
    barrier.touch()
    process = writer(path, 1, 3, "fresh", str(barrier), "stay")
    wait_for(process, "in flight")
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=30)
    assert process.stdout
    process.stdout.close()
    log = path.with_name(path.name + "-wal")
    if tear:  # the last transaction, row 3's samples, loses its second half
        os.truncate(log, log.stat().st_size - 2048)
    kept = 2 if tear else 3
    with ResultsStore.read(path) as store:
        export(store, tmp_path / "out", planned=10)
    assert not load(tmp_path / "out").complete
    with ResultsStore.open(path, DEVICE, resume=True) as store:
        assert [row.identity for row in store.outcomes()] == rows[:3]
        assert [store.done(row, "key1") for row in rows] == [True] * kept + [False] * (10 - kept)
        for row in rows[kept:]:
            store.add_outcome(ok(row))
            store.add_samples(row, samples([1.0, 1.1]))
        assert len(store.outcomes()) == 10
        assert len(store.all_samples()) == 20
        export(store, tmp_path / "out", planned=10)
    data = load(tmp_path / "out")
    assert data.complete
    assert len(data.results) == 10
    assert not list((tmp_path / "out").glob(".*"))


@pytest.mark.parametrize(
    "change", [{"name": "NVIDIA H200"}, {"uuid": "GPU-2"}, {"arch": "sm_90a"}, {"sm_count": 20}]
)
def test_results_of_another_device_are_refused(path: Path, change: dict[str, object]) -> None:
    other = replace(DEVICE, **change)  # type: ignore[arg-type]
    with ResultsStore.open(path, DEVICE, resume=False) as store:
        store.add_outcome(ok(identity(CUBLAS)))
    for resume in (True, False):
        with pytest.raises(EnvironmentProblem) as caught:
            ResultsStore.open(path, other, resume=resume)
        for part in (DEVICE.name, other.name, other.uuid, f"{other.sm_count} SMs", "--results"):
            assert part in str(caught.value)
    newer = replace(DEVICE, driver_version="590.1")
    with ResultsStore.open(path, newer, resume=True) as store:
        assert store.device() == newer
        assert len(store.outcomes()) == 1


def test_a_store_without_results_takes_any_device(path: Path) -> None:
    ResultsStore.open(path, DEVICE, resume=False).close()
    other = replace(DEVICE, name="NVIDIA H200")
    with ResultsStore.open(path, other, resume=True) as store:
        assert store.device() == other


def _text(path: Path) -> None:
    path.write_text("name,family\n" * 100)


def _foreign(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE shopping (item TEXT)")
    connection.close()


def _newer(path: Path) -> None:
    ResultsStore.open(path, DEVICE, resume=False).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()


def _older(path: Path) -> None:
    """As written before the driver's occupancy was recorded."""
    with ResultsStore.open(path, DEVICE, resume=False) as store:
        store.add_outcome(ok(identity(CUBLAS)))
    connection = sqlite3.connect(path)
    connection.execute("ALTER TABLE outcome DROP COLUMN driver_ctas_per_sm")
    connection.execute("PRAGMA user_version = 2")
    connection.close()


def _torn(path: Path) -> None:
    with ResultsStore.open(path, DEVICE, resume=False) as store:
        for row in numbered(50):
            store.add_outcome(ok(row))
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_text, "is not a results store"),
        (_foreign, "is not a results store"),
        (_newer, "has schema version 99, this toolkit writes version 3"),
        (_older, "has schema version 2, this toolkit writes version 3; give another --results"),
        (_torn, "damaged"),
        (Path.mkdir, "can't be written"),
    ],
)
def test_files_that_are_no_store_are_refused_and_left_alone(
    tmp_path: Path, make: Callable[[Path], None], message: str
) -> None:
    path = tmp_path / "results.sqlite"
    make(path)
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(EnvironmentProblem, match=message) as caught:
        ResultsStore.open(path, DEVICE, resume=True)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert (path.read_bytes() if path.is_file() else b"") == before
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_unwritable_and_missing_paths(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentProblem, match="can't be written"):
        ResultsStore.open(tmp_path / "file" / "results.sqlite", DEVICE, resume=False)
    with pytest.raises(EnvironmentProblem, match="does not exist"):
        ResultsStore.read(tmp_path / "none.sqlite")
    assert not (tmp_path / "none.sqlite").exists()
