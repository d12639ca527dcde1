#include "select/storage_order.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "ir/region.h"
#include "select/layout.h"
#include "target/op_problem.h"

namespace aicf {
namespace {

constexpr size_t kImageRank = 4;
constexpr int64_t kFewMaps = 12;  // output channels of a group: below, vectors of them would be mostly empty

class Orders {
 public:
  Orders(const Graph& graph, const Target& target, const SelectOptions& options)
      : graph_(graph),
        target_(target),
        orders_(static_cast<size_t>(graph.value_count())),
        feeds_conv_(static_cast<size_t>(graph.value_count()), false),
        feeds_parts_(static_cast<size_t>(graph.value_count()), false) {
    for (const Node& node : graph.nodes()) {
      const std::optional<Conv> conv = conv_of(graph, node);
      if (conv && gains_by_parts(*conv, target, options)) by_parts_.insert(node.results[0]);
    }
  }

  std::vector<Ints> run() {
    find_conv_inputs();
    for (const Node& node : graph_.nodes()) spread(node);
    follow_transposes();
    // An output is the caller's memory, which is row-major.
    for (ValueId id : graph_.outputs()) orders_[static_cast<size_t>(id)].clear();
    return std::move(orders_);
  }

 private:
  bool is_last(ValueId id) const { return id != kNoValue && !orders_[static_cast<size_t>(id)].empty(); }
  // Stored with channels last, or seen so: a transpose of a value that lies row-major.
  bool lies_last(ValueId id) const {
    if (id == kNoValue || is_last(id)) return id != kNoValue;
    const Node* view = graph_.producer(id);
    if (view == nullptr || view->operands.empty()) return false;
    const ValueId from = view->operands[0];
    if (view->op == Op::reshape) return keeps_channels(*view) && lies_last(from);
    const Node* writer = graph_.producer(from);
    return view->op == Op::transpose && orders_[static_cast<size_t>(from)].empty() &&
           (writer == nullptr || writer->op != Op::transpose) &&
           inverse_order(view->attrs.get_ints("perm")) == channels_last_order(graph_.shape(id).size());
  }
  void set_last(ValueId id) {
    orders_[static_cast<size_t>(id)] = channels_last_order(graph_.shape(id).size());
  }

  // Contractions and attention write rows of their last axis wherever they are told, gradients of weights any
  // element, and attention's gradients read them anywhere, so a transpose that keeps the last axis is free if
  // the value is stored transposed and nobody else wants it in another way.
  void follow_transposes() {
    std::vector<int> uses = graph_.use_counts();
    for (const Node& node : graph_.nodes())
      if (node.op == Op::attention_backward)
        for (ValueId id : node.operands)
          if (id != kNoValue) --uses[static_cast<size_t>(id)];
    for (const Node& node : graph_.nodes()) {
      if (node.op != Op::transpose || uses[static_cast<size_t>(node.operands[0])] != 1) continue;
      const Node* writer = graph_.producer(node.operands[0]);
      const Ints& perm = node.attrs.get_ints("perm");
      const bool keeps_rows = !perm.empty() && perm.back() == static_cast<int64_t>(perm.size()) - 1;
      const bool is_written_so =
          writer != nullptr && (writer->op == Op::conv_weight_gradient ||
                                (keeps_rows && writes_rows_anywhere(*writer, node.operands[0])));
      if (is_written_so) orders_[static_cast<size_t>(node.operands[0])] = perm;
    }
  }
  static bool writes_rows_anywhere(const Node& writer, ValueId result) {
    if (writer.op == Op::attention_lse) return result == writer.results[0];
    return writer.op == Op::attention || writer.op == Op::attention_backward || writer.op == Op::matmul;
  }

