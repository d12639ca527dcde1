#include "select/selector.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "base/error.h"
#include "kernels/conv/cpu/pack_conv_w.h"
#include "kernels/matmul/cpu/pack.h"
#include "select/layout.h"

namespace aicf {
namespace {

// Bytes of the packed form of y [K, N].
Shape packed_y(const Shape& sizes) {
  return {Dim(packed_matmul_y_bytes(*sizes[0].constant(), *sizes[1].constant()))};
}

}  // namespace

bool Selector::join_weights(const Node& node) {
  const TensorType& type = graph_.type(node.results[0]);
  const bool fixed =
      std::all_of(node.operands.begin(), node.operands.end(), [&](ValueId id) { return is_weight(id); }) &&
      are_constant(type.shape);
  if (!fixed) return false;
  const Window whole =
      add_extra(ExtraValue::Kind::kPacked, type, "joined " + result_.name_of(window(node.operands[0]).root));
  JoinedWeights joined{whole, static_cast<size_t>(node.attrs.get_int("axis")), {}, origin_of(node)};
  for (ValueId id : node.operands) joined.parts.push_back(window(id));
  joined_.emplace(whole.root, std::move(joined));
  parts_[static_cast<size_t>(node.results[0])] = ConcatPart();  // another concat copies it from here
  result_.placement[static_cast<size_t>(node.results[0])] = whole;
  return true;
}

bool Selector::joins_casts(const Node& concat) const {
  return std::all_of(concat.operands.begin(), concat.operands.end(), [&](ValueId id) {
    const Node* cast = graph_.producer(id);
    return cast != nullptr && cast->op == Op::cast && depends_on_weights_only(cast->operands, cast->results);
  });
}

void Selector::copy_joined_weights() {
  std::set<ValueId> read(result_.output_roots.begin(), result_.output_roots.end());
  for (const KernelCall& call : result_.calls)
    for (const Window& w : call.inputs) read.insert(w.root);
  for (const auto& [root, joined] : joined_) {
    if (!read.contains(root)) continue;
    ConcatPart at{kNoValue, joined.axis, Dim(0)};
    for (const Window& part : joined.parts) {
      emit_copy(part, part_window(joined.whole, at, part.sizes), joined.origin, "weights joined at load");
      make_init();
      at.start = at.start + part.sizes[at.axis];
    }
  }
}

bool Selector::depends_on_weights_only(const std::vector<ValueId>& operands,
                                       const std::vector<ValueId>& results) const {
  const auto fixed = [&](ValueId id) {
    return targets_[static_cast<size_t>(id)] == kNoValue && are_constant(graph_.shape(id));
  };
  return !operands.empty() &&
         std::all_of(operands.begin(), operands.end(), [&](ValueId id) { return is_weight(id); }) &&
         std::all_of(results.begin(), results.end(), fixed);
}

const Window& Selector::place_at_load(ValueId id, const std::string& origin) {
  const ConcatPart part = std::exchange(parts_[static_cast<size_t>(id)], ConcatPart());
  const auto add = [&](ValueId value, const char* what) {
    const Window made =
        add_extra(ExtraValue::Kind::kPacked, graph_.type(value), std::string(what) + " of " + origin);
    made_at_load_.insert(made.root);
    return made;
  };
  Window& own = result_.placement[static_cast<size_t>(id)];
  if (part.whole == kNoValue || !part.views.empty() || !joins_casts(*graph_.producer(part.whole)))
    return own = add(id, "result");
  Window& whole = result_.placement[static_cast<size_t>(part.whole)];
  if (whole.root == kNoValue) whole = add(part.whole, "joined results");
  return own = part_window(whole, part, graph_.shape(id));
}

void Selector::make_init() {
  result_.init_calls.push_back(std::move(result_.calls.back()));
  result_.calls.pop_back();
}

const KernelRow* Selector::best_row(const Problem& problem) const {
  const std::vector<const KernelRow*> rows = target_.candidates(problem);
  return rows.empty() ? nullptr : rows[0];
}

const KernelRow* Selector::find_packed_conv(const Conv& conv, ValueId w, Problem problem) const {
  if (!is_weight(w) || !has_packed_form(conv)) return nullptr;
  problem.family = "conv_packed";
  problem.inputs[1] = {DType::u8, {Dim(1)}};
  return best_row(problem);
}

std::optional<Selector::WeightOrder> Selector::weight_order(const Conv& conv, ValueId w) const {
  const TensorType& type = graph_.type(w);
  if (!target_.is_cuda() || !is_weight(w) || !are_constant(type.shape)) return std::nullopt;
  const bool transposed = conv.node.op == Op::conv_transpose;
  const auto is_one = [](const Dim& size) { return size == Dim(1); };
  const Ints channels_last = channels_last_order(type.shape.size());
  if (wants_matrix_units(conv)) {
    const bool fills_vectors = divide_exactly(type.shape[1], Dim(16 / dtype_bytes(type.dtype))).has_value();
    const bool lies_so =
        is_one(window(w).strides[1]) && std::all_of(type.shape.begin() + 2, type.shape.end(), is_one);
    if (transposed || !fills_vectors || lies_so) return std::nullopt;
    return WeightOrder{channels_last, "weights channels-last at load"};
  }
  if (is_one(type.shape[0]) || is_one(type.shape[1])) return std::nullopt;
  Ints maps_last(channels_last.begin() + 1, channels_last.end() - 1);
  const int64_t maps = transposed ? 1 : 0;
  maps_last.insert(maps_last.end(), {1 - maps, maps});
  return WeightOrder{maps_last, "weights maps-last at load"};
}

bool Selector::is_weight(ValueId id) const {
  const ValueId root = window(id).root;
  if (made_at_load_.contains(root)) return true;
  if (root == kNoValue || root >= graph_.value_count()) return false;
  const Value& value = graph_.value(root);
  return value.role == Role::kConstant ||
         (value.role == Role::kParam && !options_.updated.contains(value.name));
}

std::vector<Window> Selector::weights_of(ValueId id, const Window& y) const {
  if (is_weight(id)) return {y};
  const auto at = joined_.find(y.root);
  if (at == joined_.end()) return {};
  const JoinedWeights& joined = at->second;
  if (joined.whole.sizes.size() != y.sizes.size()) return {};  // seen as another shape, a vector as a column
  const bool turned = y == swap_last_axes(joined.whole);
  if (!turned && !(y == joined.whole)) return {};
  if (joined.axis != (turned ? 0u : 1u)) return {};
  std::vector<Window> parts = joined.parts;
  if (turned) std::transform(parts.begin(), parts.end(), parts.begin(), swap_last_axes);
  return parts;
}

const KernelRow* Selector::find_packed(Problem problem) const {
  ProblemTensor& y = problem.inputs[1];
  // CUDA kernels take weights as they are stored.
  if (target_.is_cuda() || y.sizes.size() != 2 || !are_constant(y.sizes) || y.dtype != DType::f32)
    return nullptr;
  problem.params = y.sizes;
  y = {DType::u8, packed_y(y.sizes)};
  return best_row(problem);
}

Window Selector::packed(RowCall row, std::vector<Window> from, const TensorType& type, const Ints& order,
                        const std::string& origin, const char* reason) {
  const ValueId root = from[0].root;
  KernelCall call;
  call.inputs = std::move(from);
  call.what = std::move(row);
  const auto [first, last] = packings_.equal_range(root);
  for (auto known = first; known != last; ++known) {
    const KernelCall& done = result_.init_calls[known->second];
    if (done.inputs == call.inputs && done.what == call.what) return done.outputs[0];
  }
  const Window result = add_extra(ExtraValue::Kind::kPacked, type, "packed " + result_.name_of(root));
  call.outputs = {ordered_window(result.root, type, order)};
  call.origins = {origin};
  call.reason = reason;
  packings_.emplace(root, result_.init_calls.size());
  result_.init_calls.push_back(std::move(call));
  return result_.init_calls.back().outputs[0];
}

Window Selector::pack(const std::vector<Window>& parts, const Shape& sizes, const Node& node) {
  return packed({.row = "pack_matmul_y_f32"}, parts, {DType::u8, packed_y(sizes)}, {}, origin_of(node),
                "weights packed at load");
}

Window Selector::pack_conv(const Window& w, const Conv& conv, const std::string& origin) {
  const int64_t groups = conv.node.attrs.get_int("groups"), maps = *w.sizes[0].constant();
  int64_t k = 1;
  for (size_t i = 1; i < w.sizes.size(); ++i) k = checked_mul(k, *w.sizes[i].constant());
  return packed({.row = "pack_conv_w_f32", .params = {Dim(groups)}}, {w},
                {DType::u8, {Dim(packed_conv_w_bytes(groups, maps, k))}}, {}, origin,
                "weights packed at load");
}

}  // namespace aicf
