#include "kernels/common/library_call.h"

#include <algorithm>

namespace aicf {
namespace {

constexpr std::string_view kCublasLt = "matmul_cublaslt", kCudnnConv = "conv_cudnn",
                           kCudnnAttention = "attention_cudnn";

}  // namespace

std::string_view library_kernel(const LibraryCall& call) {
  const auto* cudnn = std::get_if<CudnnCall>(&call);
  if (cudnn == nullptr) return kCublasLt;
  return cudnn->op == CudnnOp::kConv ? kCudnnConv : kCudnnAttention;
}

bool is_library_kernel(std::string_view kernel) {
  return kernel == kCublasLt || kernel == kCudnnConv || kernel == kCudnnAttention;
}

std::string to_string(const LibraryCall& call) {
  return std::visit([](const auto& own) { return to_string(own); }, call);
}

std::optional<LibraryCall> parse_library_call(std::string_view text) {
  if (const auto call = parse_cublaslt_call(text)) return *call;
  if (const auto call = parse_cudnn_call(text)) return *call;
  return std::nullopt;
}

std::optional<LibraryCall> parse_library_candidate(std::string_view name) {
  const size_t slash = std::min(name.find('/'), name.size());
  if (!is_library_kernel(name.substr(0, slash)) || slash == name.size()) return std::nullopt;
  const auto call = parse_library_call(name.substr(slash + 1));
  return call && library_kernel(*call) == name.substr(0, slash) ? call : std::nullopt;
}

bool same_meaning(const LibraryCall& a, const LibraryCall& b) {
  const auto *cublas_a = std::get_if<CublasLtCall>(&a), *cublas_b = std::get_if<CublasLtCall>(&b);
  const auto *cudnn_a = std::get_if<CudnnCall>(&a), *cudnn_b = std::get_if<CudnnCall>(&b);
  if (cublas_a != nullptr && cublas_b != nullptr) return same_meaning(*cublas_a, *cublas_b);
  return cudnn_a != nullptr && cudnn_b != nullptr && same_meaning(*cudnn_a, *cudnn_b);
}

int64_t workspace_bytes(const LibraryCall& call) {
  return std::visit([](const auto& own) { return own.workspace_bytes; }, call);
}

}  // namespace aicf
