#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "model_source.h"
#include "peer.h"
#include "runtime/cpu/cpu_device.h"
#include "verbs.h"

namespace aicf::cli {
namespace {

struct Options {
  ModelSource source;
  RunOptions run;
  InputOptions inputs;
  int repeat = 50, warmup = 5;
  std::vector<std::string> against;
  bool kernels = false;
};

double quantile(const std::vector<double>& sorted, double q) {
  return sorted[static_cast<size_t>(q * static_cast<double>(sorted.size() - 1) + 0.5)];
}

struct Timing {
  std::string name;
  std::vector<double> samples;  // ms, in the order taken
};

Json timing_json(const Timing& timing) {
  std::vector<double> sorted = timing.samples;
  std::sort(sorted.begin(), sorted.end());
  return {{"unit", "ms"},
          {"median", quantile(sorted, 0.5)},
          {"q1", quantile(sorted, 0.25)},
          {"q3", quantile(sorted, 0.75)},
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

constexpr int kQueuedReplays = 20;

// Inputs and outputs in the memory of the executable's device, so that no copy is timed.
struct Resident {
  std::vector<Array> arrays;
  std::vector<std::unique_ptr<DeviceMemory>> memory;
  std::vector<TensorView> inputs, outputs;

  Resident(Executable& exe, const std::map<std::string, Array>& given) {
    const EntryPlan& entry = exe.entry("");
    for (const IoTensor& io : entry.inputs) inputs.push_back(place(exe, given.at(io.name)));
    const SymbolValues sizes = exe.bind_sizes(entry, inputs);
    for (size_t i = 0; i < entry.outputs.size(); ++i)
      outputs.push_back(place(exe, Array(entry.outputs[i].dtype, exe.output_sizes(entry, i, sizes))));
    exe.run_into("", inputs, outputs);
  }

 private:
  TensorView place(Executable& exe, const Array& array) {
    Device& device = exe.model().device();
    TensorView view = view_of(array);
    arrays.push_back(array);
    if (device.uses_host_memory()) return view;
    memory.push_back(device.allocate(array.bytes()));
    device.upload(memory.back()->data(), array.data(), array.bytes(), {});
    device.wait({});
    view.data = memory.back()->data();
    view.on_device = true;
    return view;
  }
};

// A line per step: time, and what it reaches of the two limits.
std::string kernel_table(Executable& exe, const EntryPlan& entry, int repeats, Json& json) {
  const std::vector<StepCost> costs = exe.profile(entry, repeats);
  if (costs.empty()) return "this device cannot time single kernels\n";
  std::string text = "      µs      GB/s   TFLOP/s  kernel\n";
  char line[96];
  for (size_t i = 0; i < costs.size(); ++i) {
    const double seconds = std::max(costs[i].microseconds, 1e-3) * 1e-6;
    const double bandwidth = static_cast<double>(costs[i].bytes) / seconds * 1e-9;
    const double rate = static_cast<double>(costs[i].flops) / seconds * 1e-12;
    std::snprintf(line, sizeof(line), "%8.2f %9.1f %9.2f  ", costs[i].microseconds, bandwidth, rate);
    const Step& step = entry.steps[i];
    text += line + step.kernel + "  " + step.origin + "\n";
    json.push_back({{"kernel", step.kernel},
                    {"origin", step.origin},
                    {"us", costs[i].microseconds},
                    {"bytes", costs[i].bytes},
                    {"flops", costs[i].flops}});
  }
  return text;
}

// Ours and the peers in turns, so that what slows the machine for a while slows all of them.
std::vector<Timing> time_in_turns(Executable& exe, const Resident& resident,
                                  const std::vector<std::unique_ptr<Peer>>& peers, const Options& options,
                                  const Console& console) {
  std::vector<Timing> timings = {{"replay", {}}};
  for (const auto& peer : peers) timings.push_back({peer->name(), {}});
  // Replays of a device with queues are timed in batches that keep its queue full.
  const int batch = exe.model().device().uses_host_memory() ? 1 : kQueuedReplays;
  for (int i = 0; i < options.warmup + options.repeat; ++i) {
    const auto start = std::chrono::steady_clock::now();
    for (int k = 0; k < batch; ++k) exe.run_into("", resident.inputs, resident.outputs, {{}, k + 1 == batch});
    const auto stop = std::chrono::steady_clock::now();
    std::vector<double> round = {std::chrono::duration<double, std::milli>(stop - start).count() / batch};
    for (const auto& peer : peers) round.push_back(peer->run_ms());
    for (size_t k = 0; i >= options.warmup && k < round.size(); ++k) timings[k].samples.push_back(round[k]);
    console.progress("replay", i + 1, options.warmup + options.repeat);
  }
  return timings;
}

int run(const Options& options, const Console& console) {
  if (options.repeat < 1 || options.warmup < 0)
    throw UserError(ErrorCode::kU_bad_option, "--repeat must be at least 1 and --warmup not negative");
  const std::unique_ptr<Executable> exe = options.run.load(options.source);
  const EntryPlan& entry = exe->entry("");
  const std::vector<std::string> sizes =
      options.source.is_artifact() ? options.source.dims : std::vector<std::string>{};
  const std::map<std::string, Array> inputs = gather_inputs(*exe, options.inputs, sizes);
  const Resident resident(*exe, inputs);
  const std::vector<std::unique_ptr<Peer>> peers = start_peers(options, inputs);
  const std::vector<Timing> timings = time_in_turns(*exe, resident, peers, options, console);
  Json json = timing_json(timings[0]);
  std::string text = describe("replay", json);
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
    json["kernels"] = Json::array();
    text += kernel_table(*exe, entry, options.repeat, json["kernels"]);
  }
  console.result(text, json);
  return kOk;
}

}  // namespace

VerbRun setup_bench(VerbOptions& verb) {
  auto options = std::make_shared<Options>();
  options->source.add_to(verb, true);
  options->run.add_to(verb);
  options->inputs.add_to(verb);
  verb.add_option("--repeat", options->repeat, "timed replays");
  verb.add_option("--warmup", options->warmup, "replays before timing");
  verb.add_flag("--kernels", options->kernels, "a line per kernel, timed by stamps between them (GPU)");
  verb.add_list("--against", options->against, "onnxruntime, torch: peers to time in turns, comma separated");
  return [options](const Console& console) { return run(*options, console); };
}

}  // namespace aicf::cli
