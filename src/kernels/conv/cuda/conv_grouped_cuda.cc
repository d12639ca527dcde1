// The CUDA row of convolutions in groups of few channels, or of one group of few channels or few maps.
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
constexpr int64_t kHalfVector = 8, kTapChannels = 4;

// Groups of a warp's step: up to four blocks of columns, which the lanes of a
// quad store.
int64_t groups_of_step(int64_t groups, int64_t blocks) {
  constexpr int64_t kBlocks = 4;
  int64_t together = std::clamp<int64_t>(kBlocks / blocks, 1, groups);
  while (groups % together != 0) --together;
  return together;
}

// Whether steps of K are of four taps (TapProducts of conv_grouped.cuh).
bool steps_by_taps(const BoxedWindows& w) {
  return w.groups == 1 && w.vector == kHalfVector && w.channels <= kTapChannels;
}

// Bytes of shared memory and the work of a block of so many groups.
class GroupedBlock {
 public:
  GroupedBlock(const BoxedWindows& w, int64_t groups, int64_t unit = kHalfVector)
      : w_(w), groups_(groups), unit_(unit) {}

  BoxWork work(const ResultBox& box) const {
    const int64_t positions = box.positions(w_), steps = ceil_div(box.results(), kRowTiles) * groups_;
    BoxWork needs;
    needs.shared_bytes = weights() + 2 * round_up(positions * bytes_of_position(), 16);
    needs.bytes =
        static_cast<double>(groups_ * (16 / w_.vector) * (positions * w_.channels + box.results() * w_.maps));
    // Shared memory gives 128 bytes a cycle: two tiles of a chunk of K take
    // four, weights one; a product takes one. In tf32 tiles are rounded.
    const int64_t fragments = w_.vector == kHalfVector ? 4 : 7;
    needs.cycles = static_cast<double>(steps * chunks_of_k() * (fragments + 3 * blocks()));
    constexpr double kElement = 0.33;  // cycles to move one by itself
    if (unit_ == 1) needs.cycles += kElement * static_cast<double>(groups_ * positions * w_.channels);
    needs.block_bytes = 2 * static_cast<double>(weights());  // element by element
    return needs;
  }
  int64_t blocks() const { return ceil_div(w_.maps, kColumnBlock); }
  // Sums of more columns take registers that three blocks do not leave.
  int64_t most_occupancy() const { return blocks() <= 4 ? 3 : 2; }
  // The only group of a slice begins where the slice does.
  int64_t chunks() const {
    return groups_ == 1 ? ceil_div(w_.channels, w_.vector) : chunks_of_group(w_.channels, w_.vector);
  }

 private:
  // A step of four taps is of two chunks.
  int64_t chunks_of_k() const {
    return steps_by_taps(w_) ? 2 * ceil_div(w_.taps(), int64_t{4}) : w_.taps() * chunks();
  }
  int64_t bytes_of_position() const {
    if (steps_by_taps(w_)) return 2 * kTapChannels;
    return groups_ == 1 ? (chunks() | 1) * 16 : position_bytes(groups_, w_.channels, w_.vector);
  }
  int64_t weights() const { return groups_ * chunks_of_k() * blocks() * 128; }

  const BoxedWindows& w_;
  int64_t groups_, unit_;
};

// Of one group a block has all channels and all maps: few of the latter, or few of the former and no more
// maps than a slice of groups has.
bool is_narrow(const GroupedBlock& block, const BoxedWindows& w) {
  constexpr int64_t kFewBlocks = 2;
  return block.blocks() <= kFewBlocks || (block.chunks() == 1 && w.maps <= kMostOfSlice);
}

std::optional<int64_t> groups_of_block(const BoxedWindows& w) {
  const auto fits = [&](int64_t groups) {
    return GroupedBlock(w, groups).work(kLeastBox).shared_bytes <= kLeastSharedLimit;
  };
  if (w.groups > 1) return groups_of_slice(w, fits);
  return is_narrow(GroupedBlock(w, 1), w) && fits(1) ? std::optional<int64_t>(1) : std::nullopt;
}

std::optional<BoxedWindows> boxed_windows_of(const Shape& x, const Shape& w, const std::vector<Dim>& params,
                                             DType dtype) {
  auto windows = boxed_windows(x[1], w[0], Shape(w.begin() + 2, w.end()), params);
  if (windows) windows->vector = 16 / dtype_bytes(dtype);
  return windows;
}

BoxedWindows boxed_windows_of(const CudaProblem& problem) {
  const CudaWindow &x = problem.inputs[0], &w = problem.inputs[1];
  return *boxed_windows_of(x.sizes, w.sizes, problem.params, x.dtype);
}

BoxPlan grouped_plan(const CudaProblem& problem, const ConvProblem& c, const BoxedWindows& w) {
  const int64_t groups = *groups_of_block(w);
  const GroupedBlock block(w, groups, channel_unit(problem.inputs[0]));
  return plan_boxes(problem, c.images, c.axes, ceil_div(w.groups, groups), block.most_occupancy(),
                    [&](const ResultBox& box) { return block.work(box); });
}

}  // namespace

bool can_run_conv_grouped(const Problem& problem) {
  if (problem.inputs.size() < 2 || problem.outputs.empty()) return false;
  const DType dtype = problem.inputs[0].dtype;
  const bool has_units = is_half(dtype) || (dtype == DType::f32 && asks_tf32(problem.params));
  if (!has_units || dtype != problem.inputs[1].dtype || problem.inputs[0].sizes.size() < 3) return false;
  const auto w = boxed_windows_of(problem.inputs[0].sizes, problem.inputs[1].sizes, problem.params, dtype);
  return w && (w->groups == 1 || w->channels > 1) && groups_of_block(*w);
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
  const std::string type(cuda_type(dtype)), threads = std::to_string(kGroupedBlock),
                                            together = std::to_string(groups_of_step(groups, block.blocks()));
  const std::string products = steps_by_taps(w) ? "aicf::TapProducts<" + type + ", Shape, " + threads + ">"
                                                : "aicf::ChunkProducts<" + type + ", Shape, " + together +
                                                      ", " + std::to_string(channel_unit(problem.inputs[0])) +
                                                      ", " + threads + ">";
  const std::string body = operands_text(problem, conv, "in0", "in1", params) +
                           "  const Epilogue epilogue = " + epilogue.make + ";\n  aicf::ConvGrouped<" + type +
                           ", Shape, " + products + ", " + together + ", " + flag(conv.pixel_rows) + ", " +
                           std::to_string(stored) + ", " + threads + ">::run(o, epilogue, I(" +
                           params.expr(conv.groups) + "));\n";
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
    bytes += static_cast<double>(dtype_bytes(window->dtype)) *
             static_cast<double>(size_to_choose_by(element_count(window->sizes), problem));
  const double cycles = kStart + kBeyond * std::max(plan.cycles, bytes / kMemoryBytes);
  const WindowWay way{static_cast<int>(plan.box.rows), static_cast<int>(plan.box.columns),
                      groups * static_cast<int>(w.channels), groups * static_cast<int>(w.maps),
                      static_cast<int>(plan.blocks)};
  return {{way, cycles / kCyclesPerMicrosecond}};
}

}  // namespace aicf
