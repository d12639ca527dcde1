#include "runtime/bind_control.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/common/step_check.h"
#include "runtime/bind_step.h"

namespace aicf {
namespace {

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

class ControlBinder {
 public:
  ControlBinder(const Plan& plan, const Step& step, const BoundCall& call, const SymbolValues& sizes)
      : step_(step), call_(call) {
    bound_.layout = control_layout(step, plan.bodies);
    for (const int32_t number : step.bodies) {
      const EntryPlan& body = plan.bodies[static_cast<size_t>(number)];
      check_io_bytes(body, sizes);
      bound_.bodies.push_back({&body, io_bytes(body.inputs, sizes), io_bytes(body.outputs, sizes)});
    }
    for (const auto* args : {&call.inputs, &call.outputs})
      require(std::all_of(args->begin(), args->end(), is_dense), "an operand is not dense");
    require(!call.outputs.empty() && bytes_of(call.outputs.back()) >= bound_.layout.bytes,
            "the workspace is too small");
    if (step.kernel == kIfElse) {
      check_branches();
    } else if (step.kernel == kWhileLoop) {
      check_loop();
    } else {
      check_scan();
    }
  }
  BoundControl take() { return std::move(bound_); }

 private:
  void require(bool holds, const char* what) const {
    if (holds) return;
    throw UserError(ErrorCode::kU_bad_artifact,
                    "the plan is not consistent: a step of control flow and its bodies differ")
        .with_op(step_.kernel + " " + step_.origin)
        .with_actual(what)
        .with_remedy("compile the model again");
  }

  void check_branches() const {
    require(
        !call_.inputs.empty() && call_.inputs[0].dtype == DType::boolean && bytes_of(call_.inputs[0]) == 1,
        "the condition is no bool");
    for (const BoundControl::Body& body : bound_.bodies) {
      require(body.input_bytes.size() + 1 == call_.inputs.size(), "captures");
      require(body.output_bytes.size() + 1 == call_.outputs.size(), "results");
      for (size_t i = 0; i < body.input_bytes.size(); ++i)
        require(bytes_of(call_.inputs[i + 1]) == body.input_bytes[i], "bytes of a capture");
      for (size_t i = 0; i < body.output_bytes.size(); ++i)
        require(bytes_of(call_.outputs[i]) == body.output_bytes[i], "bytes of a result");
    }
  }

  void check_carried(size_t results) const {
    const BoundControl::Body& body = bound_.bodies.back();
    require(bound_.carried() <= results && results + 1 == call_.outputs.size(), "results");
    require(body.input_bytes.size() == call_.inputs.size(), "operands");
    for (size_t i = 0; i < bound_.carried(); ++i) {
      const int64_t bytes = bytes_of(call_.inputs[i]), next = bound_.layout.next[i];
      require(body.input_bytes[i] == bytes && bytes_of(call_.outputs[i]) == bytes,
              "bytes of a carried value");
      if (next >= 0)
        require(body.output_bytes[static_cast<size_t>(next)] == bytes, "bytes of a carried value");
    }
  }

  void check_loop() const {
    check_carried(call_.inputs.size());
    const std::vector<BoundControl::Body>& bodies = bound_.bodies;
    require(bodies[1].output_bytes.size() == bound_.advancing(), "carried values");
    require(bodies[0].input_bytes == bodies[1].input_bytes, "operands of the condition");
    require(bodies[0].output_bytes == std::vector<int64_t>{1}, "the condition");
  }

  void check_scan() {
    const BoundControl::Body& body = bound_.bodies[0];
    const size_t carried = bound_.carried(), stacked = body.output_bytes.size() - bound_.advancing();
    check_carried(carried + stacked);
    require(carried < call_.inputs.size() && call_.inputs[carried].rank >= 1, "walked operands");
    bound_.length = call_.inputs[carried].sizes[0];
    bound_.reverse = *step_.params[1].constant() != 0;
    const auto check_rows = [&](const TensorArg& arg, int64_t bytes) {
      require(
          arg.rank >= 1 && arg.sizes[0] == bound_.length && (bound_.length == 0 || row_bytes(arg) == bytes),
          "rows");
    };
    for (size_t i = carried; i < call_.inputs.size(); ++i) check_rows(call_.inputs[i], body.input_bytes[i]);
    for (size_t i = 0; i < stacked; ++i)
      check_rows(call_.outputs[carried + i], body.output_bytes[bound_.advancing() + i]);
  }

  const Step& step_;
  const BoundCall& call_;
  BoundControl bound_;
};

}  // namespace

int64_t bytes_of(const TensorArg& arg) {
  int64_t bytes = dtype_bytes(arg.dtype);
  for (int i = 0; i < arg.rank; ++i) bytes = checked_mul(bytes, arg.sizes[i]);
  return bytes;
}

BoundControl bind_control(const Plan& plan, const Step& step, const BoundCall& call,
                          const SymbolValues& sizes) {
  return ControlBinder(plan, step, call, sizes).take();
}

}  // namespace aicf
