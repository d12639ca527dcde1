#include "select/library_call.h"

#include <algorithm>
#include <map>

namespace aicf {
namespace {

constexpr int kOwnInputs = 2;          // x and y; those of the epilogue follow
constexpr int64_t kAlignedBytes = 16;  // what algorithms are asked for by

bool plain_args(const std::vector<Window>& windows, std::vector<TensorArg>& args) {
  for (const Window& w : windows) {
    TensorArg arg;
    arg.dtype = w.dtype;
    const auto offset = w.offset.constant();
    if (!offset || *offset * dtype_bytes(w.dtype) % kAlignedBytes != 0 || w.sizes.size() > kMaxRank)
      return false;
    arg.rank = static_cast<int>(w.sizes.size());
    for (size_t i = 0; i < w.sizes.size(); ++i) {
      const auto size = w.sizes[i].constant(), stride = w.strides[i].constant();
      if (!size || !stride) return false;
      arg.sizes[i] = *size;
      arg.strides[i] = *stride;
    }
    args.push_back(arg);
  }
  return true;
}

bool is_row_of(const TensorArg& arg) {
  for (int axis = 0; axis + 1 < arg.rank; ++axis)
    if (arg.strides[axis] != 0 && arg.sizes[axis] != 1) return false;
  return arg.rank > 0;
}

// Follows the one value that comes from the accumulator through additions to at most one activation.
class EpilogueReader {
 public:
  EpilogueReader(const Graph& body, const std::vector<TensorArg>& inputs) : body_(body), inputs_(inputs) {
    for (size_t i = 1; i < body.inputs().size(); ++i)
      input_of_[body.inputs()[i]] = kOwnInputs + static_cast<int>(i) - 1;
  }

  std::optional<CublasLtCall> read() {
    if (body_.inputs().empty() || body_.outputs().size() != 1) return std::nullopt;
    value_ = body_.inputs()[0];
    for (const Node& node : body_.nodes())
      if (!step(node)) return std::nullopt;
    return body_.outputs()[0] == value_ ? std::optional(call_) : std::nullopt;
  }

 private:
  bool step(const Node& node) {
    if (node.op == Op::cast) {
      const DType to = body_.dtype(node.results[0]);
      if (!is_float(to)) return false;
      if (node.operands[0] == value_) {
        value_ = node.results[0];
        return true;
      }
      const auto at = input_of_.find(node.operands[0]);
      if (at == input_of_.end()) return false;
      input_of_[node.results[0]] = at->second;
      return true;
    }
    if (call_.activation != CublasLtActivation::kNone) return false;
    if (node.op == Op::relu || node.op == Op::gelu) {
      const bool known = node.op == Op::relu || node.attrs.get_str("approximate") == "tanh";
      if (!known || node.operands[0] != value_) return false;
      call_.activation = node.op == Op::relu ? CublasLtActivation::kRelu : CublasLtActivation::kGelu;
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
    int& place = is_row_of(inputs_[static_cast<size_t>(at->second)]) ? call_.bias : call_.addend;
    if (place >= 0) return false;
    place = at->second;
    value_ = node.results[0];
    return true;
  }

  const Graph& body_;
  const std::vector<TensorArg>& inputs_;
  std::map<ValueId, int> input_of_;  // body value → number of the call's input
  ValueId value_ = kNoValue;
  CublasLtCall call_;
};

}  // namespace

std::optional<PlainOperands> plain_operands(const KernelCall& call) {
  PlainOperands operands;
  if (!plain_args(call.inputs, operands.inputs) || !plain_args(call.outputs, operands.outputs))
    return std::nullopt;
  return operands;
}

std::optional<CublasLtCall> cublaslt_form(const KernelCall& call, const Region* region) {
  if (region == nullptr || call.inputs.size() < kOwnInputs || call.outputs.size() != 1 ||
      !call.params.empty())
    return std::nullopt;
  const auto operands = plain_operands(call);
  if (!operands) return std::nullopt;
  const auto form = EpilogueReader(region->body, operands->inputs).read();
  if (!form || !cublaslt_shape(*form, operands->inputs, operands->outputs[0])) return std::nullopt;
  return form;
}

}  // namespace aicf
