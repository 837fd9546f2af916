// What Python and the kernel modules exchange. Python reads and writes these structs byte by byte
// (`struct`/`ctypes`), so they are plain data with natural alignment: keep field order, never insert.
#pragma once

namespace cutlass_study {

// Written by Python, passed by value to `gemm_params`. Pointers are device addresses; leading
// dimensions count elements. A field that a kernel family does not know is ignored by it.
struct GemmArguments {
  int m, n, k, split_k;
  float alpha, beta;
  void const *a, *b, *c;
  void *d, *workspace;
  long long lda, ldb, ldc, ldd;
  int sm_count, ctas_per_sm, swizzle, raster_order;
};

// Written by `gemm_params`, read by Python. `status` is cutlass::Status as int, 0 = success. The two
// reserved fields are offset and size of the part of the workspace that must be zero before every
// launch (stream-K's barriers count up and are never reset); size 0: none.
struct GemmLaunch {
  int status;
  int grid[3];
  int params_bytes;
  int workspace_bytes;
  int params_offset_reserved[2];
  alignas(128) unsigned char params[4096];
};

// A constant in the cubin: what must be known of a kernel before a GPU is there to ask.
struct KernelInfo {
  int smem_bytes, threads, params_bytes, params_alignment, cluster[3], stages;
};

static_assert(sizeof(GemmArguments) == 112, "GemmArguments changed: so must its Python reader");
static_assert(sizeof(GemmLaunch) == 128 + 4096, "GemmLaunch changed: so must its Python reader");
static_assert(sizeof(KernelInfo) == 32, "KernelInfo changed: so must its Python reader");

}  // namespace cutlass_study
