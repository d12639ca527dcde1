#include "calls/joined_choice.h"

#include <algorithm>

#include "base/format.h"
#include "calls/row_names.h"

namespace aicf {

bool take_variant(KernelCall& joined, const std::vector<KernelVariant>& variants, double apart,
                  const char* what, const SelectOptions& options) {
  RowCall& row = *row_call(joined);
  Choice& choice = joined.choice;
  for (const KernelVariant& variant : variants)
    choice.candidates.push_back({row.row, variant.way, variant.microseconds});
  const auto want = [&](const std::string& name, ChoiceSource source) {
    for (size_t i = choice.candidates.size(); i-- > 0;)
      if (name == row.row || name == to_string(choice.candidates[i]))
        choice.chosen = i, choice.source = source;
  };
  if (const auto recorded = recorded_join(choice.key, row.row, options))
    want(*recorded, ChoiceSource::kRecord);
  for (const ForcedChoice& forced : options.forced)
    if (is_meant(forced, joined, "matmul")) want(forced.candidate, ChoiceSource::kForced);
  const Candidate& chosen = choice.candidates[choice.chosen];
  row.way = chosen.way;
  joined.reason = joined_reason(choice.source) + what + " in one kernel, estimated " +
                  format_fixed(chosen.microseconds, 1) + " us, apart " + format_fixed(apart, 1) + " us";
  return choice.source != ChoiceSource::kRank || chosen.microseconds < apart;
}

bool is_open_product(const KernelCall& call, const CallGraph& calls) {
  const std::vector<Candidate>& ways = call.choice.candidates;
  const bool has_tensor_cores = std::any_of(
      ways.begin(), ways.end(), [](const Candidate& way) { return way.kernel == kTensorCoreProduct; });
  return has_tensor_cores && row_call(call) != nullptr && call.choice.source == ChoiceSource::kRank &&
         has_program(call, ProgramRole::kEpilogue) && calls.program_of(call).stages.size() == 1;
}

}  // namespace aicf
