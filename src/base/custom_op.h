// Ops of the user's, by name: the function that computes one on the CPU. Registered for the life of the
// process, from any thread; a plan and an artifact hold only the name. The layout of CustomTensor and the
// signatures are those of aicf/custom_op.h.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace aicf {

// Row-major memory.
struct CustomTensor {
  void* data;     // of inputs never written
  int32_t dtype;  // as DType
  int32_t rank;
  const int64_t* sizes;
};

// The C functions of aicf/custom_op.h. Each computes every element of the outputs from the inputs, and may
// run in any thread, in several at once. The checked one gives 0, or a status and a message.
using CustomFunction = void (*)(const CustomTensor* inputs, int32_t input_count, const CustomTensor* outputs,
                                int32_t output_count, const int64_t* params, const double* fparams,
                                void* user);
using CheckedFunction = int32_t (*)(const CustomTensor* inputs, int32_t input_count,
                                    const CustomTensor* outputs, int32_t output_count, const int64_t* params,
                                    const double* fparams, void* user, char* message, int32_t message_size);

// What one call computes from and to.
struct CustomCall {
  const CustomTensor* inputs;
  int32_t input_count;
  const CustomTensor* outputs;
  int32_t output_count;
  const int64_t* params;
  const double* fparams;
};

struct CustomOp {
  // What it throws, the run throws: custom_op_failed where a C function failed.
  std::function<void(const CustomCall&)> function;
  // Registering the same two again is no mistake. Null: never the same.
  const void* address = nullptr;
  void* user = nullptr;
  std::string name = {};  // set when it is registered
};

CustomOp custom_op(CustomFunction function, void* user);
CustomOp custom_op(CheckedFunction function, void* user);

// Calls the function; in_custom_op() is true in this thread meanwhile.
void call_custom_op(const CustomOp& op, const CustomCall& call);
bool in_custom_op();

// misuse if the name has another function already.
void register_custom_op(const std::string& name, CustomOp op);
// Null if there is none. The first question loads the libraries of AICF_CUSTOM_OPS.
const CustomOp* find_custom_op(std::string_view name);
// missing_custom_op with what to do about it.
const CustomOp& require_custom_op(std::string_view name);
// Opens a shared library and calls its aicf_register_custom_ops, its aicf_register_checked_ops, or both.
// file_not_found, bad_option.
void load_custom_ops(const std::string& path);

}  // namespace aicf
