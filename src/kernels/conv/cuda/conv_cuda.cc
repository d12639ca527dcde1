// CUDA rows of conv and conv_transpose; those on matrix units are in conv_mma_cuda.cc, the depthwise ones in
// conv_depthwise_cuda.cc.
#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "kernels/common/cuda_walk.h"
#include "kernels/common/element.h"
#include "kernels/conv/cuda/conv_problem_cuda.h"
#include "kernels/conv/cuda/conv_simt_ways.h"
#include "kernels/indexing/copy_cuda.h"
#include "kernels/tile/cuda/tile_cuda.h"

namespace aicf {
namespace {

constexpr int32_t kPackBlock = 256;
constexpr int64_t kPackTile = 32;  // taps of channels, and maps

// Weights whose maps are neighbours are read as they lie; others too, or they are copied first.
bool has_maps_last(const ConvProblem& c) { return c.w_map == Dim(1) || c.maps == Dim(1); }

// What runs for a way.
struct SimtPlan {
  ConvSimtThread thread;
  SimtSteps steps;
  MatmulWay way;
  ConvProblem conv;  // with the weights of the copy
  bool packs_w = false;
  int64_t unit = 1;  // of w
  Dim phases, tiles;
  Dim w_bytes;  // of the copy
};

// Phases of a transposed convolution, and the results of each.
Dim phases_of(const ConvProblem& c) {
  Dim phases(1);
  if (c.transposed)
    for (const CudaWindowAxis& axis : c.axes) phases = phases * axis.stride;
  return phases;
}
Dim places_of(const ConvProblem& c) {
  Dim places = c.images;
  for (const CudaWindowAxis& axis : c.axes)
    places = places * (c.transposed ? ceildiv(axis.out, axis.stride) : axis.out);
  return places;
}

SimtSizes simt_sizes(const CudaProblem& problem, const ConvProblem& c) {
  const auto size = [&](const Dim& dim) { return size_to_choose_by(dim, problem); };
  SimtSizes sizes;
  sizes.machine = problem.machine;
  sizes.batch = size(c.groups * phases_of(c));
  sizes.maps = size(c.maps);
  sizes.pixels = size(places_of(c));
  sizes.channels = size(c.channels);
  sizes.taps = std::max<int64_t>(1, size(element_count(c.kernel)) / std::max<int64_t>(1, size(phases_of(c))));
  sizes.element_bytes = conv_accumulator(problem.inputs[0].dtype) == "double" ? 8 : 4;
  sizes.copies = dtype_bytes(problem.inputs[0].dtype) == sizes.element_bytes;
  sizes.channels_fast = c.x_channel == Dim(1) && !(c.channels == Dim(1));
  constexpr double kWarp = 32, kLine = 128;
  const CudaWindowAxis& across = c.axes.back();
  const auto step = static_cast<double>(c.transposed ? 1 : size(across.stride)),
             row = static_cast<double>(std::max<int64_t>(1, size(across.out)));
  const double bytes = kWarp * step * static_cast<double>(dtype_bytes(problem.inputs[0].dtype));
  sizes.lines = sizes.channels_fast ? kWarp / 8 : bytes / kLine + std::max(1.0, kWarp / row);
  const int64_t element = dtype_bytes(problem.inputs[0].dtype);
  const auto apart = [&](const Dim& stride) { return element * std::abs(size(stride)); };
  sizes.w_map_bytes = apart(c.w_map);
  sizes.w_channel_bytes = apart(c.w_channel);
  sizes.w_tap_bytes = apart(c.w_taps.back());
  sizes.maps_last = has_maps_last(c);
  sizes.w_bytes = static_cast<double>(element * size(element_count(problem.inputs[1].sizes)));
  return sizes;
}

// Neighbouring maps in an aligned unit of w.
int64_t maps_unit(const CudaProblem& problem, const ConvProblem& c, bool is_copy) {
  if (!(c.w_map == Dim(1))) return 1;
  const auto fits = [&](int64_t unit) {
    return is_multiple(c.maps, unit) && is_multiple(c.w_channel, unit) &&
           (is_copy || is_multiple(problem.inputs[1].offset, unit)) &&
           std::all_of(c.w_taps.begin(), c.w_taps.end(),
                       [&](const Dim& stride) { return is_multiple(stride, unit); });
  };
  int64_t unit = std::min<int64_t>(16 / dtype_bytes(problem.inputs[0].dtype), 4);
  while (unit > 1 && !fits(unit)) unit /= 2;
  return unit;
}

// As [tap, channel, map].
void pack_weights(SimtPlan& plan, const CudaProblem& problem) {
  ConvProblem& c = plan.conv;
  plan.packs_w = true;
  const Dim maps = c.transposed ? c.maps : c.groups * c.maps,
            channels = c.transposed ? c.groups * c.channels : c.channels;
  plan.w_bytes =
      ceildiv(element_count(c.kernel) * channels * maps * Dim(dtype_bytes(problem.inputs[0].dtype)),
              Dim(kCudaAlignment)) *
      Dim(kCudaAlignment);
  c.w_map = Dim(1);
  c.w_channel = maps;
  Dim stride = channels * maps;
  for (size_t axis = c.axes.size(); axis-- > 0;) {
    c.w_taps[axis] = stride;
    stride = stride * c.axes[axis].kernel;
  }
}

MatmulWay choose_simt(const CudaProblem& problem, const SimtSizes& sizes) {
  const std::vector<PricedMatmul> ways = simt_ways(sizes, problem.arch);
  for (const auto& [way, microseconds] : ways)
    if (!is_named(problem.way) || Way(ConvWay{ConvLoads::gathered, way}) == problem.way) return way;
  AICF_CHECK(false, "a convolution that cannot run so: " + to_string(problem.way));
}

SimtPlan resolve_simt(const CudaProblem& problem, const ConvProblem& conv) {
  SimtPlan plan;
  plan.conv = conv;
  const SimtSizes sizes = simt_sizes(problem, conv);
  plan.way = choose_simt(problem, sizes);
  plan.thread = conv_simt_thread(plan.way);
  plan.steps = simt_steps(sizes, plan.way);
  if (simt_packs_weights(sizes, plan.way)) pack_weights(plan, problem);
  plan.unit = maps_unit(problem, plan.conv, plan.packs_w);
  plan.phases = phases_of(conv);
  plan.tiles = plan.phases * ceildiv(conv.maps, Dim(plan.way.block_m)) *
               ceildiv(places_of(conv), Dim(plan.way.block_n));
  return plan;
}

class SimtWriter {
 public:
  SimtWriter(const CudaProblem& problem, const ConvProblem& conv, const SimtPlan& plan, std::string name)
      : problem_(problem), conv_(conv), plan_(plan), name_(std::move(name)) {}

