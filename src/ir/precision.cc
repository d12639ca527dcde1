#include "ir/precision.h"

#include <array>
#include <utility>

#include "base/error.h"
#include "ir/decompose/emitter.h"

namespace aicf {
namespace {

bool is_contraction(Op op) {
  return op == Op::matmul || op == Op::linear || op == Op::conv || op == Op::conv_transpose ||
         op == Op::attention || op == Op::attention_lse;
}

// Linear and conv add their bias after the product; it stays f32.
bool has_bias(const Node& node) {
  return (node.op == Op::linear || node.op == Op::conv || node.op == Op::conv_transpose) &&
         node.operands[2] != kNoValue;
}

ValueId add_bias(Emitter& e, const Node& node, ValueId product, ValueId bias) {
  return e.add(product, node.op == Op::linear ? bias : e.along_channels(bias, e.rank(product)));
}

void narrow(GraphRewriter& rewriter, const Node& node, DType dtype) {
  Emitter e(rewriter.graph(), node.origin);
  std::vector<ValueId> operands = rewriter.values(node.operands);
  const bool bias = has_bias(node);
  for (size_t i = 0; i < operands.size(); ++i)
    if (operands[i] != kNoValue && e.dtype(operands[i]) == DType::f32 && !(bias && i == 2))
      operands[i] = e.cast(operands[i], dtype);
  const ValueId bias_value = bias ? std::exchange(operands[2], kNoValue) : kNoValue;
  const Values results = e.ops(node.op, operands, node.attrs);
  const ValueId product = e.cast(results[0], DType::f32);
  rewriter.map(node.results[0], bias ? add_bias(e, node, product, bias_value) : product);
  for (size_t i = 1; i < results.size(); ++i) rewriter.map(node.results[i], results[i]);
}

constexpr std::array<const char*, 5> kNames = {"f32", "tf32", "bf16-mixed", "f16-mixed", "bf16-pure"};

Precision precision_among(const std::string& name, size_t count) {
  std::string known;
  for (size_t i = 0; i < count; ++i) {
    if (name == kNames[i]) return static_cast<Precision>(i);
    known += (i == 0 ? "" : ", ") + std::string(kNames[i]);
  }
  throw UserError(ErrorCode::kU_unsupported_option, "there is no such precision here")
      .with_value(name)
      .with_expected(known);
}

}  // namespace

Precision precision_of(const std::string& name) { return precision_among(name, kNames.size()); }
Precision inference_precision_of(const std::string& name) { return precision_among(name, kNames.size() - 1); }
const char* precision_name(Precision precision) { return kNames[static_cast<size_t>(precision)]; }

std::optional<DType> contraction_dtype(Precision precision) {
  if (precision == Precision::kBf16Mixed) return DType::bf16;
  if (precision == Precision::kF16Mixed) return DType::f16;
  return std::nullopt;
}

namespace {

// One channel of many groups: its kernel, and that of its gradients, has nothing to add channels over, and
// tensor cores nothing to multiply.
bool is_depthwise(const Graph& graph, const Node& node) {
  const int64_t groups = node.attrs.get_int("groups");
  const Dim channels = node.op == Op::conv_weight_gradient ? graph.shape(node.results[0])[1]
                                                           : graph.shape(node.operands[1])[1];
  return groups > 1 && channels == Dim(1);
}

bool multiplies_in_tf32(const Graph& graph, const Node& node) {
  if (op_info(node.op).attribute("tf32") == nullptr) return false;
  if (graph.dtype(node.operands[0]) != DType::f32) return false;
  if (node.op == Op::attention_backward) return false;  // its kernels multiply in f32
  return node.attrs.find("groups") == nullptr || !is_depthwise(graph, node);
}

}  // namespace

Graph multiply_in_tf32(const Graph& graph) {
  GraphRewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    Node copy = node;
    if (multiplies_in_tf32(graph, node)) copy.attrs.set("tf32", true);
    rewriter.copy(copy);
  }
  return rewriter.finish();
}

Graph narrow_contractions(const Graph& graph, DType dtype) {
  GraphRewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    const bool narrows = is_contraction(node.op) && graph.dtype(node.operands[0]) == DType::f32;
    narrows ? narrow(rewriter, node, dtype) : static_cast<void>(rewriter.copy(node));
  }
  return rewriter.finish();
}

}  // namespace aicf
