// The whole flow: a Program becomes an Artifact with a variant for every target. VariantCompiler::begin and
// finish of compile_variant.cc are the table of contents of the compiler.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "artifact/artifact.h"
#include "calls/rule_site.h"
#include "codegen/cuda_build.h"
#include "ir/graph.h"
#include "passes/pass.h"
#include "select/choose.h"

namespace aicf {

// In order. The first and the last are the caller's, who imports and writes.
inline constexpr std::string_view kStages[] = {"import", "passes", "select",  "calls",
                                               "build",  "plan",   "artifact"};

// Where a compilation is: a stage of kStages, of whose parts (entries, buckets, graphs, units of machine
// code) so many are done.
struct StageProgress {
  std::string_view stage;
  size_t done = 0, total = 1;
};
std::string to_string(const StageProgress& at);  // "passes", "build 3 of 7"
// Of the stages that compile() goes through, 0 to 1; a further target begins again.
double fraction_done(const StageProgress& at);

struct CompileOptions {
  // One or several, by comma: a variant for each, passes and stages reported for the first,
  // modules for all.
  std::string target = "cpu";
  int opt_level = 2;
  Precision precision = Precision::kF32;  // of all targets
  std::set<std::string> skip_passes;
  std::set<std::string> dump_after;
  std::string stop_after;    // one of kStages; "": none
  bool print_stage = false;  // dump the stage given by stop_after
  // Gets the stages and passes asked for.
  std::function<void(const std::string& stage, const std::string& text)> on_dump;
  // Told in the thread that compiles: at the start of each stage but the first and the last, and within it as
  // parts are done. What it throws ends the compilation.
  std::function<void(const StageProgress& at)> on_stage;
  // Files of tuning records, over the shipped ones and those of AICF_CACHE_DIR; {"none"}: no records at all.
  std::vector<std::string> records;
  std::vector<ForcedChoice> forced;
  // Runs at most once, on a thread of its own, while machine code is compiled, if any is: for what else the
  // caller has to wait for. Must not throw.
  std::function<void()> meanwhile;
  // The program is what run_pipeline() gave for the target: only the stages after the passes run.
  bool after_passes = false;
};

// What of the options the passes see.
PipelineOptions pipeline_options(const CompileOptions& options);

// "modules" is that of all targets, whose machine code is made side by side; the others are the first one's.
struct StageTime {
  std::string stage;
  double milliseconds;
};

// A step of the plan with what it was chosen from.
struct ChoiceReport {
  std::string target, entry, origin, reason;
  Choice choice;
};

struct CompileReport {
  std::vector<PassRecord> passes;
  std::vector<StageTime> stages;
  std::vector<ModuleRecord> modules;  // of all targets that are GPUs
  std::vector<ChoiceReport> choices;  // of all targets, in the order of the steps
  // What each rule over calls took, and what it refused although it nearly fitted, with the reason; of all
  // targets, in the order of the rules.
  std::vector<CallReport> calls;
};

// Params and states with contents, which compiling leaves as they are.
std::map<std::string, Array> weights_of(const Program& program);

// unknown_param that names the params without contents, if there are any: what is compiled of such a program
// can neither run nor be given them. `remedy` says how the caller's language gives them. States begin as
// zeros.
void require_param_contents(const Program& program, const std::string& remedy);

// Errors: bad_option, no_kernel, unset_size (a size without a range, all
// listed), and those of the passes. With stop_after the artifact has no variant.
Artifact compile(const Program& program, const CompileOptions& options = {}, CompileReport* report = nullptr);

}  // namespace aicf
