// Pooling over windows of each [N, C] plane.
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "kernels/common/element.h"
#include "kernels/common/kernel.h"
#include "kernels/common/step_check.h"
#include "kernels/pool/pool_plan.h"

namespace aicf {
namespace {

constexpr int64_t kTileTaps = 1 << 16;  // work of a tile, in elements read
constexpr int64_t kManyChannels = 8;    // from here on vectors of channels pay

// One output row: where its windows lie, without the last axis.
struct Row {
  int64_t plane, z, y;  // plane: n * C + c
  KernelRange zs, ys;
  int64_t x, out;  // element offsets of the plane in x and of the row in the result
};

Row row_at(const PoolPlan& plan, int64_t index) {
  const WindowAxis *deep = &plan.windows.axis[0], *down = &plan.windows.axis[1];
  Row row;
  row.y = index % down->out;
  row.z = index / down->out % deep->out;
  row.plane = index / down->out / deep->out;
  row.zs = kernel_range(*deep, row.z);
  row.ys = kernel_range(*down, row.y);
  const int64_t n = row.plane / plan.channels, c = row.plane % plan.channels;
  row.x = n * plan.x_batch + c * plan.x_channel;
  row.out = n * plan.out_batch + c * plan.out_channel + row.z * deep->out_stride + row.y * down->out_stride;
  return row;
}

// Calls body(z, y, x) for each input position of the window at `o` of the row, in row-major order of the
// kernel.
template <class Body>
void for_each_tap(const PoolPlan& plan, const Row& row, KernelRange xs, int64_t o, Body body) {
  const WindowAxis* axis = plan.windows.axis;
  for (int64_t kz = row.zs.begin; kz < row.zs.end; ++kz)
    for (int64_t ky = row.ys.begin; ky < row.ys.end; ++ky)
      for (int64_t kx = xs.begin; kx < xs.end; ++kx)
        body(axis[0].position(row.z, kz), axis[1].position(row.y, ky), axis[2].position(o, kx));
}

int64_t input_offset(const PoolPlan& plan, const Row& row, int64_t z, int64_t y, int64_t x) {
  const WindowAxis* axis = plan.windows.axis;
  return row.x + z * axis[0].in_stride + y * axis[1].in_stride + x * axis[2].in_stride;
}

// What values compare as: themselves, f16 and bf16 as f32.
template <class T, bool kNarrow>
using Compared = std::conditional_t<kNarrow, float, T>;

template <class T, bool kNarrow>
Compared<T, kNarrow> load(const TensorArg& tensor, int64_t at) {
  if constexpr (kNarrow)
    return load_element<float>(tensor.data, tensor.dtype, at);
  else
    return static_cast<const T*>(tensor.data)[at];
}

template <class V>
bool wins(V candidate, V best) {
  if constexpr (std::is_floating_point_v<V>) {
    if (std::isnan(best)) return false;
    if (std::isnan(candidate)) return true;
  }
  return candidate > best;
}

// Position of a window's maximum; z < 0 for a window of padding only.
struct Place {
  int64_t z = -1, y = 0, x = 0;
};

template <class T, bool kNarrow>
Place find_maximum(const BoundCall& call, const PoolPlan& plan, const Row& row, int64_t o) {
  Compared<T, kNarrow> best = 0;
  Place place;
  for_each_tap(plan, row, kernel_range(plan.windows.axis[2], o), o, [&](int64_t z, int64_t y, int64_t x) {
    const auto value = load<T, kNarrow>(call.inputs[0], input_offset(plan, row, z, y, x));
    if (place.z >= 0 && !wins(value, best)) return;
    best = value;
    place = {z, y, x};
  });
  return place;
}

template <class T>
T lowest_of(DType dtype) {
  if (dtype == DType::f16) return static_cast<T>(f32_to_f16(-std::numeric_limits<float>::infinity()));
  if (dtype == DType::bf16) return static_cast<T>(f32_to_bf16(-std::numeric_limits<float>::infinity()));
  if constexpr (std::is_floating_point_v<T>) return -std::numeric_limits<T>::infinity();
  return std::numeric_limits<T>::lowest();
}

// Running maxima of a whole row for windows inside the input, tap by tap: loops without branches.
template <class T>
void maximum_rows(const PoolPlan& plan, const Row& row, const T* x, int64_t begin, int64_t end, T* out) {
  const WindowAxis& across = plan.windows.axis[2];
  const int64_t step = across.stride * across.in_stride;
  bool first = true;
  const KernelRange whole = {0, across.kernel};
  for_each_tap(plan, row, whole, begin, [&](int64_t z, int64_t y, int64_t at) {
    const T* from = x + input_offset(plan, row, z, y, at);
    for (int64_t i = 0; i < end - begin; ++i) {
      const T value = from[i * step], best = out[begin + i];
      out[begin + i] = first || wins(value, best) ? value : best;
    }
    first = false;
  });
}

// The outputs [begin, end) of a row whose windows lie inside the last axis.
KernelRange inner_outputs(const WindowAxis& axis) {
  const int64_t begin = std::min(ceil_div(axis.low, axis.stride), axis.out);
  const int64_t last = axis.in - 1 - axis.position(0, axis.kernel - 1);
  const int64_t end = last < 0 ? 0 : std::min(axis.out, last / axis.stride + 1);
  return {begin, std::max(begin, end)};
}

template <class T, bool kNarrow>
void max_row(const BoundCall& call, const PoolPlan& plan, int64_t index) {
  const Row row = row_at(plan, index);
  const TensorArg &x = call.inputs[0], &out = call.outputs[0];
  const WindowAxis& across = plan.windows.axis[2];
  T* to = static_cast<T*>(out.data) + row.out;
  KernelRange inner = {0, 0};
  if (!kNarrow && across.out_stride == 1 && row.zs.begin < row.zs.end && row.ys.begin < row.ys.end)
    inner = inner_outputs(across);
  if constexpr (!kNarrow) {
    if (inner.begin < inner.end)
      maximum_rows(plan, row, static_cast<const T*>(x.data), inner.begin, inner.end, to);
  }
  for (int64_t o = 0; o < across.out; ++o) {
    if (o == inner.begin) o = inner.end;
    if (o >= across.out) break;
    const Place place = find_maximum<T, kNarrow>(call, plan, row, o);
    to[o * across.out_stride] =
        place.z < 0 ? lowest_of<T>(x.dtype)
                    : static_cast<const T*>(x.data)[input_offset(plan, row, place.z, place.y, place.x)];
  }
}

int64_t logical_position(const PoolPlan& plan, const Row& row, const Place& place) {
  const WindowAxis* axis = plan.windows.axis;
  const int64_t first = row.plane * plan.windows.in_count();
  if (plan.flag) return first + (place.x * axis[1].in + place.y) * axis[0].in + place.z;
  return first + (place.z * axis[1].in + place.y) * axis[2].in + place.x;
}

template <class T, bool kNarrow>
void index_row(const BoundCall& call, const PoolPlan& plan, int64_t index) {
  const Row row = row_at(plan, index);
  const WindowAxis& across = plan.windows.axis[2];
  auto* to = static_cast<int64_t*>(call.outputs[0].data) + row.out;
  for (int64_t o = 0; o < across.out; ++o) {
    const Place place = find_maximum<T, kNarrow>(call, plan, row, o);
    to[o * across.out_stride] = place.z < 0 ? -1 : logical_position(plan, row, place);
  }
}

template <class T, bool kNarrow>
void average_row(const BoundCall& call, const PoolPlan& plan, int64_t index) {
  using V = Compared<T, kNarrow>;
  const Row row = row_at(plan, index);
  const WindowAxis* axis = plan.windows.axis;
  const int64_t padded = padded_count(axis[0], row.z) * padded_count(axis[1], row.y);
  for (int64_t o = 0; o < axis[2].out; ++o) {
    V sum = 0;
    int64_t count = 0;
    for_each_tap(plan, row, kernel_range(axis[2], o), o, [&](int64_t z, int64_t y, int64_t x) {
      sum += load<T, kNarrow>(call.inputs[0], input_offset(plan, row, z, y, x));
      ++count;
    });
    if (plan.flag) count = padded * padded_count(axis[2], o);
    store_element<V>(call.outputs[0].data, call.outputs[0].dtype, row.out + o * axis[2].out_stride,
                     sum / static_cast<V>(count));
  }
}

using RunRow = void (*)(const BoundCall&, const PoolPlan&, int64_t);

template <RunRow run_row>
void run_tile(const BoundCall& call, int64_t tile, std::byte*) {
  const PoolPlan& plan = stored_plan<PoolPlan>(call);
  const int64_t end = std::min(plan.rows, (tile + 1) * plan.row_tile);
  for (int64_t row = tile * plan.row_tile; row < end; ++row) run_row(call, plan, row);
}

struct MaxRow {
  template <class T, bool kNarrow>
  static constexpr RunTile tile = run_tile<max_row<T, kNarrow>>;
};
struct IndexRow {
  template <class T, bool kNarrow>
  static constexpr RunTile tile = run_tile<index_row<T, kNarrow>>;
};

template <class Kind>
RunTile tile_for(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return Kind::template tile<double, false>;
    case DType::f32:
      return Kind::template tile<float, false>;
    case DType::f16:
    case DType::bf16:
      return Kind::template tile<uint16_t, true>;
    case DType::i64:
      return Kind::template tile<int64_t, false>;
    case DType::i32:
      return Kind::template tile<int32_t, false>;
    case DType::i16:
      return Kind::template tile<int16_t, false>;
    case DType::i8:
      return Kind::template tile<int8_t, false>;
    case DType::u8:
      return Kind::template tile<uint8_t, false>;
    case DType::boolean:
      break;
  }
  return nullptr;
}

RunTile average_tile(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return run_tile<average_row<double, false>>;
    case DType::f32:
      return run_tile<average_row<float, false>>;
    case DType::f16:
    case DType::bf16:
      return run_tile<average_row<uint16_t, true>>;
    default:
      return nullptr;
  }
}

