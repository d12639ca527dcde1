#include "artifact/artifact.h"
#include "base/comma_list.h"
#include "base/error.h"
#include "base/format.h"
#include "base/printable.h"
#include "base/safetensors.h"
#include "base/training_names.h"
#include "compile/artifact_part.h"
#include "model_source.h"
#include "verbs.h"

namespace aicf::cli {
namespace {

struct ExportArgs {
  std::string path, output;
  std::vector<std::string> entries;
};

// ".aicf" or ".safetensors".
std::string format_of(const std::string& output) {
  for (const char* format : {".aicf", ".safetensors"})
    if (output.ends_with(format)) return format;
  const bool onnx = output.ends_with(".onnx");
  throw UserError(onnx ? ErrorCode::kU_unsupported_option : ErrorCode::kU_bad_option,
                  onnx ? "a compiled model cannot be turned back into ONNX"
                       : "the name of the output does not say what to write")
      .with_value("--output " + output)
      .with_expected("a name that ends in .aicf (a model to run) or .safetensors (its weights)")
      .with_remedy(
          onnx ? "write the weights with -o model.safetensors and load them where the ONNX file is made"
               : "aicf export MODEL -o model.aicf");
}

void refuse_uncompiled(const std::string& path) {
  if (!path.ends_with(".onnx")) return;
  throw UserError(ErrorCode::kU_bad_option, "the model is not compiled")
      .with_value(path)
      .with_expected("a compiled .aicf file")
      .with_remedy("aicf compile " + path + " -o model.aicf");
}

std::set<std::string> chosen_entries(const ExportArgs& options, const Artifact& artifact) {
  if (!options.entries.empty()) return {options.entries.begin(), options.entries.end()};
  std::set<std::string> entries = inference_entries(artifact);
  if (entries.empty())
    throw UserError(ErrorCode::kU_bad_option, "the file has no entry for inference")
        .with_value(options.path)
        .with_remedy(
            "compile the step from a model and a loss, which adds the entry 'eval', or name one with "
            "--entry");
  return entries;
}

// The optimizer's states are part of an artifact whose entries need them; as weights nobody wants them.
std::map<std::string, Array> weights_to_write(const Artifact& part) {
  std::map<std::string, Array> weights = part.weights;
  std::erase_if(weights, [](const auto& item) { return item.first.starts_with("opt."); });
  return weights;
}

void write_weights(const std::string& path, const std::map<std::string, Array>& weights) {
  std::vector<SafetensorsTensor> tensors;
  for (const auto& [name, array] : weights) tensors.push_back({name, array});
  sort_for_safetensors(tensors);
  write_safetensors(path, tensors, {});
}

int export_model(const ExportArgs& options, const Console& console) {
  const std::string format = format_of(options.output);
  refuse_uncompiled(options.path);
  refuse_overwriting(options.output, {options.path});
  const Artifact whole = read_artifact(options.path);
  const std::set<std::string> entries = chosen_entries(options, whole);
  const Artifact part = part_of(whole, entries);
  const bool artifact = format == ".aicf";
  const std::map<std::string, Array> weights = artifact ? part.weights : weights_to_write(part);
  if (artifact)
    write_artifact(options.output, part);
  else
    write_weights(options.output, weights);
  int64_t bytes = 0;
  for (const auto& [name, array] : weights) bytes += array.bytes();
  const std::string count = std::to_string(weights.size()) + " tensors, " + format_bytes(bytes);
  console.result(options.output + ": " +
                     (artifact ? "entries " + printable_name(comma_list(entries)) + "; " : "") + count + "\n",
                 {{"file", options.output},
                  {"format", format.substr(1)},
                  {"entries", entries},
                  {"tensors", weights.size()},
                  {"bytes", bytes}});
  return kOk;
}

}  // namespace

VerbRun setup_export(VerbOptions& verb) {
  auto options = std::make_shared<ExportArgs>();
  verb.add_positional("model", options->path, "a compiled or trained .aicf file");
  verb.add_option("-o,--output", options->output,
                  "M.aicf: the model with these entries alone; M.safetensors: its weights");
  verb.add_option("--entry", options->entries,
                  "an entry to keep, repeated for several; default all that are not of training");
  return [options](const Console& console) {
    if (options->output.empty())
      throw UserError(ErrorCode::kU_bad_option, "the output is not named").with_remedy("add -o model.aicf");
    return export_model(*options, console);
  };
}

}  // namespace aicf::cli
