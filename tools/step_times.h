// Times of a model's replay and of its steps, for the verbs that show them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "console.h"
#include "runtime/executable.h"

namespace aicf::cli {

// Inputs and outputs in the memory of the executable's device, so that no copy is timed; bound by a first
// run.
struct Resident {
  Resident(Executable& exe, const std::map<std::string, Array>& given);
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
  double gigabytes_per_second() const;
  double teraflops() const;
};
// Of the last bind of the entry; empty on devices that cannot tell.
std::vector<StepTime> time_steps(Executable& exe, const EntryPlan& entry, int repeats);

// A line per step: time, and what it reaches of the two limits.
std::string step_table(const std::vector<StepTime>& steps);
Json steps_json(const std::vector<StepTime>& steps);

double quantile(std::vector<double> samples, double q);

}  // namespace aicf::cli
