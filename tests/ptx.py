"""PTX of sm80 kernels, from processes that keep a precompiled header each."""

from __future__ import annotations

import multiprocessing
import re
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from cutlass_study.nvrtc import Source, compile_options, prepare_header_cache

_header_cache = ""


def _start(scratch: str) -> None:
    global _header_cache
    _header_cache = tempfile.mkdtemp(dir=scratch)
    prepare_header_cache()


def _ptx(source: Source) -> str:
    """The text of `gemm` itself, without the kernel that builds its parameters."""
    from cuda.bindings import nvrtc

    options = compile_options(source, "compute_89")
    options = [option for option in options if not option.startswith("--ptxas")]
    options += ["-pch", f"-pch-dir={_header_cache}"]
    _, program = nvrtc.nvrtcCreateProgram(source.text.encode(), b"kernel.cu", 0, [], [])
    encoded = [option.encode() for option in options]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS, status
    _, size = nvrtc.nvrtcGetPTXSize(program)
    text = bytearray(size)
    nvrtc.nvrtcGetPTX(program, text)
    nvrtc.nvrtcDestroyProgram(program)
    bodies = bytes(text).decode().split(".entry ")
    return next(body for body in bodies if body.startswith("gemm("))


def all_ptx(sources: list[Source], workers: int = 2) -> list[str]:
    """PTX of every source, in order."""
    context = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory() as scratch,
        ProcessPoolExecutor(workers, context, _start, (scratch,)) as pool,
    ):
        return list(pool.map(_ptx, sources))


def count(pattern: str, body: str) -> int:
    return len(re.findall(pattern, body))


def global_stores(body: str) -> dict[str, int]:
    """Kinds of global store with their number: `{"v4.u32": 64}`."""
    return dict(Counter(re.findall(r"st\.global\.((?:v[24]\.)?[a-z]\d+)", body)))
