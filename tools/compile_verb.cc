#include <optional>

#include "base/error.h"
#include "base/format.h"
#include "base/printable.h"
#include "ir/text.h"
#include "model_source.h"
#include "verbs.h"

namespace aicf::cli {
namespace {

struct CompileArgs {
  ModelSource source;
  std::string output;
};

std::string default_output(const std::string& model) {
  const size_t dot = model.rfind(".onnx");
  return (dot == std::string::npos ? model : model.substr(0, dot)) + ".aicf";
}

Json report_json(const CompileReport& report) {
  Json stages = Json::array(), passes = Json::array(), modules = Json::array();
  for (const StageTime& stage : report.stages)
    stages.push_back({{"stage", stage.stage}, {"ms", stage.milliseconds}});
  for (const PassRecord& pass : report.passes)
    passes.push_back({{"pass", pass.name},
                      {"entry", pass.entry},
                      {"ms", pass.milliseconds},
                      {"nodes_before", pass.nodes_before},
                      {"nodes_after", pass.nodes_after}});
  for (const ModuleRecord& module : report.modules)
    modules.push_back({{"target", module.target},
                       {"functions", module.functions},
                       {"bytes", module.bytes},
                       {"ms", module.milliseconds}});
  return {{"stages", stages}, {"passes", passes}, {"modules", modules}};
}

// A file for one kind of GPU is to run elsewhere, too; several targets are just these.
std::string portable(const std::string& target) {
  return target.starts_with("sm_") && target.find(',') == std::string::npos ? target + ",compute_80,cpu"
                                                                            : target;
}

// A run that stops before there is a file would not write it.
void refuse_unwritten(const CompileArgs& options) {
  const std::string& stage = options.source.stop_after;
  if (options.output.empty() || stage.empty() || stage == "artifact") return;
  throw UserError(ErrorCode::kU_bad_option, "--stop-after leaves no file to write")
      .with_value("--output " + options.output)
      .with_remedy("leave out --output or --stop-after");
}

int compile_model(const CompileArgs& options, const Console& console) {
  const auto start = std::chrono::steady_clock::now();
  const std::string path = options.output.empty() ? default_output(options.source.path) : options.output;
  options.source.refuse_overwriting(path);
  refuse_unwritten(options);
  CompileOptions compile_options = options.source.compile_options();
  // With --json the dumps are part of the one object.
  Json dumps = Json::array();
  const auto dump = [&](const std::string& after, const std::string& text) {
    if (console.json)
      dumps.push_back({{"after", after}, {"text", text}});
    else
      std::printf("// after %s\n%s\n", after.c_str(), printable_text(text).c_str());
  };
  compile_options.on_dump = dump;
  if (compile_options.stop_after.empty()) compile_options.target = portable(compile_options.target);
  const Program program = options.source.import();
  if (compile_options.stop_after == "import") {
    if (options.source.print) dump("import", print(program));
    console.result("", {{"stopped_after", "import"}, {"dumps", dumps}});
    return kOk;
  }
  std::optional<ArtifactFile> file;
  if (compile_options.stop_after.empty() || compile_options.stop_after == "artifact") {
    file.emplace(path);
    compile_options.meanwhile = [&] { file->write_ahead(weights_of(program)); };
  }
  CompileReport report;
  const Artifact artifact = compile(program, compile_options, &report);
  Json json = report_json(report);
  json["dumps"] = dumps;
  if (!file) {
    json["stopped_after"] = compile_options.stop_after;
    console.result("", json);
    return kOk;
  }
  console.status("writing " + path);
  file->finish(artifact);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const EntryPlan& entry = artifact.variants[0].plan.entries[0];
  char text[64];
  std::snprintf(text, sizeof(text), "%.2f s", seconds);
  json["file"] = path;
  json["seconds"] = seconds;
  json["kernels"] = entry.steps.size();
  json["arena_bytes"] = entry.arena_bytes;
  console.result(path + ": " + std::to_string(entry.steps.size()) + " kernels, arena " +
                     format_bytes(entry.arena_bytes) + ", compiled in " + text + "\n",
                 json);
  return kOk;
}

}  // namespace

VerbRun setup_compile(VerbOptions& verb) {
  auto options = std::make_shared<CompileArgs>();
  options->source.add_to(verb, /*binds=*/false, "an .onnx model", CompileHelp::kListed);
  options->source.add_stages_to(verb);
  verb.add_option("-o,--output", options->output, "the .aicf file to write; default beside the model");
  return [options](const Console& console) { return compile_model(*options, console); };
}

}  // namespace aicf::cli
