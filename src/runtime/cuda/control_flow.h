// A step of control flow inside a CUDA Graph: its bodies are the graphs within conditional nodes, and small
// kernels tell these whether to run. A loop's body reads one set of what is carried and writes the other,
// which is copied back before the next trip, because the addresses of a graph's kernels are fixed; rows that
// a scan walks are copied likewise.
#pragma once

#include <memory>
#include <vector>

#include "kernels/common/control_launches.h"
#include "runtime/bind_control.h"
#include "runtime/cuda/launches.h"

namespace aicf::cuda {

class NodeChain;

class ControlFlow {
 public:
  // `call` is the bound step.
  ControlFlow(const std::shared_ptr<DeviceContext>& context, const Plan& plan, const Step& step,
              const BoundCall& call, const Modules& modules, const SymbolValues& sizes,
              const BodyAddresses& addresses);

  // Adds its nodes, for the addresses that the call has now.
  void add_to(NodeChain& chain, const BoundCall& call);
  size_t kernel_count() const;  // of the bodies
  // As Launches::report_errors, of the bodies; over_limit if a loop took longer than AICF_MAX_SECONDS, which
  // ended it.
  void report_errors();

 private:
  void report_late();
  struct Move {  // as in control.cuh
    std::byte* to;
    const std::byte* from;
    int64_t bytes, to_step, from_step;
  };
  enum class Rows : uint8_t { kOne, kOfTheTrip };

  void add_branches(NodeChain& chain, const BoundCall& call);
  void add_loop(NodeChain& chain, const BoundCall& call);
  void add_scan(NodeChain& chain, const BoundCall& call);
  void begin_carrying(NodeChain& chain, const BoundCall& call);
  void end_carrying(NodeChain& chain, const BoundCall& call);
  std::vector<Move> carried_back() const;

  void add_body(NodeChain& chain, size_t body);
  void add_test(NodeChain& chain, ConditionalHandle handle, bool begins);
  void add_trip(NodeChain& chain, ConditionalHandle handle, bool begins) const;
  void add_moves(NodeChain& chain, const std::vector<Move>& moves, Rows rows) const;
  void add_kernel(NodeChain& chain, ControlLaunch which, unsigned blocks, unsigned rows,
                  void* arguments) const;
  void set_input(size_t body, size_t i, std::byte* address);
  void set_output(size_t body, size_t i, std::byte* address);
  std::byte* place(int64_t offset) const { return workspace_ + offset; }
  // Where the body of a loop or scan reads what is carried.
  std::byte* carried(size_t i, const BoundCall& call) const;

  const Step& step_;
  BoundControl control_;
  Context context_;
  Function functions_[kControlLaunches];
  std::vector<std::unique_ptr<Launches>> bodies_;
  std::byte* workspace_ = nullptr;
  double limit_;       // seconds that a loop may take
  MappedMemory late_;  // nanoseconds of one that took longer, or 0
};

}  // namespace aicf::cuda
