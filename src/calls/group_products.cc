// Which products of one shape share a launch (grouped GEMM, kernels/matmul/cuda/grouped.cuh). A product's
// tiles rarely fill the last wave of the multiprocessors; several products of the same sizes, strides and
// plain results, the gradients of the weights of equal layers for one, fill all waves but one, and none has
// to split its K. One call with them as members stands where the last of them stood, unless values that then
// wait for it take more memory.
#include <algorithm>
#include <limits>
#include <unordered_map>
#include <utility>

#include "base/format.h"
#include "calls/call_forms.h"
#include "calls/join_site.h"
#include "kernels/common/product_group.h"

namespace aicf {
namespace {

constexpr double kMoreMemory =
    1.02;  // times that of before, that values may take because they are needed later

// The first products of one form in groups of neighbours, with the least sum of estimated times.
struct Partition {
  double microseconds = std::numeric_limits<double>::infinity();
  size_t size = 1;  // of the last group
};

class ProductGrouper {
 public:
  explicit ProductGrouper(const RuleSite& rule) : site_(rule), context_(site_.context()) {}

  void run() {
    std::vector<std::vector<size_t>> groups;
    for (const std::vector<size_t>& alike : products_alike())
      for (std::vector<size_t>& group : partition(alike)) groups.push_back(std::move(group));
    for (const std::vector<size_t>& group : groups) site_.offer(proposal(group));
    site_.finish();
  }

 private:
  // One whose variant nobody has decided, with plain results. Constant weights stay apart: their loads begin
  // before the launches before have ended.
  bool may_be_member(const KernelCall& call) const {
    return is_product(call) && is_open(call) && call.outputs.size() == 1 && call.inputs.size() == 2 &&
           !context_.constant[static_cast<size_t>(call.inputs[1].root)];
  }

  bool are_alike(const KernelCall& a, const KernelCall& b) const {
    return row_call(a)->params == row_call(b)->params && same_form(a.inputs, b.inputs) &&
           same_form(a.outputs, b.outputs) && site_.program_of(a) == site_.program_of(b);
  }

  // Those of one form, in the order of the first of each.
  std::vector<std::vector<size_t>> products_alike() const {
    std::vector<std::vector<size_t>> all;
    std::unordered_map<std::string, std::vector<size_t>> known;  // numbers in `all` by sizes
    for (size_t i = 0; i < site_.graph().calls.size(); ++i) {
      const KernelCall& call = site_.call(i);
      if (!may_be_member(call)) continue;
      std::vector<size_t>& like = known[to_string(call.inputs[0].sizes) + to_string(call.outputs[0].sizes)];
      const auto found = std::find_if(like.begin(), like.end(),
                                      [&](size_t n) { return are_alike(site_.call(all[n][0]), call); });
      if (found != like.end()) {
        all[*found].push_back(i);
        continue;
      }
      like.push_back(all.size());
      all.push_back({i});
    }
    return all;
  }

  std::vector<std::vector<size_t>> partition(const std::vector<size_t>& alike) const {
    if (alike.size() < 2) return {};
    const KernelCall& first = site_.call(alike[0]);
    const double edge = context_.target.facts().edge_microseconds;
    std::vector<double> times{0, site_.price(alike[0]) + edge};
    const CudaProblem problem = call_problem(first, context_);
    for (size_t count = 2; count <= std::min<size_t>(alike.size(), kMostGrouped); ++count) {
      const std::vector<KernelVariant> variants = grouped_variants(problem, static_cast<int>(count));
      if (variants.empty()) {
        site_.refuse(alike, "no way of the products runs a group");
        return {};
      }
      times.push_back(variants[0].microseconds + edge);
    }
    std::vector<size_t> last;  // where each product may stand at the latest
    for (const size_t index : alike) last.push_back(site_.legality().last_place(index));
    std::vector<Partition> best(alike.size() + 1);  // of the first so many
    best[0].microseconds = 0;
    for (size_t end = 1; end <= alike.size(); ++end)
      for (size_t size = 1; size <= end && size < times.size() && last[end - size] >= alike[end - 1];
           ++size) {
        const double time = best[end - size].microseconds + times[size];
        if (time < best[end].microseconds) best[end] = {time, size};
      }
    std::vector<std::vector<size_t>> groups;
    for (size_t end = alike.size(); end > 0; end -= best[end].size)
      if (best[end].size > 1)
        groups.emplace_back(alike.begin() + static_cast<std::ptrdiff_t>(end - best[end].size),
                            alike.begin() + static_cast<std::ptrdiff_t>(end));
    if (groups.empty()) refuse_all(alike, times, last);
    return groups;
  }

  void refuse_all(const std::vector<size_t>& alike, const std::vector<double>& times,
                  const std::vector<size_t>& last) const {
    const bool may_move = last[0] >= alike[1];
    site_.refuse(alike,
                 may_move ? "priced " + format_fixed(times[2], 1) + " us for two together, " +
                                format_fixed(2 * times[1], 1) + " us apart"
                          : quoted(site_.call(alike[0])) + " cannot pass " + quoted(site_.call(last[0] + 1)));
  }

  Proposal proposal(const std::vector<size_t>& indices) const {
    const KernelVariant way =
        grouped_variants(call_problem(site_.call(indices[0]), context_), static_cast<int>(indices.size()))[0];
    KernelCall group;
    std::vector<KernelCall>& members = group.what.emplace<GroupedProducts>().members;
    for (const size_t index : indices) {
      members.push_back(site_.call(index));
      row_call(members.back())->way = way.way;
      add_member(members.back(), group);
    }
    group.reason = std::to_string(indices.size()) + " products in one launch, estimated " +
                   format_fixed(way.microseconds, 1) + " us, one priced " +
                   format_fixed(site_.price(indices[0]), 1) + " us";
    return {.remove = indices,
            .insert = std::move(group),
            .at = indices.back(),
            .microseconds = way.microseconds,
            .most_memory = kMoreMemory};
  }

  JoinSite site_;
  const CodeContext context_;
};

}  // namespace

void group_products(const RuleSite& site) { ProductGrouper(site).run(); }

}  // namespace aicf
