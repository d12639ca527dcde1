#include "kernels/kernel.h"
#include "model_source.h"
#include "verbs.h"

namespace aicf::cli {
namespace {

Json plan_json(const Plan& plan) {
  Json entries = Json::array();
  for (const EntryPlan& entry : plan.entries) {
    Json steps = Json::array(), buffers = Json::array();
    for (const Step& step : entry.steps)
      steps.push_back({{"kernel", step.kernel}, {"origin", step.origin}, {"reason", step.reason}});
    for (const Buffer& b : entry.buffers)
      buffers.push_back({{"kind", buffer_kind_name(b.kind)},
                         {"name", b.name},
                         {"bytes", b.bytes.to_string()},
                         {"max_bytes", b.max_bytes},
                         {"offset", b.offset},
                         {"first_step", b.first_step},
                         {"last_step", b.last_step}});
    entries.push_back(
        {{"name", entry.name}, {"arena_bytes", entry.arena_bytes}, {"steps", steps}, {"buffers", buffers}});
  }
  return entries;
}

}  // namespace

VerbRun setup_explain(VerbOptions& verb) {
  auto source = std::make_shared<ModelSource>();
  source->add_to(verb, true);
  return [source](const Console& console) {
    CompileReport report;
    const Artifact artifact = source->artifact("cpu", &report);
    std::string text;
    Json json = {{"targets", Json::array()}};
    for (const PassRecord& pass : report.passes)
      text += "pass " + pass.name + ": " + std::to_string(pass.nodes_before) + " -> " +
              std::to_string(pass.nodes_after) + " nodes, " + format_ms(pass.milliseconds) + "\n";
    for (const Variant& variant : artifact.variants) {
      text += "target " + variant.target + "\n" + to_string(variant.plan);
      json["targets"].push_back({{"target", variant.target}, {"entries", plan_json(variant.plan)}});
    }
    console.result(text, json);
    return static_cast<int>(kOk);
  };
}

}  // namespace aicf::cli
