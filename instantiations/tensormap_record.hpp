// TMA descriptors without host code. cuTensorMapEncodeTiled exists only in the host driver API, so a
// descriptor built on the device can't be encoded there. It keeps the arguments of that call in its
// own 128 bytes instead, behind a magic number; cutlass_study/tensormap.py finds them and encodes.
#pragma once

namespace cutlass_study {

// No pointer: bits 63 to 57 are neither all zero nor all one. No count or stride of the study is as
// large. Only descriptor-aligned places are looked at besides.
constexpr unsigned long long tensormap_record_magic = 0xC07A55D7'7E4502EDull;

struct alignas(64) TensormapRecord {
  unsigned long long magic;
  unsigned long long global_address;
  unsigned long long global_dim[5];      // elements
  unsigned long long global_strides[4];  // bytes; the innermost stride is one element and implied
  unsigned short box_dim[5];             // elements, at most 256
  unsigned char element_strides[5];      // at most 8
  unsigned char data_type;               // CUtensorMapDataType
  unsigned char rank;
  unsigned char interleave;    // CUtensorMapInterleave
  unsigned char swizzle;       // CUtensorMapSwizzle
  unsigned char l2_promotion;  // CUtensorMapL2promotion
  unsigned char oob_fill;      // CUtensorMapFloatOOBfill
};
static_assert(sizeof(TensormapRecord) == 128, "A record must fill the place of one descriptor");

// CUtensorMapDataType of an element type. Only the types that the toolkit's kernels ask for are
// mapped, so that a forgotten one fails to compile. CUTLASS loads A and B as plain 16-bit words.
template <class Element>
struct TensormapDataType;
template <>
struct TensormapDataType<unsigned short> {
  static constexpr unsigned char value = 1;  // CU_TENSOR_MAP_DATA_TYPE_UINT16
};
template <>
struct TensormapDataType<float> {
  static constexpr unsigned char value = 7;  // CU_TENSOR_MAP_DATA_TYPE_FLOAT32
};

// Called by the patched cute::make_tma_copy_desc with what it would have given to the driver.
template <class Element, class Descriptor, class Extents, class BoxExtents>
__device__ void record_tensormap(Descriptor& descriptor, int rank, void const* global_address,
                                 Extents const& global_dim, Extents const& global_strides,
                                 BoxExtents const& box_dim, BoxExtents const& element_strides,
                                 unsigned char swizzle) {
  static_assert(sizeof(Descriptor) == sizeof(TensormapRecord), "Unexpected descriptor size");
  TensormapRecord record{};
  record.magic = tensormap_record_magic;
  record.global_address = reinterpret_cast<unsigned long long>(global_address);
  for (int i = 0; i < 5; ++i) {
    record.global_dim[i] = global_dim[i];
    record.box_dim[i] = static_cast<unsigned short>(box_dim[i]);
    record.element_strides[i] = static_cast<unsigned char>(element_strides[i]);
  }
  for (int i = 0; i < 4; ++i) {
    record.global_strides[i] = global_strides[i + 1];
  }
  record.data_type = TensormapDataType<Element>::value;
  record.rank = static_cast<unsigned char>(rank);
  record.interleave = 0;  // CU_TENSOR_MAP_INTERLEAVE_NONE
  record.swizzle = swizzle;
  record.l2_promotion = 2;  // CU_TENSOR_MAP_L2_PROMOTION_L2_128B, as make_tma_copy_desc has it
  record.oob_fill = 0;      // CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE
  descriptor = *reinterpret_cast<Descriptor const*>(&record);
}

}  // namespace cutlass_study
