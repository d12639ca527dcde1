#include "runtime/cuda/cudnn_graph.h"

namespace aicf::cuda::cudnn {
namespace {

using Sizes = std::vector<int64_t>;

constexpr int64_t kAlignedBytes = 16;  // as selection asks of every window

Sizes row_major(const Sizes& sizes) {
  Sizes strides(sizes.size(), 1);
  for (size_t i = sizes.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * sizes[i];
  return strides;
}

Sizes list(const int64_t* values, int rank) { return {values, values + rank}; }

// A tensor of the graph: its descriptor, and what later ones take over from it.
struct TensorNode {
  const Descriptor* descriptor;
  Sizes sizes, strides;
};

class CudnnGraphBuilder {
 public:
  TensorNode operand(const TensorArg& arg, GraphOperand::Kind kind, int number) {
    graph_.operands[next_] = {kind, number, 0};
    return add(list(arg.sizes, arg.rank), list(arg.strides, arg.rank), data_type(arg.dtype), false, false);
  }
  TensorNode value(float value, int rank) {
    graph_.operands[next_] = {GraphOperand::Kind::kValue, 0, value};
    const Sizes ones(static_cast<size_t>(rank), 1);
    return add(ones, ones, kFloat, false, true);
  }
  // A value that lives within the library's kernel.
  TensorNode inner(const Sizes& sizes, const Sizes& strides, int type = kFloat) {
    return add(sizes, strides, type, true, false);
  }

  // y = x op b, or y = op x.
  void pointwise(int mode, const TensorNode& x, const TensorNode* b, const TensorNode& y) {
    Descriptor op(kPointwise);
    op.set(kPointwiseMode, kPointwiseModeType, mode);
    op.set(kPointwiseMathType, kDataType, kFloat);
    Descriptor node(kOperationPointwise);
    node.set(kPointwiseDescriptor, keep(std::move(op)));
    node.set(kPointwiseX, *x.descriptor);
    if (b != nullptr) node.set(kPointwiseB, *b->descriptor);
    node.set(kPointwiseY, *y.descriptor);
    add(std::move(node));
  }
  void reduction(int mode, const TensorNode& x, const TensorNode& y) {
    Descriptor op(kReduction);
    op.set(kReductionOperator, kReductionOperatorType, mode);
    op.set(kReductionComputeType, kDataType, kFloat);
    Descriptor node(kOperationReduction);
    node.set(kReductionDescriptor, keep(std::move(op)));
    node.set(kReductionX, *x.descriptor);
    node.set(kReductionY, *y.descriptor);
    add(std::move(node));
  }
  void matmul(const TensorNode& a, const TensorNode& b, const TensorNode& c) {
    Descriptor op(kMatmul);
    op.set(kMatmulComputeType, kDataType, kFloat);
    Descriptor node(kOperationMatmul);
    node.set(kMatmulDescriptor, keep(std::move(op)));
    node.set(kMatmulA, *a.descriptor);
    node.set(kMatmulB, *b.descriptor);
    node.set(kMatmulC, *c.descriptor);
    add(std::move(node));
  }
  void convolution(const CudnnConv& conv, const TensorNode& x, const TensorNode& w, const TensorNode& y) {
    Descriptor op(kConvolution);
    op.set(kConvolutionComputeType, kDataType, kFloat);
    op.set(kConvolutionMode, kConvolutionModeType, kCrossCorrelation);
    op.set(kConvolutionSpatialAxes, static_cast<int64_t>(conv.strides.size()));
    op.set(kConvolutionLow, conv.low);
    op.set(kConvolutionHigh, conv.high);
    op.set(kConvolutionStrides, conv.strides);
    op.set(kConvolutionDilations, conv.dilations);
    Descriptor node(kOperationConvolution);
    node.set(kConvolutionDescriptor, keep(std::move(op)));
    node.set(kConvolutionX, *x.descriptor);
    node.set(kConvolutionW, *w.descriptor);
    node.set(kConvolutionY, *y.descriptor);
    node.set(kConvolutionAlpha, 1.0F);
    node.set(kConvolutionBeta, 0.0F);
    add(std::move(node));
  }

  OperationGraph finish() {
    graph_.graph.set(kGraphOperations, graph_.operations);
    void* const own = handle();
    graph_.graph.set(kGraphHandle, kHandleType, 1, &own);
    graph_.graph.finalize();
    return std::move(graph_);
  }

 private:
  static constexpr size_t kMostParts = 64;  // no part may move while others point to it

  TensorNode add(const Sizes& sizes, const Sizes& strides, int type, bool inner, bool by_value) {
    Descriptor tensor(kTensor);
    tensor.set(kTensorDataType, kDataType, type);
    tensor.set(kTensorSizes, sizes);
    tensor.set(kTensorStrides, strides);
    tensor.set(kTensorId, next_++);
    tensor.set(kTensorAlignment, kAlignedBytes);
    if (inner) tensor.set_flag(kTensorIsVirtual);
    if (by_value) tensor.set_flag(kTensorIsByValue);
    return {&keep(std::move(tensor)), sizes, strides};
  }
  const Descriptor& keep(Descriptor part) {
    part.finalize();
    if (graph_.parts.empty()) graph_.parts.reserve(kMostParts);
    graph_.parts.push_back(std::move(part));
    return graph_.parts.back();
  }
  void add(Descriptor operation) {
    operation.finalize();
    graph_.operations.push_back(std::move(operation));
  }

  OperationGraph graph_{Descriptor(kOperationGraph), {}, {}, {}};
  int64_t next_ = 1;
};

using Kind = GraphOperand::Kind;

OperationGraph conv_graph(const CudnnCall& call, const CudnnConv& conv) {
  CudnnGraphBuilder graph;
  const TensorNode x = graph.operand(conv.x, Kind::kInput, 0), w = graph.operand(conv.w, Kind::kInput, 1);
  const TensorNode out = graph.operand(conv.out, Kind::kOutput, 0);
  int left = (call.addend >= 0) + (call.bias >= 0) + call.relu;  // operations that follow
  const auto result = [&] { return left-- == 0 ? out : graph.inner(out.sizes, out.strides); };
  TensorNode y = result();
  graph.convolution(conv, x, w, y);
  const auto then = [&](int mode, const TensorNode* operand) {
    const TensorNode next = result();
    graph.pointwise(mode, y, operand, next);
    y = next;
  };
  // The order in which the library's own fused kernels take them.
  if (call.addend >= 0) {
    const TensorNode addend = graph.operand(conv.addend, Kind::kInput, call.addend);
    then(kAdd, &addend);
  }
  if (call.bias >= 0) {
    const TensorNode bias = graph.operand(conv.bias, Kind::kInput, call.bias);
    then(kAdd, &bias);
  }
  if (call.relu) then(kRelu, nullptr);
  return graph.finish();
}

// The pattern that the library knows as attention: two products with a softmax between them, whose weights
// have the type of q.
OperationGraph attention_graph(const CudnnAttention& attention) {
  CudnnGraphBuilder graph;
  TensorArg keys = attention.k;  // transposed
  std::swap(keys.sizes[2], keys.sizes[3]);
  std::swap(keys.strides[2], keys.strides[3]);
  const TensorNode q = graph.operand(attention.q, Kind::kInput, 0), k = graph.operand(keys, Kind::kInput, 1);
  const Sizes sizes = {q.sizes[0], q.sizes[1], q.sizes[2], k.sizes[3]}, strides = row_major(sizes);
  const Sizes rows = {q.sizes[0], q.sizes[1], q.sizes[2], 1}, row_strides = row_major(rows);
  TensorNode scores = graph.inner(sizes, strides);
  graph.matmul(q, k, scores);
  const auto next = [&](int mode, const TensorNode& x, const TensorNode* b) {
    const TensorNode y = graph.inner(sizes, strides);
    graph.pointwise(mode, x, b, y);
    return y;
  };
  const TensorNode scale = graph.value(static_cast<float>(attention.scale), 4);
  scores = next(kMultiply, scores, &scale);
  const TensorNode most = graph.inner(rows, row_strides), sum = graph.inner(rows, row_strides);
  graph.reduction(kReduceMax, scores, most);
  const TensorNode weights = next(kExp, next(kSubtract, scores, &most), nullptr);
  graph.reduction(kReduceAdd, weights, sum);
  // The library knows its pattern by these two, although nobody reads them.
  const TensorNode logarithm = graph.inner(rows, row_strides), sums = graph.inner(rows, row_strides);
  graph.pointwise(kLog, sum, nullptr, logarithm);
  graph.pointwise(kAdd, most, &logarithm, sums);
  const TensorNode shares = graph.inner(sizes, strides, data_type(attention.q.dtype));
  graph.pointwise(kDivide, weights, &sum, shares);
  graph.matmul(shares, graph.operand(attention.v, Kind::kInput, 2),
               graph.operand(attention.out, Kind::kOutput, 0));
  return graph.finish();
}

}  // namespace

std::optional<OperationGraph> operation_graph(const CudnnCall& call, const BoundCall& step) {
  if (const auto conv = cudnn_conv(call, step)) return conv_graph(call, *conv);
  if (const auto attention = cudnn_attention(call, step)) return attention_graph(*attention);
  return std::nullopt;
}

}  // namespace aicf::cuda::cudnn
