// wmma_custom/wgmma_instruction.cuh for the CPU. Each thread makes the sums that the PTX ISA gives to
// it ("Register Fragments", accumulator D of m64nNk16), from operands that lie as the ISA says of
// K-major matrices with the 128-byte swizzle ("Shared Memory Matrix Layout", "Matrix descriptor").
#pragma once

namespace cutlass_study {

// Element (row, k) of the operand that a descriptor names.
inline float operand_element(unsigned long long descriptor, int row, int k) {
  const unsigned int start = (descriptor & 0x3fff) << 4;
  const unsigned int eight_rows = (descriptor >> 32 & 0x3fff) << 4;
  require(descriptor >> 62 == 1 && (descriptor >> 49 & 7) == 0, "128-byte swizzle, no base offset");
  const unsigned int address = start + row / 8 * eight_rows + row % 8 * 128 + k * 2;
  __half value;
  std::memcpy(&value, ::shared + swizzled(address), 2);
  return __half2float(value);
}

template <int kN>
struct Sums {
  static constexpr int kCount = kN / 2;
  float d[kCount];

  void clear() {
    for (float& value : d) value = 0.0f;
  }
  void pin() {}

  void multiply(unsigned long long a, unsigned long long b) {
    open_group.push_back([this, a, b] {
      const int warp = static_cast<int>(threadIdx.x) % 128 / 32, lane = threadIdx.x % 32;
      for (int i = 0; i < kCount; ++i) {
        const int row = 16 * warp + lane / 4 + 8 * (i / 2 % 2);
        const int column = 8 * (i / 4) + 2 * (lane % 4) + i % 2;
        for (int k = 0; k < 16; ++k) {
          d[i] += operand_element(a, row, k) * operand_element(b, column, k);
        }
      }
    });
  }
};

}  // namespace cutlass_study
