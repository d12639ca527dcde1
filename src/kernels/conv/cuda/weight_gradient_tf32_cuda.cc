// The rows of weight gradients of f32 in tf32, and by parts as three products in tf32.
#include <algorithm>
#include <span>

#include "base/rounding.h"
#include "kernels/common/cuda_machine.h"
#include "kernels/common/cuda_walk.h"
#include "kernels/conv/cuda/conv_problem_cuda.h"
#include "kernels/conv/cuda/weight_gradient_problem.h"
#include "kernels/matmul/cuda/matmul_operands.h"

namespace aicf {
namespace {

constexpr int64_t kTf32Vector = 4;  // f32 in 16 bytes
constexpr int64_t kTf32Step = 32;   // of K

struct Tf32GradientTile {
  int m, n, warp_m, warp_n, stages, occupancy;  // blocks of a multiprocessor
  int threads() const { return m / warp_m * (n / warp_n) * 32; }
  int64_t shared_bytes() const { return int64_t{stages} * (m + n) * kStageBytes; }
};
constexpr Tf32GradientTile kTf32GradientTiles[] = {
    {128, 128, 64, 64, 3, 2}, {128, 64, 32, 64, 4, 2}, {64, 64, 32, 32, 4, 3}};
// By parts a result has three sums.
constexpr Tf32GradientTile kTf32x3GradientTiles[] = {{64, 64, 32, 32, 4, 2}, {128, 32, 32, 32, 4, 2}};

// Of f32 for which no tf32 is asked.
bool sums_by_parts(const CudaProblem& problem) { return !asks_tf32(problem.params); }
std::span<const Tf32GradientTile> tf32_gradient_tiles(const CudaProblem& problem) {
  return sums_by_parts(problem) ? std::span<const Tf32GradientTile>(kTf32x3GradientTiles)
                                : kTf32GradientTiles;
}

// An operand with its channels as neighbours, or its copy so.
WeightGradientOperand across_operand(const CudaWindow& w, int64_t groups, int64_t channels,
                                     bool by_position) {
  const std::optional<Dim> k = position_stride(w, true);
  if (!has_channel_vectors(w, channels, kTf32Vector) || (by_position && !k))
    return operand_copy(w, groups, round_up(channels, kTf32Vector));
  WeightGradientOperand o = operand_in_place(w, channels);
  o.k = k.value_or(Dim(0));
  return o;
}

// What runs.
struct Tf32GradientPlan {
  WeightGradientOperand x, y;
  bool in_place = false;
  Tf32GradientTile tile;
  WeightGradientParts parts;
  Dim part_depth;
  int64_t tiles = 1;
};

Tf32GradientPlan across_operands(const CudaProblem& problem, const WeightGradientProblem& w) {
  Tf32GradientPlan plan;
  plan.in_place = reads_in_place(w);
  plan.x = across_operand(problem.inputs[0], w.groups, w.channels, plan.in_place);
  plan.y = across_operand(problem.inputs[1], w.groups, w.maps, true);
  return plan;
}

int64_t tiles_of_results(const Tf32GradientTile& tile, const WeightGradientProblem& w,
                         const Tf32GradientPlan& plan) {
  return ceil_div(w.taps * plan.x.channels, int64_t{tile.m}) * ceil_div(plan.y.channels, int64_t{tile.n});
}

// Cycles of a multiprocessor: of its blocks' products; then the parts are written, read and added. The
// constants are estimates that no measurement has fitted yet.
double tf32_gradient_cycles(const CudaProblem& problem, const Tf32GradientTile& tile, int64_t tiles,
                            int64_t steps, int64_t parts, double part_bytes) {
  constexpr double kStart = 3000, kSumBytes = 1500;
  const bool by_parts = sums_by_parts(problem);
  const double products = by_parts ? 170 : 350, least_step = by_parts ? 1000 : 500;
  const CudaMachine& machine = problem.machine;
  const int64_t blocks = tiles * parts, at_a_time = machine.multiprocessors * tile.occupancy;
  const auto step = [&](int64_t occupancy) {
    return std::max(static_cast<double>(occupancy) * tile.m * tile.n * kTf32Step / products, least_step);
  };
  const int64_t full = blocks / at_a_time, rest = ceil_div(blocks % at_a_time, machine.multiprocessors);
  const double waves = static_cast<double>(full) * step(tile.occupancy) + (rest > 0 ? step(rest) : 0.0);
  return kStart + waves * static_cast<double>(ceil_div(steps, parts)) +
         2 * part_bytes * static_cast<double>(parts) / kSumBytes;
}

std::vector<KernelVariant> tf32_gradient_ways(const CudaProblem& problem, const WeightGradientProblem& w,
                                              const Tf32GradientPlan& plan) {
  constexpr int64_t kMostParts = 256, kFewestSteps = 8;
  const int64_t depth = size_to_choose_by(all_positions(problem, w), problem),
                steps = std::max<int64_t>(ceil_div(depth, kTf32Step), 1),
                most = std::clamp<int64_t>(steps / kFewestSteps, 1, kMostParts);
  const auto part_bytes = static_cast<double>(w.taps * plan.x.channels * plan.y.channels * w.groups * 4);
  return weight_gradient_ways(
      tf32_gradient_tiles(problem), most, [&](const Tf32GradientTile& tile, int64_t parts) {
        return tf32_gradient_cycles(problem, tile, tiles_of_results(tile, w, plan) * w.groups, steps, parts,
                                    part_bytes);
      });
}

Tf32GradientPlan tf32_gradient_plan(const CudaProblem& problem, const WeightGradientProblem& w) {
  Tf32GradientPlan plan = across_operands(problem, w);
  const auto way =
      asked_way<WeightGradientWay>(problem, [&] { return tf32_gradient_ways(problem, w, plan); });
  plan.tile = weight_gradient_tile(tf32_gradient_tiles(problem), way);
  plan.tiles = tiles_of_results(plan.tile, w, plan);
  plan.parts = weight_gradient_parts(w, way.parts, 1, plan.x.channels, plan.y.channels);
  plan.part_depth = part_depth(problem, w, way.parts, kTf32Step);
  return plan;
}

class Tf32GradientWriter {
 public:
  Tf32GradientWriter(const CudaProblem& problem, const WeightGradientProblem& w, const Tf32GradientPlan& plan)
      : problem_(problem), w_(w), plan_(plan) {}

