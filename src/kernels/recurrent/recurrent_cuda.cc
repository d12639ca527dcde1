// CUDA rows of recurrent layers and their gradients.
#include <algorithm>

#include "base/error.h"
#include "kernels/common/cuda_text.h"
#include "kernels/common/cuda_walk.h"
#include "kernels/recurrent/recurrent_mma_plan.h"

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

RecurrentWork work_of(const CudaProblem& problem) {
  const CudaWindow& x = problem.inputs[kX];
  RecurrentWork work =
      forward_work(x.dtype, problem.inputs[kW].sizes, most(x.sizes[1], problem), most(x.sizes[0], problem));
  work.machine = problem.machine;
  return work;
}

// The plans that compete for a layer; where both are there, the cheapest of matrix units and that of the
// threads' own.
constexpr size_t kMostWays = 6;  // of matrix units
struct Planned {
  RecurrentWay way;
  double cycles;
};
std::vector<Planned> planned_ways(const RecurrentWork& work) {
  std::vector<Planned> ways;
  for (const RecurrentMmaPlan& plan : recurrent_mma_plans(work)) {
    if (ways.size() == kMostWays) break;
    ways.push_back({plan.way(), plan.cycles});
  }
  if (const auto plan = recurrent_plan(work)) ways.push_back({{}, plan->cycles});
  std::stable_sort(ways.begin(), ways.end(),
                   [](const Planned& a, const Planned& b) { return a.cycles < b.cycles; });
  return ways;
}

RecurrentMmaPlan mma_plan_of(const RecurrentWork& work, const RecurrentWay& way) {
  const auto plans = recurrent_mma_plans(work);
  const auto found = std::find_if(plans.begin(), plans.end(),
                                  [&](const RecurrentMmaPlan& plan) { return plan.way() == way; });
  AICF_CHECK(found != plans.end(), "a recurrent layer is asked for in a way that it has");
  return *found;
}

// Neighbouring elements of rows of weights that may be loaded at once.
int64_t load_width(const CudaWindow& w) {
  if (w.strides[2] != Dim(1)) return 1;
  for (int64_t width = 8; width > 1; width /= 2)
    if (is_multiple(w.offset, width) && is_multiple(w.strides[0], width) &&
        is_multiple(w.strides[1], width) && is_multiple(w.sizes[2], width))
      return width;
  return 1;
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

// What a launch needs to know of a plan.
struct Spread {
  int32_t cluster, warps, rows;
  int64_t shared_bytes;
};
Spread spread_of(const RecurrentPlan& plan) {
  return {plan.cluster, plan.warps, plan.rows, plan.shared_bytes};
}

std::string plan_text(const RecurrentMmaPlan& plan) {
  return std::to_string(plan.cluster) + ", " + std::to_string(plan.groups) + ", " +
         std::to_string(plan.slices) + ", " + std::to_string(plan.rows) + ", " +
         std::to_string(plan.in_registers) + ", " + std::to_string(plan.in_shared);
}
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

CudaCode code_of(const CudaProblem& problem, const std::string& name, const std::string& header,
                 const Spread& plan, const Walked& walked, const std::string& type,
                 const std::string& operands_type, std::string operands, Text& text,
                 std::vector<int32_t> early) {
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
  code.source = includes({header}) + "\n" + cuda_kernel_head(problem, launch, false, 1) + "  const " +
                operands_type + " operands = {" + operands + "};\n  " + type +
                "::run(operands, block_index);\n}\n";
  code.compile_cost = kLongToCompile / 2;
  code.launches.push_back(std::move(launch));
  return code;
}

}  // namespace

bool can_run_recurrent_cluster(const Problem& problem) {
  if (!takes(problem, kW)) return false;
  const Dim& batch = problem.inputs[kX].sizes[1];
  const RecurrentWork work = forward_work(problem.inputs[kW].dtype, problem.inputs[kW].sizes,
                                          batch.is_constant() ? batch.constant_part() : kUnknownSize, 1);
  if (recurrent_plan(work)) return true;
  const auto plans = recurrent_mma_plans(work);
  return !plans.empty() && plans[0].step_cycles < decomposed_step_cycles(work);
}

bool can_run_recurrent_backward_cluster(const Problem& problem) {
  if (!takes(problem, kBackW)) return false;
  return recurrent_plan(backward_work(problem.inputs[kBackW].dtype, problem.inputs[kBackW].sizes, 1, 1))
      .has_value();
}

std::vector<KernelVariant> recurrent_cluster_variants(const CudaProblem& problem) {
  std::vector<KernelVariant> variants;
  for (const Planned& planned : planned_ways(work_of(problem)))
    variants.push_back({planned.way, planned.cycles / kCyclesPerMicrosecond});
  return variants;
}

CudaCode generate_recurrent_cluster(const CudaProblem& problem) {
  const CudaWindow &x = problem.inputs[kX], &w = problem.inputs[kW];
  const int64_t cell = problem.params[0].require_constant("cell");
  const bool reverse = problem.params[1].require_constant("direction") == 1;
  const bool keep = problem.params[2].require_constant("keep") != 0, is_lstm = cell == kLstm;
  const size_t rest = problem.inputs.size() - (kW + 1);
  const bool has_bias = rest == (is_lstm ? 2 : 1);
  const RecurrentWork work = work_of(problem);
  const auto* asked = std::get_if<RecurrentWay>(&problem.way);
  const RecurrentWay way = asked != nullptr ? *asked : planned_ways(work).at(0).way;
  const std::string element(cuda_type(x.dtype));
  const bool early = w.constant || w.ready;
  Text text{problem};
  std::string operands = text.input(kX) + ", " + text.input(kH) + ", " + text.input(kW) + ", ";
  operands += (has_bias ? text.input(kW + 1) : text.absent()) + ", ";
  operands += (is_lstm ? text.input(problem.inputs.size() - 1) : text.absent()) + ",\n      ";
  operands += text.output(0) + ", " + text.output(1) + ", " + text.output(2);
  const std::string layer = "<" + element + ", " + std::to_string(cell) + ", " +
                            std::to_string(w.sizes[2].constant_part()) + ", ",
                    flags = ", " + flag(has_bias) + ", " + flag(keep) + ", " + flag(early) + ">";
  std::string type, header;
  Spread spread;
  if (way.unit == RecurrentUnit::kMma) {
    const RecurrentMmaPlan plan = mma_plan_of(work, way);
    type = "aicf::RecurrentMmaLayer" + layer + plan_text(plan) + ", " + std::to_string(load_width(w)) + flags;
    header = "recurrent/recurrent_mma.cuh";
    spread = {plan.cluster, plan.warps(), plan.rows, plan.shared_bytes};
  } else {
    const RecurrentPlan plan = plan_of(work, problem);
    type = "aicf::RecurrentLayer" + layer + plan_text(plan) + flags;
    header = "recurrent/recurrent.cuh";
    spread = spread_of(plan);
  }
  return code_of(problem, "recurrent", header, spread, {x.sizes[0], x.sizes[1], w.sizes[0], reverse}, type,
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
  return code_of(problem, "recurrent_backward", "recurrent/recurrent.cuh", spread_of(plan),
                 {y.sizes[0], y.sizes[1], w.sizes[0], reverse}, type,
                 "aicf::RecurrentGradientOperands<" + element + ">", operands, text, {});
}

}  // namespace aicf
