// argmax, argmin, cumsum, cumprod: one pass along the axis per line. Running sums and products of floats are
// kept in f64 and rounded at every element.
#include "kernels/indexing/elements.h"
#include "kernels/indexing/walk.h"
#include "kernels/order/sort_key.h"

namespace aicf {

namespace {

struct ScanPlan {
  WalkSpace lines;  // x, output without the axis
  int64_t lines_per_tile, size, x_stride, out_stride;
  int64_t minimum, select_last;           // argmax, argmin
  int64_t product, exclusive, backwards;  // cumsum, cumprod
};

// The largest rank wins; NaN has the largest of all.
template <class V>
uint64_t rank_of(V value, bool minimum) {
  const uint64_t key = sort_key(value);
  if (!minimum || (std::is_floating_point_v<V> && key == kNanKey)) return key;
  return ~key;
}

template <class E>
void run_arg(const BoundCall& call, int64_t tile, std::byte*) {
  const ScanPlan& plan = stored_plan<ScanPlan>(call);
  const int64_t first = tile * plan.lines_per_tile,
                end = std::min(first + plan.lines_per_tile, plan.lines.count);
  Walk walk(plan.lines, first);
  for (int64_t line = first; line < end; ++line, walk.next()) {
    const std::byte* x = bytes_of(call.inputs[0]) + walk[0];
    uint64_t best = 0;
    int64_t best_index = 0;
    for (int64_t i = 0; i < plan.size; ++i, x += plan.x_stride) {
      const uint64_t key = rank_of(E::load(x), plan.minimum);
      if (i > 0 && !(key > best || (plan.select_last && key == best))) continue;
      best = key;
      best_index = i;
    }
    std::memcpy(bytes_of(call.outputs[0]) + walk[1], &best_index, sizeof best_index);
  }
}

template <class E>
void run_scan(const BoundCall& call, int64_t tile, std::byte*) {
  using V = typename E::Value;
  using Sum = std::conditional_t<std::is_floating_point_v<V>, double, V>;
  const ScanPlan& plan = stored_plan<ScanPlan>(call);
  const int64_t first = tile * plan.lines_per_tile,
                end = std::min(first + plan.lines_per_tile, plan.lines.count);
  Walk walk(plan.lines, first);
  for (int64_t line = first; line < end; ++line, walk.next()) {
    Sum total = static_cast<Sum>(plan.product != 0);
    for (int64_t n = 0; n < plan.size; ++n) {
      const int64_t i = plan.backwards ? plan.size - 1 - n : n;
      const Sum value = static_cast<Sum>(E::load(bytes_of(call.inputs[0]) + walk[0] + i * plan.x_stride));
      const Sum before = total;
      total = plan.product ? wrapping_mul<Sum>(total, value) : wrapping_add<Sum>(total, value);
      E::store(bytes_of(call.outputs[0]) + walk[1] + i * plan.out_stride,
               static_cast<V>(plan.exclusive ? before : total));
    }
  }
}

// Everything but what params mean; `keeps` tells whether the axis stays or becomes one element.
ScanPlan make_plan(BoundCall& call, std::string_view kernel, size_t params, bool keeps) {
  check_counts(call, kernel, 1, 1, params, 0);
  check_size(static_cast<int64_t>(call.outputs.size()), 1, kernel, "outputs");
  const TensorArg &x = call.inputs[0], &out = call.outputs[0];
  check_tensor(x, kernel, "x");
  check_tensor(out, kernel, "output");
  check_rank(out, x.rank, kernel, "output");
  if (x.dtype == DType::boolean) bad_step(kernel, "x", "a number", "bool");
  const int axis = check_axis(call.params[0], x.rank, kernel);
  ScanPlan plan = {};
  for (int i = 0; i < x.rank; ++i) {
    check_size(out.sizes[i], i == axis && !keeps ? 1 : x.sizes[i], kernel, "size of the output");
    if (i != axis) plan.lines.add_axis(x.sizes[i], {byte_stride(x, i), byte_stride(out, i)});
  }
  plan.size = x.sizes[axis], plan.x_stride = byte_stride(x, axis), plan.out_stride = byte_stride(out, axis);
  plan.lines_per_tile = split_work(call, plan.lines.count, plan.size);
  return plan;
}

void prepare_arg(BoundCall& call, std::string_view kernel, bool minimum) {
  ScanPlan plan = make_plan(call, kernel, 2, false);
  check_dtype(call.outputs[0], DType::i64, kernel, "output");
  check_step(plan.size > 0 || plan.lines.count == 0, kernel, "size of x along the axis", "at least 1",
             plan.size);
  plan.minimum = minimum;
  plan.select_last = call.params[1];
  call.run = with_element_type(call.inputs[0].dtype, [](auto e) -> RunTile { return run_arg<decltype(e)>; });
  store_plan(call, plan);
}

void prepare_cumulative(BoundCall& call, std::string_view kernel, bool product) {
  ScanPlan plan = make_plan(call, kernel, 3, true);
  check_dtype(call.outputs[0], call.inputs[0].dtype, kernel, "output");
  plan.product = product;
  plan.exclusive = call.params[1];
  plan.backwards = call.params[2];
  call.run = with_element_type(call.inputs[0].dtype, [](auto e) -> RunTile { return run_scan<decltype(e)>; });
  store_plan(call, plan);
}

bool can_run_line(const Problem& p) {
  return p.inputs.size() == 1 && p.outputs.size() == 1 && p.inputs[0].dtype != DType::boolean &&
         !p.inputs[0].sizes.empty();
}

}  // namespace

bool can_run_argmax(const Problem& p) { return can_run_line(p); }
bool can_run_argmin(const Problem& p) { return can_run_line(p); }
bool can_run_cumsum(const Problem& p) { return can_run_line(p); }
bool can_run_cumprod(const Problem& p) { return can_run_line(p); }
void prepare_argmax(BoundCall& call) { prepare_arg(call, "argmax", false); }
void prepare_argmin(BoundCall& call) { prepare_arg(call, "argmin", true); }
void prepare_cumsum(BoundCall& call) { prepare_cumulative(call, "cumsum", false); }
void prepare_cumprod(BoundCall& call) { prepare_cumulative(call, "cumprod", true); }

}  // namespace aicf
