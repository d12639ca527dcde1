// conv_transpose as convolutions of stride 1 that multiply no zeros. Along an axis of stride s the positions
// of the result fall into s phases, by their remainder. The taps that reach a phase stand a fixed step apart,
// and their sum over x is a convolution with these taps turned round (the polyphase decomposition). A stride
// of 1 has one phase; the phases of others are interleaved.
#include <algorithm>
#include <numeric>
#include <optional>

#include "ir/decompose/emitter.h"
#include "passes/pass.h"

namespace aicf {
namespace {

// What one phase of the result computes along an axis.
struct Phase {
  int64_t taps = 0;             // none: the phase is zero
  int64_t start = 0, step = 1;  // of these taps in the turned kernel
  int64_t dilation = 1;         // of them over x
  int64_t low = 0, high = 0;    // padding of x; negative: elements that no window reaches
};

struct PhasedAxis {
  int64_t stride = 1;
  Dim count;  // positions of a phase; those of the last phases may exceed the result
  std::vector<Phase> phases;
};

// Position stride·q + remainder of the result gets tap k from x[(position + pad - dilation·k) / stride] where
// that divides. `more_positions`: those of the phase less the size of x.
Phase phase_of(int64_t remainder, int64_t stride, int64_t dilation, int64_t pad, int64_t kernel,
               int64_t more_positions) {
  Phase phase;
  const int64_t first_position = remainder + pad;
  int64_t first = 0;
  while (first < kernel && (first_position - dilation * first) % stride != 0) ++first;
  if (first == kernel) return phase;
  const int64_t common = std::gcd(stride, dilation), at = (first_position - dilation * first) / stride;
  phase.step = stride / common;
  phase.dilation = dilation / common;
  phase.taps = (kernel - 1 - first) / phase.step + 1;
  const int64_t reach = (phase.taps - 1) * phase.step;
  phase.start = kernel - 1 - first - reach;
  phase.low = (phase.taps - 1) * phase.dilation - at;
  phase.high = more_positions + at;
  return phase;
}

int64_t ceil_quotient(int64_t a, int64_t b) { return a >= 0 ? (a + b - 1) / b : -(-a / b); }

class Phases {
 public:
  Phases(Graph& graph, const Node& node, const SymbolRanges& ranges, ValueId x, ValueId w, ValueId bias,
         const Shape& result)
      : e_(graph, node.origin), node_(node), ranges_(ranges), x_(x), w_(w), bias_(bias), result_(result) {}

  // None where sizes are not known well enough, or where a phase lies wholly in padding.
  std::optional<ValueId> run() {
    for (size_t i = 0; i < spatial(); ++i)
      if (!find_phases(i)) return std::nullopt;
    if (!std::all_of(result_.begin(), result_.end(), [](const Dim& size) { return !(size == Dim(0)); }))
      return std::nullopt;
    turned_ = turned_kernel();
    const ValueId whole = interleaved(0).value_or(kNoValue);
    return cut_to_result(whole == kNoValue ? zeros(0) : whole);
  }

 private:
  size_t spatial() const { return result_.size() - 2; }
  const Ints& list(const char* name) const { return node_.attrs.get_ints(name); }

  bool find_phases(size_t i) {
    const auto kernel = e_.shape(w_)[2 + i].constant();
    const Dim& size = e_.shape(x_)[2 + i];
    PhasedAxis axis;
    axis.stride = list("strides")[i];
    const auto excess = (result_[2 + i] - size * Dim(axis.stride)).constant();
    if (!kernel || !excess) return false;
    const int64_t more = ceil_quotient(*excess, axis.stride);
    axis.count = size + Dim(more);
    for (int64_t r = 0; r < axis.stride; ++r) {
      axis.phases.push_back(phase_of(r, axis.stride, list("dilations")[i], list("pads")[i], *kernel, more));
      const Phase& phase = axis.phases.back();
      const int64_t unread = std::max<int64_t>(-phase.low, 0) + std::max<int64_t>(-phase.high, 0);
      if (phase.taps > 0 && bounds(size, ranges_).lo <= unread) return false;
    }
    axes_.push_back(std::move(axis));
    return true;
  }

  // [C, M/groups, kernel...] as the kernel of a convolution, [M, C/groups, kernel...], every kernel axis
  // reversed.
  ValueId turned_kernel() {
    const int64_t groups = node_.attrs.get_int("groups");
    const Shape shape = e_.shape(w_);
    const Dim channels = floordiv(shape[0], Dim(groups));
    ValueId w = w_;
    if (!(channels == Dim(1)) || !(shape[1] == Dim(1))) {
      Shape split = shape, merged = shape;
      split[0] = channels;
      split.insert(split.begin(), Dim(groups));
      merged[0] = Dim(groups) * shape[1];
      merged[1] = channels;
      Ints exchange = axes_from(0, static_cast<int64_t>(split.size()));
      std::swap(exchange[1], exchange[2]);
      if (groups == 1) {
        exchange = axes_from(0, static_cast<int64_t>(shape.size()));
        std::swap(exchange[0], exchange[1]);
        split = shape;
      }
      w = e_.reshape(e_.op(Op::transpose, {e_.reshape(w, split)}, {{"perm", exchange}}), merged);
    }
    return e_.op(Op::reverse, {w}, {{"axes", axes_from(2, e_.rank(w))}});
  }

