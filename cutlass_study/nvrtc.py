"""One NVRTC compilation: source text in, cubin and log out. Needs no GPU and no host compiler."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path

# The sm80 prelude's header image takes 444,223,488 bytes of NVRTC's heap (measured, 13.0.88).
PCH_HEAP_BYTES = 512 << 20
BASE_OPTIONS = ("-std=c++17", "-default-device", "-DNDEBUG", "--ptxas-options=-v")


REFUSED = "NVRTC_ERROR_COMPILATION"  # the one status that speaks of the source
# What NVRTC writes, also under REFUSED, when the machine lacks memory, disk or file handles.
_MACHINE_FAULTS = re.compile(
    "unable to obtain mapped memory|temporary file|too many open files|no space left"
    "|out of memory|cannot allocate memory",
    re.IGNORECASE,
)


class CompileError(RuntimeError):
    """The compiler gave up: the text is its log, `status` the name of NVRTC's result."""

    def __init__(self, log: str, status: str = REFUSED) -> None:
        super().__init__(log)
        self.status = status

    @property
    def is_machine_fault(self) -> bool:
        """Whether this says nothing about the source, so that another try may succeed."""
        return self.status != REFUSED or blames_machine(str(self))


@dataclass(frozen=True, slots=True)
class Source:
    """A translation unit: text, where its headers are, and headers given in memory."""

    text: str
    include_folders: tuple[Path, ...]
    memory_headers: tuple[tuple[str, str], ...] = ()  # (name, text)
    options: tuple[str, ...] = ()
    use_header_cache: bool = False


@dataclass(frozen=True, slots=True)
class Compiled:
    cubin: bytes
    log: str
    seconds: float


def blames_machine(log: str) -> bool:
    """Whether a log tells of a full disk, too little memory or too few file handles."""
    return _MACHINE_FAULTS.search(log) is not None


def first_error_line(log: str) -> str:
    """The first line of a compiler's log that says `error`, shortened to be quoted in a table."""
    for line in log.splitlines():
        if "error" in line.lower():
            return line.strip()[:300]
    stripped = log.strip().splitlines()
    return stripped[0][:300] if stripped else "the compiler gave no message"


def prepare_header_cache() -> None:
    """Size NVRTC's header heap; only valid before a process's first compilation."""
    from cuda.bindings import nvrtc

    nvrtc.nvrtcSetPCHHeapSize(PCH_HEAP_BYTES)


def compile_options(source: Source, arch: str) -> list[str]:
    """The options as given to NVRTC, include folders last."""
    includes = [f"--include-path={folder}" for folder in source.include_folders]
    return [f"-arch={arch}", *BASE_OPTIONS, *source.options, *includes]


def _log_of(program: object) -> str:
    from cuda.bindings import nvrtc

    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    buffer = bytearray(size)
    nvrtc.nvrtcGetProgramLog(program, buffer)
    return bytes(buffer).rstrip(b"\0").decode(errors="replace")


def compile_cubin(source: Source, arch: str, header_cache: Path | None = None) -> Compiled:
    """Compile for `arch` (`sm_89`, `sm_90a`, …); raises `CompileError` with the log.

    `header_cache` is a folder of this process alone for the precompiled header.
    """
    from cuda.bindings import nvrtc

    options = compile_options(source, arch)
    if header_cache is not None and source.use_header_cache:
        options += ["-pch", f"-pch-dir={header_cache}"]
    names = [name.encode() for name, _ in source.memory_headers]
    texts = [text.encode() for _, text in source.memory_headers]
    start = time.perf_counter()
    status, program = nvrtc.nvrtcCreateProgram(
        source.text.encode(), b"kernel.cu", len(names), texts, names
    )
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise CompileError(f"NVRTC could not take the source: {status.name}", status.name)
    try:
        encoded = [option.encode() for option in options]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
        log = _log_of(program)
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise CompileError(log.strip() or status.name, status.name)
        _, size = nvrtc.nvrtcGetCUBINSize(program)
        cubin = bytearray(size)
        nvrtc.nvrtcGetCUBIN(program, cubin)
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    return Compiled(bytes(cubin), log, time.perf_counter() - start)
