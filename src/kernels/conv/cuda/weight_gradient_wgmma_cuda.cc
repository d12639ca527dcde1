// The row of weight gradients on the matrix units of sm_90a.
#include <algorithm>

#include "base/error.h"
#include "base/rounding.h"
#include "kernels/common/cuda_machine.h"
#include "kernels/common/cuda_walk.h"
#include "kernels/conv/cuda/conv_problem_cuda.h"
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
struct GradientOperand {
  GradientLayout layout = GradientLayout::across_k;
  bool packs = false;
  bool by_position = false;  // across K: from one position to the next of all images is one distance, `k`
  int64_t channels = 1;      // of a group of the products
  Dim batch, channel, group, k;
  std::array<Dim, kSpatialAxes> axis;
  Dim elements;  // of the copy
};

// The stride of the one axis that the window's positions, with `images` those of all images, are.
std::optional<Dim> merged_stride(const CudaWindow& w, bool images) {
  CudaWalk walk(1);
  if (images) walk.add_axis(w.sizes[0], {w.strides[0]});
  for (size_t i = 2; i < w.sizes.size(); ++i) walk.add_axis(w.sizes[i], {w.strides[i]});
  walk.merge_axes();
  if (walk.rank() > 1) return std::nullopt;
  return walk.rank() == 0 ? Dim(0) : walk.strides[0][0];
}

bool starts_units(const CudaWindow& w, size_t contiguous_from, int64_t unit) {
  if (!is_multiple(w.offset, unit)) return false;
  for (size_t i = 0; i < w.sizes.size(); ++i) {
    const bool neighbours = contiguous_from == 1 ? i == 1 : i >= contiguous_from;
    if (!neighbours && !(w.sizes[i] == Dim(1)) && !is_multiple(w.strides[i], unit)) return false;
  }
  return true;
}

bool is_across(const CudaWindow& w, int64_t channels) {
  return w.strides[1] == Dim(1) && channels % kGradientVector == 0 && starts_units(w, 1, kGradientVector);
}
// So many positions are neighbours in one aligned_bytes unit.
int64_t position_unit(const CudaWindow& w) {
  Dim positions(1);
  for (size_t i = 2; i < w.sizes.size(); ++i) positions = positions * w.sizes[i];
  const auto stride = merged_stride(w, false);
  int64_t unit = kGradientVector;
  const auto fits = [&] {
    return stride && *stride == Dim(1) && is_multiple(positions, unit) && starts_units(w, 2, unit);
  };
  while (unit > 1 && !fits()) unit /= 2;
  return unit;
}

