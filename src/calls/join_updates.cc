// Which updates of variables are the end of the product that makes their gradient. Where one pointwise region
// alone reads a product's results and writes variables (a param and its moments), the product's epilogue does
// what that region does: the gradient is rounded as it would be stored, but neither stored nor read. One call
// of kernel matmul_group takes the place of a group, or of one product, and of the updates of all its
// members.
//
// It stands where the product stood, behind what the updates need (small calls that make the step's factors).
#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "base/format.h"
#include "calls/call_forms.h"
#include "calls/join_site.h"
#include "kernels/common/product_group.h"

namespace aicf {
namespace {

// Of the updates' time apart that may be left beside the products: their launches also share bundles.
constexpr double kMostSeen = 0.5;

// Products that share a launch, or one by itself, and the update of each.
struct UpdatedProducts {
  std::span<const KernelCall> products;
  std::vector<size_t> updates;  // by place
};

std::span<const KernelCall> products_of(const KernelCall& call) {
  if (const auto* group = std::get_if<GroupedProducts>(&call.what)) return group->members;
  const bool alone = is_product(call) && is_open(call) && call.inputs.size() == 2 && call.outputs.size() == 1;
  return {&call, alone ? size_t{1} : 0};
}

// Element by element, of variables.
bool is_update(const KernelCall& call, const Window& gradient, const CallGraph& graph) {
  const auto is_variable = [&](const Window& w) { return !graph.is_extra(w.root) && !graph.is_temp(w.root); };
  return is_pointwise_region(call, graph) && is_region_that_reads(call, gradient) &&
         std::any_of(call.outputs.begin(), call.outputs.end(), is_variable);
}

// Whether a reader of each result updates variables.
bool find_updates(const JoinSite& site, UpdatedProducts& all) {
  for (const KernelCall& product : all.products) {
    const Window& result = product.outputs[0];
    const std::vector<size_t>& readers = site.legality().readers(result.root);
    const auto update = std::find_if(readers.begin(), readers.end(), [&](size_t reader) {
      return is_update(site.call(reader), result, site.graph());
    });
    if (update == readers.end() || site.graph().is_extra(result.root)) return false;
    all.updates.push_back(*update);
  }
  return !all.products.empty();
}

// The call that does all, and its program.
Decision combine(const JoinSite& site, const UpdatedProducts& all, Proposal& p) {
  if (const Decision d = forwards_half(site.program_of(all.products[0]), 0); !d) return d;
  const KernelCall& first = site.call(all.updates[0]);
  const auto gradient = std::find(first.inputs.begin(), first.inputs.end(), all.products[0].outputs[0]);
  const auto middle = static_cast<size_t>(gradient - first.inputs.begin());
  std::vector<KernelCall>& members = p.insert.what.emplace<GroupedProducts>().members;
  for (size_t i = 0; i < all.products.size(); ++i) {
    const KernelCall& own = site.call(all.updates[i]);
    if (!(site.program_of(own) == site.program_of(first)) || !same_form(own.inputs, first.inputs) ||
        !same_form(own.outputs, first.outputs) || !(own.inputs[middle] == all.products[i].outputs[0]))
      return Decision::no("the updates of its members differ");
    const BoundProgram both = joined(bound_program(all.products[i], site.graph()), 0, {false},
                                     bound_program(own, site.graph()), middle);
    KernelCall& member = members.emplace_back(all.products[i]);
    member.inputs.insert(member.inputs.end(), both.inputs.begin(), both.inputs.end());
    member.outputs = both.outputs;
    member.origins.insert(member.origins.end(), own.origins.begin(), own.origins.end());
    add_member(member, p.insert);
    p.program = both.program;
  }
  return {};
}

// The way, if it hides the updates behind the products. The K of a product by itself is in one piece, as it
// is in a group.
Decision choose(const JoinSite& site, size_t at, const UpdatedProducts& all, Proposal& p) {
  const CodeContext context = site.context();
  if (const RowCall* row = row_call(site.call(at));
      row != nullptr && !has_way(grouped_variants(call_problem(site.call(at), context), 1), row->way))
    return Decision::no("the product's way is none of a group's: " + to_string(row->way));
  std::vector<KernelCall>& members = std::get<GroupedProducts>(p.insert.what).members;
  const std::vector<KernelVariant> ways =
      grouped_variants(call_problem(members[0], context, &*p.program), static_cast<int>(members.size()));
  if (ways.empty()) return Decision::no("no way of the product runs such an epilogue");
  for (KernelCall& member : members) row_call(member)->way = ways[0].way;
  const double alone = site.price(at);
  double updates = 0;
  for (const size_t update : all.updates) updates += site.price(update);
  p.microseconds = ways[0].microseconds;
  const std::string together = format_fixed(p.microseconds, 1), apart = format_fixed(alone + updates, 1);
  p.insert.reason = std::to_string(members.size()) + " products and their updates in one launch, estimated " +
                    together + " us, apart priced " + apart + " us";
  return p.microseconds - alone < kMostSeen * updates
             ? Decision()
             : Decision::no("priced " + together + " us together, " + apart +
                            " us apart: the updates do not hide");
}

}  // namespace

void join_updates(JoinSite& site, size_t at) {
  UpdatedProducts all{products_of(site.call(at)), {}};
  if (!find_updates(site, all)) return;
  Proposal p{.remove = {at}, .insert = {}, .at = at, .lift = true, .most_memory = 1};
  p.remove.insert(p.remove.end(), all.updates.begin(), all.updates.end());
  Decision decision = combine(site, all, p);
  if (decision) decision = choose(site, at, all, p);
  if (!decision) return site.refuse(p.remove, decision.why(), p.microseconds);
  site.offer(std::move(p));
}

}  // namespace aicf
