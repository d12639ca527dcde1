// What scatters by the same indices can share on CUDA: their updates in the order of the places that they go
// to, and where those of each place begin. One scatter leaves it as a further output of `bytes` bytes, others
// take it as a further input.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "kernels/common/cuda_kernel.h"

namespace aicf {

// What the order depends on, beside the memory of the indices.
struct ScatterOrder {
  std::vector<Dim> sizes, index_strides, target_strides, bounds, target_steps;
  Dim offset, component_stride, targets;
  Dim bytes;
  bool operator==(const ScatterOrder&) const = default;
};
// Where sorted updates lie, and with them where those of each place begin.
enum class OrderMemory : uint8_t {
  kWorkspace,
  kLeft,   // the last output, for scatters that follow
  kTaken,  // the last input: another scatter has left it
};
// Of a scatter with so many operands and results: x, indices and updates give one result.
constexpr OrderMemory order_memory(size_t inputs, size_t outputs) {
  return inputs > 3 ? OrderMemory::kTaken : outputs > 1 ? OrderMemory::kLeft : OrderMemory::kWorkspace;
}

// In cycles: what making the order takes, and what a scatter that has it saves.
struct ScatterOrderCost {
  double making = 0, saved = 0;
};
// None of a row that is no scatter, or a scatter that sorts nothing which others could take.
std::optional<ScatterOrder> scatter_order(std::string_view row, const CudaProblem& problem,
                                          ScatterOrderCost* cost = nullptr);

}  // namespace aicf
