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

bool Selector::join_weights(const Node& node) {
  const TensorType& type = graph_.type(node.results[0]);
  const bool fixed =
      std::all_of(node.operands.begin(), node.operands.end(), [&](ValueId id) { return is_weight(id); }) &&
      std::all_of(type.shape.begin(), type.shape.end(), [](const Dim& size) { return size.is_constant(); });
  if (!fixed) return false;
  const Window whole =
      add_extra(ExtraValue::Kind::kPacked, type, "joined " + root_name(window(node.operands[0]).root));
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
    const Shape& shape = graph_.shape(id);
    return targets_[static_cast<size_t>(id)] == kNoValue &&
           std::all_of(shape.begin(), shape.end(), [](const Dim& size) { return size.is_constant(); });
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

const KernelCall* Selector::find_packing(const KernelCall& wanted) const {
  const auto [first, last] = packings_.equal_range(wanted.inputs[0].root);
  const auto at = std::find_if(first, last, [&](const auto& known) {
    const KernelCall& done = result_.init_calls[known.second];
    return done.inputs == wanted.inputs && done.what == wanted.what;
  });
  return at == last ? nullptr : &result_.init_calls[at->second];
}

const Window& Selector::add_packing(KernelCall call) {
  packings_.emplace(call.inputs[0].root, result_.init_calls.size());
  result_.init_calls.push_back(std::move(call));
  return result_.init_calls.back().outputs[0];
}

const KernelRow* Selector::find_packed_conv(const Conv& conv, ValueId w, Problem problem) const {
  if (!is_weight(w) || !has_packed_form(conv.graph, conv.node)) return nullptr;
  problem.family = "conv_packed";
  problem.inputs[1] = {DType::u8, {Dim(1)}};
  const std::vector<const KernelRow*> rows = target_.candidates(problem);
  return rows.empty() ? nullptr : rows[0];
}

bool Selector::reads_weights_last(ValueId w) const {
  const TensorType& type = graph_.type(w);
  if (!is_weight(w)) return false;
  const bool known =
      std::all_of(type.shape.begin(), type.shape.end(), [](const Dim& d) { return d.is_constant(); });
  if (!known || !divide_exactly(type.shape[1], Dim(16 / dtype_bytes(type.dtype)))) return false;
  return !(window(w).strides[1] == Dim(1)) ||
         std::any_of(type.shape.begin() + 2, type.shape.end(), [](const Dim& d) { return !(d == Dim(1)); });
}

Window Selector::weights_last(ValueId id, const std::string& origin) {
  const Window& w = window(id);
  KernelCall call;
  call.what = RowCall{.row = "conv_w_channels_last"};
  call.inputs = {w};
  if (const KernelCall* done = find_packing(call)) return done->outputs[0];
  const TensorType type{w.dtype, w.sizes};
  const Window extra = add_extra(ExtraValue::Kind::kPacked, type, "packed " + root_name(w.root));
  call.outputs = {ordered_window(extra.root, type, channels_last_order(w.sizes.size()))};
  call.origins = {origin};
  call.reason = "weights channels-last at load";
  return add_packing(std::move(call));
}

Window Selector::pack_conv(const Window& w, const Conv& conv, const std::string& origin) {
  const int64_t groups = conv.node.attrs.get_int("groups"), maps = *w.sizes[0].constant();
  KernelCall call;
  call.what = RowCall{.row = "pack_conv_w_f32", .params = {Dim(groups)}};
  call.inputs = {w};
  if (const KernelCall* done = find_packing(call)) return done->outputs[0];
  int64_t k = 1;
  for (size_t i = 1; i < w.sizes.size(); ++i) k = checked_mul(k, *w.sizes[i].constant());
  call.outputs = {add_extra(ExtraValue::Kind::kPacked,
                            {DType::u8, {Dim(packed_conv_w_bytes(groups, maps, k))}},
                            "packed " + root_name(w.root))};
  call.origins = {origin};
  call.reason = "weights packed at load";
  return add_packing(std::move(call));
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

bool Selector::packable(const std::vector<Window>& parts, const Window& w) const {
  if (target_.is_cuda() || parts.empty()) return false;  // CUDA kernels take weights as they are stored
  return w.sizes.size() == 2 && w.sizes[0].is_constant() && w.sizes[1].is_constant() && w.dtype == DType::f32;
}

const KernelRow* Selector::find_packed(Problem problem) const {
  problem.params = problem.inputs[1].sizes;
  problem.inputs[1] = {
      DType::u8, {Dim(packed_matmul_y_bytes(*problem.params[0].constant(), *problem.params[1].constant()))}};
  const std::vector<const KernelRow*> rows = target_.candidates(problem);
  return rows.empty() ? nullptr : rows[0];
}

Window Selector::pack(const std::vector<Window>& parts, const Shape& sizes, const Node& node) {
  KernelCall call;
  call.what = RowCall{.row = "pack_matmul_y_f32"};
  call.inputs = parts;
  if (const KernelCall* done = find_packing(call)) return done->outputs[0];
  const int64_t bytes = packed_matmul_y_bytes(*sizes[0].constant(), *sizes[1].constant());
  call.outputs = {
      add_extra(ExtraValue::Kind::kPacked, {DType::u8, {Dim(bytes)}}, "packed " + root_name(parts[0].root))};
  call.origins = {origin_of(node)};
  call.reason = "weights packed at load";
  return add_packing(std::move(call));
}

const std::string& Selector::root_name(ValueId root) const {
  return root < graph_.value_count() ? graph_.value(root).name
                                     : result_.extra[static_cast<size_t>(root - graph_.value_count())].name;
}

void Selector::find_constants() {
  for (ValueId id = 0; id < graph_.value_count(); ++id) {
    const Role role = graph_.value(id).role;
    result_.constant.push_back(role == Role::kConstant || (role == Role::kParam && !is_updated(id)));
  }
  for (const ExtraValue& extra : result_.extra)
    result_.constant.push_back(extra.kind == ExtraValue::Kind::kPacked);
}

}  // namespace aicf
