// The row of weight gradients on the matrix units of sm_90a.
#include <algorithm>

#include "base/rounding.h"
#include "kernels/common/cuda_machine.h"
#include "kernels/common/cuda_walk.h"
#include "kernels/conv/cuda/conv_problem_cuda.h"
#include "kernels/conv/cuda/weight_gradient_halo_cuda.h"
#include "kernels/conv/cuda/weight_gradient_problem.h"
#include "kernels/matmul/cuda/wgmma_text.h"

namespace aicf {
namespace {

constexpr int64_t kGradientVector = 8;  // halves in 16 bytes
constexpr int64_t kGradientStep = 64;   // of K

struct GradientTile {
  int m, n, warpgroups, stages, occupancy;  // blocks of a multiprocessor
  int64_t stage_bytes() const { return int64_t{m + n} * kGradientStep * 2; }
};
constexpr GradientTile kGradientTiles[] = {
    {256, 128, 2, 4, 1}, {128, 128, 2, 3, 2}, {128, 64, 2, 3, 3}, {64, 128, 1, 3, 3}, {64, 64, 1, 3, 4}};

// How an operand comes to shared memory.
enum class GradientLayout : uint8_t { across_k, along_k };
struct GradientOperand : WeightGradientOperand {
  GradientLayout layout = GradientLayout::across_k;
  bool by_position = false;  // across K: from one position to the next of all images is one distance, `k`
};

// So many positions are neighbours in one aligned unit.
int64_t position_unit(const CudaWindow& w) {
  Dim positions(1);
  for (size_t i = 2; i < w.sizes.size(); ++i) positions = positions * w.sizes[i];
  const auto stride = position_stride(w, false);
  int64_t unit = kGradientVector;
  const auto fits = [&] {
    return stride && *stride == Dim(1) && is_multiple(positions, unit) && starts_units(w, 2, unit);
  };
  while (unit > 1 && !fits()) unit /= 2;
  return unit;
}

GradientOperand gradient_operand(const CudaWindow& w, int64_t groups, int64_t channels, bool by_position) {
  GradientOperand o{operand_in_place(w, channels), GradientLayout::across_k, by_position};
  const auto distance = position_stride(w, true);
  if (has_channel_vectors(w, channels, kGradientVector) && (!by_position || distance)) {
    if (by_position) o.k = *distance;
  } else if (by_position && position_unit(w) == kGradientVector) {
    o.layout = GradientLayout::along_k;
  } else {
    static_cast<WeightGradientOperand&>(o) = operand_copy(w, groups, round_up(channels, kGradientVector));
  }
  return o;
}

// What runs.
struct GradientPlan {
  int64_t merged = 1, groups = 1;  // groups of the convolution in one of the products; groups of the products
  GradientOperand x, y;
  GradientTile tile;
  WeightGradientParts parts;
  Dim part_depth;
  int64_t tiles = 1;
};

// Groups side by side in one tile, whose products of different groups are wasted: as many as fill a tile.
int64_t groups_together(const WeightGradientProblem& w) {
  constexpr int64_t kWide = 64;
  int64_t count = 1;
  for (int64_t n = 1; n <= w.groups; ++n)
    if (w.groups % n == 0 && n * std::max(w.channels, w.maps) <= kWide) count = n;
  return count;
}

// What decides over the cycles beside the tile and the parts.
struct GradientWork {
  int64_t rows = 1, columns = 1, groups = 1, steps = 1;
  int64_t channels = 1;     // of a group of the products
  double copied_bytes = 0;  // read and written before
  int copies = 0;
  double operand_bytes = 0;
  CudaMachine machine = {};
};

GradientWork gradient_work(const CudaProblem& problem, const WeightGradientProblem& w,
                           const GradientPlan& plan) {
  GradientWork work;
  work.machine = problem.machine;
  work.rows = w.taps * plan.x.channels;
  work.columns = plan.y.channels;
  work.groups = plan.groups;
  work.channels = plan.x.channels;
  work.steps =
      std::max<int64_t>(ceil_div(size_to_choose_by(all_positions(problem, w), problem), kGradientStep), 1);
  for (const auto& [operand, window] :
       {std::pair(&plan.x, &problem.inputs[0]), {&plan.y, &problem.inputs[1]}}) {
    const auto bytes = 2 * static_cast<double>(size_to_choose_by(element_count(window->sizes), problem));
    work.operand_bytes += bytes;
    if (!operand->packs) continue;
    ++work.copies;
    work.copied_bytes += bytes + 2 * static_cast<double>(size_to_choose_by(operand->elements, problem));
  }
  return work;
}

// Cycles of a multiprocessor until a block's copies of a step are there: bytes in sectors of 32, or lines of
// the L1 cache, each by itself.
double copy_cycles(const GradientTile& tile, const GradientWork& work) {
  constexpr double kBytes = 37, kLine = 1;  // a cycle; cycles
  constexpr int64_t kSectorChannels = 16, kLineChannels = 64;
  const int64_t together = std::min(work.channels, kLineChannels);
  const double sectors =
      std::max(1.0, static_cast<double>(kSectorChannels) / static_cast<double>(work.channels));
  const double bytes = 2 * kGradientStep * (tile.m * sectors + tile.n);
  const auto lines =
      static_cast<double>(kGradientStep * (ceil_div(tile.m, together) + ceil_div(tile.n, kLineChannels)));
  return std::max(bytes / kBytes, lines * kLine);
}

// Cycles of a multiprocessor: for the products what the matrix units or the copies take, whichever is more,
// of the blocks that it has at a time; before, copies of operands, and behind, the parts are written, read
// and added. Fitted to 68 runs of 16 problems on an H100, of which it misses the logarithms by 0.08.
double gradient_cycles(const GradientTile& tile, const GradientWork& work, int64_t parts) {
  constexpr double kProducts = 1015, kLeastStep = 830, kStart = 6300, kCopy = 3000, kSumBytes = 1900,
                   kMemoryBytes = 1400;
  const int64_t tiles = ceil_div(work.rows, int64_t{tile.m}) * ceil_div(work.columns, int64_t{tile.n}) *
                        work.groups,
                blocks = tiles * parts, at_a_time = work.machine.multiprocessors * tile.occupancy;
  const auto step = [&](int64_t occupancy) {
    const auto n = static_cast<double>(occupancy);
    return std::max(
        {n * tile.m * tile.n * kGradientStep / kProducts, n * copy_cycles(tile, work), kLeastStep});
  };
  const int64_t full = blocks / at_a_time, rest = ceil_div(blocks % at_a_time, work.machine.multiprocessors);
  const double waves = static_cast<double>(full) * step(tile.occupancy) + (rest > 0 ? step(rest) : 0.0),
               products = waves * static_cast<double>(ceil_div(work.steps, parts)),
               part_bytes = static_cast<double>(work.rows * work.columns * work.groups * 4);
  return kStart + kCopy * work.copies + work.copied_bytes / kMemoryBytes +
         std::max(products, work.operand_bytes / kMemoryBytes) +
         2 * part_bytes * static_cast<double>(parts) / kSumBytes;
}

// Operands, without a way.
GradientPlan gradient_operands(const CudaProblem& problem, const WeightGradientProblem& w) {
  GradientPlan plan;
  plan.merged = groups_together(w);
  plan.groups = w.groups / plan.merged;
  plan.x = gradient_operand(problem.inputs[0], plan.groups, plan.merged * w.channels, reads_in_place(w));
  plan.y = gradient_operand(problem.inputs[1], plan.groups, plan.merged * w.maps, true);
  return plan;
}

// Tap by tap, and with boxes that come with their halo.
std::vector<KernelVariant> gradient_ways(const CudaProblem& problem, const WeightGradientProblem& w) {
  constexpr int64_t kMostParts = 256, kFewestSteps = 4;
  const GradientWork work = gradient_work(problem, w, gradient_operands(problem, w));
  const int64_t most = std::clamp<int64_t>(work.steps / kFewestSteps, 1, kMostParts);
  std::vector<KernelVariant> ways = weight_gradient_ways(
      kGradientTiles, most,
      [&](const GradientTile& tile, int64_t parts) { return gradient_cycles(tile, work, parts); });
  for (const WeightGradientHaloPlan& plan : weight_gradient_halo_plans(problem, w))
    ways.push_back({halo_gradient_way(w, plan), plan.cycles / kCyclesPerMicrosecond});
  std::stable_sort(ways.begin(), ways.end(),
                   [](const auto& a, const auto& b) { return a.microseconds < b.microseconds; });
  return ways;
}

GradientPlan gradient_plan(const CudaProblem& problem, const WeightGradientProblem& w,
                           const WeightGradientWay& way) {
  GradientPlan plan = gradient_operands(problem, w);
  plan.tile = weight_gradient_tile(kGradientTiles, way);
  plan.tiles = ceil_div(w.taps * plan.x.channels, int64_t{plan.tile.m}) *
               ceil_div(plan.y.channels, int64_t{plan.tile.n});
  plan.parts = weight_gradient_parts(w, way.parts, plan.merged, plan.x.channels,
                                     round_up(plan.y.channels, kGradientVector));
  plan.part_depth = part_depth(problem, w, way.parts, kGradientStep);
  return plan;
}

class GradientWriter {
 public:
  GradientWriter(const CudaProblem& problem, const WeightGradientProblem& w, const GradientPlan& plan)
      : problem_(problem), w_(w), plan_(plan) {}

