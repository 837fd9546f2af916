// Small kernels around the GEMM under test: operands, reference, comparison, clock probe, hold.
// Nothing here is timed.
#include <cuda_fp16.h>

namespace cutlass_study {

// One 64-bit hash per element index (SplitMix64, Steele et al. 2014): any element of any operand can
// be computed alone, on any device, in any order.
__device__ unsigned long long hash(unsigned long long seed, unsigned long long index) {
  unsigned long long z = seed + (index + 1) * 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

// The upper and lower 24 bits as floats in [0, 1).
__device__ float upper_unit(unsigned long long bits) { return float(bits >> 40) * 0x1p-24f; }
__device__ float lower_unit(unsigned long long bits) { return float(bits & 0xFFFFFF) * 0x1p-24f; }

enum Distribution { kUniform = 0, kNormal = 1, kIntegers = 2, kZeros = 3 };

__device__ float draw(int distribution, unsigned long long bits) {
  switch (distribution) {
    case kUniform:
      return 2.0f * upper_unit(bits) - 1.0f;
    case kNormal:  // Box-Muller; 1 - u is in (0, 1]
      return sqrtf(-2.0f * logf(1.0f - upper_unit(bits))) * cospif(2.0f * lower_unit(bits));
    case kIntegers:
      return float(int((bits >> 32) % 5)) - 2.0f;
    default:
      return 0.0f;
  }
}

template <typename T>
__device__ void fill(T* out, long long rows, long long columns, long long leading, int distribution,
                     unsigned long long seed) {
  long long const count = rows * leading;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < count;
       i += (long long)gridDim.x * blockDim.x) {
    long long const row = i / leading, column = i % leading;
    // Padding must be finite: a vector load may read it and multiply it by zero.
    out[i] = column < columns ? T(draw(distribution, hash(seed, row * columns + column))) : T(0.0f);
  }
}

extern "C" __global__ void fill_half(__half* out, long long rows, long long columns,
                                     long long leading, int distribution, unsigned long long seed) {
  fill(out, rows, columns, leading, distribution, seed);
}

extern "C" __global__ void fill_float(float* out, long long rows, long long columns,
                                      long long leading, int distribution,
                                      unsigned long long seed) {
  fill(out, rows, columns, leading, distribution, seed);
}

// A block of an FP16 matrix as FP64, tightly packed, for the reference product.
extern "C" __global__ void widen(__half const* in, double* out, long long rows, long long columns,
                                 long long leading) {
  long long const count = rows * columns;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < count;
       i += (long long)gridDim.x * blockDim.x) {
    out[i] = double(__half2float(in[i / columns * leading + i % columns]));
  }
}

// out[v] = 2-norm of vector v, whose elements are `element_stride` apart. One block per vector.
extern "C" __global__ void vector_norms(__half const* in, float* out, long long length,
                                        long long vector_stride, long long element_stride) {
  __shared__ double partial[256];
  double sum = 0;
  for (long long i = threadIdx.x; i < length; i += blockDim.x) {
    double const x = __half2float(in[blockIdx.x * vector_stride + i * element_stride]);
    sum += x * x;
  }
  partial[threadIdx.x] = sum;
  for (int width = blockDim.x / 2; width > 0; width /= 2) {
    __syncthreads();
    if (threadIdx.x < width) partial[threadIdx.x] += partial[threadIdx.x + width];
  }
  if (threadIdx.x == 0) out[blockIdx.x] = float(sqrt(partial[0]));
}

// reference = alpha * product + beta * c, rounded once to FP32.
extern "C" __global__ void finish_reference(double const* product, void const* c, float* reference,
                                            long long count, double alpha, double beta,
                                            int c_is_half) {
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < count;
       i += (long long)gridDim.x * blockDim.x) {
    double value = alpha * product[i];
    if (beta != 0) {
      value += beta * (c_is_half ? double(__half2float(static_cast<__half const*>(c)[i]))
                                 : double(static_cast<float const*>(c)[i]));
    }
    reference[i] = float(value);
  }
}

struct Comparison {
  unsigned long long violations, non_finite, overflows, first_index;
  float max_abs_error, max_abs_reference;  // as bits: both are >= 0, so integer order is theirs
};

// Compare every element of D with the reference. `factor` times the norms of the row of A and the
// column of B bounds the FP32 accumulation error; an FP16 result may be off by half its ulp more.
// Where `added` (beta·C in FP16) is given, the product may have been rounded to FP16 before it.
extern "C" __global__ void compare(void const* d, float const* reference, float const* row_norms,
                                   float const* column_norms, long long rows, long long columns,
                                   float factor, float beta_slack, int d_is_half,
                                   __half const* added, float beta, Comparison* result) {
  float const largest_half = 65504.0f, overflow_half = 65520.0f;
  unsigned long long violations = 0, non_finite = 0, overflows = 0, first = ~0ull;
  float worst = 0, largest = 0;
  long long const count = rows * columns;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < count;
       i += (long long)gridDim.x * blockDim.x) {
    float const value = d_is_half ? __half2float(static_cast<__half const*>(d)[i])
                                  : static_cast<float const*>(d)[i];
    float const wanted = reference[i];
    float bound = factor * row_norms[i / columns] * column_norms[i % columns] +
                  beta_slack * fabsf(wanted) + 1.2e-7f * fabsf(wanted);
    if (d_is_half) bound += fmaxf(fabsf(wanted) * 0x1p-11f, 0x1p-25f);
    if (added) bound += fabsf(wanted - beta * __half2float(added[i])) * 0x1p-11f;
    largest = fmaxf(largest, fabsf(wanted));
    if (d_is_half && fabsf(wanted) + bound >= overflow_half) {
      // The result does not fit FP16: infinity of the right sign, or (within the bound) the largest.
      bool const infinite = isinf(value) && (value > 0) == (wanted > 0);
      if (infinite) {
        ++overflows;
        continue;
      }
      bool const largest_finite = value == copysignf(largest_half, wanted);
      if (largest_finite && fabsf(wanted) - bound < overflow_half) continue;
    }
    float const error = fabsf(value - wanted);
    if (!isfinite(value)) ++non_finite;
    if (!(error <= bound)) {  // written so that NaN fails
      ++violations;
      first = min(first, (unsigned long long)i);
    }
    if (isfinite(error)) worst = fmaxf(worst, error);
  }
  if (violations) atomicAdd(&result->violations, violations);
  if (non_finite) atomicAdd(&result->non_finite, non_finite);
  if (overflows) atomicAdd(&result->overflows, overflows);
  if (first != ~0ull) atomicMin(&result->first_index, first);
  atomicMax(reinterpret_cast<int*>(&result->max_abs_error), __float_as_int(worst));
  atomicMax(reinterpret_cast<int*>(&result->max_abs_reference), __float_as_int(largest));
}

// Each SM's cycle counter beside the global clock. Two probes give the clock that was delivered in
// between: what NVML reports is not it.
extern "C" __global__ void clock_probe(unsigned long long* out) {
  unsigned int sm;
  unsigned long long nanoseconds;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  long long const cycles = clock64();
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds));
  out[2 * sm] = (unsigned long long)cycles;
  out[2 * sm + 1] = nanoseconds;
}

// Holds its stream for so long: what is queued behind it starts when the GPU is ready, not the host.
extern "C" __global__ void hold(unsigned long long nanoseconds) {
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - begin < nanoseconds);
}

}  // namespace cutlass_study
