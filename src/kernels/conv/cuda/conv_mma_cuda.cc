// Convolution on matrix units, of sm_80 and of sm_90a.
#include <algorithm>

#include "base/error.h"
#include "base/rounding.h"
#include "kernels/common/cuda_machine.h"
#include "kernels/common/cuda_walk.h"
#include "kernels/common/element.h"
#include "kernels/conv/cuda/conv_cycles.h"
#include "kernels/conv/cuda/conv_halo_tma_cuda.h"
#include "kernels/conv/cuda/conv_problem_cuda.h"
#include "kernels/conv/cuda/conv_tma_cuda.h"
#include "kernels/conv/cuda/conv_ways.h"
#include "kernels/matmul/cuda/matmul_operands.h"
#include "kernels/matmul/cuda/wgmma_text.h"
#include "kernels/tile/cuda/tile_cuda.h"

namespace aicf {
namespace {

constexpr int32_t kMmaBlock = 256;

int64_t mma_element_bytes(const CudaProblem& problem) { return dtype_bytes(problem.inputs[0].dtype); }
int64_t mma_vector(const CudaProblem& problem) { return 16 / mma_element_bytes(problem); }
// Steps of K in a stage.
int64_t stage_depth(const CudaProblem& problem) { return kStageBytes / mma_element_bytes(problem); }

// Weights that a matrix kernel reads as they are: K, in the order of conv.cuh, contiguous per map.
bool packed_weights(const CudaProblem& problem, const ConvProblem& c) {
  Dim expected(1);
  if (!(c.channels == Dim(1)) && !(c.w_channel == expected)) return false;
  expected = c.channels;
  const CudaWindow& w = problem.inputs[1];
  for (size_t i = w.sizes.size(); i-- > 2;) {
    if (!(w.sizes[i] == Dim(1)) && !(w.strides[i] == expected)) return false;
    expected = expected * w.sizes[i];
  }
  const int64_t vector = mma_vector(problem);
  return is_multiple(c.w_map, vector) && is_multiple(w.offset, vector);
}

// How many neighbours in K, at most 16 bytes, lie in one aligned unit of x.
int64_t gathered_unit(const CudaProblem& problem, const ConvProblem& c) {
  const CudaWindow& x = problem.inputs[0];
  if (!(x.strides[1] == Dim(1))) return 1;
  const auto fits = [&](int64_t unit) {
    if (!is_multiple(c.channels, unit) || !is_multiple(x.offset, unit)) return false;
    for (size_t i = 0; i < x.strides.size(); ++i)
      if (i != 1 && !(x.sizes[i] == Dim(1)) && !is_multiple(x.strides[i], unit)) return false;
    return true;
  };
  int64_t unit = mma_vector(problem);
  while (unit > 1 && !fits(unit)) unit /= 2;
  return unit;
}

std::vector<PricedMatmul> gathered_ways_of(const CudaProblem& problem, const ConvProblem& c) {
  const bool tf32 = asks_tf32(problem.params);
  MatmulSizes sizes{size_to_choose_by(batches_of(c) * c.groups, problem),
                    size_to_choose_by(rows_of(c), problem), size_to_choose_by(columns_of(c), problem),
                    size_to_choose_by(depth_of(c), problem) * (tf32 ? 2 : 1)};
  sizes.f32 = tf32;
  sizes.machine = problem.machine;
  return gathered_ways(sizes, problem.arch);
}

MatmulWay choose_gathered(const CudaProblem& problem, const ConvProblem& c) {
  for (const auto& [way, microseconds] : gathered_ways_of(problem, c))
    if (!is_named(problem.way) || Way(ConvWay{ConvLoads::gathered, way}) == problem.way) return way;
  AICF_CHECK(false, "a convolution that cannot run so: " + to_string(problem.way));
}

// Ways in which the copy engine reads the windows, the fastest first.
std::vector<KernelVariant> boxed_variants(const CudaProblem& problem, const ConvProblem& c) {
  std::vector<KernelVariant> variants;
  if (c.pixel_rows && conv_tma_fits(problem, c.axes))
    variants = conv_tma_variants(problem, c.axes, c.epilogue);
  if (conv_halo_tma_fits(problem, c))
    for (const KernelVariant& variant : conv_halo_tma_variants(problem, c)) variants.push_back(variant);
  std::stable_sort(variants.begin(), variants.end(),
                   [](const auto& a, const auto& b) { return a.microseconds < b.microseconds; });
  return variants;
}

// Boxes were measured to be faster wherever no second result is scattered and most of a slice's channels are
// there; elsewhere, and with planes or groups of maps, estimates decide.
bool boxes_come_first(const CudaProblem& problem, const ConvProblem& c,
                      const std::vector<KernelVariant>& boxed) {
  if (boxed.empty()) return false;
  constexpr size_t kPlaneAxes = 2;
  const int64_t channels = *problem.inputs[1].sizes[1].constant();
  const bool fills = 2 * channels > round_up(channels, stage_channels(problem.inputs[0]));
  const bool measured =
      c.pixel_rows ? fills || (c.groups == Dim(1) && problem.inputs[1].sizes.size() <= kPlaneAxes + 2)
                   : fills && scattered_outputs(c) == 0;
  return measured || boxed.front().microseconds <= gathered_ways_of(problem, c).front().microseconds;
}

// What a convolution on matrix units reads: its operands, or copies of them in the workspace with channels
// last.
struct MmaOperands {
  ConvProblem conv;  // with the strides, and the channels, of the copies
  bool packs_x = false, packs_w = false;
  int64_t unit = 1;
  Dim x_bytes, w_bytes;  // of the copies
};

Dim aligned(const Dim& bytes) { return ceildiv(bytes, Dim(kCudaAlignment)) * Dim(kCudaAlignment); }

constexpr int64_t kFewChannels = 4;  // copied as one unit

// x is copied where channels are no neighbours; padded to whole units where there is one group.
void pack_x(MmaOperands& o, const CudaProblem& problem) {
  ConvProblem& c = o.conv;
  const int64_t vector = mma_vector(problem);
  if (!is_multiple(c.channels, vector)) {
    if (!(c.groups == Dim(1)) || !c.channels.is_constant()) return;
    const int64_t channels = *c.channels.constant();
    c.channels = Dim(channels <= kFewChannels ? kFewChannels : round_up(channels, vector));
    o.packs_w = true;
  }
  o.packs_x = true;
  o.unit = is_multiple(c.channels, vector) ? vector : kFewChannels;
  Dim stride = c.groups * c.channels;
  c.x_channel = Dim(1);
  for (size_t axis = c.axes.size(); axis-- > 0;) {
    c.axes[axis].in_stride = stride;
    stride = stride * c.axes[axis].in;
  }
  c.x_batch = stride;
  o.x_bytes = aligned(c.images * stride * Dim(mma_element_bytes(problem)));
}

MmaOperands mma_operands(const CudaProblem& problem, const ConvProblem& conv) {
  MmaOperands o{conv, false, !packed_weights(problem, conv), gathered_unit(problem, conv), Dim(0), Dim(0)};
  if (o.unit == 1) pack_x(o, problem);
  if (!o.packs_w) return o;
  const Dim vector(mma_vector(problem));
  o.conv.w_map = ceildiv(depth_of(o.conv), vector) * vector;
  o.w_bytes = aligned(conv.groups * conv.maps * o.conv.w_map * Dim(mma_element_bytes(problem)));
  return o;
}

// Of launches that copy operands first. Of halves none: what was measured of them has ordered estimates
// without (select/measured_order.h), and would count them twice.
double pack_microseconds(const CudaProblem& problem, const MmaOperands& operands) {
  if (is_half(problem.inputs[0].dtype)) return 0;
  double cycles = 0;
  for (const Dim& bytes : {operands.x_bytes, operands.w_bytes})
    if (!(bytes == Dim(0)))
      cycles += kConvStart + 2 * static_cast<double>(size_to_choose_by(bytes, problem)) / kConvMemoryBytes;
  return cycles / kCyclesPerMicrosecond;
}

// What runs where a gathered convolution is asked for.
struct GatheredPlan {
  MatmulWay way;  // as asked, but with no more stages than there are steps of K
  MmaOperands operands;
  WarpTile warp;  // of mma
  Dim tiles, part_depth;
  int threads = 0, min_blocks = 0;  // of a block; of a multiprocessor, 0: as the compiler likes
  int64_t shared_bytes = 0;         // of a block that multiplies
};

GatheredPlan resolve_gathered(const MatmulWay& way, const CudaProblem& problem, const ConvProblem& conv) {
  AICF_CHECK(fault_of(way).empty(), std::string(fault_of(way)) + ": " + to_string(way));
  GatheredPlan plan;
  plan.way = way;
  plan.operands = mma_operands(problem, conv);
  const Dim depth = depth_of(plan.operands.conv);
  const int64_t step = stage_depth(problem);
  const int64_t steps = ceil_div(size_to_choose_by(depth, problem), step) / split_parts(way);
  plan.way.stages = static_cast<int>(std::clamp<int64_t>(steps, 2, way.stages));
  plan.tiles = batches_of(conv) * ceildiv(rows_of(conv), Dim(way.block_m)) *
               ceildiv(columns_of(conv), Dim(way.block_n));
  plan.part_depth = ceildiv(ceildiv(depth, Dim(split_parts(way))), Dim(step)) * Dim(step);
  if (is_wgmma(way)) {
    plan.threads = way.block_m / 64 * 128;
    // Two blocks of 128 columns or three of 64 share a multiprocessor.
    plan.min_blocks = way.block_n <= 64 ? 3 : way.block_n <= 128 ? 2 : 1;
  } else {
    plan.warp = warp_tile(way, false);
    plan.threads = way.block_m / plan.warp.m * (way.block_n / plan.warp.n) * 32;
  }
  const int64_t pipeline = int64_t{plan.way.stages} * (way.block_m + way.block_n) * kStageBytes;
  const int64_t results = int64_t{way.block_m} * way.block_n * 4;
  plan.shared_bytes = std::max(pipeline, splits_in_cluster(way) ? results : 0);
  return plan;
}

// Writes the convolution on matrix units: copies of operands first, then the contraction, then the sum of a K
// that was split through the workspace.
class MmaWriter {
 public:
  MmaWriter(const CudaProblem& problem, const ConvProblem& conv, const GatheredPlan& plan)
      : problem_(problem), conv_(conv), plan_(plan), way_(plan.way), operands_(plan.operands) {}

