"""The file device.json of a published folder, read and checked: what others rely on is there."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

from cutlass_study.records import DeviceRecord
from cutlass_study.schema import SCHEMA_VERSION

# What each entry of a list must have, with its types; more is welcome, and a list may be missing.
_ENTRIES: dict[str, dict[str, tuple[type, ...]]] = {
    "ceilings": {
        "name": (str,),
        "value": (float,),
        "unit": (str,),
        "flop_per_clk_sm": (float, NoneType),
        "sm_clock_mhz": (float, NoneType),
    },
    "builds": {
        "arch": (str,),
        "toolchain": (str,),
        "flags": (str,),
        "cutlass_version": (str,),
        "kernels": (int,),
    },
    "runs": {"started_at": (str,), "arguments": (list,)},
    "control_drift": {
        "problem": (str,),
        "regime": (str,),
        "change": (float,),
        "warning": (bool,),
    },
}
_DEVICE: dict[str, tuple[type, ...]] = {
    name: get_args(hint) or (hint,) for name, hint in get_type_hints(DeviceRecord).items()
}
_ABOVE_ZERO = ("sm_count", "memory_bytes", "l2_bytes", "smem_per_sm", "registers_per_sm")


def read_device_file(path: Path) -> tuple[dict[str, Any], DeviceRecord]:
    """The whole content, and the device in it.

    Raises OSError, or ValueError whose text goes on after the file's name.
    """
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # not UTF-8, not JSON, or a thousand brackets
        raise ValueError(f"is no device record ({type(error).__name__}: {error})") from error
    if not isinstance(summary, dict):
        raise ValueError("is no device record (a JSON object is wanted)")
    version = summary.get("schema_version")
    if version != SCHEMA_VERSION:
        raise ValueError(f"has schema version {version}, this toolkit reads {SCHEMA_VERSION}")
    _check(summary.get("device"), _DEVICE, "device")
    for name in _ABOVE_ZERO:
        if summary["device"][name] <= 0:
            raise ValueError(f"is no device record (device: {name} is not above 0)")
    for name, kinds in _ENTRIES.items():
        entries = summary.get(name, [])
        if not isinstance(entries, list):
            raise ValueError(f"is no device record ({name}: a list is wanted)")
        for entry in entries:
            _check(entry, kinds, name)
    for entry in summary.get("ceilings", []):
        if entry["value"] <= 0:
            raise ValueError(f"is no device record (ceilings: {entry['name']} is not above 0)")
    for run in summary.get("runs", []):
        _check_run(run)
    if not isinstance(summary.get("experiment", ""), str):
        raise ValueError("is no device record (experiment: a text is wanted)")
    try:
        return summary, DeviceRecord(**summary["device"])
    except TypeError as error:
        raise ValueError(f"is no device record ({error})") from error


def _check(entry: Any, kinds: Mapping[str, tuple[type, ...]], where: str) -> None:
    if not isinstance(entry, dict):
        raise ValueError(f"is no device record ({where}: a JSON object is wanted)")
    for name, allowed in kinds.items():
        if name not in entry:
            raise ValueError(f"is no device record ({where}: {name} is missing)")
        if not any(_fits(entry[name], kind) for kind in allowed):
            raise ValueError(f"is no device record ({where}: {name} is {entry[name]!r})")


def _fits(value: Any, kind: type) -> bool:
    if kind is float:
        return _fits(value, int) or (isinstance(value, float) and math.isfinite(value))
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _check_run(run: Mapping[str, Any]) -> None:
    if not all(isinstance(word, str) for word in run["arguments"]):
        raise ValueError("is no device record (runs: arguments are not all texts)")
    try:
        started_at = datetime.fromisoformat(run["started_at"])
    except ValueError as error:
        raise ValueError(f"is no device record (runs: started_at: {error})") from error
    if started_at.tzinfo is None:
        raise ValueError("is no device record (runs: started_at has no time zone)")
