// The flow for one target, from meaning to a plan with code, in stages: passes, select, calls, build,
// modules, which all targets share, plan.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "codegen/nvrtc.h"
#include "compile/compile.h"

namespace aicf {

// What compiling for a target adds to beside its variant.
struct CompileResults {
  std::map<std::string, Array>& constants;  // contents by name, shared by the variants
  std::vector<ChoiceReport>& choices;
  CompileReport* report;               // passes and times; null: not wanted
  std::vector<ModuleRecord>* modules;  // those of the variant are added; null: not wanted
  std::vector<CallReport>* calls;      // likewise
};

// What became of a variant's units.
struct CompiledUnits {
  std::vector<std::string> images;
  std::vector<double> milliseconds;
};

// A variant but for its machine code: what is to be compiled, together with that of other variants, and what
// makes the variant of it, null as below.
struct BegunVariant {
  std::vector<CudaUnit> units;
  std::function<std::optional<Variant>(const CompiledUnits&)> finish;
};

// Null if it stopped after the stage that the options name.
std::optional<BegunVariant> begin_variant(const Program& program, const Target& target,
                                          const CompileOptions& options, const Records& records,
                                          const CompileResults& results);

}  // namespace aicf
