#include "import/masked_updates.h"

#include <algorithm>
#include <optional>

#include "import/unread_nodes.h"

namespace aicf::onnx {
namespace {

class Matcher {
 public:
  Matcher(std::vector<NodeProto>& nodes, const GraphProto* graph, std::vector<std::string> outputs)
      : nodes_(nodes), outputs_(std::move(outputs)) {
    if (graph != nullptr)
      for (const auto& tensor : graph->initializers) tensors_[tensor->name] = tensor.get();
    for (size_t i = 0; i < nodes.size(); ++i)
      for (const std::string& name : nodes[i].outputs)
        if (!name.empty()) makers_.emplace(name, i);
  }

  void run() {
    for (NodeProto& node : nodes_)
      if (is(node, "ScatterND")) match(node);
    nodes_.insert(nodes_.end(), added_.begin(), added_.end());
    // Lists of places, and what counted them, that only the matched nodes read.
    if (matched_) remove_unread_nodes(nodes_, outputs_);
  }

 private:
  static bool is(const NodeProto& node, std::string_view op) {
    return node.domain.empty() && node.op_type == op;
  }

  // The node of this op that makes the value; null if another does.
  const NodeProto* maker(const std::string& name, std::string_view op) const {
    const auto found = makers_.find(name);
    if (found == makers_.end() || !is(nodes_[found->second], op)) return nullptr;
    return &nodes_[found->second];
  }

  static const AttributeProto* attribute(const NodeProto& node, std::string_view name) {
    for (const AttributeProto& a : node.attributes)
      if (a.name == name) return &a;
    return nullptr;
  }

  // The constant tensor of this name; null if it is none.
  const TensorProto* tensor_of(const std::string& name) const {
    if (const auto found = tensors_.find(name); found != tensors_.end()) return found->second;
    const NodeProto* constant = maker(name, "Constant");
    const AttributeProto* a = constant == nullptr ? nullptr : attribute(*constant, "value");
    return a == nullptr ? nullptr : a->t.get();
  }

  // Whether the value is known to be this one number, in one axis.
  bool is_number(const std::string& name, int64_t number) const {
    if (const NodeProto* constant = maker(name, "Constant"))
      if (const AttributeProto* a = attribute(*constant, "value_ints")) return a->ints == std::vector{number};
    const TensorProto* tensor = tensor_of(name);
    if (tensor == nullptr || tensor->external || tensor->dims != std::vector<int64_t>{1} ||
        tensor->data_type != 7)
      return false;
    return to_array(*tensor, nullptr, "").get_i64(0) == number;
  }

  // The mask whose places the value lists, one row each; "" if it is no such list.
  std::string mask_of(const std::string& places) const {
    const NodeProto* transposed = maker(places, "Transpose");
    if (transposed == nullptr || transposed->inputs.size() != 1) return "";
    const AttributeProto* perm = attribute(*transposed, "perm");
    if (perm != nullptr && perm->ints != std::vector<int64_t>{1, 0}) return "";
    const NodeProto* listed = maker(transposed->inputs[0], "NonZero");
    return listed != nullptr && listed->inputs.size() == 1 ? listed->inputs[0] : "";
  }

  // The first of some rows: how many, the number of places says.
  bool takes_first(const NodeProto& slice) const {
    const auto& in = slice.inputs;
    const auto absent_or = [&](size_t i, int64_t number) {
      return in.size() <= i || in[i].empty() || is_number(in[i], number);
    };
    return in.size() >= 3 && is_number(in[1], 0) && absent_or(3, 0) && absent_or(4, 1);
  }

  bool is_single(const std::string& name) const {
    const TensorProto* tensor = tensor_of(name);
    return tensor != nullptr &&
           std::all_of(tensor->dims.begin(), tensor->dims.end(), [](int64_t dim) { return dim == 1; });
  }

