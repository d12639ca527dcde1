#include "import/unread_nodes.h"

#include <algorithm>
#include <map>
#include <set>

namespace aicf::onnx {

void remove_unread_nodes(std::vector<NodeProto>& nodes, const std::vector<std::string>& outputs) {
  std::map<std::string, int64_t> readers;
  for (const std::string& name : outputs) ++readers[name];
  const auto count = [&](const NodeProto& node, int64_t by) {
    std::set<std::string> names;
    collect_reads(node, names);
    for (const std::string& name : names) readers[name] += by;
  };
  for (const NodeProto& node : nodes) count(node, 1);
  std::vector<bool> gone(nodes.size(), false);
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = nodes.size(); i-- > 0;) {
      const auto& names = nodes[i].outputs;
      if (gone[i] || std::any_of(names.begin(), names.end(), [&](const auto& n) { return readers[n] > 0; }))
        continue;
      gone[i] = changed = true;
      count(nodes[i], -1);
    }
  }
  size_t kept = 0;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (gone[i]) continue;
    if (kept != i) nodes[kept] = std::move(nodes[i]);
    ++kept;
  }
  nodes.resize(kept);
}

}  // namespace aicf::onnx
