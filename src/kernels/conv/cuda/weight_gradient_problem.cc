#include "kernels/conv/cuda/weight_gradient_problem.h"

#include "base/rounding.h"
#include "kernels/common/cuda_machine.h"
#include "kernels/common/cuda_walk.h"
#include "kernels/conv/cuda/conv_problem_cuda.h"

namespace aicf {
namespace {

constexpr size_t kListsAt = 3;  // where the lists of numbers begin in the row's params
// The threads that add parts, as sum_weight_gradient has them: of a block, neighbouring maps, ranges of the
// parts, and places of a thread.
struct SumOfParts {
  int64_t maps = 1, slices = 1, threads = 256, rounds = 1;
  int64_t places() const { return threads / (maps * slices) * rounds; }
};

// A thread has so many parts under way as a range holds, as long as the machine has threads for more ranges:
// what few parts of few results take is the trips to memory one after the other.
SumOfParts sum_of_parts(const CudaMachine& machine, int64_t parts, int64_t places, int64_t maps) {
  constexpr int64_t kWarp = 32, kUnderWay = 8, kMostThreads = 1024, kThreadsAtATime = 2048, kMostRounds = 8;
  SumOfParts sum;
  while (sum.maps < std::min(maps, kWarp)) sum.maps *= 2;
  const int64_t results = std::max<int64_t>(round_up(maps, sum.maps) * places, 1),
                most_slices = machine.multiprocessors * kThreadsAtATime / results;
  while (sum.slices * kUnderWay < parts && 2 * sum.slices <= most_slices &&
         2 * sum.slices * sum.maps <= kMostThreads)
    sum.slices *= 2;
  sum.threads = std::max(sum.threads, sum.slices * sum.maps);
  // Where results fill the machine, a block has several rounds of them.
  const int64_t tiles = ceil_div(maps, sum.maps);
  while (sum.rounds < kMostRounds &&
         ceil_div(places, sum.places() * 2) * tiles >= 2 * machine.filling_blocks())
    sum.rounds *= 2;
  return sum;
}

int64_t known_size(const Dim& dim) { return dim.require_constant("a size of a weight gradient"); }

}  // namespace

WeightGradientProblem weight_gradient_problem(const CudaProblem& problem) {
  const CudaWindow &x = problem.inputs[0], &dy = problem.inputs[1], &out = problem.outputs[0];
  WeightGradientProblem w;
  w.groups = known_size(problem.params[1]);
  w.channels = known_size(out.sizes[1]);
  w.maps = known_size(out.sizes[0]) / w.groups;
  w.kernel.assign(out.sizes.begin() + 2, out.sizes.end());
  w.axes = window_axes(problem, x, dy, w.kernel, kListsAt);
  w.taps = known_size(element_count(w.kernel));
  w.pixels = w.axes[0].out * w.axes[1].out * w.axes[2].out;
  return w;
}

bool has_known_products(const Problem& problem) {
  if (problem.inputs.size() != 2 || problem.outputs.size() != 1) return false;
  const Shape &x = problem.inputs[0].sizes, &out = problem.outputs[0].sizes;
  return x.size() <= kSpatialAxes + 2 && x[1].is_constant() &&
         std::all_of(out.begin(), out.end(), [](const Dim& d) { return d.is_constant(); });
}

Dim all_positions(const CudaProblem& problem, const WeightGradientProblem& w) {
  return problem.inputs[1].sizes[0] * w.pixels;
}

bool reads_in_place(const WeightGradientProblem& w) {
  return w.taps == 1 && std::all_of(w.axes.begin(), w.axes.end(), [](const CudaWindowAxis& a) {
           return a.stride == Dim(1) && a.low == Dim(0) && a.in == a.out;
         });
}

WeightGradientOperand operand_in_place(const CudaWindow& w, int64_t channels) {
  WeightGradientOperand o;
  o.channels = channels;
  o.batch = w.strides[0];
  o.channel = w.strides[1];
  o.group = Dim(channels) * w.strides[1];
  for (size_t i = 2; i < w.sizes.size(); ++i) o.axis[kSpatialAxes - w.sizes.size() + i] = w.strides[i];
  return o;
}

WeightGradientOperand operand_copy(const CudaWindow& w, int64_t groups, int64_t channels) {
  WeightGradientOperand o;
  o.packs = true;
  o.channels = channels;
  Dim stride(groups * channels);
  o.k = stride;
  o.channel = Dim(1);
  o.group = Dim(channels);
  for (size_t i = kSpatialAxes, axis = w.sizes.size(); i-- > 0;) {
    o.axis[i] = stride;
    if (axis > 2) stride = stride * w.sizes[--axis];
  }
  o.batch = stride;
  o.elements = w.sizes[0] * stride;
  return o;
}

Dim copy_bytes(const WeightGradientOperand& operand, const CudaProblem& problem) {
  const Dim bytes = operand.elements * Dim(dtype_bytes(problem.inputs[0].dtype));
  return ceildiv(bytes, Dim(kCudaAlignment)) * Dim(kCudaAlignment);
}

std::optional<Dim> position_stride(const CudaWindow& w, bool images) {
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

bool has_channel_vectors(const CudaWindow& w, int64_t channels, int64_t vector) {
  return w.strides[1] == Dim(1) && channels % vector == 0 && starts_units(w, 1, vector);
}

WeightGradientParts weight_gradient_parts(const WeightGradientProblem& w, int64_t count, int64_t merged,
                                          int64_t channels, int64_t row) {
  WeightGradientParts parts{
      .group_maps = w.maps, .maps = merged * w.maps, .channels = channels, .row = row, .count = count};
  parts.group = w.taps * channels * row;
  parts.part = w.groups / merged * parts.group;
  return parts;
}

Dim part_depth(const CudaProblem& problem, const WeightGradientProblem& w, int64_t parts, int64_t step) {
  return ceildiv(ceildiv(all_positions(problem, w), Dim(parts)), Dim(step)) * Dim(step);
}

std::string weight_gradient_result_text(const CudaProblem& problem, const WeightGradientProblem& w,
                                        const WeightGradientParts& parts, const std::string& name,
                                        CudaParams& params) {
  const CudaWindow& out = problem.outputs[0];
  std::vector<Dim> kernel{Dim(1), Dim(1), Dim(1)}, strides(3, Dim(0));
  const size_t missing = kernel.size() - w.kernel.size();
  for (size_t i = 0; i < w.kernel.size(); ++i) {
    kernel[missing + i] = w.kernel[i];
    strides[missing + i] = out.strides[2 + i];
  }
  const auto number = [&](const Dim& dim) { return ", I(" + params.expr(dim) + ")"; };
  return "  const aicf::WeightGradientResult<" + std::string(cuda_type(out.dtype)) + ", I> " + name +
         " = {out0" + number(out.sizes[0]) + number(Dim(w.channels)) + ", " + braced(kernel, params) +
         number(out.strides[0]) + number(out.strides[1]) + ", " + braced(strides, params) +
         number(Dim(parts.group_maps)) + number(Dim(parts.maps)) + number(Dim(parts.channels)) +
         number(Dim(parts.row)) + number(Dim(parts.group)) + number(Dim(parts.part)) +
         number(Dim(parts.count)) + "};\n";
}

void add_weight_gradient_sum(CudaCode& code, const CudaProblem& problem, const WeightGradientProblem& w,
                             const WeightGradientParts& parts, const Dim& offset) {
  const CudaWindow& out = problem.outputs[0];
  const int64_t places = w.channels * w.taps, maps = known_size(out.sizes[0]);
  const SumOfParts sum = sum_of_parts(problem.machine, parts.count, places, maps);
  const auto comma = [](int64_t v) { return std::to_string(v) + ", "; };
  CudaParams params;
  const std::string body = weight_gradient_index_text(problem, Dim(0), parts) +
                           weight_gradient_result_text(problem, w, parts, "o", params) +
                           "  aicf::sum_weight_gradient<" + comma(sum.maps) + comma(sum.slices) +
                           comma(sum.threads) + std::to_string(sum.rounds) +
                           ">(o, reinterpret_cast<const float*>(static_cast<const char*>(workspace) + " +
                           params.expr(offset) + "));\n";
  CudaLaunch launch = flat_launch("sum_weight_gradient", Dim(ceil_div(places, sum.places())),
                                  static_cast<int32_t>(sum.threads), params);
  launch.grid[1] = Dim(ceil_div(maps, sum.maps));
  add_kernel(code, problem, std::move(launch), body);
}

void add_weight_gradient_copy(CudaCode& code, const CudaProblem& problem, const std::string& index_text,
                              const WeightGradientCopy& copy) {
  constexpr int64_t kTile = 64;  // positions and channels, as pack_channels_last has them
  constexpr int32_t kBlock = 256;
  const CudaWindow& w = problem.inputs[copy.input];
  std::vector<Dim> sizes(kSpatialAxes, Dim(1)), strides(kSpatialAxes, Dim(0));
  Dim positions(1);
  for (size_t i = 2; i < w.sizes.size(); ++i) {
    const size_t axis = kSpatialAxes - w.sizes.size() + i;
    sizes[axis] = w.sizes[i];
    strides[axis] = w.strides[i];
    positions = positions * w.sizes[i];
  }
  CudaParams params;
  const auto number = [&](const Dim& dim) { return ", I(" + params.expr(dim) + ")"; };
  const std::string body = index_text + "  const aicf::UnpackedOperand<" + std::string(cuda_type(w.dtype)) +
                           ", I> o = {in" + std::to_string(copy.input) + ", " + braced(sizes, params) + ", " +
                           braced(strides, params) + number(w.strides[0]) + number(w.strides[1]) +
                           number(Dim(copy.groups)) + number(Dim(copy.channels)) + number(Dim(copy.padded)) +
                           "};\n  aicf::pack_channels_last<" + std::to_string(copy.unit) + ">(o, " +
                           workspace_copy(problem, copy.offset, params) + ");\n";
  CudaLaunch launch = flat_launch(copy.input == 0 ? "pack_x" : "pack_dy",
                                  w.sizes[0] * ceildiv(positions, Dim(kTile)), kBlock, params);
  launch.grid[1] = Dim(ceil_div(copy.groups * copy.padded, kTile));
  add_kernel(code, problem, std::move(launch), body);
}

std::string weight_gradient_index_text(const CudaProblem& problem, const Dim& copied,
                                       const WeightGradientParts& parts) {
  return "  using I = " + std::string(index_type(problem, max(copied, Dim(parts.part * parts.count)))) +
         ";\n";
}

}  // namespace aicf
