// Gathers and scatters. Indices are data: each is checked when used.
#include "ir/reference/ref_op.h"

namespace aicf::reference {
namespace {

// How a scatter combines the element in place with an update.
double combine(const std::string& reduction, double old, double update, DType) {
  if (reduction == "add") return old + update;
  if (reduction == "mul") return old * update;
  if (reduction == "max") return max_of(old, update);
  if (reduction == "min") return min_of(old, update);
  return update;
}

int64_t combine(const std::string& reduction, int64_t old, int64_t update, DType dtype) {
  if (reduction == "add") return wrap_to(dtype, wrap_add(old, update));
  if (reduction == "mul") return wrap_to(dtype, wrap_mul(old, update));
  if (reduction == "max") return old > update ? old : update;
  if (reduction == "min") return old < update ? old : update;
  return update;
}

// The index of x that row `row` (its length: depth) of an indices tensor addresses, starting at axis `first`.
Index addressed(const RefContext& c, const RefTensor& x, const RefTensor& indices, int64_t row, int64_t depth,
                int64_t first) {
  Index index;
  for (int64_t d = 0; d < depth; ++d)
    index.push_back(checked_index(c, indices.i[static_cast<size_t>(row * depth + d)],
                                  x.sizes[static_cast<size_t>(first + d)]));
  return index;
}

}  // namespace

RefResults ref_gather(const RefContext& c) {
  const RefTensor &x = c.x(0), &indices = c.x(1);
  const auto axis = static_cast<size_t>(c.axis("axis", x.rank()));
  const size_t index_rank = indices.sizes.size();
  return one(rearrange(x, c.result_sizes[0], [&](const Index& index) {
    const Index where(index.begin() + static_cast<int64_t>(axis),
                      index.begin() + static_cast<int64_t>(axis + index_rank));
    const int64_t taken = indices.i[static_cast<size_t>(flat_index(indices.sizes, where))];
    Index from(index.begin(), index.begin() + static_cast<int64_t>(axis));
    from.push_back(checked_index(c, taken, x.sizes[axis]));
    from.insert(from.end(), index.begin() + static_cast<int64_t>(axis + index_rank), index.end());
    return from;
  }));
}

RefResults ref_gather_elements(const RefContext& c) {
  const RefTensor &x = c.x(0), &indices = c.x(1);
  const auto axis = static_cast<size_t>(c.axis("axis", x.rank()));
  return one(rearrange(x, c.result_sizes[0], [&](const Index& index) {
    Index from = index;
    from[axis] =
        checked_index(c, indices.i[static_cast<size_t>(flat_index(indices.sizes, index))], x.sizes[axis]);
    return from;
  }));
}

RefResults ref_gather_nd(const RefContext& c) {
  const RefTensor &x = c.x(0), &indices = c.x(1);
  const int64_t batch_dims = c.attrs().get_int("batch_dims"), depth = indices.sizes.back();
  const Index rows(indices.sizes.begin(), indices.sizes.end() - 1);
  return one(rearrange(x, c.result_sizes[0], [&](const Index& index) {
    const Index row(index.begin(), index.begin() + static_cast<int64_t>(rows.size()));
    Index from(index.begin(), index.begin() + batch_dims);
    const Index chosen = addressed(c, x, indices, flat_index(rows, row), depth, batch_dims);
    from.insert(from.end(), chosen.begin(), chosen.end());
    from.insert(from.end(), index.begin() + static_cast<int64_t>(rows.size()), index.end());
    return from;
  }));
}

RefResults ref_scatter_elements(const RefContext& c) {
  RefTensor out = c.x(0);
  const RefTensor &indices = c.x(1), &updates = c.x(2);
  const auto axis = static_cast<size_t>(c.axis("axis", out.rank()));
  const std::string& reduction = c.attrs().get_str("reduction");
  AICF_CHECK(indices.sizes == updates.sizes, "one update per index");
  with_elements(out, updates, [&](auto& to, const auto& from) {
    for_each_index(indices.sizes, [&](const Index& index, int64_t flat) {
      Index target = index;
      target[axis] = checked_index(c, indices.i[static_cast<size_t>(flat)], out.sizes[axis]);
      auto& element = to[static_cast<size_t>(flat_index(out.sizes, target))];
      element = combine(reduction, element, from[static_cast<size_t>(flat)], out.dtype);
    });
  });
  return one(std::move(out));
}

RefResults ref_scatter_nd(const RefContext& c) {
  RefTensor out = c.x(0);
  const RefTensor &indices = c.x(1), &updates = c.x(2);
  const int64_t depth = indices.sizes.back();
  const Index rows(indices.sizes.begin(), indices.sizes.end() - 1);
  const std::string& reduction = c.attrs().get_str("reduction");
  with_elements(out, updates, [&](auto& to, const auto& from) {
    for_each_index(updates.sizes, [&](const Index& index, int64_t flat) {
      const Index row(index.begin(), index.begin() + static_cast<int64_t>(rows.size()));
      Index target = addressed(c, out, indices, flat_index(rows, row), depth, 0);
      target.insert(target.end(), index.begin() + static_cast<int64_t>(rows.size()), index.end());
      auto& element = to[static_cast<size_t>(flat_index(out.sizes, target))];
      element = combine(reduction, element, from[static_cast<size_t>(flat)], out.dtype);
    });
  });
  return one(std::move(out));
}

}  // namespace aicf::reference
