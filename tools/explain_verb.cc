#include <map>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/printable.h"
#include "kernels/common/kernel.h"
#include "measuring.h"
#include "verbs.h"

namespace aicf::cli {
namespace {

Json plan_json(const Plan& plan) {
  Json entries = Json::array();
  for (const EntryPlan& entry : plan.entries) {
    Json steps = Json::array(), buffers = Json::array();
    for (const Step& step : entry.steps) steps.push_back({{"kernel", step.kernel}, {"origin", step.origin}});
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

// What --measure found, by the problem's key and the candidate's name.
using MeasuredTimes = std::map<std::string, std::map<std::string, Measured>>;

MeasuredTimes measure(const ModelSource& source, const RunOptions& run, int most, const Console& console) {
  Measuring measuring(source, run);
  Bench& bench = measuring.open(run, 0);
  TuneOptions options;
  options.candidates = most;
  MeasuredTimes times;
  tune(measuring.problems(), {}, bench, options, [&](const TuneResult& result) {
    for (const Measured& m : result.measured)
      times[to_string(result.record.key)].emplace(to_string(m.candidate), m);
    console.progress("measure", static_cast<int64_t>(times.size()),
                     static_cast<int64_t>(measuring.problems().size()));
  });
  return times;
}

const Measured* find(const MeasuredTimes& times, const Choice& choice, const Candidate& candidate) {
  const auto problem = choice.key ? times.find(to_string(*choice.key)) : times.end();
  if (problem == times.end()) return nullptr;
  const auto at = problem->second.find(to_string(candidate));
  return at == problem->second.end() ? nullptr : &at->second;
}

// " +12 %" beyond what the winner takes.
std::string margin(double microseconds, double winner) { return "  " + percent(microseconds / winner - 1); }

// What decided, where measurements have changed it.
std::string priced(const Candidate& candidate) {
  if (candidate.price_us == candidate.estimate_us) return {};
  char text[32];
  std::snprintf(text, sizeof(text), ", priced %.2f us", candidate.price_us);
  return text;
}

// One candidate: its estimate, beside it what was measured, and how far each is from the winner's.
std::string describe_candidate(const MeasuredTimes& times, const Choice& choice, size_t i) {
  const Candidate &candidate = choice.candidates[i], &winner = choice.candidates[choice.chosen];
  const bool chosen = i == choice.chosen;
  const std::string mark = chosen ? "    * " : "      ";
  const std::string estimate = microseconds(candidate.estimate_us);
  const std::string beyond = chosen ? "" : margin(candidate.estimate_us, winner.estimate_us);
  if (times.empty()) return mark + estimate + "  " + to_string(candidate) + beyond + priced(candidate) + "\n";
  const Measured* here = find(times, choice, candidate);
  const Measured* there = find(times, choice, winner);
  std::string measured = "  not measured";
  if (here != nullptr && !here->check.ok)
    measured = "  left out: " + here->check.why;
  else if (here != nullptr)
    measured = microseconds(here->microseconds) + " measured" +
               (chosen || there == nullptr ? "" : margin(here->microseconds, there->microseconds));
  return mark + estimate + " estimated" + beyond + priced(candidate) + "," + measured + "  " +
         to_string(candidate) + "\n";
}

// The step's candidates, the winner marked, with what they take beyond it.
std::string describe_choice(const ChoiceReport& report, const MeasuredTimes& times, size_t most) {
  const Choice& choice = report.choice;
  if (choice.candidates.empty()) return {};
  std::string text = printable_name(report.origin) + ": " + to_string(choice.candidates[choice.chosen]) +
                     "; " + printable_name(report.reason) + "\n";
  if (choice.candidates.size() == 1) return text;
  size_t hidden = 0;
  for (size_t i = 0; i < choice.candidates.size(); ++i) {
    // The tuner takes those with the best estimates, which need not be the first.
    const bool shown = times.empty() ? i < most : find(times, choice, choice.candidates[i]) != nullptr;
    if (shown || i == choice.chosen)
      text += describe_candidate(times, choice, i);
    else
      ++hidden;
  }
  if (hidden > 0) text += "      … " + std::to_string(hidden) + " more (--candidates)\n";
  return text;
}

Json choice_json(const ChoiceReport& report, const MeasuredTimes& times) {
  Json candidates = Json::array();
  for (const Candidate& candidate : report.choice.candidates) {
    Json json = {{"name", to_string(candidate)},
                 {"estimated_us", candidate.estimate_us},
                 {"price_us", candidate.price_us}};
    if (const Measured* m = find(times, report.choice, candidate)) {
      json["measured_us"] = m->check.ok ? Json(m->microseconds) : Json();
      json["samples"] = m->samples;
      json["error"] = m->check.error;
      json["left_out"] = m->check.why;
    }
    candidates.push_back(std::move(json));
  }
  Json json = {{"target", report.target}, {"entry", report.entry},    {"origin", report.origin},
               {"reason", report.reason}, {"candidates", candidates}, {"chosen", report.choice.chosen}};
  if (report.choice.key) json["key"] = to_string(*report.choice.key);
  return json;
}

Json call_json(const CallReport& report) {
  return {{"target", report.target},
          {"entry", report.entry},
          {"rule", report.rule},
          {"calls", report.calls},
          {"taken", report.taken},
          {"reason", report.reason},
          {"estimated_us", report.microseconds}};
}

struct ExplainArgs {
  ModelSource source;
  RunOptions run;
  int most = 5;
  bool measure = false;
  std::optional<VerbOptions> verb;
};

// Without --measure nothing runs: a device decides the target of what is compiled, and no more.
void refuse_unmeasured(const ExplainArgs& options) {
  if (options.source.is_artifact() && options.verb->given("--candidates"))
    throw UserError(ErrorCode::kU_bad_option, "a compiled file does not say what its steps were chosen from")
        .with_value("--candidates")
        .with_remedy("leave it out, or explain the .onnx file that it was made from");
  if (options.measure) return options.run.check();
  for (const char* name : {"--threads", "--isa", "--device"})
    if (options.verb->given(name) && (std::string_view(name) != "--device" || options.source.is_artifact()))
      throw UserError(ErrorCode::kU_bad_option, "an option says where to run, and nothing is run")
          .with_value(name)
          .with_remedy("add --measure, or leave it out");
}

int explain_model(const ExplainArgs& options, const Console& console) {
  if (options.most < 1)
    throw UserError(ErrorCode::kU_bad_option, "a number is out of range")
        .with_value("--candidates " + std::to_string(options.most))
        .with_expected("at least 1");
  refuse_unmeasured(options);
  CompileReport report;
  const Artifact artifact = options.source.artifact(options.run.device, &report);
  const MeasuredTimes times =
      options.measure ? measure(options.source, options.run, options.most, console) : MeasuredTimes{};
  std::string text;
  Json json = {{"targets", Json::array()}};
  for (const PassRecord& pass : report.passes)
    text += "pass " + pass.name + ": " + std::to_string(pass.nodes_before) + " -> " +
            std::to_string(pass.nodes_after) + " nodes, " + format_ms(pass.milliseconds) + "\n";
  json["choices"] = Json::array();
  for (const ChoiceReport& choice : report.choices) json["choices"].push_back(choice_json(choice, times));
  json["calls"] = Json::array();
  for (const CallReport& call : report.calls) json["calls"].push_back(call_json(call));
  for (const Variant& variant : artifact.variants) {
    text += "target " + printable_name(variant.target) + "\n" + to_string(variant.plan);
    for (const ChoiceReport& choice : report.choices)
      if (choice.target == variant.target)
        text += describe_choice(choice, times, static_cast<size_t>(options.most));
    for (const CallReport& call : report.calls)
      if (call.target == variant.target) text += "calls, " + printable_name(to_string(call)) + "\n";
    json["targets"].push_back({{"target", variant.target}, {"entries", plan_json(variant.plan)}});
  }
  console.result(text, json);
  return kOk;
}

}  // namespace

VerbRun setup_explain(VerbOptions& verb) {
  auto options = std::make_shared<ExplainArgs>();
  options->verb = verb;
  options->source.add_to(verb);
  options->run.add_to(verb);
  verb.add_option("--candidates", options->most, "how many candidates of a step to show");
  verb.add_flag("--measure", options->measure,
                "time the candidates on --device, too, after comparing them with a reference");
  return [options](const Console& console) { return explain_model(*options, console); };
}

}  // namespace aicf::cli
