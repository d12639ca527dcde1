// The CUDA row of rope_append; the kernel is rope_append.cuh.
#include <algorithm>

#include "base/error.h"
#include "kernels/attention/cuda/rope_text.h"
#include "kernels/indexing/copy_cuda.h"

namespace aicf {
namespace {

constexpr int64_t kBlock = 64;
enum Operand : size_t { kRopeQ, kRopeK, kRopeV, kCos, kSin, kKeys, kValues, kPosition = kRopePosition };
constexpr size_t kOperands = 8;

struct Sizes {
  int64_t pairs, depth, value_depth;
};

Sizes rope_sizes(const CudaProblem& problem) {
  const auto last = [&](Operand operand) {
    return problem.inputs[operand].sizes.back().require_constant("a head's size");
  };
  return {last(kCos), last(kRopeQ), last(kRopeV)};
}

// Strides over [batch, head, step, column]; 0 where the window broadcasts.
std::vector<Dim> four_strides(const CudaWindow& window) {
  std::vector<Dim> strides(4, Dim(0));
  const size_t rank = window.sizes.size();
  for (size_t i = 0; i < rank; ++i)
    if (!(window.sizes[i] == Dim(1)) || i + 1 == rank) strides[4 - rank + i] = window.strides[i];
  return strides;
}

bool moves_by(const CudaWindow& window, int64_t unit) {
  const std::vector<Dim> strides = four_strides(window);
  return strides[3] == Dim(1) && is_multiple(window.offset, unit) &&
         std::all_of(strides.begin(), strides.end() - 1, [&](const Dim& s) { return is_multiple(s, unit); });
}

// Elements of one access, 16 bytes at most.
int64_t rope_unit(const CudaProblem& problem, const Sizes& sizes) {
  std::vector<const CudaWindow*> windows;
  for (size_t i = 0; i < kPosition; ++i)
    if (i != kKeys && i != kValues) windows.push_back(&problem.inputs[i]);
  for (const CudaWindow& out : problem.outputs) windows.push_back(&out);
  int64_t unit = 16 / dtype_bytes(problem.inputs[kRopeQ].dtype);
  const auto fits = [&] {
    return sizes.pairs % unit == 0 && sizes.depth % unit == 0 && sizes.value_depth % unit == 0 &&
           std::all_of(windows.begin(), windows.end(),
                       [&](const CudaWindow* w) { return moves_by(*w, unit); });
  };
  while (unit > 1 && !fits()) unit /= 2;
  return unit;
}

std::string view(const CudaWindow& window, CudaParams& params) {
  std::string text = "{";
  for (const Dim& stride : four_strides(window)) text += (text.size() > 1 ? ", " : "") + params.expr(stride);
  return text + "}";
}

}  // namespace

std::string rope_sizes_text(const CudaProblem& problem) {
  const Sizes sizes = rope_sizes(problem);
  std::string text = "<";
  for (const int64_t number : {rope_unit(problem, sizes), sizes.pairs, sizes.depth, sizes.value_depth})
    text += std::to_string(number) + ", ";
  return text + (problem.params[0] == Dim(0) ? "false>" : "true>");
}

std::string rope_operands_text(const CudaProblem& problem, const std::vector<std::string>& in,
                               const std::vector<std::string>& out, CudaParams& params) {
  const CudaWindow &q = problem.inputs[kRopeQ], &position = problem.inputs[kPosition];
  std::string text = "  const aicf::attention::RopeAppend<" + std::string(cuda_type(q.dtype)) + "> o = {";
  for (Operand operand : {kRopeQ, kRopeK, kRopeV, kCos, kSin, kPosition}) text += in[operand] + ", ";
  for (const std::string& name : out) text += name + ", ";
  text += "\n      ";
  for (Operand operand : {kRopeQ, kRopeK, kRopeV, kCos, kSin})
    text += view(problem.inputs[operand], params) + ", ";
  for (const CudaWindow& window : problem.outputs) text += view(window, params) + ", ";
  text += "\n      " + (position.sizes[0] == Dim(1) ? "0" : params.expr(position.strides[0])) + ", " +
          params.expr(problem.outputs[1].sizes[2]);
  for (const Dim& size : {q.sizes[1], problem.inputs[kRopeK].sizes[1], q.sizes[2]})
    text += ", int32_t(" + params.expr(size) + ")";
  return text + "};\n";
}

bool can_run_rope_append(const Problem& p) {
  if (p.inputs.size() != kOperands || p.outputs.size() != 3 || p.inputs[kCos].sizes.size() > 4) return false;
  return std::all_of(p.inputs.begin(), p.inputs.end(), [](const ProblemTensor& x) {
    return x.sizes.size() == 1 || (!x.sizes.empty() && x.sizes.back().is_constant());
  });
}

CudaCode generate_rope_append(const CudaProblem& problem) {
  const Sizes sizes = rope_sizes(problem);
  const int64_t unit = rope_unit(problem, sizes);
  const CudaWindow& q = problem.inputs[kRopeQ];
  CudaCode code;
  code.source = includes({"indexing/indexing.cuh", "attention/cuda/rope_append.cuh"});
  if (!problem.replaces(kKeys)) add_copy(code, problem, kKeys, "copy_keys", 1);
  if (!problem.replaces(kValues)) add_copy(code, problem, kValues, "copy_values", 2);
  CudaParams params;
  const auto names = [](const char* prefix, size_t count) {
    std::vector<std::string> list;
    for (size_t i = 0; i < count; ++i) list.push_back(prefix + std::to_string(i));
    return list;
  };
  const std::string body = rope_operands_text(problem, names("in", kOperands), names("out", 3), params) +
                           "  aicf::attention::rope_append" + rope_sizes_text(problem) + "(o, error);\n";
  const Dim items = (q.sizes[1] + problem.inputs[kRopeK].sizes[1]) * Dim((sizes.depth - sizes.pairs) / unit) +
                    problem.inputs[kRopeK].sizes[1] * Dim(sizes.value_depth / unit);
  const Dim blocks = blocks_for(items, kBlock) * q.sizes[0] * q.sizes[2];
  CudaLaunch launch = flat_launch("rope_append", blocks, kBlock, params);
  launch.reports_errors = true;
  add_kernel(code, problem, std::move(launch), body);
  return code;
}

}  // namespace aicf
