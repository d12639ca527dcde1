#include "base/error.h"
#include "ir/reference/compare.h"
#include "ir/reference/evaluator.h"
#include "ir/text.h"
#include "model_source.h"
#include "npy.h"
#include "verbs.h"

namespace aicf::cli {
namespace {

struct Options {
  ModelSource source;
  RunOptions run;
  InputOptions inputs;
  std::string inputs_file, against = "reference", reduce;
  double rtol = 1e-4, atol = 1e-5;
};

std::map<std::string, Array> expected_outputs(const Options& options, const Program& program,
                                              const std::map<std::string, Array>& inputs) {
  if (options.against == "reference")
    return evaluate(program, program.entries[0], {inputs, {}}, {false}).outputs;
  if (options.against.ends_with(".npz")) return read_npz(options.against);
  throw UserError(ErrorCode::kU_unsupported_option,
                  "outputs cannot be compared with this from the command line")
      .with_value("--against " + options.against)
      .with_expected("reference or a .npz file")
      .with_remedy("for onnxruntime, save its outputs with numpy.savez and give that file");
}

int run(const Options& options, const Console& console) {
  if (!options.reduce.empty())
    throw UserError(ErrorCode::kU_unsupported_option, "reducing a failing model is not available")
        .with_value("--reduce " + options.reduce);
  if (options.source.is_artifact())
    throw UserError(ErrorCode::kU_bad_option, "validation needs the model, not its artifact")
        .with_value(options.source.path)
        .with_expected("an .onnx file");
  const Program program = options.source.import();
  const std::unique_ptr<Executable> exe =
      options.run.load(compile(program, options.source.compile_options(options.run.device)));
  InputOptions input_options = options.inputs;
  if (!options.inputs_file.empty()) input_options.inputs.push_back(options.inputs_file);
  const std::map<std::string, Array> inputs = gather_inputs(*exe, input_options, {});
  const std::map<std::string, Array> outputs = exe->run("", inputs);
  const std::map<std::string, Array> expected = expected_outputs(options, program, inputs);
  bool passed = true;
  std::string text;
  Json json = {{"outputs", Json::array()}};
  for (const auto& [name, actual] : outputs) {
    auto at = expected.find(name);
    if (at == expected.end())
      throw UserError(ErrorCode::kU_missing_input, "the reference has no output of this name")
          .with_value(name);
    const CompareReport report = compare(actual, at->second, options.rtol, options.atol);
    passed = passed && report.ok();
    text += name + ": " + to_string(report) + "\n";
    json["outputs"].push_back({{"name", name},
                               {"ok", report.ok()},
                               {"max_abs_error", report.max_abs_error},
                               {"max_rel_error", report.max_rel_error},
                               {"cosine", report.cosine},
                               {"beyond", report.beyond},
                               {"count", report.count}});
  }
  json["passed"] = passed;
  console.result(text + "validate: " + (passed ? "passed" : "failed") + "\n", json);
  return passed ? kOk : kCheckFailed;
}

}  // namespace

VerbRun setup_validate(CLI::App& app) {
  auto options = std::make_shared<Options>();
  options->source.add_to(app, true);
  options->run.add_to(app);
  options->inputs.add_to(app);
  app.add_option("--inputs", options->inputs_file, "a .npz file with inputs by name");
  app.add_option("--against", options->against, "reference (f64), or a .npz file with outputs by name");
  app.add_option("--rtol", options->rtol, "relative tolerance");
  app.add_option("--atol", options->atol, "absolute tolerance");
  app.add_option("--reduce", options->reduce, "write the smallest model that still fails");
  return [options](const Console& console) { return run(*options, console); };
}

}  // namespace aicf::cli
