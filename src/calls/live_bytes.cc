#include "calls/live_bytes.h"

#include <algorithm>

namespace aicf {
namespace {

// Of a value that needs memory of its own between its first and its last call; null: it is a leaf.
const TensorType* temp_type(ValueId root, const CallGraph& calls) {
  const Graph& graph = calls.graph;
  if (root < graph.value_count()) {
    const Value& value = graph.value(root);
    return value.role == Role::kTemp ? &value.type : nullptr;
  }
  const ExtraValue& extra = calls.extra[static_cast<size_t>(root - graph.value_count())];
  return extra.kind == ExtraValue::Kind::kTemp ? &extra.type : nullptr;
}

}  // namespace

int64_t peak_live_bytes(const std::vector<KernelCall>& order, const CallGraph& calls) {
  struct Life {
    size_t first, last;
  };
  std::vector<std::pair<ValueId, Life>> lives;
  std::vector<int> number(static_cast<size_t>(calls.graph.value_count()) + calls.extra.size(), -1);
  const auto note = [&](const std::vector<Window>& windows, size_t at) {
    for (const Window& w : windows) {
      int& known = number[static_cast<size_t>(w.root)];
      if (known < 0) {
        known = static_cast<int>(lives.size());
        lives.push_back({w.root, {at, at}});
      }
      lives[static_cast<size_t>(known)].second.last = at;
    }
  };
  for (size_t i = 0; i < order.size(); ++i) {
    if (is_removed(order[i])) continue;
    note(order[i].inputs, i);
    note(order[i].outputs, i);
  }
  std::vector<int64_t> change(order.size() + 1);
  for (const auto& [root, life] : lives) {
    const TensorType* type = temp_type(root, calls);
    if (type == nullptr) continue;
    const auto& outputs = calls.output_roots;
    const bool leaves = std::find(outputs.begin(), outputs.end(), root) != outputs.end();
    const int64_t bytes = bounds(element_count(type->shape), calls.ranges).hi * dtype_bytes(type->dtype);
    change[life.first] += bytes;
    change[(leaves ? order.size() - 1 : life.last) + 1] -= bytes;
  }
  int64_t now = 0, peak = 0;
  for (const int64_t bytes : change) peak = std::max(peak, now += bytes);
  return peak;
}

}  // namespace aicf
