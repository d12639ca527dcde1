// The CUDA row of depthwise convolutions: tiles of results a thread where the geometry of the windows is
// known (conv_depthwise.cuh), else a result a thread (conv_simt.cuh).
#include <algorithm>
#include <optional>

#include "base/rounding.h"
#include "kernels/common/cuda_machine.h"
#include "kernels/common/cuda_walk.h"
#include "kernels/common/element.h"
#include "kernels/conv/cuda/conv_depthwise_ways.h"
#include "kernels/conv/cuda/conv_problem_cuda.h"
#include "kernels/tile/cuda/tile_cuda.h"

namespace aicf {
namespace {

constexpr int32_t kThreads = 256;  // of a block

std::string listed(std::initializer_list<int64_t> numbers) {
  std::string text;
  for (int64_t number : numbers) text += (text.empty() ? "" : ", ") + std::to_string(number);
  return text;
}

// The weights of an image's window along two axes, all of it known when the text is written.
struct Geometry {
  int64_t kernel[2], stride[2], dilation[2], low[2];
  int64_t taps() const { return kernel[0] * kernel[1]; }
  // Of x under so many neighbouring results of an axis.
  int64_t reach(size_t axis, int64_t results) const {
    return (results - 1) * stride[axis] + (kernel[axis] - 1) * dilation[axis] + 1;
  }
};

std::optional<Geometry> geometry_of(const ConvProblem& c) {
  constexpr int64_t kMostTaps = 81;  // the text repeats itself for each
  const CudaWindowAxis& depth = c.axes[0];
  if (!(depth.in == Dim(1)) || !(depth.out == Dim(1)) || !(depth.kernel == Dim(1))) return std::nullopt;
  Geometry g{};
  for (size_t i = 0; i < 2; ++i) {
    const CudaWindowAxis& axis = c.axes[i + 1];
    const auto kernel = axis.kernel.constant(), stride = axis.stride.constant(),
               dilation = axis.dilation.constant(), low = axis.low.constant();
    if (!kernel || !stride || !dilation || !low || *kernel < 1) return std::nullopt;
    g.kernel[i] = *kernel, g.stride[i] = *stride, g.dilation[i] = *dilation, g.low[i] = *low;
  }
  return g.taps() <= kMostTaps ? std::optional(g) : std::nullopt;
}

// Results of a thread: of `units` that stand side by side, fewer where they would not fill the machine.
struct ResultTile {
  int64_t rows, columns;
};
ResultTile depthwise_tile(ResultTile most, const CudaProblem& problem, const ConvProblem& c, int64_t units) {
  const int64_t filling = 512 * problem.machine.multiprocessors,
                outer = size_to_choose_by(c.images, problem) * units,
                rows = size_to_choose_by(c.axes[1].out, problem),
                columns = size_to_choose_by(c.axes[2].out, problem);
  const auto threads = [&](ResultTile t) {
    return outer * ceil_div(rows, t.rows) * ceil_div(columns, t.columns);
  };
  while (threads(most) < filling && most.rows > 1) most.rows /= 2;
  while (threads(most) < filling && most.columns > 1) most.columns /= 2;
  return most;
}

std::string tile_text(const Geometry& g, const std::string& accumulator, int64_t vector, ResultTile tile) {
  return "aicf::DepthwiseTile<" + accumulator + ", " +
         listed({vector, g.kernel[0], g.kernel[1], g.stride[0], g.stride[1], g.dilation[0], g.dilation[1],
                 tile.rows, tile.columns}) +
         ">";
}

// Neighbouring maps that a thread takes: 16 bytes of x.
int64_t map_unit(const CudaProblem& problem, const ConvProblem& c) {
  if (!c.pixel_rows || !(c.maps == Dim(1))) return 1;
  const CudaWindow& x = problem.inputs[0];
  CudaWalk walk(1);
  for (size_t i = 0; i < x.sizes.size(); ++i)
    if (i != 1) walk.add_axis(Dim(1), {x.strides[i]});
  walk.add_axis(x.sizes[1], {x.strides[1]});
  return widest_unit(walk, {x.offset}, dtype_bytes(x.dtype));
}

// Neighbouring elements of a row of x, of which tiles of `columns` results begin at multiples.
int64_t row_unit(const CudaProblem& problem, const ConvProblem& c, const Geometry& g, int64_t columns) {
  const CudaWindow& x = problem.inputs[0];
  CudaWalk walk(1);
  for (size_t i = 0; i < x.sizes.size(); ++i)
    walk.add_axis(i + 1 == x.sizes.size() ? c.axes[2].in : Dim(1), {x.strides[i]});
  int64_t unit = widest_unit(walk, {x.offset}, dtype_bytes(x.dtype));
  while (columns * g.stride[1] % unit != 0) unit /= 2;
  return unit;
}

// Weights of neighbouring maps lie in one aligned unit.
bool wide_weights(const CudaProblem& problem, const ConvProblem& c, int64_t unit) {
  const CudaWindow& w = problem.inputs[1];
  if (unit == 1 || !(c.w_map == Dim(1)) || !is_multiple(w.offset, unit)) return false;
  return std::all_of(c.w_taps.begin(), c.w_taps.end(),
                     [&](const Dim& stride) { return is_multiple(stride, unit); });
}

class DepthwiseWriter {
 public:
  DepthwiseWriter(const CudaProblem& problem, const ConvProblem& conv)
      : problem_(problem),
        conv_(conv),
        dtype_(problem.inputs[0].dtype),
        types_(std::string(cuda_type(dtype_)) + ", " + conv_accumulator(dtype_) + ", "),
        unit_(map_unit(problem, conv)),
        geometry_(geometry_of(conv)) {}

