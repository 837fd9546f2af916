"""What a test of a claim takes and gives, and the registry that claims name their tests from.

A test is a function of the records and of keyword parameters, which stand in `claims.toml`. It
gives a `Finding`: whether the claim holds, with the numbers that say so in words.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from cutlass_study.config import UsageError
from cutlass_study.records import DeviceRecord
from cutlass_study.study_data import StudyData

Selector = Mapping[str, Any]  # column of records.RESULT_COLUMNS (or `extent`) → wanted value


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """Everything a test may look at. `comparisons` is how many questions are asked together.

    `measured` holds the data folder and its experiments, all of one device, or nothing.
    """

    measured: tuple[StudyData, ...]
    static: StudyData | None
    comparisons: int = 1

    @property
    def device(self) -> DeviceRecord | None:
        return self.measured[0].device if self.measured else None

    @property
    def mma_rate(self) -> float | None:
        return self.measured[0].mma_rate if self.measured else None


@dataclass(frozen=True, slots=True)
class Finding:
    """What a test found. `holds` None: the records can't tell, and `reason` says why."""

    holds: bool | None
    text: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Span:
    """A closed interval: what a printed number may stand for, or what was measured."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2

    def meets(self, other: Span) -> bool:
        """Whether both have a value in common, within rounding of the arithmetic itself."""
        slack = 1e-12 * max(abs(self.low), abs(self.high), abs(other.low), abs(other.high))
        return self.low <= other.high + slack and other.low <= self.high + slack

    def widened(self, tolerance: float) -> Span:
        return Span(self.low - tolerance, self.high + tolerance)

    def over(self, other: Span) -> Span:
        """All quotients; the divisor must not reach 0."""
        if other.low <= 0 <= other.high:
            raise UsageError("a claim divides by a number that can be 0")
        corners = [a / b for a in (self.low, self.high) for b in (other.low, other.high)]
        return Span(min(corners), max(corners))


_PRINTED = re.compile(r"([+-]?)(\d[\d,]*)(?:\.(\d+))?( ?%)?")


def printed(text: str) -> Span:
    """What a number as printed stands for: half a unit of its last digit either way.

    `31.9` → 31.85 to 31.95, `1.3 %` → 0.0125 to 0.0135, `8,657,043,456` → itself ± 0.5. Raises
    UsageError for what is no such number.
    """
    match = _PRINTED.fullmatch(text.strip().replace("−", "-"))
    if match is None:
        raise UsageError(f"'{text}' is no number as a document prints it, such as 31.9 or 1.3 %")
    sign, whole, decimals, unit = match.groups()
    value = float(f"{sign}{whole.replace(',', '')}.{decimals or '0'}")
    half = 0.5 * 10.0 ** -len(decimals or "")
    scale = 0.01 if unit else 1.0
    return Span((value - half) * scale, (value + half) * scale)


def number(value: float, form: str = "g") -> str:
    """A number that can be negative, formatted by `form`, with the sign −."""
    return format(value, form).replace("-", "−")


def percent(share: float, digits: int = 1) -> str:
    """`52.7 %`: a share."""
    return f"{number(100 * share, f'z.{digits}f')} %"


def change(share: float, digits: int = 1) -> str:
    """`+4.0 %`: a change as a share, with its sign; `0.0 %` has none."""
    sign = "+" if round(100 * share, digits) > 0 else ""
    return f"{sign}{percent(share, digits)}"


def listed(parts: Sequence[object]) -> str:
    """`1, 2 and 3`."""
    texts = [str(part) for part in parts]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


Test = Callable[..., Finding]
_TESTS: dict[str, Test] = {}


def register(function: Test) -> Test:
    """Make a test known to `claims.toml` under its own name."""
    _TESTS[function.__name__] = function
    return function


def known_tests() -> Mapping[str, Test]:
    """Every test by name; importing the modules that define them is the caller's business."""
    return MappingProxyType(_TESTS)


_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "Selector": (dict,),
    "list[str]": (list,),
    "list[int]": (list,),
    "list[Selector]": (list,),
    "list[list[str]]": (list,),  # pairs of texts
}
_ITEMS: dict[str, type] = {
    "list[str]": str,
    "list[int]": int,
    "list[Selector]": dict,
}


def _is_pair(item: object) -> bool:
    return isinstance(item, list) and len(item) == 2 and all(isinstance(one, str) for one in item)


def _fits(value: object, kind: str) -> bool:
    if not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "bool"):
        return False
    if not isinstance(value, list):
        return True
    if kind == "list[list[str]]":
        return all(_is_pair(item) for item in value)
    return all(isinstance(item, _ITEMS[kind]) for item in value)


def check_parameters(test: Test, given: Mapping[str, Any], who: str) -> None:
    """Raise UsageError unless `given` fits the test's keyword parameters, by name and type."""
    accepted = {
        name: parameter
        for name, parameter in inspect.signature(test).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    unknown = sorted(given.keys() - accepted.keys())
    if unknown:
        raise UsageError(
            f"{who} gives its test {test.__name__} the unknown parameter '{unknown[0]}'; it takes "
            f"{', '.join(accepted)}"
        )
    for name, parameter in accepted.items():
        if name not in given:
            if parameter.default is inspect.Parameter.empty:
                raise UsageError(f"{who} lacks the parameter '{name}' of its test {test.__name__}")
            continue
        kind = str(parameter.annotation)
        value = given[name]
        if not _fits(value, kind):
            raise UsageError(f"{who} has {name} = {value!r}, which is no {kind}")
