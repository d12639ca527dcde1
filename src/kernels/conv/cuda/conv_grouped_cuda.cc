// The CUDA row of convolutions in groups of few channels.
#include <algorithm>
#include <numeric>

#include "base/rounding.h"
#include "kernels/common/cuda_machine.h"
#include "kernels/common/cuda_walk.h"
#include "kernels/common/element.h"
#include "kernels/conv/cuda/conv_problem_cuda.h"
#include "kernels/conv/cuda/window_boxes.h"
#include "kernels/tile/cuda/tile_cuda.h"

namespace aicf {
namespace {

constexpr int32_t kGroupedBlock = 256;  // of a block
constexpr int64_t kColumnBlock = 8,
                  kRowTiles = 32;  // of a block of columns; results of a warp's step

// Groups of a warp's step: up to four blocks of columns, which the lanes of a
// quad store.
int64_t groups_of_step(int64_t groups, int64_t blocks) {
  constexpr int64_t kBlocks = 4;
  int64_t together = std::clamp<int64_t>(kBlocks / blocks, 1, groups);
  while (groups % together != 0) --together;
  return together;
}

// Bytes of shared memory and the work of a block of so many groups.
class GroupedBlock {
 public:
  GroupedBlock(const BoxedWindows& w, int64_t groups, int64_t unit = 8)
      : w_(w), groups_(groups), unit_(unit) {}

  BoxWork work(const ResultBox& box) const {
    const int64_t positions = box.positions(w_), steps = ceil_div(box.results(), kRowTiles) * groups_;
    BoxWork needs;
    needs.shared_bytes = weights() + 2 * positions * position_bytes(groups_, w_.channels);
    needs.bytes = static_cast<double>(groups_ * 2 * (positions * w_.channels + box.results() * w_.maps));
    // Shared memory gives 128 bytes a cycle: two tiles of 8 steps of K take
    // four, weights one; a product takes one.
    needs.cycles = static_cast<double>(steps * w_.taps() * chunks_of_group(w_.channels) * (4 + 3 * blocks()));
    constexpr double kElement = 0.5;  // cycles to move one by itself
    if (unit_ == 1) needs.cycles += kElement * static_cast<double>(groups_ * positions * w_.channels);
    needs.block_bytes = 2 * static_cast<double>(weights());  // element by element
    return needs;
  }
  int64_t blocks() const { return ceil_div(w_.maps, kColumnBlock); }

 private:
  int64_t weights() const { return groups_ * w_.taps() * chunks_of_group(w_.channels) * blocks() * 128; }

  const BoxedWindows& w_;
  int64_t groups_, unit_;
};

std::optional<int64_t> groups_of_block(const BoxedWindows& w) {
  return groups_of_slice(w, [&](int64_t groups) {
    return GroupedBlock(w, groups).work(kLeastBox).shared_bytes <= kLeastSharedLimit;
  });
}

BoxedWindows boxed_windows_of(const CudaProblem& problem) {
  const CudaWindow &x = problem.inputs[0], &w = problem.inputs[1];
  return *boxed_windows(x.sizes[1], w.sizes[0], Shape(w.sizes.begin() + 2, w.sizes.end()), problem.params);
}

BoxPlan grouped_plan(const CudaProblem& problem, const ConvProblem& c, const BoxedWindows& w) {
  constexpr int64_t kMostOccupancy = 3;
  const int64_t groups = *groups_of_block(w);
  const GroupedBlock block(w, groups, channel_unit(problem.inputs[0]));
  return plan_boxes(problem, c.images, c.axes, ceil_div(w.groups, groups), kMostOccupancy,
                    [&](const ResultBox& box) { return block.work(box); });
}

}  // namespace

bool can_run_conv_grouped(const Problem& problem) {
  if (problem.inputs.size() < 2 || problem.outputs.empty() || !is_half(problem.inputs[0].dtype) ||
      problem.inputs[0].dtype != problem.inputs[1].dtype || problem.inputs[0].sizes.size() < 3)
    return false;
  const Shape &x = problem.inputs[0].sizes, &w = problem.inputs[1].sizes;
  const auto windows = boxed_windows(x[1], w[0], Shape(w.begin() + 2, w.end()), problem.params);
  return windows && windows->groups > 1 && windows->channels > 1 && groups_of_block(*windows);
}

CudaCode generate_conv_grouped(const CudaProblem& problem) {
  ConvProblem conv = conv_problem(problem, false);
  conv.epilogue.program = &conv.program;
  const BoxedWindows w = boxed_windows_of(problem);
  const int64_t groups = *groups_of_block(w), slices = ceil_div(w.groups, groups);
  const GroupedBlock block(w, groups);
  const BoxPlan plan = grouped_plan(problem, conv, w);
  const DType dtype = problem.inputs[0].dtype;
  CudaParams params;
  const CudaEpilogue epilogue = cuda_epilogue(conv.epilogue, kConvInputs, params);
  const int64_t stored = conv.pixel_rows ? std::gcd(w.maps, kColumnBlock) : 1;
  const std::string body = operands_text(problem, conv, "in0", "in1", params) +
                           "  const Epilogue epilogue = " + epilogue.make + ";\n  aicf::ConvGrouped<" +
                           std::string(cuda_type(dtype)) + ", Shape, " +
                           std::to_string(groups_of_step(groups, block.blocks())) + ", " +
                           std::to_string(channel_unit(problem.inputs[0])) + ", " + flag(conv.pixel_rows) +
                           ", " + std::to_string(stored) + ", " + std::to_string(kGroupedBlock) +
                           ">::run(o, epilogue, I(" + params.expr(conv.groups) + "));\n";
  CudaCode code;
  code.compile_cost = kLongToCompile;
  code.source =
      includes({"conv/cuda/conv_grouped.cuh"}) + epilogue.text + box_shape_text(w, groups, plan.box);
  CudaLaunch launch =
      flat_launch("conv_grouped_" + std::string(dtype_name(dtype)),
                  min(box_count(conv.images, conv.axes, plan.box), Dim(plan.blocks)), kGroupedBlock, params);
  launch.grid[1] = Dim(slices);
  launch.shared_bytes = block.work(plan.box).shared_bytes;
  add_kernel(code, problem, std::move(launch), body, static_cast<int>(plan.occupancy));
  return code;
}

std::vector<KernelVariant> conv_grouped_variants(const CudaProblem& problem) {
  // Cycles; a cycle of the machine; what an H100 takes beyond the plan.
  constexpr double kStart = 6000, kMemoryBytes = 1400, kBeyond = 1.35;
  const ConvProblem conv = conv_problem(problem, false);
  const BoxedWindows w = boxed_windows_of(problem);
  const BoxPlan plan = grouped_plan(problem, conv, w);
  const auto groups = static_cast<int>(*groups_of_block(w));
  double bytes = 0;
  for (const CudaWindow* window : {&problem.inputs[0], &problem.outputs[0]})
    bytes += 2 * static_cast<double>(size_to_choose_by(element_count(window->sizes), problem));
  const double cycles = kStart + kBeyond * std::max(plan.cycles, bytes / kMemoryBytes);
  const WindowWay way{static_cast<int>(plan.box.rows), static_cast<int>(plan.box.columns),
                      groups * static_cast<int>(w.channels), groups * static_cast<int>(w.maps),
                      static_cast<int>(plan.blocks)};
  return {{way, cycles / kCyclesPerMicrosecond}};
}

}  // namespace aicf
