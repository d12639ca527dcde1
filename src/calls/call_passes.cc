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
