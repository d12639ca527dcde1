#include "calls/call_passes.h"

#include "calls/bundle_calls.h"
#include "calls/group_products.h"
#include "calls/join_attention.h"
#include "calls/join_gathers.h"
#include "calls/join_inputs.h"
#include "calls/join_pairs.h"
#include "calls/join_rows.h"
#include "calls/join_scatters.h"
#include "calls/join_sums.h"
#include "calls/join_updates.h"
#include "calls/panel_weights.h"
#include "calls/verify_calls.h"

namespace aicf {

const std::vector<CallPass>& call_passes() {
  static const std::vector<CallPass> passes = {
      {kJoinAttention, true, join_attention},
      {kJoinRows, true, join_rows},
      {kJoinInputs, true, join_inputs},
      // After few rows, whose gate costs nothing where the next product makes it.
      {kJoinPairs, true, join_pairs},
      {kJoinGathers, true, join_gathers},
      {kJoinScatters, true, join_scatters},
      {kGroupProducts, true, group_products},
      {kJoinUpdates, true, join_updates},
      // After the updates, which give members other results; sums are known as results beyond the program's.
      {kJoinSums, true, join_sums},
      {kBundleCalls, false, bundle_calls},
  };
  return passes;
}

std::vector<std::string> call_pass_names() {
  std::vector<std::string> names;
  for (const CallPass& pass : call_passes()) names.emplace_back(pass.name);
  names.emplace_back(kPanelWeights);
  return names;
}

void run_call_passes(CallProgram& program, const SelectOptions& options, const std::set<std::string>& skip,
                     const std::function<void(const CallGraph&)>& joined) {
  const auto run = [&](CallGraph& calls, bool joins) {
    for (const CallPass& pass : call_passes()) {
      if (pass.joins != joins || skip.contains(pass.name)) continue;
      pass.run(calls, program.target, options);
      verify(calls, pass.name);
    }
  };
  for (CallGraph& calls : program.graphs) {
    run(calls, true);
    joined(calls);
  }
  if (!skip.contains(kPanelWeights)) {
    panel_weights(program);
    verify(program, kPanelWeights);
  }
  for (CallGraph& calls : program.graphs) run(calls, false);
#ifndef NDEBUG
  verify_ways(program);
#endif
}

}  // namespace aicf
