// Which updates of variables are the end of the product that makes their gradient. Where one pointwise region
// alone reads a product's results and writes variables (a param and its moments), the product's epilogue does
// what that region does: the gradient is rounded as it would be stored, but neither stored nor read. One call
// of kernel matmul_group takes the place of a group, or of one product, and of the updates of all its
// members.
//
// It stands where the product stood. Calls that the updates need, and that stand behind the product, rise
// before it if they may (small ones that make the step's factors); else it stands behind the last of them.
#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "base/format.h"
#include "calls/call_forms.h"
#include "calls/group_products.h"
#include "calls/join_site.h"
#include "kernels/product_group.h"

namespace aicf {
namespace {

// Of the updates' time apart that may be left beside the products: their launches also share bundles.
constexpr double kMostSeen = 0.5;

// Whether no call touches what another one writes: they run side by side.
bool updates_are_apart(const std::vector<KernelCall>& calls) {
  for (const KernelCall& one : calls)
    for (const KernelCall& other : calls)
      if (&one != &other && (share_root(one.outputs, other.inputs) || share_root(one.outputs, other.outputs)))
        return false;
  return true;
}

class UpdateJoin {
 public:
  UpdateJoin(JoinSite& site, size_t at) : site_(site), at_(at), product_(site.call(at)) {}

  void propose() {
    find_products();
    if (products_.empty() || !find_updates()) return;
    first_ = &site_.call(updates_[0]);
    middle_ =
        static_cast<size_t>(std::find(first_->inputs.begin(), first_->inputs.end(), products_[0].outputs[0]) -
                            first_->inputs.begin());
    Proposal p;
    p.remove = {at_};
    p.remove.insert(p.remove.end(), updates_.begin(), updates_.end());
    p.most_memory = 1;
    Decision decision = is_whole();
    if (decision) decision = combine(p);
    if (decision) decision = choose(p);
    if (decision) decision = place(p);
    if (!decision) return site_.refuse(p.remove, decision.why(), p.microseconds);
    site_.offer(std::move(p));
  }

 private:
  // The members of a group, or a product by itself.
  void find_products() {
    if (const auto* group = std::get_if<GroupedProducts>(&product_.what))
      products_ = group->members;
    else if (is_product(product_) && is_open(product_) && product_.inputs.size() == 2 &&
             product_.outputs.size() == 1)
      products_ = std::span(&product_, 1);
  }

  // The K of a product by itself is in one piece, as it is in a group.
  Decision is_whole() const {
    const bool whole =
        row_call(product_) == nullptr ||
        has_way(grouped_variants(call_problem(product_, site_.context()), 1), row_call(product_)->way);
    return whole ? Decision()
                 : Decision::no("the product's way is none of a group's: " +
                                to_string(row_call(product_)->way));
  }

  // Each result's only reader, if all of them update variables.
  bool find_updates() {
    for (const KernelCall& product : products_) {
      const Window& result = product.outputs[0];
      if (site_.graph().is_extra(result.root)) return false;
      const std::vector<size_t>& readers = site_.legality().readers(result.root);
      const auto update = std::find_if(readers.begin(), readers.end(),
                                       [&](size_t reader) { return is_update(site_.call(reader), result); });
      if (update == readers.end()) return false;
      updates_.push_back(*update);
    }
    return true;
  }

  // Element by element, of variables; what it overwrites it reads in step.
  bool is_update(const KernelCall& call, const Window& gradient) const {
    if (!is_pointwise_region(call, site_.graph()) || !is_region_that_reads(call, gradient)) return false;
    const auto has_its_sizes = [&](const Window& w) { return w.sizes == gradient.sizes; };
    const auto is_in_step = [&](const Window& w) {
      return !has_root(call.outputs, w.root) ||
             std::find(call.outputs.begin(), call.outputs.end(), w) != call.outputs.end();
    };
    const auto is_variable = [&](const Window& w) {
      return !site_.graph().is_extra(w.root) && !site_.graph().is_temp(w.root);
    };
    return std::all_of(call.inputs.begin(), call.inputs.end(),
                       [&](const Window& w) { return has_its_sizes(w) && is_in_step(w); }) &&
           std::all_of(call.outputs.begin(), call.outputs.end(), has_its_sizes) &&
           std::any_of(call.outputs.begin(), call.outputs.end(), is_variable);
  }

