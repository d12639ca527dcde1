// Transposed convolution: output planes are summed in scratch, input channel by input channel, kernel
// position by kernel position; for one pair of them every output takes at most one product.
#include <algorithm>
#include <cstring>

#include "base/rounding.h"
#include "kernels/common/kernel.h"
#include "kernels/common/step_check.h"
#include "kernels/conv/cpu/conv_plan.h"
#include "kernels/conv/cpu/conv_store.h"

namespace aicf {
namespace {

constexpr const char* kTransposeName = "conv_transpose";
constexpr int64_t kMapTile = 8, kWantedTransposeTiles = 64;
constexpr int64_t kMostSums = int64_t{1} << 20;  // of the maps of a tile, in elements

// The windows are those of the adjoint convolution, which reads the result and gives x: axis.in belongs to
// the result.
struct TransposePlan {
  Windows windows;
  int64_t batch, group_channels, group_maps, maps, plane;
  int64_t apart, sums;  // whether each kernel position has its own sums; their number for a map
  int64_t map_tile;     // output channels of a group that share the loads of x
  int64_t x_batch, x_channel, w_channel, w_map, w_kernel[kSpatialAxes];
  int64_t out_batch, out_channel, has_bias, bias_stride;
};

// sums[position(i, k)] += x[i] * w along the last axis.
template <class T>
void add_row(const WindowAxis& axis, int64_t k, const T* __restrict x, T w, T* __restrict sums) {
  const int64_t first = axis.position(0, k), last = axis.in - 1 - first;
  const int64_t begin = first < 0 ? ceil_div(-first, axis.stride) : 0;
  const int64_t end = last < 0 ? 0 : std::min(axis.out, last / axis.stride + 1);
  if (axis.stride == 1) {
    for (int64_t i = begin; i < end; ++i) sums[first + i] += x[i] * w;
  } else {
    for (int64_t i = begin; i < end; ++i) sums[first + i * axis.stride] += x[i] * w;
  }
}

// `x` is a channel, row-major.
template <class T>
void add_tap(const TransposePlan& plan, const int64_t* k, const T* x, T w, T* sums) {
  const WindowAxis *deep = &plan.windows.axis[0], *down = &plan.windows.axis[1],
                   *across = &plan.windows.axis[2];
  for (int64_t z = 0; z < deep->out; ++z) {
    const int64_t to_z = deep->position(z, k[0]);
    if (!deep->inside(to_z)) continue;
    for (int64_t y = 0; y < down->out; ++y) {
      const int64_t to_y = down->position(y, k[1]);
      if (!down->inside(to_y)) continue;
      add_row(*across, k[2], x + (z * down->out + y) * across->out, w,
              sums + (to_z * down->in + to_y) * across->in);
    }
  }
}

template <class T>
void load_channel(const TransposePlan& plan, const TensorArg& x, int64_t from, T* to) {
  const WindowAxis* axis = plan.windows.axis;
  for (int64_t z = 0; z < axis[0].out; ++z)
    for (int64_t y = 0; y < axis[1].out; ++y)
      for (int64_t i = 0; i < axis[2].out; ++i)
        *to++ = load_element<T>(
            x.data, x.dtype, from + z * axis[0].out_stride + y * axis[1].out_stride + i * axis[2].out_stride);
}

// Calls visit(k, offset of its weight) for the kernel positions, in order.
template <class Visit>
void each_tap(const TransposePlan& plan, Visit visit) {
  int64_t k[kSpatialAxes];
  for (k[0] = 0; k[0] < plan.windows.axis[0].kernel; ++k[0])
    for (k[1] = 0; k[1] < plan.windows.axis[1].kernel; ++k[1])
      for (k[2] = 0; k[2] < plan.windows.axis[2].kernel; ++k[2])
        visit(k, k[0] * plan.w_kernel[0] + k[1] * plan.w_kernel[1] + k[2] * plan.w_kernel[2]);
}

// sums += x w, product and sum rounded apart.
template <class T>
void add_scaled(const T* x, T w, int64_t count, T* sums) {
  typedef T Vec __attribute__((vector_size(16)));
  constexpr int64_t kLanes = sizeof(Vec) / sizeof(T);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    Vec factor, sum;
    std::memcpy(&factor, x + i, sizeof(Vec));
    std::memcpy(&sum, sums + i, sizeof(Vec));
    sum += factor * w;
    std::memcpy(sums + i, &sum, sizeof(Vec));
  }
  for (; i < count; ++i) sums[i] += x[i] * w;
}

// Adds a channel of x to the sums of one map; `w_from` is its first weight. Where no two kernel positions
// meet, those are the sums of each position, as long as a plane of x.
template <class T>
void add_channel(const TransposePlan& plan, const T* x, const TensorArg& w, int64_t w_from, T* sums) {
  const int64_t count = plan.windows.out_count();
  each_tap(plan, [&](const int64_t* k, int64_t offset) {
    const T weight = load_element<T>(w.data, w.dtype, w_from + offset);
    if (!plan.apart) return add_tap(plan, k, x, weight, sums);
    add_scaled(x, weight, count, sums);
    sums += count;
  });
}

// The sums of each kernel position become those of the plane.
template <class T>
void join_taps(const TransposePlan& plan, const T* taps, T* plane) {
  std::fill_n(plane, plan.plane, T(0));
  each_tap(plan, [&](const int64_t* k, int64_t) {
    add_tap(plan, k, taps, T(1), plane);
    taps += plan.windows.out_count();
  });
}

template <class T>
void store_plane(const BoundCall& call, const TransposePlan& plan, int64_t batch, int64_t map,
                 const T* sums) {
  const TensorArg& out = call.outputs[0];
  const T bias = plan.has_bias
                     ? load_element<T>(call.inputs[2].data, call.inputs[2].dtype, map * plan.bias_stride)
                     : T(0);
  const WindowAxis* axis = plan.windows.axis;
  const int64_t first = batch * plan.out_batch + map * plan.out_channel;
  for (int64_t p = 0; p < plan.plane; ++p) {
    const int64_t x = p % axis[2].in, y = p / axis[2].in % axis[1].in, z = p / axis[2].in / axis[1].in;
    const int64_t to = first + z * axis[0].in_stride + y * axis[1].in_stride + x * axis[2].in_stride;
    store_element(out.data, out.dtype, to, plan.has_bias ? sums[p] + bias : sums[p]);
  }
}

template <class T>
void run_transpose_tile(const BoundCall& call, int64_t index, std::byte* scratch) {
  const TransposePlan& plan = stored_plan<TransposePlan>(call);
  const int64_t blocks = ceil_div(plan.group_maps, plan.map_tile), groups = plan.maps / plan.group_maps;
  const int64_t batch = index / (groups * blocks), group = index / blocks % groups;
  const int64_t first = index % blocks * plan.map_tile,
                count = std::min(plan.map_tile, plan.group_maps - first);
  const TensorArg &x = call.inputs[0], &w = call.inputs[1];
  T *sums = reinterpret_cast<T*>(scratch), *plane = sums + plan.map_tile * plan.sums,
    *row_major = plane + plan.plane;
  std::fill_n(sums, count * plan.sums, T(0));
  for (int64_t c = 0; c < plan.group_channels; ++c) {
    const int64_t channel = group * plan.group_channels + c;
    load_channel(plan, x, batch * plan.x_batch + channel * plan.x_channel, row_major);
    for (int64_t i = 0; i < count; ++i)
      add_channel(plan, row_major, w, channel * plan.w_channel + (first + i) * plan.w_map,
                  sums + i * plan.sums);
  }
  for (int64_t i = 0; i < count; ++i) {
    if (plan.apart) join_taps(plan, sums + i * plan.sums, plane);
    store_plane(call, plan, batch, group * plan.group_maps + first + i,
                plan.apart ? plane : sums + i * plan.sums);
  }
}

// Whether no output takes more than one kernel position.
bool stands_apart(const Windows& windows) {
  return std::all_of(windows.axis, windows.axis + kSpatialAxes, [](const WindowAxis& axis) {
    return axis.kernel == 1 || (axis.dilation == 1 && axis.kernel <= axis.stride);
  });
}

void check_result_sizes(const Windows& windows, const ConvParams& params) {
  for (int64_t i = 0; i < params.spatial; ++i) {
    const WindowAxis& axis = windows.axis[kSpatialAxes - params.spatial + i];
    const int64_t extra = params.output_padding[i];
    check_step(extra >= 0 && extra < int64_t{1} << 31, kTransposeName, "output padding", "0..2^31", extra);
    const int64_t size =
        (axis.out - 1) * axis.stride + axis.dilation * (axis.kernel - 1) + 1 + extra - axis.low - axis.high;
    check_step(axis.in == size, kTransposeName, "spatial size of the output", std::to_string(size), axis.in);
  }
}

TransposePlan plan_transpose(const BoundCall& call, const ConvParams& params) {
  const TensorArg &x = call.inputs[0], &w = call.inputs[1], &out = call.outputs[0];
  check_dtype(w, x.dtype, kTransposeName, "w");
  check_dtype(out, x.dtype, kTransposeName, "result");
  check_rank(x, static_cast<int>(params.spatial) + 2, kTransposeName, "x");
  check_rank(w, x.rank, kTransposeName, "w");
  TransposePlan plan = {};
  plan.windows = make_windows(out, x, w.sizes + 2, params.windows, kTransposeName);
  check_result_sizes(plan.windows, params);
  const auto same = [](const char* what, int64_t expected, int64_t actual) {
    check_step(expected == actual, kTransposeName, what, std::to_string(expected), actual);
  };
  same("channels of w", x.sizes[1], w.sizes[0]);
  same("batch of the output", x.sizes[0], out.sizes[0]);
  check_step(x.sizes[1] % params.groups == 0, kTransposeName, "channels of x", "a multiple of groups",
             x.sizes[1]);
  check_step(out.sizes[1] % params.groups == 0 && out.sizes[1] / params.groups == w.sizes[1], kTransposeName,
             "channels of the output", "groups times those of w", out.sizes[1]);
  check_bias(call, params, out.sizes[1], kTransposeName);
  plan.batch = x.sizes[0];
  plan.group_channels = x.sizes[1] / params.groups;
  plan.group_maps = w.sizes[1];
  plan.maps = out.sizes[1];
  plan.plane = plan.windows.in_count();
  plan.x_batch = x.strides[0];
  plan.x_channel = x.strides[1];
  plan.w_channel = w.strides[0];
  plan.w_map = w.strides[1];
  for (int64_t i = 0; i < params.spatial; ++i)
    plan.w_kernel[kSpatialAxes - params.spatial + i] = w.strides[2 + i];
  plan.out_batch = out.strides[0];
  plan.out_channel = out.strides[1];
  plan.has_bias = params.has_bias;
  plan.bias_stride = params.has_bias ? call.inputs[2].strides[0] : 0;
  return plan;
}

}  // namespace

