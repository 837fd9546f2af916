"""The results database below `ResultsStore`: tables, queries, opening, and rows as records."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cutlass_study.columns import FLOAT_COLUMNS, INTEGER_COLUMNS, identity_from_values
from cutlass_study.records import (
    IDENTITY_COLUMNS,
    BuildRecord,
    DeviceRecord,
    EnvironmentProblem,
    Occupancy,
    Resources,
    RowOutcome,
    Sample,
)

SCHEMA_VERSION = 1  # of the published folder; newer columns are optional there
STORE_VERSION = 3  # of the database
APPLICATION_ID = 0x43555453  # marks the SQLite file as ours ("CUTS")
BUSY_TIMEOUT_S = 30.0

SAMPLE_FIELDS = tuple(Sample.__dataclass_fields__)
RESOURCE_FIELDS = tuple(Resources.__dataclass_fields__)


def _typed(columns: tuple[str, ...]) -> str:
    def kind(column: str) -> str:
        if column in INTEGER_COLUMNS:
            return "INTEGER"
        return "REAL" if column in FLOAT_COLUMNS else "TEXT"

    return ", ".join(f"{column} {kind(column)}" for column in columns)


_TABLES = (
    "CREATE TABLE device (id INTEGER PRIMARY KEY, record TEXT NOT NULL UNIQUE)",
    """CREATE TABLE run (id INTEGER PRIMARY KEY, campaign INTEGER NOT NULL,
        device_id INTEGER NOT NULL REFERENCES device, arguments TEXT NOT NULL, seed INTEGER,
        started_at REAL NOT NULL, active_at REAL NOT NULL)""",
    f"""CREATE TABLE build (key TEXT PRIMARY KEY, arch TEXT, toolchain TEXT, flags TEXT,
        cutlass_version TEXT, source_hash TEXT, {_typed(RESOURCE_FIELDS)},
        compile_seconds REAL)""",
    f"""CREATE TABLE configuration (id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE,
        {_typed(IDENTITY_COLUMNS)})""",
    f"""CREATE TABLE outcome (run_id INTEGER NOT NULL REFERENCES run,
        configuration_id INTEGER NOT NULL REFERENCES configuration, outcome TEXT NOT NULL,
        reason TEXT NOT NULL, build_key TEXT, {_typed(RESOURCE_FIELDS)}, ctas_per_sm INTEGER,
        occupancy REAL, limiter TEXT, max_abs_error REAL, max_rel_error REAL,
        driver_ctas_per_sm INTEGER, stop_reason TEXT NOT NULL,
        PRIMARY KEY (run_id, configuration_id))""",
    f"""CREATE TABLE sample (id INTEGER PRIMARY KEY, run_id INTEGER NOT NULL REFERENCES run,
        configuration_id INTEGER NOT NULL REFERENCES configuration, {_typed(SAMPLE_FIELDS)})""",
    "CREATE INDEX sample_by_configuration ON sample (configuration_id)",
    "CREATE TABLE ceiling (run_id INTEGER NOT NULL REFERENCES run, name TEXT NOT NULL, record TEXT"
    " NOT NULL, PRIMARY KEY (run_id, name))",
)

# The campaign of run :run, and every campaign that was being written at the same time.
CAMPAIGN = """
SELECT id FROM run WHERE campaign IN (
    SELECT campaign FROM run WHERE id = :run
    UNION SELECT other.campaign FROM run AS own JOIN run AS other
        ON other.started_at < own.active_at AND own.started_at < other.active_at
        WHERE own.campaign = (SELECT campaign FROM run WHERE id = :run))
ORDER BY id"""

_STANDING = """
WITH chosen AS (SELECT value AS run_id FROM json_each(:runs)),
newest AS (SELECT configuration_id, MAX(run_id) AS run_id FROM outcome
    WHERE run_id IN (SELECT run_id FROM chosen) GROUP BY configuration_id),
standing AS (SELECT outcome.* FROM outcome JOIN newest USING (run_id, configuration_id))
"""
QUERIES = {
    "outcomes": _STANDING
    + """SELECT configuration.*, standing.* FROM standing
        JOIN configuration ON configuration.id = standing.configuration_id
        WHERE :key IS NULL OR configuration.key = :key ORDER BY configuration.id""",
    "samples": _STANDING
    + """SELECT configuration.*, sample.* FROM sample
        JOIN configuration ON configuration.id = sample.configuration_id
        JOIN standing USING (configuration_id)
        JOIN outcome AS own
            ON own.run_id = sample.run_id AND own.configuration_id = sample.configuration_id
        WHERE sample.run_id IN (SELECT run_id FROM chosen)
            AND own.build_key IS standing.build_key AND (:key IS NULL OR configuration.key = :key)
        ORDER BY sample.id""",
    "rounds": """SELECT run_id, MAX(round) AS last FROM sample
        WHERE run_id IN (SELECT value FROM json_each(:runs)) GROUP BY run_id ORDER BY run_id""",
    "builds": """SELECT * FROM build WHERE key IN (SELECT build_key FROM outcome
        WHERE run_id IN (SELECT value FROM json_each(:runs))) ORDER BY key""",
    "runs": """SELECT run.*, device.record, COUNT(*) AS rows FROM run
        JOIN device ON device.id = run.device_id JOIN outcome ON outcome.run_id = run.id
        WHERE run.id IN (SELECT value FROM json_each(:runs)) GROUP BY run.id ORDER BY run.id""",
}


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One process that wrote into the store. `started_at` is Unix time in seconds."""

    started_at: float
    arguments: tuple[str, ...]
    seed: int | None
    device: DeviceRecord
    rows: int


