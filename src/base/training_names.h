// Names that a training program and those who run it agree on: entries, states and metadata. docs/training.md
// says what each means to a user.
#pragma once

namespace aicf {

inline constexpr const char* kStepEntry = "step";
inline constexpr const char* kAccumulateEntry = "accumulate";
inline constexpr const char* kGradientsEntry = "gradients";

// States of every run, all scalars.
inline constexpr const char* kStepState = "opt.step";    // i64: optimizer steps finished
inline constexpr const char* kMicroState = "opt.micro";  // i64: gradients accumulated since
// i64: the first tensor found not finite, -1: none.
inline constexpr const char* kBadTensorState = "opt.bad_tensor";
inline constexpr const char* kSkippedState = "opt.skipped";       // i64: steps skipped for that
inline constexpr const char* kLossScaleState = "opt.loss_scale";  // f32
inline constexpr const char* kGoodStepsState = "opt.good_steps";  // i64: since the loss scale last changed
// States that a forward entry advances whatever becomes of the step: counters of random numbers.
inline constexpr const char* kCounterPrefix = "rng.";

// Metadata: what its keys begin with; how many gradients make a step; the tensors that opt.bad_tensor counts,
// one on each line.
inline constexpr const char* kTrainingMetadata = "aicf.train.";
inline constexpr const char* kAccumulateKey = "aicf.train.accumulate";
inline constexpr const char* kCheckedKey = "aicf.train.checked";
// There if entries without params compute gradients, or what gradients are computed from later: a part of a
// training step.
inline constexpr const char* kGradientsKey = "aicf.gradients";
// The schedule as text: an entry from the optimizer steps finished to the rate of the next.
inline constexpr const char* kScheduleKey = "aicf.train.schedule";

}  // namespace aicf
