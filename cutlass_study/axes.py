"""Axes of the space as given on the command line, read and refused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import product
from typing import Literal, cast

from cutlass_study.config import (
    FAMILIES,
    Family,
    GemmProblem,
    Shape,
    UsageError,
    parse_shape,
    shown,
    whole_number,
)
from cutlass_study.space import STUDY_EXTENT


def option_name(axis: str) -> str:
    """`split_k` → `--split-k`."""
    return f"--{axis.replace('_', '-')}"


def _numbers(values: Sequence[str], what: str, example: str) -> tuple[int, ...]:
    """Whole numbers from repeated or comma-separated option values."""
    out = []
    for text in split_values(values):
        number = whole_number(text)
        if number is None:
            raise UsageError(
                f"{what} '{shown(text)}' is not a whole number; give numbers {example}"
            )
        out.append(number)
    return tuple(out)


def split_values(values: Iterable[str]) -> list[str]:
    """The parts of repeated, comma-separated option values."""
    return [part.strip() for value in values for part in value.split(",") if part.strip()]


@dataclass(frozen=True, slots=True)
class Axes:
    """Axes as given on the command line: empty means not given. Texts may be comma-separated."""

    family: Sequence[str] = ()
    tile: Sequence[str] = ()
    warp: Sequence[str] = ()
    cluster: Sequence[str] = ()
    stages: Sequence[str] = ()
    epilogue_width: Sequence[str] = ()
    align: Sequence[str] = ()
    swizzle: Sequence[str] = ()
    split_k: Sequence[str] = ()
    schedule: Sequence[str] = ()
    epilogue: Sequence[str] = ()
    source_c: Sequence[str] = ()
    raster: Sequence[str] = ()
    variant: Sequence[str] = ()
    problem: Sequence[str] = ()
    layout: Sequence[str] = ()
    output: Sequence[str] = ()
    beta: float = 0.0
    lda: int | None = None

    def refuse_empty(self) -> None:
        """Raise `UsageError` for an axis given without a value, which would not narrow anything."""
        for name in (field.name for field in fields(self) if field.name not in ("beta", "lda")):
            if any(not split_values([text]) for text in getattr(self, name)):
                raise UsageError(f"{option_name(name)} is empty; give a value, or leave it out")

    def shapes(self, name: str) -> tuple[Shape, ...]:
        what = {"tile": "threadblock shape", "warp": "warp shape", "cluster": "cluster shape"}
        return tuple(
            parse_shape(t, what.get(name, name)) for t in split_values(getattr(self, name))
        )

    def numbers(self, name: str) -> tuple[int, ...]:
        what = "alignment" if name == "align" else name.replace("_", " ")
        return _numbers(getattr(self, name), what, "such as 1,2,4")

    def stage_counts(self) -> tuple[int | None, ...]:
        """Stages, where `auto` (sm90) is `None`."""
        texts = split_values(self.stages)
        plain = _numbers([t for t in texts if t != "auto"], "stages S", "such as 2,3,4 or auto")
        return (*plain, *((None,) if "auto" in texts else ()))

    def words(self, name: str) -> tuple[str, ...]:
        return tuple(split_values(getattr(self, name)))

    def values(self, name: str) -> tuple[object, ...]:
        """What is given for an axis, read; empty where it is not given."""
        if name in ("tile", "warp", "cluster", "problem"):
            return self.shapes(name)
        if name in ("epilogue_width", "align", "swizzle", "split_k"):
            return self.numbers(name)
        if name == "stages":
            return self.stage_counts()
        return self.families() if name == "family" else self.words(name)

    def families(self) -> tuple[Family, ...]:
        chosen = self.words("family")
        for name in chosen:
            if name not in FAMILIES:
                raise UsageError(f"family '{name}' is not known; use one of: {', '.join(FAMILIES)}")
        return cast("tuple[Family, ...]", chosen)

    def problems(self) -> tuple[GemmProblem, ...]:
        """The problems given, or the study's; raises `UsageError`."""
        shapes = self.shapes("problem") or ((STUDY_EXTENT,) * 3,)
        layouts, outputs = self.words("layout") or ("tn",), self.words("output") or ("f32",)
        return tuple(
            GemmProblem(
                *shape,
                cast("Literal['tn', 'nn']", layout),
                cast("Literal['f32', 'f16']", output),
                beta=self.beta,
                lda=self.lda,
            )
            for shape, layout, output in product(shapes, layouts, outputs)
        )
