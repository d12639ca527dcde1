// The kernels of an entry at bound sizes, as the driver takes them: functions, grids, and argument lists
// whose addresses can be set again.
#pragma once

#include <memory>
#include <vector>

#include "runtime/bind_step.h"
#include "runtime/cuda/cuda_context.h"
#include "runtime/cuda/library_routine.h"

namespace aicf::cuda {

class ControlFlow;

class OwnedGraph {
 public:
  OwnedGraph();
  explicit OwnedGraph(Graph handle) : handle_(handle) {}
  ~OwnedGraph();
  OwnedGraph(const OwnedGraph&) = delete;
  OwnedGraph& operator=(const OwnedGraph&) = delete;
  Graph handle() const { return handle_; }

 private:
  Graph handle_ = nullptr;
};

// Of the buffers of every body of the plan, as of BufferAddresses.
using BodyAddresses = std::vector<std::vector<std::byte*>>;

// As aicf::CallError of prelude.cuh.
struct DeviceError {
  int32_t raised, reserved;
  int64_t value, bound;
};

class Launches {
 public:
  // Evaluates every launch of the entry; those with an empty grid are left out. Windows are checked as
  // bind_step does.
  Launches(std::shared_ptr<DeviceContext> context, const Plan& plan, const EntryPlan& entry,
           const Modules& modules, const SymbolValues& sizes, const BodyAddresses& bodies);
  ~Launches();
  Launches(const Launches&) = delete;
  Launches& operator=(const Launches&) = delete;

  struct Kernel {
    int32_t step = 0;
    std::string function;   // of the module; empty for a library's and for control flow
    KernelNodeParams node;  // node.params points into `arguments`
    int cluster = 1;
    bool changed = true;  // since it was last given to the driver
    bool reports_errors = false;
    // Either runs in place of a kernel; then `node` means nothing.
    std::shared_ptr<LibraryRoutine> library;
    std::shared_ptr<ControlFlow> control;
  };
  // Enqueues a library's routine with the present addresses.
  void enqueue(Kernel& kernel, StreamHandle stream);
  // The same as a graph, which the caller owns.
  Graph capture(Kernel& kernel);
  std::vector<Kernel>& kernels() { return kernels_; }
  const std::vector<Kernel>& kernels() const { return kernels_; }
  // Whether any of them is `changed`, until settle(): most replays change none, and asking each takes time.
  bool changed() const { return changed_; }
  // Whether control flow has: its nodes hold addresses that a captured graph cannot be given anew.
  bool needs_capture() const;
  void settle();
  // With those of the bodies of control flow.
  size_t kernel_count() const;
  Context context() const { return context_->handle(); }
  const BoundCall& call(const Kernel& kernel) const { return calls_[static_cast<size_t>(kernel.step)]; }
  const Step& step(const Kernel& kernel) const { return entry_.steps[static_cast<size_t>(kernel.step)]; }
  const Step& step(size_t number) const { return entry_.steps[number]; }
  // For the calls that follow in its scope.
  CallsFor calls_for(const Kernel& kernel) const;
  // The same for calls about all of them.
  CallsFor calls_for_all() const { return CallsFor(name_); }
  size_t step_count() const { return entry_.steps.size(); }
  // Puts the address of a buffer into every argument list that uses it.
  void set_address(int32_t buffer, std::byte* address);
  std::byte* address(int32_t buffer) const { return addresses_[static_cast<size_t>(buffer)]; }
  // UserError index_out_of_range if a kernel reported one since the last call.
  void report_errors();

 private:
  void report_own_errors();
  struct Arguments {
    std::vector<uint64_t> words;  // addresses, params, fparams, the error's address
    std::vector<TensorMap> maps;
    std::vector<void*> pointers;  // to the words and maps, in the order of the ABI
    const CudaLaunch* launch = nullptr;
  };
  void add(const Step& step, int32_t index, const CudaLaunch& launch, const Modules& modules,
           const SymbolValues& sizes);
  bool add_library(const Step& step, int32_t index);
  void add_other(Kernel kernel);
  void encode_maps(Arguments& arguments, int32_t step);

  std::shared_ptr<DeviceContext> context_;
  const EntryPlan& entry_;
  const std::string name_;        // of the entry, for errors
  std::vector<BoundCall> calls_;  // windows of every step
  std::vector<AddressPatch> patches_;
  std::vector<Kernel> kernels_;
  std::vector<std::unique_ptr<Arguments>> arguments_;  // of every kernel; null for a library's
  std::vector<std::vector<size_t>> kernels_of_step_;
  std::vector<std::byte*> addresses_;
  bool changed_ = true;
  std::vector<size_t> reporting_;  // steps that may report an error, in their order
  // One DeviceError for each step, of a bundle one for each member; where those of a step begin, and at last
  // how many there are.
  std::unique_ptr<MappedMemory> errors_;
  std::vector<size_t> first_error_ = {0};
};

}  // namespace aicf::cuda
