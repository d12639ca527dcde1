#include <atomic>
#include <set>

#include "base/error.h"
#include "import/onnx_ops/node_context.h"
#include "ir/reference/evaluator.h"

namespace aicf::onnx {
namespace {

// Folding serves operands that decide shapes; nothing legitimate is larger.
constexpr int64_t kMaxFoldedElements = int64_t{1} << 26;

bool all_constant(const std::vector<Dim>& sizes) {
  for (const Dim& dim : sizes)
    if (!dim.is_constant()) return false;
  return true;
}

std::vector<int64_t> array_sizes(const TensorType& type) {
  std::vector<int64_t> sizes;
  for (const Dim& dim : type.shape) sizes.push_back(dim.require_constant("size of a folded value"));
  return sizes;
}

}  // namespace

int64_t GraphContext::next_serial() {
  static std::atomic<int64_t> next{0};
  return next++;
}

ValueId GraphContext::materialize(OnnxValue& value) {
  if (auto at = value.emitted.find(serial_); at != value.emitted.end()) return at->second;
  if (value.items) throw Unsupported{"a sequence where a tensor is needed"};
  ValueId id = kNoValue;
  if (value.array && !value.param) {
    id = graph_.add_constant(*value.array, value.name);
  } else if (value.sizes) {
    id = emit_sizes(*value.sizes, value.type);
  } else {
    AICF_CHECK(parent_ == nullptr && value.array && value.param,
               "value '" + value.name + "' has no source here");
    program_.variables.insert_or_assign(value.name,
                                        Variable{value.name, Role::kParam, value.type, *value.array});
    id = graph_.add_param(value.name, value.type);
  }
  value.emitted.emplace(serial_, id);
  return id;
}

void GraphContext::capture_if_outer(const ValueRef& value) {
  if (value->items) {
    for (const ValueRef& item : *value->items) capture_if_outer(item);
    return;
  }
  if (parent_ != nullptr && !(value->array && !value->param) && !value->sizes) capture(value);
}

ValueId GraphContext::capture(const ValueRef& value) {
  if (auto at = value->emitted.find(serial_); at != value->emitted.end()) return at->second;
  if ((value->array && !value->param) || value->sizes || !parent_) return materialize(*value);
  parent_->capture(value);
  const ValueId id = graph_.add_input("capture_" + std::to_string(captures_.size()), value->type);
  captures_.push_back(value);
  value->emitted.emplace(serial_, id);
  return id;
}

ValueId GraphContext::emit_sizes(const std::vector<Dim>& sizes, const TensorType& type) {
  const std::vector<int64_t> shape = array_sizes(type);
  if (all_constant(sizes)) {
    std::vector<int64_t> values;
    for (const Dim& dim : sizes) values.push_back(*dim.constant());
    return graph_.add_constant(Array::from<int64_t>(type.dtype, shape, values));
  }
  const DType wide = type.dtype == DType::i32 ? DType::i32 : DType::i64;
  std::vector<ValueId> parts;
  for (const Dim& dim : sizes) {
    const auto known = dim.constant();
    ValueId part = known ? graph_.add_constant(Array::scalar_i64(wide, *known))
                         : graph_.add(Op::size_of, {}, {{"size", Shape{dim}}, {"dtype", wide}});
    if (!shape.empty()) part = graph_.add(Op::reshape, {part}, {{"shape", Shape{Dim(1)}}});
    parts.push_back(part);
  }
  ValueId whole = parts.size() == 1 ? parts[0] : graph_.add(Op::concat, parts, {{"axis", int64_t{0}}});
  if (shape.size() > 1) whole = graph_.add(Op::reshape, {whole}, {{"shape", type.shape}});
  return type.dtype == wide ? whole : graph_.add(Op::cast, {whole}, {{"dtype", type.dtype}});
}

bool GraphContext::is_foldable(ValueId id) {
  for (int v = static_cast<int>(foldable_.size()); v < graph_.value_count(); ++v) {
    const Value& value = graph_.value(v);
    bool yes = value.role == Role::kConstant ||
               (value.role == Role::kParam && program_.variables.count(value.name) > 0);
    if (value.role == Role::kTemp) {
      const Node& node = graph_.node(value.producer);
      yes = !op_info(node.op).has(kRandom) && !op_info(node.op).has(kHasBody) && node.op != Op::size_of;
      for (ValueId operand : node.operands)
        yes = yes && (operand == kNoValue || foldable_[static_cast<size_t>(operand)]);
      for (const Dim& dim : value.type.shape) yes = yes && dim.is_constant();
    }
    foldable_.push_back(yes);
  }
  return foldable_[static_cast<size_t>(id)];
}

std::optional<Array> GraphContext::constant(OnnxValue& value) {
  if (value.array) return value.array;
  if (value.sizes) {
    if (!all_constant(*value.sizes)) return std::nullopt;
    std::vector<int64_t> values;
    for (const Dim& dim : *value.sizes) values.push_back(*dim.constant());
    return Array::from<int64_t>(value.type.dtype, array_sizes(value.type), values);
  }
  if (auto at = value.emitted.find(serial_); at != value.emitted.end())
    if (auto known = constant(at->second)) return known;
  return parent_ == nullptr ? std::nullopt : parent_->constant(value);
}

std::optional<Array> GraphContext::constant(ValueId id) {
  if (!is_foldable(id)) return std::nullopt;
  // Post-order over an explicit stack: chains can be as long as the model.
  std::vector<ValueId> stack = {id};
  while (!stack.empty()) {
    const ValueId at = stack.back();
    const Value& value = graph_.value(at);
    if (folded_.count(at) || value.role == Role::kConstant || value.role == Role::kParam) {
      if (value.role == Role::kConstant) folded_.emplace(at, value.constant);
      if (value.role == Role::kParam) folded_.emplace(at, program_.variables.at(value.name).data);
      stack.pop_back();
      continue;
    }
    const Dim count = element_count(value.type.shape);
    if (count.require_constant("folded value") > kMaxFoldedElements) return std::nullopt;
    const Node& node = graph_.node(value.producer);
    const size_t before = stack.size();
    for (ValueId operand : node.operands)
      if (operand != kNoValue && !folded_.count(operand)) stack.push_back(operand);
    if (stack.size() > before) continue;
    folded_work_ += evaluation_work(graph_, node);
    if (folded_work_ > kMaxFoldedWork) return std::nullopt;
    std::vector<Array> operands;
    for (ValueId operand : node.operands)
      operands.push_back(operand == kNoValue ? Array() : folded_.at(operand));
    const std::vector<Array> results = evaluate_node(graph_, node, operands, {});
    for (size_t i = 0; i < node.results.size(); ++i) folded_.emplace(node.results[i], results[i]);
    stack.pop_back();
  }
  return folded_.at(id);
}

GraphContext::Sources GraphContext::sources(ValueId id) const {
  Sources found;
  std::set<ValueId> seen = {id};
  std::vector<ValueId> stack = {id};
  const auto add_outer = [&](ValueId inner) {
    for (const ValueRef& value : captures_) {
      const auto here = value->emitted.find(serial_), outside = value->emitted.find(parent_->serial_);
      if (here == value->emitted.end() || here->second != inner || outside == value->emitted.end()) continue;
      Sources outer = parent_->sources(outside->second);
      found.inputs.merge(outer.inputs);
      found.sizes.merge(outer.sizes);
    }
  };
  while (!stack.empty()) {
    const ValueId at = stack.back();
    const Value& value = graph_.value(at);
    stack.pop_back();
    if (value.role == Role::kInput) {
      if (parent_ != nullptr)
        add_outer(at);
      else
        found.inputs.insert(value.name);
    }
    if (value.role != Role::kTemp) continue;
    const Node& node = graph_.node(value.producer);
    if (node.op == Op::size_of) {
      std::map<std::string, int> symbols;
      for (const Dim& dim : node.attrs.get_dims("size")) dim.collect_symbols(symbols);
      for (const auto& [symbol, count] : symbols) found.sizes.insert(symbol);
    }
    for (ValueId operand : node.operands)
      if (operand != kNoValue && seen.insert(operand).second) stack.push_back(operand);
  }
  return found;
}

}  // namespace aicf::onnx
