#include "compile/compile.h"

#include <chrono>
#include <optional>
#include <utility>

#include "base/dynamic_library.h"
#include "base/error.h"
#include "base/log.h"
#include "build/bundle_calls.h"
#include "build/cuda_build.h"
#include "build/region_codegen.h"
#include "compile/buckets.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "plan/plan_builder.h"
#include "select/select.h"
#include "select/update_targets.h"

namespace aicf {
namespace {

class StageClock {
 public:
  explicit StageClock(CompileReport* report) : report_(report), last_(std::chrono::steady_clock::now()) {}
  void lap(const std::string& stage) {
    const auto now = std::chrono::steady_clock::now();
    const double milliseconds = std::chrono::duration<double, std::milli>(now - last_).count();
    if (report_ != nullptr) report_->stages.push_back({stage, milliseconds});
    debug_print(1, [&] { return "stage " + stage + ": " + std::to_string(milliseconds) + " ms"; });
    last_ = now;
  }

 private:
  CompileReport* report_;
  std::chrono::steady_clock::time_point last_;
};

void check_options(const CompileOptions& options) {
  if (options.opt_level < 0 || options.opt_level > 2)
    throw UserError(ErrorCode::kU_bad_option, "an optimisation level is out of range")
        .with_value("--opt " + std::to_string(options.opt_level))
        .with_expected("0, 1 or 2");
}

std::vector<TileProgram> build_programs(const KernelCalls& calls) {
  std::vector<TileProgram> code(calls.regions.size());
  for (const auto* list : {&calls.init_calls, &calls.calls})
    for (const KernelCall& call : *list)
      if (call.region >= 0) {
        const auto index = static_cast<size_t>(call.region);
        code[index] = generate_tile_program(calls.regions[index], call.schedule);
        check_tile_program(code[index]);
      }
  return code;
}

Artifact start_artifact(const Program& program, Precision precision) {
  Artifact artifact;
  artifact.program = print(program);
  artifact.metadata = program.metadata;
  if (precision != Precision::kF32) artifact.metadata["aicf.precision"] = precision_name(precision);
  for (const auto& [name, variable] : program.variables)
    if (variable.data.data() != nullptr) artifact.weights.emplace(name, variable.data);
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
    std::string list;
    for (const std::string& name : known) list += (list.empty() ? "" : ", ") + name;
    throw UserError(ErrorCode::kU_bad_option, "a forced choice is no candidate of any step that it names")
        .with_value(forced.where + "=" + forced.candidate)
        .with_expected(list)
        .with_remedy("list the candidates of each step with 'aicf explain'");
  }
}

std::vector<Target> targets_of(const CompileOptions& options) {
  std::vector<Target> targets;
  std::string name;
  for (const char c : options.target + ",") {
    if (c != ',') {
      name += c;
      continue;
    }
    targets.push_back(Target::from_name(std::exchange(name, {})));
  }
  return targets;
}

// What is compiled for some of the sizes: all of them, or a bucket.
struct Part {
  SymbolRanges bucket;  // empty: all
  Program optimised;
  std::string heading() const { return bucket.empty() ? "" : " for " + to_string(bucket); }
};

std::vector<Part> run_passes(const Program& program, const Target& target, const CompileOptions& options,
                             CompileReport* report) {
  const PipelineOptions pipeline = pipeline_options(options);
  std::vector<Part> parts;
  parts.push_back(
      {{}, run_pipeline(program, target, pipeline, report != nullptr ? &report->passes : nullptr)});
  for (BucketProgram& bucket : bucket_programs(program))
    parts.push_back({std::move(bucket.bucket), run_pipeline(bucket.program, target, pipeline, nullptr)});
  return parts;
}

// A graph with its kernels: an entry, or a body that control flow runs.
struct Unit {
  const Part* part;
  Graph graph;
  KernelCalls calls;
  std::vector<size_t> bodies;  // units of calls.bodies
  bool is_body = false;
  std::vector<TileProgram> programs = {};  // of calls.regions
  int32_t number = -1;                     // of a body, in the plan
};

// The bodies of a graph come before it.
size_t add_units(const Part& part, const Graph& graph, bool is_body, const Target& target,
                 const SelectOptions& options, std::vector<Unit>& units) {
  Unit unit{&part, graph, select_kernels(graph, target, options), {}, is_body};
  for (const Graph& body : unit.calls.bodies)
    unit.bodies.push_back(add_units(part, body, true, target, options, units));
  units.push_back(std::move(unit));
  return units.size() - 1;
}

// The flow for one target, from meaning to a plan with code. Null if it stopped after the stage that the
// options name. `constants` collects the contents of constants by name.
std::optional<Variant> compile_variant(const Program& program, const Target& target,
                                       const CompileOptions& options, const Records& records,
                                       std::map<std::string, Array>& constants,
                                       std::vector<ChoiceReport>& choices, CompileReport* report) {
  StageClock clock(report);
  const auto stop = [&](const std::string& stage, const auto& text) {
    if (options.stop_after != stage) return false;
    if (options.print_stage && options.on_dump) options.on_dump(stage, text());
    return true;
  };

  // Passes: the same meaning, canonical, grouped into regions.
  const std::vector<Part> parts = run_passes(program, target, options, report);
  clock.lap("passes");
  if (stop("passes", [&] {
        std::string text;
        for (const Part& part : parts) text += print(part.optimised);
        return text;
      }))
    return std::nullopt;

  // Select: a kernel for every node, a window for every value.
  std::vector<Unit> units;
  for (const Part& part : parts) {
    const SelectOptions select_options{part.optimised.sizes, &records, options.forced,
                                       vendor_libraries_allowed(), updated_variables(part.optimised)};
    for (const Graph& entry : part.optimised.entries)
      add_units(part, entry, false, target, select_options, units);
  }
  for (const Unit& unit : units)
    for (const KernelCall& call : unit.calls.calls)
      choices.push_back(
          {target.name, unit.graph.name() + unit.part->heading(), call.origin, call.reason, call.choice});
  clock.lap("select");
  if (stop("select", [&] {
        std::string text;
        for (const Unit& unit : units) text += to_string(unit.calls, unit.graph);
        return text;
      }))
    return std::nullopt;

  // Build: code for every region, and for a GPU the text of every kernel, compiled.
  // Small kernels share launches.
  for (Unit& unit : units) {
    unit.programs = build_programs(unit.calls);
    if (target.is_cuda() && options.opt_level > 0 && !options.skip_passes.contains(kBundleCalls))
      bundle_calls(unit.calls, unit.programs, target, program.sizes);
  }
  CudaBuilder cuda(target, program.sizes);
  std::vector<std::vector<StepLaunches>> launches(units.size()), init_launches(units.size());
  if (target.is_cuda())
    for (size_t i = 0; i < units.size(); ++i) {
      cuda.set_ranges(units[i].part->optimised.sizes);
      launches[i] = cuda.add(units[i].calls, units[i].programs);
      init_launches[i] = cuda.add_init(units[i].calls, units[i].programs);
    }
  if (stop("build", [&] {
        std::string text;
        for (const std::string& source : cuda.sources()) text += source + "\n";
        for (const Unit& unit : units)
          for (const TileProgram& one : unit.programs) text += to_string(one) + "\n";
        return text;
      }))
    return std::nullopt;
  std::vector<Array> modules = cuda.compile(launches, init_launches);
  clock.lap("build");

  // Plan: every byte and step.
  PlanBuilder builder(parts[0].optimised, constants);
  for (size_t i = 0; i < units.size(); ++i) {
    Unit& unit = units[i];
    builder.narrow(unit.part->bucket);
    std::vector<int32_t> bodies;
    for (size_t body : unit.bodies) bodies.push_back(units[body].number);
    if (unit.is_body) {
      unit.number = builder.add_body(unit.graph, unit.calls, unit.programs, bodies);
    } else {
      builder.add_entry(unit.graph, unit.calls, unit.programs, launches[i], init_launches[i], bodies);
    }
  }
  Plan plan = builder.finish();
  check_plan(plan);
  clock.lap("plan");
  debug_print(3, [&] { return to_string(plan); });
  if (stop("plan", [&] { return to_string(plan); })) return std::nullopt;
  return Variant{target.name, std::move(plan), std::move(modules)};
}

}  // namespace

PipelineOptions pipeline_options(const CompileOptions& options) {
  PipelineOptions pipeline;
  pipeline.opt_level = options.opt_level;
  pipeline.precision = options.precision;
  pipeline.skip = options.skip_passes;
  pipeline.skip.erase(kBundleCalls);
  pipeline.dump_after = options.dump_after;
  pipeline.dump = [&options](const std::string& pass, const Graph& graph) {
    if (options.on_dump) options.on_dump(pass, print(graph));
  };
  return pipeline;
}

Artifact compile(const Program& program, const CompileOptions& options, CompileReport* report) {
  check_options(options);
  verify(program, Fault::kUser);
  Artifact artifact = start_artifact(program, options.precision);
  const Records records = load_records(options.records);
  std::vector<ChoiceReport> choices;
  for (const Target& target : targets_of(options)) {
    const bool first = artifact.variants.empty();
    auto variant = compile_variant(program, target, options, records, artifact.constants, choices,
                                   first ? report : nullptr);
    if (!variant) return artifact;
    artifact.variants.push_back(std::move(*variant));
  }
  check_forced(options, choices);
  if (report != nullptr) report->choices = std::move(choices);
  return artifact;
}

}  // namespace aicf
