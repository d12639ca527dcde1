// Text that all CUDA rows of a scatter share.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "base/comma_list.h"
#include "kernels/common/cuda_text.h"
#include "kernels/indexing/scatter_cuda.h"

namespace aicf {

constexpr int32_t kScatterBlock = 256;

// Without launches.
inline CudaCode scatter_code() {
  CudaCode code;
  code.source = includes({"indexing/indexing.cuh", "indexing/scatter.cuh"});
  return code;
}

inline std::string reduction_number(ScatterReduction reduction) {
  return std::to_string(static_cast<int64_t>(reduction));
}

// What replaces is moved as bits.
inline std::string element_type(DType dtype, ScatterReduction reduction) {
  if (reduction == ScatterReduction::none) return "aicf::Bits<" + std::to_string(dtype_bytes(dtype)) + ">";
  return std::string(cuda_type(dtype));
}

inline std::string pointer_text(const std::string& type, const std::string& name, bool constant) {
  return "reinterpret_cast<" + std::string(constant ? "const " : "") + type + "*>(" + name + ")";
}

// A Scatter of this problem, `s`, in a kernel of so many threads.
inline std::string scatter_text(const CudaProblem& problem, const ScatterProblem& s, const Dim& threads,
                                CudaParams& params) {
  const auto wide_list = [&](const std::vector<Dim>& dims, bool as_params = false) {
    const std::string list =
        comma_list(dims, [&](const Dim& dim) { return as_params ? params.param(dim) : params.expr(dim); });
    return "{" + (list.empty() ? "0" : list) + "}";
  };
  return "  using I = " + std::string(index_type(problem, threads)) + ";\n  const aicf::Scatter<I, " +
         std::to_string(s.lines.rank()) + ", " + std::to_string(s.places.rank()) + ", " +
         std::to_string(s.block.rank()) + ", " + std::to_string(s.bounds.size()) + "> s = {" +
         walk_value(s.lines, params) + ", " + walk_value(s.places, params) + ", " +
         walk_value(s.block, params) + ", " + wide_list(s.bounds, is_member(problem)) + ", " +
         wide_list(s.target_steps) + ", I(" + params.expr(s.component_stride) + ")};\n";
}

// Whether all places of the window are one element.
inline bool is_one_element(const CudaWindow& x) {
  return std::all_of(x.strides.begin(), x.strides.end(), [](const Dim& stride) { return stride == Dim(0); });
}

}  // namespace aicf
