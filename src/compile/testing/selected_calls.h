// The calls of a program's first entry as selection leaves them: what the passes over calls begin with.
#pragma once

#include <utility>
#include <vector>

#include "ir/updates.h"
#include "passes/pass.h"
#include "select/region_codegen.h"
#include "select/select.h"

namespace aicf::testing {

struct SelectedCalls {
  Target target;
  Program optimised;
  SelectOptions options;
  KernelCalls calls;
  std::vector<TileProgram> programs;

  const Graph& graph() const { return optimised.entries[0]; }
};

inline SelectedCalls select_calls(const Program& program, const char* target,
                                  std::vector<ForcedChoice> forced = {}, const Records* records = nullptr) {
  SelectedCalls s{Target::from_name(target), {}, {}, {}, {}};
  s.optimised = run_pipeline(program, s.target, {}, nullptr);
  s.options.ranges = s.optimised.sizes;
  s.options.updated = updated_variables(s.optimised);
  s.options.forced = std::move(forced);
  s.options.records = records;
  s.calls = select_kernels(s.graph(), s.target, s.options);
  s.programs = generate_tile_programs(s.calls);
  return s;
}

}  // namespace aicf::testing
