#include "step_times.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "base/error.h"
#include "base/printable.h"
#include "runtime/check_io.h"

namespace aicf::cli {
namespace {

constexpr int kQueuedReplays = 20;

// What the host's memory and cores reach is not known.
std::optional<CudaLimits> limits_of(const Device& device) {
  return device.id().cuda ? cuda_limits(device.id().ordinal) : std::nullopt;
}

// The stamps are no finer.
constexpr double kStampMicroseconds = 1;

void check_possible(const StepTime& step) {
  if (step.least_us <= step.cost.microseconds + kStampMicroseconds) return;
  char times[96];
  std::snprintf(times, sizeof(times), "%.2f us", step.cost.microseconds);
  char least[96];
  std::snprintf(least, sizeof(least), "at least %.2f us: %.0f bytes, %.0f operations", step.least_us,
                step.cost.sure_bytes, step.cost.flops);
  throw InternalError(ErrorCode::kI_check_failed, "a step took less than the device can take for its work")
      .with_op(step.step->kernel)
      .with_value(step.step->origin)
      .with_expected(least)
      .with_actual(times)
      .with_remedy("report it: what this step reads or computes is counted wrong");
}

}  // namespace

Resident::Resident(Executable& exe, const EntryPlan& plan, const std::map<std::string, Array>& given)
    : entry(plan) {
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
  for (const Array& array : inputs_in_order(entry, given)) inputs.push_back(place(array));
  const SymbolValues sizes = exe.bind_sizes(entry, inputs);
  for (size_t i = 0; i < entry.outputs.size(); ++i)
    outputs.push_back(place(Array(entry.outputs[i].dtype, exe.output_sizes(entry, i, sizes))));
  exe.run_into(entry.name, inputs, outputs);
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
    exe.run_into(resident.entry.name, resident.inputs, resident.outputs, {{}, false});
    const double now = milliseconds();
    time.host.push_back(now - before);
    before = now;
  }
  exe.run_into(resident.entry.name, resident.inputs, resident.outputs, {{}, true});
  const double all = milliseconds();
  if (queued == 0) time.host.push_back(all);
  time.replay = all / (queued + 1);
  return time;
}

double StepTime::gigabytes_per_second() const {
  return static_cast<double>(cost.bytes) / std::max(cost.microseconds, 1e-3) * 1e-3;
}
double StepTime::share_of_limit() const { return least_us / (cost.microseconds + kStampMicroseconds); }
double StepTime::teraflops() const {
  return static_cast<double>(cost.flops) / std::max(cost.microseconds, 1e-3) * 1e-6;
}

double StepTimes::stamped_us() const {
  double sum = 0;
  for (const StepTime& step : steps) sum += step.cost.microseconds;
  return sum;
}

StepTimes time_steps(Executable& exe, const EntryPlan& entry, int repeats) {
  StepTimes times{{}, limits_of(exe.model().device())};
  const EntryPlan& plan = exe.bound_plan(entry);
  for (const StepCost& cost : exe.profile(entry, repeats)) {
    const Step& step = plan.steps[times.steps.size()];
    const DType x = step.inputs.empty() ? DType::f32 : step.inputs[0].dtype;
    times.steps.push_back(
        {&step, cost, times.limits ? times.limits->least_microseconds(cost, units_of(step), x) : 0});
    check_possible(times.steps.back());
  }
  return times;
}

std::string step_table(const StepTimes& times, double replay_us) {
  if (times.steps.empty()) return "this device cannot time single kernels\n";
  std::string text =
      std::string("      µs      GB/s   TFLOP/s  ") + (times.limits ? "limit  " : "") + "kernel\n";
  char line[160];
  for (const StepTime& step : times.steps) {
    std::snprintf(line, sizeof(line), "%8.2f %9.1f %9.2f  ", step.cost.microseconds,
                  step.gigabytes_per_second(), step.teraflops());
    text += line;
    if (times.limits) {
      std::snprintf(line, sizeof(line), "%3.0f %%  ", 100 * step.share_of_limit());
      text += line;
    }
    text += printable_name(step.step->kernel + "  " + step.step->origin) + "\n";
  }
  std::snprintf(line, sizeof(line), "%zu steps: %.2f µs with stamps between them, %.2f µs without\n",
                times.steps.size(), times.stamped_us(), replay_us);
  text += line;
  if (!times.limits) return text;
  std::snprintf(line, sizeof(line),
                "limits by its clocks: %.2f TB/s from memory, %.0f TFLOP/s in halves on matrix units, %.0f "
                "in f32 beside them\n",
                times.limits->memory_bytes * 1e-6, times.limits->half_flops * 1e-6,
                times.limits->float_flops * 1e-6);
  return text + line;
}

Json steps_json(const std::vector<StepTime>& steps) {
  Json list = Json::array();
  for (const StepTime& step : steps)
    list.push_back({{"kernel", step.step->kernel},
                    {"origin", step.step->origin},
                    {"us", step.cost.microseconds},
                    {"bytes", step.cost.bytes},
                    {"flops", step.cost.flops},
                    {"share_of_limit", step.least_us > 0 ? Json(step.share_of_limit()) : Json()}});
  return list;
}

double quantile(std::vector<double> samples, double q) {
  std::sort(samples.begin(), samples.end());
  return samples[static_cast<size_t>(q * static_cast<double>(samples.size() - 1) + 0.5)];
}

}  // namespace aicf::cli
