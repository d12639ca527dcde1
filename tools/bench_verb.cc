#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "base/format.h"
#include "model_source.h"
#include "peer.h"
#include "runtime/cpu/cpu_device.h"
#include "step_times.h"
#include "verbs.h"

namespace aicf::cli {
namespace {

struct BenchArgs : ReplayOptions {
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
          {"runs_per_second", 1e3 / quantile(timing.samples, 0.5)},
          {"samples", timing.samples}};
}

std::string describe_times(const std::string& name, const Json& json) {
  return name + ": median " + format_ms(json["median"]) + ", quartiles " + format_ms(json["q1"]) + " to " +
         format_ms(json["q3"]) + ", " + std::to_string(json["samples"].size()) + " samples\n";
}

// Before anything is compiled.
void check_peers(const BenchArgs& options) {
  if (options.against.empty()) return;
  for (const std::string& name : options.against) {
    check_peer_name(name);
    if (std::count(options.against.begin(), options.against.end(), name) > 1)
      throw UserError(ErrorCode::kU_bad_option, "a peer is named twice")
          .with_value("--against " + name)
          .with_remedy("name each peer once");
  }
  if (options.source.is_artifact())
    throw UserError(ErrorCode::kU_bad_option, "a peer needs the model, not our artifact")
        .with_value(options.source.path)
        .with_expected("an .onnx file");
  if (options.run.device != "cpu")
    throw UserError(ErrorCode::kU_unsupported_option, "peers run on the CPU only")
        .with_value("--against with --device " + options.run.device)
        .with_remedy("leave out --device");
}

std::vector<std::unique_ptr<Peer>> start_peers(const BenchArgs& options,
                                               const std::map<std::string, Array>& inputs) {
  std::vector<std::unique_ptr<Peer>> peers;
  for (const std::string& name : options.against)
    peers.push_back(
        std::make_unique<Peer>(name, options.source.path, inputs, choose_threads(options.run.threads)));
  return peers;
}

// What the turns of one took of the processors while others had theirs.
struct Intrusion {
  int64_t ours_ns = 0;                 // our workers, in the peers' turns
  std::vector<int64_t> peers_ns = {};  // each peer, in turns that are not its own
};

// Until our workers, which spin for a moment after a run, sleep.
void wait_for_workers() {
  constexpr std::chrono::seconds kMost(1);
  constexpr std::chrono::microseconds kNap(200);
  const auto end = std::chrono::steady_clock::now() + kMost;
  while (other_threads_run() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(kNap);
}

// Ours and the peers in turns, so that what slows the machine for a while slows all of them. A turn is a run
// that is not timed, after which caches and threads are as in a loop of runs, and one that is.
struct Turns {
  std::vector<Timing> timings;  // ours first
  Intrusion intrusion;
};

Turns time_in_turns(Executable& exe, const Resident& resident,
                    const std::vector<std::unique_ptr<Peer>>& peers, const BenchArgs& options,
                    const Console& console) {
  Turns turns{{{"replay", {}}}, {}};
  std::vector<Timing>& timings = turns.timings;
  for (const auto& peer : peers) timings.push_back({peer->name(), {}});
  turns.intrusion.peers_ns.resize(peers.size());
  for (int i = 0; i < options.warmup + options.repeat; ++i) {
    const bool counts = i >= options.warmup;
    std::vector<int64_t> before;
    for (const auto& peer : peers) before.push_back(peer->cpu_ns());
    if (!peers.empty()) (void)time_replay(exe, resident);
    const ReplayTime time = time_replay(exe, resident);
    std::vector<double> round = {time.replay};
    if (!peers.empty()) wait_for_workers();
    const int64_t ours = peers.empty() ? 0 : cpu_ns_of_threads(getpid());
    for (size_t k = 0; k < peers.size(); ++k) {
      turns.intrusion.peers_ns[k] += peers[k]->cpu_ns() - before[k];
      round.push_back(peers[k]->turn_ms(1)[0]);
    }
    if (!peers.empty()) turns.intrusion.ours_ns += cpu_ns_of_threads(getpid()) - ours;
    for (size_t k = 0; counts && k < round.size(); ++k) timings[k].samples.push_back(round[k]);
    if (counts) {
      timings[0].host.insert(timings[0].host.end(), time.host.begin(), time.host.end());
      timings[0].first_host.push_back(time.host.front());
    }
    console.progress("replay", i + 1, options.warmup + options.repeat);
  }
  return turns;
}

std::string describe_rate(double per_second) { return "  " + format_fixed(per_second, 1) + " runs/s\n"; }

int bench_model(const BenchArgs& options, const Console& console) {
  if (options.repeat < 1 || options.warmup < 0)
    throw UserError(ErrorCode::kU_bad_option, "a number of replays is out of range")
        .with_expected("--repeat of 1 or more, --warmup of 0 or more")
        .with_actual(std::to_string(options.repeat) + " and " + std::to_string(options.warmup));
  check_peers(options);
  console.status("loading " + options.source.path);
  const std::unique_ptr<Executable> exe = options.load();
  const EntryPlan& entry = exe->entry(options.entry);
  const std::map<std::string, Array> inputs = options.gather(*exe);
  const Resident resident(*exe, entry, inputs);
  const std::vector<std::unique_ptr<Peer>> peers = start_peers(options, inputs);
  const Turns turns = time_in_turns(*exe, resident, peers, options, console);
  const std::vector<Timing>& timings = turns.timings;
  Json json = setting_json(options, *exe, entry, inputs);
  std::string text = describe_setting(json);
  json.update(timing_json(timings[0]));
  const double host = quantile(timings[0].host, 0.5), first_host = quantile(timings[0].first_host, 0.5);
  json["host_us"] = 1e3 * host;
  json["host_first_us"] = 1e3 * first_host;
  json["host_samples"] = timings[0].host;  // ms, those of one wait after those of the last
  text += describe_times("replay", json) + describe_rate(json["runs_per_second"]);
  if (!exe->model().device().uses_host_memory())
    text += "queueing one takes the host " + format_ms(host) + ", the first after a wait " +
            format_ms(first_host) + " (medians of single calls)\n";
  for (size_t i = 0; i < peers.size(); ++i) {
    Json peer = timing_json(timings[1 + i]);
    const double ratio = peer["median"].get<double>() / json["median"].get<double>();
    peer["version"] = peers[i]->version();
    peer["ratio"] = ratio;
    peer["cpu_ms_in_other_turns"] = 1e-6 * static_cast<double>(turns.intrusion.peers_ns[i]);
    text += describe_times(peers[i]->name() + " " + peers[i]->version(), peer) +
            describe_rate(peer["runs_per_second"]) + "  " + format_fixed(ratio, 2) + " times the replay\n";
    json["against"][peers[i]->name()] = std::move(peer);
  }
  if (!peers.empty()) json["cpu_ms_in_other_turns"] = 1e-6 * static_cast<double>(turns.intrusion.ours_ns);
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
  auto options = std::make_shared<BenchArgs>();
  options->add_to(verb);
  add_entry_to(verb, options->entry);
  verb.add_option("--repeat", options->repeat, "timed replays");
  verb.add_option("--warmup", options->warmup, "replays before timing");
  verb.add_flag("--kernels", options->kernels, "a line per kernel, timed by stamps between them");
  verb.add_list("--against", options->against,
                "onnxruntime, torch: peers on the CPU to time in turns with ours, comma separated");
  return [options](const Console& console) { return bench_model(*options, console); };
}

}  // namespace aicf::cli
