"""What is wrong with a command line, in one sentence with the value, the limit and the remedy."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from cutlass_study.config import UsageError, shown

_NUMBERS = {int: "a whole number; give one such as 4", float: "a number; give one such as 0.5"}
HELP = "--help lists what there is"


def kinds_of(function: Callable[..., Any]) -> dict[str, type]:
    """What each parameter of a script's `main` takes, without `None`: name → type."""
    kinds = {}
    for name, hint in get_type_hints(function).items():
        parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        kinds[name] = next((part for part in parts if part is not NoneType), NoneType)
    return kinds


def refuse_empty_paths(command: Any, kinds: Mapping[str, type], words: Sequence[str]) -> None:
    """Raise `UsageError` for a path given as "", which would silently be the current folder."""
    for parameter in command.params:
        value = _given(parameter.opts, words)
        if kinds.get(parameter.name) is Path and value is not None and not value.strip():
            raise UsageError(f"{parameter.opts[0]} is empty; give a path, or leave it out")


def sentence(error: Any, command: Any, kinds: Mapping[str, type], words: Sequence[str]) -> str:
    """The sentence for what typer raised, with `words` the arguments of the command line."""
    if hasattr(error, "possibilities"):
        close = " or ".join(error.possibilities or ())
        remedy = f"did you mean {close}?" if close else HELP
        return f"option '{shown(error.option_name)}' is not known; {remedy}"
    if hasattr(error, "option_name"):
        return _misused(error.option_name, command)
    if getattr(error, "param", None) is not None:
        return _refused(error, kinds, words)
    strays = re.search(r"unexpected extra argument\S* \((.*)\)", error.message, re.DOTALL)
    if strays:
        return f"'{shown(strays[1])}' belongs to no option; {HELP}"
    return f"{shown(error.message.rstrip('.'))}; {HELP}"


def _misused(name: str, command: Any) -> str:
    is_flag = any(name in one.opts and one.is_flag for one in command.params)
    if is_flag:
        return f"{name} takes no value; give it alone, or leave it out"
    return f"{name} needs a value; give one, or leave it out"


def _refused(error: Any, kinds: Mapping[str, type], words: Sequence[str]) -> str:
    parameter, kind = error.param, kinds.get(error.param.name)
    value = _given(parameter.opts, words)
    label = parameter.opts[0] if parameter.opts[0].startswith("-") else parameter.name.upper()
    if type(error).__name__ == "MissingParameter":
        return f"{label} is missing; give {parameter.help or 'it'}"
    given = label if value is None else f"{label} '{shown(value)}'"
    if kind in _NUMBERS:
        return f"{given} is not {_NUMBERS[kind]}"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return f"{given} is not known; use one of: {', '.join(str(one.value) for one in kind)}"
    return f"{given} can't be used ({shown(error.message.rstrip('.'))}); {HELP}"


def _given(names: Sequence[str], words: Sequence[str]) -> str | None:
    """What the command line gives an option: its last value, as that is the one that counts."""
    value = None
    for place, word in enumerate(words):
        name, equals, rest = word.partition("=")
        if name in names:
            value = rest if equals else "".join(words[place + 1 : place + 2])
    return value
