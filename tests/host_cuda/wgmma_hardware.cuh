// wmma_custom/wgmma_hardware.cuh for the CPU: the same functions, written from the PTX ISA's words.
// Copies and products are truly late here: a copy takes a random time on a thread of its own, and
// products are made when the kernel waits for them. So a missing wait gives a wrong result, and a
// missing barrier a race that ThreadSanitizer finds.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <mutex>
#include <random>

#include "cuda_fp16.h"

namespace cutlass_study {

inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "the hardware would not do as wanted: %s\n", what);
  std::_Exit(3);
}

// The matrix that a descriptor describes, as plain numbers: FP16, 128-byte swizzle.
struct alignas(64) TensorMap {
  unsigned long long words[16];  // address, rows, columns, bytes from row to row, rows of a box
};

inline unsigned int shared_address(const void* pointer) {
  return static_cast<unsigned int>(static_cast<const unsigned char*>(pointer) - ::shared);
}

// The 128-byte swizzle: 16-byte chunk number, in bits 4 to 6, xor row number, in bits 7 to 9.
inline unsigned int swizzled(unsigned int address) { return address ^ (address >> 7 & 7) << 4; }

// ---- mbarrier -------------------------------------------------------------------------------

using Barrier = unsigned long long;

struct BarrierState {
  std::mutex mutex;
  std::condition_variable changed;
  int arrivals = 0, pending = 0, bytes = 0, phase = 0;

  void settle() {  // under the mutex
    if (pending != 0 || bytes != 0) return;
    pending = arrivals, ++phase;
    changed.notify_all();
  }
};

inline BarrierState& state_of(Barrier* barrier) {
  static std::array<BarrierState, 64> states;  // of neighbours in shared memory: never the same
  return states[shared_address(barrier) / 8 % states.size()];
}

inline void barrier_init(Barrier* barrier, int arrivals) {
  BarrierState& state = state_of(barrier);
  const std::lock_guard lock(state.mutex);
  state.arrivals = state.pending = arrivals;
  state.bytes = state.phase = 0;
}

inline void publish_barriers() {}

inline void arrive(Barrier* barrier, int arrivals, int bytes) {
  BarrierState& state = state_of(barrier);
  const std::lock_guard lock(state.mutex);
  require(state.pending >= arrivals, "more arrivals in a phase than the barrier counts");
  state.pending -= arrivals, state.bytes += bytes;
  state.settle();
}

inline void barrier_expect(Barrier* barrier, int bytes) { arrive(barrier, 1, bytes); }
inline void barrier_arrive(Barrier* barrier) { arrive(barrier, 1, 0); }

inline void barrier_wait(Barrier* barrier, int parity) {
  BarrierState& state = state_of(barrier);
  std::unique_lock lock(state.mutex);
  // The phase before the present one has the other parity.
  const bool in_time = state.changed.wait_for(lock, std::chrono::seconds(HANG_S),
                                              [&] { return state.phase % 2 != parity; });
  require(in_time, "a thread waits for a phase that never ends");
}

template <int kNumber, int kThreadCount>
void synchronize() {
  static std::barrier<> barrier(kThreadCount);
  barrier.arrive_and_wait();
}

// ---- TMA ------------------------------------------------------------------------------------

inline std::mutex copies_mutex;
inline std::vector<std::thread> copies;

inline void copy_box(unsigned int target, const TensorMap& map, Barrier* barrier, int column,
                     int row) {
  const auto [address, rows, columns, stride, box_rows] =
      std::array{map.words[0], map.words[1], map.words[2], map.words[3], map.words[4]};
  const auto* matrix = reinterpret_cast<const unsigned char*>(address);
  for (unsigned int r = 0; r < box_rows; ++r) {
    for (unsigned int c = 0; c < 64; ++c) {
      __half value{0};  // outside the matrix
      if (row + r < rows && column + c < columns) {
        std::memcpy(&value, matrix + (row + r) * stride + (column + c) * 2, 2);
      }
      std::memcpy(::shared + swizzled(target + r * 128 + c * 2), &value, 2);
    }
  }
  arrive(barrier, 0, -static_cast<int>(box_rows) * 128);
}

inline void load_box(void* target, const TensorMap* map, Barrier* barrier, int column, int row) {
  const unsigned int address = shared_address(target);
  require(address % 1024 == 0, "a swizzled box begins at a multiple of 1024 bytes");
  static std::minstd_rand random(7);
  const std::lock_guard lock(copies_mutex);
  const auto delay = std::chrono::microseconds(random() % 300);
  copies.emplace_back([=, map = *map] {  // parameters outlive the thread that names them
    std::this_thread::sleep_for(delay);
    copy_box(address, map, barrier, column, row);
  });
}

inline void prefetch_map(const TensorMap*) {}

inline void end_copies() {
  for (auto& copy : copies) copy.join();
  copies.clear();
}

// ---- Registers and WGMMA --------------------------------------------------------------------

template <int kRegisters>
void release_registers() {}
template <int kRegisters>
void acquire_registers() {}

inline thread_local std::vector<std::function<void()>> open_group, waiting;

inline void wgmma_fence() {}
inline void wgmma_commit() {
  for (auto& one : open_group) waiting.push_back(std::move(one));
  open_group.clear();
}
// `.sync.aligned`: the lanes of a warp are through together, the warps of a warpgroup are not.
inline void wgmma_wait() {
  static std::vector<std::unique_ptr<std::barrier<>>> warps = [] {
    std::vector<std::unique_ptr<std::barrier<>>> all;
    for (int warp = 0; warp < 32; ++warp) all.push_back(std::make_unique<std::barrier<>>(32));
    return all;
  }();
  for (auto& one : waiting) one();
  waiting.clear();
  warps[threadIdx.x / 32]->arrive_and_wait();
}

}  // namespace cutlass_study
