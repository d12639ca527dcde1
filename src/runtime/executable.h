// What runs: an Executable owns states, an arena and the bound sequences of one user of a Model; one run is
// in flight at a time. docs/binding.md is the contract of inputs, outputs and sizes.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/bound_entry.h"
#include "runtime/run_guard.h"
#include "runtime/state_turns.h"
#include "runtime/states.h"
#include "runtime/step_cost.h"

namespace aicf {

struct RunOptions {
  Stream stream;  // of a device that has queues: where the run is ordered
  // False: return when everything is queued; data errors are met by finish() or a later run.
  bool wait = true;
};

class Executable {
 public:
  explicit Executable(std::shared_ptr<const Model> model);
  ~Executable();

  const Model& model() const { return *model_; }
  // UserError bad_option listing the entries if there is none of this name; "" is the first.
  const EntryPlan& entry(const std::string& name) const;

  // Sizes that these inputs give; errors input_dtype, input_shape, size_conflict, size_out_of_range,
  // unset_size.
  SymbolValues bind_sizes(const EntryPlan& entry, const std::vector<TensorView>& inputs) const;
  std::vector<int64_t> output_sizes(const EntryPlan& entry, size_t output, const SymbolValues& sizes) const;

  // Inputs and outputs in the order of the entry. Outputs must have exactly the sizes that the inputs imply.
  // With sizes seen before and row-major memory it allocates nothing.
  void run_into(const std::string& entry, const std::vector<TensorView>& inputs,
                const std::vector<TensorView>& outputs, const RunOptions& options = {});
  // Waits for all runs and reports their data errors.
  void finish();
  // Allocates the outputs.
  std::vector<Array> run(const std::string& entry, const std::vector<TensorView>& inputs,
                         const RunOptions& options = {});
  // Outputs in the device's memory, from a pool.
  std::vector<DeviceTensor> run_on_device(const std::string& entry, const std::vector<TensorView>& inputs,
                                          const RunOptions& options = {});
  // Uninitialized, from the pool of run_on_device.
  DeviceTensor device_tensor(DType dtype, std::vector<int64_t> sizes, Stream stream = {});
  // By name: missing_input, unknown_input.
  std::map<std::string, Array> run(const std::string& entry, const std::map<std::string, Array>& inputs);

  std::vector<Binding> input_bindings(const EntryPlan& entry) const;
  // The plan of the last bind of the entry: of a bucket, or the entry itself.
  const EntryPlan& bound_plan(const EntryPlan& entry) const;
  // How the last bind of the entry runs, for people: "63/63 kernels in 1 graph"; empty before a run and on
  // devices without graphs.
  std::string coverage(const EntryPlan& entry) const;
  // What each step of bound_plan(entry) takes and moves; empty before a run and on devices that
  // cannot tell. Replays the entry over the memory of that run, which must still be there; states advance.
  std::vector<StepCost> profile(const EntryPlan& entry, int repeats);

  // States by name; set copies, get copies. unknown_param, input_shape, and then none is set. All of this
  // waits for the run in flight, also in another thread, and states() is of one moment.
  Array state(const std::string& name) const;
  std::map<std::string, Array> states() const;
  void set_state(const std::string& name, const Array& value);
  void set_states(const std::map<std::string, Array>& values);
  std::vector<std::string> state_names() const;
  // All states as at load.
  void reset();
  // A second user of the same model with states of its own, equal to the present ones.
  std::unique_ptr<Executable> clone() const;
  // Until the guard goes another run is busy; busy if one is in flight.
  RunGuard hold_off_runs() { return RunGuard(running_); }

 private:
  using Bound = std::vector<std::unique_ptr<BoundEntry>>;
  const BoundEntry* last_bound(const EntryPlan& entry) const;  // null: none
  Bound::iterator find_bound(const EntryPlan& entry, const std::vector<TensorView>& inputs);
  BoundEntry& bind(const EntryPlan& entry, const SymbolValues& sizes);
  std::vector<std::byte*> buffer_addresses(const EntryPlan& entry) const;
  void prepare_arena(const EntryPlan& entry, const SymbolValues& sizes);
  void run_bound(const EntryPlan& plan, const std::vector<TensorView>& inputs,
                 const std::vector<TensorView>& outputs, const RunOptions& options);
  // What `run` does; if it throws, the states that the bound entry may have written are lost.
  template <typename Run>
  void run_or_lose(const BoundEntry& bound, const Run& run);
  void continue_on(Stream stream);
  void wait_for_runs() const;
  StateTurns::Turn between_runs() const;
  void warm_up(BoundEntry& bound, Stream stream);

  std::shared_ptr<const Model> model_;
  std::unique_ptr<DeviceMemory> arena_;
  States states_;
  std::shared_ptr<DevicePool> pool_ = std::make_shared<DevicePool>();
  Stream last_stream_;      // of the last run: what reads or writes states waits for it
  bool under_way_ = false;  // the last run may not be done
  Bound bound_;             // most recently used first
  std::atomic_flag running_ = ATOMIC_FLAG_INIT;
  StateTurns states_in_use_;
};

}  // namespace aicf
