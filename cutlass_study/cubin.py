"""What a compiled kernel tells without a GPU: its ELF image and NVRTC's log."""

from __future__ import annotations

import hashlib
import io
import re
import struct
from dataclasses import dataclass

from elftools.elf.elffile import ELFFile

from cutlass_study.records import Resources

KERNEL = "gemm"
PARAMS_KERNEL = "gemm_params"
INFO_SYMBOL = "gemm_info"
_INFO = struct.Struct("<8i")  # struct KernelInfo in instantiations/abi.hpp
_SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym: name, info, other, section index, value, size


class BrokenCubin(ValueError):
    """The image lacks what every module of this toolkit exports."""


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """`gemm_info` of a module: what the launcher must know. Shared memory in bytes."""

    smem_bytes: int
    threads: int
    params_bytes: int
    params_alignment: int
    cluster_shape: tuple[int, int, int]
    stages: int


def _section(elf: ELFFile, name: str) -> bytes:
    section = elf.get_section_by_name(name)
    if section is None:
        raise BrokenCubin(f"the compiled image has no section {name}")
    return bytes(section.data())


def _find_symbol(elf: ELFFile, name: str) -> tuple[int, int]:
    """(section index, offset in it) of a symbol.

    A kernel's image has thousands of symbols. elftools makes an object of each, which takes a tenth
    of a second; this looks at their name fields only.
    """
    names = _section(elf, ".strtab")
    wanted = names.find(b"\0" + name.encode() + b"\0") + 1
    for at, _, _, index, value, _ in _SYMBOL.iter_unpack(_section(elf, ".symtab")):
        if at == wanted > 0:
            return index, value
    raise BrokenCubin(f"the compiled image has no symbol {name}")


def read_info(cubin: bytes) -> KernelInfo:
    """Read the constant `gemm_info`; raises `BrokenCubin` if the image has none."""
    elf = ELFFile(io.BytesIO(cubin))
    index, offset = _find_symbol(elf, INFO_SYMBOL)
    raw = elf.get_section(index).data()[offset:][: _INFO.size]
    smem, threads, size, alignment, cluster_m, cluster_n, cluster_k, stages = _INFO.unpack(raw)
    return KernelInfo(smem, threads, size, alignment, (cluster_m, cluster_n, cluster_k), stages)


def code_hash(cubin: bytes) -> str:
    """SHA-256 of the kernel's machine code: equal hashes are one kernel under two names."""
    elf = ELFFile(io.BytesIO(cubin))
    return hashlib.sha256(_section(elf, f".text.{KERNEL}")).hexdigest()


def _entry_report(log: str) -> str:
    """The part of ptxas's log about the kernel itself (not about `gemm_params`)."""
    pattern = rf"Compiling entry function '{KERNEL}' for(.*?)(?=Compiling entry function|\Z)"
    match = re.search(pattern, log, re.DOTALL)
    if match is None:
        raise BrokenCubin(f"the compiler's log says nothing about entry function {KERNEL}")
    return match.group(1)


def performance_warnings(log: str) -> str:
    """ptxas's performance warnings ("Potential Performance Loss", ignored setmaxnreg), joined."""
    lines = re.findall(
        r"^.*(?:Potential Performance Loss|setmaxnreg ignored).*$", log, re.MULTILINE
    )
    return "; ".join(dict.fromkeys(line.strip() for line in lines))


def read_resources(cubin: bytes, log: str) -> Resources:
    """Registers and spills from the log, shared memory and threads from the image."""
    report = _entry_report(log)
    registers = re.search(r"Used (\d+) registers", report)
    spills = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", report)
    if registers is None or spills is None:
        raise BrokenCubin("the compiler's log lacks registers or spills; is -v among its options?")
    info = read_info(cubin)
    return Resources(
        registers=int(registers.group(1)),
        smem_bytes=info.smem_bytes,
        spill_bytes=int(spills.group(1)) + int(spills.group(2)),
        threads=info.threads,
        warnings=performance_warnings(log),
        code_hash=code_hash(cubin),
    )