  CudaCode write() const {
    if (is_of_maps()) return of_maps(*geometry_);
    if (is_of_planes()) return of_planes(*geometry_);
    const Dim threads = plain_threads();
    CudaParams params;
    const std::string run = "aicf::ConvDepthwise<" + types_ + std::to_string(unit_) + ", " +
                            flag(conv_.pixel_rows) + ", " + flag(wide_weights(problem_, conv_, unit_)) +
                            ">::run(o, epilogue, I(" + params.expr(conv_.groups) + "))";
    return code(flat_launch(function(), blocks_for(threads, kThreads), kThreads, params), run, params);
  }

  DepthwiseWork work() const {
    DepthwiseWork work{.block = kThreads, .machine = problem_.machine};
    for (const CudaWindow* window : {&problem_.inputs[0], &problem_.outputs[0]})
      work.bytes += static_cast<double>(dtype_bytes(window->dtype)) *
                    static_cast<double>(size(element_count(window->sizes)));
    work.vector = is_of_planes() ? 1 : unit_;
    work.taps = size(element_count(conv_.kernel));
    work.threads = size(plain_threads());
    if (!is_of_maps() && !is_of_planes()) return work;
    const ResultTile tile = is_of_maps() ? maps_tile(*geometry_) : planes_tile(*geometry_);
    work.rows = tile.rows, work.columns = tile.columns;
    work.x_rows = geometry_->reach(0, tile.rows), work.x_columns = geometry_->reach(1, tile.columns);
    work.x_loads = work.x_columns;
    if (is_of_planes()) work.x_loads = row_units(*geometry_, tile).count;
    const Dim outer = is_of_maps() ? conv_.images * ceildiv(conv_.groups, Dim(unit_))
                                   : conv_.images * conv_.groups * conv_.maps;
    work.threads = size(tiles(outer, tile));
    return work;
  }
  // Results of a thread, channels and maps that one has, and blocks.
  WindowWay way() const {
    const DepthwiseWork all = work();
    const auto number = [](int64_t n) { return static_cast<int>(n); };
    return {number(all.rows), number(all.columns), number(all.vector), number(all.vector),
            number(std::max<int64_t>(1, ceil_div(all.threads, all.block)))};
  }

 private:
  int64_t size(const Dim& dim) const { return size_to_choose_by(dim, problem_); }
  bool is_of_maps() const { return geometry_ && conv_.pixel_rows && conv_.maps == Dim(1); }
  bool is_of_planes() const { return geometry_ && !conv_.pixel_rows; }
  Dim plain_threads() const {
    return conv_.images * conv_.pixels * floordiv(conv_.groups * conv_.maps, Dim(unit_));
  }
  ResultTile maps_tile(const Geometry& g) const {
    return depthwise_tile({g.taps() <= 9 ? 2 : 1, 4}, problem_, conv_, ceil_div(size(conv_.groups), unit_));
  }
  ResultTile planes_tile(const Geometry& g) const {
    const int64_t eight = is_multiple(conv_.axes[2].out, 8) && dtype_bytes(dtype_) == 2 ? 8 : 4;
    return depthwise_tile({g.taps() <= 9 ? 4 : 2, eight}, problem_, conv_, size(conv_.groups * conv_.maps));
  }
  // Aligned units of x, elements of the first one before the window, and units under a row of a tile.
  struct RowUnits {
    int64_t unit, shift, count;
  };
  RowUnits row_units(const Geometry& g, const ResultTile& tile) const {
    const int64_t unit = row_unit(problem_, conv_, g, tile.columns),
                  shift = ((-g.low[1]) % unit + unit) % unit;
    return {unit, shift, ceil_div(shift + g.reach(1, tile.columns), unit)};
  }

