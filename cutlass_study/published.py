"""Writing the published folder: device.json, results.csv and samples.csv.gz from a store.

Derived columns come from the samples as published (rounded), so that anyone who recomputes them
from the folder finds the same numbers. `study_data.load` reads the folder.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from cutlass_study.columns import Value, identity_key, identity_values
from cutlass_study.conditions import INTERLEAVED, SERIAL
from cutlass_study.config import GemmProblem
from cutlass_study.csv_files import csv_bytes, csv_text, write_all
from cutlass_study.device_file import read_device_file
from cutlass_study.drift import control_drifts
from cutlass_study.records import (
    FAILED,
    RESULT_COLUMNS,
    SAMPLE_COLUMNS,
    STATIC_COLUMNS,
    DeviceRecord,
    EnvironmentProblem,
    Identity,
    Outcome,
    RowOutcome,
    Sample,
    is_whole,
)
from cutlass_study.results import ResultsStore
from cutlass_study.schema import SCHEMA_VERSION, device_text, same_device
from cutlass_study.stats import (
    Derived,
    control_condition,
    derive,
    is_control_of,
    why_none_valid,
)
from cutlass_study.study_data import DEVICE_FILE, RESULTS_FILE, SAMPLES_FILE

VERIFIED = ("ok", "no_valid_samples")  # the kernel is right; each regime's samples decide which
Key = tuple[str, str]  # identity_key and regime


@dataclass(frozen=True, slots=True)
class _Work:
    """What a control must share with a configuration."""

    problem: GemmProblem
    arch: str
    distribution: str
    seed: int
    condition: str

    @classmethod
    def of(cls, identity: Identity) -> _Work:
        condition = control_condition(identity.condition)
        return cls(identity.problem, identity.arch, identity.distribution, identity.seed, condition)


def export(
    store: ResultsStore,
    directory: Path | str,
    *,
    planned: int,
    peak_flop_per_clk_sm: float | None = None,
    seed: int = 0,
    experiment: str = "",
) -> None:
    """Publish the store's campaign into `directory`, each file replaced in one step.

    `planned` is how many configurations the sweep set out to record: with fewer, or with verified
    ones whose sampling did not end (no stop reason), device.json says `"complete": false`.
    `peak_flop_per_clk_sm` is the device's dense FP16 rate with FP32 accumulate, if known. `seed`
    is the bootstrap's. `experiment` names the experiment whose records these are. Raises
    EnvironmentProblem if the folder can't be written or holds another device's records.
    """
    directory = Path(directory)
    device = store.device()
    refuse_foreign_folder(directory, device)
    with store.snapshot():
        outcomes = store.outcomes()
        samples = [(identity, _rounded(sample)) for identity, sample in store.all_samples()]
        summary = _summary(store, outcomes, planned)
        summary["control_drift"] = _drifts(samples)
        if experiment:
            summary["experiment"] = experiment

    def numbers(row: RowOutcome, own: list[Sample], control: list[Sample]) -> Derived | None:
        return derive(
            row.identity.problem,
            own,
            control,
            seed=seed,
            sm_count=device.sm_count,
            peak_flop_per_clk_sm=peak_flop_per_clk_sm,
        )

    lines = result_lines(outcomes, samples, numbers)
    write_all(
        directory,
        {
            DEVICE_FILE: (json.dumps(summary, indent=2) + "\n").encode(),
            RESULTS_FILE: csv_bytes(RESULT_COLUMNS, lines),
            SAMPLES_FILE: gzip.compress(
                csv_bytes(SAMPLE_COLUMNS, (_sample_line(*pair) for pair in samples)), mtime=0
            ),
        },
        _place_of_previous(directory, summary),
    )


def _place_of_previous(directory: Path, summary: dict[str, Any]) -> Path | None:
    """Where an earlier campaign's export goes, as it is somebody's measurement; else `None`."""
    try:
        earlier = read_device_file(directory / DEVICE_FILE)[0].get("runs", [])
    except (OSError, ValueError):
        return None
    now = summary["runs"]
    if not earlier or (now and now[0]["started_at"] == earlier[0]["started_at"]):
        return None
    return directory / "previous" / str(earlier[0]["started_at"]).replace(":", "")


def write_static(rows: Sequence[RowOutcome], directory: Path | str) -> None:
    """Write results.csv of what compiling alone told: same columns, no timing, any arches.

    Raises EnvironmentProblem if the folder holds measured results or can't be written.
    """
    directory = Path(directory)
    if (directory / DEVICE_FILE).exists():
        raise EnvironmentProblem(
            f"'{directory}' holds measured results; give static records a folder of their own"
        )
    lines = [_result_line(row, "", row.outcome, row.reason, None) for row in _sorted(rows)]
    write_all(directory, {RESULTS_FILE: csv_bytes(RESULT_COLUMNS, lines)})


def result_lines(
    outcomes: Iterable[RowOutcome],
    samples: Iterable[tuple[Identity, Sample]],
    numbers: Callable[[RowOutcome, list[Sample], list[Sample]], Derived | None],
) -> list[list[Value]]:
    """One line per configuration, problem and regime; without samples one, of regime ''."""
    outcomes = _sorted(outcomes)
    by_key: dict[Key, list[Sample]] = {}
    for identity, sample in samples:
        by_key.setdefault((identity_key(identity), sample.regime), []).append(sample)
    controls = {
        _Work.of(row.identity): identity_key(row.identity)
        for row in outcomes
        if row.outcome in VERIFIED and is_control_of(row.identity, row.identity)
    }
    lines = []
    for row in outcomes:
        own_key = identity_key(row.identity)
        regimes = [regime for regime in ("burst", "sustained") if (own_key, regime) in by_key]
        if row.outcome not in VERIFIED:
            lines.append(_result_line(row, "", row.outcome, row.reason, None))
            continue
        for regime in regimes or [""]:
            failure = _regime_failure(row.stop_reason, regime)
            if failure:
                lines.append(_result_line(row, regime, *failure, None))
                continue
            own = by_key.get((own_key, regime), [])
            control = by_key.get((controls.get(_Work.of(row.identity), ""), regime), [])
            derived = numbers(row, own, control)
            outcome: Outcome = "ok" if derived else "no_valid_samples"
            kept_reason = row.outcome == outcome and row.reason
            reason = kept_reason or ("" if derived else why_none_valid(own))
            lines.append(_result_line(row, regime, outcome, reason, derived))
    return lines


def _regime_failure(stop_reason: str, regime: str) -> tuple[Outcome, str] | None:
    """How one regime of an otherwise measured row failed: (outcome, reason)."""
    found = re.search(rf"(?:^|; ){regime}: {FAILED} (\w+): (.*)", stop_reason)
    return (cast("Outcome", found[1]), found[2]) if found and regime else None


def _sorted(rows: Iterable[RowOutcome]) -> list[RowOutcome]:
    """An order that does not depend on that of measuring."""

    def order(row: RowOutcome) -> tuple[object, ...]:
        identity, problem = row.identity, row.identity.problem
        return (
            identity.arch,
            problem.shape,
            problem.name,
            identity.config.family,
            identity.name,
            identity.distribution,
            identity.seed,
            identity.condition,
        )

    return sorted(rows, key=order)


def _result_line(
    row: RowOutcome, regime: str, outcome: Outcome, reason: str, derived: Derived | None
) -> list[Value]:
    values: dict[str, Value] = {
        **identity_values(row.identity),
        "outcome": outcome,
        "reason": reason,
        "regime": regime,
        "max_abs_error": row.max_abs_error,
        "max_rel_error": row.max_rel_error,
        "driver_ctas_per_sm": row.driver_ctas_per_sm,
        "stop_reason": row.stop_reason,
    }
    for part in (row.resources, row.occupancy):
        facts = asdict(part) if part else {}
        values |= {column: facts[column] for column in STATIC_COLUMNS if column in facts}
    values |= asdict(derived) if derived else {}
    if row.identity.condition in (SERIAL, INTERLEAVED):
        values["launch_bound"] = None  # host time covers two kernels there
    return [values.get(column) for column in RESULT_COLUMNS]


def _rounded(sample: Sample) -> Sample:
    fields = ("time_ms", "host_ms", "sm_clock_mhz", "nvml_clock_mhz", "power_w", "temperature_c")
    known = [field for field in fields if getattr(sample, field) is not None]
    changes: dict[str, Any] = {
        field: float(csv_text(field, float(getattr(sample, field)))) for field in known
    }
    return replace(sample, **changes)


def _sample_line(identity: Identity, sample: Sample) -> list[Value]:
    own = (identity.name, identity.arch, identity.distribution, identity.seed)
    return [*own, *astuple(sample), identity.condition]


def _drifts(samples: Iterable[tuple[Identity, Sample]]) -> list[dict[str, object]]:
    """Relative change and spread of every control; a warning where the one exceeds the other."""
    return [
        {
            "problem": identity.problem.name,
            "distribution": identity.distribution,
            "condition": identity.condition,
            "regime": regime,
            "change": round(found.change, 6),
            "spread": round(found.spread, 6),
            "warning": found.excessive,
        }
        for (identity, regime), found in control_drifts(samples).items()
    ]


def _summary(
    store: ResultsStore, outcomes: Sequence[RowOutcome], planned: int
) -> dict[str, object]:
    used = {row.build_key for row in outcomes}
    builds = Counter(
        (build.arch, build.toolchain, build.flags, build.cutlass_version)
        for build in store.builds()
        if build.key in used
    )
    fields = ("arch", "toolchain", "flags", "cutlass_version", "kernels")
    return {
        "schema_version": SCHEMA_VERSION,
        "complete": len(outcomes) >= planned
        and all(is_whole(row.stop_reason) for row in outcomes if row.outcome == "ok"),
        "planned": planned,
        "recorded": len(outcomes),
        "device": asdict(store.device()),
        "ceilings": [
            {
                "name": ceiling.name,
                "value": ceiling.value,
                "unit": ceiling.unit,
                "flop_per_clk_sm": ceiling.flop_per_clk_sm,
                "sm_clock_mhz": ceiling.sm_clock_mhz,
                "times_ms": [sample.time_ms for sample in ceiling.samples],
                "clocks_mhz": [sample.sm_clock_mhz for sample in ceiling.samples],
            }
            for ceiling in store.ceilings()
        ],
        "builds": [
            dict(zip(fields, (*kind, count), strict=True)) for kind, count in builds.items()
        ],
        "runs": [
            {
                "started_at": datetime.fromtimestamp(run.started_at, UTC).isoformat("T", "seconds"),
                "arguments": list(run.arguments),
                "seed": run.seed,
                "rows": run.rows,
                "driver_version": run.device.driver_version,
                "study_version": run.device.study_version,
                "git_commit": run.device.git_commit,
            }
            for run in store.runs()
        ],
    }


def refuse_foreign_folder(directory: Path, device: DeviceRecord) -> None:
    """Raise EnvironmentProblem where the folder holds another device's records, or static ones."""
    try:
        _, stored = read_device_file(directory / DEVICE_FILE)
    except FileNotFoundError:
        if (directory / RESULTS_FILE).exists():
            raise EnvironmentProblem(
                f"'{directory}' holds static records; give measured results another folder"
            ) from None
        return
    except (OSError, ValueError) as error:
        raise EnvironmentProblem(
            f"'{directory / DEVICE_FILE}' can't be read as a device's record, so the folder is "
            "left as it is; give another folder or move it away"
        ) from error
    if not same_device(stored, device):
        raise EnvironmentProblem(
            f"'{directory}' holds results of {device_text(stored)}, not of "
            f"{device_text(device)}; give another folder"
        )
