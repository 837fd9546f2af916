"""What is computed (`GemmProblem`) and by which kernel (`GemmConfig`): validated, frozen, named.

A value that no kernel could ever have (a tile of two numbers, S=1, an epilogue width of 3) raises
`UsageError`. A value that only clashes with a device or a problem is the business of `rules`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Shape = tuple[int, int, int]
Family = Literal["sm80", "sm90", "cublas", "wmma", "simt", "wgmma"]
FAMILIES: tuple[Family, ...] = ("sm80", "sm90", "cublas", "wmma", "simt", "wgmma")
HAND_WRITTEN: tuple[Family, ...] = ("wmma", "simt", "wgmma")  # their C++ is in wmma_custom/
SIMT_VARIANTS = ("naive", "shared", "register_2d", "vectorized", "warp_tiling")
WGMMA_VARIANTS = (
    "serial_n32", "serial_n64", "serial_n128", "serial_n256", "pipelined_n128", "pipelined_n256",
)  # fmt: skip
ELEMENT_BYTES = {"f16": 2, "f32": 4}
MAX_EXTENT = 1 << 20  # M, N, K; keeps every product of two inside 64-bit indices
_LONGEST_SHOWN = 60  # signs
MAX_LEADING = 2 * MAX_EXTENT  # of lda: room for padding at every K


class UsageError(ValueError):
    """A value given by the user is wrong; the message is one sentence fit to print."""


def format_shape(shape: Shape) -> str:
    """`(256, 128, 32)` → `256x128x32`."""
    return "x".join(str(extent) for extent in shape)


def shown(text: str) -> str:
    """A value as a message shows it: on one line, and cut where it goes on for ever."""
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 1]}…"


def whole_number(text: str) -> int | None:
    """The number that `text` is, or `None` if it is none of at most 18 plain digits."""
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) <= 18 else None


def parse_shape(text: str, what: str) -> Shape:
    """Read `MxNxK`; raise `UsageError` naming `what`, the value and the form wanted."""
    numbers = [whole_number(part) for part in text.strip().lower().replace("×", "x").split("x")]
    extents = [number for number in numbers if number is not None and number > 0]
    if len(numbers) != 3 or len(extents) != 3:
        raise UsageError(
            f"{what} '{shown(text)}' must be three positive whole numbers MxNxK, such as 256x128x32"
        )
    m, n, k = extents
    return m, n, k


def _check_choice(value: object, allowed: tuple[object, ...], what: str) -> None:
    if value not in allowed:
        options = ", ".join(str(option) for option in allowed)
        raise UsageError(f"{what} '{value}' is not known; use one of: {options}")


@dataclass(frozen=True, slots=True)
class GemmProblem:
    """D[m,n] = alpha·A[m,k]·B[k,n] + beta·C, FP16 inputs, FP32 accumulate, A and D row-major.

    `layout` `tn` has B column-major (leading dimension k), `nn` row-major (leading dimension n).
    `lda`, if given, pads A's rows beyond k elements; the padding holds zeros.
    """

    m: int
    n: int
    k: int
    layout: Literal["tn", "nn"] = "tn"
    output: Literal["f32", "f16"] = "f32"
    alpha: float = 1.0
    beta: float = 0.0
    lda: int | None = None

    def __post_init__(self) -> None:
        for letter, extent in (("M", self.m), ("N", self.n), ("K", self.k)):
            if not 1 <= extent <= MAX_EXTENT:
                raise UsageError(
                    f"{letter}={extent} is outside 1..{MAX_EXTENT}; give a problem with "
                    f"{letter} of at least 1, such as 8192x8192x8192"
                )
        _check_choice(self.layout, ("tn", "nn"), "layout")
        _check_choice(self.output, ("f32", "f16"), "output type")
        for name, scalar in (("alpha", self.alpha), ("beta", self.beta)):
            if not math.isfinite(scalar):
                raise UsageError(f"{name}={scalar} must be a finite number, such as 0 or 1")
        if self.lda is not None and self.lda < self.k:
            raise UsageError(f"lda={self.lda} is less than K={self.k}; give at least K")
        if self.lda is not None and self.lda > MAX_LEADING:
            raise UsageError(f"lda={self.lda} is above {MAX_LEADING}; give K or a little more")

    @property
    def shape(self) -> Shape:
        return self.m, self.n, self.k

    @property
    def leading_dimensions(self) -> tuple[int, int, int]:
        """(lda, ldb, ldd) in elements."""
        return self.lda or self.k, self.k if self.layout == "tn" else self.n, self.n

    @property
    def flop(self) -> int:
        """2·m·n·k: one multiply and one add per product, as every cited document counts."""
        return 2 * self.m * self.n * self.k

    @property
    def output_bytes(self) -> int:
        """Bytes per element of C and D."""
        return ELEMENT_BYTES[self.output]

    @property
    def name(self) -> str:
        parts = [format_shape(self.shape), self.layout, self.output]
        if self.alpha != 1:
            parts.append(f"alpha{self.alpha:g}")
        if self.beta != 0:
            parts.append(f"beta{self.beta:g}")
        if self.lda is not None:
            parts.append(f"lda{self.lda}")
        return "_".join(parts)


@dataclass(frozen=True, slots=True)
class GemmConfig:
    """One kernel of one family. Fields a family does not have stay `None`.

    `stages` None means not applicable for cuBLAS and "auto" for `sm90` (as many as fit).
    `warp_shape` is of one warp's part of the tile, of one warpgroup's for `wgmma`.
    `alignment` and `epilogue_width` count elements per vector access of A/B and of C/D.
    """

    family: Family
    threadblock_shape: Shape | None = None
    warp_shape: Shape | None = None
    cluster_shape: Shape | None = None
    stages: int | None = None
    epilogue_width: int | None = None
    alignment: int | None = None
    swizzle: int | None = None
    split_k: int | None = None
    schedule: str | None = None
    epilogue: str | None = None
    source_c: str | None = None
    raster: str | None = None
    variant: str | None = None

    def __post_init__(self) -> None:
        _check_choice(self.family, FAMILIES, "family")
        _CHECKS[self.family](self)

    @property
    def name(self) -> str:
        """Every field the family sweeps, so that two configurations never share a name."""
        return "_".join([self.family, *_name_parts(self)])

    @property
    def stages_text(self) -> str:
        """`3`, `auto` (sm90), or empty where a family has no stages."""
        if self.stages is not None:
            return str(self.stages)
        return "auto" if self.family == "sm90" else ""


def _name_parts(config: GemmConfig) -> list[str]:
    if config.family == "cublas":
        return [str(config.variant)]
    assert config.threadblock_shape
    tile = format_shape(config.threadblock_shape)
    if config.family in HAND_WRITTEN:
        warp = [f"w{format_shape(config.warp_shape)}"] if config.warp_shape else []
        stages = [f"s{config.stages}"] if config.stages else []
        epilogue = [config.epilogue] if config.epilogue else []
        return [str(config.variant), tile, *warp, *stages, *epilogue]
    if config.family == "sm80":
        assert config.warp_shape
        return [
            tile,
            f"w{format_shape(config.warp_shape)}",
            f"s{config.stages}",
            f"e{config.epilogue_width}",
            f"a{config.alignment}",
            f"z{config.swizzle}",
            f"k{config.split_k}",
        ]
    assert config.cluster_shape
    return [
        tile,
        f"c{format_shape(config.cluster_shape)}",
        f"s{config.stages_text}",
        str(config.schedule),
        f"{config.epilogue}{config.epilogue_width}",
        f"c{config.source_c}",
        f"a{config.alignment}",
        f"z{config.swizzle}",
        f"r{config.raster}",
    ]


def _check_stages(stages: int | None) -> None:
    if stages is None or not 2 <= stages <= 16:
        raise UsageError(
            f"stages S={stages} is outside the study; a pipeline needs S of 2 to 16, "
            "the study uses 2, 3 and 4"
        )


def _check_power(value: int | None, allowed: tuple[int, ...], what: str) -> None:
    if value not in allowed:
        options = ", ".join(str(option) for option in allowed)
        raise UsageError(f"{what} {value} is not possible; use one of: {options}")


def _check_tile(config: GemmConfig) -> None:
    for what, shape in (
        ("threadblock shape", config.threadblock_shape),
        ("warp shape", config.warp_shape),
        ("cluster shape", config.cluster_shape),
    ):
        if shape is not None and (len(shape) != 3 or min(shape) < 1 or max(shape) > 1024):
            raise UsageError(
                f"{what} '{format_shape(shape)}' must be three whole numbers of 1 to 1024"
            )


def _check_sm80(config: GemmConfig) -> None:
    _check_tile(config)
    if config.threadblock_shape is None or config.warp_shape is None:
        raise UsageError("an sm80 configuration needs a threadblock shape and a warp shape")
    _check_stages(config.stages)
    _check_power(config.epilogue_width, (1, 2, 4, 8, 16), "epilogue width")
    _check_power(config.alignment, (1, 2, 4, 8), "alignment")
    _check_power(config.swizzle, (1, 2, 4, 8), "threadblock swizzle")
    if config.split_k is None or not 1 <= config.split_k <= 64:
        raise UsageError(f"split-K {config.split_k} is outside 1..64; 1 means no split")


def _check_sm90(config: GemmConfig) -> None:
    _check_tile(config)
    if config.threadblock_shape is None or config.cluster_shape is None:
        raise UsageError("an sm90 configuration needs a tile and a cluster shape")
    if config.stages is not None:
        _check_stages(config.stages)
    _check_choice(config.schedule, ("cooperative", "pingpong", "streamk"), "schedule")
    _check_choice(config.epilogue, ("tma", "nosmem"), "epilogue")
    _check_choice(config.source_c, ("void", "float", "half"), "source C")
    _check_choice(config.raster, ("heuristic", "m", "n"), "raster order")
    _check_power(config.epilogue_width, (1, 2, 4, 8, 16), "epilogue width")
    _check_power(config.alignment, (1, 2, 4, 8), "alignment")
    _check_power(config.swizzle, (1, 2, 4, 8), "swizzle size")


def _check_cublas(config: GemmConfig) -> None:
    _check_choice(config.variant, ("default", "lt_best"), "cuBLAS algorithm")


def _check_wmma(config: GemmConfig) -> None:
    _check_tile(config)
    _check_choice(config.variant, ("single", "multistage"), "WMMA variant")
    if config.threadblock_shape is None or config.warp_shape is None:
        raise UsageError("a wmma configuration needs a threadblock shape and a warp shape")
    if config.variant == "single" and config.stages != 1:
        raise UsageError(f"the single-buffered WMMA kernel has S=1, not S={config.stages}")
    if config.variant == "multistage":
        _check_stages(config.stages)


def _check_simt(config: GemmConfig) -> None:
    _check_tile(config)
    _check_choice(config.variant, SIMT_VARIANTS, "SIMT variant")
    if config.threadblock_shape is None:
        raise UsageError("a simt configuration needs a threadblock shape")
    if config.stages != 1:
        raise UsageError(f"a SIMT kernel has no pipeline: S=1, not S={config.stages}")


def _check_wgmma(config: GemmConfig) -> None:
    _check_tile(config)
    _check_choice(config.variant, WGMMA_VARIANTS, "WGMMA variant")
    if config.threadblock_shape is None or config.warp_shape is None:
        raise UsageError("a wgmma configuration needs a threadblock shape and a warp shape")
    _check_choice(config.epilogue, ("direct", "staged"), "epilogue")
    if str(config.variant).startswith("pipelined"):
        _check_stages(config.stages)
    elif config.stages != 1:
        raise UsageError(f"a serial WGMMA kernel has S=1, not S={config.stages}")


_CHECKS = {
    "sm80": _check_sm80,
    "sm90": _check_sm90,
    "cublas": _check_cublas,
    "wmma": _check_wmma,
    "simt": _check_simt,
    "wgmma": _check_wgmma,
}


def full_name(config: GemmConfig, problem: GemmProblem) -> str:
    """The identity of a row: the kernel's name and the problem's."""
    return f"{config.name}__{problem.name}"
