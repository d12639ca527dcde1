// From a program that computes a loss, the program of a training run. It takes a program whose first entry
// gives the loss as its first output, a float scalar, and gives entries over the same params and states:
//
//   "step"        inputs and outputs of the first entry; updates every trained param, the optimizer's states,
//   and
//                 whatever the first entry updates
//   "accumulate"  only if accumulate > 1: the same inputs and outputs, adds the gradients to states; the
//   caller runs it
//                 accumulate - 1 times before each "step"
//   "gradients"   if asked for: the same inputs; outputs `d_<param>` and the loss, no updates
//
// and all other entries as they were. docs/training.md lists the states by name. Training needs nothing of
// the runtime beyond entries and updates.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "train/optimizers.h"

namespace aicf {

inline constexpr const char* kStepEntry = "step";
inline constexpr const char* kAccumulateEntry = "accumulate";
inline constexpr const char* kGradientsEntry = "gradients";
// States of every run, all scalars.
inline constexpr const char* kStepState = "opt.step";    // i64: optimizer steps finished
inline constexpr const char* kMicroState = "opt.micro";  // i64: gradients accumulated since
inline constexpr const char* kBadTensorState =
    "opt.bad_tensor";  // i64: index of the first tensor found not finite
inline constexpr const char* kSkippedState = "opt.skipped";       // i64: steps skipped for that
inline constexpr const char* kLossScaleState = "opt.loss_scale";  // f32
inline constexpr const char* kGoodStepsState = "opt.good_steps";  // i64: since the loss scale last changed
// States that a forward entry advances whatever happens to the step: counters of random numbers.
inline constexpr const char* kCounterPrefix = "rng.";
// Metadata of the program: how many gradients make a step, and the names that opt.bad_tensor counts, by line.
inline constexpr const char* kAccumulateKey = "aicf.train.accumulate";
inline constexpr const char* kCheckedKey = "aicf.train.checked";

struct LossScale {
  double initial = 0;  // 0: the loss is not scaled
  bool dynamic = true;
  double growth = 2, backoff = 0.5;
  int64_t interval = 2000;  // good steps until it grows
};

struct TrainOptions {
  OptimizerOptions optimizer;
  Graph schedule;  // see schedules.h
  std::vector<ParamGroup>
      groups;              // the first that matches a param's name holds; others: the optimizer's options
  double clip_norm = 0;    // of all gradients together; 0: not clipped
  int64_t accumulate = 1;  // gradients averaged into one step
  // A step whose loss or gradients are not finite changes nothing but the flag and the counters. Loss scaling
  // needs it.
  bool skip_bad_steps = true;
  LossScale loss_scale;
  bool gradients_entry = false;
};

// Errors: bad_graph (no params, a loss that is no float scalar, an integer param, a param that the loss does
// not depend on, a reserved name), bad_option, and those of add_gradients.
Program make_train_program(const Program& forward, const TrainOptions& options);

}  // namespace aicf
