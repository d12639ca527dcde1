#include <map>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "passes/pass.h"

namespace aicf {
namespace {

// What makes two nodes compute the same values. Nodes with bodies are left alone.
struct NodeKey {
  Op op;
  std::vector<ValueId> operands;
  Attrs attrs;
  bool operator==(const NodeKey&) const = default;
};

// Equal for equal keys. Nodes that differ in attributes alone must not share one value: an unrolled loop
// takes thousands of slices from one tensor.
struct KeyHash {
  size_t operator()(const NodeKey& key) const {
    size_t hash = static_cast<size_t>(key.op);
    const auto add = [&](const auto& value) {
      using T = std::decay_t<decltype(value)>;
      if constexpr (std::is_same_v<T, Dim>)
        hash = hash * 31 + std::hash<int64_t>()(value.constant_part());
      else
        hash = hash * 31 + std::hash<T>()(value);
    };
    for (ValueId id : key.operands) add(id);
    for (const auto& [name, attr] : key.attrs.items())
      std::visit(
          [&](const auto& value) {
            using T = std::decay_t<decltype(value)>;
            if constexpr (std::is_same_v<T, Ints> || std::is_same_v<T, Floats> || std::is_same_v<T, Shape>)
              for (const auto& item : value) add(item);
            else
              add(value);
          },
          attr);
    return hash;
  }
};

// Equal constants that may stand in a node's body or text are one.
void merge_constants(const Graph& graph, GraphRewriter& rewriter) {
  constexpr int64_t kFew = 64;          // elements
  std::map<std::string, ValueId> seen;  // by type and contents
  for (ValueId id : graph.leaves()) {
    const Value& value = graph.value(id);
    if (value.role != Role::kConstant || value.constant.count() > kFew) continue;
    std::string key = to_string(value.type) + " ";
    key.append(reinterpret_cast<const char*>(value.constant.data()),
               static_cast<size_t>(value.constant.bytes()));
    const auto [twin, is_first] = seen.emplace(std::move(key), id);
    if (!is_first) rewriter.map(id, rewriter.value(twin->second));
  }
}

}  // namespace

Graph eliminate_common_subexpressions(const Graph& graph, const PassContext&) {
  GraphRewriter rewriter(graph);
  merge_constants(graph, rewriter);
  std::unordered_map<NodeKey, const Node*, KeyHash> seen;
  for (const Node& node : graph.nodes()) {
    if (!node.bodies.empty()) {
      rewriter.copy(node);
      continue;
    }
    const auto [twin, is_first] =
        seen.emplace(NodeKey{node.op, rewriter.values(node.operands), node.attrs}, &node);
    if (is_first) {
      rewriter.copy(node);
      continue;
    }
    for (size_t i = 0; i < node.results.size(); ++i)
      rewriter.map(node.results[i], rewriter.value(twin->second->results[i]));
  }
  return rewriter.finish();
}

}  // namespace aicf
