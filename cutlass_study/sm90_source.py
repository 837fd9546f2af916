"""C++ source of one Hopper kernel: its parameters between the two halves of the template.

The template is ``instantiations/sm90_prelude.hpp`` and ``sm90_gemm.hpp``. What fits and what does
not is the business of ``sm90_resources``; here only values that the template has no words for are
refused.
"""

from __future__ import annotations

Shape = tuple[int, int, int]

_ELEMENTS = {"void": "void", "float": "float", "half": "cutlass::half_t"}
_OUTPUT_ELEMENTS = {"f32": "float", "f16": "cutlass::half_t"}
_LAYOUTS_B = {"tn": "cutlass::layout::ColumnMajor", "nn": "cutlass::layout::RowMajor"}
_SCHEDULES = ("cooperative", "pingpong", "streamk")
_EPILOGUES = ("tma", "nosmem")


def _static_shape(shape: Shape) -> str:
    return "cute::Shape<" + ", ".join(f"cute::Int<{extent}>" for extent in shape) + ">"


def _checked(value: str, allowed: tuple[str, ...], what: str) -> str:
    if value not in allowed:
        raise ValueError(f"{what} {value!r} is not one of {', '.join(allowed)}")
    return value


def sm90_source(
    *,
    tile: Shape,
    cluster: Shape,
    schedule: str,
    stages: int | None,
    source_c: str,
    epilogue: str,
    epilogue_width: int,
    alignment: int,
    layout: str,
    output: str,
) -> str:
    """Return the translation unit of one kernel.

    ``tile`` and ``cluster`` are (M, N, K), in elements and CTAs. ``stages`` None lets CUTLASS take
    as many as fit beside the epilogue. ``source_c`` is ``void``, ``float`` or ``half``;
    ``epilogue_width`` and ``alignment`` count elements of C/D and of A/B; ``layout`` is ``tn`` (B
    column-major) or ``nn``. Raises ``ValueError`` for a word that is not in these sets.
    """
    element_c = _ELEMENTS[_checked(source_c, tuple(_ELEMENTS), "source C")]
    element_d = _OUTPUT_ELEMENTS[_checked(output, tuple(_OUTPUT_ELEMENTS), "output")]
    layout_b = _LAYOUTS_B[_checked(layout, tuple(_LAYOUTS_B), "layout")]
    return f"""\
#include "sm90_prelude.hpp"

namespace cutlass_study::sm90 {{
using TileShape = {_static_shape(tile)};
using ClusterShape = {_static_shape(cluster)};
constexpr auto schedule = Schedule::{_checked(schedule, _SCHEDULES, "schedule")};
constexpr int requested_stages = {stages or 0};
using ElementC = {element_c};
using ElementD = {element_d};
constexpr auto epilogue = Epilogue::{_checked(epilogue, _EPILOGUES, "epilogue")};
constexpr int epilogue_alignment = {epilogue_width};
constexpr int operand_alignment = {alignment};
using LayoutB = {layout_b};
}}  // namespace cutlass_study::sm90

#include "sm90_gemm.hpp"
"""