PoolPlan plan_pool(const BoundCall& call, const char* name) {
  const auto count = static_cast<int64_t>(call.params.size());
  check_step(count >= 3, name, "params", ">= 3", count);
  const int64_t* p = call.params.data();
  const int64_t spatial = p[0];
  check_step(spatial >= 1 && spatial <= kSpatialAxes, name, "spatial axes", "1..3", spatial);
  check_step(count == 3 + 5 * spatial, name, "params", std::to_string(3 + 5 * spatial), count);
  const int64_t* list = p + 3;
  const WindowParams params = {spatial, list + spatial, list + 2 * spatial, list + 3 * spatial,
                               list + 4 * spatial};
  const TensorArg &x = call.inputs[0], &out = call.outputs[0];
  PoolPlan plan = {};
  plan.windows = make_windows(x, out, list, params, name);
  check_window_counts(plan.windows, p[1] != 0, name);
  for (int i = 0; i < 2; ++i)
    check_step(x.sizes[i] == out.sizes[i], name, "leading sizes", std::to_string(x.sizes[i]), out.sizes[i]);
  plan.flag = p[2] != 0;
  plan.batch = x.sizes[0];
  plan.channels = x.sizes[1];
  plan.x_batch = x.strides[0];
  plan.x_channel = x.strides[1];
  plan.out_batch = out.strides[0];
  plan.out_channel = out.strides[1];
  return plan;
}

