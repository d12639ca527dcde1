// How a contraction is handed to cuBLASLt: plain data, with a text form that records and plans keep. It holds
// the library's own choice of algorithm, which means something to one version of the library only. What the
// operands look like follows from their windows, here as in selection and in the runtime.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/common/abi.h"

namespace aicf {

enum class CublasLtActivation : uint8_t { kNone, kRelu, kGelu };  // gelu: by tanh

// out = activation(x y + addend + bias); bias is a row, the addend is as large as the result.
struct CublasLtCall {
  int64_t version = 0;  // of the library
  CublasLtActivation activation = CublasLtActivation::kNone;
  int bias = -1, addend = -1;  // numbers of inputs, -1 for none
  int64_t workspace_bytes = 0;
  std::array<uint64_t, 8> algorithm = {};  // opaque
  bool operator==(const CublasLtCall&) const = default;
};

// "130101 bias 2 add 3 gelu workspace 4096 algorithm 0123…"
std::string to_string(const CublasLtCall& call);
std::optional<CublasLtCall> parse_cublaslt_call(std::string_view text);
// Whether two calls compute the same, whatever their algorithms.
bool same_meaning(const CublasLtCall& a, const CublasLtCall& b);

// A matrix as the library sees it, columns first.
struct CublasLtMatrix {
  DType dtype = DType::f32;
  int64_t rows = 0, columns = 0, leading = 0, batch_stride = 0;  // elements
};

// out' = y' x', because the library counts columns first: its first operand is y.
struct CublasLtShape {
  CublasLtMatrix y, x, addend, out;
  bool transpose_y = false, transpose_x = false;
  int64_t batch = 1;
};

// nullopt if the library cannot take these windows: types, strides, an operand out of range.
std::optional<CublasLtShape> cublaslt_shape(const CublasLtCall& call, const std::vector<TensorArg>& inputs,
                                            const TensorArg& out);

}  // namespace aicf
