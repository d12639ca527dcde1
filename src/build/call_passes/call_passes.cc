#include "build/call_passes/call_passes.h"

#include "build/call_passes/bundle_calls.h"
#include "build/call_passes/group_products.h"
#include "build/call_passes/join_attention.h"
#include "build/call_passes/join_gathers.h"
#include "build/call_passes/join_inputs.h"
#include "build/call_passes/join_pairs.h"
#include "build/call_passes/join_rows.h"
#include "build/call_passes/join_scatters.h"
#include "build/call_passes/join_sums.h"
#include "build/call_passes/join_updates.h"

namespace aicf {

const std::vector<CallPass>& call_passes() {
  static const std::vector<CallPass> passes = {
      {kJoinAttention, true,
       [](const CallPassInput& in) {
         join_attention(in.calls, in.graph, in.programs, in.target, in.options);
       }},
      {kJoinRows, true,
       [](const CallPassInput& in) { join_rows(in.calls, in.graph, in.programs, in.target, in.options); }},
      {kJoinInputs, true,
       [](const CallPassInput& in) {
         join_inputs(in.calls, in.graph, in.programs, in.target, in.options.ranges);
       }},
      // After few rows, whose gate costs nothing where the next product makes it.
      {kJoinPairs, true,
       [](const CallPassInput& in) { join_pairs(in.calls, in.graph, in.programs, in.target, in.options); }},
      {kJoinGathers, true, [](const CallPassInput& in) { join_gathers(in.calls, in.graph, in.programs); }},
      {kJoinScatters, true, [](const CallPassInput& in) { join_scatters(in.calls, in.graph, in.programs); }},
      {kGroupProducts, true,
       [](const CallPassInput& in) {
         group_products(in.calls, in.graph, in.programs, in.target, in.options.ranges);
       }},
      {kJoinUpdates, true,
       [](const CallPassInput& in) {
         join_updates(in.calls, in.graph, in.programs, in.target, in.options.ranges);
       }},
      // After the updates, which give members other results; sums are known as results beyond the program's.
      {kJoinSums, true,
       [](const CallPassInput& in) { join_sums(in.calls, in.programs, in.target, in.options.ranges); }},
      {kBundleCalls, false,
       [](const CallPassInput& in) { bundle_calls(in.calls, in.programs, in.target, in.options.ranges); }},
  };
  return passes;
}

}  // namespace aicf
