#include "import/chosen_results.h"

#include <set>

#include "base/comma_list.h"
#include "base/error.h"
#include "import/unread_nodes.h"

namespace aicf::onnx {
namespace {

std::set<std::string> reads_of(const GraphProto& graph) {
  std::set<std::string> names;
  for (const NodeProto& node : graph.nodes) collect_reads(node, names);
  return names;
}

void check_names(const GraphProto& graph, const std::vector<std::string>& names) {
  std::set<std::string> given, once;
  for (const NodeProto& node : graph.nodes) given.insert(node.outputs.begin(), node.outputs.end());
  for (const std::string& name : names) {
    if (!name.empty() && given.count(name) != 0 && once.insert(name).second) continue;
    throw UserError(ErrorCode::kU_bad_option, "no node of the model gives a result of this name")
        .with_value(name)
        .with_expected("names of results of nodes, each once; the model's outputs are " +
                       comma_list(graph.outputs, &ValueInfo::name));
  }
}

}  // namespace

void choose_results(ModelProto& model, const std::vector<std::string>& names) {
  if (names.empty()) return;
  GraphProto& graph = model.graph;
  check_names(graph, names);
  graph.outputs.assign(names.size(), ValueInfo());
  for (size_t i = 0; i < names.size(); ++i) graph.outputs[i].name = names[i];
  const std::set<std::string> before = reads_of(graph);
  remove_unread_nodes(graph.nodes, names);
  const std::set<std::string> after = reads_of(graph);
  std::erase_if(graph.inputs, [&](const ValueInfo& input) {
    return before.count(input.name) != 0 && after.count(input.name) == 0;
  });
}

}  // namespace aicf::onnx
