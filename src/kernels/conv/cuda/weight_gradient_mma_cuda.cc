// The row of weight gradients with mma.sync.
#include <algorithm>

#include "base/error.h"
#include "base/rounding.h"
#include "kernels/common/cuda_machine.h"
#include "kernels/common/cuda_walk.h"
#include "kernels/common/element.h"
#include "kernels/conv/cuda/weight_gradient_problem.h"
#include "kernels/conv/cuda/window_boxes.h"

namespace aicf {
namespace {

constexpr int64_t kTileOfRows = 16, kTileOfDepth = 16;  // of a product

// What a block has: several whole groups, or channels and maps of one.
struct GradientSlice {
  int64_t groups = 1, channels = 1, maps = 1;
};

// Which tiles of a group's products a warp has.
struct WarpTiles {
  int64_t rows = 1, columns = 1;  // tiles of a warp
  int64_t units = 1;              // warps that have tiles of their own
  int64_t depth_warps = 1;        // that have the same ones and share K
  int64_t warps() const { return units * depth_warps; }
  // Blocks of a multiprocessor: four registers a tile beside those that every
  // thread needs.
  int64_t most_occupancy() const {
    constexpr int64_t kFewTiles = 18, kWarps = 16;
    return (rows * columns <= kFewTiles ? kWarps : kWarps / 2) / warps();
  }
};

int64_t row_tiles_of(const BoxedWindows& w, const GradientSlice& slice) {
  return ceil_div(w.taps() * chunks_of_group(slice.channels) * 8, kTileOfRows);
}

// Cycles of a multiprocessor for a step of K of all warps: shared memory gives 128 bytes a cycle, which is a
// tile of rows in four and one of columns in two; a product takes two. A quarter of the shorter is not
// hidden.
double step_cycles(const WarpTiles& tiles) {
  const auto fragments = static_cast<double>(4 * tiles.rows + 2 * tiles.columns),
             products = static_cast<double>(2 * tiles.rows * tiles.columns);
  return static_cast<double>(tiles.units) *
         (std::max(fragments, products) + std::min(fragments, products) / 4);
}

// The tiles with the fewest cycles; none where a block would need too many
// warps.
std::optional<WarpTiles> warp_tiles(const BoxedWindows& w, const GradientSlice& slice) {
  constexpr int64_t kMostTiles = 36, kFewWarps = 8;
  const int64_t rows = row_tiles_of(w, slice), columns = chunks_of_group(slice.maps);
  std::optional<WarpTiles> best;
  for (int64_t c = 1; c <= columns; ++c)
    for (int64_t r = 1; columns % c == 0 && r <= rows && r * c <= kMostTiles; ++r) {
      const WarpTiles tiles{r, c, slice.groups * ceil_div(rows, r) * (columns / c)};
      if (tiles.most_occupancy() < 1 || (best && step_cycles(tiles) >= step_cycles(*best))) continue;
      best = tiles;
    }
  if (best) best->depth_warps = std::max<int64_t>(kFewWarps / best->units, 1);
  return best;
}

class GradientBlock {
 public:
  GradientBlock(const CudaProblem* problem, const BoxedWindows& w, const GradientSlice& slice)
      : w_(w), slice_(slice), tiles_(warp_tiles(w, slice)) {
    if (problem == nullptr) return;
    x_unit_ = channel_unit(problem->inputs[0]);
    y_unit_ = channel_unit(problem->inputs[1]);
  }

  bool fits() const { return tiles_ && work(kLeastBox).shared_bytes <= kLeastSharedLimit; }
  const WarpTiles& tiles() const { return *tiles_; }
  const GradientSlice& slice() const { return slice_; }
  int64_t threads() const { return tiles_->warps() * 32; }
  int64_t group_slices() const { return ceil_div(w_.groups, slice_.groups); }
  int64_t slices_of_group() const {
    return ceil_div(w_.channels, slice_.channels) * ceil_div(w_.maps, slice_.maps);
  }
  int64_t x_unit() const { return x_unit_; }
  int64_t y_unit() const { return y_unit_; }

