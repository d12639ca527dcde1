#include "compile/validate.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "base/comma_list.h"
#include "base/error.h"
#include "base/format.h"
#include "base/printable.h"
#include "ir/reference/error_estimate.h"
#include "target/target.h"

namespace aicf {
namespace {

using Arrays = std::map<std::string, Array>;

// Results of calls that one run stores beside the outputs, at most.
constexpr int64_t kMaxTracedBytes = int64_t{1} << 30;

SymbolValues sizes_of(const Executable& exe, const Arrays& inputs) {
  const EntryPlan& entry = exe.entry("");
  std::vector<TensorView> views;
  for (const IoTensor& io : entry.inputs) views.push_back(view_of(inputs.at(io.name)));
  return exe.bind_sizes(entry, views);
}

// The outputs of a run over fresh states, and the states after it as "update:<name>". What no kernel writes
// is not a number, or -1: memory of an earlier run may hold the right one.
Arrays run_once(Executable& exe, const Arrays& inputs) {
  const EntryPlan& entry = exe.entry("");
  const SymbolValues sizes = sizes_of(exe, inputs);
  std::vector<TensorView> given, wanted;
  for (const IoTensor& io : entry.inputs) given.push_back(view_of(inputs.at(io.name)));
  Arrays results;
  for (size_t i = 0; i < entry.outputs.size(); ++i) {
    Array array(entry.outputs[i].dtype, exe.output_sizes(entry, i, sizes));
    if (array.bytes() > 0) std::memset(array.mutable_data(), 0xFF, static_cast<size_t>(array.bytes()));
    wanted.push_back(view_of(array));
    results.emplace(entry.outputs[i].name, std::move(array));
  }
  exe.run_into("", given, wanted);
  for (const auto& [name, array] : exe.states()) results["update:" + name] = array;
  return results;
}

// What the calls of an optimised program give: it is run with their results as outputs, some calls at a time.
class Trace {
 public:
  Trace(const Program& optimised, const ValidateOptions& options, const Arrays& inputs, SymbolValues sizes)
      : program_(optimised),
        graph_(optimised.entries[0]),
        options_(options),
        inputs_(inputs),
        sizes_(std::move(sizes)) {}

  const SymbolValues& sizes() const { return sizes_; }
  // Whether the runs gave the outputs and states that the program as it is gave.
  bool same_outputs() const { return same_outputs_; }

  // Calls check(node, operands, results, kernel) for every node that computes.
  template <typename Check>
  void for_each_call(const Arrays& outputs, Check&& check) {
    const std::vector<Node>& nodes = graph_.nodes();
    size_t first = 0;
    while (first < nodes.size()) {
      std::set<ValueId> wanted;
      size_t last = first;
      for (int64_t bytes = 0; last < nodes.size(); ++last) {
        std::set<ValueId> more = wanted;
        if (calls(nodes[last])) {
          for (const ValueId id : nodes[last].operands) add_source(id, more);
          more.insert(nodes[last].results.begin(), nodes[last].results.end());
        }
        for (const ValueId id : more)
          if (!wanted.contains(id)) bytes += bytes_of(id);
        if (bytes > kMaxTracedBytes && !wanted.empty()) break;
        wanted = std::move(more);
      }
      if (!wanted.empty()) run(wanted, outputs);
      for (; first < last; ++first)
        if (calls(nodes[first])) {
          std::vector<Array> operands, results;
          for (const ValueId id : nodes[first].operands)
            operands.push_back(id == kNoValue ? Array() : value(id));
          for (const ValueId id : nodes[first].results) results.push_back(value(id));
          check(nodes[first], operands, results, kernels_[nodes[first].results[0]]);
        }
    }
  }

 private:
  static bool calls(const Node& node) { return !op_info(node.op).has(kView) && !node.results.empty(); }
  int64_t bytes_of(ValueId id) const {
    int64_t bytes = dtype_bytes(graph_.dtype(id));
    for (const int64_t size : evaluate(graph_.shape(id), sizes_)) bytes *= size;
    return bytes;
  }
  // The results of calls that the value is, or is a view of.
  void add_source(ValueId id, std::set<ValueId>& wanted) const {
    const Node* producer = id == kNoValue ? nullptr : graph_.producer(id);
    if (producer == nullptr) return;
    if (calls(*producer))
      wanted.insert(id);
    else
      for (const ValueId operand : producer->operands) add_source(operand, wanted);
  }
  static std::string traced_name(ValueId id) { return "aicf.traced." + std::to_string(id); }

