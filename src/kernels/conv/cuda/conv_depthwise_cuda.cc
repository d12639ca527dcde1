// The CUDA row of depthwise convolutions: tiles of results a thread where the geometry of the windows is
// known (conv_depthwise.cuh), else a result a thread (conv_simt.cuh).
#include <algorithm>
#include <optional>
#include <vector>

#include "base/rounding.h"
#include "kernels/common/cuda_machine.h"
#include "kernels/common/cuda_walk.h"
#include "kernels/common/element.h"
#include "kernels/conv/cuda/conv_depthwise_ways.h"
#include "kernels/conv/cuda/conv_problem_cuda.h"
#include "kernels/tile/cuda/tile_cuda.h"

namespace aicf {
namespace {

constexpr int32_t kThreads = 256;         // of a block, at most
constexpr int64_t kThreadsAtATime = 512;  // of a multiprocessor, whose registers they share

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

// Neighbouring results of a thread: of a plane, and of so many maps.
struct ResultTile {
  int64_t rows = 1, columns = 1, maps = 1;
};

std::string tile_text(const Geometry& g, const std::string& accumulator, ResultTile tile) {
  return "aicf::DepthwiseTile<" + accumulator + ", " +
         listed({tile.maps, g.kernel[0], g.kernel[1], g.stride[0], g.stride[1], g.dilation[0], g.dilation[1],
                 tile.rows, tile.columns}) +
         ">";
}

// Neighbouring channels of x that one load brings: 16 bytes at most.
int64_t channel_unit(const CudaProblem& problem) {
  const CudaWindow& x = problem.inputs[0];
  CudaWalk walk(1);
  for (size_t i = 0; i < x.sizes.size(); ++i)
    if (i != 1) walk.add_axis(Dim(1), {x.strides[i]});
  walk.add_axis(x.sizes[1], {x.strides[1]});
  return widest_unit(walk, {x.offset}, dtype_bytes(x.dtype));
}

// The most neighbouring maps, a power of two, that a thread takes: whole channels of one load of x, or a part
// of one channel's maps.
int64_t map_unit(const CudaProblem& problem, const ConvProblem& c) {
  const std::optional<int64_t> maps = c.maps.constant();
  if (!c.pixel_rows || !maps) return 1;
  const int64_t unit = channel_unit(problem), most = 16 / dtype_bytes(problem.inputs[0].dtype);
  for (int64_t together = most; together > 1; together /= 2)
    if (*maps % together == 0 || (together % *maps == 0 && unit % (together / *maps) == 0)) return together;
  return 1;
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
    const std::string run = "aicf::ConvDepthwise<" + types_ + std::to_string(plain_unit()) + ", " +
                            flag(conv_.pixel_rows) + ", " +
                            flag(wide_weights(problem_, conv_, plain_unit())) + ">::run(o, epilogue, I(" +
                            params.expr(conv_.groups) + "))";
    return code(flat_launch(function(), blocks_for(threads, kThreads), kThreads, params), run, params);
  }

