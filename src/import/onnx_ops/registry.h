// The table of ONNX ops: which converter serves which op_type of which opset versions. Older forms are first
// brought to the current one by the upgrade table, so a converter reads one form.
#pragma once

#include <limits>
#include <string_view>
#include <vector>

#include "import/onnx_ops/node_context.h"

namespace aicf::onnx {

using Convert = void (*)(NodeContext&);

inline constexpr std::string_view kContrib = "com.microsoft", kMl = "ai.onnx.ml";  // domains

struct OpRule {
  std::string_view op;
  Convert convert;
  int64_t since = 1;  // first opset version of the domain that has the op
  std::string_view domain = "";
  int64_t until = std::numeric_limits<int64_t>::max();  // last one
};

// One list per family.
std::vector<OpRule> math_rules();
std::vector<OpRule> activation_rules();
std::vector<OpRule> reduce_rules();
std::vector<OpRule> shape_rules();
std::vector<OpRule> fill_rules();
std::vector<OpRule> index_rules();
std::vector<OpRule> contraction_rules();
std::vector<OpRule> conv_rules();
std::vector<OpRule> pool_rules();
std::vector<OpRule> norm_rules();
std::vector<OpRule> quant_rules();
std::vector<OpRule> resize_rules();
std::vector<OpRule> attention_rules();
std::vector<OpRule> loss_rules();
std::vector<OpRule> control_rules();
std::vector<OpRule> recurrent_rules();
std::vector<OpRule> signal_rules();
std::vector<OpRule> stateful_rules();
std::vector<OpRule> sequence_rules();
std::vector<OpRule> roi_rules();
std::vector<OpRule> contrib_rules();
std::vector<OpRule> contrib_attention_rules();
std::vector<OpRule> contrib_quant_rules();
std::vector<OpRule> contrib_gather_rules();
std::vector<OpRule> deform_rules();
std::vector<OpRule> spectrum_rules();
std::vector<OpRule> ml_rules();
std::vector<OpRule> masked_rules();
std::vector<OpRule> ml_linear_rules();
std::vector<OpRule> ml_tree_rules();

inline constexpr int64_t kMinOpset = 6, kMaxOpset = 27;

// Null if there is none.
const OpRule* find_rule(std::string_view domain, std::string_view op, int64_t opset);
const std::vector<OpRule>& all_rules();
// The rule of all ops that users registered (import/custom_ops.h); null if this is none.
const OpRule* find_custom_rule(std::string_view domain, std::string_view op);

// The first result of the standard op of this name on the inputs and attributes of `node`, an op that extends
// it.
ValueId convert_as(NodeContext& node, std::string_view op);

// Brings an old form to the current one, in place (may change op_type).
void upgrade(NodeContext& node);
// Evaluates shape arithmetic on known sizes; true if it gave the outputs.
bool convert_symbolically(NodeContext& node);

}  // namespace aicf::onnx