  std::string function() const { return "conv_depthwise_" + std::string(dtype_name(dtype_)); }

  Dim tiles(const Dim& outer, ResultTile tile) const {
    return outer * ceildiv(conv_.axes[1].out, Dim(tile.rows)) * ceildiv(conv_.axes[2].out, Dim(tile.columns));
  }

  // Channels side by side in a block: few enough that a block has some tiles, and none idle where they
  // divide.
  int64_t lanes(int64_t units) const {
    constexpr int64_t kLeast = 4, kMost = 16, kUsual = 8;
    for (int64_t lanes = kMost; lanes >= kLeast; --lanes)
      if (units % lanes == 0) return lanes;
    return units < kUsual ? std::max<int64_t>(units, 1) : kUsual;
  }

  CudaCode of_maps(const Geometry& g) const {
    const int64_t units = ceil_div(size(conv_.groups), unit_), across = lanes(units);
    const ResultTile tile = maps_tile(g);
    const Dim all = tiles(conv_.images, tile), places(kThreads / across),
              slices = ceildiv(conv_.groups, Dim(across * unit_));
    const bool wide = wide_weights(problem_, conv_, unit_);
    CudaParams params;
    const std::string run = "aicf::ConvDepthwiseLast<" + types_ + listed({unit_, across}) + ", " +
                            flag(wide) + ", " + tile_text(g, conv_accumulator(dtype_), unit_, tile) +
                            ">::run(o, epilogue, I(" + params.expr(conv_.groups) + "), I(" +
                            params.expr(all) + "))";
    // A block that keeps weights makes several tiles with them where there are enough for all.
    constexpr int64_t kMostRounds = 8;
    const int64_t blocks = size(ceildiv(all, places) * slices),
                  rounds =
                      wide ? 1
                           : std::clamp<int64_t>(blocks / problem_.machine.filling_blocks(), 1, kMostRounds);
    CudaLaunch launch = flat_launch(function(), ceildiv(all, places * Dim(rounds)),
                                    static_cast<int32_t>(kThreads / across * across), params);
    launch.grid[1] = slices;
    // One map is content with 64 registers, which the compiler would cut to 32 and use the stack.
    return code(std::move(launch), run, params, unit_ == 1 ? 4 : 0);
  }

  CudaCode of_planes(const Geometry& g) const {
    const Dim maps = conv_.groups * conv_.maps;
    const ResultTile tile = planes_tile(g);
    const auto [unit, shift, count] = row_units(g, tile);
    const bool wide = is_multiple(conv_.axes[2].out, tile.columns);
    const Dim all = tiles(conv_.images * maps, tile);
    CudaParams params;
    const std::string run = "aicf::ConvDepthwiseFirst<" + types_ + listed({unit, shift}) + ", " + flag(wide) +
                            ", " + tile_text(g, conv_accumulator(dtype_), 1, tile) +
                            ">::run(o, epilogue, I(" + params.expr(maps) + "), I(" + params.expr(all) + "))";
    return code(flat_launch(function(), blocks_for(all, kThreads), kThreads, params), run, params);
  }

  // Of these parameters, to which those of operands and epilogue come.
  CudaCode code(CudaLaunch launch, const std::string& run, CudaParams& params, int min_blocks = 0) const {
    const CudaEpilogue epilogue = cuda_epilogue(conv_.epilogue, kConvInputs, params);
    const std::string body = operands_text(problem_, conv_, "in0", "in1", params) +
                             "  const Epilogue epilogue = " + epilogue.make + ";\n  " + run + ";\n";
    launch.params = params.dims();
    CudaCode code;
    code.source = includes({"conv/cuda/conv_depthwise.cuh"}) + epilogue.text;
    add_kernel(code, problem_, std::move(launch), body, min_blocks);
    return code;
  }

  const CudaProblem& problem_;
  const ConvProblem& conv_;
  DType dtype_;
  std::string types_;  // "element, accumulator, "
  int64_t unit_;
  std::optional<Geometry> geometry_;
};

}  // namespace

CudaCode generate_conv_depthwise(const CudaProblem& problem) {
  ConvProblem conv = conv_problem(problem, false);
  conv.epilogue.program = &conv.program;
  return DepthwiseWriter(problem, conv).write();
}

std::vector<KernelVariant> conv_depthwise_variants(const CudaProblem& problem) {
  if (is_half(problem.inputs[0].dtype)) return {};  // measurements order it among rows of matrix units
  const ConvProblem conv = conv_problem(problem, false);
  const DepthwiseWriter writer(problem, conv);
  return {{writer.way(), depthwise_microseconds(writer.work())}};
}

}  // namespace aicf
