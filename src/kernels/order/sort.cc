// sort and top_k: a stable merge sort of (key, index) pairs in scratch, one line along the axis at a time.
#include <utility>

#include "kernels/indexing/elements.h"
#include "kernels/indexing/walk.h"
#include "kernels/order/sort_key.h"

namespace aicf {

namespace {

struct Item {
  uint64_t key;
  int64_t index;
};

struct SortPlan {
  WalkSpace lines;  // x, values, indices without the axis
  int64_t lines_per_tile, descending, size, kept;
  int64_t x_stride, value_stride, index_stride;
};

void merge(const Item* a, const Item* a_end, const Item* b, const Item* b_end, Item* out) {
  while (a < a_end && b < b_end) *out++ = b->key < a->key ? *b++ : *a++;
  while (a < a_end) *out++ = *a++;
  while (b < b_end) *out++ = *b++;
}

// Bottom-up from runs of 8 sorted by insertion; gives the buffer that holds the result.
Item* stable_sort(Item* items, Item* other, int64_t n) {
  constexpr int64_t kRun = 8;
  for (int64_t start = 0; start < n; start += kRun)
    for (int64_t i = start + 1; i < std::min(start + kRun, n); ++i) {
      const Item item = items[i];
      int64_t at = i;
      for (; at > start && item.key < items[at - 1].key; --at) items[at] = items[at - 1];
      items[at] = item;
    }
  for (int64_t width = kRun; width < n; width *= 2) {
    for (int64_t start = 0; start < n; start += 2 * width) {
      const int64_t middle = std::min(start + width, n), end = std::min(start + 2 * width, n);
      merge(items + start, items + middle, items + middle, items + end, other + start);
    }
    std::swap(items, other);
  }
  return items;
}

template <class E>
void run_sort(const BoundCall& call, int64_t tile, std::byte* scratch) {
  const SortPlan& plan = stored_plan<SortPlan>(call);
  Item* items = reinterpret_cast<Item*>(scratch);
  const int64_t first = tile * plan.lines_per_tile,
                end = std::min(first + plan.lines_per_tile, plan.lines.count);
  Walk walk(plan.lines, first);
  for (int64_t line = first; line < end; ++line, walk.next()) {
    const std::byte* x = bytes_of(call.inputs[0]) + walk[0];
    for (int64_t i = 0; i < plan.size; ++i) {
      const uint64_t key = sort_key(E::load(x + i * plan.x_stride));
      items[i] = {plan.descending ? ~key : key, i};
    }
    const Item* sorted = stable_sort(items, items + plan.size, plan.size);
    for (int64_t i = 0; i < plan.kept; ++i) {
      move_element<typename E::Stored>(bytes_of(call.outputs[0]) + walk[1] + i * plan.value_stride,
                                       x + sorted[i].index * plan.x_stride);
      std::memcpy(bytes_of(call.outputs[1]) + walk[2] + i * plan.index_stride, &sorted[i].index,
                  sizeof(int64_t));
    }
  }
}

bool can_run_order(const Problem& p, size_t outputs) {
  return p.inputs.size() == 1 && p.outputs.size() == outputs && p.inputs[0].dtype != DType::boolean &&
         !p.inputs[0].sizes.empty();
}

void prepare_sorted(BoundCall& call, std::string_view kernel, bool whole) {
  check_counts(call, kernel, 1, 1, 2, 0);
  check_size(static_cast<int64_t>(call.outputs.size()), 2, kernel, "outputs");
  const TensorArg &x = call.inputs[0], &values = call.outputs[0], &indices = call.outputs[1];
  for (const TensorArg* arg : {&x, &values, &indices}) {
    check_tensor(*arg, kernel, "tensor");
    check_rank(*arg, x.rank, kernel, "tensor");
  }
  check_dtype(values, x.dtype, kernel, "values");
  check_dtype(indices, DType::i64, kernel, "indices");
  if (x.dtype == DType::boolean) bad_step(kernel, "x", "a number", "bool");
  const int axis = check_axis(call.params[0], x.rank, kernel);
  SortPlan plan = {};
  for (int i = 0; i < x.rank; ++i) {
    check_size(indices.sizes[i], values.sizes[i], kernel, "size of indices");
    if (i == axis) continue;
    check_size(values.sizes[i], x.sizes[i], kernel, "size of values");
    plan.lines.add_axis(x.sizes[i], {byte_stride(x, i), byte_stride(values, i), byte_stride(indices, i)});
  }
  plan.size = x.sizes[axis], plan.kept = values.sizes[axis];
  check_step(whole ? plan.kept == plan.size : plan.kept <= plan.size, kernel, "size of values along the axis",
             "that of x, at most", plan.kept);
  plan.x_stride = byte_stride(x, axis);
  plan.value_stride = byte_stride(values, axis), plan.index_stride = byte_stride(indices, axis);
  plan.descending = call.params[1];
  call.scratch_bytes = checked_mul(plan.size, 2 * static_cast<int64_t>(sizeof(Item)));
  plan.lines_per_tile = split_work(call, plan.kept == 0 ? 0 : plan.lines.count, checked_mul(plan.size, 8));
  call.run = with_element_type(x.dtype, [](auto e) -> RunTile { return run_sort<decltype(e)>; });
  store_plan(call, plan);
}

}  // namespace

bool can_run_sort(const Problem& p) { return can_run_order(p, 2); }
void prepare_sort(BoundCall& call) { prepare_sorted(call, "sort", true); }

bool can_run_top_k(const Problem& p) { return can_run_order(p, 2); }
void prepare_top_k(BoundCall& call) { prepare_sorted(call, "top_k", false); }

}  // namespace aicf