  CudaCode write() const {
    const MatmulWay& way = plan_.way;
    const bool in_workspace = splits_in_workspace(way);
    CudaCode code;
    code.compile_cost = kLongToCompile;
    code.workspace_bytes = plan_.w_bytes;
    if (in_workspace)
      code.workspace_bytes =
          code.workspace_bytes + plan_.tiles * conv_.groups *
                                     Dim(int64_t{way.block_m} * way.block_n * way.split.parts *
                                         simt_sizes(problem_, conv_).element_bytes);
    CudaParams params;
    const CudaEpilogue epilogue = cuda_epilogue(conv_.epilogue, kConvInputs, params);
    code.source = includes({"conv/cuda/conv_simt.cuh"}) + epilogue.text;
    if (plan_.packs_w) add_pack(code);
    add_contraction(code, params, epilogue,
                    in_workspace             ? "kWorkspace"
                    : splits_in_cluster(way) ? "kCluster"
                                             : "kNone",
                    "");
    if (in_workspace) add_contraction(code, params, epilogue, "kSum", "_sum");
    return code;
  }

 private:
  void add_pack(CudaCode& code) const {
    const Dim &maps = plan_.conv.w_channel,
              channels = conv_.transposed ? conv_.groups * conv_.channels : conv_.channels;
    CudaParams params;
    const std::string body = operands_text(problem_, conv_, "in0", "in1", params) +
                             "  aicf::pack_maps_last(o, I(" + params.expr(channels) + "), I(" +
                             params.expr(maps) + "), " + workspace_copy(problem_, Dim(0), params) + ");\n";
    CudaLaunch launch =
        flat_launch("pack_maps_last", ceildiv(element_count(conv_.kernel) * channels, Dim(kPackTile)),
                    kPackBlock, params);
    launch.grid[1] = ceildiv(maps, Dim(kPackTile));
    add_kernel(code, problem_, std::move(launch), body);
  }

