#include "compile/compile_variant.h"

#include <memory>
#include <set>
#include <utility>

#include "base/dynamic_library.h"
#include "base/log.h"
#include "calls/call_passes.h"
#include "calls/panel_weights.h"
#include "codegen/cuda_build.h"
#include "compile/buckets.h"
#include "compile/stage_clock.h"
#include "ir/text.h"
#include "ir/updates.h"
#include "plan/plan_builder.h"
#include "select/region_codegen.h"
#include "select/select.h"

namespace aicf {
namespace {

// What is compiled for some of the sizes: all of them, or a bucket.
struct Part {
  SymbolRanges bucket;  // empty: all
  Program optimised;
  SelectOptions options = {};
  std::string heading() const { return bucket.empty() ? "" : " for " + to_string(bucket); }
};

// A graph with its kernels: an entry, or a body that control flow runs.
struct Unit {
  const Part* part;
  Graph graph;
  KernelCalls calls;
  std::vector<size_t> bodies;  // units of calls.bodies
  bool is_body = false;
  std::vector<TileProgram> programs = {};  // of calls.regions
  std::vector<StepLaunches> launches = {}, init_launches = {};
  int32_t number = -1;  // of a body, in the plan
};

class VariantCompiler {
 public:
  VariantCompiler(const Program& program, const Target& target, const CompileOptions& options,
                  const Records& records, const CompileResults& results)
      : program_(program),
        target_(target),
        options_(options),
        records_(records),
        results_(results),
        clock_(results.report, options),
        cuda_(target, program.sizes) {}

  // False if it stopped.
  bool begin() {
    run_passes();
    clock_.end();
    if (stops_after("passes", [&] { return passes_text(); })) return false;
    select();
    clock_.end();
    if (stops_after("select", [&] { return select_text(); })) return false;
    build();
    clock_.end();
    return !stops_after("build", [&] { return build_text(); });
  }
  std::vector<CudaUnit> units() { return cuda_.units(launches()); }
  std::optional<Variant> finish(const CompiledUnits& compiled) {
    std::vector<Array> modules = cuda_.modules(compiled.images);
    report_modules(modules, compiled.milliseconds);
    clock_.begin("plan");
    Plan plan = make_plan();
    clock_.end();
    debug_print(3, [&] { return to_string(plan); });
    if (stops_after("plan", [&] { return to_string(plan); })) return std::nullopt;
    return Variant{target_.name, std::move(plan), std::move(modules)};
  }

 private:
  template <typename Text>
  bool stops_after(const std::string& stage, const Text& text) const {
    if (options_.stop_after != stage) return false;
    if (options_.print_stage && options_.on_dump) options_.on_dump(stage, text());
    return true;
  }

  // The same meaning, canonical, grouped into regions; once for all sizes, and for every bucket.
  void run_passes() {
    PipelineOptions pipeline = pipeline_options(options_);
    std::vector<PassRecord>* record = results_.report != nullptr ? &results_.report->passes : nullptr;
    std::vector<BucketProgram> buckets = bucket_programs(program_);
    clock_.begin("passes", 1 + buckets.size());
    parts_.push_back({{}, run_pipeline(program_, target_, pipeline, record)});
    clock_.part_done();
    // What no entry writes may be packed at load; a bucket's program does not hold the other entries.
    updated_ = updated_variables(program_);
    pipeline.updated_elsewhere = updated_;
    for (BucketProgram& bucket : buckets) {
      parts_.push_back({std::move(bucket.bucket), run_pipeline(bucket.program, target_, pipeline, nullptr)});
      clock_.part_done();
    }
  }
  std::string passes_text() const {
    std::string text;
    for (const Part& part : parts_) text += print(part.optimised);
    return text;
  }

  // A kernel for every node, a window for every value.
  void select() {
    size_t entries = 0;
    for (const Part& part : parts_) entries += part.optimised.entries.size();
    clock_.begin("select", entries);
    for (Part& part : parts_) {
      part.options = {part.optimised.sizes, &records_, options_.forced, vendor_libraries_allowed(), updated_};
      for (const Graph& entry : part.optimised.entries) {
        add_units(part, entry, false);
        clock_.part_done();
      }
    }
  }
  // The bodies of a graph come before it.
  size_t add_units(const Part& part, const Graph& graph, bool is_body) {
    Unit unit{&part, graph, select_kernels(graph, target_, part.options), {}, is_body};
    for (const Graph& body : unit.calls.bodies) unit.bodies.push_back(add_units(part, body, true));
    units_.push_back(std::move(unit));
    return units_.size() - 1;
  }
  std::string select_text() const {
    std::string text;
    for (const Unit& unit : units_) text += to_string(unit.calls, unit.graph);
    return text;
  }

