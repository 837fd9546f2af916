"""TMA descriptors of kernels whose parameters were built on the device.

The device can't call cuTensorMapEncodeTiled, so ``instantiations/tensormap_record.hpp`` leaves the
arguments of that call in each descriptor's own 128 bytes. Here they are found and encoded.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

DESCRIPTOR_BYTES = 128
DESCRIPTOR_ALIGNMENT = 64  # also in the kernel's parameter buffer; the driver refuses other places

_MAGIC = 0xC07A55D77E4502ED
_RECORD = struct.Struct("<QQ5Q4Q5H5B6B")  # TensormapRecord without its trailing padding


class DescriptorError(RuntimeError):
    """The driver refused a descriptor; the message holds what it was asked for."""


@dataclass(frozen=True, slots=True)
class RecordedDescriptor:
    """Arguments of one cuTensorMapEncodeTiled call, innermost dimension first.

    ``offset`` is where in the parameters the descriptor stands. Extents and boxes count elements,
    strides bytes. Enumerations are CUDA's numbers (``data_type`` is a CUtensorMapDataType).
    """

    offset: int
    global_address: int
    global_dim: tuple[int, ...]
    global_strides: tuple[int, ...]
    box_dim: tuple[int, ...]
    element_strides: tuple[int, ...]
    data_type: int
    interleave: int
    swizzle: int
    l2_promotion: int
    oob_fill: int

    @property
    def rank(self) -> int:
        return len(self.global_dim)


def parse_record(data: bytes | bytearray, offset: int) -> RecordedDescriptor | None:
    """The record at ``offset`` of ``data``, or None where there is none."""
    if offset + DESCRIPTOR_BYTES > len(data):
        return None
    magic, address, *rest = _RECORD.unpack_from(data, offset)
    if magic != _MAGIC:
        return None
    rank = rest[20]
    return RecordedDescriptor(
        offset=offset,
        global_address=address,
        global_dim=tuple(rest[0:rank]),
        global_strides=tuple(rest[5 : 5 + rank - 1]),
        box_dim=tuple(rest[9 : 9 + rank]),
        element_strides=tuple(rest[14 : 14 + rank]),
        data_type=rest[19],
        interleave=rest[21],
        swizzle=rest[22],
        l2_promotion=rest[23],
        oob_fill=rest[24],
    )


def find_records(params: bytes | bytearray) -> Iterator[RecordedDescriptor]:
    """Every descriptor still to encode in a kernel's parameters, in their order."""
    offset = 0
    while offset + DESCRIPTOR_BYTES <= len(params):
        record = parse_record(params, offset)
        if record is None:
            offset += DESCRIPTOR_ALIGNMENT
        else:
            yield record
            offset += DESCRIPTOR_BYTES


def encode_descriptor(record: RecordedDescriptor) -> bytes:
    """The 128 bytes that the driver encodes; raises ``DescriptorError`` if it refuses.

    Needs the CUDA driver, but no context.
    """
    from cuda.bindings import driver

    result, tensor_map = driver.cuTensorMapEncodeTiled(
        driver.CUtensorMapDataType(record.data_type),
        record.rank,
        record.global_address,
        [driver.cuuint64_t(extent) for extent in record.global_dim],
        [driver.cuuint64_t(stride) for stride in record.global_strides],
        [driver.cuuint32_t(extent) for extent in record.box_dim],
        [driver.cuuint32_t(stride) for stride in record.element_strides],
        driver.CUtensorMapInterleave(record.interleave),
        driver.CUtensorMapSwizzle(record.swizzle),
        driver.CUtensorMapL2promotion(record.l2_promotion),
        driver.CUtensorMapFloatOOBfill(record.oob_fill),
    )
    if result != driver.CUresult.CUDA_SUCCESS:
        raise DescriptorError(f"cuTensorMapEncodeTiled answers {result.name} to {record}")
    words = [int(word) for word in tensor_map.opaque]
    return struct.pack("<16Q", *words)


def encode_descriptors(params: bytearray) -> int:
    """Encode every recorded descriptor in place; return how many there were.

    ``params`` must then reach the kernel at a 64-byte aligned address: CUDA copies it into its own
    parameter buffer with the alignment of the kernel's parameter, which is 64.
    """
    records = list(find_records(params))
    for record in records:
        end = record.offset + DESCRIPTOR_BYTES
        params[record.offset : end] = encode_descriptor(record)
    return len(records)
