// A call of a vendor library in place of a kernel, whichever library it is: its name as a candidate, its
// text, and what a plan has to know of it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "kernels/common/cudnn_call.h"
#include "kernels/matmul/cuda/cublaslt_call.h"

namespace aicf {

using LibraryCall = std::variant<CublasLtCall, CudnnCall>;

// The kernel of its candidate: "matmul_cublaslt", "conv_cudnn", "attention_cudnn".
std::string_view library_kernel(const LibraryCall& call);
bool is_library_kernel(std::string_view kernel);

std::string to_string(const LibraryCall& call);
std::optional<LibraryCall> parse_library_call(std::string_view text);
// Of a candidate's name: "matmul_cublaslt/130101 …".
std::optional<LibraryCall> parse_library_candidate(std::string_view name);
bool same_meaning(const LibraryCall& a, const LibraryCall& b);
int64_t workspace_bytes(const LibraryCall& call);

}  // namespace aicf