// `axes`: strides of the window along the spatial axes, led by 0.
GradientOperand gradient_operand(const CudaWindow& w, int64_t groups, int64_t channels, bool by_position) {
  GradientOperand o;
  o.channels = channels;
  o.batch = w.strides[0];
  o.channel = w.strides[1];
  o.group = Dim(channels) * w.strides[1];
  for (size_t i = 2; i < w.sizes.size(); ++i) o.axis[kSpatialAxes - w.sizes.size() + i] = w.strides[i];
  const auto distance = merged_stride(w, true);
  if (is_across(w, channels) && (!by_position || distance)) {
    o.by_position = by_position;
    if (by_position) o.k = *distance;
    return o;
  }
  if (by_position && position_unit(w) == kGradientVector) {
    o.layout = GradientLayout::along_k;
    return o;
  }
  o.packs = true;
  o.by_position = by_position;
  o.channels = round_up(channels, kGradientVector);
  Dim stride(groups * o.channels);
  o.k = stride;
  o.channel = Dim(1);
  o.group = Dim(o.channels);
  for (size_t i = kSpatialAxes, axis = w.sizes.size(); i-- > 0;) {
    o.axis[i] = stride;
    if (axis > 2) stride = stride * w.sizes[--axis];
  }
  o.batch = stride;
  o.elements = w.sizes[0] * stride;
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

// Windows of one tap in place: x is read at the positions of dy.
bool reads_in_place(const WeightGradientProblem& w) {
  return w.taps == 1 && std::all_of(w.axes.begin(), w.axes.end(), [](const CudaWindowAxis& a) {
           return a.stride == Dim(1) && a.low == Dim(0) && a.in == a.out;
         });
}

// Groups side by side in one tile, whose products of different groups are wasted: as many as fill a tile.
int64_t groups_together(const WeightGradientProblem& w) {
  constexpr int64_t kWide = 64;
  int64_t count = 1;
  for (int64_t n = 1; n <= w.groups; ++n)
    if (w.groups % n == 0 && n * std::max(w.channels, w.maps) <= kWide) count = n;
  return count;
}

Dim gradient_depth(const CudaProblem& problem, const WeightGradientProblem& w) {
  return problem.inputs[1].sizes[0] * w.pixels;
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
      std::max<int64_t>(ceil_div(size_to_choose_by(gradient_depth(problem, w), problem), kGradientStep), 1);
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

const GradientTile& tile_of(const WeightGradientWay& way) {
  const auto found =
      std::find_if(std::begin(kGradientTiles), std::end(kGradientTiles),
                   [&](const GradientTile& t) { return t.m == way.block_m && t.n == way.block_n; });
  AICF_CHECK(found != std::end(kGradientTiles), "a tile of no kernel: " + to_string(way));
  return *found;
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

std::vector<KernelVariant> gradient_ways(const CudaProblem& problem, const WeightGradientProblem& w,
                                         const GradientPlan& plan) {
  constexpr int64_t kMostParts = 256, kFewestSteps = 4;
  const GradientWork work = gradient_work(problem, w, plan);
  const int64_t most = std::clamp<int64_t>(work.steps / kFewestSteps, 1, kMostParts);
  return weight_gradient_ways(kGradientTiles, most, [&](const GradientTile& tile, int64_t parts) {
    return gradient_cycles(tile, work, parts);
  });
}

GradientPlan gradient_plan(const CudaProblem& problem, const WeightGradientProblem& w) {
  GradientPlan plan = gradient_operands(problem, w);
  const auto* asked = std::get_if<WeightGradientWay>(&problem.way);
  AICF_CHECK(asked != nullptr || !is_named(problem.way),
             "a weight gradient that cannot run so: " + to_string(problem.way));
  const WeightGradientWay way =
      asked != nullptr ? *asked : std::get<WeightGradientWay>(gradient_ways(problem, w, plan).front().way);
  plan.tile = tile_of(way);
  plan.tiles = ceil_div(w.taps * plan.x.channels, int64_t{plan.tile.m}) *
               ceil_div(plan.y.channels, int64_t{plan.tile.n});
  WeightGradientParts& parts = plan.parts;
  parts.count = way.parts;
  parts.group_maps = w.maps;
  parts.maps = plan.merged * w.maps;
  parts.channels = plan.x.channels;
  parts.row = round_up(plan.y.channels, kGradientVector);
  parts.group = w.taps * plan.x.channels * parts.row;
  parts.part = plan.groups * parts.group;
  plan.part_depth =
      ceildiv(ceildiv(gradient_depth(problem, w), Dim(parts.count)), Dim(kGradientStep)) * Dim(kGradientStep);
  return plan;
}

Dim aligned_bytes(const Dim& bytes) { return ceildiv(bytes, Dim(kCudaAlignment)) * Dim(kCudaAlignment); }

class GradientWriter {
 public:
  GradientWriter(const CudaProblem& problem, const WeightGradientProblem& w, const GradientPlan& plan)
      : problem_(problem), w_(w), plan_(plan) {}

  CudaCode write() {
    CudaCode code;
    code.compile_cost = kLongToCompile;
    const Dim y_at = aligned_bytes(plan_.x.elements * Dim(2)),
              parts_at = y_at + aligned_bytes(plan_.y.elements * Dim(2));
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
  if (problem.inputs.size() != 2 || problem.outputs.size() != 1) return false;
  const Shape &x = problem.inputs[0].sizes, &out = problem.outputs[0].sizes;
  const bool is_known = std::all_of(out.begin(), out.end(), [](const Dim& d) { return d.is_constant(); });
  return is_half(problem.inputs[0].dtype) && x.size() <= kSpatialAxes + 2 && x[1].is_constant() && is_known;
}

CudaCode generate_weight_gradient_wgmma(const CudaProblem& problem) {
  const WeightGradientProblem w = weight_gradient_problem(problem);
  const GradientPlan plan = gradient_plan(problem, w);
  return GradientWriter(problem, w, plan).write();
}

std::vector<KernelVariant> weight_gradient_variants(const CudaProblem& problem) {
  const WeightGradientProblem w = weight_gradient_problem(problem);
  return gradient_ways(problem, w, gradient_operands(problem, w));
}

}  // namespace aicf