  void spread(const Node& node) {
    if (const std::optional<Conv> conv = conv_of(graph_, node)) {
      const bool feeds_conv = std::any_of(node.results.begin(), node.results.end(),
                                          [&](ValueId id) { return feeds_conv_[static_cast<size_t>(id)]; });
      if (prefers_last(node, *conv) || feeds_parts_[static_cast<size_t>(node.results[0])] ||
          (takes_either(*conv) &&
           (lies_last(node.operands[0]) || (feeds_conv && is_narrow(*conv) && target_.is_cuda()))))
        for (ValueId id : node.results) set_last(id);
      return;
    }
    switch (node.op) {
      case Op::pad:
        if (!target_.is_cuda()) break;
        [[fallthrough]];
      case Op::max_pool:
      case Op::avg_pool:
      case Op::slice:
        if (is_last(node.operands[0])) set_last(node.results[0]);
        return;
      case Op::concat:
        if (std::any_of(node.operands.begin(), node.operands.end(), [&](ValueId id) { return is_last(id); }))
          set_last(node.results[0]);
        return;
      case Op::reshape:
        if (feeds_conv_[static_cast<size_t>(node.results[0])] ||
            (is_last(node.operands[0]) && keeps_channels(node)))
          set_last(node.results[0]);
        return;
      default:
        break;
    }
    if (!is_tile_region(node) && !op_info(node.op).has(kPointwise)) return;
    for (ValueId result : node.results)
      if (any_is_last(node, result) || all_lie_last(node, result) || is_shaped_last(node, result))
        set_last(result);
  }
  // Made of parts that are stored so, whose spatial axes are others.
  bool is_shaped_last(const Node& node, ValueId result) const {
    return feeds_conv_[static_cast<size_t>(result)] && graph_.shape(result).size() > kImageRank &&
           std::any_of(node.operands.begin(), node.operands.end(), [&](ValueId id) {
             const Node* view = graph_.producer(id);
             if (view != nullptr && view->op == Op::broadcast_to) id = view->operands[0];
             return is_last(id) && graph_.shape(id).size() == graph_.shape(result).size() &&
                    graph_.shape(id)[1] == graph_.shape(result)[1];
           });
  }

  bool any_is_last(const Node& node, ValueId result) const {
    return std::any_of(node.operands.begin(), node.operands.end(),
                       [&](ValueId id) { return is_last(id) && graph_.shape(id) == graph_.shape(result); });
  }
  // Of images: an element-wise kernel then reads and writes along the same axis.
  bool all_lie_last(const Node& node, ValueId result) const {
    bool any = false;
    for (ValueId id : node.operands) {
      if (id == kNoValue || !(graph_.shape(id) == graph_.shape(result))) continue;
      if (!lies_last(id)) return false;
      any = true;
    }
    return any && graph_.shape(result).size() == kImageRank;
  }

  void find_conv_inputs() {
    for (const Node& node : graph_.nodes()) {
      const std::optional<Conv> conv = conv_of(graph_, node);
      if (!conv || !prefers_last(node, *conv)) continue;
      feeds_conv_[static_cast<size_t>(node.operands[0])] = true;
      if (target_.is_cuda()) store_weights_last(weights_of(node, *conv));
    }
    find_shaped_inputs();
    find_parts_inputs();
  }
  // What such convolutions of f32 read, through ops that keep the order: another convolution stores its
  // result so.
  void find_parts_inputs() {
    for (size_t i = graph_.nodes().size(); i-- > 0;) {
      const Node& node = graph_.nodes()[i];
      const auto feed = [&](ValueId id) { feeds_parts_[static_cast<size_t>(id)] = true; };
      if (by_parts_.contains(node.results[0])) {
        feed(node.operands[0]);
      } else if (feeds_parts_[static_cast<size_t>(node.results[0])]) {
        if (node.op == Op::pad || node.op == Op::max_pool || node.op == Op::avg_pool) feed(node.operands[0]);
        if (!is_tile_region(node) && !op_info(node.op).has(kPointwise)) continue;
        for (ValueId id : node.operands)
          if (id != kNoValue && graph_.shape(id) == graph_.shape(node.results[0])) feed(id);
      }
    }
  }
  // Regions whose only reader changes spatial axes for such a convolution: pictures made larger.
  void find_shaped_inputs() {
    const std::vector<int> uses = graph_.use_counts();
    for (size_t i = graph_.nodes().size(); i-- > 0;) {
      const Node& node = graph_.nodes()[i];
      if (!target_.is_cuda() || node.op != Op::reshape || !keeps_channels(node)) continue;
      const ValueId from = node.operands[0];
      const Node* writer = graph_.producer(from);
      if (feeds_conv_[static_cast<size_t>(node.results[0])] && uses[static_cast<size_t>(from)] == 1 &&
          writer != nullptr && is_tile_region(*writer))
        feeds_conv_[static_cast<size_t>(from)] = true;
    }
  }
  // Whether a reshape changes spatial axes alone.
  bool keeps_channels(const Node& reshape) const {
    const Shape &from = graph_.shape(reshape.operands[0]), &to = graph_.shape(reshape.results[0]);
    return from.size() >= 2 && to.size() >= 3 && from[0] == to[0] && from[1] == to[1];
  }
  // Weights that a kernel makes at every run, rounded to halves for one.
  void store_weights_last(ValueId w) {
    const Node* writer = graph_.producer(w);
    if (writer != nullptr && (is_tile_region(*writer) || op_info(writer->op).has(kPointwise))) set_last(w);
  }
  // As the graph knows them.
  static ValueId weights_of(const Node& node, const Conv& conv) {
    const std::vector<ValueId>& own = node.op == Op::fused ? conv.graph.inputs() : node.operands;
    const auto w = std::find(own.begin(), own.end(), conv.node.operands[1]);
    return node.operands[static_cast<size_t>(w - own.begin())];
  }

