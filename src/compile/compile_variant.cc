#include "compile/compile_variant.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "base/dynamic_library.h"
#include "base/log.h"
#include "calls/rules.h"
#include "calls/verify_calls.h"
#include "codegen/cuda_build.h"
#include "compile/buckets.h"
#include "compile/stage_clock.h"
#include "ir/text.h"
#include "ir/updates.h"
#include "plan/plan_builder.h"
#include "select/select.h"

namespace aicf {
namespace {

// What is compiled for some of the sizes: all of them, or a bucket.
struct SizedProgram {
  SymbolRanges bucket;  // empty: all
  Program optimised;
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
        calls_{target, {}},
        cuda_(target) {}

  // False if it stopped.
  bool begin() {
    run_passes();
    clock_.end();
    if (stops_after("passes", [&] { return passes_text(); })) return false;
    select();
    clock_.end();
    if (stops_after("select", [&] { return to_string(calls_); })) return false;
    rewrite_calls();
    clock_.end();
    if (stops_after("calls", [&] { return to_string(calls_); })) return false;
    build();
    clock_.end();
    return !stops_after("build", [&] { return build_text(); });
  }
  std::vector<CudaUnit> units() { return cuda_.units(graphs()); }
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
    if (options_.after_passes) {
      clock_.begin("passes");
      parts_.push_back({{}, program_});
      updated_ = updated_variables(program_);
      return;
    }
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
    for (const SizedProgram& part : parts_) text += print(part.optimised);
    return text;
  }

  // A kernel for every node, a window for every value, a program for every region.
  void select() {
    size_t entries = 0;
    for (const SizedProgram& part : parts_) entries += part.optimised.entries.size();
    clock_.begin("select", entries);
    for (const SizedProgram& part : parts_) {
      const SelectOptions options = {part.optimised.sizes, &records_, options_.forced,
                                     vendor_libraries_allowed(), updated_};
      const size_t first = calls_.graphs.size();
      for (const Graph& entry : part.optimised.entries) {
        select_graph(calls_, entry, options);
        clock_.part_done();
      }
      for (size_t i = first; i < calls_.graphs.size(); ++i) calls_.graphs[i].bucket = part.bucket;
    }
    verify(calls_, "select");
  }

  // The rules over calls: call_rules.def is their table.
  void rewrite_calls() {
    clock_.begin("calls", calls_.graphs.size());
    const SelectOptions select = {{}, &records_, options_.forced, vendor_libraries_allowed(), updated_};
    RuleOptions rules{.select = select,
                      .optional = options_.opt_level > 0,
                      .skip = options_.skip_passes,
                      .on_choices = [&](const CallGraph& graph) { report_choices(graph); }};
    if (results_.calls != nullptr)
      rules.on_report = [&](const CallGraph& graph, CallReport report) {
        report.target = target_.name;
        report.entry = entry_name(graph);
        results_.calls->push_back(std::move(report));
      };
    run_call_rules(calls_, rules);
  }
  static std::string entry_name(const CallGraph& graph) {
    return graph.graph.name() + (graph.bucket.empty() ? "" : " for " + to_string(graph.bucket));
  }
  void report_choices(const CallGraph& graph) {
    for (const KernelCall& call : graph.calls)
      results_.choices.push_back(
          {target_.name, entry_name(graph), origin_text(call), call.reason, call.choice});
    clock_.part_done();
  }

  // For a GPU, the text of every kernel.
  void build() {
    clock_.begin("build", calls_.graphs.size());
    code_.resize(calls_.graphs.size());
    if (!target_.is_cuda()) return;
    for (size_t i = 0; i < code_.size(); ++i) {
      code_[i] = cuda_.add(calls_.graphs[i]);
      clock_.part_done();
    }
  }
  std::string build_text() const {
    std::string text;
    for (const std::string& source : cuda_.sources()) text += source + "\n";
    for (const CallGraph& graph : calls_.graphs)
      for (const TileProgram& one : graph.programs) text += to_string(one) + "\n";
    return text;
  }
  std::vector<CodedGraph*> graphs() {
    std::vector<CodedGraph*> all;
    for (CodedGraph& graph : code_) all.push_back(&graph);
    return all;
  }
  void report_modules(const std::vector<Array>& modules, const std::vector<double>& milliseconds) {
    std::vector<ModuleRecord> records = module_records(graphs(), modules, milliseconds, target_.name);
    for (const ModuleRecord& record : records) debug_print(1, [&] { return to_string(record); });
    if (results_.modules != nullptr)
      results_.modules->insert(results_.modules->end(), records.begin(), records.end());
  }

  // Every byte and step.
  Plan make_plan() {
    PlanBuilder builder(parts_[0].optimised, results_.constants);
    for (size_t i = 0; i < code_.size(); ++i) builder.add(calls_.graphs[i], code_[i]);
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
  std::vector<SizedProgram> parts_;
  std::set<std::string> updated_;  // variables that some entry writes
  CallProgram calls_;
  std::vector<CodedGraph> code_;  // of the graphs of calls_
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
