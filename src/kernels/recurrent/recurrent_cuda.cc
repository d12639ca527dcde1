// CUDA rows of recurrent layers and their gradients.
#include <algorithm>

#include "base/error.h"
#include "kernels/common/cuda_text.h"
#include "kernels/common/cuda_walk.h"
#include "kernels/recurrent/recurrent_plan.h"

namespace aicf {
namespace {

constexpr int64_t kUnbounded = 1 << 16, kUnknownSize = 64;  // of a batch, or a length

// Operands in the order of ops.def. An absent one is left out of a problem's.
enum Forward : size_t { kX, kH, kW };
enum Backward : size_t { kBackW, kBackH, kBackY, kBackCells, kBackGates, kBackDy, kBackC };
enum Cell : int64_t { kLstm, kGru };

int64_t gates_of(const Shape& w) {
  const int64_t hidden = w[2].constant_part();
  return hidden > 0 ? w[1].constant_part() / hidden : 0;
}

bool takes(const Problem& problem, size_t w) {
  if (problem.inputs.size() <= w) return false;
  const ProblemTensor& weights = problem.inputs[w];
  const bool is_known = weights.sizes[1].is_constant() && weights.sizes[2].is_constant();
  return is_known && (weights.dtype == DType::f32 || is_half(weights.dtype)) && gates_of(weights.sizes) > 0;
}

RecurrentWork forward_work(DType dtype, const Shape& w, int64_t batch, int64_t length) {
  const int64_t hidden = w[2].constant_part(), gates = gates_of(w);
  return {hidden, hidden, gates, 1, dtype_bytes(dtype), batch, length, w[0].constant_part()};
}
RecurrentWork backward_work(DType dtype, const Shape& w, int64_t batch, int64_t length) {
  const int64_t hidden = w[2].constant_part(), gates = gates_of(w);
  return {hidden, gates * hidden, 1, gates, dtype_bytes(dtype), batch, length, w[0].constant_part(), 1};
}

int64_t most(const Dim& size, const CudaProblem& problem) {
  const int64_t bound = upper_bound(size, problem.ranges);
  return bound < kUnbounded ? bound : kUnknownSize;
}

RecurrentPlan plan_of(RecurrentWork work, const CudaProblem& problem) {
  work.machine = problem.machine;
  const auto plan = recurrent_plan(work);
  AICF_CHECK(plan.has_value(), "weights of a recurrent layer fit a cluster where a row took it");
  return *plan;
}

// "{in0, first, second, third}"; an operand that is absent is empty.
std::string steps_text(const std::string& name, const CudaWindow* window, CudaParams& params) {
  if (window == nullptr) return "{}";
  std::string text = "{" + name;
  for (size_t i = 0; i < 3; ++i)
    text += ", " + (i < window->strides.size() ? params.expr(window->strides[i]) : std::string("0"));
  return text + "}";
}

struct Text {
  const CudaProblem& problem;
  CudaParams params = {};