  void add_contraction(CudaCode& code, CudaParams params, const CudaEpilogue& epilogue,
                       const std::string& split, const std::string& suffix) const {
    const MatmulWay& way = plan_.way;
    const DType dtype = problem_.inputs[0].dtype;
    const bool is_sum = split == "kSum", transposed = conv_.transposed;
    const auto number = [](int64_t v) { return std::to_string(v) + ", "; };
    const bool wide =
        conv_.pixel_rows ? keeps_vectors(conv_) : is_multiple(conv_.pixels, 4) && plan_.phases == Dim(1);
    const SimtSizes sizes = simt_sizes(problem_, conv_);
    const std::string tile = "aicf::SimtTile<" + number(way.block_m) + number(way.block_n) +
                             number(plan_.thread.maps) + std::to_string(plan_.thread.pixels) + ">";
    const std::string kernel =
        "aicf::ConvSimt<" + std::string(cuda_type(dtype)) + ", " + conv_accumulator(dtype) + ", " + tile +
        ", " + number(plan_.steps.depth) + number(way.stages) + flag(conv_.pixel_rows) + ", " +
        flag(transposed) + ", " + flag(plan_.steps.flat) + ", " + flag(sizes.channels_fast) + ", " +
        number(plan_.unit) + flag(wide) + ", aicf::Split::" + split + ", " +
        std::to_string(split_parts(way)) + (simt_loads_steps(sizes) && !plan_.packs_w ? ", true>" : ">");
    const std::string w = plan_.packs_w ? workspace_copy(problem_, Dim(0), params) : "in1";
    const std::string parts = split == "kWorkspace" || is_sum
                                  ? "static_cast<char*>(workspace) + " + params.expr(plan_.w_bytes)
                                  : "nullptr";
    const std::string body = operands_text(problem_, plan_.conv, "in0", w, params) +
                             "  const Epilogue epilogue = " + epilogue.make + ";\n  " + kernel +
                             "::run(o, epilogue, " + parts + ");\n";
    CudaLaunch launch;
    launch.function = name_ + "_simt_" + std::string(dtype_name(dtype)) + "_" + std::to_string(way.block_m) +
                      "x" + std::to_string(way.block_n) + suffix;
    const int64_t blocks = is_sum ? plan_.thread.maps * plan_.thread.pixels / 4 : split_parts(way);
    launch.grid = {plan_.tiles * Dim(blocks), conv_.groups, Dim(1)};
    launch.block = plan_.thread.threads;
    if (split == "kCluster") launch.cluster = split_parts(way);
    if (!is_sum) launch.shared_bytes = simt_shared_bytes(sizes, way);
    launch.params = params.dims();
    add_kernel(code, problem_, std::move(launch), body, plan_.thread.min_blocks);
  }

  const CudaProblem& problem_;
  const ConvProblem& conv_;
  const SimtPlan& plan_;
  const std::string name_;
};

CudaCode simt_code(const CudaProblem& problem, bool transposed) {
  ConvProblem conv = conv_problem(problem, transposed);
  conv.epilogue.program = &conv.program;
  return SimtWriter(problem, conv, resolve_simt(problem, conv), transposed ? "conv_transpose" : "conv")
      .write();
}

std::vector<KernelVariant> simt_variants(const CudaProblem& problem, bool transposed) {
  std::vector<KernelVariant> variants;
  if (is_half(problem.inputs[0].dtype)) return variants;  // for matrix units: one way will do here
  for (const auto& [way, microseconds] :
       simt_ways(simt_sizes(problem, conv_problem(problem, transposed)), problem.arch))
    variants.push_back({ConvWay{ConvLoads::gathered, way}, microseconds});
  return variants;
}

bool is_conv(const Problem& problem) {
  if (problem.inputs.size() < 2 || problem.outputs.empty() ||
      problem.inputs[0].dtype != problem.inputs[1].dtype)
    return false;
  const size_t rank = problem.inputs[0].sizes.size();
  return is_float(problem.inputs[0].dtype) && rank >= 3 && rank <= kSpatialAxes + 2;
}

}  // namespace

bool can_run_conv_mma(const Problem& problem) {
  if (!is_conv(problem)) return false;
  const DType dtype = problem.inputs[0].dtype;
  return is_half(dtype) || (dtype == DType::f32 && asks_tf32(problem.params));
}
bool can_run_conv_tf32x3(const Problem& problem) {
  return is_conv(problem) && problem.inputs[0].dtype == DType::f32 && !asks_tf32(problem.params);
}
// Of f64, which is the reference of f32 in tf32, whatever is asked.
bool can_run_conv_simt(const Problem& problem) {
  return is_conv(problem) && (problem.inputs[0].dtype == DType::f64 || !asks_tf32(problem.params));
}

// A thread reads its channel anew for each map: with more maps than the narrowest tile of a product has
// columns, a product reads it less often.
bool can_run_conv_depthwise(const Problem& problem) {
  constexpr int64_t kMostMaps = 8;  // of a channel
  if (!can_run_conv_simt(problem) || !(problem.inputs[1].sizes[1] == Dim(1))) return false;
  const std::optional<int64_t> maps = problem.inputs[1].sizes[0].constant(),
                               groups = problem.params[1].constant();
  return maps && groups && *maps <= kMostMaps * *groups;
}

bool can_run_conv_w_channels_last(const Problem& problem) {
  return problem.inputs.size() == 1 && problem.outputs.size() == 1 &&
         (is_half(problem.inputs[0].dtype) || problem.inputs[0].dtype == DType::f32);
}
CudaCode generate_conv_w_channels_last(const CudaProblem& problem) {
  CudaCode code;
  code.source = includes({"indexing/indexing.cuh"});
  add_copy(code, problem, 0, "conv_w_channels_last");
  return code;
}

CudaCode generate_conv_simt(const CudaProblem& problem) { return simt_code(problem, false); }
CudaCode generate_conv_transpose(const CudaProblem& problem) { return simt_code(problem, true); }
std::vector<KernelVariant> conv_simt_variants(const CudaProblem& problem) {
  return simt_variants(problem, false);
}
std::vector<KernelVariant> conv_transpose_variants(const CudaProblem& problem) {
  return simt_variants(problem, true);
}

}  // namespace aicf
