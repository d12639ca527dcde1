// From a program that computes a loss, the program of a training run. It takes a program whose first entry
// gives the loss as its first output, a float scalar, and gives entries over the same params and states:
//
//   "step"        inputs and outputs of the first entry; updates every trained param, the optimizer's
//                 states, and whatever the first entry updates
//   "accumulate"  only if accumulate > 1: the same inputs and outputs, adds the gradients to states; the
//                 caller runs it accumulate - 1 times before each "step"
//   "gradients"   if asked for: the same inputs; outputs `d_<param>` and the loss, no updates
//
// and all other entries as they were. docs/training.md lists the states by name. Training needs nothing of
// the runtime beyond entries and updates.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/training_names.h"
#include "ir/graph.h"
#include "ir/precision.h"
#include "train/optimizers.h"

namespace aicf {

struct LossScale {
  double initial = 0;  // 0: the loss is not scaled
  bool dynamic = true;
  double growth = 2, backoff = 0.5;
  int64_t interval = 2000;  // good steps until it grows
};

struct TrainOptions {
  OptimizerOptions optimizer;
  Graph schedule;  // see schedules.h
  // The first that matches a param's name holds; params without one take the optimizer's options.
  std::vector<ParamGroup> groups;
  double clip_norm = 0;    // of all gradients together; 0: not clipped
  int64_t accumulate = 1;  // gradients averaged into one step
  // A step whose loss or gradients are not finite changes nothing but the flag and the counters. Loss scaling
  // needs it.
  bool skip_bad_steps = true;
  LossScale loss_scale;
  bool gradients_entry = false;
  Precision precision = Precision::kF32;  // of the first entry, others stay as they are
};

// bad_option for numbers out of range.
void check_loss_scale(const LossScale& scale);

// Errors: no_params, unused_param, bad_graph (no entry, a reserved name), bad_option, and those of
// add_gradients.
Program make_train_program(const Program& forward, const TrainOptions& options);

}  // namespace aicf
