#include "base/atomic_file.h"
#include "base/error.h"
#include "model_source.h"
#include "step_times.h"
#include "verbs.h"

namespace aicf::cli {
namespace {

struct ProfileArgs : ReplayOptions {
  int repeat = 30;
  std::string output = "trace.json";
};

// One replay in Chrome's trace format (also Perfetto's): the steps one after the other, each as long as its
// median. Stamps between the kernels keep them from overlapping, so the whole is longer than a replay without
// them, which is a second line.
Json chrome_trace(const std::vector<StepTime>& steps, const std::string& device, double replay_us) {
  Json events = Json::array();
  const auto name = [&](const char* kind, int thread, const std::string& text) {
    events.push_back({{"ph", "M"}, {"pid", 1}, {"tid", thread}, {"name", kind}, {"args", {{"name", text}}}});
  };
  name("process_name", 0, "aicf on " + device);
  name("thread_name", 1, "steps, with stamps between them");
  name("thread_name", 2, "a replay without stamps");
  double start = 0;
  for (const StepTime& step : steps) {
    events.push_back({{"ph", "X"},
                      {"pid", 1},
                      {"tid", 1},
                      {"ts", start},
                      {"dur", step.cost.microseconds},
                      {"name", step.step->kernel},
                      {"cat", "step"},
                      {"args",
                       {{"origin", step.step->origin},
                        {"bytes", step.cost.bytes},
                        {"flops", step.cost.flops},
                        {"GB/s", step.gigabytes_per_second()},
                        {"TFLOP/s", step.teraflops()}}}});
    start += step.cost.microseconds;
  }
  events.push_back({{"ph", "X"}, {"pid", 1}, {"tid", 2}, {"ts", 0}, {"dur", replay_us}, {"name", "replay"}});
  return {{"displayTimeUnit", "ns"}, {"traceEvents", std::move(events)}};
}

int profile_model(const ProfileArgs& options, const Console& console) {
  if (options.repeat < 1) throw UserError(ErrorCode::kU_bad_option, "--repeat must be at least 1");
  options.source.refuse_overwriting(options.output, options.inputs.files());
  const std::unique_ptr<Executable> exe = options.load();
  const EntryPlan& entry = exe->entry(options.entry);
  const std::map<std::string, Array> inputs = options.gather(*exe);
  const Resident resident(*exe, entry, inputs);
  std::vector<double> replays;
  for (int i = 0; i < options.repeat; ++i) replays.push_back(1e3 * time_replay(*exe, resident).replay);
  const double replay_us = quantile(replays, 0.5);
  const StepTimes times = time_steps(*exe, entry, options.repeat);
  write_file_atomically(
      options.output,
      chrome_trace(times.steps, std::string(exe->model().device().name()), replay_us).dump(1));
  Json json = setting_json(options, *exe, entry, inputs);
  const std::string text =
      describe_setting(json) + step_table(times, replay_us) + "trace: " + options.output + "\n";
  json.update({{"trace", options.output},
               {"coverage", exe->coverage(entry)},
               {"replay_us", replay_us},
               {"stamped_us", times.stamped_us()},
               {"kernels", steps_json(times.steps)}});
  console.result(text, json);
  return kOk;
}

}  // namespace

VerbRun setup_profile(VerbOptions& verb) {
  auto options = std::make_shared<ProfileArgs>();
  options->add_to(verb);
  add_entry_to(verb, options->entry);
  verb.add_option("--repeat", options->repeat, "replays; times are medians");
  verb.add_option("-o,--output", options->output, "the trace, for Perfetto or chrome://tracing");
  return [options](const Console& console) { return profile_model(*options, console); };
}

}  // namespace aicf::cli
