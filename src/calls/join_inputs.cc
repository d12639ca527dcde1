// Which calls become the prologue of the one call that reads what they produce, on a GPU with clusters. Where
// a region produces the few rows of a product (a norm, a gate), every block of the product computes them
// itself (kernels/matmul/cuda/wgmma_rs.cuh); where rope_append produces the one query of attention to its
// cache, every block of attention rotates its heads (kernels/attention/cuda/roped.cuh). One call with both as
// members takes the place of two.
#include <algorithm>
#include <optional>
#include <utility>

#include "calls/call_forms.h"
#include "calls/join_site.h"
#include "kernels/common/prologue.h"
#include "select/cost_model.h"
#include "select/layout.h"

namespace aicf {
namespace {

constexpr double kMostBytes = 64 * 1024;  // that the region moves: every block reads them
constexpr int64_t kMostBlocks = 8;        // of the region, which each block runs one after the other

// The same elements in the same order, in neighbouring places.
bool same_row(const Window& a, const Window& b) {
  return a.root == b.root && a.offset == b.offset && is_row_major(a) && is_row_major(b) &&
         element_count(a.sizes) == element_count(b.sizes) && a.sizes.back() == b.sizes.back();
}

// A region of few bytes before a product, or a step of rope_append before attention over its cache.
bool is_prologue(const KernelCall& producer, const KernelCall& consumer, const SymbolRanges& ranges) {
  if (is_form(consumer, JoinForm::kAttention)) return is_form(producer, JoinForm::kAppend);
  return is_region(producer) && producer.outputs.size() == 1 &&
         has_program(consumer, ProgramRole::kEpilogue) &&
         producer.outputs[0].dtype == consumer.inputs[0].dtype &&
         largest_work(producer, kRegionRow, ranges).bytes <= kMostBytes;
}

Decision takes_region(const KernelCall& region, const KernelCall& product, const CodeContext& context) {
  if (!takes_prologue(call_problem(product, context)))
    return Decision::no("no block of " + to_string(row_call(product)->way) + " can compute its rows");
  const CudaCode code = call_code(region, context, CodeForm::member);
  if (!joins_bundle(code) || code.launches.size() != 1 || code.launches[0].block > kPrologueThreads ||
      bounds(code.launches[0].grid[0], context.ranges).hi > kMostBlocks)
    return Decision::no("the region wants more than a block of the product has");
  return {};
}

// The row that is appended lies in the memory that attention reads.
Decision takes_append(const KernelCall& append, const KernelCall& attention, const CodeContext& context) {
  if (!std::equal(append.outputs.begin(), append.outputs.begin() + 3, attention.inputs.begin()))
    return Decision::no("attention reads other memory than the step is appended to");
  if (!takes_rope(call_problem(attention, context), call_problem(append, context)))
    return Decision::no("no block of attention can rotate its queries");
  return {};
}

Decision may_take(const JoinSite& site, size_t producer_at, size_t consumer_at) {
  const KernelCall &producer = site.call(producer_at), &consumer = site.call(consumer_at);
  const ValueId root = consumer.inputs[0].root;
  if (const Decision d = site.needed_by_none_but(root, {producer_at, consumer_at}); !d) return d;
  if (count_root(consumer.inputs, root) != 1 || !same_row(producer.outputs[0], consumer.inputs[0]))
    return Decision::no("the input is not read row by row as it is produced");
  if (!site.legality().may_move(producer_at, consumer_at - 1)) return {};  // the site says why
  return is_region(producer) ? takes_region(producer, consumer, site.context())
                             : takes_append(producer, consumer, site.context());
}

KernelCall with_prologue(const KernelCall& producer, const KernelCall& consumer) {
  KernelCall call;
  call.inputs = consumer.inputs;
  add_once(producer.inputs, call.inputs);
  call.outputs = consumer.outputs;
  call.outputs.insert(call.outputs.end(), producer.outputs.begin(), producer.outputs.end());
  call.reason = "computes its first input in a prologue; " + consumer.reason;
  call.choice = consumer.choice;
  call.what = PrologueFusion{producer, consumer};
  return call;
}

}  // namespace

void join_inputs(JoinSite& site, size_t at) {
  const KernelCall& consumer = site.call(at);
  if (consumer.inputs.empty() ||
      !(is_form(consumer, JoinForm::kProduct) || is_form(consumer, JoinForm::kAttention)))
    return;
  const std::optional<size_t> producer = site.legality().sole_writer(consumer.inputs[0].root, at);
  if (!producer || !is_prologue(site.call(*producer), consumer, site.graph().ranges)) return;
  const std::vector<size_t> both = {*producer, at};
  if (const Decision d = may_take(site, *producer, at); !d) return site.refuse(both, d.why());
  site.offer({.remove = both, .insert = with_prologue(site.call(*producer), consumer), .at = at});
}

}  // namespace aicf
