// A training run: an Executable of a program made by make_train_program, stepped, saved and restored. Takes
// batches, gives the outputs of the step (the loss first). Everything that a run is stands in the
// executable's params and states, so a checkpoint is those, and a run that begins from it goes on to the same
// bits.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/training_names.h"
#include "runtime/executable.h"
#include "runtime/verify.h"

namespace aicf {

class Trainer {
 public:
  // `executable` outlives the trainer. not_trainable if its model has no step entry.
  explicit Trainer(Executable& executable);

  // Inputs and outputs of a step; those of the accumulating entry are the same.
  const EntryPlan& entry() const { return executable_.entry(kStepEntry); }

  // One batch, in the order of entry().inputs; every accumulate()-th makes an optimizer step. Errors as
  // Executable::run.
  std::vector<Array> step(const std::vector<TensorView>& inputs, const RunOptions& options = {});
  void step_into(const std::vector<TensorView>& inputs, const std::vector<TensorView>& outputs,
                 const RunOptions& options = {});

  // One call of a caller that runs the executable itself: from its start to its end there is no other, and no
  // new states. Unless done() is said it failed, as when an index in the data is met after the run.
  class Turn {
   public:
    explicit Turn(Trainer& trainer);  // busy if a call is in flight
    ~Turn() {
      if (!done_) trainer_.micro_ = kUnknown;
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    const char* entry() const;  // that takes this batch
    void done();

   private:
    Trainer& trainer_;
    RunGuard guard_;
    bool done_ = false;
  };

  // Puts all params and states back at the end of a scope to what they were at its beginning.
  class Snapshot {
   public:
    explicit Snapshot(Trainer& trainer) : trainer_(trainer), before_(trainer.states()) {}
    ~Snapshot();
    Snapshot(const Snapshot&) = delete;
    Snapshot& operator=(const Snapshot&) = delete;
    void restore() { trainer_.set_states(before_); }

   private:
    Trainer& trainer_;
    std::map<std::string, Array> before_;
  };

  int64_t accumulate() const { return accumulate_; }
  // Optimizer steps finished, and those skipped because something was not finite. They wait for the device.
  int64_t steps() const { return counter(kStepState); }
  int64_t skipped() const;
  // Whether the loss is scaled, so that a step skipped now and then is no mistake.
  bool scales_loss() const;
  // The first tensor that was not finite since the flag was last cleared: "loss", "d_<param>"; "" if none.
  std::string bad_tensor() const;
  // bad_tensor naming it and the skipped steps, if there is one.
  void require_finite() const;
  void clear_bad_tensor();

  // xxh3-128 of states() and these arrays.
  std::string hash(const std::vector<Array>& outputs = {}) const;

  // Params that are trained and all states, by name. Setting them checks that names, dtypes and shapes are
  // exactly these and that counters are in range: bad_checkpoint lists every difference, and nothing has
  // changed then.
  std::map<std::string, Array> states() const;
  void set_states(const std::map<std::string, Array>& states);
  // As a safetensors file that appears by rename: the one before stays whole if this fails or the process is
  // killed.
  void save_checkpoint(const std::string& path,
                       const std::map<std::string, std::string>& metadata = {}) const;
  // Gives the metadata. file_not_found, bad_model_file, bad_checkpoint.
  std::map<std::string, std::string> load_checkpoint(const std::string& path);
  // The model with its present params and states as the contents at load.
  Artifact artifact() const;

  // Runs `steps` batches from the present states `runs` times and hashes every output, param and state at the
  // end; batch(i) gives the inputs of the i-th. The states are as before afterwards.
  VerifyResult verify(int64_t steps, int64_t runs,
                      const std::function<std::vector<TensorView>(int64_t)>& batch);

 private:
  int64_t counter(const std::string& name) const;
  void check_counters(const std::map<std::string, Array>& states) const;
  Executable& executable_;
  std::atomic_flag stepping_ = ATOMIC_FLAG_INIT;  // with micro_, which a run of the executable does not hold
  bool has_micro_ = false, has_flag_ = false;
  int64_t accumulate_ = 1;
  static constexpr int64_t kUnknown = -1;
  int64_t micro_ = kUnknown;  // as in the state, kept here so that a step needs no look at the device
};

}  // namespace aicf
