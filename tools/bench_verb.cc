#include "base/error.h"
#include "model_source.h"
#include "peer.h"
#include "runtime/cpu/cpu_device.h"
#include "step_times.h"
#include "verbs.h"

namespace aicf::cli {
namespace {

struct Options : ReplayOptions {
  int repeat = 50, warmup = 5;
  std::vector<std::string> against;
  bool kernels = false;
};

struct Timing {
  std::string name;
  std::vector<double> samples;  // ms, in the order taken
  // Of ours: ms of the calling thread for each replay that it queued, and for the first after each wait.
  std::vector<double> host = {}, first_host = {};
};

Json timing_json(const Timing& timing) {
  return {{"unit", "ms"},
          {"median", quantile(timing.samples, 0.5)},
          {"q1", quantile(timing.samples, 0.25)},
          {"q3", quantile(timing.samples, 0.75)},
          {"samples", timing.samples}};
}

std::string describe(const std::string& name, const Json& json) {
  return name + ": median " + format_ms(json["median"]) + ", quartiles " + format_ms(json["q1"]) + " to " +
         format_ms(json["q3"]) + ", " + std::to_string(json["samples"].size()) + " samples\n";
}

std::vector<std::unique_ptr<Peer>> start_peers(const Options& options,
                                               const std::map<std::string, Array>& inputs) {
  if (!options.against.empty() && options.source.is_artifact())
    throw UserError(ErrorCode::kU_bad_option, "a peer needs the model, not our artifact")
        .with_value(options.source.path)
        .with_expected("an .onnx file");
  std::vector<std::unique_ptr<Peer>> peers;
  for (const std::string& name : options.against)
    peers.push_back(
        std::make_unique<Peer>(name, options.source.path, inputs, choose_threads(options.run.threads)));
  return peers;
}

// Ours and the peers in turns, so that what slows the machine for a while slows all of them.
std::vector<Timing> time_in_turns(Executable& exe, const Resident& resident,
                                  const std::vector<std::unique_ptr<Peer>>& peers, const Options& options,
                                  const Console& console) {
  std::vector<Timing> timings = {{"replay", {}}};
  for (const auto& peer : peers) timings.push_back({peer->name(), {}});
  for (int i = 0; i < options.warmup + options.repeat; ++i) {
    const ReplayTime time = time_replay(exe, resident);
    std::vector<double> round = {time.replay};
    for (const auto& peer : peers) round.push_back(peer->run_ms());
    for (size_t k = 0; i >= options.warmup && k < round.size(); ++k) timings[k].samples.push_back(round[k]);
    if (i >= options.warmup) {
      timings[0].host.insert(timings[0].host.end(), time.host.begin(), time.host.end());
      timings[0].first_host.push_back(time.host.front());
    }
    console.progress("replay", i + 1, options.warmup + options.repeat);
  }
  return timings;
}

int run(const Options& options, const Console& console) {
  if (options.repeat < 1 || options.warmup < 0)
    throw UserError(ErrorCode::kU_bad_option, "a number of replays is out of range")
        .with_expected("--repeat of 1 or more, --warmup of 0 or more")
        .with_actual(std::to_string(options.repeat) + " and " + std::to_string(options.warmup));
  const std::unique_ptr<Executable> exe = options.load();
  const EntryPlan& entry = exe->entry("");
  const std::map<std::string, Array> inputs = options.gather(*exe);
  const Resident resident(*exe, inputs);
  const std::vector<std::unique_ptr<Peer>> peers = start_peers(options, inputs);
  const std::vector<Timing> timings = time_in_turns(*exe, resident, peers, options, console);
  Json json = timing_json(timings[0]);
  const double host = quantile(timings[0].host, 0.5), first_host = quantile(timings[0].first_host, 0.5);
  json["host_us"] = 1e3 * host;
  json["host_first_us"] = 1e3 * first_host;
  json["host_samples"] = timings[0].host;  // ms, those of one wait after those of the last
  std::string text = describe("replay", json);
  if (!exe->model().device().uses_host_memory())
    text += "queueing one takes the host " + format_ms(host) + ", the first after a wait " +
            format_ms(first_host) + " (medians of single calls)\n";
  for (size_t i = 0; i < peers.size(); ++i) {
    Json peer = timing_json(timings[1 + i]);
    const double ratio = peer["median"].get<double>() / json["median"].get<double>();
    peer["version"] = peers[i]->version();
    peer["ratio"] = ratio;
    char times[32];
    std::snprintf(times, sizeof(times), "%.2f", ratio);
    text +=
        describe(peers[i]->name() + " " + peers[i]->version(), peer) + "  " + times + " times the replay\n";
    json["against"][peers[i]->name()] = std::move(peer);
  }
  if (const std::string coverage = exe->coverage(entry); !coverage.empty()) {
    text += coverage + "\n";
    json["coverage"] = coverage;
  }
  if (options.kernels) {
    const StepTimes times = time_steps(*exe, entry, options.repeat);
    json["kernels"] = steps_json(times.steps);
    json["stamped_us"] = times.stamped_us();
    text += step_table(times, 1e3 * json["median"].get<double>());
  }
  console.result(text, json);
  return kOk;
}

}  // namespace

VerbRun setup_bench(VerbOptions& verb) {
  auto options = std::make_shared<Options>();
  options->add_to(verb);
  verb.add_option("--repeat", options->repeat, "timed replays");
  verb.add_option("--warmup", options->warmup, "replays before timing");
  verb.add_flag("--kernels", options->kernels, "a line per kernel, timed by stamps between them");
  verb.add_list("--against", options->against, "onnxruntime, torch: peers to time in turns, comma separated");
  return [options](const Console& console) { return run(*options, console); };
}

}  // namespace aicf::cli
