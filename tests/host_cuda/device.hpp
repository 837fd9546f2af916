// CUDA's kernel language for the CPU: every CUDA thread is a thread of the system, CTAs run one after
// another. So a kernel's own source can be run, and watched by a sanitizer, where there is no GPU.
#pragma once

#include <barrier>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#define __device__
#define __global__
#define __shared__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))

struct Place {
  unsigned int x = 0, y = 0, z = 0;
};
inline thread_local Place threadIdx, blockIdx;

struct float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

// What `extern __shared__ ... shared[]` in a kernel names.
alignas(1024) unsigned char shared[232448];

inline std::unique_ptr<std::barrier<>> cta_barrier;
inline void __syncthreads() { cta_barrier->arrive_and_wait(); }

// Run `kernel` as every thread of every CTA, with `after` once all threads of a CTA have ended.
template <typename Kernel, typename After>
void launch(unsigned int grid_x, unsigned int grid_y, unsigned int threads, const Kernel& kernel,
            const After& after) {
  for (unsigned int cta = 0; cta < grid_x * grid_y; ++cta) {
    for (auto& byte : shared) byte = 0xff;  // NaN, if anything reads what was never written
    cta_barrier = std::make_unique<std::barrier<>>(threads);
    std::vector<std::thread> running;
    for (unsigned int thread = 0; thread < threads; ++thread) {
      running.emplace_back([&, thread] {
        threadIdx = {thread, 0, 0};
        blockIdx = {cta % grid_x, cta / grid_x, 0};
        kernel();
        cta_barrier->arrive_and_drop();
      });
    }
    for (auto& one : running) one.join();
    after();
  }
}
