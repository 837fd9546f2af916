"""The audit: every claim of the source documents, judged from records. Needs no GPU.

`claims.toml` says what each document claims, of which device, and which test decides; no verdict
stands there. `audit` runs the tests on a data folder and on the static records.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast, get_args

from cutlass_study import (  # noqa: F401 - importing a module registers its tests
    claim_arithmetic,
    claim_device,
    claim_lecture,
    claim_measured,
    claim_power,
    claim_static,
)
from cutlass_study.claim_rows import NO_DATA, REGIMES, check_selector
from cutlass_study.claim_tests import (
    Evidence,
    Finding,
    check_parameters,
    known_tests,
    listed,
)
from cutlass_study.config import UsageError
from cutlass_study.neighbours import EXPERIMENTS, LeftOut, usable_in
from cutlass_study.project import project_folder
from cutlass_study.records import DeviceRecord
from cutlass_study.study_data import RESULTS_FILE, DataError, StudyData, load

Kind = Literal["arithmetic", "static", "measured"]
Document = Literal["ada", "hopper", "lecture"]
Outcome = Literal["reproduced", "contradicted", "not_testable"]
DOCUMENTS: dict[str, str] = {
    "ada": "CUTLASS and WMMA on an RTX 4060 (primary document)",
    "hopper": "Worklog of GEMM kernels on an H100",
    "lecture": "Lecture note on roofline and tiling",
}
DEFAULT_RUN = "python scripts/sweep.py --preset paper --export DIR"
_ID = re.compile(r"(ada|hopper|lecture)\.[a-z0-9_]+")


@dataclass(frozen=True, slots=True)
class Claim:
    """One checkable sentence of a document, and how it is tested.

    `devices` are the GPUs it speaks of (none: any, or the test needs none), `stand_ins` others
    whose measurements may judge it as well. `run` is the command whose data it needs.
    """

    id: str
    document: Document
    section: str
    kind: Kind
    statement: str
    test: str
    devices: tuple[str, ...] = ()
    stand_ins: tuple[str, ...] = ()
    run: str = DEFAULT_RUN
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A claim, judged. `reason` says why a claim is not testable, else it is empty."""

    id: str
    document: str
    section: str
    kind: str
    devices: tuple[str, ...]
    statement: str
    verdict: Outcome
    evidence: str
    reason: str = ""


def default_claims() -> Path:
    """The study's own claims; raises `UsageError` outside a project."""
    project = project_folder()
    if project is None:
        raise UsageError("no paper/ folder here or above; give --claims the file paper/claims.toml")
    return project / "paper" / "claims.toml"


def load_claims(path: Path | str) -> tuple[Claim, ...]:
    """Read and check a claim file; raises UsageError, one sentence, for anything wrong in it."""
    path = Path(path)
    if not path.is_file():
        raise UsageError(f"claim file '{path}' can't be read: no such file; give another one")
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UsageError(f"claim file '{path}' can't be read: {why}") from error
    unknown = sorted(content.keys() - {"claim"})
    if unknown:
        raise UsageError(f"claim file '{path}' has the unknown key '{unknown[0]}' beside [[claim]]")
    tables = content.get("claim")
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise UsageError(f"claim file '{path}' has no [[claim]] tables")
    claims = tuple(_claim(table, number, path) for number, table in enumerate(tables, start=1))
    seen: set[str] = set()
    for claim in claims:
        if claim.id in seen:
            raise UsageError(f"claim file '{path}' has the id '{claim.id}' twice")
        seen.add(claim.id)
    return claims


_REQUIRED = ("id", "document", "section", "kind", "statement", "test")
_LISTS = ("devices", "stand_ins")


def _claim(table: dict[str, Any], number: int, path: Path) -> Claim:
    who = f"claim '{table['id']}'" if isinstance(table.get("id"), str) else f"claim {number}"
    who = f"{who} of '{path}'"
    for key in _REQUIRED:
        if key not in table:
            raise UsageError(f"{who} lacks '{key}'")
    for key, value in table.items():
        if key not in Claim.__dataclass_fields__:
            known = ", ".join(Claim.__dataclass_fields__)
            raise UsageError(f"{who} has the unknown key '{key}'; known are {known}")
        if key == "parameters":
            right = isinstance(value, dict)
        elif key in _LISTS:
            right = isinstance(value, list) and all(isinstance(one, str) for one in value)
        else:
            right = isinstance(value, str) and bool(value.strip())
        if not right:
            raise UsageError(f"{who} has {key} = {value!r}, which is of the wrong kind")
    if not _ID.fullmatch(table["id"]) or table["id"].partition(".")[0] != table["document"]:
        raise UsageError(f"{who} needs an id such as ada.peak, beginning with its document")
    if table["kind"] not in get_args(Kind):
        raise UsageError(f"{who} has kind '{table['kind']}', none of {', '.join(get_args(Kind))}")
    if table["test"] not in known_tests():
        raise UsageError(
            f"{who} names the unknown test '{table['test']}'; known are "
            f"{', '.join(sorted(known_tests()))}"
        )
    parameters = table.get("parameters", {})
    check_parameters(known_tests()[table["test"]], parameters, who)
    for value in parameters.values():
        for selector in value if isinstance(value, list) else [value]:
            if isinstance(selector, dict):
                check_selector(selector)
    lists = {key: tuple(table[key]) for key in _LISTS if key in table}
    return Claim(**{**table, **lists})


def names_device(wanted: str, name: str) -> bool:
    """Whether a device's name is that of the GPU a document speaks of.

    `RTX 4060` is neither the Ti nor the Laptop GPU; `H100` is any H100 (`NVIDIA H100 80GB HBM3`).
    """
    words = name.removeprefix("NVIDIA ").removeprefix("GeForce ")
    if wanted.startswith("RTX"):
        return words == wanted
    return wanted in words.split()


