#include "step_times.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "runtime/check_io.h"

namespace aicf::cli {
namespace {

constexpr int kQueuedReplays = 20;

}  // namespace

Resident::Resident(Executable& exe, const std::map<std::string, Array>& given) {
  const auto place = [&](const Array& array) {
    Device& device = exe.model().device();
    if (device.uses_host_memory()) {
      arrays.push_back(array);
      return view_of(array);
    }
    tensors.push_back(exe.device_tensor(array.dtype(), array.sizes()));
    device.upload(tensors.back().data(), array.data(), array.bytes(), {});
    return view_of(tensors.back());
  };
  const EntryPlan& entry = exe.entry("");
  for (const Array& array : inputs_in_order(entry, given)) inputs.push_back(place(array));
  const SymbolValues sizes = exe.bind_sizes(entry, inputs);
  for (size_t i = 0; i < entry.outputs.size(); ++i)
    outputs.push_back(place(Array(entry.outputs[i].dtype, exe.output_sizes(entry, i, sizes))));
  exe.run_into("", inputs, outputs);
}

ReplayTime time_replay(Executable& exe, const Resident& resident) {
  const int queued = exe.model().device().uses_host_memory() ? 0 : kQueuedReplays - 1;
  ReplayTime time;
  time.host.reserve(kQueuedReplays);
  const auto start = std::chrono::steady_clock::now();
  const auto milliseconds = [&] {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  };
  double before = 0;
  for (int i = 0; i < queued; ++i) {
    exe.run_into("", resident.inputs, resident.outputs, {{}, false});
    const double now = milliseconds();
    time.host.push_back(now - before);
    before = now;
  }
  exe.run_into("", resident.inputs, resident.outputs, {{}, true});
  const double all = milliseconds();
  if (queued == 0) time.host.push_back(all);
  time.replay = all / (queued + 1);
  return time;
}

double StepTime::gigabytes_per_second() const {
  return static_cast<double>(cost.bytes) / std::max(cost.microseconds, 1e-3) * 1e-3;
}
double StepTime::teraflops() const {
  return static_cast<double>(cost.flops) / std::max(cost.microseconds, 1e-3) * 1e-6;
}

std::vector<StepTime> time_steps(Executable& exe, const EntryPlan& entry, int repeats) {
  std::vector<StepTime> steps;
  const EntryPlan& plan = exe.bound_plan(entry);
  for (const StepCost& cost : exe.profile(entry, repeats)) steps.push_back({&plan.steps[steps.size()], cost});
  return steps;
}

std::string step_table(const std::vector<StepTime>& steps) {
  if (steps.empty()) return "this device cannot time single kernels\n";
  std::string text = "      µs      GB/s   TFLOP/s  kernel\n";
  char line[96];
  for (const StepTime& step : steps) {
    std::snprintf(line, sizeof(line), "%8.2f %9.1f %9.2f  ", step.cost.microseconds,
                  step.gigabytes_per_second(), step.teraflops());
    text += line + step.step->kernel + "  " + step.step->origin + "\n";
  }
  return text;
}

Json steps_json(const std::vector<StepTime>& steps) {
  Json list = Json::array();
  for (const StepTime& step : steps)
    list.push_back({{"kernel", step.step->kernel},
                    {"origin", step.step->origin},
                    {"us", step.cost.microseconds},
                    {"bytes", step.cost.bytes},
                    {"flops", step.cost.flops}});
  return list;
}

double quantile(std::vector<double> samples, double q) {
  std::sort(samples.begin(), samples.end());
  return samples[static_cast<size_t>(q * static_cast<double>(samples.size() - 1) + 0.5)];
}

}  // namespace aicf::cli
