"""Finding recorded TMA descriptors in kernel parameters; encoding needs a driver, finding not."""

from __future__ import annotations

import struct

import pytest

from cutlass_study import tensormap
from cutlass_study.tensormap import (
    DESCRIPTOR_BYTES,
    RecordedDescriptor,
    encode_descriptors,
    find_records,
)

MAGIC = 0xC07A55D77E4502ED


def record_bytes(address: int, rank: int = 3) -> bytes:
    """What record_tensormap leaves for a 64x128 box of an 8192x4096 FP16 matrix."""
    record = struct.pack("<QQ5Q4Q", MAGIC, address, 4096, 8192, 1, 1, 1, 8192, 0, 0, 0)
    record += struct.pack("<5H5B", 64, 128, 1, 1, 1, 1, 1, 1, 1, 1)
    record += bytes([1, rank, 0, 3, 2, 0])
    return record.ljust(DESCRIPTOR_BYTES, b"\0")


def params_with_two() -> bytearray:
    return bytearray(b"\x11" * 64 + record_bytes(0x7000) + bytes(64) + record_bytes(0x9000, 2))


def test_finds_aligned_records_only() -> None:
    params = params_with_two()
    assert [record.offset for record in find_records(params)] == [64, 256]
    assert list(find_records(b"\0" * 8 + bytes(params))) == []


def test_reads_the_arguments() -> None:
    first, second = find_records(params_with_two())
    assert first == RecordedDescriptor(
        offset=64,
        global_address=0x7000,
        global_dim=(4096, 8192, 1),
        global_strides=(8192, 0),
        box_dim=(64, 128, 1),
        element_strides=(1, 1, 1),
        data_type=1,
        interleave=0,
        swizzle=3,
        l2_promotion=2,
        oob_fill=0,
    )
    assert second.rank == 2
    assert second.global_strides == (8192,)


def test_a_record_cut_off_by_the_end_is_none() -> None:
    assert list(find_records(record_bytes(1)[:-1])) == []


def test_encoding_replaces_records_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        tensormap, "encode_descriptor", lambda record: bytes([record.rank]) * DESCRIPTOR_BYTES
    )
    params = params_with_two()
    assert encode_descriptors(params) == 2
    assert params[:64] == b"\x11" * 64
    assert params[64:192] == b"\x03" * 128
    assert params[256:] == b"\x02" * 128
    assert encode_descriptors(params) == 0
