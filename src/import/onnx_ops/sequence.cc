// Sequences and optionals whose length and presence are known when importing: they are lists of values here
// and leave no trace in the graph.
#include <algorithm>

#include "import/onnx_ops/registry.h"

namespace aicf::onnx {
namespace {

using Items = std::vector<ValueRef>;

// A part is a node of the graph, and a step in a chain of insertions a list of its own.
constexpr int64_t kMostItems = 4096;

void check_count(NodeContext& n, int64_t count) {
  if (count > kMostItems) n.unsupported("a sequence of more than " + std::to_string(kMostItems) + " tensors");
}

ValueRef sequence_of(NodeContext& n, Items items) {
  check_count(n, static_cast<int64_t>(items.size()));
  auto value = std::make_shared<OnnxValue>();
  value->items = std::move(items);
  return value;
}

const Items& items_of(NodeContext& n, size_t i) {
  const ValueRef value = n.any(i);
  if (!value->items) n.bad("input " + std::to_string(i), "a sequence", "a tensor");
  return *value->items;
}

// A position from the front, or from the end if negative; `count` may be one beyond the last.
size_t position(NodeContext& n, size_t input, size_t count) {
  const int64_t given = n.require_int(input, "a position in a sequence"), size = static_cast<int64_t>(count);
  if (given < -size || given >= size)
    n.bad("a position in a sequence", "-" + std::to_string(size) + " to " + std::to_string(size - 1),
          std::to_string(given));
  return static_cast<size_t>(given < 0 ? given + size : given);
}

void sequence_empty(NodeContext& n) {
  n.ignore("dtype");
  n.out(0, sequence_of(n, {}));
}

void sequence_construct(NodeContext& n) {
  Items items;
  for (size_t i = 0; i < n.input_count(); ++i) items.push_back(n.ref(i));
  n.out(0, sequence_of(n, items));
}

void sequence_insert(NodeContext& n) {
  Items items = items_of(n, 0);
  size_t at = items.size();
  if (n.has(2)) {
    const int64_t given = n.require_int(2, "a position in a sequence");
    at = given == static_cast<int64_t>(items.size()) ? items.size() : position(n, 2, items.size());
  }
  items.insert(items.begin() + static_cast<std::ptrdiff_t>(at), n.ref(1));
  n.out(0, sequence_of(n, items));
}

void sequence_erase(NodeContext& n) {
  Items items = items_of(n, 0);
  if (items.empty()) n.bad("a sequence", "not empty", "empty");
  const size_t at = n.has(1) ? position(n, 1, items.size()) : items.size() - 1;
  items.erase(items.begin() + static_cast<std::ptrdiff_t>(at));
  n.out(0, sequence_of(n, items));
}

void sequence_at(NodeContext& n) {
  const Items& items = items_of(n, 0);
  n.out(0, items[position(n, 1, items.size())]);
}

void sequence_length(NodeContext& n) {
  n.out_array(0, Array::scalar_i64(DType::i64, static_cast<int64_t>(items_of(n, 0).size())));
}

void concat_from_sequence(NodeContext& n) {
  const Items& items = items_of(n, 0);
  if (items.empty()) n.bad("a sequence", "not empty", "empty");
  const bool stacks = n.attr_int("new_axis", 0) != 0;
  const int64_t axis = n.axis(n.attr_int("axis"), items[0]->type.rank() + (stacks ? 1 : 0));
  std::vector<ValueId> parts;
  for (const ValueRef& item : items) {
    ValueId part = n.context().materialize(*item);
    Shape shape = n.shape_of(part);
    if (static_cast<int64_t>(shape.size()) < axis) n.bad("the parts", "one rank", to_string(shape));
    if (stacks) shape.insert(shape.begin() + axis, Dim(1));
    parts.push_back(n.reshape(part, shape));
  }
  n.out(0, n.add(Op::concat, parts, {{"axis", axis}}));
}

// The sizes of the parts: given one by one, or one for all (the last may be smaller), or 1.
std::vector<Dim> part_sizes(NodeContext& n, const Dim& size) {
  if (n.has(1) && n.rank(1) == 1) {
    std::vector<Dim> given = n.require_sizes(1, "split");
    check_count(n, static_cast<int64_t>(given.size()));
    Dim sum(0);
    for (const Dim& part : given) sum = sum + part;
    const Interval missing = n.bounds_of(size - sum);
    if (missing.lo > 0 || missing.hi < 0)
      n.bad("split", "sizes that add up to " + size.to_string(), sum.to_string());
    return given;
  }
  const int64_t each = n.has(1) ? n.require_int(1, "split") : 1;
  const int64_t whole = size.require_constant("the axis that node '" + n.origin() + "' splits");
  if (each < 1) n.bad("split", "at least 1", std::to_string(each));
  check_count(n, whole / each);
  std::vector<Dim> sizes;
  for (int64_t at = 0; at < whole; at += each) sizes.emplace_back(std::min(each, whole - at));
  return sizes;
}

void split_to_sequence(NodeContext& n) {
  const int64_t axis = n.axis(n.attr_int("axis", 0), n.rank(0));
  const bool keeps = n.attr_int("keepdims", 1) != 0 || n.has(1);
  const std::vector<Dim> sizes = part_sizes(n, n.shape(0)[static_cast<size_t>(axis)]);
  Items items;
  Dim at(0);
  for (const Dim& size : sizes) {
    const ValueId part = n.slice_axis(n.in(0), axis, at, at + size);
    Shape shape = n.shape_of(part);
    if (!keeps) shape.erase(shape.begin() + axis);
    items.push_back(n.wrap(n.reshape(part, shape)));
    at = at + size;
  }
  n.out(0, sequence_of(n, items));
}

// An optional that holds something is that thing.
void optional(NodeContext& n) {
  if (!n.has(0)) n.unsupported("an empty optional");
  n.ignore("type");
  n.out(0, n.any(0));
}

void optional_get(NodeContext& n) { n.out(0, n.any(0)); }

void optional_has(NodeContext& n) { n.out_array(0, Array::scalar_i64(DType::boolean, n.has(0) ? 1 : 0)); }

}  // namespace

std::vector<OpRule> sequence_rules() {
  return {
      {"SequenceEmpty", sequence_empty},
      {"SequenceConstruct", sequence_construct},
      {"SequenceInsert", sequence_insert},
      {"SequenceErase", sequence_erase},
      {"SequenceAt", sequence_at},
      {"SequenceLength", sequence_length},
      {"ConcatFromSequence", concat_from_sequence},
      {"SplitToSequence", split_to_sequence},
      {"Optional", optional},
      {"OptionalGetElement", optional_get},
      {"OptionalHasElement", optional_has},
  };
}

}  // namespace aicf::onnx