  CudaCode write() {
    CudaCode code;
    code.compile_cost = kLongToCompile;
    const Dim y_at = copy_bytes(plan_.x, problem_), parts_at = y_at + copy_bytes(plan_.y, problem_);
    code.workspace_bytes = parts_at + Dim(plan_.parts.bytes());
    code.source =
        includes({"conv/cuda/weight_gradient_wgmma.cuh"}) +
        wgmma_multiply_text(problem_.inputs[0].dtype, plan_.tile.n, plan_.x.layout == GradientLayout::along_k,
                            plan_.y.layout == GradientLayout::along_k);
    if (plan_.x.packs)
      add_weight_gradient_copy(code, problem_, index_text(),
                               {0, plan_.groups, plan_.merged * w_.channels, plan_.x.channels,
                                position_unit(problem_.inputs[0]), Dim(0)});
    if (plan_.y.packs)
      add_weight_gradient_copy(code, problem_, index_text(),
                               {1, plan_.groups, plan_.merged * w_.maps, plan_.y.channels,
                                position_unit(problem_.inputs[1]), y_at});
    add_products(code, y_at, parts_at);
    add_weight_gradient_sum(code, problem_, w_, plan_.parts, parts_at);
    return code;
  }

 private:
  std::string element() const { return std::string(cuda_type(problem_.inputs[0].dtype)); }
  std::string index_text() const {
    return weight_gradient_index_text(problem_, max(plan_.x.elements, plan_.y.elements), plan_.parts);
  }