bool can_run_conv_transpose(const Problem& problem) {
  if (problem.inputs.size() < 2 || problem.inputs[0].dtype != problem.inputs[1].dtype) return false;
  const size_t rank = problem.inputs[0].sizes.size();
  return is_float(problem.inputs[0].dtype) && !asks_tf32(problem.params, true) && rank >= 3 &&
         rank <= kSpatialAxes + 2;
}

void prepare_conv_transpose(BoundCall& call) {
  check_counts(call, kTransposeName, 2, 3, call.params.size(), 0);
  check_step(call.program == nullptr, kTransposeName, "epilogue", "none", 1);
  const ConvParams params = read_conv_params(call, ConvParams::kTransposed, kTransposeName);
  check_step(call.inputs.size() == (params.has_bias ? 3u : 2u), kTransposeName, "inputs",
             params.has_bias ? "3" : "2", static_cast<int64_t>(call.inputs.size()));
  const DType dtype = call.inputs[0].dtype;
  if (!is_float(dtype))
    bad_step(kTransposeName, "dtype of x", "a float type", std::string(dtype_name(dtype)));
  TransposePlan plan = plan_transpose(call, params);
  constexpr int64_t kMaxPlane = int64_t{1} << 40;
  check_step(plan.plane <= kMaxPlane, kTransposeName, "elements of an output plane", "<= 2^40", plan.plane);
  check_step(plan.windows.out_count() <= kMaxPlane, kTransposeName, "elements of a plane of x", "<= 2^40",
             plan.windows.out_count());
  plan.apart = stands_apart(plan.windows);
  const WindowAxis* axis = plan.windows.axis;
  plan.sums =
      plan.apart ? axis[0].kernel * axis[1].kernel * axis[2].kernel * plan.windows.out_count() : plan.plane;
  check_step(plan.sums <= kMaxPlane, kTransposeName, "sums of an output plane", "<= 2^40", plan.sums);
  const int64_t fitting = kMostSums / std::max<int64_t>(plan.sums, 1);
  plan.map_tile =
      std::clamp<int64_t>(std::min(plan.batch * plan.maps / kWantedTransposeTiles, fitting), 1, kMapTile);
  const bool wide = dtype == DType::f64;
  call.scratch_bytes = (plan.map_tile * plan.sums + plan.plane + plan.windows.out_count()) * (wide ? 8 : 4);
  const int64_t blocks =
      plan.maps == 0 ? 0 : plan.maps / plan.group_maps * ceil_div(plan.group_maps, plan.map_tile);
  call.tiles = plan.plane == 0 ? 0 : plan.batch * blocks;
  call.run = wide ? run_transpose_tile<double> : run_transpose_tile<float>;
  store_plan(call, plan);
}

}  // namespace aicf
