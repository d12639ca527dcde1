#include "runtime/cpu/control_step.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/error.h"
#include "base/limits.h"
#include "kernels/step_check.h"
#include "runtime/bind_step.h"

namespace aicf {
namespace {

int64_t bytes_of(const TensorArg& arg) {
  int64_t bytes = dtype_bytes(arg.dtype);
  for (int i = 0; i < arg.rank; ++i) bytes = checked_mul(bytes, arg.sizes[i]);
  return bytes;
}

int64_t row_bytes(const TensorArg& arg) {
  int64_t bytes = dtype_bytes(arg.dtype);
  for (int i = 1; i < arg.rank; ++i) bytes = checked_mul(bytes, arg.sizes[i]);
  return bytes;
}

std::vector<int64_t> io_bytes(const std::vector<IoTensor>& list, const SymbolValues& sizes) {
  std::vector<int64_t> bytes;
  for (const IoTensor& io : list)
    bytes.push_back(checked_mul(element_count(evaluate(io.sizes, sizes)), dtype_bytes(io.dtype)));
  return bytes;
}

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
    : step_(step), layout_(control_layout(step, plan.bodies)), limit_(resource_limits().seconds) {
  for (size_t i = 0; i < bodies.size(); ++i) {
    const EntryPlan& body = plan.bodies[static_cast<size_t>(step.bodies[i])];
    check_io_bytes(body, sizes);
    bodies_.push_back(
        {&body, std::move(bodies[i]), io_bytes(body.inputs, sizes), io_bytes(body.outputs, sizes)});
  }
  for (const auto* args : {&call.inputs, &call.outputs})
    require(std::all_of(args->begin(), args->end(), is_dense), "an operand is not dense");
  require(!call.outputs.empty() && bytes_of(call.outputs.back()) >= layout_.bytes,
          "the workspace is too small");
  if (step.kernel == kIfElse) {
    check_branches(call);
    seconds_ = std::max(bodies_[0].bound->seconds(), bodies_[1].bound->seconds());
  } else if (step.kernel == kWhileLoop) {
    check_loop(call);
    seconds_ = bodies_[0].bound->seconds() + bodies_[1].bound->seconds();
  } else {
    check_scan(call);
    seconds_ = static_cast<double>(length_) * bodies_[0].bound->seconds();
  }
  now_.resize(layout_.next.size());
}

void ControlStep::require(bool holds, const char* what) const {
  if (holds) return;
  throw UserError(ErrorCode::kU_bad_artifact,
                  "the plan is not consistent: a step of control flow and its bodies differ")
      .with_op(step_.kernel + " " + step_.origin)
      .with_actual(what)
      .with_remedy("compile the model again");
}

void ControlStep::check_branches(const BoundCall& call) const {
  require(!call.inputs.empty() && call.inputs[0].dtype == DType::boolean && bytes_of(call.inputs[0]) == 1,
          "the condition is no bool");
  for (const Body& body : bodies_) {
    require(body.input_bytes.size() + 1 == call.inputs.size(), "captures");
    require(body.output_bytes.size() + 1 == call.outputs.size(), "results");
    for (size_t i = 0; i < body.input_bytes.size(); ++i)
      require(bytes_of(call.inputs[i + 1]) == body.input_bytes[i], "bytes of a capture");
    for (size_t i = 0; i < body.output_bytes.size(); ++i)
      require(bytes_of(call.outputs[i]) == body.output_bytes[i], "bytes of a result");
  }
}

void ControlStep::check_carried(const BoundCall& call, size_t results) const {
  const Body& body = bodies_.back();
  const size_t carried = layout_.next.size();
  require(carried <= results && results + 1 == call.outputs.size(), "results");
  require(body.input_bytes.size() == call.inputs.size(), "operands");
  for (size_t i = 0; i < carried; ++i) {
    const int64_t bytes = bytes_of(call.inputs[i]);
    require(body.input_bytes[i] == bytes && bytes_of(call.outputs[i]) == bytes, "bytes of a carried value");
    if (layout_.next[i] >= 0)
      require(body.output_bytes[static_cast<size_t>(layout_.next[i])] == bytes, "bytes of a carried value");
  }
}

void ControlStep::check_loop(const BoundCall& call) const {
  check_carried(call, call.inputs.size());
  require(static_cast<int64_t>(bodies_[1].output_bytes.size()) == layout_.advancing, "carried values");
  require(bodies_[0].input_bytes == bodies_[1].input_bytes, "operands of the condition");
  require(bodies_[0].output_bytes == std::vector<int64_t>{1}, "the condition");
}

void ControlStep::check_scan(const BoundCall& call) {
  const Body& body = bodies_[0];
  const size_t carried = layout_.next.size(), advancing = static_cast<size_t>(layout_.advancing),
               stacked = body.output_bytes.size() - advancing;
  check_carried(call, carried + stacked);
  require(carried < call.inputs.size() && call.inputs[carried].rank >= 1, "walked operands");
  length_ = call.inputs[carried].sizes[0];
  const auto check_rows = [&](const TensorArg& arg, int64_t bytes) {
    require(arg.rank >= 1 && arg.sizes[0] == length_ && (length_ == 0 || row_bytes(arg) == bytes), "rows");
  };
  for (size_t i = carried; i < call.inputs.size(); ++i) check_rows(call.inputs[i], body.input_bytes[i]);
  for (size_t i = 0; i < stacked; ++i)
    check_rows(call.outputs[carried + i], body.output_bytes[advancing + i]);
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
  std::byte* condition = workspace(call) + layout_.condition;
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
  const bool reverse = *step_.params[1].constant() != 0;
  Body& body = bodies_[0];
  const size_t carried = now_.size(), advancing = static_cast<size_t>(layout_.advancing);
  for (int64_t trip = 0; trip < length_; ++trip) {
    const int64_t row = reverse ? length_ - 1 - trip : trip;
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
    if (layout_.next[i] >= 0)
      set_output(bodies_.back(), static_cast<size_t>(layout_.next[i]),
                 workspace(call) + layout_.carried[trip % 2][i]);
  }
}

void ControlStep::advance(const BoundCall& call, int64_t trip) {
  for (size_t i = 0; i < now_.size(); ++i)
    if (layout_.next[i] >= 0) now_[i] = workspace(call) + layout_.carried[trip % 2][i];
}

void ControlStep::end_carrying(const BoundCall& call) const {
  for (size_t i = 0; i < now_.size(); ++i)
    if (const int64_t bytes = bytes_of(call.outputs[i]); bytes > 0)
      std::memcpy(call.outputs[i].data, now_[i], static_cast<size_t>(bytes));
}

void ControlStep::report_errors() {
  for (Body& body : bodies_) body.bound->report_errors();
}

}  // namespace aicf
