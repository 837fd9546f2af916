// Refuses sm80-family kernels that CUTLASS compiles into wrong code. Its thread maps and iterators
// divide with truncation: warps that don't share a tile evenly load or store only a part of it. The
// same rules, with reasons for people, are in cutlass_study/rules.py and thread_maps.py.
#pragma once

namespace cutlass_study {

// One thread for every vector of the operand tile (PitchLinearWarpRakedThreadMap).
template <typename ThreadMap>
constexpr bool kLoadsWholeTile =
    ThreadMap::Iterations::kCount * ThreadMap::kThreads * ThreadMap::kElementsPerAccess ==
        ThreadMap::Shape::kCount &&
    ThreadMap::Detail::kWarpsContiguous * ThreadMap::Detail::kWarpsStrided ==
        ThreadMap::Detail::kWarpCount;

// One thread for every vector of what the epilogue stores at a time: 8 rows of each row of warps
// (OutputTileOptimalThreadMap).
template <typename ThreadMap>
constexpr bool kStoresWholeTile =
    ThreadMap::Iterations::kCount * ThreadMap::kThreads * ThreadMap::kElementsPerAccess ==
    ThreadMap::Shape::kColumn * ThreadMap::Shape::kRow * ThreadMap::Shape::kGroup;

template <typename Kernel>
struct Sm80Coverage {
  using Mma = typename Kernel::Mma;
  using WarpShape = typename Mma::Operator::Shape;
  using OutputOp = typename Kernel::Epilogue::OutputOp;
  static constexpr bool kRowMajorB =
      cutlass::platform::is_same<typename Mma::IteratorB::Layout, cutlass::layout::RowMajor>::value;
  static constexpr int kN = WarpShape::kN;

  static_assert(kLoadsWholeTile<typename Mma::IteratorA::ThreadMap>,
                "the warps don't share A's tile evenly");
  static_assert(kLoadsWholeTile<typename Mma::IteratorB::ThreadMap>,
                "the warps don't share B's tile evenly");
  static_assert(kStoresWholeTile<typename Kernel::Epilogue::OutputTileIterator::ThreadMap>,
                "the warps don't share the output tile evenly");
  static_assert(WarpShape::kM % 16 == 0 && (kN % 16 == 0 || (kN == 8 && !kRowMajorB)),
                "the warp tile is not a multiple of 16x16");
  static_assert(!kRowMajorB || kN % 64 == 0 || kN == 32 || kN == Mma::Shape::kN,
                "a warp starts at a column where row-major B can't be read");
  static_assert(
      !cutlass::platform::is_same<typename OutputOp::ElementOutput, cutlass::half_t>::value ||
          OutputOp::kCount != 8 || kN == 64 || 32 % kN == 0,
      "FP16 output at width 8 needs a warp tile N of 8, 16, 32 or 64");
  static constexpr bool kHolds = true;
};

static_assert(Sm80Coverage<GemmKernel>::kHolds);

}  // namespace cutlass_study
