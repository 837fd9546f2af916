// Hopper's asynchronous machinery, one PTX instruction a function (PTX ISA: "mbarrier",
// "cp.async.bulk.tensor", "setmaxnreg", "bar", "Asynchronous Warpgroup Level Matrix Instructions").
// Only sm_90a has all of them.
#pragma once

namespace cutlass_study {

// A CUtensorMap, which cuTensorMapEncodeTiled writes on the host: where a matrix lies, and in which
// boxes and which swizzle it is to be copied. NVRTC has no <cuda.h> to declare it.
struct alignas(64) TensorMap {
  unsigned long long words[16];
};

__device__ __forceinline__ unsigned int shared_address(const void* pointer) {
  return static_cast<unsigned int>(__cvta_generic_to_shared(pointer));
}

// ---- Barriers in shared memory --------------------------------------------------------------

// An mbarrier counts arrivals and, apart from them, bytes still to come. When both are at zero its
// phase ends and the next one begins with the counts of the first. Phases alternate between parity 0
// and 1, and one waits for "the phase of this parity has ended".
using Barrier = unsigned long long;

__device__ __forceinline__ void barrier_init(Barrier* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(shared_address(barrier)),
               "r"(arrivals)
               : "memory");
}

// Make initialized barriers known to the asynchronous proxy, through which TMA counts its bytes.
// Other threads need a __syncthreads besides.
__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

// Arrive once, and announce bytes that asynchronous copies will deliver in this phase.
__device__ __forceinline__ void barrier_expect(Barrier* barrier, int bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}

__device__ __forceinline__ void barrier_arrive(Barrier* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(shared_address(barrier))
               : "memory");
}

// Has the phase of this parity ended? Of a barrier just initialized, the phase of parity 1 has.
__device__ __forceinline__ bool barrier_passed(Barrier* barrier, int parity) {
  unsigned int passed;
  asm volatile(
      "{\n.reg .pred passed;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 passed, [%1], %2;\n"
      "selp.u32 %0, 1, 0, passed;\n}\n"
      : "=r"(passed)
      : "r"(shared_address(barrier)), "r"(parity)
      : "memory");
  return passed != 0;
}

__device__ __forceinline__ void barrier_wait(Barrier* barrier, int parity) {
  while (!barrier_passed(barrier, parity)) {
  }
}

// Let kThreadCount threads of the CTA wait for each other: __syncthreads for a part of it.
// __syncthreads itself is number 0.
template <int kNumber, int kThreadCount>
__device__ __forceinline__ void synchronize() {
  asm volatile("bar.sync %0, %1;\n" ::"n"(kNumber), "n"(kThreadCount) : "memory");
}

// ---- TMA ------------------------------------------------------------------------------------

// Start copying the box whose corner is (row, column) of the map's matrix to shared memory. One
// thread does it for all; the bytes count on `barrier` as they arrive.
__device__ __forceinline__ void load_box(void* shared, const TensorMap* map, Barrier* barrier,
                                         int column, int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4}], [%2];\n" ::"r"(shared_address(shared)),
      "l"(map), "r"(shared_address(barrier)), "r"(column), "r"(row)
      : "memory");
}

__device__ __forceinline__ void prefetch_map(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];\n" ::"l"(map) : "memory");
}

// ---- Registers ------------------------------------------------------------------------------

// Give registers back to the CTA, or take some of those given back: all warps of a warpgroup at once.
template <int kRegisters>
__device__ __forceinline__ void release_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
}

template <int kRegisters>
__device__ __forceinline__ void acquire_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
}

// ---- WGMMA ----------------------------------------------------------------------------------

// Orders other accesses to registers before wgmma's own.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}

// Close a group: all wgmma that this warp has started since the last group.
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}

// Wait for every group of this warp: sums are in registers, and operands no longer needed.
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned 0;\n" ::: "memory");
}

}  // namespace cutlass_study
