// cp.async (PTX ISA, "Data Movement and Conversion Instructions: cp.async"; sm_80 and later): a
// copy from global to shared memory that needs no register and does not block the thread.
#pragma once

namespace cutlass_study {

// Start copying 16 bytes, of which only the first `source_bytes` (0 to 16) are read and the rest
// are zeros. Both addresses must be 16-byte aligned. `.cg` caches in L2 alone: no tile is read
// twice by the same SM, but for CTAs that share it.
__device__ __forceinline__ void cp_async_16(void* shared, const void* global, int source_bytes) {
  const unsigned int address = static_cast<unsigned int>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(address), "l"(global),
               "r"(source_bytes)
               : "memory");
}

// Close a group: all copies that this thread has started since the last group (perhaps none).
__device__ __forceinline__ void cp_async_commit() {
  asm volatile("cp.async.commit_group;\n" ::: "memory");
}

// Wait until at most kPending of this thread's latest groups are still under way. It says nothing
// of other threads' copies: those need a barrier after it.
template <int kPending>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
}

}  // namespace cutlass_study