  DepthwiseWork work() const {
    if (has_tiles()) return best_work();
    DepthwiseWork work = empty_work();
    work.vector = plain_unit();
    work.threads = size(plain_threads());
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
  bool is_of_maps() const { return geometry_ && conv_.pixel_rows && conv_.maps.is_constant(); }
  bool is_of_planes() const { return geometry_ && !conv_.pixel_rows; }
  bool has_tiles() const { return is_of_maps() || is_of_planes(); }
  // Without tiles a thread that takes several maps reads a channel for each.
  int64_t plain_unit() const { return conv_.maps == Dim(1) ? unit_ : 1; }
  Dim plain_threads() const {
    return conv_.images * conv_.pixels * floordiv(conv_.groups * conv_.maps, Dim(plain_unit()));
  }
  DepthwiseWork empty_work() const {
    DepthwiseWork work{.block = kThreads, .machine = problem_.machine};
    for (const CudaWindow* window : {&problem_.inputs[0], &problem_.outputs[0]})
      work.bytes += static_cast<double>(dtype_bytes(window->dtype)) *
                    static_cast<double>(size(element_count(window->sizes)));
    work.taps = size(element_count(conv_.kernel));
    return work;
  }

  DepthwiseWork work_of(const ResultTile& tile, int64_t block) const {
    const Geometry& g = *geometry_;
    DepthwiseWork work = empty_work();
    work.block = block;
    work.rows = tile.rows, work.columns = tile.columns, work.vector = tile.maps;
    work.x_rows = g.reach(0, tile.rows), work.x_columns = g.reach(1, tile.columns);
    if (is_of_planes()) {
      work.x_loads = row_units(g, tile).count;
      work.weights = g.taps();
      work.threads = size(tiles(conv_.images * conv_.groups * conv_.maps, tile));
      work.sectors = row_sectors() * static_cast<double>(tile.columns / stored_together(tile));
    } else {
      work.x_loads = work.x_columns;
      work.weights = tile.rows * g.taps() * tile.maps;  // read again for each row of results
      work.threads = size(tiles(conv_.images * ceildiv(conv_.groups * conv_.maps, Dim(tile.maps)), tile));
    }
    return work;
  }
  // Neighbouring results of a tile of a plane that one store writes: no row ends among them.
  int64_t stored_together(const ResultTile& tile) const {
    int64_t count = tile.columns;
    while (!is_multiple(conv_.axes[2].out, count)) count /= 2;
    return count;
  }
  // Of all rows of results, each by itself.
  double row_sectors() const {
    constexpr int64_t kSector = 32;
    const int64_t bytes = size(conv_.axes[2].out) * dtype_bytes(problem_.outputs[0].dtype);
    const double across = static_cast<double>(bytes) / kSector + (bytes % kSector == 0 ? 0 : 1);
    return across * static_cast<double>(size(conv_.images * conv_.groups * conv_.maps * conv_.axes[0].out *
                                             conv_.axes[1].out));
  }
  // Whether sums, a row of x and the weights at hand leave registers for a second block of as many threads.
  bool leaves_registers(const ResultTile& tile) const {
    constexpr int64_t kMost = 84;
    const int64_t words = std::max<int64_t>(1, dtype_bytes(dtype_) / 4),  // of a sum
        weights = is_of_planes() ? geometry_->taps() : tile.maps,
                  row = geometry_->reach(1, tile.columns) * tile.maps;
    return (tile.rows * tile.columns * tile.maps + row + weights) * words <= kMost;
  }
  // Of rows of results that begin at multiples of 8 a thread stores 16 bytes of halves.
  int64_t most_columns() const {
    if (is_of_maps()) return 8;
    return is_multiple(conv_.axes[2].out, 8) && dtype_bytes(dtype_) == 2 ? 8 : 4;
  }
  // The first one loads and stores enough at a time where memory is the limit. Neighbours along a row of a
  // plane are stored together: a power of two.
  std::vector<ResultTile> possible_tiles() const {
    constexpr int64_t kMostRows = 8;
    std::vector<ResultTile> list;
    const ResultTile usual = is_of_maps() ? ResultTile{2, 4, unit_} : ResultTile{4, most_columns(), 1};
    constexpr int64_t kFewTaps = 9;
    if (geometry_->taps() <= kFewTaps) list.push_back(usual);
    const auto add = [&](const ResultTile& tile) {
      if (leaves_registers(tile)) list.push_back(tile);
    };
    const int64_t least_maps = std::max<int64_t>(1, dtype_bytes(dtype_) == 2 ? unit_ / 2 : unit_);
    for (int64_t maps = unit_; maps >= least_maps; maps /= 2)
      for (int64_t columns = most_columns(); columns > 0; columns = is_of_maps() ? columns - 1 : columns / 2)
        for (int64_t rows = 1; rows <= kMostRows; ++rows) add({rows, columns, maps});
    if (list.empty()) list.push_back({1, 1, unit_});
    return list;
  }
  // The cheapest by the estimate.
  DepthwiseWork best_work() const {
    std::optional<DepthwiseWork> best;
    double least = 0;
    for (const ResultTile& tile : possible_tiles())
      for (const int64_t block : {kThreads, kThreads / 2}) {
        const DepthwiseWork work = work_of(tile, block);
        const double time = depthwise_microseconds(work);
        if (!best || time < least) best = work, least = time;
      }
    return *best;
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

  // Threads of neighbouring maps side by side in a block: their weights of a tap are 128 bytes of shared
  // memory; if they do not divide the maps, as many as leave none idle.
  int64_t lanes(int64_t units, int64_t maps) const {
    constexpr int64_t kLeast = 4, kMost = 16, kBanks = 32, kUsual = 8;
    const int64_t wanted = std::clamp<int64_t>(kBanks / maps, kUsual, kMost);
    if (units % wanted == 0) return wanted;
    for (int64_t lanes = kMost; lanes >= kLeast; --lanes)
      if (units % lanes == 0) return lanes;
    return units < kUsual ? std::max<int64_t>(units, 1) : kUsual;
  }
  // Tiles that a thread makes one after the other: with the weights that its block keeps, and rows of x that
  // its L1 cache holds. As many as make the fewest turns of the blocks that run at a time.
  int64_t rounds_of(int64_t blocks, int64_t threads) const {
    constexpr int64_t kMostRounds = 8;
    const int64_t at_a_time = problem_.machine.multiprocessors * (kThreadsAtATime / threads);
    int64_t best = 1, least = ceil_div(blocks, at_a_time);
    for (int64_t rounds = 2; rounds <= kMostRounds; ++rounds)
      if (const int64_t turns = ceil_div(ceil_div(blocks, rounds), at_a_time) * rounds; turns <= least)
        best = rounds, least = turns;
    return best;
  }

  CudaCode of_maps(const Geometry& g) const {
    const DepthwiseWork work = best_work();
    const ResultTile tile{work.rows, work.columns, work.vector};
    const Dim maps = conv_.groups * conv_.maps, all = tiles(conv_.images, tile);
    const int64_t across = lanes(ceil_div(size(maps), tile.maps), tile.maps), places = work.block / across;
    const Dim slices = ceildiv(maps, Dim(across * tile.maps));
    const int64_t rounds = rounds_of(size(ceildiv(all, Dim(places)) * slices), work.block);
    CudaParams params;
    const std::string run =
        "aicf::ConvDepthwiseLast<" + types_ + listed({tile.maps, *conv_.maps.constant(), across}) + ", " +
        flag(wide_weights(problem_, conv_, tile.maps)) + ", " + tile_text(g, conv_accumulator(dtype_), tile) +
        ">::run(o, epilogue, I(" + params.expr(maps) + "), I(" + params.expr(all) + "), I(" +
        params.expr(Dim(rounds)) + "))";
    CudaLaunch launch = flat_launch(function(), ceildiv(all, Dim(places * rounds)),
                                    static_cast<int32_t>(places * across), params);
    launch.grid[1] = slices;
    return code(std::move(launch), run, params, blocks_at_a_time(work));
  }

  CudaCode of_planes(const Geometry& g) const {
    const Dim maps = conv_.groups * conv_.maps;
    const DepthwiseWork work = best_work();
    const ResultTile tile{work.rows, work.columns, 1};
    const auto [unit, shift, count] = row_units(g, tile);
    const Dim all = tiles(conv_.images * maps, tile);
    CudaParams params;
    const std::string run = "aicf::ConvDepthwiseFirst<" + types_ +
                            listed({unit, shift, stored_together(tile)}) + ", " +
                            tile_text(g, conv_accumulator(dtype_), tile) + ">::run(o, epilogue, I(" +
                            params.expr(maps) + "), I(" + params.expr(all) + "))";
    const auto threads = static_cast<int32_t>(work.block);
    return code(flat_launch(function(), blocks_for(all, threads), threads, params), run, params,
                blocks_at_a_time(work));
  }
  int blocks_at_a_time(const DepthwiseWork& work) const {
    const bool two = leaves_registers({work.rows, work.columns, work.vector});
    return static_cast<int>(kThreadsAtATime / work.block / (two ? 1 : 2));
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
  const ConvProblem conv = conv_problem(problem, false);
  const DepthwiseWriter writer(problem, conv);
  return {{writer.way(), depthwise_microseconds(writer.work())}};
}

}  // namespace aicf
