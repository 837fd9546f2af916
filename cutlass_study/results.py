"""The live store of a sweep: one SQLite file that survives kill -9 and several writers.

Every `ResultsStore.open` is a *run*: one process, with its device, arguments and start. Runs form
*campaigns*. With `resume`, a run continues the newest campaign; without, it starts another one in
the same file, so nothing old is lost and nothing is mixed in. Reading and exporting show one
campaign: the store's own, which after a reopening is the newest. Two sweeps that write at the
same time into one file count as one campaign, so that neither hides the other's rows.

Within a campaign the newest run's outcome of an identity stands. Samples of all its runs count
as long as their build is that outcome's build; their rounds are renumbered on reading so that
rounds of different processes never share a number and are never paired.
"""

from __future__ import annotations

import json
import math
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, astuple, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cutlass_study import peaks, schema
from cutlass_study.columns import identity_from_values, identity_key, identity_values
from cutlass_study.peaks import Ceiling
from cutlass_study.records import (
    BuildRecord,
    DeviceRecord,
    EnvironmentProblem,
    Identity,
    Regime,
    RowOutcome,
    Sample,
)
from cutlass_study.schema import RunRecord


class ResultsStore:
    """Outcomes and samples of one device; see the module's text for runs and campaigns."""

    def __init__(self, connection: sqlite3.Connection, path: Path, run_id: int) -> None:
        self._connection = connection
        self._path = path
        self._run_id = run_id

    @classmethod
    def open(
        cls,
        path: Path | str,
        device: DeviceRecord,
        *,
        resume: bool,
        arguments: Sequence[str] = (),
        seed: int | None = None,
    ) -> ResultsStore:
        """Start a run in `path`, made with its folder if missing; see the module for `resume`.

        Raises EnvironmentProblem for a path that can't be written, a file that is no results
        store, another schema version, or results of another device.
        """
        path = Path(path)
        connection = schema.connect(path, create=True)
        store = cls(connection, path, 0)
        try:
            with store._transaction():
                schema.ensure(connection, path)
                store._refuse_other_device(device)
                store._run_id = store._begin_run(device, resume, arguments, seed)
        except BaseException:
            connection.close()
            raise
        return store

    @classmethod
    def read(cls, path: Path | str) -> ResultsStore:
        """Open the newest campaign for reading and exporting, without starting a run."""
        path = Path(path)
        connection = schema.connect(path, create=False)
        newest = connection.execute("SELECT MAX(id) FROM run").fetchone()[0]
        if newest is None:
            connection.close()
            raise EnvironmentProblem(f"results file '{path}' holds no run; run sweep.py first")
        connection.execute("PRAGMA query_only = ON")
        return cls(connection, path, newest)

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- writing ---------------------------------------------------------------------------

    def add_build(self, build: BuildRecord) -> None:
        """Record a compiled kernel; the same key again replaces it."""
        values = asdict(build)
        resources = values.pop("resources")
        with self._transaction():
            schema.insert(self._connection, "build", {**values, **(resources or {})}, replace=True)

    def add_outcome(self, row: RowOutcome) -> None:
        """Record how a configuration ended in this run; the same identity again replaces it."""
        values: dict[str, Any] = {
            "run_id": self._run_id,
            "outcome": row.outcome,
            "reason": row.reason,
            "build_key": row.build_key,
            "max_abs_error": row.max_abs_error,
            "max_rel_error": row.max_rel_error,
            "driver_ctas_per_sm": row.driver_ctas_per_sm,
            "stop_reason": row.stop_reason,
        }
        for part in (row.resources, row.occupancy):
            values |= asdict(part) if part else {}
        with self._transaction():
            values["configuration_id"] = self._configuration_id(row.identity)
            schema.insert(self._connection, "outcome", values, replace=True)
            self._touch()

    def add_samples(self, identity: Identity, samples: Iterable[Sample]) -> None:
        """Append raw samples, in one transaction.

        Raises ValueError if this run has no outcome for the identity yet (add the verified
        outcome first: it ties samples to their build), or for a time that can't be one.
        """
        samples = list(samples)
        for sample in samples:
            if not math.isfinite(sample.time_ms) or (sample.time_ms <= 0 and not sample.rejected):
                raise ValueError(f"{identity.name}: a sample of {sample.time_ms} ms is no time")
        with self._transaction():
            ids = (self._run_id, self._configuration_id(identity))
            found = self._connection.execute(
                "SELECT 1 FROM outcome WHERE run_id = ? AND configuration_id = ?", ids
            ).fetchone()
            if found is None:
                raise ValueError(f"{identity.name}: samples before an outcome in this run")
            marks = ", ".join("?" * (len(ids) + len(schema.SAMPLE_FIELDS)))
            fields = ", ".join(("run_id", "configuration_id", *schema.SAMPLE_FIELDS))
            self._connection.executemany(
                f"INSERT INTO sample ({fields}) VALUES ({marks})",
                [(*ids, *map(schema.plain, astuple(sample))) for sample in samples],
            )
            self._touch()

    def add_ceilings(self, ceilings: Iterable[Ceiling]) -> None:
        """Record what the card can do at most, as measured in this run."""
        with self._transaction():
            for ceiling in ceilings:
                values = {
                    "run_id": self._run_id,
                    "name": ceiling.name,
                    "record": json.dumps(asdict(ceiling)),
                }
                schema.insert(self._connection, "ceiling", values, replace=True)

    # --- reading ---------------------------------------------------------------------------

    def done(
        self, identity: Identity, build_key: str | None, regimes: Iterable[Regime] = ()
    ) -> bool:
        """Whether a resumed sweep may skip this row.

        True if it is `ok` with the same build and has a sample that was not rejected; with
        `regimes`, one in each of them.
        """
        found = self._select("outcomes", identity)
        if not found or found[0]["outcome"] != "ok" or found[0]["build_key"] != build_key:
            return False
        measured = {sample.regime for sample in self.samples(identity) if not sample.rejected}
        return bool(measured) and measured.issuperset(regimes)

    def outcomes(self) -> list[RowOutcome]:
        """The standing outcome of every identity of this campaign, in order of first mention."""
        return [schema.row_outcome(row) for row in self._select("outcomes")]

    def samples(self, identity: Identity) -> list[Sample]:
        """The samples that count for one identity, in order of measuring."""
        return [sample for _, sample in self._samples(identity)]

    def all_samples(self) -> list[tuple[Identity, Sample]]:
        """Every sample of this campaign that counts, in order of measuring."""
        return list(self._samples(None))

    def builds(self) -> list[BuildRecord]:
        """Every build that an outcome of this campaign names."""
        return [schema.build_record(row) for row in self._select("builds")]

    def runs(self) -> list[RunRecord]:
        """The runs of this campaign that recorded anything, oldest first."""
        return [schema.run_record(row) for row in self._select("runs")]

    def ceilings(self) -> list[Ceiling]:
        """The newest ceilings of this campaign."""
        marks = ", ".join("?" * len(self._run_ids()))
        rows = self._connection.execute(
            f"SELECT record, MAX(run_id) FROM ceiling WHERE run_id IN ({marks}) GROUP BY name",
            self._run_ids(),
        )
        return [peaks.ceiling_from(json.loads(row["record"])) for row in rows]

    def device(self) -> DeviceRecord:
        """The device of this store's run."""
        row = self._connection.execute(
            "SELECT record FROM device JOIN run ON run.device_id = device.id WHERE run.id = ?",
            (self._run_id,),
        ).fetchone()
        return schema.device_record(row)

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """What is read inside belongs to one moment, whatever other processes write."""
        self._connection.execute("BEGIN")
        try:
            yield
        finally:
            self._connection.execute("ROLLBACK")

    # --- inside ----------------------------------------------------------------------------

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Everything written inside becomes one transaction: one wait for the disk, not many."""
        with self._transaction():
            yield

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing. IMMEDIATE, so that writers queue at the start and never deadlock."""
        if self._connection.in_transaction:  # part of a batch
            yield
            return
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            raise schema.unwritable(self._path, error) from error

    def _refuse_other_device(self, present: DeviceRecord) -> None:
        rows = self._connection.execute(
            "SELECT record FROM device WHERE id IN "
            "(SELECT device_id FROM run JOIN outcome ON outcome.run_id = run.id)"
        )
        for row in rows:
            stored = schema.device_record(row)
            if not schema.same_device(stored, present):
                raise EnvironmentProblem(
                    f"results file '{self._path}' holds results of {schema.device_text(stored)}, "
                    f"but the present GPU is {schema.device_text(present)}; give another "
                    "--results file"
                )

    def _begin_run(
        self, device: DeviceRecord, resume: bool, arguments: Sequence[str], seed: int | None
    ) -> int:
        record = json.dumps(asdict(device))
        execute = self._connection.execute
        execute("INSERT OR IGNORE INTO device (record) VALUES (?)", (record,))
        device_id = execute("SELECT id FROM device WHERE record = ?", (record,)).fetchone()[0]
        # A run that ended before it recorded anything is no campaign to go on with.
        newest = execute(
            "SELECT campaign FROM run WHERE id IN (SELECT run_id FROM outcome) "
            "ORDER BY id DESC LIMIT 1"
        ).fetchone()
        run_id = int(execute("SELECT COALESCE(MAX(id), 0) + 1 FROM run").fetchone()[0])
        now = time.time()
        values = {
            "id": run_id,
            "campaign": newest["campaign"] if newest and resume else run_id,
            "device_id": device_id,
            "arguments": json.dumps(list(arguments)),
            "seed": seed,
            "started_at": now,
            "active_at": now,
        }
        schema.insert(self._connection, "run", values)
        return run_id

    def _touch(self) -> None:
        self._connection.execute(
            "UPDATE run SET active_at = ? WHERE id = ?", (time.time(), self._run_id)
        )

    def _configuration_id(self, identity: Identity) -> int:
        values = identity_values(identity)
        key = identity_key(identity)
        execute = self._connection.execute
        found = execute("SELECT id FROM configuration WHERE key = ?", (key,)).fetchone()
        if found is None:
            schema.insert(self._connection, "configuration", {"key": key, **values})
            found = execute("SELECT id FROM configuration WHERE key = ?", (key,)).fetchone()
        return int(found["id"])

    def _run_ids(self) -> list[int]:
        return [row[0] for row in self._connection.execute(schema.CAMPAIGN, {"run": self._run_id})]

    def _select(self, what: str, identity: Identity | None = None) -> list[sqlite3.Row]:
        parameters = {
            "runs": json.dumps(self._run_ids()),
            "key": identity_key(identity) if identity else None,
        }
        return self._connection.execute(schema.QUERIES[what], parameters).fetchall()

    def _samples(self, identity: Identity | None) -> Iterator[tuple[Identity, Sample]]:
        first_round: dict[int, int] = {}
        rounds = 0
        for row in self._select("rounds"):
            first_round[row["run_id"]] = rounds
            rounds += row["last"] + 1
        identities: dict[str, Identity] = {}
        for row in self._select("samples", identity):
            owner = identities.get(row["key"])
            if owner is None:
                owner = identities[row["key"]] = identity_from_values(dict(row))
            sample = Sample(*(row[field] for field in schema.SAMPLE_FIELDS))
            yield owner, replace(sample, round=sample.round + first_round[row["run_id"]])