  std::string input(size_t i) {
    return steps_text("in" + std::to_string(i), i < problem.inputs.size() ? &problem.inputs[i] : nullptr,
                      params);
  }
  std::string absent() const { return "{}"; }
  std::string output(size_t i) { return steps_text("out" + std::to_string(i), &problem.outputs[i], params); }
};

std::string plan_text(const RecurrentPlan& plan) {
  return std::to_string(plan.cluster) + ", " + std::to_string(plan.warps) + ", " +
         std::to_string(plan.units) + ", " + std::to_string(plan.rows) + ", " +
         std::to_string(plan.in_registers);
}

std::string flag(bool value) { return value ? "true" : "false"; }

struct Walked {
  Dim length, batch, directions;
  bool reverse;
};

CudaCode code_of(const CudaProblem& problem, const std::string& name, const RecurrentPlan& plan,
                 const Walked& walked, const std::string& type, const std::string& operands_type,
                 std::string operands, Text& text, std::vector<int32_t> early) {
  const Dim groups = ceildiv(walked.batch, Dim(plan.rows));
  operands += ",\n      " + text.params.expr(walked.length) + ", " + text.params.expr(walked.batch) + ", " +
              text.params.expr(groups) + ", " + flag(walked.reverse);
  CudaLaunch launch;
  launch.function = name;
  launch.grid[0] = groups * walked.directions * Dim(plan.cluster);
  launch.block = plan.warps * 32;
  launch.cluster = plan.cluster;
  launch.shared_bytes = plan.shared_bytes;
  launch.params = text.params.dims();
  launch.early_inputs = std::move(early);
  CudaCode code;
  code.source = includes({"recurrent/recurrent.cuh"}) + "\n" + cuda_kernel_head(problem, launch, false, 1) +
                "  const " + operands_type + " operands = {" + operands + "};\n  " + type +
                "::run(operands, block_index);\n}\n";
  code.compile_cost = kLongToCompile / 2;
  code.launches.push_back(std::move(launch));
  return code;
}

}  // namespace

bool can_run_recurrent_cluster(const Problem& problem) {
  if (!takes(problem, kW)) return false;
  return recurrent_plan(forward_work(problem.inputs[kW].dtype, problem.inputs[kW].sizes, 1, 1)).has_value();
}

bool can_run_recurrent_backward_cluster(const Problem& problem) {
  if (!takes(problem, kBackW)) return false;
  return recurrent_plan(backward_work(problem.inputs[kBackW].dtype, problem.inputs[kBackW].sizes, 1, 1))
      .has_value();
}

CudaCode generate_recurrent_cluster(const CudaProblem& problem) {
  const CudaWindow &x = problem.inputs[kX], &w = problem.inputs[kW];
  const int64_t cell = problem.params[0].require_constant("cell");
  const bool reverse = problem.params[1].require_constant("direction") == 1;
  const bool keep = problem.params[2].require_constant("keep") != 0, is_lstm = cell == kLstm;
  const size_t rest = problem.inputs.size() - (kW + 1);
  const bool has_bias = rest == (is_lstm ? 2 : 1);
  const RecurrentPlan plan =
      plan_of(forward_work(x.dtype, w.sizes, most(x.sizes[1], problem), most(x.sizes[0], problem)), problem);
  const std::string element(cuda_type(x.dtype));
  const bool early = w.constant || w.ready;
  Text text{problem};
  std::string operands = text.input(kX) + ", " + text.input(kH) + ", " + text.input(kW) + ", ";
  operands += (has_bias ? text.input(kW + 1) : text.absent()) + ", ";
  operands += (is_lstm ? text.input(problem.inputs.size() - 1) : text.absent()) + ",\n      ";
  operands += text.output(0) + ", " + text.output(1) + ", " + text.output(2);
  const std::string type = "aicf::RecurrentLayer<" + element + ", " + std::to_string(cell) + ", " +
                           std::to_string(w.sizes[2].constant_part()) + ", " + plan_text(plan) + ", " +
                           flag(has_bias) + ", " + flag(keep) + ", " + flag(early) + ">";
  return code_of(problem, "recurrent", plan, {x.sizes[0], x.sizes[1], w.sizes[0], reverse}, type,
                 "aicf::RecurrentOperands<" + element + ">", operands, text,
                 early ? std::vector<int32_t>{static_cast<int32_t>(kW)} : std::vector<int32_t>{});
}

CudaCode generate_recurrent_backward_cluster(const CudaProblem& problem) {
  const CudaWindow &w = problem.inputs[kBackW], &y = problem.inputs[kBackY];
  const int64_t cell = problem.params[0].require_constant("cell");
  const bool reverse = problem.params[1].require_constant("direction") == 1;
  const bool has_dcells = problem.inputs.size() == kBackC + 2;
  const RecurrentPlan plan =
      plan_of(backward_work(y.dtype, w.sizes, most(y.sizes[1], problem), most(y.sizes[0], problem)), problem);
  const std::string element(cuda_type(y.dtype));
  Text text{problem};
  std::string operands;
  for (size_t i = 0; i < kBackC + 2; ++i) operands += text.input(i) + ", ";
  operands += "\n      " + text.output(0) + ", " + text.output(1) + ", " + text.output(2);
  const std::string type = "aicf::RecurrentGradient<" + element + ", " + std::to_string(cell) + ", " +
                           std::to_string(w.sizes[2].constant_part()) + ", " + plan_text(plan) + ", " +
                           flag(has_dcells) + ">";
  return code_of(problem, "recurrent_backward", plan, {y.sizes[0], y.sizes[1], w.sizes[0], reverse}, type,
                 "aicf::RecurrentGradientOperands<" + element + ">", operands, text, {});
}

}  // namespace aicf
