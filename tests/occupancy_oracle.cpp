// NVIDIA's own occupancy calculation (cuda_occupancy.h) over a grid of kernels, for one GPU.
// Arguments: compute capability major and minor, warps per SM, shared memory per SM and per block.
// Prints "threads registers smem_bytes ctas" a line.
#include <cuda_runtime.h>
#include <cuda_occupancy.h>

#include <cstdio>
#include <cstdlib>

int main(int, char** arguments) {
  cudaOccDeviceProp gpu;
  gpu.computeMajor = std::atoi(arguments[1]);
  gpu.computeMinor = std::atoi(arguments[2]);
  gpu.maxThreadsPerBlock = 1024;
  gpu.maxThreadsPerMultiprocessor = 32 * std::atoi(arguments[3]);
  gpu.regsPerBlock = gpu.regsPerMultiprocessor = 65536;
  gpu.warpSize = 32;
  gpu.numSms = 24;
  gpu.sharedMemPerBlock = 49152;
  gpu.sharedMemPerMultiprocessor = std::atoi(arguments[4]);
  gpu.sharedMemPerBlockOptin = std::atoi(arguments[5]);
  gpu.reservedSharedMemPerBlock = 1024;
  size_t const optin = gpu.sharedMemPerBlockOptin;
  for (int threads = 32; threads <= 1024; threads += 96) {
    for (int registers = 8; registers <= 255; registers += 3) {
      for (size_t smem = 0; smem <= optin; smem += optin / 9) {
        cudaOccFuncAttributes kernel;
        kernel.maxThreadsPerBlock = 1024;
        kernel.numRegs = registers;
        kernel.sharedSizeBytes = 0;
        kernel.partitionedGCConfig = PARTITIONED_GC_OFF;
        kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
        kernel.maxDynamicSharedSizeBytes = optin;
        kernel.numBlockBarriers = 1;
        cudaOccDeviceState state;
        state.carveoutConfig = 100;
        cudaOccResult result;
        if (cudaOccMaxActiveBlocksPerMultiprocessor(&result, &gpu, &kernel, &state, threads,
                                                    smem) != CUDA_OCC_SUCCESS) {
          return 1;
        }
        std::printf("%d %d %zu %d\n", threads, registers, smem,
                    result.activeBlocksPerMultiprocessor);
      }
    }
  }
  return 0;
}
