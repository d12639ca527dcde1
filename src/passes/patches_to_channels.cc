// Convolutions of patches (the windows lie side by side, as where a vision transformer cuts a picture) of few
// channels as convolutions of one tap: an element of a patch is a channel (space to depth). The copy engine
// then reads what threads would gather element by element, for one copy of x.
#include <optional>

#include "ir/decompose/emitter.h"
#include "passes/pass.h"

namespace aicf {
namespace {

bool has_matrix_units(const Graph& graph, const Node& conv) {
  return is_half(graph.dtype(conv.operands[0])) || conv.attrs.get_bool("tf32");
}

// Channels that are no whole 16 bytes.
bool fill_no_vector(const Graph& graph, const Node& conv) {
  const std::optional<int64_t> channels = graph.shape(conv.operands[0])[1].constant();
  return channels && *channels * dtype_bytes(graph.dtype(conv.operands[0])) % 16 != 0;
}

bool cuts_patches(const Graph& graph, const Node& conv) {
  const Shape &x = graph.shape(conv.operands[0]), &w = graph.shape(conv.operands[1]);
  const Ints &strides = conv.attrs.get_ints("strides"), &dilations = conv.attrs.get_ints("dilations");
  const size_t axes = strides.size();
  if (conv.attrs.get_int("groups") != 1 || conv.attrs.get_ints("pads") != Ints(2 * axes, 0) ||
      strides == Ints(axes, 1))
    return false;
  for (size_t i = 0; i < axes; ++i)
    if (!(w[2 + i] == Dim(strides[i])) || !x[2 + i].is_constant() || (strides[i] > 1 && dilations[i] != 1))
      return false;
  return true;
}

ValueId patches(Emitter& e, ValueId x, const Ints& strides) {
  const Shape from = e.shape(x);
  const auto rank = static_cast<int64_t>(strides.size());
  Shape whole{from[0], from[1]}, apart = whole, result{from[0], from[1]};
  Ints order{0, 1};
  for (int64_t i = 0; i < rank; ++i) {
    const Dim side(strides[static_cast<size_t>(i)]);
    const Dim count = floordiv(from[static_cast<size_t>(2 + i)], side);
    whole.push_back(count * side);
    apart.insert(apart.end(), {count, side});
    result[1] = result[1] * side;
    result.push_back(count);
    order.push_back(3 + 2 * i);
  }
  for (int64_t i = 0; i < rank; ++i) order.push_back(2 + 2 * i);
  if (whole != from)
    x = e.op(Op::slice, {x},
             {{"starts", Shape(from.size(), Dim(0))}, {"limits", whole}, {"steps", Ints(from.size(), 1)}});
  return e.reshape(e.op(Op::transpose, {e.reshape(x, apart)}, {{"perm", order}}), result);
}

ValueId convolved(Emitter& e, const Node& conv, Values operands) {
  const Ints& strides = conv.attrs.get_ints("strides");
  const Shape w = e.shape(operands[1]);
  Shape taps{w[0], element_count(Shape(w.begin() + 1, w.end()))};
  taps.resize(w.size(), Dim(1));
  operands[0] = patches(e, operands[0], strides);
  operands[1] = e.reshape(operands[1], taps);
  Attrs attrs = conv.attrs;
  attrs.set("strides", Ints(strides.size(), 1));
  return e.op(Op::conv, operands, attrs);
}

}  // namespace

Graph patches_to_channels(const Graph& graph, const PassContext&) {
  GraphRewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    if (node.op != Op::conv || !has_matrix_units(graph, node) || !fill_no_vector(graph, node) ||
        !cuts_patches(graph, node)) {
      rewriter.copy(node);
      continue;
    }
    Emitter emitter(rewriter.graph(), node.origin);
    rewriter.map(node.results[0], convolved(emitter, node, rewriter.values(node.operands)));
  }
  return rewriter.finish();
}

}  // namespace aicf
