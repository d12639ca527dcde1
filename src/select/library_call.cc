#include "select/library_call.h"

#include <algorithm>
#include <map>

#include "ir/rounding.h"
#include "select/cost_model.h"
#include "select/layout.h"

namespace aicf {
namespace {

constexpr int64_t kAlignedBytes = 16;  // what algorithms are asked for by

bool is_plain(const Window& w) {
  const auto offset = w.offset.constant();
  return offset && *offset * dtype_bytes(w.dtype) % kAlignedBytes == 0 && w.sizes.size() <= kMaxRank &&
         are_constant(w.sizes) && are_constant(w.strides);
}

// Whether the operand has one number for each index of this axis.
bool is_row_of(const TensorArg& arg, int row_axis) {
  for (int axis = 0; axis < arg.rank; ++axis)
    if (axis != row_axis && arg.strides[axis] != 0 && arg.sizes[axis] != 1) return false;
  return arg.rank > row_axis;
}

// activation(product + addend + bias), by numbers of the call's inputs; a bias is a row along one axis.
struct Epilogue {
  int bias = -1, addend = -1;
  CublasLtActivation activation = CublasLtActivation::kNone;
};

// Follows the one value that comes from the accumulator through additions to at most one activation. A
// library rounds once, when all is done: behind a rounding to halves nothing may follow that rounds again.
class EpilogueReader {
 public:
  // The product's own operands are the first `own` inputs; `known` is what it adds to the sum itself.
  EpilogueReader(const Graph& body, const std::vector<TensorArg>& inputs, int own, int row_axis,
                 Epilogue known = {})
      : body_(body), inputs_(inputs), row_axis_(row_axis), epilogue_(known) {
    for (size_t i = 1; i < body.inputs().size(); ++i)
      input_of_[body.inputs()[i]] = own + static_cast<int>(i) - 1;
  }

  std::optional<Epilogue> read() {
    if (body_.inputs().empty() || body_.outputs().size() != 1) return std::nullopt;
    value_ = body_.inputs()[0];
    for (const Node& node : body_.nodes())
      if (!step(node)) return std::nullopt;
    return body_.outputs()[0] == value_ ? std::optional(epilogue_) : std::nullopt;
  }

 private:
  bool step(const Node& node) {
    if (node.op == Op::cast) {
      const DType to = body_.dtype(node.results[0]);
      if (!is_float(to)) return false;
      if (node.operands[0] == value_) {
        value_ = node.results[0];
        rounded_ = rounded_ || is_half(to);
        return true;
      }
      const auto at = input_of_.find(node.operands[0]);
      if (at == input_of_.end()) return false;
      input_of_[node.results[0]] = at->second;
      return true;
    }
    if (epilogue_.activation != CublasLtActivation::kNone || (rounded_ && !rounds_nothing(node.op)))
      return false;
    rounded_ = rounded_ || is_half(body_.dtype(node.results[0]));
    if (node.op == Op::relu || node.op == Op::gelu) {
      const bool known = node.op == Op::relu || node.attrs.get_str("approximate") == "tanh";
      if (!known || node.operands[0] != value_) return false;
      epilogue_.activation = node.op == Op::relu ? CublasLtActivation::kRelu : CublasLtActivation::kGelu;
      value_ = node.results[0];
      return true;
    }
    return node.op == Op::add && add(node);
  }

  bool add(const Node& node) {
    const bool first = node.operands[0] == value_;
    if (!first && node.operands[1] != value_) return false;
    const auto at = input_of_.find(node.operands[first ? 1 : 0]);
    if (at == input_of_.end() || static_cast<size_t>(at->second) >= inputs_.size()) return false;
    const TensorArg& operand = inputs_[static_cast<size_t>(at->second)];
    int& place = is_row_of(operand, row_axis_ < 0 ? operand.rank + row_axis_ : row_axis_) ? epilogue_.bias
                                                                                          : epilogue_.addend;
    if (place >= 0) return false;
    place = at->second;
    value_ = node.results[0];
    return true;
  }

  const Graph& body_;
  const std::vector<TensorArg>& inputs_;
  std::map<ValueId, int> input_of_;  // body value → number of the call's input
  ValueId value_ = kNoValue;
  int row_axis_;  // from the end if negative
  bool rounded_ = false;
  Epilogue epilogue_;
};

// cuBLASLt: x and y, then the epilogue's operands, a bias along the last axis.
std::optional<LibraryCall> cublaslt_form(const BoundCall& step, const Region& region) {
  if (!step.params.empty()) return std::nullopt;  // a product in tf32
  const auto epilogue = EpilogueReader(region.body, step.inputs, 2, -1).read();
  if (!epilogue) return std::nullopt;
  CublasLtCall form;
  form.bias = epilogue->bias;
  form.addend = epilogue->addend;
  form.activation = epilogue->activation;
  if (!cublaslt_shape(form, step.inputs, step.outputs[0])) return std::nullopt;
  return form;
}

// cuDNN: x, w and perhaps a bias, then the epilogue's operands, of which a bias has channels as axis 1.
std::optional<LibraryCall> conv_form(const BoundCall& step, const Region* region) {
  constexpr size_t kHasBias = 2;
  const bool own_bias = step.params.size() > kHasBias && step.params[kHasBias] != 0;
  Epilogue epilogue;
  epilogue.bias = own_bias ? 2 : -1;
  if (region != nullptr) {
    const auto read = EpilogueReader(region->body, step.inputs, own_bias ? 3 : 2, 1, epilogue).read();
    if (!read || read->activation == CublasLtActivation::kGelu) return std::nullopt;
    epilogue = *read;
  }
  CudnnCall form;
  form.bias = epilogue.bias;
  form.addend = epilogue.addend;
  form.relu = epilogue.activation == CublasLtActivation::kRelu;
  return cudnn_takes(form, step) ? std::optional<LibraryCall>(form) : std::nullopt;
}

}  // namespace

std::optional<BoundCall> plain_step(const KernelCall& call) {
  const RowCall& row = *own_row(call);
  if (!std::all_of(call.inputs.begin(), call.inputs.end(), is_plain) ||
      !std::all_of(call.outputs.begin(), call.outputs.end(), is_plain) || !are_constant(row.params))
    return std::nullopt;
  BoundCall step;
  step.inputs = args_of(call.inputs, {});
  step.outputs = args_of(call.outputs, {});
  step.params = evaluate(row.params, {});
  step.fparams = row.fparams;
  return step;
}

std::optional<LibraryCall> library_form(const KernelCall& call, std::string_view op, const Region* region) {
  if (op != "matmul" && op != "conv" && op != "attention") return std::nullopt;
  if (call.inputs.size() < 2 || call.outputs.size() != 1) return std::nullopt;
  const auto step = plain_step(call);
  if (!step) return std::nullopt;
  if (op == "matmul") return region != nullptr ? cublaslt_form(*step, *region) : std::nullopt;
  if (op == "conv") return conv_form(*step, region);
  CudnnCall attention;
  attention.op = CudnnOp::kAttention;
  return cudnn_takes(attention, *step) ? std::optional<LibraryCall>(attention) : std::nullopt;
}

}  // namespace aicf
