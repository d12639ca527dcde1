// Ops with bodies. A body's inputs are the operands in order.
#include <algorithm>

#include "ir/reference/ref_op.h"

namespace aicf::reference {
namespace {

std::vector<RefValue> body_results(const RefContext& c, size_t body, const std::vector<RefValue>& operands) {
  return run_body(c.node.bodies.at(body), operands, c.sizes, c.options);
}

RefResults copies(const std::vector<RefValue>& values) {
  RefResults results;
  for (const RefValue& value : values) results.push_back(*value);
  return results;
}

// Row `step` of x along axis 0.
RefValue row_of(const RefTensor& x, int64_t step) {
  auto row = std::make_shared<RefTensor>(make_tensor(x.dtype, Index(x.sizes.begin() + 1, x.sizes.end())));
  with_elements(*row, x, [&](auto& to, const auto& from) {
    std::copy_n(from.begin() + step * row->count(), row->count(), to.begin());
  });
  return row;
}

void set_row(RefTensor& out, int64_t step, const RefTensor& row) {
  with_elements(out, row, [&](auto& to, const auto& from) {
    AICF_CHECK((step + 1) * row.count() <= out.count(), "a scan's step fits its stacked result");
    std::copy(from.begin(), from.end(), to.begin() + step * row.count());
  });
}

}  // namespace

RefResults ref_if_else(const RefContext& c) {
  const std::vector<RefValue> captures(c.operands.begin() + 1, c.operands.end());
  return copies(body_results(c, c.x(0).i.at(0) != 0 ? 0 : 1, captures));
}

RefResults ref_while_loop(const RefContext& c) {
  std::vector<RefValue> carried = c.operands;
  while (body_results(c, 0, carried).at(0)->i.at(0) != 0) carried = body_results(c, 1, carried);
  return copies(carried);
}

// With `reverse`, steps run from the last row to the first; a step's results land in the row it took.
RefResults ref_scan(const RefContext& c) {
  const auto carried_count = static_cast<size_t>(c.attrs().get_int("carried"));
  const bool reverse = c.attrs().get_bool("reverse");
  AICF_CHECK(carried_count < c.operands.size(), "a scan walks at least one operand");
  const int64_t steps = c.x(carried_count).sizes.at(0);
  std::vector<RefValue> carried(c.operands.begin(), c.operands.begin() + static_cast<int64_t>(carried_count));
  RefResults stacked;
  for (size_t k = carried_count; k < c.result_sizes.size(); ++k) stacked.push_back(c.result(k));
  for (int64_t step = 0; step < steps; ++step) {
    const int64_t row = reverse ? steps - 1 - step : step;
    std::vector<RefValue> operands = carried;
    for (size_t k = carried_count; k < c.operands.size(); ++k) {
      if (c.x(k).sizes.at(0) != steps)
        fail_sizes(c, std::to_string(steps) + " rows", to_string(c.x(k).sizes));
      operands.push_back(row_of(c.x(k), row));
    }
    const std::vector<RefValue> results = body_results(c, 0, operands);
    std::copy_n(results.begin(), carried_count, carried.begin());
    for (size_t k = 0; k < stacked.size(); ++k) set_row(stacked[k], row, *results.at(carried_count + k));
  }
  RefResults results = copies(carried);
  for (RefTensor& stack : stacked) results.push_back(std::move(stack));
  return results;
}

RefResults ref_fused(const RefContext& c) { return copies(body_results(c, 0, c.operands)); }

RefResults ref_call(const RefContext& c) { return copies(body_results(c, 0, c.operands)); }

}  // namespace aicf::reference