  CudaCode write() {
    CudaCode code;
    code.compile_cost = kLongToCompile;
    const bool in_workspace = splits_in_workspace(way_);
    code.workspace_bytes = operands_.x_bytes + operands_.w_bytes;
    if (in_workspace)
      code.workspace_bytes =
          code.workspace_bytes +
          plan_.tiles * conv_.groups * Dim(int64_t{split_parts(way_)} * way_.block_m * way_.block_n * 4);
    CudaParams params;
    const CudaEpilogue epilogue = cuda_epilogue(conv_.epilogue, kConvInputs, params);
    code.source =
        includes({is_wgmma(way_) ? "conv/cuda/conv_wgmma.cuh" : "conv/cuda/conv_mma.cuh"}) + epilogue.text;
    if (is_wgmma(way_))
      code.source += wgmma_multiply_text(problem_.inputs[0].dtype, way_.block_n, true, true);
    if (operands_.packs_x) add_pack_x(code);
    if (operands_.packs_w) add_pack_w(code);
    const std::string split = in_workspace ? "kWorkspace" : splits_in_cluster(way_) ? "kCluster" : "kNone";
    add_contraction(code, params, epilogue, split, "");
    if (in_workspace) add_contraction(code, params, epilogue, "kSum", "_sum");
    return code;
  }

