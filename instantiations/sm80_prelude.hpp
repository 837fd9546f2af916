// Everything of CUTLASS 2.x that an sm80-family kernel includes.
//
// This file is the whole precompiled-header prefix: it must be the first thing in every generated
// source, and no parameter may precede its end, or NVRTC would rebuild the header per kernel.
#pragma once

#include "abi.hpp"
#include "cutlass/cutlass.h"
#include "cutlass/epilogue/thread/linear_combination.h"
#include "cutlass/gemm/device/default_gemm_configuration.h"
#include "cutlass/gemm/kernel/default_gemm_universal.h"
#include "cutlass/gemm/kernel/gemm_universal.h"
#include "cutlass/gemm/threadblock/threadblock_swizzle.h"
#include "cutlass/layout/matrix.h"
#include "cutlass/numeric_types.h"