  bool prefers_last(const Node& node, const Conv& conv) const {
    if (!target_.is_cuda()) return has_packed_form(conv);
    return wants_matrix_units(conv) || by_parts_.contains(node.results[0]);
  }
  // A depthwise convolution takes channels either way; of f32 where there are many, on a CPU of one map each.
  bool takes_either(const Conv& conv) const {
    if (!is_depthwise(conv)) return false;
    if (is_narrow(conv) && target_.is_cuda()) return true;
    const TensorType& w = conv.graph.type(conv.node.operands[1]);
    const int64_t groups = conv.node.attrs.get_int("groups");
    return w.dtype == DType::f32 && groups >= kFewMaps && (target_.is_cuda() || w.shape[0] == Dim(groups));
  }

  const Graph& graph_;
  const Target& target_;
  std::vector<Ints> orders_;
  std::vector<bool> feeds_conv_;   // by value: a convolution that prefers its channels last reads it
  std::vector<bool> feeds_parts_;  // by value: one by parts reads what is made of it
  std::set<ValueId> by_parts_;     // first results of convolutions that gain by parts
};

}  // namespace

std::vector<Ints> stored_orders(const Graph& graph, const Target& target, const SelectOptions& options) {
  return Orders(graph, target, options).run();
}

namespace {

// Whether the node's kernels write this result as a part of a larger value.
bool writes_parts(const Node& node, ValueId result) {
  const bool row_major = node.op == Op::attention_lse && result == node.results[1];
  return !op_info(node.op).has(kView) && !row_major;
}

// Whether the node's kernels write any strides that views give.
bool writes_anywhere(const Node& node) {
  return node.op == Op::attention_backward || begins_with(node, Op::conv);
}

// Whether a reshape inserts or removes axes of one element alone: any strides are strides of the other shape.
bool keeps_long_axes(const Graph& graph, const Node& reshape) {
  const auto long_axes = [&](ValueId id) {
    Shape sizes = graph.shape(id);
    std::erase(sizes, Dim(1));
    return sizes;
  };
  return reshape.op == Op::reshape && long_axes(reshape.operands[0]) == long_axes(reshape.results[0]);
}

// The value that a kernel writes and `id` is a view of, by transposes and reshapes that nobody else reads;
// else `id`. Through reshapes that keep the long axes every kernel writes a part as it would without them.
ValueId seen_through_views(const Graph& graph, const std::vector<int>& uses, ValueId id,
                           std::vector<const Node*>& views) {
  ValueId at = id;
  bool same_axes = true;
  for (const Node* view = graph.producer(at); view != nullptr; view = graph.producer(at)) {
    if (view->op != Op::transpose && view->op != Op::reshape)
      return writes_anywhere(*view) || (same_axes && writes_parts(*view, at)) ? at : id;
    same_axes = same_axes && keeps_long_axes(graph, *view);
    if (uses[static_cast<size_t>(at)] != 1) return id;
    views.push_back(view);
    at = view->operands[0];
    if (uses[static_cast<size_t>(at)] != 1) return id;
  }
  return id;
}

}  // namespace

std::vector<ConcatPart> concat_parts(const Graph& graph) {
  std::vector<ConcatPart> parts(static_cast<size_t>(graph.value_count()));
  const std::vector<int> uses = graph.use_counts();
  std::vector<char> barred(parts.size(), 0);
  const auto bar = [&](ValueId id) { barred[static_cast<size_t>(id)] = 1; };
  for (ValueId id : graph.outputs()) bar(id);
  for (const Update& update : graph.updates()) bar(update.value);
  const std::vector<char> kept = barred;
  for (const Node& node : graph.nodes()) {
    for (ValueId id : node.results)
      if (!writes_parts(node, id)) bar(id);
    if (node.op == Op::reshape) bar(node.operands[0]);
  }
  for (const Node& node : graph.nodes()) {
    if (node.op != Op::concat) continue;
    ConcatPart part{node.results[0], static_cast<size_t>(node.attrs.get_int("axis")), Dim(0)};
    for (ValueId id : node.operands) {
      ConcatPart& own = parts[static_cast<size_t>(id)];
      if (graph.value(id).role == Role::kTemp && !barred[static_cast<size_t>(id)] && own.whole == kNoValue)
        own = part;
      bar(id);  // a second place would need a copy anyway
      const ValueId seen = seen_through_views(graph, uses, id, part.views);
      if (seen != id && !kept[static_cast<size_t>(seen)]) parts[static_cast<size_t>(seen)] = part;
      part.views = {};
      part.start = part.start + graph.shape(id)[part.axis];
    }
  }
  return parts;
}

Ints channels_last_order(size_t rank) {
  Ints order{0};
  for (size_t axis = 2; axis < rank; ++axis) order.push_back(static_cast<int64_t>(axis));
  order.push_back(1);
  return order;
}

std::optional<Conv> conv_of(const Graph& graph, const Node& node) {
  if (!begins_with(node, Op::conv)) return std::nullopt;
  if (node.op == Op::conv) return Conv{graph, node};
  return Conv{node.bodies[0], node.bodies[0].nodes()[0]};
}

bool is_narrow(const Conv& conv) {
  return is_half(conv.graph.dtype(conv.node.operands[0])) || conv.node.attrs.get_bool("tf32");
}

bool is_depthwise(const Conv& conv) {
  return conv.node.attrs.get_int("groups") > 1 && conv.graph.type(conv.node.operands[1]).shape[1] == Dim(1);
}

bool wants_matrix_units(const Conv& conv) { return is_narrow(conv) && !is_depthwise(conv); }

const KernelRow* find_parts_row(const std::vector<const KernelRow*>& rows) {
  const auto row = std::find_if(rows.begin(), rows.end(),
                                [](const KernelRow* r) { return r->facts.units == Units::kMatrixTf32x3; });
  return row == rows.end() ? nullptr : *row;
}

bool gains_by_parts(const Conv& conv, const Target& target, const SelectOptions& options) {
  constexpr double kClearly = 1.1;
  if (!target.is_cuda() || conv.node.op != Op::conv) return false;
  const std::vector<const KernelRow*> rows = target.candidates(problem_of(conv.graph, conv.node));
  const KernelRow* parts = find_parts_row(rows);
  if (parts == nullptr) return false;
  const auto call_over = [&](bool last) {
    KernelCall call;
    const auto window = [&](ValueId id) {
      const TensorType& type = conv.graph.type(id);
      Ints order(type.shape.size());
      std::iota(order.begin(), order.end(), int64_t{0});
      if (last && order.size() > 2) order = channels_last_order(order.size());
      return ordered_window(id, type, order);
    };
    for (const ValueId id : conv.node.operands)
      if (id != kNoValue) call.inputs.push_back(window(id));
    call.outputs = {window(conv.node.results[0])};
    RowCall& row = call.what.emplace<RowCall>();
    fill_params(conv.graph, conv.node, *parts, row.params, row.fparams);
    return call;
  };
  const KernelCall last = call_over(true);
  const std::vector<Candidate> by_parts = list_candidates(last, {parts}, target, options.ranges);
  if (by_parts.empty() || is_forced(*parts, last, options)) return !by_parts.empty();
  const std::vector<Candidate> first = list_candidates(call_over(false), rows, target, options.ranges);
  return by_parts[0].estimate_us * kClearly < first[0].estimate_us;
}

bool has_packed_form(const Conv& conv) {
  const TensorType &x = conv.graph.type(conv.node.operands[0]), &w = conv.graph.type(conv.node.operands[1]);
  return x.dtype == DType::f32 && w.dtype == DType::f32 && are_constant(w.shape) &&
         *w.shape[0].constant() / conv.node.attrs.get_int("groups") >= kFewMaps;
}

}  // namespace aicf