  std::string x_form() const {
    return plan_.x.layout == GradientLayout::along_k ? "kAlongK"
           : plan_.x.by_position                     ? "kPositions"
                                                     : "kWindows";
  }

  void add_products(CudaCode& code, const Dim& y_at, const Dim& parts_at) const {
    const GradientTile& tile = plan_.tile;
    CudaWindowAxes axes = w_.axes;
    for (size_t i = 0; i < axes.size(); ++i) {
      axes[i].in_stride = plan_.x.axis[i];
      axes[i].out_stride = Dim(0);
    }
    CudaParams params;
    const auto number = [&](const Dim& dim) { return ", I(" + params.expr(dim) + ")"; };
    const auto strides = [&](const GradientOperand& o) {
      return number(o.batch) + number(o.channel) + number(o.group);
    };
    const auto comma = [](int v) { return std::to_string(v) + ", "; };
    const std::string x = plan_.x.packs ? workspace_copy(problem_, Dim(0), params) : "in0",
                      y = plan_.y.packs ? workspace_copy(problem_, y_at, params) : "in1";
    const std::string body =
        index_text() + "  const aicf::WeightGradientOperands<" + element() + ", I> o = {" + x + ", " + y +
        ", " + window_axes_text(axes, params) + number(problem_.inputs[0].sizes[0]) +
        number(Dim(plan_.x.channels)) + number(Dim(plan_.y.channels)) + strides(plan_.x) + strides(plan_.y) +
        number(plan_.x.k) + number(plan_.y.k) + "};\n  aicf::WeightGradientWgmma<" + element() +
        ", Multiply, " + comma(tile.m) + comma(tile.n) + comma(tile.warpgroups) + comma(tile.stages) +
        "aicf::WeightGradientX::" + x_form() +
        (plan_.y.layout == GradientLayout::along_k ? ", true" : ", false") + ">::run(o" +
        number(Dim(plan_.parts.count)) + number(plan_.part_depth) +
        ", reinterpret_cast<float*>(static_cast<char*>(workspace) + " + params.expr(parts_at) + ")" +
        number(Dim(plan_.parts.row)) + number(Dim(plan_.parts.group)) + number(Dim(plan_.parts.part)) +
        ");\n";
    CudaLaunch launch =
        flat_launch("weight_gradient_wgmma_" + std::string(dtype_name(problem_.inputs[0].dtype)) + "_" +
                        std::to_string(tile.m) + "x" + std::to_string(tile.n),
                    Dim(plan_.tiles * plan_.parts.count), tile.warpgroups * 128, params);
    launch.grid[1] = Dim(plan_.groups);
    launch.shared_bytes = tile.stages * tile.stage_bytes();
    add_kernel(code, problem_, std::move(launch), body, tile.occupancy);
  }

  const CudaProblem& problem_;
  const WeightGradientProblem& w_;
  const GradientPlan& plan_;
};

}  // namespace

bool can_run_weight_gradient_wgmma(const Problem& problem) {
  return has_known_products(problem) && is_half(problem.inputs[0].dtype);
}

CudaCode generate_weight_gradient_wgmma(const CudaProblem& problem) {
  const WeightGradientProblem w = weight_gradient_problem(problem);
  const auto way = asked_way<WeightGradientWay>(problem, [&] { return gradient_ways(problem, w); });
  if (way.halo_rows > 0) {
    for (const WeightGradientHaloPlan& plan : weight_gradient_halo_plans(problem, w))
      if (halo_gradient_way(w, plan) == way) return weight_gradient_halo_code(problem, w, plan);
    AICF_CHECK(false, "a weight gradient that cannot run so: " + to_string(way));
  }
  const GradientPlan plan = gradient_plan(problem, w, way);
  return GradientWriter(problem, w, plan).write();
}

std::vector<KernelVariant> weight_gradient_variants(const CudaProblem& problem) {
  return gradient_ways(problem, weight_gradient_problem(problem));
}

}  // namespace aicf
