#include <algorithm>
#include <cmath>
#include <optional>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/format.h"
#include "base/npy.h"
#include "base/printable.h"
#include "ir/reference/compare.h"
#include "ir/reference/evaluator.h"
#include "ir/text.h"
#include "model_source.h"
#include "npz.h"
#include "passes/pass.h"
#include "peer.h"
#include "reduce.h"
#include "runtime/cpu/cpu_device.h"
#include "verbs.h"

namespace aicf::cli {
namespace {

struct ValidateArgs : ReplayOptions {
  std::string inputs_file, against = "reference", reduce;
  std::optional<double> rtol, atol;
};

using Arrays = std::map<std::string, Array>;

Arrays evaluated(const Program& program, const Arrays& inputs, bool round_to_dtype) {
  return evaluate(program, program.entries[0], {inputs, {}}, {round_to_dtype}).outputs;
}

// How far from f64 each output may be for the precision alone: twice as far as the reference is once it
// rounds what the precision rounds. What rounded logits do to a softmax no constant says. Empty in f32.
std::map<std::string, double> precision_costs(const ValidateArgs& options, const Program& program,
                                              const Arrays& inputs) {
  std::map<std::string, double> costs;
  const CompileOptions compiling = options.source.compile_options(options.run.device);
  if (compiling.precision == Precision::kF32 || options.atol) return costs;
  const Program rounded =
      run_pipeline(program, Target::from_name("cpu"), pipeline_options(compiling), nullptr);
  const Arrays expected = evaluated(program, inputs, false);
  for (const auto& [name, array] : evaluated(rounded, inputs, true))
    costs[name] = 2 * compare(array, expected.at(name), 0, 0).max_abs_error;
  return costs;
}

// What is not given fits the dtype of the output: 1e-4 and 1e-5, in half types some of their last places.
CompareReport compare(const ValidateArgs& options, const Array& actual, const Array& expected, double cost) {
  const double place = actual.dtype() == DType::f16 ? 0x1p-10 : actual.dtype() == DType::bf16 ? 0x1p-7 : 0;
  return compare(actual, expected, options.rtol.value_or(std::max(1e-4, 8 * place)),
                 options.atol.value_or(std::max(1e-5, place) + cost));
}

double cost_of(const std::map<std::string, double>& costs, const std::string& output) {
  const auto at = costs.find(output);
  return at == costs.end() ? 0 : at->second;
}

void check_tolerance(const char* name, const std::optional<double>& value) {
  if (!value || (*value >= 0 && std::isfinite(*value))) return;
  throw UserError(ErrorCode::kU_bad_option, "a tolerance is not accepted")
      .with_value(std::string(name) + " " + std::to_string(*value))
      .with_expected("a number >= 0");
}

Arrays expected_outputs(const ValidateArgs& options, const Program& program, const Arrays& inputs) {
  if (options.against == "reference") return evaluated(program, inputs, false);
  if (options.against.ends_with(".npz")) return read_npz(options.against);
  if (options.against == "onnxruntime")
    return Peer(options.against, options.source.path, inputs, choose_threads(options.run.threads)).outputs();
  throw UserError(ErrorCode::kU_bad_option, "outputs cannot be compared with this")
      .with_value("--against " + options.against)
      .with_expected("reference, onnxruntime or a .npz file");
}

// "" if the part agrees with the reference, else how it fails.
std::string judge(const ValidateArgs& options, const std::string& model, const Arrays& inputs) {
  const Program program = import_onnx_bytes(model);
  try {
    const std::unique_ptr<Executable> exe =
        options.run.load(compile(program, options.source.compile_options("cpu", false)));
    const Arrays outputs = exe->run("", inputs), expected = evaluated(program, inputs, false);
    const std::map<std::string, double> costs = precision_costs(options, program, inputs);
    for (const auto& [name, actual] : outputs)
      if (!compare(options, actual, expected.at(name), cost_of(costs, name)).ok()) return "mismatch";
  } catch (const Error& error) {
    return std::string(error_info(error.code).text);
  }
  return "";
}

std::string reduced_input(const ValidateArgs& options, size_t number) {
  return options.reduce + "." + std::to_string(number) + ".npy";
}

int reduce(const ValidateArgs& options, const Arrays& inputs, const Console& console) {
  if (options.against != "reference")
    throw UserError(ErrorCode::kU_unsupported_option, "parts of a model can be judged by the reference only")
        .with_value("--reduce with --against " + options.against)
        .with_expected("--against reference");
  std::vector<std::string> read = options.inputs.files();
  if (!options.inputs_file.empty()) read.push_back(options.inputs_file);
  options.source.refuse_overwriting(options.reduce, read);
  const Reduction reduction = reduce_model(
      options.source.path, inputs,
      [&](const std::string& model, const Arrays& given) { return judge(options, model, given); },
      [&](size_t left, size_t of) {
        console.progress("nodes left", static_cast<int64_t>(left), static_cast<int64_t>(of));
      });
  for (size_t i = 0; i < reduction.inputs.size(); ++i)
    options.source.refuse_overwriting(reduced_input(options, i), read);
  write_file_atomically(options.reduce, reduction.model);
  std::string command = "aicf validate " + options.reduce;
  Json files = Json::object();
  for (const auto& [name, array] : reduction.inputs) {
    const std::string file = reduced_input(options, files.size());
    write_npy(file, array);
    files[name] = file;
    command += " --input " + printable_name(name) + "=" + file;
  }
  console.result("reduced " + std::to_string(reduction.nodes_before) + " nodes to " +
                     std::to_string(reduction.nodes) + " (" + reduction.outcome + "): " + command + "\n",
                 {{"file", options.reduce},
                  {"inputs", files},
                  {"nodes", reduction.nodes},
                  {"nodes_before", reduction.nodes_before},
                  {"outcome", reduction.outcome},
                  {"passed", false}});
  return kCheckFailed;
}

int validate_model(const ValidateArgs& options, const Console& console) {
  check_tolerance("--rtol", options.rtol);
  check_tolerance("--atol", options.atol);
  const Program program = options.source.import();
  const std::unique_ptr<Executable> exe =
      options.run.load(compile(program, options.source.compile_options(options.run.device)));
  InputOptions input_options = options.inputs;
  if (!options.inputs_file.empty()) input_options.inputs.push_back(options.inputs_file);
  const Arrays inputs = gather_inputs(*exe, exe->entry(""), input_options, {});
  if (!options.reduce.empty()) return reduce(options, inputs, console);
  console.status("running, then evaluating " + options.against);
  const Arrays outputs = exe->run("", inputs), expected = expected_outputs(options, program, inputs);
  const std::map<std::string, double> costs = precision_costs(options, program, inputs);
  bool passed = true;
  std::string text;
  Json json = {{"outputs", Json::array()}};
  for (const auto& [name, actual] : outputs) {
    auto at = expected.find(name);
    if (at == expected.end())
      throw UserError(ErrorCode::kU_missing_input, "the reference has no output of this name")
          .with_value(name);
    const double cost = cost_of(costs, name);
    const CompareReport report = compare(options, actual, at->second, cost);
    passed = passed && report.ok();
    text += printable_name(name) + ": " + to_string(report) + "\n";
    if (cost > 0)
      text += printable_name(name) + ": allowed beyond f32's tolerance for " + options.source.precision +
              ": " + format_number(cost) + "\n";
    json["outputs"].push_back({{"name", name},
                               {"ok", report.ok()},
                               {"max_abs_error", report.max_abs_error},
                               {"max_rel_error", report.max_rel_error},
                               {"allowed_for_precision", cost},
                               {"cosine", report.cosine},
                               {"beyond", report.beyond},
                               {"count", report.count}});
  }
  json["passed"] = passed;
  console.result(text + "validate: " + (passed ? "passed" : "failed") + "\n", json);
  return passed ? kOk : kCheckFailed;
}

}  // namespace

VerbRun setup_validate(VerbOptions& verb) {
  auto options = std::make_shared<ValidateArgs>();
  options->add_to(verb, "an .onnx model");
  verb.add_option("--inputs", options->inputs_file, "a .npz file with inputs by name");
  verb.add_option("--against", options->against,
                  "reference (f64), onnxruntime, or a .npz file with outputs by name");
  verb.add_option("--rtol", options->rtol, "relative tolerance; default 1e-4, for f16 8e-3, bf16 6e-2");
  verb.add_option(
      "--atol", options->atol,
      "absolute tolerance; default 1e-5, for f16 1e-3, bf16 8e-3, and with --precision twice what "
      "its rounding costs the reference");
  verb.add_option("--reduce", options->reduce,
                  "write the fewest nodes that still fail, as a model, and their inputs beside it");
  return [options](const Console& console) { return validate_model(*options, console); };
}

}  // namespace aicf::cli