// f32 planes that lie channel beside channel are pooled a whole position at a time.
void plan_channels_last(BoundCall& call, PoolPlan& plan) {
  const RunTile run = call.run == run_tile<max_row<float, false>>       ? max_channels_last
                      : call.run == run_tile<average_row<float, false>> ? average_channels_last
                                                                        : nullptr;
  if (run == nullptr || plan.x_channel != 1 || plan.out_channel != 1 || plan.channels < kManyChannels) return;
  call.run = run;
  call.tiles =
      plan.windows.axis[2].out == 0 ? 0 : plan.batch * plan.windows.axis[0].out * plan.windows.axis[1].out;
}

void prepare_pool(BoundCall& call, const char* name, RunTile run, DType out) {
  if (!run)
    bad_step(name, "dtype of x", "a number this pooling takes",
             std::string(dtype_name(call.inputs[0].dtype)));
  check_step(call.program == nullptr, name, "epilogue", "none", 1);
  check_step(call.outputs.size() == 1, name, "outputs", "1", static_cast<int64_t>(call.outputs.size()));
  check_dtype(call.outputs[0], out, name, "result");
  PoolPlan plan = plan_pool(call, name);
  const WindowAxis* axis = plan.windows.axis;
  plan.rows = axis[2].out == 0 ? 0 : plan.batch * plan.channels * axis[0].out * axis[1].out;
  const double taps = static_cast<double>(axis[2].out) * static_cast<double>(axis[0].kernel) *
                      static_cast<double>(axis[1].kernel) * static_cast<double>(axis[2].kernel);
  plan.row_tile = std::max<int64_t>(1, static_cast<int64_t>(kTileTaps / std::max(taps, 1.0)));
  call.tiles = ceil_div(plan.rows, plan.row_tile);
  call.scratch_bytes = 0;
  call.run = run;
  plan_channels_last(call, plan);
  store_plan(call, plan);
}

bool fits(const Problem& problem) {
  if (problem.inputs.size() != 1 || problem.outputs.size() != 1) return false;
  const size_t rank = problem.inputs[0].sizes.size();
  return rank >= 3 && rank <= kSpatialAxes + 2;
}

}  // namespace

bool can_run_max_pool(const Problem& problem) {
  return fits(problem) && problem.inputs[0].dtype != DType::boolean;
}
bool can_run_max_pool_indices(const Problem& problem) { return can_run_max_pool(problem); }
bool can_run_avg_pool(const Problem& problem) { return fits(problem) && is_float(problem.inputs[0].dtype); }

void prepare_max_pool(BoundCall& call) {
  check_counts(call, "max_pool", 1, 1, call.params.size(), 0);
  prepare_pool(call, "max_pool", tile_for<MaxRow>(call.inputs[0].dtype), call.inputs[0].dtype);
}

void prepare_max_pool_indices(BoundCall& call) {
  check_counts(call, "max_pool_indices", 1, 1, call.params.size(), 0);
  prepare_pool(call, "max_pool_indices", tile_for<IndexRow>(call.inputs[0].dtype), DType::i64);
}

void prepare_avg_pool(BoundCall& call) {
  check_counts(call, "avg_pool", 1, 1, call.params.size(), 0);
  prepare_pool(call, "avg_pool", average_tile(call.inputs[0].dtype), call.inputs[0].dtype);
}

}  // namespace aicf
