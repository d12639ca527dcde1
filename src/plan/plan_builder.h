// Places every value that selection named: buffers by role, lifetimes, arena offsets, the packed area. Takes
// the selected calls of each entry with the code of their regions; gives the Plan and the constants it refers
// to.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "kernels/cuda_launch.h"
#include "plan/plan.h"
#include "select/kernel_call.h"

namespace aicf {

class PlanBuilder {
 public:
  // Contents of kConstant buffers are put into `constants` by name, beside those of other plans of the file.
  PlanBuilder(const Program& program, std::map<std::string, Array>& constants);

  // `programs[i]` is the program of calls.regions[i]. `launches[i]` is what runs calls.calls[i] on a CUDA
  // target, whose steps carry no programs, and `init_launches[i]` what runs calls.init_calls[i]; both empty
  // for the CPU.
  void add_entry(const Graph& graph, const KernelCalls& calls, const std::vector<TileProgram>& programs,
                 const std::vector<StepLaunches>& launches = {},
                 const std::vector<StepLaunches>& init_launches = {},
                 const std::vector<int32_t>& bodies = {});
  // A body of control flow, before the graph that holds it; its number. Calls of `graph` name the bodies in
  // calls.bodies, whose numbers are `bodies`.
  int32_t add_body(const Graph& graph, const KernelCalls& calls, const std::vector<TileProgram>& programs,
                   const std::vector<StepLaunches>& launches, const std::vector<StepLaunches>& init_launches,
                   const std::vector<int32_t>& bodies);
  // What is added from here on is for these sizes only, an entry a bucket of the one of its name; none: for
  // all sizes.
  void narrow(SymbolRanges bucket);
  // The whole plan, its entry "init" last if anything is packed.
  Plan finish();

 private:
  struct EntryState;
  int32_t intern_program(const TileProgram& program);
  std::string intern_constant(const Array& array);
  int32_t buffer_of(EntryState& state, ValueId root);
  EntryPlan plan_graph(const Graph& graph, const KernelCalls& calls, const std::vector<TileProgram>& programs,
                       const std::vector<StepLaunches>& launches,
                       const std::vector<StepLaunches>& init_launches, const std::vector<int32_t>& bodies);
  Step step_of(EntryState& state, size_t number);
  static void add_step(EntryState& state, Step step);
  static int32_t add_workspace(EntryState& state, std::string name, int64_t bytes);
  void add_bodies(EntryState& state, const KernelCall& call, const std::vector<int32_t>& bodies, Step& step);
  void add_library(EntryState& state, const LibraryUse& use, Step& step);
  void add_launches(EntryState& state, const StepLaunches& launches, Step& step);
  void reuse_input(EntryState& state, size_t index, const Window& output);
  TensorRef tensor_ref(int32_t buffer, const Window& window) const;
  void add_init(EntryState& state, const std::vector<TileProgram>& programs,
                const std::vector<StepLaunches>& launches);
  int32_t packed_buffer(const EntryState& state, ValueId root);
  // The buffer of init that holds a weight, or what an earlier step of init made.
  int32_t init_source(const EntryState& state, ValueId root);
  std::string packed_key(const EntryState& state, const std::vector<TileProgram>& programs, ValueId root);
  Buffer variable_or_constant(const Value& value);

  Plan plan_;
  SymbolRanges bucket_, ranges_;  // of what is added now; ranges_: of all sizes
  EntryPlan init_;
  std::vector<TileProgram> init_programs_;  // seen in steps of init, for packed_key
  std::map<std::string, Array>& constants_;
  std::map<std::string, int64_t> packed_offsets_;  // key: how the value is made of which sources
  std::map<int64_t, int32_t> init_packed_;         // offset of a packed value → buffer of init
};

}  // namespace aicf