  // Code for every region and, for a GPU, the text of every kernel: products take in the regions over their
  // rows, small kernels share launches.
  void build() {
    clock_.begin("build", units_.size());
    for (Unit& unit : units_) {
      unit.programs = generate_tile_programs(unit.calls);
      if (target_.is_cuda() && options_.opt_level > 0) run_call_passes(unit, true);
      for (const KernelCall& call : unit.calls.calls)
        results_.choices.push_back(
            {target_.name, unit.graph.name() + unit.part->heading(), call.origin, call.reason, call.choice});
      clock_.part_done();
    }
    if (!target_.is_cuda()) return;
    if (options_.opt_level > 0 && !options_.skip_passes.contains(kPanelWeights)) store_panels();
    for (Unit& unit : units_) {
      if (options_.opt_level > 0) run_call_passes(unit, false);
      cuda_.set_ranges(unit.part->optimised.sizes);
      unit.launches = cuda_.add(unit.calls, unit.programs);
      unit.init_launches = cuda_.add_init(unit.calls, unit.programs);
    }
  }
  CallPassInput pass_input(Unit& unit) const {
    return {unit.calls, unit.graph, unit.programs, target_, unit.part->options};
  }
  void run_call_passes(Unit& unit, bool joins) const {
    for (const CallPass& pass : call_passes())
      if (pass.joins == joins && !options_.skip_passes.contains(pass.name)) pass.run(pass_input(unit));
  }
  void store_panels() {
    std::vector<CallPassInput> graphs;
    for (Unit& unit : units_) graphs.push_back(pass_input(unit));
    panel_weights(graphs);
  }
  std::string build_text() const {
    std::string text;
    for (const std::string& source : cuda_.sources()) text += source + "\n";
    for (const Unit& unit : units_)
      for (const TileProgram& one : unit.programs) text += to_string(one) + "\n";
    return text;
  }
  std::vector<std::vector<StepLaunches>*> launches() {
    std::vector<std::vector<StepLaunches>*> lists;
    for (Unit& unit : units_) lists.insert(lists.end(), {&unit.launches, &unit.init_launches});
    return lists;
  }
  void report_modules(const std::vector<Array>& modules, const std::vector<double>& milliseconds) {
    std::vector<ModuleRecord> records = module_records(launches(), modules, milliseconds, target_.name);
    for (const ModuleRecord& record : records) debug_print(1, [&] { return to_string(record); });
    if (results_.modules != nullptr)
      results_.modules->insert(results_.modules->end(), records.begin(), records.end());
  }

  // Every byte and step.
  Plan make_plan() {
    PlanBuilder builder(parts_[0].optimised, results_.constants);
    for (Unit& unit : units_) {
      builder.narrow(unit.part->bucket);
      std::vector<int32_t> bodies;
      for (const size_t body : unit.bodies) bodies.push_back(units_[body].number);
      if (unit.is_body)
        unit.number = builder.add_body(unit.graph, unit.calls, unit.programs, unit.launches,
                                       unit.init_launches, bodies);
      else
        builder.add_entry(unit.graph, unit.calls, unit.programs, unit.launches, unit.init_launches, bodies);
    }
    Plan plan = builder.finish();
    check_plan(plan);
    return plan;
  }

  const Program& program_;
  const Target target_;
  const CompileOptions& options_;
  const Records& records_;
  const CompileResults results_;
  StageClock clock_;
  std::vector<Part> parts_;
  std::set<std::string> updated_;  // variables that some entry writes
  std::vector<Unit> units_;
  CudaBuilder cuda_;
};

}  // namespace

std::optional<BegunVariant> begin_variant(const Program& program, const Target& target,
                                          const CompileOptions& options, const Records& records,
                                          const CompileResults& results) {
  const auto compiler = std::make_shared<VariantCompiler>(program, target, options, records, results);
  if (!compiler->begin()) return std::nullopt;
  return BegunVariant{compiler->units(),
                      [compiler](const CompiledUnits& compiled) { return compiler->finish(compiled); }};
}

}  // namespace aicf
