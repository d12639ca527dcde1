// A trial on a device: a plan of its own with several copies of every buffer, bound and filled.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "kernels/common/cuda_launch.h"
#include "runtime/device.h"
#include "tune/operand_values.h"
#include "tune/trial.h"

namespace aicf {

class TrialRun {
 public:
  // `trial_code`: as the builder gives it for a GPU; empty for the CPU. `rounded`: the dtypes whose values
  // the operands hold; `values`: those of the problem.
  TrialRun(Device& device, const Code* code, const Trial& trial, const CodedGraph& trial_code,
           const std::vector<DType>& rounded, OperandValues& values, const SymbolRanges& ranges,
           const SymbolValues& sizes, int64_t copies);

  // Overwrites the first copy's outputs with a pattern that is no number.
  void poison();
  // All copies once; returns before they are done.
  void run() { main_->run({}); }
  void finish() { main_->finish({}); }
  int64_t copies() const { return copies_; }
  // Bytes of sampled rows of output `i` of the first copy, row by row.
  std::vector<std::byte> read(size_t output) const;
  const PlainWindow& output(size_t i) const { return outputs_[i]; }
  size_t output_count() const { return outputs_.size(); }

 private:
  void add_buffers(const Trial& trial, const CodedGraph& code);
  void add_steps(const std::vector<KernelCall>& calls, const std::vector<StepLaunches>& launches,
                 EntryPlan& entry);
  std::byte* address(ValueId root, int64_t copy) const;

  Device& device_;
  SymbolValues sizes_;
  int64_t copies_;
  Plan plan_;
  EntryPlan entry_, init_entry_;
  std::map<ValueId, int64_t> bytes_;   // by root
  std::map<ValueId, int64_t> offset_;  // by root, within a copy
  int64_t copy_bytes_ = 0;
  std::vector<PlainWindow> outputs_;
  std::vector<ValueId> output_roots_;
  std::unique_ptr<DeviceMemory> memory_;
  std::unique_ptr<Sequence> init_, main_;
};

// The code of the trial's regions.
std::vector<TileProgram> programs_of(const Trial& trial);

// Bytes of one copy of the trial's operands and outputs.
int64_t trial_bytes(const Trial& trial, const SymbolValues& sizes);

}  // namespace aicf