def connect(path: Path, *, create: bool) -> sqlite3.Connection:
    """Open `path` in WAL mode after checking that it is empty or ours; EnvironmentProblem if not.

    A foreign or damaged file is left as it was.
    """
    if not create and not path.is_file():
        raise EnvironmentProblem(f"results file '{path}' does not exist; run sweep.py first")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
    except (OSError, sqlite3.OperationalError) as error:
        raise unwritable(path, error) from error
    try:
        connection.row_factory = sqlite3.Row
        _check(connection, path, may_be_empty=create)
        _enter_wal(connection)
        # Durable at every commit: a driver reset that takes Windows down is part of the study.
        connection.execute("PRAGMA synchronous = FULL")
    except sqlite3.OperationalError as error:
        connection.close()
        raise unwritable(path, error) from error
    except sqlite3.DatabaseError as error:
        connection.close()
        raise EnvironmentProblem(
            f"'{path}' is not a results store, or a damaged one ({error}); move it away or give "
            "another --results file"
        ) from error
    except BaseException:
        connection.close()
        raise
    return connection


def ensure(connection: sqlite3.Connection, path: Path) -> None:
    """Inside a transaction: make the tables if the file is empty, else check the version."""
    if connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]:
        _check(connection, path, may_be_empty=False)
        return
    for statement in _TABLES:
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {STORE_VERSION}")


def _check(connection: sqlite3.Connection, path: Path, *, may_be_empty: bool) -> None:
    def single(statement: str) -> Any:
        with closing(connection.execute(statement)) as cursor:
            return cursor.fetchone()[0]

    if may_be_empty and not single("SELECT COUNT(*) FROM sqlite_master"):
        return
    if single("PRAGMA application_id") != APPLICATION_ID:
        raise EnvironmentProblem(
            f"'{path}' is not a results store of this study; give another --results file"
        )
    version = single("PRAGMA user_version")
    if version != STORE_VERSION:
        raise EnvironmentProblem(
            f"results file '{path}' has schema version {version}, this toolkit writes version "
            f"{STORE_VERSION}; give another --results file"
        )
    damage = single("PRAGMA quick_check(1)")
    if damage != "ok":
        raise EnvironmentProblem(
            f"results file '{path}' is damaged ({' '.join(str(damage).split())}); move it away "
            "and sweep again"
        )


def _enter_wal(connection: sqlite3.Connection) -> None:
    """Switching modes needs the file alone, and SQLite does not always wait for that by itself."""
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def unwritable(path: Path, error: Exception) -> EnvironmentProblem:
    """The one sentence for every way in which the file can't be read or written."""
    if "locked" in str(error):
        return EnvironmentProblem(
            f"results file '{path}' was locked by another program for {BUSY_TIMEOUT_S:g} s; "
            "close that program or give another --results file"
        )
    cause = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return EnvironmentProblem(
        f"results file '{path}' can't be written ({cause}); give a --results file in a folder "
        "that can be written and has free space"
    )


def plain(value: Any) -> Any:
    """A numpy scalar as the Python number it holds; SQLite would store its bytes."""
    return value.item() if hasattr(value, "item") else value


def insert(
    connection: sqlite3.Connection,
    table: str,
    values: Mapping[str, Any],
    *,
    replace: bool = False,
) -> None:
    """One row; the names are this package's own, the values are bound."""
    verb = "INSERT OR REPLACE" if replace else "INSERT"
    marks = ", ".join("?" * len(values))
    connection.execute(
        f"{verb} INTO {table} ({', '.join(values)}) VALUES ({marks})",
        tuple(plain(value) for value in values.values()),
    )


def same_device(one: DeviceRecord, other: DeviceRecord) -> bool:
    """Whether results may stand in one file: name, UUID, arch and SM count agree."""
    return device_text(one) == device_text(other)


def device_text(device: DeviceRecord) -> str:
    """`NVIDIA H200 (sm_90a, 132 SMs, GPU-…)`."""
    return f"{device.name} ({device.arch}, {device.sm_count} SMs, {device.uuid})"


def _resources(row: sqlite3.Row) -> Resources | None:
    if row["code_hash"] is None:
        return None
    return Resources(**{field: row[field] for field in RESOURCE_FIELDS})


def build_record(row: sqlite3.Row) -> BuildRecord:
    fields = [field for field in BuildRecord.__dataclass_fields__ if field != "resources"]
    return BuildRecord(**{field: row[field] for field in fields}, resources=_resources(row))


def device_record(row: sqlite3.Row) -> DeviceRecord:
    return DeviceRecord(**json.loads(row["record"]))


def run_record(row: sqlite3.Row) -> RunRecord:
    arguments = tuple(json.loads(row["arguments"]))
    return RunRecord(row["started_at"], arguments, row["seed"], device_record(row), row["rows"])


def row_outcome(row: sqlite3.Row) -> RowOutcome:
    occupancy = None
    if row["limiter"] is not None:
        occupancy = Occupancy(row["ctas_per_sm"], row["occupancy"], row["limiter"])
    return RowOutcome(
        identity=identity_from_values(dict(row)),
        outcome=row["outcome"],
        reason=row["reason"],
        build_key=row["build_key"],
        resources=_resources(row),
        occupancy=occupancy,
        max_abs_error=row["max_abs_error"],
        max_rel_error=row["max_rel_error"],
        driver_ctas_per_sm=row["driver_ctas_per_sm"],
        stop_reason=row["stop_reason"],
    )