def audit(
    data: StudyData | None,
    static: StudyData | None = None,
    claims: Sequence[Claim] | None = None,
    experiments: Experiments | None = None,
) -> list[Verdict]:
    """Judge every claim from a data folder (with its experiments) and the static records.

    `claims` defaults to the study's own, `experiments` to those below the folder. Raises UsageError
    or DataError for records or claims that can't be used.
    """
    if claims is None:
        claims = load_claims(default_claims())
    if data is not None and data.device is None:
        data, static = None, static or data
    measured: tuple[StudyData, ...] = ()
    if data is not None:
        measured = (data, *(experiments or experiments_of(data)).folders)
    comparisons = len(REGIMES) * sum(claim.kind == "measured" for claim in claims)
    evidence = Evidence(measured, static, comparisons)
    return [_judge(claim, evidence) for claim in claims]


@dataclass(frozen=True, slots=True, eq=False)
class Experiments:
    """The published folders below `experiments/` of a data folder."""

    folders: tuple[StudyData, ...]
    left_out: LeftOut


def experiments_of(data: StudyData) -> Experiments:
    """Load the experiments of `data`; what can't be read, or is another device's, is left out."""
    device = data.device
    if device is None:
        return Experiments((), ())

    def check(experiment: StudyData, known: Sequence[StudyData]) -> None:
        for other in known:
            if experiment.experiment == other.experiment != "":
                raise DataError(
                    f"'{experiment.directory}' holds the experiment {experiment.experiment}, as "
                    f"'{other.directory}' does; remove one"
                )
        if experiment.device is None:
            raise DataError(
                f"'{experiment.directory}' holds nothing measured; give a folder that "
                "experiment.py wrote on a GPU"
            )
        if _kind(experiment.device) != _kind(device):
            raise DataError(
                f"'{experiment.directory}' is not of the same kind of device as "
                f"'{data.directory}' ({device.name}); keep one folder per device"
            )

    return Experiments(*usable_in(data.directory / EXPERIMENTS, "experiment", check))


def _kind(device: DeviceRecord) -> tuple[str, str, int]:
    """What experiments must share with the sweep; rows of two folders are never paired."""
    return device.name, device.arch, device.sm_count


def load_static(data: StudyData, folder: Path | None = None) -> StudyData | None:
    """Static records: of `folder`, else beside the data folder, else the project's; or None."""
    if folder is not None:
        static = load(folder)
        if static.device is not None:
            raise DataError(
                f"'{folder}' holds measurements of {static.device.name}, not what compiling alone "
                "tells; give the static half's folder with --static and this one with --data"
            )
        return static
    project = project_folder()
    places = [data.directory.parent / "static"]
    places += [project / "paper" / "data" / "static"] if project else []
    return next((load(place) for place in places if (place / RESULTS_FILE).is_file()), None)


def _judge(claim: Claim, evidence: Evidence) -> Verdict:
    finding = _tested(claim, evidence)
    if claim.kind == "measured":
        finding = _for_device(claim, finding, evidence)
    outcome: Outcome = "not_testable"
    if finding.holds is not None:
        outcome = "reproduced" if finding.holds else "contradicted"
    text = finding.text
    if outcome == "not_testable":
        text = ". ".join(part for part in (finding.reason, finding.text) if part)
    return Verdict(
        claim.id,
        claim.document,
        claim.section,
        claim.kind,
        claim.devices,
        claim.statement,
        outcome,
        text,
        finding.reason if outcome == "not_testable" else "",
    )


def _tested(claim: Claim, evidence: Evidence) -> Finding:
    try:
        return known_tests()[claim.test](evidence, **claim.parameters)
    except (ValueError, LookupError, ZeroDivisionError) as error:
        raise UsageError(
            f"claim '{claim.id}' can't be tested with its parameters: {error}"
        ) from error


def _for_device(claim: Claim, finding: Finding, evidence: Evidence) -> Finding:
    """What a measurement on the device at hand says of a claim about the devices it names."""
    if finding.reason == NO_DATA:
        finding = replace(finding, reason=f"{NO_DATA}: run {claim.run}")
    name = _device_name(evidence)
    own = not claim.devices or any(names_device(wanted, name) for wanted in claim.devices)
    stand_in = any(names_device(wanted, name) for wanted in claim.stand_ins)
    if name and own:
        return replace(finding, text=f"On {name}: {finding.text}") if finding.text else finding
    if name and stand_in:
        if not finding.text:
            return finding
        note = f"On {name}, taken as the same chip as the {listed(claim.devices)}"
        return replace(finding, text=f"{note}: {finding.text}")
    needs = f"needs an {listed(claim.devices)}" if claim.devices else finding.reason
    if not finding.text:
        extra = f"; {finding.reason}" if finding.reason and finding.reason != needs else ""
        return Finding(None, "", needs + extra)
    would = {
        True: "on this GPU it holds",
        False: "on this GPU it does not hold",
        None: "no verdict on this GPU",
    }
    here = f"On {name} the same test gives: {finding.text} ({would[finding.holds]})"
    return Finding(None, here, needs)


def _device_name(evidence: Evidence) -> str:
    return evidence.device.name if evidence.device else ""


def counts(verdicts: Sequence[Verdict]) -> dict[Outcome, int]:
    """How many claims got each verdict."""
    outcomes = cast("tuple[Outcome, ...]", get_args(Outcome))
    return {one: sum(verdict.verdict == one for verdict in verdicts) for one in outcomes}
