#include "runtime/cpu/control_step.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/error.h"
#include "base/limits.h"

namespace aicf {
namespace {

std::byte* data_of(const TensorArg& arg) { return static_cast<std::byte*>(arg.data); }
std::byte* workspace(const BoundCall& call) { return data_of(call.outputs.back()); }

// How long a run may take whose length the data decides.
class Deadline {
 public:
  Deadline(double seconds, const std::string& what)
      : start_(std::chrono::steady_clock::now()), seconds_(seconds), what_(what) {}
  void check() const {
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start_;
    if (taken.count() > seconds_) require_seconds(taken.count(), what_);
  }

 private:
  std::chrono::steady_clock::time_point start_;
  double seconds_;
  const std::string& what_;
};

}  // namespace

ControlStep::ControlStep(const Plan& plan, const Step& step, const BoundCall& call, const SymbolValues& sizes,
                         std::vector<std::unique_ptr<BoundBody>> bodies)
    : step_(step), control_(bind_control(plan, step, call, sizes)), limit_(resource_limits().seconds) {
  for (size_t i = 0; i < bodies.size(); ++i) bodies_.push_back({control_.bodies[i], std::move(bodies[i])});
  if (step.kernel == kIfElse) {
    seconds_ = std::max(bodies_[0].bound->seconds(), bodies_[1].bound->seconds());
  } else if (step.kernel == kWhileLoop) {
    seconds_ = bodies_[0].bound->seconds() + bodies_[1].bound->seconds();
  } else {
    seconds_ = static_cast<double>(control_.length) * bodies_[0].bound->seconds();
  }
  now_.resize(control_.carried());
}

void ControlStep::set_input(Body& body, size_t i, std::byte* address) {
  body.bound->set_address(body.plan->inputs[i].buffer, address);
}

void ControlStep::set_output(Body& body, size_t i, std::byte* address) {
  body.bound->set_address(body.plan->outputs[i].buffer, address);
}

void ControlStep::run(const BoundCall& call, bool have_pool) {
  for (Body& body : bodies_)
    for (size_t i = 0; i < body.plan->buffers.size(); ++i)
      if (const Buffer& buffer = body.plan->buffers[i]; buffer.kind == BufferKind::kArena)
        body.bound->set_address(static_cast<int32_t>(i), workspace(call) + buffer.offset);
  if (step_.kernel == kIfElse) return run_branch(call, have_pool);
  begin_carrying(call);
  if (step_.kernel == kWhileLoop) {
    run_loop(call, have_pool);
  } else {
    run_scan(call, have_pool);
  }
  end_carrying(call);
}

void ControlStep::run_branch(const BoundCall& call, bool have_pool) {
  Body& body = bodies_[*data_of(call.inputs[0]) != std::byte{0} ? 0 : 1];
  for (size_t i = 0; i < body.input_bytes.size(); ++i) set_input(body, i, data_of(call.inputs[i + 1]));
  for (size_t i = 0; i < body.output_bytes.size(); ++i) set_output(body, i, data_of(call.outputs[i]));
  body.bound->run_steps(have_pool);
}

void ControlStep::run_loop(const BoundCall& call, bool have_pool) {
  const Deadline deadline(limit_, step_.origin);
  std::byte* condition = workspace(call) + control_.layout.condition;
  set_output(bodies_[0], 0, condition);
  for (int64_t trip = 0;; ++trip) {
    for (size_t i = 0; i < now_.size(); ++i) set_input(bodies_[0], i, now_[i]);
    bodies_[0].bound->run_steps(have_pool);
    if (*condition == std::byte{0}) return;
    carry(call, trip);
    bodies_[1].bound->run_steps(have_pool);
    advance(call, trip);
    deadline.check();
  }
}

void ControlStep::run_scan(const BoundCall& call, bool have_pool) {
  const Deadline deadline(limit_, step_.origin);
  Body& body = bodies_[0];
  const size_t carried = control_.carried(), advancing = control_.advancing();
  for (int64_t trip = 0; trip < control_.length; ++trip) {
    const int64_t row = control_.reverse ? control_.length - 1 - trip : trip;
    carry(call, trip);
    for (size_t i = carried; i < call.inputs.size(); ++i)
      set_input(body, i, data_of(call.inputs[i]) + row * body.input_bytes[i]);
    for (size_t i = advancing; i < body.output_bytes.size(); ++i)
      set_output(body, i, data_of(call.outputs[carried + i - advancing]) + row * body.output_bytes[i]);
    body.bound->run_steps(have_pool);
    advance(call, trip);
    deadline.check();
  }
}

void ControlStep::begin_carrying(const BoundCall& call) {
  for (size_t i = 0; i < now_.size(); ++i) now_[i] = data_of(call.inputs[i]);
}

void ControlStep::carry(const BoundCall& call, int64_t trip) {
  for (size_t i = 0; i < now_.size(); ++i) {
    set_input(bodies_.back(), i, now_[i]);
    if (control_.layout.next[i] >= 0)
      set_output(bodies_.back(), static_cast<size_t>(control_.layout.next[i]),
                 workspace(call) + control_.layout.carried[trip % 2][i]);
  }
}

void ControlStep::advance(const BoundCall& call, int64_t trip) {
  for (size_t i = 0; i < now_.size(); ++i)
    if (control_.layout.next[i] >= 0) now_[i] = workspace(call) + control_.layout.carried[trip % 2][i];
}

void ControlStep::end_carrying(const BoundCall& call) const {
  for (size_t i = 0; i < now_.size(); ++i)
    if (const int64_t bytes = bytes_of(call.outputs[i]); bytes > 0)
      std::memcpy(call.outputs[i].data, now_[i], static_cast<size_t>(bytes));
}

bool ControlStep::has_error() const {
  return std::any_of(bodies_.begin(), bodies_.end(),
                     [](const Body& body) { return body.bound->has_error(); });
}

std::optional<UserError> ControlStep::take_error() {
  std::optional<UserError> first;
  for (Body& body : bodies_) {
    std::optional<UserError> found = body.bound->take_error();
    if (!first) first = std::move(found);
  }
  return first;
}

}  // namespace aicf
