// What forms of calls rules look for.
#pragma once

#include <algorithm>
#include <string>

#include "calls/call_windows.h"
#include "calls/joined_program.h"
#include "kernels/common/cuda_kernel.h"
#include "select/call_program.h"

namespace aicf {

inline constexpr size_t kIndices = 1;  // among the inputs of gathers and scatters

// Whether a row of this form runs.
inline bool is_form(const KernelCall& call, JoinForm form) {
  const RowCall* row = row_call(call);
  return row != nullptr && facts_of(row->row).join_form == form;
}

// A region by itself whose elements depend on nothing else.
inline bool is_pointwise_region(const KernelCall& call, const CallGraph& graph) {
  return is_region(call) && has_elements_alone(graph.program_of(call));
}
// That reads this window, and nothing else of the same value.
inline bool is_region_that_reads(const KernelCall& call, const Window& result) {
  return is_region(call) && count_root(call.inputs, result.root) == 1 &&
         std::find(call.inputs.begin(), call.inputs.end(), result) != call.inputs.end();
}

// A product on tensor cores, with the program of its epilogue.
inline bool is_product(const KernelCall& call) {
  return is_form(call, JoinForm::kProduct) && has_program(call, ProgramRole::kEpilogue);
}
// One that tensor cores could run, too, with an epilogue of one stage.
inline bool is_joinable_product(const KernelCall& call, const CallGraph& graph) {
  const auto& ways = call.choice.candidates;
  const bool has_tensor_cores = std::any_of(ways.begin(), ways.end(), [](const Candidate& way) {
    return facts_of(way.kernel).join_form == JoinForm::kProduct;
  });
  return has_tensor_cores && row_call(call) != nullptr && has_program(call, ProgramRole::kEpilogue) &&
         graph.program_of(call).stages.size() == 1;
}
// Such a product whose results, element by element, depend on nothing else of the result.
inline bool is_pointwise_product(const KernelCall& call, const CallGraph& graph) {
  return is_joinable_product(call, graph) && has_elements_alone(graph.program_of(call));
}
// Whose kernel neither a record nor the caller has chosen.
inline bool is_open(const KernelCall& call) { return call.choice.source == ChoiceSource::kRank; }

inline bool has_way(const std::vector<KernelVariant>& ways, const Way& own) {
  return std::any_of(ways.begin(), ways.end(), [&](const KernelVariant& way) { return way.way == own; });
}

}  // namespace aicf
