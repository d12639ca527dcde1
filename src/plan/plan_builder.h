// Places every value that selection named: buffers by role, lifetimes, arena offsets, the packed area. Takes
// the selected calls of each entry with the code of their regions; gives the Plan and the constants it refers
// to.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "kernels/common/cuda_launch.h"
#include "plan/plan.h"
#include "select/call_program.h"

namespace aicf {

class PlanBuilder {
 public:
  // Contents of kConstant buffers are put into `constants` by name, beside those of other plans of the file.
  PlanBuilder(const Program& program, std::map<std::string, Array>& constants);

  // The next graph of a CallProgram. `code` has the launches of a CUDA target, whose steps carry no programs;
  // none for the CPU. An entry for a bucket of sizes is one of its name; a body is numbered for the graphs
  // that run it.
  void add(const CallGraph& calls, const CodedGraph& code);
  // The whole plan, its entry "init" last if anything is packed.
  Plan finish();

 private:
  struct EntryState;
  int32_t intern_program(const TileProgram& program);
  std::string intern_constant(const Array& array);
  int32_t buffer_of(EntryState& state, ValueId root);
  EntryPlan plan_graph(const CallGraph& calls, const CodedGraph& code);
  Step step_of(EntryState& state, size_t number);
  static void add_step(EntryState& state, Step step);
  static int32_t add_workspace(EntryState& state, std::string name, int64_t bytes);
  void add_bodies(EntryState& state, const KernelCall& call, Step& step);
  void add_library(EntryState& state, const LibraryRun& library, Step& step);
  void add_launches(EntryState& state, const StepLaunches& launches, Step& step);
  void reuse_input(EntryState& state, size_t index, const Window& output);
  TensorRef tensor_ref(int32_t buffer, const Window& window) const;
  void add_init(EntryState& state, const std::vector<StepLaunches>& launches);
  int32_t packed_buffer(const EntryState& state, ValueId root);
  // The buffer of init that holds a weight, or what an earlier step of init made.
  int32_t init_source(const EntryState& state, ValueId root);
  std::string packed_key(const EntryState& state, ValueId root);
  Buffer variable_or_constant(const Value& value);

  Plan plan_;
  SymbolRanges ranges_;           // of all sizes of what is added now
  std::vector<int32_t> numbers_;  // in the plan, of graphs that are bodies
  EntryPlan init_;
  std::vector<TileProgram> init_programs_;  // seen in steps of init, for packed_key
  std::map<std::string, Array>& constants_;
  std::map<std::string, int64_t> packed_offsets_;  // key: how the value is made of which sources
  std::map<int64_t, int32_t> init_packed_;         // offset of a packed value → buffer of init
};

}  // namespace aicf
