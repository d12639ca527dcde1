#include <cmath>
#include <optional>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/npy.h"
#include "base/printable.h"
#include "compile/validate.h"
#include "model_source.h"
#include "npz.h"
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

void check_tolerance(const char* name, const std::optional<double>& value) {
  if (!value || (*value >= 0 && std::isfinite(*value))) return;
  throw UserError(ErrorCode::kU_bad_option, "a tolerance is not accepted")
      .with_value(std::string(name) + " " + std::to_string(*value))
      .with_expected("a number >= 0");
}

// What `--against` names, if it is not the reference.
std::optional<Arrays> expected_outputs(const ValidateArgs& options, const Arrays& inputs) {
  if (options.against == "reference") return std::nullopt;
  if (options.against.ends_with(".npz")) return read_npz(options.against);
  if (options.against == "onnxruntime")
    return Peer(options.against, options.source.path, inputs, choose_threads(options.run.threads)).outputs();
  throw UserError(ErrorCode::kU_bad_option, "outputs cannot be compared with this")
      .with_value("--against " + options.against)
      .with_expected("reference, onnxruntime or a .npz file");
}

ValidateOptions validate_options(const ValidateArgs& options) {
  ValidateOptions validating;
  validating.compile = options.source.compile_options(options.run.device);
  validating.load = [&options](Artifact artifact) { return options.run.load(std::move(artifact)); };
  validating.rtol = options.rtol, validating.atol = options.atol;
  return validating;
}

// "" if the part agrees with the reference, else how it fails.
std::string judge(const ValidateArgs& options, const std::string& model, const Arrays& inputs) {
  const Program program = import_onnx_bytes(model);
  try {
    const ValidateOptions validating = validate_options(options);
    const std::unique_ptr<Executable> exe = validating.load(compile(program, validating.compile));
    if (!validate(program, *exe, inputs, validating).passed()) return "mismatch";
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

Json to_json(const CompareReport& report) {
  return {{"max_abs_error", report.max_abs_error},
          {"max_rel_error", report.max_rel_error},
          {"cosine", report.cosine},
          {"beyond", report.beyond},
          {"undecided", report.undecided},
          {"count", report.count}};
}

Json to_json(const Validation& validation) {
  Json json = {{"outputs", Json::array()},
               {"calls", {{"checked", validation.calls}, {"undecided", validation.undecided}}}};
  for (const OutputCheck& output : validation.outputs) {
    Json one = to_json(output.report);
    one.update({{"name", output.name},
                {"ok", output.ok()},
                {"bound", output.bound},
                {"explained", output.explained}});
    json["outputs"].push_back(std::move(one));
  }
  json["calls"]["failed"] = Json::array();
  for (const CallCheck& call : validation.failed_calls) {
    Json one = to_json(call.report);
    one.update({{"op", call.op}, {"origin", call.origin}, {"kernel", call.kernel}});
    json["calls"]["failed"].push_back(std::move(one));
  }
  json["passed"] = validation.passed();
  return json;
}

int validate_model(const ValidateArgs& options, const Console& console) {
  check_tolerance("--rtol", options.rtol);
  check_tolerance("--atol", options.atol);
  options.run.check();
  const Program program = options.source.import();
  const std::unique_ptr<Executable> exe =
      options.run.load(compile(program, options.source.compile_options(options.run.device)));
  InputOptions input_options = options.inputs;
  if (!options.inputs_file.empty()) input_options.inputs.push_back(options.inputs_file);
  const Arrays inputs = gather_inputs(*exe, exe->entry(""), input_options, {});
  if (!options.reduce.empty()) return reduce(options, inputs, console);
  console.status("running, then evaluating " + options.against);
  ValidateOptions validating = validate_options(options);
  validating.expected = expected_outputs(options, inputs);
  validating.progress = [&](size_t done, size_t of) {
    console.progress("calls checked", static_cast<int64_t>(done), static_cast<int64_t>(of));
  };
  const Validation validation = validate(program, *exe, inputs, validating);
  console.result(to_string(validation), to_json(validation));
  return validation.passed() ? kOk : kCheckFailed;
}

}  // namespace

VerbRun setup_validate(VerbOptions& verb) {
  auto options = std::make_shared<ValidateArgs>();
  options->add_to(verb, "an .onnx model");
  verb.add_option("--inputs", options->inputs_file, "a .npz file with inputs by name");
  verb.add_option("--against", options->against,
                  "reference (f64), onnxruntime, or a .npz file with outputs by name");
  verb.add_option("--rtol", options->rtol,
                  "relative tolerance of the outputs, in place of the running error bound");
  verb.add_option("--atol", options->atol,
                  "absolute tolerance of the outputs, in place of the running error bound");
  verb.add_option("--reduce", options->reduce,
                  "write the fewest nodes that still fail, as a model, and their inputs beside it");
  return [options](const Console& console) { return validate_model(*options, console); };
}

}  // namespace aicf::cli
