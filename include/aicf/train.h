// Training: from a Program that computes a loss, the program of a whole training step, and runs of it.
// docs/training.md lists its entries and states and what is guaranteed.
//
//   aicf::Builder b("loss");                       // params, inputs, …
//   b.output("loss", aicf::add_loss(b, "cross_entropy", logits, labels));
//   aicf::TrainOptions options;
//   options.optimizer.kind = "adamw";
//   options.schedule = aicf::Schedule::cosine(3e-4, 5000).warmup(100);
//   aicf::TrainStep step(aicf::compile(aicf::make_train_program(b.finish(), options)));
//   float loss = step.run({x, y})[0].as<float>()[0];
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "aicf/compile.h"
#include "aicf/executable.h"
#include "aicf/graph.h"

namespace aicf::v1 {

struct LossOptions {
  bool sum = false;              // instead of the mean
  double delta = 1.0;            // "huber"
  double label_smoothing = 0.0;  // "cross_entropy"
  int64_t ignore_index = -100;   // "cross_entropy"
};

// Appends a scalar loss: "mse", "huber", "cross_entropy" (logits [N, C, …], integer labels [N, …]),
// "bce_with_logits", "kl_divergence" (log probabilities, probabilities).
AICF_API Value add_loss(Builder& builder, const std::string& kind, Value prediction, Value target,
                        const LossOptions& options = {});

// The learning rate as a function of the steps finished, computed inside the step.
class AICF_API Schedule {
 public:
  static Schedule constant(double rate);
  static Schedule linear(double first, double last, int64_t total);
  static Schedule cosine(double peak, int64_t total, double floor = 0);
  static Schedule step(double rate, double factor, int64_t every);
  // Rises evenly to the first rate in `steps` steps; this schedule begins after them.
  Schedule warmup(int64_t steps) const;

 private:
  friend struct Access;
  Schedule() = default;
  struct Impl;
  detail::Held<std::shared_ptr<const Impl>> impl_;
};

struct OptimizerOptions {
  std::string kind = "adamw";  // or "adam", "sgd"
  double momentum = 0;         // "sgd"
  bool nesterov = false;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;  // "adam", "adamw"
  double weight_decay = 0;
};

// Params whose names match a pattern ('*' stands for any text) and are treated apart.
struct ParamGroup {
  std::vector<std::string> patterns;
  double rate_factor = 1;
  double weight_decay = -1;  // negative: the optimizer's
  bool trainable = true;
};

struct LossScale {
  double initial = 0;  // 0: the loss is not scaled
  bool dynamic = true;
  double growth = 2, backoff = 0.5;
  int64_t interval = 2000;
};

struct TrainOptions {
  OptimizerOptions optimizer;
  Schedule schedule = Schedule::constant(1e-3);
  std::vector<ParamGroup> groups;  // the first that matches holds
  double clip_norm = 0;            // 0: not clipped
  int64_t accumulate = 1;          // batches averaged into one optimizer step
  bool skip_bad_steps = true;      // a step that is not finite changes nothing
  LossScale loss_scale;
  std::string precision = "f32";  // or "tf32", "bf16-mixed", "f16-mixed", "bf16-pure"
  bool gradients_entry = false;   // an entry "gradients" with outputs `d_<param>`
};

// Of a program whose first entry has the loss, a float scalar, as its first output. AICF-U0800 to -U0804.
AICF_API Program make_train_program(const Program& forward, const TrainOptions& options);

// A training run. Everything that it is stands in params and states, so a run that begins from a checkpoint
// reaches the same bits.
class AICF_API TrainStep {
 public:
  // AICF-U0807 if the artifact has no train step.
  explicit TrainStep(const Artifact& artifact, const LoadOptions& options = {});
  static TrainStep load(const std::string& path, const LoadOptions& options = {});
  TrainStep(TrainStep&&) noexcept;
  TrainStep& operator=(TrainStep&&) noexcept;
  ~TrainStep();

  // One batch, in the order of the step's inputs; the loss comes first. Every `accumulate`-th makes an
  // optimizer step.
  std::vector<Tensor> run(const std::vector<TensorView>& inputs);
  // Any other entry, with the present params.
  std::vector<Tensor> run_entry(const std::string& entry, const std::vector<TensorView>& inputs);

  // Inputs, states and the like.
  const Executable& executable() const;
  int64_t steps() const;
  int64_t skipped() const;
  // The first tensor that was not finite, "loss" or "d_<param>"; "" if all were.
  std::string bad_tensor() const;
  // AICF-U0806 if one was not finite.
  void require_finite() const;
  void clear_bad_tensor();

  // Trained params and all states by name; setting them checks every name, dtype and shape first
  // (AICF-U0805).
  std::map<std::string, Tensor> states() const;
  void set_states(const std::map<std::string, Tensor>& states);
  // Safetensors; the file appears by rename.
  void save_checkpoint(const std::string& path,
                       const std::map<std::string, std::string>& metadata = {}) const;
  // Gives the metadata.
  std::map<std::string, std::string> load_checkpoint(const std::string& path);
  // An .aicf file with the present params and states.
  void save(const std::string& path) const;
  // xxh3-128 of params and states, as 32 hex digits.
  std::string hash() const;

 private:
  struct Impl;
  explicit TrainStep(Executable executable);
  detail::Held<std::unique_ptr<Impl>> impl_;
};

// The rows of an epoch in the order in which `aicf train` visits them.
AICF_API std::vector<int64_t> shuffled_rows(int64_t rows, uint64_t seed, int64_t epoch);

}  // namespace aicf::v1
