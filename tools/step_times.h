// Times of a model's replay and of its steps, for the verbs that show them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "console.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/executable.h"

namespace aicf::cli {

// Inputs and outputs in the memory of the executable's device, so that no copy is timed; bound by a first
// run.
struct Resident {
  Resident(Executable& exe, const EntryPlan& plan, const std::map<std::string, Array>& given);
  const EntryPlan& entry;
  std::vector<Array> arrays;
  std::vector<DeviceTensor> tensors;
  std::vector<TensorView> inputs, outputs;
};

// Milliseconds of a replay. On a device with queues: the mean of a batch that keeps its queue full, and of
// every call that queued one what it took of the calling thread, the first of them after a wait; elsewhere
// one call, which is the replay.
struct ReplayTime {
  double replay;
  std::vector<double> host;
};
ReplayTime time_replay(Executable& exe, const Resident& resident);

// One step of a plan: what it took, and what it moved and computed.
struct StepTime {
  const Step* step;
  StepCost cost;
  double least_us = 0;  // what the device's limits allow for it; 0: they are not known
  double gigabytes_per_second() const;
  double teraflops() const;
  // At least: the stamps may have missed a microsecond, which is much of a short step. Never above 1, because
  // time_steps refuses such times.
  double share_of_limit() const;
};

struct StepTimes {
  std::vector<StepTime> steps;
  std::optional<CudaLimits> limits;
  double stamped_us() const;  // all steps, with the stamps between them
};
// Of the last bind of the entry; no steps on devices that cannot tell. check_failed if a step took less than
// it can: then what it does is counted wrong.
StepTimes time_steps(Executable& exe, const EntryPlan& entry, int repeats);

// A line per step: time, what it reaches of memory and arithmetic, and its share of the limit that bounds it;
// then what the stamps cost, beside a replay without them.
std::string step_table(const StepTimes& times, double replay_us);
Json steps_json(const std::vector<StepTime>& steps);

double quantile(std::vector<double> samples, double q);

}  // namespace aicf::cli