 private:
  std::string element() const { return std::string(cuda_type(problem_.inputs[0].dtype)); }

  void add_pack_x(CudaCode& code) const {
    // Of a tile.
    const int64_t channels = operands_.conv.channels == Dim(kFewChannels) ? kFewChannels : 32,
                  positions = 2048 / channels;
    const Dim padded = conv_.groups * operands_.conv.channels;
    CudaParams params;
    const std::string body = operands_text(problem_, conv_, "in0", "in1", params) + "  aicf::pack_input<" +
                             std::to_string(channels) + ">(o, I(" +
                             params.expr(conv_.groups * conv_.channels) + "), I(" + params.expr(padded) +
                             "), " + workspace_copy(problem_, Dim(0), params) + ");\n";
    const CudaWindowAxes& axes = conv_.axes;
    CudaLaunch launch = flat_launch(
        "pack_input", conv_.images * ceildiv(axes[0].in * axes[1].in * axes[2].in, Dim(positions)), kMmaBlock,
        params);
    launch.grid[1] = ceildiv(padded, Dim(channels));
    add_kernel(code, problem_, std::move(launch), body);
  }

  void add_pack_w(CudaCode& code) const {
    ConvProblem conv = conv_;  // read as it is, with the channels of the copy
    conv.channels = operands_.conv.channels;
    const Dim maps = conv.groups * conv.maps, row = operands_.conv.w_map;
    CudaParams params;
    const std::string body = operands_text(problem_, conv, "in0", "in1", params) +
                             "  aicf::pack_weights(o, I(" + params.expr(conv_.channels) + "), I(" +
                             params.expr(maps) + "), I(" + params.expr(row) + "), " +
                             workspace_copy(problem_, operands_.x_bytes, params) + ");\n";
    add_kernel(code, problem_,
               flat_launch("pack_weights", blocks_for(maps * row, kMmaBlock), kMmaBlock, params), body);
  }

