#include "runtime/cuda/control_flow.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/limits.h"
#include "runtime/cuda/first_error.h"
#include "runtime/cuda/node_chain.h"

namespace aicf::cuda {
namespace {

// Arguments of kernels/control/control.cuh.
struct Branches {
  const void* condition;
  uint64_t taken[2];
  int32_t count;
  std::byte* began;
  uint64_t late, limit;
  bool begins;
};
struct Trips {
  std::byte* trip;
  uint64_t handle;
  int64_t length;
  bool begins;
};
constexpr size_t kMostMoves = 16;

std::byte* data_of(const TensorArg& arg) { return static_cast<std::byte*>(arg.data); }

}  // namespace

ControlFlow::ControlFlow(const std::shared_ptr<DeviceContext>& context, const Plan& plan, const Step& step,
                         const BoundCall& call, const Modules& modules, const SymbolValues& sizes,
                         const BodyAddresses& addresses)
    : step_(step),
      control_(bind_control(plan, step, call, sizes)),
      context_(context->handle()),
      limit_(resource_limits().seconds),
      late_(context, sizeof(uint64_t)) {
  for (size_t i = 0; i < kControlLaunches; ++i)
    functions_[i] = modules.function(step.module, step.launches[i].function);
  for (size_t i = 0; i < control_.bodies.size(); ++i) {
    const auto number = static_cast<size_t>(step.bodies[i]);
    bodies_.push_back(
        std::make_unique<Launches>(context, plan, *control_.bodies[i].plan, modules, sizes, addresses));
    const std::vector<std::byte*>& own = addresses.at(number);
    for (size_t b = 0; b < own.size(); ++b)
      if (own[b] != nullptr) bodies_[i]->set_address(static_cast<int32_t>(b), own[b]);
  }
}

void ControlFlow::add_to(NodeChain& chain, const BoundCall& call) {
  workspace_ = data_of(call.outputs.back());
  for (size_t i = 0; i < bodies_.size(); ++i) {
    const std::vector<Buffer>& buffers = control_.bodies[i].plan->buffers;
    for (size_t b = 0; b < buffers.size(); ++b)
      if (buffers[b].kind == BufferKind::kArena)
        bodies_[i]->set_address(static_cast<int32_t>(b), place(buffers[b].offset));
  }
  if (step_.kernel == kIfElse) {
    add_branches(chain, call);
  } else if (step_.kernel == kWhileLoop) {
    add_loop(chain, call);
  } else {
    add_scan(chain, call);
  }
}

void ControlFlow::add_branches(NodeChain& chain, const BoundCall& call) {
  const std::vector<ConditionalHandle> handles{chain.make_handle(), chain.make_handle()};
  Branches branches{call.inputs[0].data, {handles[0], handles[1]}, 2, nullptr, 0, 0, false};
  add_kernel(chain, kChooseBranch, 1, 1, &branches);
  for (size_t b = 0; b < bodies_.size(); ++b) {
    for (size_t i = 0; i + 1 < call.inputs.size(); ++i) set_input(b, i, data_of(call.inputs[i + 1]));
    for (size_t i = 0; i + 1 < call.outputs.size(); ++i) set_output(b, i, data_of(call.outputs[i]));
    NodeChain taken(chain.add_conditional(handles[b], kIf), context_, false);
    add_body(taken, b);
  }
}

void ControlFlow::add_loop(NodeChain& chain, const BoundCall& call) {
  begin_carrying(chain, call);
  for (size_t i = 0; i < control_.carried(); ++i) set_input(0, i, carried(i, call));
  set_output(0, 0, place(control_.layout.condition));
  const ConditionalHandle handle = chain.make_handle();
  add_test(chain, handle, true);
  NodeChain trip(chain.add_conditional(handle, kWhile), context_, false);
  add_body(trip, 1);
  add_moves(trip, carried_back(), Rows::kOne);
  add_test(trip, handle, false);
  end_carrying(chain, call);
}

void ControlFlow::add_scan(NodeChain& chain, const BoundCall& call) {
  begin_carrying(chain, call);
  if (control_.length > 0) {
    const BoundControl::Body& body = control_.bodies[0];
    const size_t first = control_.carried(), walked = body.input_bytes.size() - first;
    std::vector<Move> taken, stacked;
    for (size_t i = 0; i < walked; ++i) {
      const int64_t bytes = body.input_bytes[first + i];
      set_input(0, first + i, place(control_.layout.rows[i]));
      taken.push_back({place(control_.layout.rows[i]), data_of(call.inputs[first + i]), bytes, 0, bytes});
    }
    for (size_t i = 0; control_.advancing() + i < body.output_bytes.size(); ++i) {
      const int64_t bytes = body.output_bytes[control_.advancing() + i];
      std::byte* row = place(control_.layout.rows[walked + i]);
      set_output(0, control_.advancing() + i, row);
      stacked.push_back({data_of(call.outputs[first + i]), row, bytes, bytes, 0});
    }
    const ConditionalHandle handle = chain.make_handle();
    add_trip(chain, handle, true);
    NodeChain trip(chain.add_conditional(handle, kWhile), context_, false);
    add_moves(trip, taken, Rows::kOfTheTrip);
    add_body(trip, 0);
    add_moves(trip, stacked, Rows::kOfTheTrip);
    add_moves(trip, carried_back(), Rows::kOne);
    add_trip(trip, handle, false);
  }
  end_carrying(chain, call);
}

std::byte* ControlFlow::carried(size_t i, const BoundCall& call) const {
  return control_.layout.next[i] < 0 ? data_of(call.inputs[i]) : place(control_.layout.carried[0][i]);
}

// Into the first set, which the last body reads; it writes the second.
void ControlFlow::begin_carrying(NodeChain& chain, const BoundCall& call) {
  const size_t last = bodies_.size() - 1;
  std::vector<Move> moves;
  for (size_t i = 0; i < control_.carried(); ++i) {
    set_input(last, i, carried(i, call));
    const int64_t next = control_.layout.next[i];
    if (next < 0) continue;
    set_output(last, static_cast<size_t>(next), place(control_.layout.carried[1][i]));
    moves.push_back({carried(i, call), data_of(call.inputs[i]), bytes_of(call.inputs[i]), 0, 0});
  }
  add_moves(chain, moves, Rows::kOne);
}

void ControlFlow::end_carrying(NodeChain& chain, const BoundCall& call) {
  std::vector<Move> moves;
  for (size_t i = 0; i < control_.carried(); ++i)
    moves.push_back({data_of(call.outputs[i]), carried(i, call), bytes_of(call.outputs[i]), 0, 0});
  add_moves(chain, moves, Rows::kOne);
}

std::vector<ControlFlow::Move> ControlFlow::carried_back() const {
  std::vector<Move> moves;
  for (size_t i = 0; i < control_.carried(); ++i)
    if (control_.layout.next[i] >= 0)
      moves.push_back({place(control_.layout.carried[0][i]), place(control_.layout.carried[1][i]),
                       control_.bodies.back().input_bytes[i], 0, 0});
  return moves;
}

void ControlFlow::add_body(NodeChain& chain, size_t body) {
  chain.add_all(*bodies_[body]);
  bodies_[body]->settle();
}

// Whether the loop runs on: its condition, and its time.
void ControlFlow::add_test(NodeChain& chain, ConditionalHandle handle, bool begins) {
  constexpr int64_t kTimeOffset = 8;  // beside the condition
  constexpr double kMostNanoseconds = 1e18;
  add_body(chain, 0);
  std::byte* condition = place(control_.layout.condition);
  Branches branches{condition,
                    {handle},
                    1,
                    condition + kTimeOffset,
                    late_.device(),
                    static_cast<uint64_t>(std::min(1e9 * limit_, kMostNanoseconds)),
                    begins};
  add_kernel(chain, kChooseBranch, 1, 1, &branches);
}

void ControlFlow::add_trip(NodeChain& chain, ConditionalHandle handle, bool begins) const {
  Trips trips{place(control_.layout.condition), handle, control_.length, begins};
  add_kernel(chain, kNextTrip, 1, 1, &trips);
}

void ControlFlow::add_moves(NodeChain& chain, const std::vector<Move>& moves, Rows rows) const {
  constexpr int64_t kMostBlocks = 1024;
  struct {
    Move moves[kMostMoves];
    const std::byte* trip;
    int64_t last;
  } arguments{};
  const bool of_the_trip = rows == Rows::kOfTheTrip;
  arguments.trip = of_the_trip ? place(control_.layout.condition) : nullptr;
  arguments.last = of_the_trip && control_.reverse ? control_.length - 1 : -1;
  size_t count = 0;
  int64_t blocks = 0;
  const auto flush = [&] {
    if (count > 0)
      add_kernel(chain, kMoveRows, static_cast<unsigned>(std::min(blocks, kMostBlocks)),
                 static_cast<unsigned>(count), &arguments);
    count = 0;
    blocks = 0;
  };
  for (const Move& move : moves) {
    if (move.bytes == 0) continue;
    arguments.moves[count++] = move;
    blocks = std::max(blocks, (move.bytes / 16 + kMoveThreads) / kMoveThreads);
    if (count == kMostMoves) flush();
  }
  flush();
}

void ControlFlow::add_kernel(NodeChain& chain, ControlLaunch which, unsigned blocks, unsigned rows,
                             void* arguments) const {
  void* params[] = {arguments};
  KernelNodeParams node;
  node.func = functions_[which];
  node.grid[0] = blocks;
  node.grid[1] = rows;
  node.block[0] = static_cast<unsigned>(step_.launches[static_cast<size_t>(which)].block);
  node.params = params;
  chain.add(node);
}

void ControlFlow::set_input(size_t body, size_t i, std::byte* address) {
  bodies_[body]->set_address(control_.bodies[body].plan->inputs[i].buffer, address);
}

void ControlFlow::set_output(size_t body, size_t i, std::byte* address) {
  bodies_[body]->set_address(control_.bodies[body].plan->outputs[i].buffer, address);
}

size_t ControlFlow::kernel_count() const {
  size_t count = 0;
  for (const std::unique_ptr<Launches>& body : bodies_) count += body->kernel_count();
  return count;
}

void ControlFlow::report_errors() {
  FirstError first;
  first.note([&] { report_late(); });
  for (const std::unique_ptr<Launches>& body : bodies_) first.note([&] { body->report_errors(); });
  first.rethrow();
}

void ControlFlow::report_late() {
  auto* late = static_cast<uint64_t*>(late_.host());
  if (const uint64_t taken = std::exchange(*late, 0); taken > 0)
    throw UserError(ErrorCode::kU_over_limit, "a loop takes longer than a run may, and was ended")
        .with_op(step_.origin)
        .with_expected("at most " + std::to_string(limit_) + " s")
        .with_actual(std::to_string(1e-9 * static_cast<double>(taken)) + " s so far")
        .with_remedy("check what ends the loop, or set AICF_MAX_SECONDS when the model is loaded");
}

}  // namespace aicf::cuda