  void run(const std::set<ValueId>& wanted, const Arrays& outputs) {
    Program traced = program_;
    traced.entries.resize(1);
    traced.buckets.clear();
    std::map<ValueId, std::string> names;
    for (size_t i = 0; i < graph_.outputs().size(); ++i)
      names[graph_.outputs()[i]] = graph_.output_names()[i];
    for (const ValueId id : wanted)
      if (names.try_emplace(id, traced_name(id)).second) traced.entries[0].add_output(id, traced_name(id));
    CompileOptions compiling = options_.compile;
    compiling.after_passes = true;
    compiling.on_stage = nullptr;
    Artifact artifact = compile(traced, compiling);
    find_kernels(artifact.variants.at(0).plan, wanted, names);
    const std::unique_ptr<Executable> exe = options_.load(std::move(artifact));
    const Arrays results = run_once(*exe, inputs_);
    for (const auto& [name, array] : outputs) same_outputs_ = same_outputs_ && results.at(name) == array;
    values_.clear();
    for (const ValueId id : wanted) values_[id] = results.at(names.at(id));
  }

  void find_kernels(const Plan& plan, const std::set<ValueId>& wanted,
                    const std::map<ValueId, std::string>& names) {
    const EntryPlan& entry = plan.entries.at(0);
    std::map<int32_t, const Step*> writers;
    for (const Step& step : entry.steps)
      for (const TensorRef& output : step.outputs) writers[output.buffer] = &step;
    std::map<std::string, int32_t> buffers;
    for (const IoTensor& output : entry.outputs) buffers[output.name] = output.buffer;
    for (const ValueId id : wanted) {
      auto writer = writers.find(buffers.at(names.at(id)));
      // A result that has a buffer of its own already is copied into the output's.
      while (writer != writers.end() && writer->second->origin == "output " + names.at(id) &&
             writers.contains(writer->second->inputs.at(0).buffer))
        writer = writers.find(writer->second->inputs[0].buffer);
      kernels_[id] = writer != writers.end() ? writer->second->kernel : "";
    }
  }

  Array value(ValueId id) {
    const auto at = values_.find(id);
    if (at != values_.end()) return at->second;
    const Value& value = graph_.value(id);
    switch (value.role) {
      case Role::kConstant:
        return value.constant;
      case Role::kInput:
        return inputs_.at(value.name);
      case Role::kParam:
      case Role::kState: {
        const Array& contents = program_.variables.find(value.name)->second.data;
        return contents.data() != nullptr ? contents
                                          : Array(value.type.dtype, evaluate(value.type.shape, sizes_));
      }
      case Role::kTemp:
        break;
    }
    const Node& view = *graph_.producer(id);
    std::vector<Array> operands;
    for (const ValueId operand : view.operands)
      operands.push_back(operand == kNoValue ? Array() : this->value(operand));
    return values_[id] = evaluate_node(graph_, view, operands, sizes_)[static_cast<size_t>(value.result)];
  }