  BoxWork work(const ResultBox& box) const {
    constexpr double kElement = 1;  // cycles to move one by itself
    const int64_t positions = box.positions(w_), steps = ceil_div(box.results(), kTileOfDepth);
    const auto x_elements = static_cast<double>(positions * slice_.groups * slice_.channels),
               y_elements = static_cast<double>(box.results() * slice_.groups * slice_.maps);
    BoxWork needs;
    needs.shared_bytes = 2 * (positions * position_bytes(slice_.groups, slice_.channels) +
                              steps * kTileOfDepth * position_bytes(slice_.groups, slice_.maps));
    needs.bytes = 2 * (x_elements + y_elements);
    needs.cycles = static_cast<double>(steps) * step_cycles(*tiles_) +
                   kElement * ((x_unit_ == 1 ? x_elements : 0) + (y_unit_ == 1 ? y_elements : 0));
    // Parts are written and read.
    needs.block_bytes = static_cast<double>(2 * tiles_->depth_warps * slice_.groups * w_.taps() *
                                            slice_.channels * slice_.maps * 4);
    return needs;
  }

 private:
  const BoxedWindows& w_;
  GradientSlice slice_;
  std::optional<WarpTiles> tiles_;
  int64_t x_unit_ = 1, y_unit_ = 1;
};

// Into how many parts `size` may be cut, and how large they are then: of one
// group alone, in whole vectors.
std::vector<int64_t> slice_sizes(const BoxedWindows& w, int64_t size) {
  const int64_t fewest = ceil_div(size, kMostOfSlice);
  std::vector<int64_t> sizes;
  for (int64_t count = fewest; count <= fewest + 1; ++count) {
    const int64_t slice = count == 1 ? size : round_up(ceil_div(size, count), 8);
    const bool is_whole = count == 1 || w.groups == 1 || size % 8 == 0;
    if (is_whole && slice <= size && std::find(sizes.begin(), sizes.end(), slice) == sizes.end())
      sizes.push_back(slice);
  }
  return sizes;
}

std::vector<GradientBlock> gradient_blocks(const CudaProblem* problem, const BoxedWindows& w) {
  std::vector<GradientBlock> blocks;
  const auto groups = groups_of_slice(
      w, [&](int64_t count) { return GradientBlock(problem, w, {count, w.channels, w.maps}).fits(); });
  if (w.groups > 1 && groups) {
    blocks.emplace_back(problem, w, GradientSlice{*groups, w.channels, w.maps});
    return blocks;
  }
  for (const int64_t channels : slice_sizes(w, w.channels))
    for (const int64_t maps : slice_sizes(w, w.maps)) {
      const GradientBlock block(problem, w, {1, channels, maps});
      if (block.fits()) blocks.push_back(block);
    }
  return blocks;
}

// Windows of depthwise convolutions have a row of their own.
std::optional<BoxedWindows> gradient_windows_of(const Shape& x, const Shape& out,
                                                const std::vector<Dim>& params) {
  auto w = boxed_windows(x[1], out[0], Shape(out.begin() + 2, out.end()), params);
  if (w && w->groups > 1 && w->channels == 1) w.reset();
  return w;
}

WindowWay way_of(const GradientBlock& block, const BoxPlan& plan) {
  const GradientSlice& slice = block.slice();
  return {static_cast<int>(plan.box.rows), static_cast<int>(plan.box.columns),
          static_cast<int>(slice.groups * slice.channels), static_cast<int>(slice.groups * slice.maps),
          static_cast<int>(plan.blocks)};
}

double bytes_of(const CudaProblem& problem) {
  const auto elements = [&](const CudaWindow& w) {
    double count = 1;
    for (const Dim& size : w.sizes) count *= static_cast<double>(size_to_choose_by(size, problem));
    return count;
  };
  return 2 * (elements(problem.inputs[0]) + elements(problem.inputs[1]));
}

// Of every block the best box, the cheapest first.
std::vector<KernelVariant> mma_gradient_ways(const CudaProblem& problem,
                                             const std::vector<GradientBlock>& blocks) {
  // Cycles; a cycle of the machine; what an H100 takes beyond the plan.
  constexpr double kStart = 6300, kMemoryBytes = 1400, kBeyond = 1.2;
  const CudaWindowAxes axes = weight_gradient_problem(problem).axes;
  std::vector<KernelVariant> ways;
  for (const GradientBlock& block : blocks) {
    BoxPlan plan =
        plan_boxes(problem, problem.inputs[0].sizes[0], axes, block.group_slices() * block.slices_of_group(),
                   block.tiles().most_occupancy(), [&](const ResultBox& box) { return block.work(box); });
    const double cycles = kStart + kBeyond * std::max(plan.cycles, bytes_of(problem) / kMemoryBytes);
    ways.push_back({way_of(block, plan), cycles / kCyclesPerMicrosecond});
  }
  std::stable_sort(ways.begin(), ways.end(),
                   [](const auto& a, const auto& b) { return a.microseconds < b.microseconds; });
  return ways;
}

}  // namespace

bool can_run_weight_gradient_mma(const Problem& problem) {
  if (problem.inputs.size() != 2 || problem.outputs.size() != 1 || !is_half(problem.inputs[0].dtype) ||
      problem.inputs[0].sizes.size() < 3)
    return false;
  const auto windows = gradient_windows_of(problem.inputs[0].sizes, problem.outputs[0].sizes, problem.params);
  return windows && !gradient_blocks(nullptr, *windows).empty();
}

std::vector<KernelVariant> weight_gradient_mma_variants(const CudaProblem& problem) {
  const BoxedWindows w =
      *gradient_windows_of(problem.inputs[0].sizes, problem.outputs[0].sizes, problem.params);
  return mma_gradient_ways(problem, gradient_blocks(&problem, w));
}

CudaCode generate_weight_gradient_mma(const CudaProblem& problem) {
  const WeightGradientProblem gradient = weight_gradient_problem(problem);
  const BoxedWindows w =
      *gradient_windows_of(problem.inputs[0].sizes, problem.outputs[0].sizes, problem.params);
  const std::vector<GradientBlock> blocks = gradient_blocks(&problem, w);
  const auto way = asked_way<WindowWay>(problem, [&] { return mma_gradient_ways(problem, blocks); });
  const auto found = std::find_if(blocks.begin(), blocks.end(), [&](const GradientBlock& b) {
    return b.slice().groups * b.slice().channels == way.channels &&
           b.slice().groups * b.slice().maps == way.maps;
  });
  AICF_CHECK(found != blocks.end(), "a slice of no kernel: " + to_string(way));
  const GradientBlock& block = *found;
  const WarpTiles& tiles = block.tiles();
  const ResultBox box{way.rows, way.columns};
  const CudaWindow &x = problem.inputs[0], &dy = problem.inputs[1];
  const WeightGradientParts parts =
      weight_gradient_parts(gradient, way.blocks * tiles.depth_warps, 1, w.channels, w.maps);
  CudaParams params;
  const auto number = [&](const Dim& dim) { return ", I(" + params.expr(dim) + ")"; };
  const std::string type(cuda_type(x.dtype));
  const std::string body = weight_gradient_index_text(problem, Dim(0), parts) +
                           "  const aicf::GradientBoxOperands<" + type + ", I> o = {in0, in1, " +
                           window_axes_text(gradient.axes, params) + number(x.sizes[0]) +
                           number(Dim(w.groups)) + number(Dim(w.channels)) + number(Dim(w.maps)) +
                           number(x.strides[0]) + number(x.strides[1]) + number(dy.strides[0]) +
                           number(dy.strides[1]) + "};\n  aicf::WeightGradientMma<" + type + ", Shape, " +
                           std::to_string(tiles.rows) + ", " + std::to_string(tiles.columns) + ", " +
                           std::to_string(tiles.depth_warps) + ", " + std::to_string(block.x_unit()) + ", " +
                           std::to_string(block.y_unit()) + ">::run(o, static_cast<float*>(workspace)" +
                           number(Dim(parts.group)) + number(Dim(parts.part)) + ");\n";
  BoxedWindows of_block = w;
  of_block.channels = block.slice().channels;
  of_block.maps = block.slice().maps;
  CudaCode code;
  code.compile_cost = kLongToCompile;
  code.workspace_bytes = Dim(parts.bytes());
  code.source =
      includes({"conv/cuda/weight_gradient_mma.cuh"}) + box_shape_text(of_block, block.slice().groups, box);
  CudaLaunch launch = flat_launch("weight_gradient_mma_" + std::string(dtype_name(x.dtype)), Dim(way.blocks),
                                  static_cast<int32_t>(block.threads()), params);
  launch.grid[1] = Dim(block.group_slices());
  launch.grid[2] = Dim(block.slices_of_group());
  launch.shared_bytes = block.work(box).shared_bytes;
  const int64_t occupancy = std::clamp<int64_t>(shared_limit(problem.arch) / (launch.shared_bytes + 1024), 1,
                                                tiles.most_occupancy());
  add_kernel(code, problem, std::move(launch), body, static_cast<int>(occupancy));
  add_weight_gradient_sum(code, problem, gradient, parts, Dim(0));
  return code;
}

}  // namespace aicf
