"""Values that the roofline script is given, as text: read, checked, refused in one sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from cutlass_study.config import MAX_EXTENT, Shape, UsageError, parse_shape
from cutlass_study.roofline import ElementTypes

# Bytes per element; Tensor Cores and FMA units accumulate in the wider type (PTX ISA, mma).
INPUT_BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}
OUTPUT_BYTES = {"fp64": 8, "fp32": 4, "int32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}
ACCUMULATORS = {"fp64": "fp64", "int8": "int32"}  # every other type accumulates in fp32
FIGURE_SUFFIXES = (".png", ".pdf")


def parse_extent(text: str, what: str, largest: int = MAX_EXTENT) -> int:
    """A whole number of 1 to `largest`; raises `UsageError` naming `what`."""
    plain = text.strip()
    if not (plain.isascii() and plain.isdigit() and len(plain) < 20 and 1 <= int(plain) <= largest):
        raise UsageError(f"{what} '{text}' must be a whole number of 1 to {largest}")
    return int(plain)


def parse_positive(text: str, what: str) -> float:
    """A number above 0 and of sensible size (1e-6 to 1e9); raises `UsageError` naming `what`."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 1e-6 <= value <= 1e9:
        raise UsageError(f"{what} '{text}' must be a number above 0 (1e-6 to 1e9)")
    return value


def parse_tiles(texts: Sequence[str]) -> tuple[Shape, ...]:
    """`32` (square in all three directions) or `128x64x32`, comma-separated; repeats once."""
    tiles = [_parse_tile(part) for text in texts for part in text.split(",")]
    return tuple(dict.fromkeys(tiles))


def _parse_tile(text: str) -> Shape:
    form = f"tile '{text}' must be one whole number such as 64, or MxNxK such as 128x64x32"
    plain = text.strip().lower().replace("×", "x")
    parts = plain.split("x")
    if len(parts) == 1 and plain.isascii() and plain.isdigit():
        parts = parts * 3
    try:
        shape = parse_shape("x".join(parts), "tile")
    except ValueError:
        raise UsageError(form) from None
    if max(shape) > MAX_EXTENT:
        raise UsageError(f"tile '{text}' is larger than {MAX_EXTENT}, the largest matrix")
    return shape


def element_types(dtype: str, output_dtype: str | None = None) -> tuple[ElementTypes, str]:
    """Bytes of the named types, and the output's name (default: what the sums are kept in)."""
    if dtype not in INPUT_BYTES:
        raise UsageError(f"dtype '{dtype}' is not known; use one of: {', '.join(INPUT_BYTES)}")
    accumulator = ACCUMULATORS.get(dtype, "fp32")
    output = output_dtype or accumulator
    if output not in OUTPUT_BYTES:
        raise UsageError(
            f"output dtype '{output}' is not known; use one of: {', '.join(OUTPUT_BYTES)}"
        )
    sizes = INPUT_BYTES[dtype], OUTPUT_BYTES[accumulator], OUTPUT_BYTES[output]
    return ElementTypes(*sizes), output


def check_figure_path(path: Path) -> None:
    """Raise `UsageError` unless `path` names a PNG or PDF file."""
    if path.suffix.lower() not in FIGURE_SUFFIXES:
        raise UsageError(f"figure file '{path}' must end in {' or '.join(FIGURE_SUFFIXES)}")
