#include "calls/group_products.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "calls/call_windows.h"
#include "calls/legality.h"
#include "calls/live_bytes.h"
#include "calls/row_names.h"
#include "kernels/product_group.h"
#include "select/layout.h"

namespace aicf {
namespace {

constexpr double kMoreMemory = 1.02;  // that values may take because they are needed later

// A kernel's arguments, of which a product takes two tensor maps; and those that are sizes.
constexpr size_t kArgumentBytes = 4096, kMapBytes = 128, kPointerBytes = 8, kSizeBytes = 128;

// How the products of one form are dealt to launches: groups of neighbours in their order, with the least sum
// of estimated times.
struct Deal {
  double microseconds = std::numeric_limits<double>::infinity();
  size_t size = 1;  // of the last group
};

class ProductGrouper {
 public:
  ProductGrouper(CallGraph& calls, const CodeContext& context)
      : calls_(calls), context_(context), legality_(calls) {}

  void run() {
    std::vector<bool> seen(calls_.calls.size());
    std::vector<std::vector<size_t>> groups;
    for (size_t i = 0; i < calls_.calls.size(); ++i) {
      if (seen[i] || !is_product(calls_.calls[i])) continue;
      std::vector<size_t> alike;
      for (size_t j = i; j < calls_.calls.size(); ++j)
        if (!seen[j] && is_product(calls_.calls[j]) && are_alike(calls_.calls[i], calls_.calls[j])) {
          seen[j] = true;
          alike.push_back(j);
        }
      for (std::vector<size_t>& group : deal(alike)) groups.push_back(std::move(group));
    }
    for (const std::vector<size_t>& group : groups) join(group);
    legality_.finish();
  }

 private:
  // One whose variant nobody has decided, with plain results. Constant weights stay apart: their loads begin
  // before the launches before have ended.
  bool is_product(const KernelCall& call) const {
    return is_row(call, kTensorCoreProduct) && has_program(call, ProgramRole::kEpilogue) &&
           call.choice.source == ChoiceSource::kRank && call.outputs.size() == 1 && call.inputs.size() == 2 &&
           !calls_.constant[static_cast<size_t>(call.inputs[1].root)];
  }

  bool are_alike(const KernelCall& a, const KernelCall& b) const {
    return row_call(a)->params == row_call(b)->params && same_form(a.inputs, b.inputs) &&
           same_form(a.outputs, b.outputs) && calls_.program_of(a) == calls_.program_of(b);
  }

  std::vector<std::vector<size_t>> deal(const std::vector<size_t>& alike) const {
    if (alike.size() < 2) return {};
    const KernelCall& first = calls_.calls[alike[0]];
    const double edge = context_.target.facts().edge_microseconds;
    std::vector<double> times{0, first.choice.candidates[first.choice.chosen].microseconds + edge};
    const CudaProblem problem = call_problem(first, context_);
    for (size_t count = 2; count <= std::min<size_t>(alike.size(), kMostGrouped); ++count) {
      const std::vector<KernelVariant> variants = grouped_variants(problem, static_cast<int>(count));
      if (variants.empty()) return {};
      times.push_back(variants[0].microseconds + edge);
    }
    std::vector<size_t> last;  // where each product may stand at the latest
    for (const size_t index : alike) last.push_back(legality_.last_place(index));
    std::vector<Deal> deals(alike.size() + 1);  // of the first so many
    deals[0].microseconds = 0;
    for (size_t end = 1; end <= alike.size(); ++end)
      for (size_t size = 1; size <= end && size < times.size() && last[end - size] >= alike[end - 1];
           ++size) {
        const double time = deals[end - size].microseconds + times[size];
        if (time < deals[end].microseconds) deals[end] = {time, size};
      }
    std::vector<std::vector<size_t>> groups;
    for (size_t end = alike.size(); end > 0; end -= deals[end].size)
      if (deals[end].size > 1)
        groups.emplace_back(alike.begin() + static_cast<std::ptrdiff_t>(end - deals[end].size),
                            alike.begin() + static_cast<std::ptrdiff_t>(end));
    return groups;
  }

  // Puts the group in the place of its last call, unless what it reads would then take too much memory.
  void join(const std::vector<size_t>& indices) {
    std::vector<KernelCall> before = calls_.calls;
    KernelCall group = group_of(indices);
    for (const size_t index : indices) calls_.calls[index] = KernelCall();
    calls_.calls[indices.back()] = std::move(group);
    const double most = kMoreMemory * static_cast<double>(peak_live_bytes(before, calls_));
    if (static_cast<double>(peak_live_bytes(calls_.calls, calls_)) > most) calls_.calls = std::move(before);
  }

  KernelCall group_of(const std::vector<size_t>& indices) const {
    KernelCall group;
    std::vector<KernelCall>& members = group.what.emplace<GroupedProducts>().members;
    for (const size_t index : indices) {
      members.push_back(calls_.calls[index]);
      add_member(members.back(), group);
    }
    const KernelCall& first = members.front();
    const std::vector<KernelVariant> variants =
        grouped_variants(call_problem(first, context_), static_cast<int>(indices.size()));
    for (KernelCall& member : members) row_call(member)->way = variants[0].way;
    const double one = first.choice.candidates[first.choice.chosen].microseconds;
    group.reason = std::to_string(indices.size()) + " products in one launch, estimated " +
                   format_fixed(variants[0].microseconds, 1) + " us, one " + format_fixed(one, 1) + " us";
    return group;
  }

  CallGraph& calls_;
  const CodeContext& context_;
  Legality legality_;  // of the calls as they were when the pass began
};

}  // namespace

void group_products(CallGraph& calls, const Target& target, const SelectOptions& /*options*/) {
  if (target.arch < 90) return;
  const CodeContext context = context_of(calls, target);
  ProductGrouper(calls, context).run();
}

bool has_sums(const KernelCall& member, const std::vector<TileProgram>& programs) {
  const auto program = static_cast<size_t>(row_call(member)->programs[0].index);
  return member.outputs.size() > programs[program].outputs.size();
}

CudaProblem product_of(const KernelCall& member, const CodeContext& context) {
  KernelCall product = member;
  if (has_sums(member, context.programs)) product.outputs.pop_back();
  return call_problem(product, context);
}

bool arguments_fit(const KernelCall& group, size_t products, size_t more) {
  return (group.inputs.size() + group.outputs.size() + more) * kPointerBytes + products * 2 * kMapBytes +
             kSizeBytes <=
         kArgumentBytes;
}

}  // namespace aicf
