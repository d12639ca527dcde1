// How a convolution or attention is handed to cuDNN: plain data, with a text form that records and plans
// keep. It holds the library's own choice, an engine and its knobs, which means something to one version of
// the library only. What the operands look like follows from their windows and the kernel's params, here as
// in selection and in the runtime.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/common/abi.h"

namespace aicf {

enum class CudnnOp : uint8_t { kConv, kAttention };

// conv: out = relu(conv(x, w) + bias + addend); the bias is a number per channel, the addend is as large as
// the result. attention: softmax(scale q k^T) v.
struct CudnnCall {
  int64_t version = 0;  // of the library: 91901 is 9.19.1
  CudnnOp op = CudnnOp::kConv;
  int bias = -1, addend = -1;  // numbers of inputs, -1 for none
  bool relu = false;
  int64_t workspace_bytes = 0;
  int64_t engine = 0;
  std::vector<std::pair<int64_t, int64_t>> knobs;  // type and value
  bool operator==(const CudnnCall&) const = default;
};

// "91901 conv bias 2 add 3 relu workspace 4096 engine 17 knobs 2:5,14:3"
std::string to_string(const CudnnCall& call);
std::optional<CudnnCall> parse_cudnn_call(std::string_view text);
// Whether two calls compute the same, whatever their engines.
bool same_meaning(const CudnnCall& a, const CudnnCall& b);

// The tensors of a convolution with channels as axis 1, which lie next to each other; axes of size 1 have the
// strides of a dense tensor. Without bias or addend their rank is 0.
struct CudnnConv {
  TensorArg x, w, out, bias, addend;
  std::vector<int64_t> strides, low, high, dilations;
};
struct CudnnAttention {
  TensorArg q, k, v, out;
  double scale = 1;
};

// Of the step's operands, params and fparams; nullopt if the library cannot take it, or the call names
// operands that it does not have.
std::optional<CudnnConv> cudnn_conv(const CudnnCall& call, const BoundCall& step);
std::optional<CudnnAttention> cudnn_attention(const CudnnCall& call, const BoundCall& step);
bool cudnn_takes(const CudnnCall& call, const BoundCall& step);

}  // namespace aicf
