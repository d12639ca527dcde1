// The flow for one target, from meaning to a plan with code, in stages: passes, select, build, plan.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compile/compile.h"

namespace aicf {

// What compiling for a target adds to beside its variant.
struct CompileResults {
  std::map<std::string, Array>& constants;  // contents by name, shared by the variants
  std::vector<ChoiceReport>& choices;
  CompileReport* report;  // passes and times; null: not wanted
};

// Null if it stopped after the stage that the options name.
std::optional<Variant> compile_variant(const Program& program, const Target& target,
                                       const CompileOptions& options, const Records& records,
                                       const CompileResults& results);

}  // namespace aicf
