// Which sums over all rows, the gradients of biases, are taken along by products. A call that does nothing
// but add up the columns of a tensor disappears into the group of products that reads the tensor as the x of
// a member (kernels/matmul/cuda/row_sums.cuh), or else into the epilogue of the product that stores it, whose
// program then has the sums as a further result.
#include <algorithm>
#include <optional>
#include <utility>

#include "calls/call_forms.h"
#include "calls/join_site.h"

namespace aicf {
namespace {

// Fewer rows are read again in no time.
constexpr int64_t kLeastRows = 1024;

// One sum of each row of its only operand, of two axes and many columns.
bool adds_columns(const KernelCall& call, const CallGraph& graph) {
  if (!is_region(call) || row_call(call)->schedule->inner_rank != 1 || call.inputs.size() != 1 ||
      call.outputs.size() != 1 || call.inputs[0].sizes.size() != 2)
    return false;
  const auto& stages = graph.program_of(call).stages;
  const auto is = [](const TileInstr& instr, TileOp op) {
    return instr.op == op && instr.type == TileType::f32;
  };
  const auto rows = call.inputs[0].sizes[1].constant();
  return stages.size() == 2 && stages[0].size() == 2 && is(stages[0][0], TileOp::load) &&
         is(stages[0][1], TileOp::reduce_sum) && stages[1].size() == 1 &&
         is(stages[1][0], TileOp::store_scalar) && rows && *rows >= kLeastRows;
}

// ---- into a group: the sum costs no pass over memory, nor the product that stores its operand an epilogue

KernelCall group_with_sums(KernelCall group, size_t member, const KernelCall& sums) {
  Window own = sums.outputs[0];
  own.sizes.resize(1);
  own.strides.resize(1);
  KernelCall& product = std::get<GroupedProducts>(group.what).members[member];
  product.outputs.push_back(own);
  product.origins.insert(product.origins.end(), sums.origins.begin(), sums.origins.end());
  group.outputs.push_back(own);
  group.reason += ", with the sums of " + origin_text(sums);
  return group;
}

// With the first group of which a member reads as its x what the sums are of.
bool join_group(JoinSite& site, size_t sums) {
  const KernelCall& call = site.call(sums);
  const Window& out = call.outputs[0];
  if (out.strides[0] != Dim(1)) return false;
  for (const size_t at : site.legality().readers(call.inputs[0].root)) {
    const KernelCall& whole = site.call(at);
    const auto* group = std::get_if<GroupedProducts>(&whole.what);
    if (group == nullptr) continue;
    for (size_t m = 0; m < group->members.size(); ++m) {
      if (!(group->members[m].inputs[0] == call.inputs[0]) || has_sums(group->members[m], site.context()))
        continue;
      if (must_keep_order(call, whole))
        site.refuse({at, sums}, "the group needs the sums, or overwrites what they are of");
      else if (site.offer({.remove = {at, sums}, .insert = group_with_sums(whole, m, call), .at = at}))
        return true;
    }
  }
  return false;
}

// ---- into the product that stores what the sums are of: its launches add up one sum

void join_product(JoinSite& site, size_t sums_at) {
  const KernelCall& sums = site.call(sums_at);
  const std::optional<size_t> at = site.legality().last_writer(sums.inputs[0].root, sums_at);
  if (!at || !is_product(site.call(*at))) return;
  const KernelCall& product = site.call(*at);
  const std::vector<size_t> both = {*at, sums_at};
  const TileProgram& own = site.program_of(product);
  if (own.stages.size() != 1 || sums_rows(own)) return site.refuse(both, "the product has a sum already");
  const auto from = std::find(product.outputs.begin(), product.outputs.end(), swap_last_axes(sums.inputs[0]));
  if (from == product.outputs.end()) return site.refuse(both, "the sums are of no whole result");
  TileProgram program =
      with_sums(own, static_cast<size_t>(from - product.outputs.begin()), sums.outputs[0].dtype);
  KernelCall joined = product;
  joined.outputs.push_back(swap_last_axes(sums.outputs[0]));
  joined.reason += ", with the sums of its columns";
  site.offer({.remove = both, .insert = std::move(joined), .at = *at, .program = std::move(program)});
}

}  // namespace

void join_sums(JoinSite& site, size_t at) {
  if (adds_columns(site.call(at), site.graph()) && !join_group(site, at)) join_product(site, at);
}

}  // namespace aicf
