// pad and iota: results computed from the index of the output element.
#include "kernels/indexing/elements.h"
#include "kernels/indexing/walk.h"

namespace aicf {

namespace {

// Of one side of an axis: positions then add up without overflow.
constexpr int64_t kMaxPadding = int64_t{1} << 48;

enum PadMode : int64_t { kConstant, kEdge, kReflect, kWrap };

struct PadPlan {
  WalkSpace lines;  // output without its last axis
  int64_t lines_per_tile, mode, rank, has_value;
  int64_t low[kMaxRank], x_sizes[kMaxRank], x_strides[kMaxRank];
  int64_t last_size, last_stride;
};

// Index into an axis of x for a position relative to its start, -1 where the padding value goes.
int64_t source_index(int64_t mode, int64_t i, int64_t size) {
  if (i >= 0 && i < size) return i;
  switch (mode) {
    case kEdge:
      return i < 0 ? 0 : size - 1;
    case kWrap:
      return (i % size + size) % size;
    case kReflect: {
      if (size == 1) return 0;
      const int64_t period = 2 * (size - 1), at = (i % period + period) % period;
      return at < size ? at : period - at;
    }
    default:
      return -1;
  }
}

template <class T>
void run_pad(const BoundCall& call, int64_t tile, std::byte*) {
  const PadPlan& plan = stored_plan<PadPlan>(call);
  T value = 0;
  if (plan.has_value) std::memcpy(&value, call.inputs[1].data, sizeof value);
  const auto* fill = reinterpret_cast<const std::byte*>(&value);
  const std::byte* x = bytes_of(call.inputs[0]);
  const int64_t first = tile * plan.lines_per_tile,
                end = std::min(first + plan.lines_per_tile, plan.lines.count);
  const int64_t last = plan.rank - 1;
  Walk walk(plan.lines, first);
  for (int64_t line = first; line < end; ++line, walk.next()) {
    int64_t offset = 0;  // in x, which has no address if it is empty
    bool outside = false;
    for (int64_t axis = 0; axis < last; ++axis) {
      const int64_t index = source_index(plan.mode, walk.index(axis) - plan.low[axis], plan.x_sizes[axis]);
      outside = outside || index < 0;
      offset += index * plan.x_strides[axis];
    }
    std::byte* out = bytes_of(call.outputs[0]) + walk[0];
    for (int64_t i = 0; i < plan.last_size; ++i, out += plan.last_stride) {
      const int64_t index = outside ? -1 : source_index(plan.mode, i - plan.low[last], plan.x_sizes[last]);
      move_element<T>(out, index < 0 ? fill : x + offset + index * plan.x_strides[last]);
    }
  }
}

void copy_scalar(const BoundCall& call, int64_t, std::byte*) {
  std::memcpy(call.outputs[0].data, call.inputs[0].data,
              static_cast<size_t>(dtype_bytes(call.inputs[0].dtype)));
}

struct IotaPlan {
  WalkSpace elements;  // output
  int64_t elements_per_tile, axis;
};

template <class E>
void run_iota(const BoundCall& call, int64_t tile, std::byte*) {
  const IotaPlan& plan = stored_plan<IotaPlan>(call);
  const int64_t first = tile * plan.elements_per_tile,
                end = std::min(first + plan.elements_per_tile, plan.elements.count);
  Walk walk(plan.elements, first);
  for (int64_t i = first; i < end; ++i, walk.next())
    E::store(bytes_of(call.outputs[0]) + walk[0], static_cast<typename E::Value>(walk.index(plan.axis)));
}

}  // namespace

bool can_run_pad(const Problem& p) {
  if (p.inputs.empty() || p.inputs.size() > 2 || p.outputs.size() != 1) return false;
  return p.inputs.size() == 1 || p.inputs[1].dtype == p.inputs[0].dtype;
}

void prepare_pad(BoundCall& call) {
  check_step(!call.inputs.empty() && call.inputs.size() <= 2, "pad", "inputs", "1 or 2",
             static_cast<int64_t>(call.inputs.size()));
  const TensorArg& x = call.inputs[0];
  check_tensor(x, "pad", "x");
  check_counts(call, "pad", 1, 2, static_cast<size_t>(1 + 2 * x.rank), 0);
  check_size(static_cast<int64_t>(call.outputs.size()), 1, "pad", "outputs");
  const TensorArg& out = call.outputs[0];
  check_tensor(out, "pad", "output");
  check_dtype(out, x.dtype, "pad", "output");
  check_rank(out, x.rank, "pad", "output");
  PadPlan plan = {};
  plan.has_value = call.inputs.size() == 2;
  if (plan.has_value) {
    check_dtype(call.inputs[1], x.dtype, "pad", "value");
    check_tensor(call.inputs[1], "pad", "value");
    for (int i = 0; i < call.inputs[1].rank; ++i)
      check_size(call.inputs[1].sizes[i], 1, "pad", "size of value");
  }
  plan.mode = call.params[0];
  plan.rank = x.rank;
  check_step(plan.mode >= kConstant && plan.mode <= kWrap, "pad", "mode", "0 to 3", plan.mode);
  bool empty = false;
  for (int i = 0; i < out.rank; ++i) empty = empty || out.sizes[i] == 0;
  for (int i = 0; i < x.rank; ++i) {
    plan.low[i] = call.params[static_cast<size_t>(1 + i)];
    plan.x_sizes[i] = x.sizes[i];
    plan.x_strides[i] = byte_stride(x, i);
    const int64_t high = call.params[static_cast<size_t>(1 + x.rank + i)];
    for (const int64_t amount : {plan.low[i], high})
      check_step(amount >= -kMaxPadding && amount <= kMaxPadding, "pad", "padding", "at most 2^48 elements",
                 amount);
    const int64_t padded = x.sizes[i] + plan.low[i] + high;
    check_size(out.sizes[i], padded, "pad", "size of the output");
    check_step(plan.mode == kConstant || x.sizes[i] > 0 || empty, "pad", "size of x", "not 0 in this mode",
               0);
    if (i < x.rank - 1) plan.lines.add_axis(out.sizes[i], {byte_stride(out, i)});
  }
  call.run = AICF_BY_BYTES(run_pad, dtype_bytes(x.dtype));
  if (x.rank == 0) {
    call.tiles = 1;
    call.run = copy_scalar;
  } else {
    plan.last_size = out.sizes[x.rank - 1], plan.last_stride = byte_stride(out, x.rank - 1);
    plan.lines_per_tile = split_work(call, plan.lines.count, plan.last_size);
  }
  store_plan(call, plan);
}

bool can_run_iota(const Problem& p) {
  return p.inputs.empty() && p.outputs.size() == 1 && p.outputs[0].dtype != DType::boolean &&
         !p.outputs[0].sizes.empty();
}

void prepare_iota(BoundCall& call) {
  check_counts(call, "iota", 0, 0, 1, 0);
  check_size(static_cast<int64_t>(call.outputs.size()), 1, "iota", "outputs");
  const TensorArg& out = call.outputs[0];
  check_tensor(out, "iota", "output");
  if (out.dtype == DType::boolean) bad_step("iota", "output", "a number", "bool");
  IotaPlan plan = {};
  plan.axis = check_axis(call.params[0], out.rank, "iota");
  for (int i = 0; i < out.rank; ++i) plan.elements.add_axis(out.sizes[i], {byte_stride(out, i)});
  plan.elements_per_tile = split_work(call, plan.elements.count, 1);
  call.run = with_element_type(out.dtype, [](auto e) -> RunTile { return run_iota<decltype(e)>; });
  store_plan(call, plan);
}

}  // namespace aicf
