// scatter_elements and scatter_nd. Updates of one place are applied in row-major order of the updates, so
// results do not depend on threads: scatter_elements runs lines along its axis in parallel, which never meet;
// scatter_nd is one tile.
#include "kernels/indexing/elements.h"
#include "kernels/indexing/walk.h"

namespace aicf {

namespace {

enum Reduction : int64_t { kNone, kAdd, kMul, kMax, kMin };

template <class E>
void combine(std::byte* to, const std::byte* from, int64_t reduction) {
  using V = typename E::Value;
  const V update = E::load(from);
  switch (reduction) {
    case kNone:
      std::memcpy(to, from, sizeof(typename E::Stored));
      return;
    case kAdd:
      return E::store(to, wrapping_add<V>(E::load(to), update));
    case kMul:
      return E::store(to, wrapping_mul<V>(E::load(to), update));
    case kMax:
      return E::store(to, larger<V>(E::load(to), update));
    default:
      return E::store(to, smaller<V>(E::load(to), update));
  }
}

struct ScatterElementsPlan {
  WalkSpace lines;  // x, indices, updates, output without the axis
  int64_t lines_per_tile, reduction, wide_indices, size, updates;
  int64_t update_sizes[kMaxRank];  // of indices; lines outside are only copied
  int64_t x_stride, index_stride, update_stride, out_stride;
};

template <class E>
void run_scatter_elements(const BoundCall& call, int64_t tile, std::byte*) {
  const auto& plan = stored_plan<ScatterElementsPlan>(call);
  const int64_t first = tile * plan.lines_per_tile,
                end = std::min(first + plan.lines_per_tile, plan.lines.count);
  Walk walk(plan.lines, first);
  for (int64_t line = first; line < end; ++line, walk.next()) {
    const std::byte* x = bytes_of(call.inputs[0]) + walk[0];
    std::byte* out = bytes_of(call.outputs[0]) + walk[3];
    if (x != out)
      for (int64_t i = 0; i < plan.size; ++i)
        move_element<typename E::Stored>(out + i * plan.out_stride, x + i * plan.x_stride);
    bool updated = true;
    for (int64_t axis = 0; axis < plan.lines.rank; ++axis)
      updated = updated && walk.index(axis) < plan.update_sizes[axis];
    for (int64_t i = 0; i < plan.updates && updated; ++i) {
      const std::byte* at = bytes_of(call.inputs[1]) + walk[1] + i * plan.index_stride;
      const int64_t index = resolve_index(call, read_index(at, plan.wide_indices), plan.size);
      if (index < 0) continue;
      combine<E>(out + index * plan.out_stride, bytes_of(call.inputs[2]) + walk[2] + i * plan.update_stride,
                 plan.reduction);
    }
  }
}

struct ScatterNdPlan {
  WalkSpace all;           // x, output
  WalkSpace lines, block;  // indices, updates; updates, output
  int64_t reduction, wide_indices, components, component_stride;
  int64_t bounds[kMaxRank], out_strides[kMaxRank];
};

template <class E>
void run_scatter_nd(const BoundCall& call, int64_t, std::byte*) {
  const auto& plan = stored_plan<ScatterNdPlan>(call);
  std::byte* out = bytes_of(call.outputs[0]);
  if (out != call.inputs[0].data) {
    Walk copy(plan.all, 0);
    for (int64_t i = 0; i < plan.all.count; ++i, copy.next())
      move_element<typename E::Stored>(out + copy[1], bytes_of(call.inputs[0]) + copy[0]);
  }
  if (plan.lines.count == 0 || plan.block.count == 0) return;
  Walk line(plan.lines, 0);
  for (int64_t n = 0; n < plan.lines.count; ++n, line.next()) {
    std::byte* to = out;
    bool inside = true;
    for (int64_t c = 0; c < plan.components && inside; ++c) {
      const std::byte* at = bytes_of(call.inputs[1]) + line[0] + c * plan.component_stride;
      const int64_t index = resolve_index(call, read_index(at, plan.wide_indices), plan.bounds[c]);
      inside = index >= 0;
      if (inside) to += index * plan.out_strides[c];
    }
    if (!inside) continue;
    Walk element(plan.block, 0);
    for (int64_t i = 0; i < plan.block.count; ++i, element.next())
      combine<E>(to + element[1], bytes_of(call.inputs[2]) + line[1] + element[0], plan.reduction);
  }
}

void check_scatter(const BoundCall& call, std::string_view kernel, size_t params) {
  check_counts(call, kernel, 3, 3, params, 0);
  check_size(static_cast<int64_t>(call.outputs.size()), 1, kernel, "outputs");
  const TensorArg &x = call.inputs[0], &out = call.outputs[0];
  for (const TensorArg* arg : {&x, &call.inputs[1], &call.inputs[2], &out})
    check_tensor(*arg, kernel, "tensor");
  check_index_dtype(call.inputs[1], kernel);
  check_dtype(call.inputs[2], x.dtype, kernel, "updates");
  check_dtype(out, x.dtype, kernel, "output");
  check_rank(out, x.rank, kernel, "output");
  for (int i = 0; i < x.rank; ++i) {
    check_size(out.sizes[i], x.sizes[i], kernel, "size of the output");
    check_step(out.sizes[i] <= 1 || out.strides[i] != 0, kernel, "stride of the output", "not 0", 0);
  }
  const int64_t reduction = call.params[params - 1];
  check_step(reduction >= kNone && reduction <= kMin, kernel, "reduction", "0 to 4", reduction);
}

bool can_run_scatter(const Problem& p) {
  return p.inputs.size() == 3 && p.outputs.size() == 1 && is_index_dtype(p.inputs[1].dtype) &&
         p.inputs[0].dtype == p.inputs[2].dtype;
}

}  // namespace

bool can_run_scatter_elements(const Problem& p) { return can_run_scatter(p); }

void prepare_scatter_elements(BoundCall& call) {
  constexpr std::string_view kKernel = "scatter_elements";
  check_scatter(call, kKernel, 2);
  const TensorArg &x = call.inputs[0], &indices = call.inputs[1], &updates = call.inputs[2],
                  &out = call.outputs[0];
  const int axis = check_axis(call.params[0], x.rank, kKernel);
  check_rank(indices, x.rank, kKernel, "indices");
  check_rank(updates, x.rank, kKernel, "updates");
  ScatterElementsPlan plan = {};
  for (int i = 0; i < x.rank; ++i) {
    check_size(updates.sizes[i], indices.sizes[i], kKernel, "size of updates");
    if (i == axis) continue;
    check_step(indices.sizes[i] <= x.sizes[i], kKernel, "size of indices", "at most that of x",
               indices.sizes[i]);
    plan.update_sizes[plan.lines.rank] = indices.sizes[i];
    plan.lines.add_axis(x.sizes[i], {byte_stride(x, i), byte_stride(indices, i), byte_stride(updates, i),
                                     byte_stride(out, i)});
  }
  plan.size = x.sizes[axis], plan.updates = indices.sizes[axis];
  plan.x_stride = byte_stride(x, axis), plan.out_stride = byte_stride(out, axis);
  plan.index_stride = byte_stride(indices, axis), plan.update_stride = byte_stride(updates, axis);
  plan.reduction = call.params[1];
  plan.wide_indices = indices.dtype == DType::i64;
  plan.lines_per_tile = split_work(call, plan.lines.count, plan.size + plan.updates);
  call.run = with_element_type(x.dtype, [](auto e) -> RunTile { return run_scatter_elements<decltype(e)>; });
  store_plan(call, plan);
}

bool can_run_scatter_nd(const Problem& p) { return can_run_scatter(p) && !p.inputs[1].sizes.empty(); }

void prepare_scatter_nd(BoundCall& call) {
  constexpr std::string_view kKernel = "scatter_nd";
  check_scatter(call, kKernel, 1);
  const TensorArg &x = call.inputs[0], &indices = call.inputs[1], &updates = call.inputs[2],
                  &out = call.outputs[0];
  check_step(indices.rank >= 1, kKernel, "rank of indices", "at least 1", indices.rank);
  const int64_t components = indices.sizes[indices.rank - 1];
  check_step(components <= x.rank, kKernel, "last axis of indices", "at most the rank of x", components);
  check_size(updates.rank, indices.rank - 1 + x.rank - components, kKernel, "rank of updates");
  ScatterNdPlan plan = {};
  for (int i = 0; i < x.rank; ++i) plan.all.add_axis(x.sizes[i], {byte_stride(x, i), byte_stride(out, i)});
  for (int i = 0; i < indices.rank - 1; ++i) {
    check_size(updates.sizes[i], indices.sizes[i], kKernel, "size of updates");
    plan.lines.add_axis(indices.sizes[i], {byte_stride(indices, i), byte_stride(updates, i)});
  }
  for (int i = 0; i < x.rank; ++i) {
    if (i < components) {
      plan.bounds[i] = x.sizes[i];
      plan.out_strides[i] = byte_stride(out, i);
      continue;
    }
    const int u = indices.rank - 1 + i - static_cast<int>(components);
    check_size(updates.sizes[u], x.sizes[i], kKernel, "size of updates");
    plan.block.add_axis(x.sizes[i], {byte_stride(updates, u), byte_stride(out, i)});
  }
  plan.components = components;
  plan.component_stride = byte_stride(indices, indices.rank - 1);
  plan.reduction = call.params[0];
  plan.wide_indices = indices.dtype == DType::i64;
  call.tiles = plan.all.count > 0;
  call.run = with_element_type(x.dtype, [](auto e) -> RunTile { return run_scatter_nd<decltype(e)>; });
  store_plan(call, plan);
}

}  // namespace aicf
