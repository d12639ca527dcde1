// gather, gather_nd: blocks of x copied to where indices say. gather_elements: single elements.
#include "kernels/indexing/walk.h"

namespace aicf {

namespace {

// Lines are walked with tensors x (without its indexed axes), indices, output; each copies a block with
// tensors x, output.
struct GatherPlan {
  WalkSpace lines, block;
  int64_t lines_per_tile, wide_indices,
      dense_bytes;  // dense_bytes > 0: the block is contiguous on both sides
  int64_t indexed;  // axes of x that indices address
  int64_t bounds[kMaxRank], indexed_strides[kMaxRank], component_stride;
};

void finish_block(GatherPlan& plan, int64_t bytes) {
  int64_t dense = bytes;
  for (int64_t axis = plan.block.rank - 1; axis >= 0; --axis) {
    if (plan.block.sizes[axis] == 1) continue;
    if (plan.block.strides[0][axis] != dense || plan.block.strides[1][axis] != dense) return;
    dense *= plan.block.sizes[axis];
  }
  plan.dense_bytes = dense;
}

template <class T>
void copy_block(const GatherPlan& plan, const std::byte* from, std::byte* to) {
  if (plan.dense_bytes == static_cast<int64_t>(sizeof(T))) return move_element<T>(to, from);
  if (plan.dense_bytes > 0) {
    std::memcpy(to, from, static_cast<size_t>(plan.dense_bytes));
    return;
  }
  Walk walk(plan.block, 0);
  for (int64_t i = 0; i < plan.block.count; ++i, walk.next()) move_element<T>(to + walk[1], from + walk[0]);
}

template <class T>
void run_gather(const BoundCall& call, int64_t tile, std::byte*) {
  const GatherPlan& plan = stored_plan<GatherPlan>(call);
  const int64_t first = tile * plan.lines_per_tile,
                end = std::min(first + plan.lines_per_tile, plan.lines.count);
  Walk walk(plan.lines, first);
  for (int64_t line = first; line < end; ++line, walk.next()) {
    const std::byte* from = bytes_of(call.inputs[0]) + walk[0];
    bool inside = true;
    for (int64_t i = 0; i < plan.indexed && inside; ++i) {
      const std::byte* at = bytes_of(call.inputs[1]) + walk[1] + i * plan.component_stride;
      const int64_t index = resolve_index(call, read_index(at, plan.wide_indices), plan.bounds[i]);
      inside = index >= 0;
      if (inside) from += index * plan.indexed_strides[i];
    }
    if (inside) copy_block<T>(plan, from, bytes_of(call.outputs[0]) + walk[2]);
  }
}

void check_gather(const BoundCall& call, std::string_view kernel) {
  check_counts(call, kernel, 2, 2, 1, 0);
  check_size(static_cast<int64_t>(call.outputs.size()), 1, kernel, "outputs");
  check_tensor(call.inputs[0], kernel, "x");
  check_tensor(call.inputs[1], kernel, "indices");
  check_tensor(call.outputs[0], kernel, "output");
  check_index_dtype(call.inputs[1], kernel);
  check_dtype(call.outputs[0], call.inputs[0].dtype, kernel, "output");
}

void finish(BoundCall& call, GatherPlan& plan) {
  plan.wide_indices = call.inputs[1].dtype == DType::i64;
  const int bytes = dtype_bytes(call.inputs[0].dtype);
  finish_block(plan, bytes);
  // An empty block needs no lines; indices are still not looked at, as nothing is moved.
  plan.lines_per_tile = split_work(call, plan.block.count == 0 ? 0 : plan.lines.count, plan.block.count);
  call.run = AICF_BY_BYTES(run_gather, bytes);
  store_plan(call, plan);
}

bool can_run_indices(const Problem& p, size_t inputs) {
  return p.inputs.size() == inputs && p.outputs.size() == 1 && is_index_dtype(p.inputs[1].dtype);
}

}  // namespace

bool can_run_gather(const Problem& p) { return can_run_indices(p, 2); }

void prepare_gather(BoundCall& call) {
  check_gather(call, "gather");
  const TensorArg &x = call.inputs[0], &indices = call.inputs[1], &out = call.outputs[0];
  const int axis = check_axis(call.params[0], x.rank, "gather");
  check_size(out.rank, x.rank - 1 + indices.rank, "gather", "rank of the output");
  GatherPlan plan = {};
  int o = 0;
  const auto next_out = [&](int64_t size) {
    check_size(out.sizes[o], size, "gather", "size of the output");
    return byte_stride(out, o++);
  };
  for (int i = 0; i < axis; ++i)
    plan.lines.add_axis(x.sizes[i], {byte_stride(x, i), 0, next_out(x.sizes[i])});
  for (int i = 0; i < indices.rank; ++i)
    plan.lines.add_axis(indices.sizes[i], {0, byte_stride(indices, i), next_out(indices.sizes[i])});
  for (int i = axis + 1; i < x.rank; ++i)
    plan.block.add_axis(x.sizes[i], {byte_stride(x, i), next_out(x.sizes[i])});
  plan.indexed = 1;
  plan.bounds[0] = x.sizes[axis];
  plan.indexed_strides[0] = byte_stride(x, axis);
  finish(call, plan);
}

bool can_run_gather_nd(const Problem& p) { return can_run_indices(p, 2) && !p.inputs[1].sizes.empty(); }

void prepare_gather_nd(BoundCall& call) {
  check_gather(call, "gather_nd");
  const TensorArg &x = call.inputs[0], &indices = call.inputs[1], &out = call.outputs[0];
  check_step(indices.rank >= 1, "gather_nd", "rank of indices", "at least 1", indices.rank);
  const int64_t batch = call.params[0], components = indices.sizes[indices.rank - 1];
  check_step(batch >= 0 && batch < indices.rank && batch <= x.rank, "gather_nd", "batch_dims",
             "within both ranks", batch);
  check_step(components <= x.rank - batch, "gather_nd", "last axis of indices",
             "at most the rest of x's rank", components);
  check_size(out.rank, indices.rank - 1 + x.rank - batch - components, "gather_nd", "rank of the output");
  GatherPlan plan = {};
  int o = 0;
  for (int i = 0; i < indices.rank - 1; ++i, ++o) {
    check_size(out.sizes[o], indices.sizes[i], "gather_nd", "size of the output");
    if (i < batch) check_size(x.sizes[i], indices.sizes[i], "gather_nd", "batch size of x");
    plan.lines.add_axis(indices.sizes[i],
                        {i < batch ? byte_stride(x, i) : 0, byte_stride(indices, i), byte_stride(out, o)});
  }
  const int first = static_cast<int>(batch), rest = static_cast<int>(batch + components);
  for (int i = first; i < rest; ++i) {
    plan.bounds[i - first] = x.sizes[i];
    plan.indexed_strides[i - first] = byte_stride(x, i);
  }
  for (int i = rest; i < x.rank; ++i, ++o) {
    check_size(out.sizes[o], x.sizes[i], "gather_nd", "size of the output");
    plan.block.add_axis(x.sizes[i], {byte_stride(x, i), byte_stride(out, o)});
  }
  plan.indexed = components;
  plan.component_stride = byte_stride(indices, indices.rank - 1);
  finish(call, plan);
}

bool can_run_gather_elements(const Problem& p) { return can_run_indices(p, 2); }

void prepare_gather_elements(BoundCall& call) {
  check_gather(call, "gather_elements");
  const TensorArg &x = call.inputs[0], &indices = call.inputs[1], &out = call.outputs[0];
  const int axis = check_axis(call.params[0], x.rank, "gather_elements");
  check_rank(indices, x.rank, "gather_elements", "indices");
  check_rank(out, x.rank, "gather_elements", "output");
  GatherPlan plan = {};
  for (int i = 0; i < x.rank; ++i) {
    const int64_t size = indices.sizes[i];
    check_size(out.sizes[i], size, "gather_elements", "size of the output");
    const bool repeats = x.sizes[i] == 1;
    check_step(i == axis || repeats || size <= x.sizes[i], "gather_elements", "size of indices",
               "at most that of x", size);
    plan.lines.add_axis(
        size, {i == axis || repeats ? 0 : byte_stride(x, i), byte_stride(indices, i), byte_stride(out, i)});
  }
  plan.indexed = 1;
  plan.bounds[0] = x.sizes[axis];
  plan.indexed_strides[0] = byte_stride(x, axis);
  finish(call, plan);
}

}  // namespace aicf
