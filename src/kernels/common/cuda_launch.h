// How a CUDA kernel is launched: plain data that the plan stores, with sizes that the runtime evaluates at
// bind.
//
// ABI. Every kernel is `extern "C" __global__` and takes, in this order: the address of every input window,
// of every output window, of the workspace if the code asks for one; then the launch's params as int64_t
// each; its fparams as double each; its tensor maps as `const __grid_constant__ CUtensorMap`; and, if it
// reports data errors, an `aicf::CallError*`: the call's error, of a bundle the errors of its members, in
// their order. An address is that of the window's element at index 0, …, 0:
// the window's offset is already added. Buffers start at multiples of kCudaAlignment bytes, so whether a
// window may be accessed by 16 bytes follows from its offset and strides. No two outputs share bytes with
// each other or with an input, but for CudaProblem::replaced.
//
// Every kernel calls aicf::wait_for_inputs() before its first access to global memory (programmatic dependent
// launch); only operands that no launch of a run writes (CudaWindow::constant), or none that can still be
// running (CudaWindow::ready), may be read before, and the launch names them in early_inputs, which
// check_plan() checks.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/dim.h"

namespace aicf {

inline constexpr int64_t kCudaAlignment = 16;  // bytes; the caller's memory is copied if it has less

// A tensor map of the copy engine over an operand's window (sm_90), made at bind.
struct TensorMapSpec {
  int32_t operand = 0;        // inputs first, then outputs
  std::vector<int32_t> axes;  // window axes, innermost first; the innermost must have stride 1
  std::vector<int32_t> box;   // elements per axis
  int32_t swizzle_bytes = 0;  // 0, 32, 64, 128
  // Distance of neighbours in the box along each axis, 1 to 8; empty: 1 everywhere. The box then counts what
  // it loads.
  std::vector<int32_t> steps = {};
  bool operator==(const TensorMapSpec&) const = default;
};

struct CudaLaunch {
  std::string function;                             // an extern "C" name of the source
  std::array<Dim, 3> grid{Dim(1), Dim(1), Dim(1)};  // blocks; a launch of none is left out
  int32_t block = 128, cluster = 1;                 // threads, blocks per cluster along x
  int64_t shared_bytes = 0;                         // dynamic
  std::vector<Dim> params;
  std::vector<double> fparams;
  std::vector<TensorMapSpec> tensor_maps;
  std::vector<int32_t> early_inputs;  // read before aicf::wait_for_inputs()
  bool reports_errors = false;
  bool operator==(const CudaLaunch&) const = default;
};

// Whatever the sizes: its grid is not empty.
inline bool is_always_launched(const CudaLaunch& launch) {
  return std::all_of(launch.grid.begin(), launch.grid.end(), [](const Dim& blocks) {
    const auto count = blocks.constant();
    return count && *count > 0;
  });
}

// How a step runs: functions of one module.
struct StepLaunches {
  int32_t module = -1;
  std::vector<CudaLaunch> launches;
  Dim workspace_bytes;
  bool operator==(const StepLaunches&) const = default;
};

// How the calls of a graph run, in order, and those of init.
struct CodedGraph {
  std::vector<StepLaunches> calls, init;
  bool operator==(const CodedGraph&) const = default;
};

}  // namespace aicf
