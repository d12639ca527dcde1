#include <algorithm>

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

std::string percent(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%+.0f %%", 100 * value);
  return text;
}

std::string microseconds(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%10.2f us", value);
  return text;
}

// The step's candidates, the winner marked, with what they are estimated to take beyond it.
std::string describe(const ChoiceReport& report, size_t most) {
  const Choice& choice = report.choice;
  if (choice.candidates.empty()) return {};
  const double winner = choice.candidates[choice.chosen].microseconds;
  std::string text =
      report.origin + ": " + to_string(choice.candidates[choice.chosen]) + "; " + report.reason + "\n";
  if (choice.candidates.size() == 1) return text;
  for (size_t i = 0; i < choice.candidates.size(); ++i) {
    if (i >= most && i != choice.chosen) continue;
    const Candidate& candidate = choice.candidates[i];
    text += std::string(i == choice.chosen ? "    * " : "      ") + microseconds(candidate.microseconds) +
            "  " + to_string(candidate) +
            // Of a library's forced call nothing is known.
            (i == choice.chosen || winner == 0 ? "" : "  " + percent(candidate.microseconds / winner - 1)) +
            "\n";
  }
  if (choice.candidates.size() > most)
    text += "      … " + std::to_string(choice.candidates.size() - most) + " more (--candidates)\n";
  return text;
}

Json choice_json(const ChoiceReport& report) {
  Json candidates = Json::array();
  for (const Candidate& candidate : report.choice.candidates)
    candidates.push_back({{"name", to_string(candidate)}, {"estimated_us", candidate.microseconds}});
  Json json = {{"target", report.target}, {"entry", report.entry},    {"origin", report.origin},
               {"reason", report.reason}, {"candidates", candidates}, {"chosen", report.choice.chosen}};
  if (report.choice.key) json["key"] = to_string(*report.choice.key);
  return json;
}

}  // namespace

VerbRun setup_explain(VerbOptions& verb) {
  auto source = std::make_shared<ModelSource>();
  source->add_to(verb);
  auto most = std::make_shared<int>(5);
  verb.add_option("--candidates", *most, "how many candidates of a step to show");
  return [source, most](const Console& console) {
    CompileReport report;
    const Artifact artifact = source->artifact("cpu", &report);
    std::string text;
    Json json = {{"targets", Json::array()}};
    for (const PassRecord& pass : report.passes)
      text += "pass " + pass.name + ": " + std::to_string(pass.nodes_before) + " -> " +
              std::to_string(pass.nodes_after) + " nodes, " + format_ms(pass.milliseconds) + "\n";
    json["choices"] = Json::array();
    for (const ChoiceReport& choice : report.choices) json["choices"].push_back(choice_json(choice));
    for (const Variant& variant : artifact.variants) {
      text += "target " + variant.target + "\n" + to_string(variant.plan);
      for (const ChoiceReport& choice : report.choices)
        if (choice.target == variant.target)
          text += describe(choice, static_cast<size_t>(std::max(*most, 1)));
      json["targets"].push_back({{"target", variant.target}, {"entries", plan_json(variant.plan)}});
    }
    console.result(text, json);
    return static_cast<int>(kOk);
  };
}

}  // namespace aicf::cli
