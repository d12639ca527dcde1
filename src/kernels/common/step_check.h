// What the prepare functions of contractions, windows and attention share: refusing a step that does not fit
// its kernel (a plan may come from a stranger's file) and laying views of different rank over one index
// space.
#pragma once

#include <string>
#include <string_view>

#include "base/rounding.h"
#include "kernels/common/abi.h"

namespace aicf {

// bad_artifact: "step <kernel>: <what>", with expected and actual.
[[noreturn]] void bad_step(std::string_view kernel, std::string what, std::string expected,
                           std::string actual);

inline void check_step(bool good, std::string_view kernel, const char* what, std::string_view expected,
                       int64_t actual) {
  if (!good) bad_step(kernel, what, std::string(expected), std::to_string(actual));
}
void check_counts(const BoundCall& call, std::string_view kernel, size_t min_inputs, size_t max_inputs,
                  size_t params, size_t fparams);
void check_dtype(const TensorArg& tensor, DType dtype, std::string_view kernel, const char* name);
void check_rank(const TensorArg& tensor, int rank, std::string_view kernel, const char* name);
// All sizes >= 0 and the product of those that are not 0 below 2^63.
void check_sizes(const TensorArg& tensor, std::string_view kernel, const char* name);

// Row-major without gaps, or empty.
bool is_dense(const TensorArg& tensor);

// Strides of `tensor` over an index space of `rank` sizes, aligned at the last axis; an axis of size 1 or
// none gets 0.
void broadcast_strides(const TensorArg& tensor, const int64_t* sizes, int rank, std::string_view kernel,
                       int64_t* strides);

// The epilogue of a contraction: one stage over the result tile, no reductions and no indices, input 0 the
// f32 tile, inputs 1.. call.inputs[first_operand..], outputs call.outputs. bad_artifact otherwise.
void check_epilogue(const BoundCall& call, size_t first_operand, std::string_view kernel);

// 64-bit words that hold a plain struct of int64_t, for BoundCall::state.
template <class Plan>
void store_plan(BoundCall& call, const Plan& plan) {
  static_assert(sizeof(Plan) % sizeof(int64_t) == 0 && std::is_trivially_copyable_v<Plan>);
  const auto* words = reinterpret_cast<const int64_t*>(&plan);
  call.state.assign(words, words + sizeof(Plan) / sizeof(int64_t));
}
template <class Plan>
const Plan& stored_plan(const BoundCall& call) {
  return *reinterpret_cast<const Plan*>(call.state.data());
}

}  // namespace aicf
