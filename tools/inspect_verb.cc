#include "base/error.h"
#include "base/format.h"
#include "base/printable.h"
#include "ir/text.h"
#include "model_source.h"
#include "verbs.h"

namespace aicf::cli {
namespace {

struct InspectArgs {
  std::string path;
  bool check = false, passes = false;
};

std::string describe_io(const IoTensor& io) {
  return "  " + printable_name(io.name) + ": " + std::string(dtype_name(io.dtype)) + to_string(io.sizes) +
         "\n";
}

Json io_json(const std::vector<IoTensor>& list) {
  Json json = Json::array();
  for (const IoTensor& io : list) {
    Json sizes = Json::array();
    for (const Dim& dim : io.sizes) sizes.push_back(dim.to_string());
    json.push_back({{"name", io.name}, {"dtype", dtype_name(io.dtype)}, {"shape", sizes}});
  }
  return json;
}

void describe_variant(const Variant& variant, std::string& text, Json& json) {
  Json entries = Json::array();
  text += "target " + printable_name(variant.target) + "\n";
  Json sizes = Json::object(), states = Json::array();
  for (const auto& [name, range] : variant.plan.sizes) {
    text += "  size " + printable_name(name) + " in " + std::to_string(range.lo) + ".." +
            std::to_string(range.hi) + "\n";
    sizes[name] = {range.lo, range.hi};
  }
  for (const PlanVariable& variable : variant.plan.variables) {
    if (!variable.is_state) continue;
    const IoTensor state{variable.name, variable.dtype, variable.sizes};
    text += "  state" + describe_io(state);
    states.push_back(io_json({state})[0]);
  }
  for (const EntryPlan& entry : variant.plan.entries) {
    text += " entry " + printable_name(entry.name) + ": " + std::to_string(entry.steps.size()) +
            " kernels, arena " + format_bytes(entry.arena_bytes) + "\n";
    for (const IoTensor& io : entry.inputs) text += "  in" + describe_io(io);
    for (const IoTensor& io : entry.outputs) text += "  out" + describe_io(io);
    entries.push_back({{"name", entry.name},
                       {"kernels", entry.steps.size()},
                       {"arena_bytes", entry.arena_bytes},
                       {"inputs", io_json(entry.inputs)},
                       {"outputs", io_json(entry.outputs)}});
  }
  Json buckets = Json::array();
  for (const EntryPlan& bucket : variant.plan.buckets) {
    text += " bucket of " + printable_name(bucket.name) + " for " + printable_name(to_string(bucket.bucket)) +
            ": " + std::to_string(bucket.steps.size()) + " kernels, arena " +
            format_bytes(bucket.arena_bytes) + "\n";
    buckets.push_back({{"entry", bucket.name},
                       {"sizes", to_string(bucket.bucket)},
                       {"kernels", bucket.steps.size()},
                       {"arena_bytes", bucket.arena_bytes}});
  }
  json["targets"].push_back({{"target", variant.target},
                             {"sizes", sizes},
                             {"states", states},
                             {"entries", entries},
                             {"buckets", buckets}});
}

// The program in the file, sent through the passes again: what they cost does not depend on the weights.
// Large constants stand in the text as hashes of their contents; the file has those that a kernel reads.
Program program_of(const Artifact& artifact) {
  Blobs blobs;
  for (const auto* arrays : {&artifact.constants, &artifact.weights})
    for (const auto& [name, array] : *arrays) blobs.emplace(hash_content(array), array);
  try {
    return parse(artifact.program, resolver_of(std::move(blobs)));
  } catch (const UserError& error) {
    throw UserError(ErrorCode::kU_unsupported_option,
                    "the file does not hold all that its program needs to be compiled again")
        .with_value("--passes")
        .with_actual(error.message)
        .with_remedy("see 'aicf explain MODEL.onnx', which shows the passes too");
  }
}

void describe_passes(const Artifact& artifact, std::string& text, Json& json) {
  CompileReport report;
  CompileOptions options;
  options.stop_after = "passes";
  compile(program_of(artifact), options, &report);
  json["passes"] = Json::array();
  for (const PassRecord& pass : report.passes) {
    text += to_string(pass) + "\n";
    json["passes"].push_back({{"pass", pass.name},
                              {"entry", pass.entry},
                              {"ms", pass.milliseconds},
                              {"nodes_before", pass.nodes_before},
                              {"nodes_after", pass.nodes_after}});
  }
}

int inspect_file(const InspectArgs& options, const Console& console) {
  if (options.check) check_artifact(options.path);
  const Artifact artifact = read_artifact(options.path);
  int64_t weight_bytes = 0;
  for (const auto& [name, array] : artifact.weights) weight_bytes += array.bytes();
  std::string text = options.path + ": " + std::to_string(artifact.weights.size()) + " weights, " +
                     format_bytes(weight_bytes) + "\n";
  Json json = {{"file", options.path},
               {"weights", artifact.weights.size()},
               {"weight_bytes", weight_bytes},
               {"targets", Json::array()}};
  for (const Variant& variant : artifact.variants) describe_variant(variant, text, json);
  if (options.passes) describe_passes(artifact, text, json);
  if (options.check) {
    text += "check: all checksums hold\n";
    json["checked"] = true;
  }
  console.result(text, json);
  return kOk;
}

}  // namespace

VerbRun setup_inspect(VerbOptions& verb) {
  auto options = std::make_shared<InspectArgs>();
  verb.add_positional("model", options->path, "a compiled .aicf file");
  verb.add_flag("--check", options->check, "recompute every checksum; exit 1 if one differs");
  verb.add_flag("--passes", options->passes,
                "send the program through the passes again: nodes and times of each");
  return [options](const Console& console) {
    try {
      return inspect_file(*options, console);
    } catch (const UserError& error) {
      const bool damaged = options->check && error.code == ErrorCode::kU_bad_artifact;
      const int code = console.report(std::current_exception());
      return damaged ? static_cast<int>(kCheckFailed) : code;
    }
  };
}

}  // namespace aicf::cli
