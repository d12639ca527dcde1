// The entries that training adds to a program: the forward graph copied, then what each of them adds to it.
// Options, params and the forward graph have been checked; states that an entry needs are declared in the
// program as it is built.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"
#include "train/train_step.h"

namespace aicf {

struct TrainedParam {
  std::string name;
  TensorType type;
  double rate_factor = 1;
  OptimizerOptions optimizer;
};

// What all entries are made of. UserError unused_param from each of the functions below if the loss, the
// first output of `forward`, does not depend on one of `params`.
struct EntryParts {
  const Graph& forward;
  const TrainOptions& options;
  const std::vector<TrainedParam>& params;
  Program& program;
};

// Loss, gradients and one optimizer step.
Graph step_entry(const EntryParts& parts);
// Loss and gradients, added to those of the calls before.
Graph accumulate_entry(const EntryParts& parts);
// Loss and gradients as outputs; changes nothing.
Graph gradients_entry(const EntryParts& parts);

}  // namespace aicf
