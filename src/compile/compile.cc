#include "compile/compile.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/comma_list.h"
#include "base/error.h"
#include "base/option_text.h"
#include "calls/rules.h"
#include "codegen/code_cache.h"
#include "compile/compile_variant.h"
#include "compile/stage_clock.h"
#include "ir/range_fit.h"
#include "ir/text.h"
#include "ir/verify.h"

namespace aicf {
namespace {

void check_options(const CompileOptions& options) {
  if (options.opt_level < 0 || options.opt_level > 2)
    throw UserError(ErrorCode::kU_bad_option, "an optimisation level is out of range")
        .with_value(option_text(Option::kOptLevel, std::to_string(options.opt_level)))
        .with_expected("0, 1 or 2");
}

Artifact start_artifact(const Program& program, Precision precision) {
  Artifact artifact;
  artifact.program = print(program);
  artifact.metadata = program.metadata;
  if (precision != Precision::kF32) artifact.metadata["aicf.precision"] = precision_name(precision);
  artifact.weights = weights_of(program);
  return artifact;
}

// Every forced choice was taken somewhere.
void check_forced(const CompileOptions& options, const std::vector<ChoiceReport>& choices) {
  for (const ForcedChoice& forced : options.forced) {
    bool taken = false;
    std::set<std::string> known;
    for (const ChoiceReport& report : choices) {
      const Choice& choice = report.choice;
      for (size_t i = 0; i < choice.candidates.size(); ++i) {
        const Candidate& candidate = choice.candidates[i];
        known.insert(to_string(candidate));
        taken = taken || (choice.source == ChoiceSource::kForced && i == choice.chosen &&
                          (candidate.kernel == forced.candidate || to_string(candidate) == forced.candidate));
      }
    }
    if (taken) continue;
    throw UserError(ErrorCode::kU_bad_option, "a forced choice is no candidate of any step that it names")
        .with_value(forced.where + "=" + forced.candidate)
        .with_expected(comma_list(known))
        .with_remedy("list the candidates of each step with 'aicf explain'");
  }
}

CompileOptions with_current_names(CompileOptions options) {
  for (ForcedChoice& forced : options.forced) forced.candidate = current_name(forced.candidate);
  return options;
}

std::vector<Target> targets_of(const CompileOptions& options) {
  std::vector<Target> targets;
  std::set<std::string> names;
  std::string name;
  for (const char c : options.target + ",") {
    if (c != ',') {
      name += c;
      continue;
    }
    targets.push_back(Target::from_name(name));
    if (!names.insert(std::exchange(name, {})).second)
      throw UserError(ErrorCode::kU_bad_option, "a target is named twice")
          .with_value(option_text(Option::kTarget, options.target))
          .with_expected("each target once");
  }
  return targets;
}

// Machine code of all variants' units, side by side.
std::vector<CompiledUnits> compile_units(const std::vector<BegunVariant>& variants,
                                         const CompileOptions& options, CompileReport* report) {
  std::vector<CudaUnit> units;
  for (const BegunVariant& variant : variants)
    units.insert(units.end(), variant.units.begin(), variant.units.end());
  std::vector<CompiledUnits> result(variants.size());
  if (units.empty()) return result;
  StageClock clock(report, options);
  clock.begin("build", units.size());
  std::vector<double> milliseconds;
  const auto on_done = [&](size_t done, size_t count) { clock.parts_done(units.size() - count + done); };
  std::vector<std::string> images = compile_cached(units, &milliseconds, {options.meanwhile, on_done});
  clock.end("modules");
  size_t next = 0;
  for (size_t i = 0; i < variants.size(); ++i)
    for (size_t unit = 0; unit < variants[i].units.size(); ++unit, ++next) {
      result[i].images.push_back(std::move(images[next]));
      result[i].milliseconds.push_back(milliseconds[next]);
    }
  return result;
}

}  // namespace

std::string to_string(const StageProgress& at) {
  std::string text(at.stage);
  if (at.total > 1)
    text += " " + std::to_string(std::min(at.done + 1, at.total)) + " of " + std::to_string(at.total);
  return text;
}

double fraction_done(const StageProgress& at) {
  const auto stage = std::find(std::begin(kStages), std::end(kStages), at.stage) - std::begin(kStages);
  const double part = static_cast<double>(at.done) / static_cast<double>(std::max<size_t>(at.total, 1));
  return (static_cast<double>(stage - 1) + part) / static_cast<double>(std::size(kStages) - 2);
}

PipelineOptions pipeline_options(const CompileOptions& options) {
  PipelineOptions pipeline;
  pipeline.opt_level = options.opt_level;
  pipeline.precision = options.precision;
  pipeline.skip = options.skip_passes;
  pipeline.later_passes = optional_call_rules();
  pipeline.dump_after = options.dump_after;
  pipeline.dump = [&options](const std::string& pass, const Graph& graph) {
    if (options.on_dump) options.on_dump(pass, print(graph));
  };
  return pipeline;
}

std::map<std::string, Array> weights_of(const Program& program) {
  std::map<std::string, Array> weights;
  for (const auto& [name, variable] : program.variables)
    if (variable.data.data() != nullptr) weights.emplace(name, variable.data);
  return weights;
}

void require_param_contents(const Program& program, const std::string& remedy) {
  constexpr size_t kMostNames = 8;
  std::vector<std::string> missing;
  for (const auto& [name, variable] : program.variables)
    if (variable.role == Role::kParam && variable.data.data() == nullptr &&
        element_count(variable.type.shape) != Dim(0))
      missing.push_back(name);
  if (missing.empty()) return;
  const size_t count = missing.size();
  missing.resize(std::min(count, kMostNames));
  throw UserError(ErrorCode::kU_unknown_param, "params of the program have no values")
      .with_value(comma_list(missing) +
                  (count > kMostNames ? " and " + std::to_string(count - kMostNames) + " more" : ""))
      .with_expected("values of every param")
      .with_actual(std::to_string(count) + " without")
      .with_remedy(remedy);
}

Artifact compile(const Program& program, const CompileOptions& asked, CompileReport* report) {
  const CompileOptions options = with_current_names(asked);
  check_options(options);
  verify(program, Fault::kUser);
  check_range_fit(program);
  Artifact artifact = start_artifact(program, options.precision);
  const Records records = load_records(options.records);
  std::vector<ChoiceReport> choices;
  std::vector<BegunVariant> begun;
  for (const Target& target : targets_of(options)) {
    auto variant = begin_variant(
        program, target, options, records,
        {artifact.constants, choices, begun.empty() ? report : nullptr,
         report != nullptr ? &report->modules : nullptr, report != nullptr ? &report->calls : nullptr});
    if (!variant) return artifact;
    begun.push_back(std::move(*variant));
  }
  const std::vector<CompiledUnits> compiled = compile_units(begun, options, report);
  for (size_t i = 0; i < begun.size(); ++i) {
    auto variant = begun[i].finish(compiled[i]);
    if (!variant) return artifact;
    artifact.variants.push_back(std::move(*variant));
  }
  check_forced(options, choices);
  if (report != nullptr) report->choices = std::move(choices);
  return artifact;
}

}  // namespace aicf
