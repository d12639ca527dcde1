#include "kernels/common/cuda_walk.h"

#include <algorithm>
#include <limits>

#include "base/comma_list.h"
#include "base/error.h"

namespace aicf {

void CudaWalk::add_axis(const Dim& size, const std::vector<Dim>& axis_strides) {
  AICF_CHECK(axis_strides.size() == strides.size(), "a walk's axis needs a stride per tensor");
  sizes.push_back(size);
  for (size_t t = 0; t < strides.size(); ++t) strides[t].push_back(axis_strides[t]);
}

void CudaWalk::merge_axes() {
  CudaWalk merged(strides.size());
  for (size_t axis = 0; axis < rank(); ++axis) {
    if (sizes[axis] == Dim(1)) continue;
    const size_t last = merged.rank() - 1;
    bool joins = merged.rank() > 0;
    for (size_t t = 0; t < strides.size() && joins; ++t)
      joins = merged.strides[t][last] == strides[t][axis] * sizes[axis];
    if (joins) {
      merged.sizes[last] = merged.sizes[last] * sizes[axis];
      for (size_t t = 0; t < strides.size(); ++t) merged.strides[t][last] = strides[t][axis];
      continue;
    }
    std::vector<Dim> all;
    for (const std::vector<Dim>& of_tensor : strides) all.push_back(of_tensor[axis]);
    merged.add_axis(sizes[axis], all);
  }
  *this = std::move(merged);
}

CudaWalk walk_windows(const std::vector<const CudaWindow*>& windows) {
  CudaWalk walk(windows.size());
  for (size_t axis = 0; axis < windows[0]->sizes.size(); ++axis) {
    std::vector<Dim> strides;
    for (const CudaWindow* window : windows) strides.push_back(window->strides[axis]);
    walk.add_axis(windows[0]->sizes[axis], strides);
  }
  walk.merge_axes();
  return walk;
}

int64_t upper_bound(const Dim& dim, const SymbolRanges* ranges) {
  try {
    const Interval interval = bounds(dim, ranges != nullptr ? *ranges : SymbolRanges{});
    return std::max(interval.hi, -interval.lo);
  } catch (const UserError&) {
    return std::numeric_limits<int64_t>::max();
  }
}

int64_t size_to_choose_by(const Dim& dim, const CudaProblem& problem) {
  constexpr int64_t kUsual = 4096, kMost = int64_t{1} << 31;
  if (const auto value = dim.constant()) return *value;
  const int64_t most = upper_bound(dim, problem.ranges);
  return most < kMost ? most : kUsual;
}

bool is_multiple(const Dim& dim, int64_t of) { return divide_exactly(dim, Dim(of)).has_value(); }

std::string_view index_type(const CudaProblem& problem, const Dim& threads) {
  constexpr int64_t kLimit = (int64_t{1} << 31) - 65536;  // room for a block's overhang
  const auto fits = [&](const CudaWindow& window) {
    int64_t reach = 0;
    for (size_t axis = 0; axis < window.sizes.size(); ++axis) {
      const int64_t size = upper_bound(window.sizes[axis], problem.ranges);
      const int64_t stride = upper_bound(window.strides[axis], problem.ranges);
      if (size >= kLimit || stride >= kLimit) return false;
      reach += size * stride;
      if (reach >= kLimit) return false;
    }
    return true;
  };
  bool narrow = upper_bound(threads, problem.ranges) < kLimit;
  for (const CudaWindow& window : problem.inputs) narrow = narrow && fits(window);
  for (const CudaWindow& window : problem.outputs) narrow = narrow && fits(window);
  return narrow ? "int32_t" : "int64_t";
}

int64_t widest_unit(const CudaWalk& walk, const std::vector<Dim>& bases, int64_t element_bytes) {
  if (walk.rank() == 0) return 1;
  const size_t last = walk.rank() - 1;
  for (const std::vector<Dim>& strides : walk.strides)
    if (!(strides[last] == Dim(1))) return 1;
  const auto fits = [&](int64_t unit) {
    if (!is_multiple(walk.sizes[last], unit)) return false;
    for (const std::vector<Dim>& strides : walk.strides)
      for (size_t axis = 0; axis < last; ++axis)
        if (!is_multiple(strides[axis], unit)) return false;
    return std::all_of(bases.begin(), bases.end(), [&](const Dim& base) { return is_multiple(base, unit); });
  };
  int64_t unit = 16 / element_bytes;
  while (unit > 1 && !fits(unit)) unit /= 2;
  return unit;
}

Dim in_units(const Dim& elements, int64_t unit) {
  const auto units = divide_exactly(elements, Dim(unit));
  AICF_CHECK(units.has_value(), "not a whole number of units: " + elements.to_string());
  return *units;
}

void use_units(CudaWalk& walk, int64_t unit) {
  if (unit == 1) return;
  const size_t last = walk.rank() - 1;
  walk.sizes[last] = in_units(walk.sizes[last], unit);
  for (std::vector<Dim>& strides : walk.strides)
    for (size_t axis = 0; axis < last; ++axis) strides[axis] = in_units(strides[axis], unit);
}

std::string walk_type(const CudaWalk& walk) {
  return "aicf::Walk<I, " + std::to_string(walk.rank()) + ", " + std::to_string(walk.strides.size()) + ">";
}

std::string braced(const std::vector<Dim>& dims, CudaParams& params) {
  std::string text = "{";
  for (size_t i = 0; i < dims.size(); ++i) text += (i == 0 ? "I(" : ", I(") + params.expr(dims[i]) + ")";
  return text + (dims.empty() ? "0}" : "}");
}

std::string walk_value(const CudaWalk& walk, CudaParams& params) {
  const std::string sizes = braced(walk.sizes, params);  // params come in the order of the text
  const std::string strides =
      comma_list(walk.strides, [&](const std::vector<Dim>& steps) { return braced(steps, params); });
  return "{" + sizes + ", {" + (strides.empty() ? "{0}" : strides) + "}}";
}

size_t cuda_axis(const CudaProblem& problem, const CudaWindow& window) {
  const int64_t axis = problem.params[0].require_constant("axis of a kernel");
  return static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(window.sizes.size()) : axis);
}

Dim blocks_for(const Dim& threads, int64_t block) { return ceildiv(threads, Dim(block)); }

CudaLaunch flat_launch(std::string function, const Dim& blocks, int32_t block, const CudaParams& params) {
  CudaLaunch launch;
  launch.function = std::move(function);
  launch.grid[0] = blocks;
  launch.block = block;
  launch.params = params.dims();
  return launch;
}

void add_kernel(CudaCode& code, const CudaProblem& problem, CudaLaunch launch, const std::string& body,
                int min_blocks) {
  const bool workspace = !(code.workspace_bytes == Dim(0));
  const std::string wait =
      is_member(problem) ? "" : "  aicf::wait_for_inputs();\n  aicf::launch_dependents();\n";
  code.source += "\n" + cuda_kernel_head(problem, launch, workspace, min_blocks) + wait + body + "}\n";
  code.launches.push_back(std::move(launch));
}

std::string includes(const std::vector<std::string>& names) {
  std::string text = "#include \"prelude.cuh\"\n";
  for (const std::string& name : names) text += "#include \"" + name + "\"\n";
  return text;
}

}  // namespace aicf
