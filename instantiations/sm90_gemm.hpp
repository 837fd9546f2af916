// One Hopper GEMM kernel and the kernel that builds its parameters, for the choices that the
// generated source has made in cutlass_study::sm90 before this include:
//
//   TileShape, ClusterShape              cute::Shape of cute::Int
//   schedule, epilogue                   enumerators of sm90_prelude.hpp
//   requested_stages                     0: as many as fit beside the epilogue's shared memory
//   ElementC (void: no source), ElementD
//   operand_alignment, epilogue_alignment  elements
//   LayoutB                              ColumnMajor (tn) or RowMajor (nn)
//
// D[M,N] = alpha * A[M,K] * B[K,N] + beta * C, A, C and D row-major, A and B FP16, accumulated FP32.
#pragma once

namespace cutlass_study::sm90 {

using ElementA = cutlass::half_t;
using ElementB = cutlass::half_t;
using ElementAccumulator = float;
using ElementCompute = float;
using LayoutA = cutlass::layout::RowMajor;
using LayoutCD = cutlass::layout::RowMajor;

// Stream-K is the cooperative main loop under another tile scheduler.
using MainloopSchedule = cute::conditional_t<schedule == Schedule::pingpong,
                                             cutlass::gemm::KernelTmaWarpSpecializedPingpong,
                                             cutlass::gemm::KernelTmaWarpSpecializedCooperative>;
using TileScheduler =
    cute::conditional_t<schedule == Schedule::streamk, cutlass::gemm::StreamKScheduler,
                        cutlass::gemm::PersistentScheduler>;
using EpilogueSchedule = cute::conditional_t<
    epilogue == Epilogue::nosmem, cutlass::epilogue::NoSmemWarpSpecialized,
    cute::conditional_t<schedule == Schedule::pingpong, cutlass::epilogue::TmaWarpSpecialized,
                        cutlass::epilogue::TmaWarpSpecializedCooperative>>;

using CollectiveEpilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, TileShape, ClusterShape,
    cutlass::epilogue::collective::EpilogueTileAuto, ElementAccumulator, ElementCompute, ElementC,
    LayoutCD, epilogue_alignment, ElementD, LayoutCD, epilogue_alignment,
    EpilogueSchedule>::CollectiveOp;

// Without the carve-out CUTLASS's automatic count takes all shared memory and leaves the epilogue
// none: the kernel builds and can't be launched (NVIDIA/cutlass#3144).
using StageCount =
    cute::conditional_t<requested_stages == 0,
                        cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(
                            sizeof(typename CollectiveEpilogue::SharedStorage))>,
                        cutlass::gemm::collective::StageCount<requested_stages>>;

using CollectiveMainloop = typename cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, ElementA, LayoutA, operand_alignment,
    ElementB, LayoutB, operand_alignment, ElementAccumulator, TileShape, ClusterShape, StageCount,
    MainloopSchedule>::CollectiveOp;

// The fourth mode is the batch, always 1: CUTLASS's own examples and profiler build it so.
using GemmKernel =
    cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, CollectiveMainloop,
                                         CollectiveEpilogue, TileScheduler>;
using Params = typename GemmKernel::Params;

static_assert(sizeof(Params) <= sizeof(GemmLaunch::params), "Params outgrew GemmLaunch");
static_assert(alignof(Params) <= 128, "GemmLaunch aligns params to 128 B");

// Sets the one stride that is neither 1 nor the batch's. The batch stride stays 0, as
// make_cute_packed_stride leaves it for a single batch.
template <class Stride>
CUTLASS_DEVICE Stride with_leading_dimension(long long leading_dimension) {
  Stride stride{};
  if constexpr (cute::is_static<decltype(cute::get<0>(stride))>::value) {
    cute::get<1>(stride) = leading_dimension;
  } else {
    cute::get<0>(stride) = leading_dimension;
  }
  return stride;
}

// Left to its heuristic, CUTLASS falls back to whole tiles when the last wave is at least half full,
// as it is for 8192x8192x8192 on 132 SMs: "stream-K" would then be the cooperative kernel under
// another name. So stream-K is asked for, unless a number of splits is. (A template, so that the
// branch is discarded where the scheduler has no such fields.)
template <class SchedulerArguments>
CUTLASS_DEVICE void set_decomposition(SchedulerArguments& arguments, int split_k) {
  if constexpr (schedule == Schedule::streamk) {
    using DecompositionMode = decltype(arguments.decomposition_mode);
    arguments.splits = split_k > 1 ? split_k : 1;
    arguments.decomposition_mode =
        split_k > 1 ? DecompositionMode::SplitK : DecompositionMode::StreamK;
  }
}

CUTLASS_DEVICE typename GemmKernel::Arguments to_arguments(GemmArguments const& from) {
  typename GemmKernel::Arguments to{};
  to.mode = cutlass::gemm::GemmUniversalMode::kGemm;
  to.problem_shape = cute::make_shape(from.m, from.n, from.k, 1);
  to.mainloop.ptr_A = static_cast<ElementA const*>(from.a);
  to.mainloop.dA = with_leading_dimension<typename GemmKernel::StrideA>(from.lda);
  to.mainloop.ptr_B = static_cast<ElementB const*>(from.b);
  to.mainloop.dB = with_leading_dimension<typename GemmKernel::StrideB>(from.ldb);
  to.epilogue.thread.alpha = from.alpha;
  to.epilogue.thread.beta = from.beta;
  to.epilogue.ptr_C = static_cast<ElementC const*>(from.c);
  to.epilogue.dC = with_leading_dimension<typename GemmKernel::StrideC>(from.ldc);
  to.epilogue.ptr_D = static_cast<ElementD*>(from.d);
  to.epilogue.dD = with_leading_dimension<typename GemmKernel::StrideD>(from.ldd);
  to.hw_info.sm_count = from.sm_count;
  to.scheduler.max_swizzle_size = from.swizzle;
  using RasterOrderOptions = typename GemmKernel::TileScheduler::RasterOrderOptions;
  to.scheduler.raster_order = from.raster_order == 1   ? RasterOrderOptions::AlongM
                              : from.raster_order == 2 ? RasterOrderOptions::AlongN
                                                       : RasterOrderOptions::Heuristic;
  set_decomposition(to.scheduler, from.split_k);
  return to;
}

// TMA reads and writes rows that start at multiples of 16 B. CUTLASS only asserts that (and not under
// NDEBUG); the driver would refuse to encode the descriptor.
CUTLASS_DEVICE bool is_misaligned(void const* pointer, long long leading_dimension, int bytes) {
  return reinterpret_cast<unsigned long long>(pointer) % 16 != 0 ||
         leading_dimension * bytes % 16 != 0;
}

CUTLASS_DEVICE cutlass::Status can_implement(GemmArguments const& given,
                                             typename GemmKernel::Arguments const& arguments) {
  if (given.m < 1 || given.n < 1 || given.k < 1) return cutlass::Status::kErrorInvalidProblem;
  // CUTLASS would ask the runtime for a missing SM count; on the device nobody can be asked.
  if (given.sm_count < 1) return cutlass::Status::kErrorInvalidProblem;
  if (given.split_k > 1 && schedule != Schedule::streamk) {
    return cutlass::Status::kErrorInvalidProblem;
  }
  // The TMA epilogue refuses a beta without a source itself; the no-smem one would ignore it.
  constexpr bool has_source = !cute::is_void_v<ElementC>;
  if (given.beta != 0.0f && !has_source) return cutlass::Status::kErrorInvalidProblem;
  constexpr int source_bytes = cutlass::sizeof_bits<ElementC>::value / 8;
  if (is_misaligned(given.a, given.lda, sizeof(ElementA)) ||
      is_misaligned(given.b, given.ldb, sizeof(ElementB)) ||
      (epilogue == Epilogue::tma &&
       ((has_source && is_misaligned(given.c, given.ldc, source_bytes)) ||
        is_misaligned(given.d, given.ldd, sizeof(ElementD))))) {
    return cutlass::Status::kErrorMisalignedOperand;
  }
  return GemmKernel::can_implement(arguments) ? cutlass::Status::kSuccess
                                              : cutlass::Status::kErrorInvalidProblem;
}

// Stream-K's barriers stand behind its partial sums, where PersistentTileSchedulerSm90StreamK::fixup
// looks for them. They must be zero at every launch; the partial sums need not.
template <class SchedulerParams>
CUTLASS_DEVICE void set_barrier_range(GemmLaunch* launch, SchedulerParams const& scheduler) {
  launch->params_offset_reserved[0] = 0;
  launch->params_offset_reserved[1] = 0;
  if constexpr (schedule == Schedule::streamk) {
    auto const split_tiles =
        scheduler.divmod_splits_.divisor > 1 ? scheduler.units_per_problem_ : scheduler.sk_tiles_;
    int const offset = static_cast<int>(SchedulerParams::get_reduction_workspace_size(
        split_tiles, cutlass::gemm::to_gemm_coord(TileShape{}),
        cutlass::sizeof_bits<ElementAccumulator>::value));
    launch->params_offset_reserved[0] = offset;
    launch->params_offset_reserved[1] = launch->workspace_bytes - offset;
  }
}

// Writes what a launch needs. In `params` the TMA descriptors are records still
// (tensormap_record.hpp): Python encodes them.
CUTLASS_DEVICE void write_launch(GemmArguments const& given, GemmLaunch* launch) {
  auto const arguments = to_arguments(given);
  auto const status = can_implement(given, arguments);
  launch->status = static_cast<int>(status);
  if (status != cutlass::Status::kSuccess) return;
  Params const params = GemmKernel::to_underlying_arguments(arguments, given.workspace);
  dim3 const grid = GemmKernel::get_grid_shape(params);
  launch->grid[0] = static_cast<int>(grid.x);
  launch->grid[1] = static_cast<int>(grid.y);
  launch->grid[2] = static_cast<int>(grid.z);
  launch->params_bytes = static_cast<int>(sizeof(params));
  launch->workspace_bytes = static_cast<int>(GemmKernel::get_workspace_size(arguments));
  set_barrier_range(launch, params.scheduler);
  memcpy(launch->params, &params, sizeof(params));
}

}  // namespace cutlass_study::sm90

