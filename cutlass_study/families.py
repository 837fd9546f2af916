"""What differs between kernel families before anything is launched: legality, memory, source.

Everything else in the toolkit asks here and never branches on the family itself.
"""

from __future__ import annotations

from typing import Literal, cast

from cutlass_study import (
    alignment_rules,
    rules,
    simt_source,
    sm80_resources,
    sm80_source,
    sm90_resources,
    wgmma_source,
    wmma_source,
)
from cutlass_study.config import HAND_WRITTEN, GemmConfig, GemmProblem
from cutlass_study.gpus import GpuLimits
from cutlass_study.nvrtc import Source

FrontEnd = Literal["templates", "interface"]


def _sm90_reason(config: GemmConfig, problem: GemmProblem, limits: GpuLimits) -> str | None:
    if limits.arch != "sm_90a":
        return f"TMA and WGMMA kernels need sm_90a, not {limits.arch}"
    if problem.beta != 0 and config.source_c == "void":
        return f"beta={problem.beta:g} needs a source C, this kernel has none (void)"
    return (
        sm90_resources.infeasible_reason(
            sm90_resources.kernel_of(config, problem), limits.smem_per_block_optin
        )
        or alignment_rules.operand_alignment(config, problem, limits)
        or alignment_rules.k_alignment(config, problem, limits)
        or alignment_rules.output_alignment(config, problem, limits)
    )


def _wmma_reason(config: GemmConfig, problem: GemmProblem, limits: GpuLimits) -> str | None:
    assert config.threadblock_shape and config.warp_shape and config.stages
    if problem.output != "f32":
        return "the WMMA kernels write FP32 only"
    return (
        wmma_source.wmma_reason(
            variant=cast("wmma_source.Variant", config.variant),
            stages=config.stages,
            tile=config.threadblock_shape,
            warp=config.warp_shape,
        )
        or wmma_source.wmma_smem_reason(
            smem_bytes=smem_bytes(config, problem) or 0,
            smem_optin_bytes=limits.smem_per_block_optin,
        )
        or wmma_source.wmma_problem_reason(
            m=problem.m, n=problem.n, k=problem.k, tile=config.threadblock_shape
        )
    )


def infeasible_reason(config: GemmConfig, problem: GemmProblem, limits: GpuLimits) -> str | None:
    """Why this configuration can't run on such a GPU, or `None`. Needs no compiler and no GPU."""
    if config.family == "sm80":
        return rules.sm80_reason(config, problem, limits)
    if config.family == "sm90":
        return _sm90_reason(config, problem, limits)
    if config.family == "wmma":
        return _wmma_reason(config, problem, limits)
    if config.family == "simt":
        return simt_source.simt_reason(config, problem)
    if config.family == "wgmma":
        return wgmma_source.wgmma_reason(config, problem, limits)
    return None


def smem_bytes(config: GemmConfig, problem: GemmProblem) -> int | None:
    """Dynamic shared memory per CTA in bytes by formula; `None` for cuBLAS, whose is not known."""
    if config.family == "sm80":
        return sm80_resources.sm80_smem_bytes(config, problem)
    if config.family == "sm90":
        return sm90_resources.smem_bytes(sm90_resources.kernel_of(config, problem))
    if config.family == "wmma":
        assert config.threadblock_shape and config.warp_shape and config.stages
        return wmma_source.wmma_smem_bytes(
            stages=config.stages,
            tile=config.threadblock_shape,
            warp=config.warp_shape,
            layout=problem.layout,
        )
    if config.family == "simt":
        return simt_source.simt_smem_bytes(config, problem)
    if config.family == "wgmma":
        return wgmma_source.wgmma_smem_bytes(config)
    return None


def source(
    config: GemmConfig, problem: GemmProblem, front_end: FrontEnd = "templates"
) -> Source | None:
    """The translation unit of a kernel, or `None` for cuBLAS.

    `front_end` chooses who declares an `sm80` kernel: our templates or CUTLASS's Python interface.
    Raises `EnvironmentProblem` if headers are missing.
    """
    from cutlass_study.sources import source_folder
    from cutlass_study.toolchain import find_toolchain

    if config.family == "cublas":
        return None
    toolchain = find_toolchain()
    includes = (source_folder("instantiations"), *toolchain.include_paths)
    if config.family in HAND_WRITTEN:
        text = _hand_written_text(config, problem)
        return Source(text, (source_folder("wmma_custom"), *includes))
    if config.family == "sm80":
        emit = {
            "templates": sm80_source.template_source,
            "interface": sm80_source.interface_source,
        }[front_end]
        return Source(emit(config, problem), includes, use_header_cache=True)
    return _sm90_translation_unit(config, problem)


def _hand_written_text(config: GemmConfig, problem: GemmProblem) -> str:
    if config.family == "simt":
        return simt_source.simt_source(config, problem)
    if config.family == "wgmma":
        return wgmma_source.wgmma_source(config, problem)
    assert config.threadblock_shape and config.warp_shape and config.stages
    return wmma_source.wmma_source(
        variant=cast("wmma_source.Variant", config.variant),
        stages=config.stages,
        tile=config.threadblock_shape,
        warp=config.warp_shape,
        layout=problem.layout,
    )


def _sm90_translation_unit(config: GemmConfig, problem: GemmProblem) -> Source:
    from dataclasses import asdict, replace

    from cutlass_study.sm90_headers import header_overlays
    from cutlass_study.sm90_source import sm90_source
    from cutlass_study.sources import source_folder
    from cutlass_study.toolchain import find_toolchain

    toolchain = find_toolchain()
    # "auto" is resolved here, so that it has the source, and the cache entry, of its stage count.
    kernel = replace(
        sm90_resources.kernel_of(config, problem),
        stages=sm90_resources.pipeline_stages(config, problem),
    )
    return Source(
        sm90_source(**asdict(kernel)),
        (source_folder("instantiations"), *toolchain.include_paths),
        memory_headers=header_overlays(toolchain.cutlass_include),
    )
