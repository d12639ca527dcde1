#include "kernels/custom/custom_call.h"

#include <array>
#include <cctype>

#include "base/custom_op.h"
#include "base/error.h"
#include "kernels/common/step_check.h"

namespace aicf {
namespace {

constexpr size_t kMaxOperands = 64;

CustomTensor dense(const TensorArg& arg) {
  return {arg.data, static_cast<int32_t>(arg.dtype), arg.rank, arg.sizes};
}

void run_custom(const BoundCall& call, int64_t, std::byte*) {
  std::array<CustomTensor, kMaxOperands> tensors;
  size_t count = 0;
  for (const TensorArg& arg : call.inputs) tensors[count++] = dense(arg);
  for (const TensorArg& arg : call.outputs) tensors[count++] = dense(arg);
  const auto* op = reinterpret_cast<const CustomOp*>(call.state[0]);
  const auto inputs = static_cast<int32_t>(call.inputs.size());
  call_custom_op(*op, {tensors.data(), inputs, tensors.data() + inputs,
                       static_cast<int32_t>(call.outputs.size()), call.params.data(), call.fparams.data()});
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Where the function's name stands before its parameters in its definition; npos if nowhere.
size_t definition_of(const std::string& text, const std::string& function) {
  const size_t global = text.find("__global__");
  for (size_t at = text.find(function, global); at != std::string::npos; at = text.find(function, at + 1)) {
    size_t after = at + function.size();
    while (after < text.size() && std::isspace(static_cast<unsigned char>(text[after])) != 0) ++after;
    if (after < text.size() && text[after] == '(' && at > 0 && !is_word(text[at - 1])) return at;
  }
  return std::string::npos;
}

UserError bad_text(const std::string& message, const std::string& expected) {
  return UserError(ErrorCode::kU_bad_attribute, message).with_value("cuda").with_expected(expected);
}

}  // namespace

void prepare_custom(std::string_view kernel, BoundCall& call) {
  const CustomOp& op = require_custom_op(custom_op_of(kernel));
  bool fits = call.inputs.size() + call.outputs.size() <= kMaxOperands;
  for (const auto* args : {&call.inputs, &call.outputs})
    for (const TensorArg& arg : *args) fits = fits && is_dense(arg);
  if (!fits)
    throw UserError(ErrorCode::kU_bad_artifact, "a custom op's operands are too many or not dense")
        .with_op(std::string(kernel));
  call.run = run_custom;
  call.tiles = 1;
  call.state = {reinterpret_cast<int64_t>(&op)};
}

CudaCode custom_cuda_code(const CustomCuda& custom, int arch) {
  if (is_ptx(custom.text)) return custom_ptx_code(custom, arch);
  const size_t name =
      custom.function.empty() ? std::string::npos : definition_of(custom.text, custom.function);
  if (name == std::string::npos)
    throw bad_text("the text of a custom op does not define its function",
                   "extern \"C\" __global__ void " + custom.function + "(…)");
  if (custom.text.find("wait_for_inputs(") == std::string::npos)
    throw bad_text("the kernel of a custom op does not wait for its inputs",
                   "aicf::wait_for_inputs() before the first access to memory");
  CudaCode code;
  // The name at the start of a line, where the builder finds it to make it unique.
  code.source =
      "#include \"prelude.cuh\"\n" + custom.text.substr(0, name) + "\n" + custom.text.substr(name) + "\n";
  code.launches = {custom.launch};
  code.launches[0].function = custom.function;
  return code;
}

}  // namespace aicf
