// Which pointwise regions read elements of tables at indices where gathers would put them into memory first
// (sampled images, resized ones): one call of the kernel tile_indexed takes the place of a gather and the
// region, and may take that of any number of gathers.
#include <algorithm>

#include "calls/call_forms.h"
#include "calls/join_site.h"

namespace aicf {
namespace {

constexpr char kIndexedRegion[] = "tile_indexed";

// What a gather reads, over the axes of its result: the table without the axis that indices number, which
// comes last, and the indices.
struct Lookup {
  Window table, indices;
  Dim size, stride;  // of that axis
};

Window over_axes(const Window& window, Shape sizes, std::vector<Dim> strides) {
  Window over = window;
  over.sizes = std::move(sizes);
  over.strides = std::move(strides);
  return over;
}

// Each axis of the result is one of the table or one of the indices.
Lookup lookup_of_gather(const Window& x, const Window& indices, size_t axis) {
  Shape sizes(x.sizes.begin(), x.sizes.begin() + static_cast<std::ptrdiff_t>(axis));
  std::vector<Dim> strides(x.strides.begin(), x.strides.begin() + static_cast<std::ptrdiff_t>(axis));
  Shape index_sizes(axis, Dim(1));
  std::vector<Dim> index_strides(axis, Dim(0));
  for (size_t i = 0; i < indices.sizes.size(); ++i) {
    sizes.emplace_back(1), strides.emplace_back(0);
    index_sizes.push_back(indices.sizes[i]), index_strides.push_back(indices.strides[i]);
  }
  for (size_t i = axis + 1; i < x.sizes.size(); ++i) {
    sizes.push_back(x.sizes[i]), strides.push_back(x.strides[i]);
    index_sizes.emplace_back(1), index_strides.emplace_back(0);
  }
  return {over_axes(x, sizes, strides), over_axes(indices, index_sizes, index_strides), x.sizes[axis],
          x.strides[axis]};
}

// An axis of one position serves every index.
Lookup lookup_of_elements(const Window& x, const Window& indices, size_t axis) {
  Shape sizes = indices.sizes;
  std::vector<Dim> strides = x.strides;
  for (size_t i = 0; i < sizes.size(); ++i)
    if (i == axis || x.sizes[i] == Dim(1)) sizes[i] = Dim(1), strides[i] = Dim(0);
  return {over_axes(x, sizes, strides), indices, x.sizes[axis], x.strides[axis]};
}

std::optional<Lookup> lookup_of(const KernelCall& call) {
  const bool elements = is_form(call, JoinForm::kGatherElements);
  if (!elements && !is_form(call, JoinForm::kGather)) return std::nullopt;
  const Window &x = call.inputs[0], &indices = call.inputs[kIndices];
  int64_t axis = row_call(call)->params[0].require_constant("axis of a gather");
  if (axis < 0) axis += static_cast<int64_t>(x.sizes.size());
  return (elements ? lookup_of_elements : lookup_of_gather)(x, indices, static_cast<size_t>(axis));
}

bool may_be_indexed(const KernelCall& call, const CallGraph& graph) {
  return (is_region(call) || is_row(call, kIndexedRegion)) && has_elements_alone(graph.program_of(call));
}

// The number of the region's input that is the whole of the result, element by element; -1: none alone is.
int64_t input_that_is(const KernelCall& region, const Window& result) {
  const Ints& axes = row_call(region)->schedule->domain_axes;
  if (axes.size() != result.sizes.size() || count_root(region.inputs, result.root) != 1) return -1;
  const auto at = std::find(region.inputs.begin(), region.inputs.end(), transpose_window(result, axes));
  return at == region.inputs.end() ? -1 : at - region.inputs.begin();
}

// Whether neighbours of the window lie along another axis than the last.
bool runs_across(const Window& w) {
  if (w.strides.empty() || w.strides.back() == Dim(0) || w.strides.back() == Dim(1)) return false;
  for (size_t i = 0; i + 1 < w.sizes.size(); ++i)
    if (w.strides[i] == Dim(1) && !(w.sizes[i] == Dim(1))) return true;
  return false;
}

Decision takes_indices(const KernelCall& region, const KernelCall& gather) {
  const size_t rank = region.outputs[0].sizes.size();
  if (gather.inputs[0].sizes.empty() || rank >= static_cast<size_t>(kMaxRank))
    return Decision::no("a table has no axis more than the region");
  // Regions that turn a tensor go through squares of it. Tables have an axis more.
  for (const auto* list : {&region.inputs, &region.outputs})
    for (const Window& w : *list)
      if (w.sizes.size() == rank && runs_across(w)) return Decision::no("the region turns an operand");
  return {};
}

KernelCall indexed(const KernelCall& region, size_t operands, size_t number, const Lookup& lookup) {
  KernelCall both = region;
  RowCall& row = *row_call(both);
  const Ints& axes = row.schedule->domain_axes;
  row.row = kIndexedRegion;
  row.params.resize(1 + operands, Dim(-1));
  both.choice = {};
  Window& table = both.inputs[number];
  table = transpose_window(lookup.table, axes);
  table.sizes.push_back(lookup.size);
  table.strides.push_back(lookup.stride);
  const Window indices = transpose_window(lookup.indices, axes);
  const auto first = both.inputs.begin() + static_cast<std::ptrdiff_t>(operands);
  const auto at = std::find(first, both.inputs.end(), indices);
  row.params[1 + number] = Dim(at - both.inputs.begin());
  if (at == both.inputs.end()) both.inputs.push_back(indices);
  std::erase(both.elementwise, static_cast<int32_t>(number));
  const std::string reason = "reads elements at indices itself";
  if (!region.reason.starts_with(reason)) both.reason = reason + "; " + region.reason;
  return both;
}

}  // namespace

void join_indexed(JoinSite& site, size_t at) {
  const KernelCall& gather = site.call(at);
  const std::optional<Lookup> lookup = lookup_of(gather);
  if (!lookup) return;
  const Window& result = gather.outputs[0];
  for (const size_t reader : site.legality().readers(result.root)) {
    const KernelCall& region = site.call(reader);
    if (reader < at || !may_be_indexed(region, site.graph())) continue;
    const int64_t number = input_that_is(region, result);
    const size_t operands = site.program_of(region).inputs.size();
    if (number < 0 || static_cast<size_t>(number) >= operands) continue;
    const std::vector<size_t> both = {at, reader};
    if (const Decision d = takes_indices(region, gather); !d) return site.refuse(both, d.why());
    site.offer({.remove = both,
                .insert = indexed(region, operands, static_cast<size_t>(number), *lookup),
                .at = reader});
    return;
  }
}

}  // namespace aicf