  // The call that does all, and its program.
  Decision combine(Proposal& p) const {
    if (const Decision d = hands_on_half(site_.program_of(products_[0]), 0); !d) return d;
    std::vector<KernelCall>& members = p.insert.what.emplace<GroupedProducts>().members;
    for (size_t i = 0; i < products_.size(); ++i) {
      const KernelCall& own = site_.call(updates_[i]);
      if (!is_like_first(own) || !(own.inputs[middle_] == products_[i].outputs[0]))
        return Decision::no("the updates of its members differ");
      const BoundProgram both = joined(bound_program(products_[i], site_.graph()), 0, {false},
                                       bound_program(own, site_.graph()), middle_);
      KernelCall& member = members.emplace_back(products_[i]);
      member.inputs.insert(member.inputs.end(), both.inputs.begin(), both.inputs.end());
      member.outputs = both.outputs;
      member.origins.insert(member.origins.end(), own.origins.begin(), own.origins.end());
      add_member(member, p.insert);
      p.program = both.program;
    }
    if (!arguments_fit(p.insert, members.size())) return Decision::no("the kernel takes no more arguments");
    if (!updates_are_apart(members)) return Decision::no("a member would read what another one updates");
    return {};
  }

  bool is_like_first(const KernelCall& update) const {
    return site_.program_of(update) == site_.program_of(*first_) &&
           same_form(update.inputs, first_->inputs) && same_form(update.outputs, first_->outputs);
  }

  // The way, if it hides the updates behind the products.
  Decision choose(Proposal& p) const {
    std::vector<KernelCall>& members = std::get<GroupedProducts>(p.insert.what).members;
    const auto count = static_cast<int>(products_.size());
    const CodeContext context = site_.context();
    const std::vector<KernelVariant> ways =
        grouped_variants(call_problem(members[0], context, &*p.program), count);
    if (ways.empty()) return Decision::no("no way of the product runs such an epilogue");
    const double alone = row_call(product_) != nullptr
                             ? site_.microseconds(product_)
                             : grouped_variants(call_problem(products_[0], context), count)[0].microseconds;
    double updates = 0;
    for (const size_t update : updates_) updates += site_.microseconds(site_.call(update));
    for (KernelCall& member : members) row_call(member)->way = ways[0].way;
    p.microseconds = ways[0].microseconds;
    const std::string together = format_fixed(p.microseconds, 1), apart = format_fixed(alone + updates, 1);
    p.insert.reason = std::to_string(count) + " products and their updates in one launch, estimated " +
                      together + " us, apart " + apart + " us";
    return p.microseconds - alone < kMostSeen * updates
               ? Decision()
               : Decision::no(together + " us together, " + apart + " us apart: the updates do not hide");
  }

  // Where it stands, and what rises.
  Decision place(Proposal& p) const {
    const Legality& legality = site_.legality();
    p.at = at_;
    for (const size_t needed : needed_calls()) {
      if (!legality.obstacle(needed, at_, p.rise))
        p.rise.push_back(needed);
      else
        p.at = needed, p.behind = true;
    }
    return p.at < *std::min_element(updates_.begin(), updates_.end())
               ? Decision()
               : Decision::no("an update stands before '" + origin_text(site_.call(p.at)) +
                              "', which another needs");
  }

  // Behind the product, those that must stay before an update, whatever gives its gradient.
  std::set<size_t> needed_calls() const {
    const Legality& legality = site_.legality();
    std::set<size_t> needed;
    const auto add = [&](const std::vector<size_t>& places, size_t end) {
      const auto first = std::upper_bound(places.begin(), places.end(), at_);
      needed.insert(first, std::lower_bound(first, places.end(), end));
    };
    for (const size_t update : updates_) {
      for (const Window& w : site_.call(update).inputs)
        if (!has_root(product_.outputs, w.root)) add(legality.writers(w.root), update);
      for (const Window& w : site_.call(update).outputs) {
        add(legality.readers(w.root), update);
        add(legality.writers(w.root), update);
      }
    }
    for (const size_t update : updates_) needed.erase(update);
    return needed;
  }

  JoinSite& site_;
  const size_t at_;
  const KernelCall& product_;
  std::span<const KernelCall> products_;
  std::vector<size_t> updates_;  // of the products, by place
  const KernelCall* first_ = nullptr;
  size_t middle_ = 0;  // the gradient's number among an update's inputs
};

}  // namespace

void join_updates(JoinSite& site, size_t at) { UpdateJoin(site, at).propose(); }

}  // namespace aicf