  // The value at the places of the mask as one of the whole data, whose name is given: what is gathered there
  // and goes through pointwise ops with single numbers. "" if it is none.
  std::string whole(const std::string& name, const std::string& mask, int depth = 0) {
    constexpr std::string_view kPointwise[] = {"Add", "Sub",  "Mul",  "Div",  "Neg",     "Abs",
                                               "Exp", "Log",  "Sqrt", "Tanh", "Sigmoid", "Relu",
                                               "Pow", "Clip", "Min",  "Max",  "Cast",    "Identity"};
    const auto found = makers_.find(name);
    if (found == makers_.end() || depth > kMostPointwise) return "";
    const NodeProto& node = nodes_[found->second];
    if (is(node, "GatherND")) {
      const AttributeProto* batch = attribute(node, "batch_dims");
      const bool at_places = node.inputs.size() == 2 && (batch == nullptr || batch->i == 0);
      return at_places && mask_of(node.inputs[1]) == mask ? node.inputs[0] : "";
    }
    const bool pointwise =
        std::find(std::begin(kPointwise), std::end(kPointwise), node.op_type) != std::end(kPointwise);
    if (!node.domain.empty() || !pointwise || node.outputs.size() != 1) return "";
    NodeProto copy = node;
    bool any = false;
    for (std::string& input : copy.inputs) {
      if (input.empty() || is_single(input)) continue;
      if ((input = whole(input, mask, depth + 1)).empty()) return "";
      any = true;
    }
    if (!any) return "";
    copy.outputs[0] += "/whole " + std::to_string(added_.size());
    added_.push_back(copy);
    return copy.outputs[0];
  }

  void match(NodeProto& node) {
    const AttributeProto* reduction = attribute(node, "reduction");
    if (node.inputs.size() != 3 || (reduction != nullptr && reduction->s != "none")) return;
    const std::string mask = mask_of(node.inputs[1]);
    if (mask.empty()) return;
    std::string values = node.inputs[2];
    const NodeProto* flattened = maker(values, "Reshape");
    const bool flat =
        flattened != nullptr && flattened->inputs.size() == 2 && is_number(flattened->inputs[1], -1);
    if (flat) values = flattened->inputs[0];
    std::string kind = "whole";
    if (const std::string of_data = whole(values, mask); !of_data.empty()) {
      values = of_data;
    } else if (const NodeProto* expanded = maker(values, "Expand");
               expanded && expanded->inputs.size() == 2) {
      kind = "spread";
      values = expanded->inputs[0];
    } else {
      kind = "ordered";
      values = node.inputs[2];
      if (const NodeProto* slice = maker(values, "Slice"); slice != nullptr && takes_first(*slice))
        values = slice->inputs[0];
    }
    const NodeProto* wide = maker(mask, "Expand");
    const std::string thin = wide != nullptr && wide->inputs.size() == 2 ? wide->inputs[0] : "";
    node.domain = kMaskedDomain;
    node.inputs = {node.inputs[0], mask, values, thin};
    AttributeProto how, single;
    how.name = "values";
    how.type = AttributeType::kString;
    how.s = kind;
    single.name = "flat";
    single.type = AttributeType::kInt;
    single.i = flat ? 1 : 0;
    node.attributes = {how, single};
    matched_ = true;
  }

  static constexpr int kMostPointwise = 64;  // ops one after the other
  std::vector<NodeProto>& nodes_;
  std::vector<NodeProto> added_;
  const std::vector<std::string> outputs_;
  std::map<std::string, const TensorProto*> tensors_;
  std::map<std::string, size_t> makers_;
  bool matched_ = false;
};

}  // namespace

void match_masked_updates(ModelProto& model) {
  std::vector<std::string> outputs;
  for (const ValueInfo& output : model.graph.outputs) outputs.push_back(output.name);
  Matcher(model.graph.nodes, &model.graph, outputs).run();
  for (FunctionProto& function : model.functions) Matcher(function.nodes, nullptr, function.outputs).run();
}

}  // namespace aicf::onnx
