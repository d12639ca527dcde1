// scatter_elements and scatter_nd. Updates of one place are applied in row-major order of the updates, so
// results do not depend on threads: lines along an axis run in parallel, which never meet, or the elements
// under an index are shared out. Sums and products of halves are in f32, in scratch, and rounded once.
#include <cstdlib>
#include <type_traits>

#include "kernels/indexing/elements.h"
#include "kernels/indexing/reduction.h"
#include "kernels/indexing/walk.h"

namespace aicf {

namespace {

template <ScatterReduction R, class V>
V combined(V old, V update) {
  if constexpr (R == ScatterReduction::add)
    return wrapping_add<V>(old, update);
  else if constexpr (R == ScatterReduction::mul)
    return wrapping_mul<V>(old, update);
  else if constexpr (R == ScatterReduction::max)
    return larger<V>(old, update);
  else
    return smaller<V>(old, update);
}

template <class E, ScatterReduction R>
void combine(std::byte* to, const std::byte* from) {
  if constexpr (R == ScatterReduction::none)
    std::memcpy(to, from, sizeof(typename E::Stored));
  else
    E::store(to, combined<R, typename E::Value>(E::load(to), E::load(from)));
}

// Whether what is combined has more digits than what is stored.
template <class E, ScatterReduction R>
constexpr bool kSumsApart =
    !std::is_same_v<typename E::Stored, typename E::Value> && std::is_floating_point_v<typename E::Value> &&
    (R == ScatterReduction::add || R == ScatterReduction::mul);

// Calls `pick` with the reduction as a type and gives its result.
template <class Pick>
auto with_reduction(ScatterReduction reduction, Pick pick) {
  using R = ScatterReduction;
  switch (reduction) {
    case R::none:
      return pick(std::integral_constant<R, R::none>());
    case R::add:
      return pick(std::integral_constant<R, R::add>());
    case R::mul:
      return pick(std::integral_constant<R, R::mul>());
    case R::max:
      return pick(std::integral_constant<R, R::max>());
    case R::min:
      break;
  }
  return pick(std::integral_constant<R, R::min>());
}

constexpr int64_t kLinesTogether = 16;

struct ScatterElementsPlan {
  WalkSpace lines;  // x, indices, updates, output without the axis
  int64_t lines_per_tile, wide_indices, size, updates;
  bool lines_lie_together;         // closer than what follows along the axis
  int64_t update_sizes[kMaxRank];  // of indices; lines outside are only copied
  int64_t x_stride, index_stride, update_stride, out_stride;
};

template <class E, ScatterReduction R>
void run_scatter_elements(const BoundCall& call, int64_t tile, std::byte* scratch) {
  const auto& plan = stored_plan<ScatterElementsPlan>(call);
  const int64_t first = tile * plan.lines_per_tile,
                end = std::min(first + plan.lines_per_tile, plan.lines.count);
  const auto copy_element = [&](const Walk& walk, int64_t i) {
    move_element<typename E::Stored>(bytes_of(call.outputs[0]) + walk[3] + i * plan.out_stride,
                                     bytes_of(call.inputs[0]) + walk[0] + i * plan.x_stride);
  };
  const auto is_updated = [&](const Walk& walk) {
    for (int64_t axis = 0; axis < plan.lines.rank; ++axis)
      if (walk.index(axis) >= plan.update_sizes[axis]) return false;
    return true;
  };
  const auto index_of = [&](const Walk& walk, int64_t i) {
    const std::byte* at = bytes_of(call.inputs[1]) + walk[1] + i * plan.index_stride;
    return resolve_index(call, read_index(at, plan.wide_indices), plan.size);
  };
  if constexpr (kSumsApart<E, R>) {
    auto* sums = reinterpret_cast<typename E::Value*>(scratch);
    Walk walk(plan.lines, first);
    for (int64_t line = first; line < end; ++line, walk.next()) {
      for (int64_t i = 0; i < plan.size; ++i)
        sums[i] = E::load(bytes_of(call.inputs[0]) + walk[0] + i * plan.x_stride);
      for (int64_t i = 0; is_updated(walk) && i < plan.updates; ++i) {
        const int64_t index = index_of(walk, i);
        if (index < 0) continue;
        const auto update = E::load(bytes_of(call.inputs[2]) + walk[2] + i * plan.update_stride);
        sums[index] = combined<R>(sums[index], update);
      }
      for (int64_t i = 0; i < plan.size; ++i)
        E::store(bytes_of(call.outputs[0]) + walk[3] + i * plan.out_stride, sums[i]);
    }
    return;
  }
  const auto apply = [&](const Walk& walk, int64_t i) {
    const int64_t index = index_of(walk, i);
    if (index < 0) return;
    combine<E, R>(bytes_of(call.outputs[0]) + walk[3] + index * plan.out_stride,
                  bytes_of(call.inputs[2]) + walk[2] + i * plan.update_stride);
  };
  const bool copies = bytes_of(call.inputs[0]) != bytes_of(call.outputs[0]);
  if (plan.lines_lie_together) {
    const Walk start(plan.lines, first);
    for (int64_t i = 0; copies && i < plan.size; ++i) {
      Walk walk = start;
      for (int64_t line = first; line < end; ++line, walk.next()) copy_element(walk, i);
    }
    for (int64_t i = 0; i < plan.updates; ++i) {
      Walk walk = start;
      for (int64_t line = first; line < end; ++line, walk.next())
        if (is_updated(walk)) apply(walk, i);
    }
    return;
  }
  Walk walk(plan.lines, first);
  for (int64_t line = first; line < end; ++line, walk.next()) {
    for (int64_t i = 0; copies && i < plan.size; ++i) copy_element(walk, i);
    if (!is_updated(walk)) continue;
    for (int64_t i = 0; i < plan.updates; ++i) apply(walk, i);
  }
}

// The axes that an index addresses ("places"), and the block of elements under one index.
struct ScatterBlocksPlan {
  WalkSpace places;  // x, output
  WalkSpace lines;   // indices, updates, where the line's places begin in the output, and among all places
  WalkSpace block;   // x, updates, output
  int64_t wide_indices, components, component_stride;
  int64_t bounds[kMaxRank], out_strides[kMaxRank], place_strides[kMaxRank];
  int64_t block_per_tile;
  int64_t steps[3];  // bytes between the block's elements of each tensor where that is one number, else -1
};

// Elements [first, end) of one block: visit(offset in tensor `from`, offset in the output).
template <class Visit>
void for_each_of_block(const ScatterBlocksPlan& plan, int64_t first, int64_t end, int from, Visit visit) {
  constexpr int kOutput = 2;
  const int64_t step = plan.steps[from], out_step = plan.steps[kOutput];
  if (step >= 0 && out_step >= 0) {
    for (int64_t i = first; i < end; ++i) visit(i * step, i * out_step);
    return;
  }
  Walk walk(plan.block, first);
  for (int64_t i = first; i < end; ++i, walk.next()) visit(walk[from], walk[kOutput]);
}

// Where the line's index points in the output; null if outside.
struct Place {
  std::byte* at;
  int64_t number;  // among all places, in row-major order
};
Place addressed(const BoundCall& call, const ScatterBlocksPlan& plan, const Walk& line) {
  Place place = {bytes_of(call.outputs[0]) + line[2], line[3]};
  for (int64_t c = 0; c < plan.components; ++c) {
    const std::byte* at = bytes_of(call.inputs[1]) + line[0] + c * plan.component_stride;
    const int64_t index = resolve_index(call, read_index(at, plan.wide_indices), plan.bounds[c]);
    if (index < 0) return {nullptr, 0};
    place.at += index * plan.out_strides[c];
    place.number += index * plan.place_strides[c];
  }
  return place;
}

template <class E, ScatterReduction R>
void run_scatter_blocks(const BoundCall& call, int64_t tile, std::byte* scratch) {
  const auto& plan = stored_plan<ScatterBlocksPlan>(call);
  using Stored = typename E::Stored;
  constexpr bool kApart = kSumsApart<E, R>;
  const int64_t first = tile * plan.block_per_tile;
  const int64_t end = std::min(first + plan.block_per_tile, plan.block.count);
  const std::byte *x = bytes_of(call.inputs[0]), *updates = bytes_of(call.inputs[2]);
  std::byte* out = bytes_of(call.outputs[0]);
  [[maybe_unused]] auto* sums = reinterpret_cast<typename E::Value*>(scratch);
  if (kApart || out != x) {
    Walk place(plan.places, 0);
    for (int64_t n = 0; n < plan.places.count; ++n, place.next()) {
      [[maybe_unused]] int64_t i = n * (end - first);
      for_each_of_block(plan, first, end, 0, [&](int64_t from, int64_t to) {
        if constexpr (kApart)
          sums[i++] = E::load(x + place[0] + from);
        else
          move_element<Stored>(out + place[1] + to, x + place[0] + from);
      });
    }
  }
  const auto apply = [&](const Walk& line) {
    const Place place = addressed(call, plan, line);
    if (place.at == nullptr) return;
    const std::byte* update = updates + line[1];
    [[maybe_unused]] int64_t i = place.number * (end - first);
    for_each_of_block(plan, first, end, 1, [&](int64_t from, int64_t to) {
      if constexpr (kApart)
        sums[i] = combined<R>(sums[i], E::load(update + from)), ++i;
      else
        combine<E, R>(place.at + to, update + from);
    });
  };
  if (plan.lines.count > 0) {
    Walk line(plan.lines, 0);
    for (int64_t n = 0; n < plan.lines.count; ++n, line.next()) apply(line);
  }
  if constexpr (kApart) {
    Walk place(plan.places, 0);
    for (int64_t n = 0; n < plan.places.count; ++n, place.next()) {
      int64_t i = n * (end - first);
      for_each_of_block(plan, first, end, 0,
                        [&](int64_t, int64_t to) { E::store(out + place[1] + to, sums[i++]); });
    }
  }
}

// Tiles share out the elements of a block, so that updates of one element meet in one tile, in order.
void split_block(BoundCall& call, ScatterBlocksPlan& plan) {
  constexpr int64_t kLeast = 16, kWanted = 32768;  // elements
  const int64_t rows = std::max<int64_t>(1, plan.lines.count + plan.places.count);
  plan.block_per_tile = std::max(kLeast, kWanted / rows);
  call.tiles = plan.places.count == 0 ? 0 : ceil_div(plan.block.count, plan.block_per_tile);
}

// The one step from each element to the next in row-major order; -1 if there is none, or a negative one.
int64_t step_of(const WalkSpace& space, int tensor) {
  int64_t step = 0, expected = 0;
  bool found = false;
  for (int64_t axis = space.rank - 1; axis >= 0; --axis) {
    if (space.sizes[axis] == 1) continue;
    const int64_t stride = space.strides[tensor][axis];
    if (!found) step = expected = stride;
    if (stride != expected || stride < 0) return -1;
    found = true;
    expected *= space.sizes[axis];
  }
  return step;
}

void run_blocks(BoundCall& call, ScatterBlocksPlan& plan, int64_t reduction) {
  plan.wide_indices = call.inputs[1].dtype == DType::i64;
  for (int t = 0; t < 3; ++t) plan.steps[t] = step_of(plan.block, t);
  split_block(call, plan);
  call.run = with_element_type(call.inputs[0].dtype, [&](auto e) {
    return with_reduction(static_cast<ScatterReduction>(reduction), [&](auto r) -> RunTile {
      if (kSumsApart<decltype(e), decltype(r)::value>)
        call.scratch_bytes = checked_mul(checked_mul(plan.places.count, plan.block_per_tile), sizeof(float));
      return run_scatter_blocks<decltype(e), decltype(r)::value>;
    });
  });
  store_plan(call, plan);
}

// An axis that the indices do not run along belongs to the block under an index. False: there is none, or it
// is not whole.
bool prepare_blocks(BoundCall& call, int axis) {
  const TensorArg &x = call.inputs[0], &indices = call.inputs[1], &updates = call.inputs[2],
                  &out = call.outputs[0];
  ScatterBlocksPlan plan = {};
  const auto in_block = [&](int i) {
    return i != axis && indices.strides[i] == 0 && indices.sizes[i] == x.sizes[i];
  };
  int64_t place_strides[kMaxRank] = {}, places = 1;
  for (int i = x.rank - 1; i >= 0; --i) {
    place_strides[i] = places;
    if (!in_block(i)) places = checked_mul(places, x.sizes[i]);
  }
  for (int i = 0; i < x.rank; ++i) {
    if (in_block(i)) {
      plan.block.add_axis(x.sizes[i], {byte_stride(x, i), byte_stride(updates, i), byte_stride(out, i)});
      continue;
    }
    plan.places.add_axis(x.sizes[i], {byte_stride(x, i), byte_stride(out, i)});
    plan.lines.add_axis(indices.sizes[i],
                        {byte_stride(indices, i), byte_stride(updates, i),
                         i == axis ? 0 : byte_stride(out, i), i == axis ? 0 : place_strides[i]});
  }
  if (plan.block.count < 2) return false;
  plan.components = 1;
  plan.bounds[0] = x.sizes[axis];
  plan.out_strides[0] = byte_stride(out, axis);
  plan.place_strides[0] = place_strides[axis];
  run_blocks(call, plan, call.params[1]);
  return true;
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
  check_step(reduction >= 0 && reduction <= static_cast<int64_t>(ScatterReduction::min), kernel, "reduction",
             "0 to 4", reduction);
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
  if (prepare_blocks(call, axis)) return;
  plan.size = x.sizes[axis], plan.updates = indices.sizes[axis];
  plan.x_stride = byte_stride(x, axis), plan.out_stride = byte_stride(out, axis);
  plan.index_stride = byte_stride(indices, axis), plan.update_stride = byte_stride(updates, axis);
  plan.wide_indices = indices.dtype == DType::i64;
  plan.lines_per_tile = split_work(call, plan.lines.count, plan.size + plan.updates);
  const int64_t inner = plan.lines.rank == 0 ? 0 : plan.lines.strides[2][plan.lines.rank - 1];
  plan.lines_lie_together = plan.lines.count > 1 && std::abs(inner) < std::abs(plan.update_stride);
  if (plan.lines_lie_together && plan.lines_per_tile < kLinesTogether) {
    plan.lines_per_tile = kLinesTogether;
    call.tiles = ceil_div(plan.lines.count, kLinesTogether);
  }
  call.run = with_element_type(x.dtype, [&](auto e) {
    return with_reduction(static_cast<ScatterReduction>(call.params[1]), [&](auto r) -> RunTile {
      if (kSumsApart<decltype(e), decltype(r)::value>)
        call.scratch_bytes = checked_mul(plan.size, sizeof(float));
      return run_scatter_elements<decltype(e), decltype(r)::value>;
    });
  });
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
  ScatterBlocksPlan plan = {};
  for (int i = 0; i < indices.rank - 1; ++i) {
    check_size(updates.sizes[i], indices.sizes[i], kKernel, "size of updates");
    plan.lines.add_axis(indices.sizes[i], {byte_stride(indices, i), byte_stride(updates, i), 0});
  }
  for (int i = 0; i < x.rank; ++i) {
    if (i < components) {
      plan.bounds[i] = x.sizes[i];
      plan.out_strides[i] = byte_stride(out, i);
      plan.places.add_axis(x.sizes[i], {byte_stride(x, i), byte_stride(out, i)});
      continue;
    }
    const int u = indices.rank - 1 + i - static_cast<int>(components);
    check_size(updates.sizes[u], x.sizes[i], kKernel, "size of updates");
    plan.block.add_axis(x.sizes[i], {byte_stride(x, i), byte_stride(updates, u), byte_stride(out, i)});
  }
  int64_t places = 1;
  for (int64_t i = components - 1; i >= 0; --i) {
    plan.place_strides[i] = places;
    places = checked_mul(places, x.sizes[i]);
  }
  plan.components = components;
  plan.component_stride = byte_stride(indices, indices.rank - 1);
  run_blocks(call, plan, call.params[0]);
}

}  // namespace aicf
