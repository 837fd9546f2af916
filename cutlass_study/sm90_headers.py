"""In-memory patches of CUTLASS headers with which NVRTC compiles Hopper kernels without host code.

Nothing of CUTLASS is copied into this project: each overlay is the installed header with a few
exact replacements, and NVRTC takes it in place of the file of the same name because headers given
to ``nvrtcCreateProgram`` win over the include path. A replacement that does not find its text
exactly once means a CUTLASS version that nobody has checked, and is an error.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path


class HeaderPatchError(RuntimeError):
    """The installed CUTLASS is not one that the patches were written for."""


@dataclass(frozen=True)
class HeaderPatch:
    """One exact replacement in one CUTLASS header, and why it is needed."""

    header: str
    old: str
    new: str
    reason: str

    def apply(self, text: str, cutlass_version: str) -> str:
        """Return ``text`` patched; raises ``HeaderPatchError`` unless ``old`` occurs once."""
        count = text.count(self.old)
        if count != 1:
            raise HeaderPatchError(
                f"CUTLASS {cutlass_version} can't be patched for NVRTC: {self.header} holds the "
                f"text to replace {count} times instead of once; use nvidia-cutlass==4.2.0.0"
            )
        return text.replace(self.old, self.new)


_RTC_ONLY_HOST = "#if !defined(__CUDACC_RTC__)"

_DIRECT_TUPLE_ELEMENTS = 8


def _tuple_element_specializations() -> str:
    """C++ for ``tuple_element`` of ``cute::tuple`` that takes one instantiation, not one a step."""
    lines = []
    for index in range(_DIRECT_TUPLE_ELEMENTS):
        names = [f"T{position}" for position in range(index + 1)]
        parameters = ", ".join(f"class {name}" for name in names)
        lines.append(
            f"template <{parameters}, class... Rest>\n"
            f"struct tuple_element<{index}, cute::tuple<{', '.join(names)}, Rest...>>\n"
            f"{{ using type = {names[-1]}; }};"
        )
    return "\n".join(lines)


_PATCHES = (
    HeaderPatch(
        header="cutlass/uint128.h",
        old=(
            "    CUTLASS_UNUSED(divisor);\n    exception();\n#endif\n    return quotient;\n  }\n\n"
            "  /// Divide 128b operation"
        ),
        new=(
            "    quotient = cutlass_study::divide_128_by_64(hilo_.hi, hilo_.lo, divisor);\n"
            "#endif\n    return quotient;\n  }\n\n"
            "  /// Divide 128b operation"
        ),
        reason="else stream-K's parameters run into a breakpoint instead of a division",
    ),
    HeaderPatch(
        header="cutlass/kernel_hardware_info.h",
        old=f"{_RTC_ONLY_HOST}\n  static inline int\n  query_device_multiprocessor_count(",
        new=(
            "#if defined(__CUDACC_RTC__)\n"
            "  static inline int query_device_multiprocessor_count(int = 0) { return 0; }\n"
            "#else\n"
            "  static inline int\n  query_device_multiprocessor_count("
        ),
        reason="to_underlying_arguments calls it; the device can't ask and needn't",
    ),
    HeaderPatch(
        header="cute/atom/copy_traits_sm90_tma.hpp",
        old=(
            "  #endif // (__CUDACC_VER_MAJOR__ >= 12) && !defined(__CUDACC_RTC__)\n"
            "  auto recast_ratio"
        ),
        new=(
            "  #else\n"
            "    cutlass_study::record_tensormap<TmaInternalType>(\n"
            "        tma_desc, tma_dim, gmem_address, gmem_prob_shape, gmem_prob_stride,\n"
            "        smem_box_shape, smem_box_stride,\n"
            "        static_cast<unsigned char>(get_tma_swizzle_bits(swizzle)));\n"
            "    static_assert(get_tma_swizzle_base(Swizzle<B,M,S>{}) ==\n"
            "                  TMA::SmemSwizzleBase::SWIZZLE_BASE_16B);\n"
            "  #endif\n"
            "  auto recast_ratio"
        ),
        reason="cuTensorMapEncodeTiled is host code; its arguments are recorded instead",
    ),
    HeaderPatch(
        header="cute/container/tuple.hpp",
        old=(
            "} // end namespace CUTE_STL_NAMESPACE\n\n#ifdef CUTE_STL_NAMESPACE_IS_CUDA_STD\n"
            "namespace std\n{\n"
        ),
        new=(
            f"{_tuple_element_specializations()}\n"
            "} // end namespace CUTE_STL_NAMESPACE\n\n#ifdef CUTE_STL_NAMESPACE_IS_CUDA_STD\n"
            "namespace std\n{\n"
        ),
        reason="cuda::std's recursive tuple_element costs a third of the compile time",
    ),
    HeaderPatch(
        header="cutlass/gemm/kernel/tile_scheduler_params.h",
        old=f"  {_RTC_ONLY_HOST}\n  static void\n  get_workspace_component_sizes(",
        new="  #if 1\n  static void\n  get_workspace_component_sizes(",
        reason="stream-K's workspace size is computed on the device",
    ),
    HeaderPatch(
        header="cutlass/gemm/kernel/tile_scheduler_params.h",
        old=(
            "    size_t barrier_workspace_size = 0;\n    size_t reduction_workspace_size = 0;\n\n"
            f"    {_RTC_ONLY_HOST}\n"
        ),
        new=(
            "    size_t barrier_workspace_size = 0;\n    size_t reduction_workspace_size = 0;\n\n"
            "    #if 1\n"
        ),
        reason="under NVRTC stream-K would report a workspace of 0 B",
    ),
    HeaderPatch(
        header="cutlass/epilogue/collective/collective_builder.hpp",
        old=(
            '#include "builders/sm90_builder.inl"\n'
            '#include "builders/sm100_builder.inl"  \n'
            '#include "builders/sm103_builder.inl"\n'
            '#include "builders/sm120_builder.inl"\n'
        ),
        new='#include "cutlass/epilogue/collective/builders/sm90_builder.inl"\n',
        # in full, because an overlay has no folder for a relative path to start from
        reason="other architectures' builders cost seconds",
    ),
)


def _version(include: Path) -> str:
    text = (include / "cutlass" / "version.h").read_text(encoding="utf-8")
    return ".".join(re.findall(r"#define CUTLASS_(?:MAJOR|MINOR|PATCH)\s+(\d+)", text))


@functools.cache
def header_overlays(cutlass_include: Path) -> tuple[tuple[str, str], ...]:
    """(name as ``#include`` has it, patched text) of the headers in ``cutlass_include``.

    Raises ``HeaderPatchError`` when that CUTLASS differs from the one patched for.
    """
    overlays: dict[str, str] = {}
    for patch in _PATCHES:
        path = cutlass_include / patch.header
        text = overlays.get(patch.header) or path.read_text(encoding="utf-8")
        overlays[patch.header] = patch.apply(text, _version(cutlass_include))
    return tuple(overlays.items())