  // The first operand of the epilogue that is as large as the result and has its elements in rows of
  // neighbours.
  std::string prefetch_text(CudaParams& params) const {
    const CudaProblem& e = conv_.epilogue;
    for (size_t i = kConvInputs; conv_.pixel_rows && i < e.inputs.size(); ++i) {
      const CudaWindow& w = e.inputs[i];
      CudaWalk rows(1);
      for (size_t axis = 0; axis + 1 < w.sizes.size(); ++axis)
        rows.add_axis(w.sizes[axis], {w.strides[axis]});
      rows.merge_axes();
      if (!(w.strides.back() == Dim(1)) || dtype_bytes(w.dtype) != 2 || rows.rank() != 1 ||
          rows.strides[0][0] == Dim(0))
        continue;
      return "aicf::ConvPrefetch{reinterpret_cast<const char*>(in" + std::to_string(i) + "), " +
             params.expr(rows.strides[0][0] * Dim(2)) + "}";
    }
    return "aicf::ConvPrefetch{nullptr, 0}";
  }

  std::string kernel_type(const std::string& split) const {
    const auto number = [](int64_t v) { return std::to_string(v) + ", "; };
    const std::string tile = number(way_.block_m) + number(way_.block_n);
    const std::string rest = number(way_.stages) + flag(conv_.pixel_rows) + ", " + number(operands_.unit) +
                             flag(keeps_vectors(conv_)) + ", aicf::Split::" + split + ", " +
                             std::to_string(split_parts(way_)) + ">";
    if (is_wgmma(way_)) return "aicf::ConvWgmma<" + element() + ", Multiply, " + tile + rest;
    return "aicf::ConvMma<" + element() + ", " + tile + number(plan_.warp.m) + number(plan_.warp.n) + rest;
  }