  CudaCode write() {
    CudaCode code;
    code.compile_cost = kLongToCompile;
    const Dim y_at = copy_bytes(plan_.x, problem_), parts_at = y_at + copy_bytes(plan_.y, problem_);
    code.workspace_bytes = parts_at + Dim(plan_.parts.bytes());
    code.source = includes({"conv/cuda/weight_gradient_tf32.cuh"});
    if (plan_.x.packs)
      add_weight_gradient_copy(code, problem_, index_text(),
                               {0, w_.groups, w_.channels, plan_.x.channels, 1, Dim(0)});
    if (plan_.y.packs)
      add_weight_gradient_copy(code, problem_, index_text(),
                               {1, w_.groups, w_.maps, plan_.y.channels, 1, y_at});
    add_products(code, y_at, parts_at);
    add_weight_gradient_sum(code, problem_, w_, plan_.parts, parts_at);
    return code;
  }

 private:
  std::string index_text() const {
    return weight_gradient_index_text(problem_, max(elements(0, plan_.x), elements(1, plan_.y)), plan_.parts);
  }
  Dim elements(size_t input, const WeightGradientOperand& o) const {
    return o.packs ? o.elements : problem_.inputs[input].sizes[0] * o.batch;
  }

  void add_products(CudaCode& code, const Dim& y_at, const Dim& parts_at) const {
    const Tf32GradientTile& tile = plan_.tile;
    CudaWindowAxes axes = w_.axes;
    for (size_t i = 0; i < axes.size(); ++i) {
      axes[i].in_stride = plan_.x.axis[i];
      axes[i].out_stride = Dim(0);
    }
    CudaParams params;
    const auto number = [&](const Dim& dim) { return ", I(" + params.expr(dim) + ")"; };
    const auto comma = [](int v) { return std::to_string(v) + ", "; };
    const std::string x = plan_.x.packs ? workspace_copy(problem_, Dim(0), params) : "in0",
                      y = plan_.y.packs ? workspace_copy(problem_, y_at, params) : "in1";
    const std::string body =
        index_text() + "  const aicf::Tf32GradientOperands<float, I> o = {" + x + ", " + y + ", " +
        window_axes_text(axes, params) + number(problem_.inputs[0].sizes[0]) + number(Dim(plan_.x.channels)) +
        number(Dim(plan_.y.channels)) + number(plan_.x.batch) + number(plan_.x.group) +
        number(plan_.y.group) + number(plan_.x.k) + number(plan_.y.k) +
        "};\n  aicf::WeightGradientTf32<float, " + comma(tile.m) + comma(tile.n) + comma(tile.warp_m) +
        comma(tile.warp_n) + comma(tile.stages) + flag(plan_.in_place) + ", " +
        flag(sums_by_parts(problem_)) + ">::run(o" + number(Dim(plan_.parts.count)) +
        number(plan_.part_depth) + ", reinterpret_cast<float*>(static_cast<char*>(workspace) + " +
        params.expr(parts_at) + ")" + number(Dim(plan_.parts.row)) + number(Dim(plan_.parts.group)) +
        number(Dim(plan_.parts.part)) + ");\n";
    CudaLaunch launch =
        flat_launch((sums_by_parts(problem_) ? "weight_gradient_tf32x3_" : "weight_gradient_tf32_f32_") +
                        std::to_string(tile.m) + "x" + std::to_string(tile.n),
                    Dim(plan_.tiles * plan_.parts.count), tile.threads(), params);
    launch.grid[1] = Dim(w_.groups);
    launch.shared_bytes = tile.shared_bytes();
    add_kernel(code, problem_, std::move(launch), body, tile.occupancy);
  }

  const CudaProblem& problem_;
  const WeightGradientProblem& w_;
  const Tf32GradientPlan& plan_;
};

}  // namespace

bool can_run_weight_gradient_tf32(const Problem& problem) {
  return has_known_products(problem) && asks_tf32(problem.params);
}

// Those of depthwise convolutions have a row of their own.
bool can_run_weight_gradient_tf32x3(const Problem& problem) {
  return has_known_products(problem) && problem.inputs[0].dtype == DType::f32 && !asks_tf32(problem.params) &&
         (problem.outputs[0].sizes[1] != Dim(1) || problem.inputs[0].sizes[1] == Dim(1));
}

CudaCode generate_weight_gradient_tf32(const CudaProblem& problem) {
  const WeightGradientProblem w = weight_gradient_problem(problem);
  const Tf32GradientPlan plan = tf32_gradient_plan(problem, w);
  return Tf32GradientWriter(problem, w, plan).write();
}

std::vector<KernelVariant> weight_gradient_tf32_variants(const CudaProblem& problem) {
  const WeightGradientProblem w = weight_gradient_problem(problem);
  return tf32_gradient_ways(problem, w, across_operands(problem, w));
}

}  // namespace aicf