  // The phases `remainders_` of the axes before `axis`, those of the others interleaved: [N, M, count, stride
  // where it is above 1, ...], with 1 for the strides of the axes before. None: all zero.
  std::optional<ValueId> interleaved(size_t axis) {
    if (axis == spatial()) return phase();
    std::vector<std::optional<ValueId>> parts;
    for (size_t r = 0; r < axes_[axis].phases.size(); ++r) {
      remainders_.push_back(r);
      parts.push_back(interleaved(axis + 1));
      remainders_.pop_back();
    }
    if (std::none_of(parts.begin(), parts.end(), [](const auto& part) { return part.has_value(); }))
      return std::nullopt;
    if (parts.size() == 1) return parts[0];
    Values operands;
    for (const auto& part : parts) operands.push_back(part ? *part : zeros(axis + 1));
    int64_t at = 2;
    for (size_t i = 0; i < axis; ++i) at += axes_[i].stride > 1 ? 2 : 1;
    return e_.op(Op::concat, std::move(operands), {{"axis", at + 1}});
  }

  // As wide as what is interleaved from this axis on.
  Shape interleaved_shape(size_t from) const {
    Shape shape = {result_[0], result_[1]};
    for (size_t i = 0; i < spatial(); ++i) {
      shape.push_back(axes_[i].count);
      if (axes_[i].stride > 1) shape.push_back(Dim(i < from ? 1 : axes_[i].stride));
    }
    return shape;
  }

  ValueId zeros(size_t from) {
    const Shape shape = interleaved_shape(from);
    const ValueId value = bias_ == kNoValue ? e_.scalar(e_.dtype(x_), 0)
                                            : e_.along_channels(bias_, static_cast<int64_t>(shape.size()));
    return e_.op(Op::broadcast_to, {value}, {{"shape", shape}});
  }

  std::optional<ValueId> phase() {
    Shape w_starts(result_.size(), Dim(0)), w_limits = e_.shape(turned_), x_starts = w_starts,
                                            x_limits = e_.shape(x_);
    Ints w_steps(result_.size(), 1), pads(2 * spatial()), dilations;
    for (size_t i = 0; i < spatial(); ++i) {
      const Phase& phase = axes_[i].phases[remainders_[i]];
      if (phase.taps == 0) return std::nullopt;
      w_starts[2 + i] = Dim(phase.start);
      w_limits[2 + i] = Dim(phase.start + (phase.taps - 1) * phase.step + 1);
      w_steps[2 + i] = phase.step;
      x_starts[2 + i] = Dim(std::max<int64_t>(-phase.low, 0));
      x_limits[2 + i] = x_limits[2 + i] - Dim(std::max<int64_t>(-phase.high, 0));
      pads[i] = std::max<int64_t>(phase.low, 0);
      pads[spatial() + i] = std::max<int64_t>(phase.high, 0);
      dilations.push_back(phase.dilation);
    }
    std::vector<ValueId> operands = {sliced(x_, x_starts, x_limits, Ints(result_.size(), 1)),
                                     sliced(turned_, w_starts, w_limits, w_steps)};
    operands.push_back(bias_);
    const ValueId sums = e_.op(Op::conv, std::move(operands),
                               {{"strides", Ints(spatial(), 1)},
                                {"pads", pads},
                                {"dilations", dilations},
                                {"groups", node_.attrs.get_int("groups")},
                                {"tf32", node_.attrs.get_bool("tf32")}});
    return e_.reshape(sums, interleaved_shape(spatial()));
  }

  ValueId sliced(ValueId x, const Shape& starts, const Shape& limits, const Ints& steps) {
    const Ints ones(steps.size(), 1);
    if (starts == Shape(starts.size(), Dim(0)) && limits == e_.shape(x) && steps == ones) return x;
    return e_.op(Op::slice, {x}, {{"starts", starts}, {"limits", limits}, {"steps", steps}});
  }

  ValueId cut_to_result(ValueId whole) {
    Shape merged = {result_[0], result_[1]};
    for (const PhasedAxis& axis : axes_) merged.push_back(axis.count * Dim(axis.stride));
    const size_t rank = result_.size();
    return sliced(e_.reshape(whole, merged), Shape(rank, Dim(0)), result_, Ints(rank, 1));
  }

  Emitter e_;
  const Node& node_;
  const SymbolRanges& ranges_;
  const ValueId x_, w_, bias_;
  const Shape result_;
  std::vector<PhasedAxis> axes_;
  std::vector<size_t> remainders_;  // of the axes so far
  ValueId turned_ = kNoValue;
};

// Where no matrix units multiply, one kernel of a GPU runs all phases (conv_simt.cuh). Depthwise ones have a
// kernel for windows alone.
bool runs_whole(const Graph& graph, const Node& node, const Target& target) {
  const Ints& strides = node.attrs.get_ints("strides");
  const TensorType& w = graph.type(node.operands[1]);
  const bool is_strided =
      std::any_of(strides.begin(), strides.end(), [](int64_t stride) { return stride > 1; });
  return target.is_cuda() && is_strided && !is_half(w.dtype) && !node.attrs.get_bool("tf32") &&
         !(w.shape[0] == Dim(node.attrs.get_int("groups")));
}

}  // namespace

Graph decompose_conv_transpose(const Graph& graph, const PassContext& context) {
  GraphRewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    if (node.op == Op::conv_transpose && !runs_whole(graph, node, context.target)) {
      const auto operand = [&](size_t i) {
        return i < node.operands.size() && node.operands[i] != kNoValue ? rewriter.value(node.operands[i])
                                                                        : kNoValue;
      };
      Phases phases(rewriter.graph(), node, context.program.sizes, operand(0), operand(1), operand(2),
                    graph.shape(node.results[0]));
      if (const auto result = phases.run()) {
        rewriter.map(node.results[0], *result);
        continue;
      }
    }
    rewriter.copy(node);
  }
  return rewriter.finish();
}

}  // namespace aicf
