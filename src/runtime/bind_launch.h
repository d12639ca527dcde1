// From what a step of a CUDA plan launches to plain numbers at bound sizes, in the form that the CUDA driver
// takes: everything of a stranger's plan that can be judged without a GPU is judged here, so the null driver
// refuses what the cuda driver does. The windows come from bind_step, check_plan has accepted the plan.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/common/abi.h"
#include "kernels/common/cuda_launch.h"
#include "kernels/common/library_call.h"
#include "plan/plan.h"

namespace aicf {

struct BoundLaunch {
  std::array<uint32_t, 3> grid{};
  std::vector<uint64_t> words;  // params, then the bits of fparams

  bool empty() const { return grid[0] == 0 || grid[1] == 0 || grid[2] == 0; }
};

// bad_artifact if a grid cannot hold the blocks, and what evaluating a size throws.
BoundLaunch bind_launch(const Step& step, const CudaLaunch& launch, const SymbolValues& sizes);

// The arguments of cuTensorMapEncodeTiled but for the address.
struct TensorMapGeometry {
  int dtype = 0;  // CUtensorMapDataType
  uint32_t rank = 0;
  std::array<uint64_t, 5> sizes{}, strides{};  // elements; bytes, of all axes but the innermost
  std::array<uint32_t, 5> box{}, steps{};      // elements passed over count in `box`
  int swizzle = 0;                             // CUtensorMapSwizzle
};

// Operands by number, inputs first.
const TensorArg& operand_of(const BoundCall& call, int32_t number);

// bad_artifact if the copy engine cannot walk this window.
TensorMapGeometry tensor_map_geometry(const Step& step, const TensorMapSpec& spec, const BoundCall& call);

// The call of a library that the step asks for, nullopt if it asks for none; bad_artifact if its text or its
// workspace is not sound.
std::optional<LibraryCall> bound_library_call(const EntryPlan& entry, const Step& step);

// What a driver without a GPU can tell of a step: all of the above.
void check_launches(const EntryPlan& entry, const Step& step, const BoundCall& call,
                    const SymbolValues& sizes);

}  // namespace aicf