  void add_contraction(CudaCode& code, CudaParams params, const CudaEpilogue& epilogue,
                       const std::string& split, const std::string& suffix) const {
    const bool sum = split == "kSum", cluster = split == "kCluster";
    const std::string x = operands_.packs_x ? workspace_copy(problem_, Dim(0), params) : "in0",
                      w = operands_.packs_w ? workspace_copy(problem_, operands_.x_bytes, params) : "in1";
    std::string body = operands_text(problem_, operands_.conv, x, w, params) +
                       "  const Epilogue epilogue = " + epilogue.make + ";\n  " + kernel_type(split) +
                       "::run(o, epilogue, I(" + params.expr(plan_.part_depth) + ")";
    if (is_wgmma(way_))
      body += ", " + prefetch_text(params);
    else
      body += split == "kWorkspace" || sum
                  ? ", static_cast<char*>(workspace) + " + params.expr(operands_.x_bytes + operands_.w_bytes)
                  : ", nullptr";
    body += ");\n";
    CudaLaunch launch;
    launch.function = std::string(is_wgmma(way_) ? "conv_wgmma_" : "conv_mma_") +
                      std::string(dtype_name(problem_.inputs[0].dtype)) + "_" + std::to_string(way_.block_m) +
                      "x" + std::to_string(way_.block_n) + suffix;
    launch.grid = {sum ? plan_.tiles : plan_.tiles * Dim(split_parts(way_)), conv_.groups, Dim(1)};
    launch.block = plan_.threads;
    if (cluster) launch.cluster = split_parts(way_);
    if (!sum) launch.shared_bytes = plan_.shared_bytes;
    launch.params = params.dims();
    add_kernel(code, problem_, std::move(launch), body, plan_.min_blocks);
  }

  const CudaProblem& problem_;
  const ConvProblem& conv_;
  const GatheredPlan& plan_;
  const MatmulWay& way_;
  const MmaOperands& operands_;
};

}  // namespace

CudaCode generate_conv_mma(const CudaProblem& problem) {
  ConvProblem conv = conv_problem(problem, false);
  conv.epilogue.program = &conv.program;
  CudaProblem asked = problem;
  if (!is_named(asked.way))
    if (const auto boxed = boxed_variants(problem, conv); boxes_come_first(problem, conv, boxed))
      asked.way = boxed[0].way;
  if (std::holds_alternative<HaloTmaWay>(asked.way)) return conv_halo_tma_code(asked, conv);
  const auto* way = std::get_if<ConvWay>(&asked.way);
  if (way != nullptr && way->loads == ConvLoads::tma) return conv_tma_code(asked, conv.axes, conv.epilogue);
  return MmaWriter(problem, conv, resolve_gathered(choose_gathered(problem, conv), problem, conv)).write();
}

CudaCode generate_conv_tf32x3(const CudaProblem& problem) {
  ConvProblem conv = conv_problem(problem, false);
  conv.epilogue.program = &conv.program;
  return conv_halo_tma_code(problem, conv);
}

std::vector<KernelVariant> conv_tf32x3_variants(const CudaProblem& problem) {
  ConvProblem conv = conv_problem(problem, false);
  conv.epilogue.program = &conv.program;
  if (!conv_halo_tma_fits(problem, conv)) return {};
  return conv_halo_tma_variants(problem, conv);
}

std::vector<KernelVariant> conv_mma_variants(const CudaProblem& problem) {
  ConvProblem conv = conv_problem(problem, false);
  conv.epilogue.program = &conv.program;
  const std::vector<KernelVariant> boxed = boxed_variants(problem, conv);
  std::vector<KernelVariant> variants;
  const double packs = pack_microseconds(problem, mma_operands(problem, conv));
  for (const auto& [way, microseconds] : gathered_ways_of(problem, conv))
    variants.push_back({ConvWay{ConvLoads::gathered, way}, microseconds + packs});
  const bool first = boxes_come_first(problem, conv, boxed);
  variants.insert(first ? variants.begin() : variants.end(), boxed.begin(), boxed.end());
  return variants;
}

}  // namespace aicf
