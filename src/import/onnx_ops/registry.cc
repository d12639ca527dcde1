#include "import/onnx_ops/registry.h"

#include <map>

#include "base/error.h"

namespace aicf::onnx {
namespace {

std::vector<OpRule> collect() {
  std::vector<OpRule> all;
  for (const auto& family : {math_rules(),
                             activation_rules(),
                             reduce_rules(),
                             shape_rules(),
                             fill_rules(),
                             index_rules(),
                             contraction_rules(),
                             norm_rules(),
                             conv_rules(),
                             pool_rules(),
                             quant_rules(),
                             resize_rules(),
                             attention_rules(),
                             loss_rules(),
                             control_rules(),
                             recurrent_rules(),
                             signal_rules(),
                             stateful_rules(),
                             sequence_rules(),
                             roi_rules(),
                             contrib_rules(),
                             contrib_attention_rules(),
                             contrib_quant_rules(),
                             contrib_gather_rules(),
                             deform_rules(),
                             spectrum_rules(),
                             ml_rules(),
                             ml_linear_rules(),
                             ml_tree_rules(),
                             masked_rules()})
    all.insert(all.end(), family.begin(), family.end());
  return all;
}

}  // namespace

const std::vector<OpRule>& all_rules() {
  static const std::vector<OpRule> rules = collect();
  return rules;
}

const OpRule* find_rule(std::string_view domain, std::string_view op, int64_t opset) {
  static const auto index = [] {
    std::multimap<std::string_view, const OpRule*> by_name;
    for (const OpRule& rule : all_rules()) by_name.emplace(rule.op, &rule);
    return by_name;
  }();
  const auto [begin, end] = index.equal_range(op);
  for (auto at = begin; at != end; ++at)
    if (at->second->domain == domain && at->second->since <= opset && opset <= at->second->until)
      return at->second;
  return nullptr;
}

ValueId convert_as(NodeContext& node, std::string_view op) {
  const OpRule* rule = find_rule("", op, kMaxOpset);
  AICF_CHECK(rule != nullptr, std::string(op));
  rule->convert(node);
  return node.context().materialize(*node.outputs()[0]);
}

}  // namespace aicf::onnx