  const Program& program_;
  const Graph& graph_;
  const ValidateOptions& options_;
  const Arrays& inputs_;
  const SymbolValues sizes_;
  std::map<ValueId, Array> values_;
  std::map<ValueId, std::string> kernels_;
  bool same_outputs_ = true;
};

void add_ops(const Graph& graph, std::vector<std::string>& ops, std::string& origin) {
  for (const Node& node : graph.nodes()) {
    if (origin.empty()) origin = node.origin;
    for (const Graph& body : node.bodies) add_ops(body, ops, origin);
    if (node.bodies.empty() && !op_info(node.op).has(kView)) ops.emplace_back(op_info(node.op).name);
  }
}

CallCheck describe(const Node& node, const std::string& kernel, const CompareReport& report) {
  CallCheck call{std::string(op_info(node.op).name), node.origin, kernel, report};
  if (node.op != Op::fused && node.op != Op::call) return call;
  std::vector<std::string> ops;
  for (const Graph& body : node.bodies) add_ops(body, ops, call.origin);
  call.op = comma_list(ops);
  return call;
}

void check_calls(Trace& trace, const Graph& graph, const Arrays& outputs, const ValidateOptions& options,
                 Validation& validation) {
  size_t done = 0;
  trace.for_each_call(outputs, [&](const Node& node, const std::vector<Array>& operands,
                                   const std::vector<Array>& results, const std::string& kernel) {
    const std::vector<Estimate> expected = estimate_node(graph, node, operands, trace.sizes());
    bool failed = false;
    for (size_t k = 0; k < results.size(); ++k) {
      const CompareReport report = compare(results[k], expected[k].value, expected[k].bound);
      validation.undecided += report.undecided;
      if (!report.ok() && !failed) validation.failed_calls.push_back(describe(node, kernel, report));
      failed = failed || !report.ok();
    }
    ++validation.calls;
    if (options.progress) options.progress(++done, graph.nodes().size());
  });
}

double largest_finite_bound(const std::vector<double>& bound) {
  double largest = 0;
  for (const double b : bound)
    if (std::isfinite(b)) largest = std::max(largest, b);
  return largest;
}

const Array& expected_of(const ValidateOptions& options, const std::string& name, const Array& reference) {
  if (!options.expected || name.starts_with("update:")) return reference;
  const auto at = options.expected->find(name);
  if (at == options.expected->end())
    throw UserError(ErrorCode::kU_missing_input, "the reference has no output of this name").with_value(name);
  return at->second;
}

void check_within_tolerances(const Program& program, const EvalInputs& inputs, const Arrays& outputs,
                             const ValidateOptions& options, Validation& validation) {
  Arrays reference = options.expected.value_or(Arrays());
  if (!options.expected) {
    EvalResult result = evaluate(program, program.entries[0], inputs, {false});
    reference = std::move(result.outputs);
    for (auto& [name, array] : result.updated) reference["update:" + name] = std::move(array);
  }
  for (const auto& [name, actual] : outputs) {
    if (name.starts_with("update:") && !reference.contains(name)) continue;
    const Array& expected = expected_of(options, name, reference[name]);
    validation.outputs.push_back(
        {name, compare(actual, expected, options.rtol.value_or(0), options.atol.value_or(0))});
  }
}

// Whether the calls together mean the model: in f64 they are far nearer to it than kernels may be.
bool mean_the_same(const Program& optimised, const EvalInputs& inputs,
                   const std::map<std::string, Estimate>& bounds) {
  constexpr double kPart = 0x1p-4;
  const Arrays outputs = evaluate(optimised, optimised.entries[0], inputs, {false}).outputs;
  for (const auto& [name, array] : outputs) {
    const Estimate& expected = bounds.at(name);
    std::vector<double> part = expected.bound;
    for (double& b : part) b *= kPart;
    if (!compare(array, expected.value, part).ok()) return false;
  }
  return true;
}

void check_within_bounds(const Program& program, const EvalInputs& inputs, const Arrays& outputs,
                         const ValidateOptions& options, Validation& validation) {
  const Program optimised = run_pipeline(program, Target::from_name(options.compile.target),
                                         pipeline_options(options.compile), nullptr);
  const std::map<std::string, Estimate> expected =
      estimate_outputs(program, program.entries[0], optimised, optimised.entries[0], inputs);
  for (const auto& [name, actual] : outputs) {
    const auto at = expected.find(name);
    if (at == expected.end()) continue;  // a state that nothing writes
    validation.outputs.push_back(
        {name, compare(actual, expected_of(options, name, at->second.value), at->second.bound),
         largest_finite_bound(at->second.bound)});
  }
  Trace trace(optimised, options, inputs.inputs, inputs.sizes);
  check_calls(trace, optimised.entries[0], outputs, options, validation);
  if (options.expected || !validation.failed_calls.empty() || !trace.same_outputs()) return;
  if (std::all_of(validation.outputs.begin(), validation.outputs.end(),
                  [](const OutputCheck& o) { return o.ok(); }))
    return;
  if (!mean_the_same(optimised, inputs, expected)) return;
  for (OutputCheck& output : validation.outputs)
    output.explained = !output.report.ok() && output.report.same_sizes;
}

std::string line_of(const OutputCheck& output) {
  std::string text = printable_name(output.name) + ": " + to_string(output.report) + "\n";
  if (output.explained)
    text += printable_name(output.name) +
            ": beyond its bound by errors that the model magnifies: each call is right on its operands\n";
  return text;
}

}  // namespace

bool Validation::passed() const {
  return failed_calls.empty() &&
         std::all_of(outputs.begin(), outputs.end(), [](const OutputCheck& output) { return output.ok(); });
}

Validation validate(const Program& program, Executable& exe, const std::map<std::string, Array>& inputs,
                    const ValidateOptions& options) {
  const EvalInputs given{inputs, sizes_of(exe, inputs)};
  const Arrays outputs = run_once(exe, inputs);
  ValidateOptions here = options;
  here.compile.target = exe.model().variant().target;  // of several, the one that the device runs
  Validation validation;
  if (here.rtol || here.atol)
    check_within_tolerances(program, given, outputs, here, validation);
  else
    check_within_bounds(program, given, outputs, here, validation);
  return validation;
}

std::string to_string(const Validation& validation) {
  std::string text;
  for (const OutputCheck& output : validation.outputs) text += line_of(output);
  for (const CallCheck& call : validation.failed_calls)
    text += "call " + call.op + (call.origin.empty() ? "" : " '" + printable_name(call.origin) + "'") +
            (call.kernel.empty() ? "" : " by " + call.kernel) + ": " + to_string(call.report) + "\n";
  if (validation.calls > 0)
    text += std::to_string(validation.calls) + " calls checked over the operands they had, " +
            std::to_string(validation.failed_calls.size()) + " wrong\n";
  return text + "validate: " + (validation.passed() ? "passed" : "failed") + "\n";
}

}  // namespace aicf
