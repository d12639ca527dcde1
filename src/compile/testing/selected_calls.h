// The calls of a program's first entry as selection leaves them: what the passes over calls begin with.
#pragma once

#include <utility>
#include <vector>

#include "ir/updates.h"
#include "passes/pass.h"
#include "select/select.h"

namespace aicf::testing {

struct SelectedCalls {
  Target target;
  Program optimised;
  SelectOptions options;
  CallGraph calls;
};

inline SelectedCalls select_calls(const Program& program, const char* target,
                                  std::vector<ForcedChoice> forced = {}, const Records* records = nullptr) {
  SelectedCalls s{Target::from_name(target), {}, {}, CallGraph()};
  s.optimised = run_pipeline(program, s.target, {}, nullptr);
  s.options.ranges = s.optimised.sizes;
  s.options.updated = updated_variables(s.optimised);
  s.options.forced = std::move(forced);
  s.options.records = records;
  s.calls = select_kernels(s.optimised.entries[0], s.target, s.options);
  return s;
}

}  // namespace aicf::testing
