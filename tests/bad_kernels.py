"""Kernels with the interface of the hand-written ones that do what no kernel should."""

from __future__ import annotations

from cutlass_study.nvrtc import Source, compile_cubin
from cutlass_study.sources import source_folder

SOURCE = """
#include "abi.hpp"
extern "C" __device__ const cutlass_study::KernelInfo gemm_info = {{0, 32, 0, 0, {{1, 1, 1}}, 1}};
extern "C" __global__ void gemm(int m, int n, int k, float alpha, float beta, const void* a,
                                const void* b, const float* c, float* d, long long lda,
                                long long ldb, long long ldc, long long ldd) {{
  {body}
}}
"""
BODIES = {
    "writes nothing": "",
    # no allocation is ever there, so the fault is certain and the same on every system
    "writes out of bounds": "reinterpret_cast<float*>(16)[threadIdx.x] = 1.0f;",
    "never ends": "while (*static_cast<volatile float*>(d) != 12345.0f) {}",
}


def bad_kernel(what: str, arch: str) -> bytes:
    """A cubin that `HandWrittenKernel` takes."""
    text = SOURCE.format(body=BODIES[what])
    return compile_cubin(Source(text, (source_folder("instantiations"),)), arch).cubin