extern "C" __device__ const cutlass_study::KernelInfo gemm_info = {
    cutlass_study::sm90::GemmKernel::SharedStorageSize,
    static_cast<int>(cutlass_study::sm90::GemmKernel::MaxThreadsPerBlock),
    static_cast<int>(sizeof(cutlass_study::sm90::Params)),
    static_cast<int>(alignof(cutlass_study::sm90::Params)),
    {static_cast<int>(cute::size<0>(cutlass_study::sm90::ClusterShape{})),
     static_cast<int>(cute::size<1>(cutlass_study::sm90::ClusterShape{})),
     static_cast<int>(cute::size<2>(cutlass_study::sm90::ClusterShape{}))},
    cutlass_study::sm90::CollectiveMainloop::DispatchPolicy::Stages,
};

// cutlass::device_kernel under a name that can be looked up.
extern "C" __global__ void __launch_bounds__(
    cutlass_study::sm90::GemmKernel::MaxThreadsPerBlock,
    cutlass_study::sm90::GemmKernel::MinBlocksPerMultiprocessor)
    gemm(__grid_constant__ cutlass_study::sm90::Params const params) {
  extern __shared__ char smem[];
  cutlass_study::sm90::GemmKernel kernel;
  kernel(params, smem);
}

// Run by one thread.
extern "C" __global__ void gemm_params(cutlass_study::GemmArguments const arguments,
                                       cutlass_study::GemmLaunch* launch) {
  // A read of the constant keeps it in the module: Python finds it in the cubin by name.
  if (gemm_info.params_bytes > 0) cutlass_study::sm90::write_launch(arguments, launch);
}
