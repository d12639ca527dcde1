#include <map>
#include <string>
#include <utility>

#include "passes/pass.h"

namespace aicf {
namespace {

// What makes two nodes compute the same values. Nodes with bodies are left alone.
struct NodeKey {
  Op op;
  std::vector<ValueId> operands;
  std::map<std::string, Attr, std::less<>> attrs;
  bool operator==(const NodeKey&) const = default;
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
  std::multimap<std::pair<Op, ValueId>, std::pair<NodeKey, const Node*>> seen;
  for (const Node& node : graph.nodes()) {
    if (!node.bodies.empty()) {
      rewriter.copy(node);
      continue;
    }
    const NodeKey key{node.op, rewriter.values(node.operands), node.attrs.items()};
    const std::pair<Op, ValueId> bucket{node.op, key.operands.empty() ? kNoValue : key.operands[0]};
    const Node* twin = nullptr;
    for (auto [at, end] = seen.equal_range(bucket); at != end; ++at)
      if (at->second.first == key) twin = at->second.second;
    if (twin == nullptr) {
      rewriter.copy(node);
      seen.emplace(bucket, std::pair(key, &node));
      continue;
    }
    for (size_t i = 0; i < node.results.size(); ++i)
      rewriter.map(node.results[i], rewriter.value(twin->results[i]));
  }
  return rewriter.finish();
}

}  // namespace aicf
