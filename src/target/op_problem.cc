#include "target/op_problem.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/common/cuda_kernel.h"

namespace aicf {
namespace {

std::vector<std::string> split_names(std::string_view list) {
  std::vector<std::string> names;
  std::string name;
  for (char c : list) {
    if (c == ',') {
      names.push_back(name);
      name.clear();
    } else if (c != ' ' && c != '.') {
      name += c;
    }
  }
  if (!name.empty()) names.push_back(name);
  return names;
}

int64_t enum_index(std::string_view value, std::initializer_list<std::string_view> names) {
  const auto at = std::find(names.begin(), names.end(), value);
  AICF_CHECK(at != names.end(), "attribute value without a kernel code: " + std::string(value));
  return at - names.begin();
}

int64_t code_of(const std::string& attribute, const std::string& value) {
  if (attribute == "reduction") return enum_index(value, {"none", "add", "mul", "max", "min"});
  if (attribute == "mode") return enum_index(value, {"constant", "edge", "reflect", "wrap"});
  if (attribute == "cell") return enum_index(value, {"lstm", "gru", "rnn_tanh", "rnn_relu"});
  if (attribute == "direction") return enum_index(value, {"forward", "reverse", "bidirectional"});
  AICF_CHECK(false, "text attribute without kernel codes: " + attribute);
}

bool has_operand(const Node& node, size_t index) {
  return index < node.operands.size() && node.operands[index] != kNoValue;
}

// Parameters that are facts of the operands rather than attributes.
bool append_derived(const Graph& graph, const Node& node, const std::string& name, std::vector<Dim>& params) {
  // "low" and "high" are attributes of pad itself; windows list both in "pads".
  const bool windowed = node.attrs.find("pads") != nullptr;
  const auto append_half = [&](bool second) {
    const Ints& pads = node.attrs.get_ints("pads");
    const size_t half = pads.size() / 2;
    for (size_t i = 0; i < half; ++i) params.emplace_back(pads[second ? half + i : i]);
  };
  if (name == "spatial_rank") {
    params.emplace_back(graph.type(node.operands[0]).rank() - 2);
  } else if (name == "low" && windowed) {
    append_half(false);
  } else if (name == "high" && windowed) {
    append_half(true);
  } else if (name == "kernel_sizes") {
    const Shape& w = graph.shape(node.operands[1]);
    params.insert(params.end(), w.begin() + 2, w.end());
  } else if (name == "has_bias") {
    params.emplace_back(has_operand(node, 2) ? 1 : 0);
  } else if (name == "has_mask") {
    params.emplace_back(has_operand(node, node.op == Op::attention_backward ? 5 : 3) ? 1 : 0);
  } else if (name == "window") {  // last in its list, which ends before where there is none
    const int64_t window = node.attrs.get_int("window");
    if (window > 0 || node.attrs.get_bool("tf32")) params.emplace_back(window);
  } else if (name == "tf32") {  // likewise, behind a window
    if (node.attrs.get_bool("tf32")) params.emplace_back(1);
  } else if (name == "unused") {
    params.emplace_back(0);  // keeps the lists of a family's kernels at the same places
  } else {
    return false;
  }
  return true;
}

struct ParamAppender {
  const std::string& name;
  std::vector<Dim>& out;
  void operator()(int64_t v) const { out.emplace_back(v); }
  void operator()(bool v) const { out.emplace_back(v ? 1 : 0); }
  void operator()(const Ints& v) const { out.insert(out.end(), v.begin(), v.end()); }
  void operator()(const Shape& v) const { out.insert(out.end(), v.begin(), v.end()); }
  void operator()(const std::string& v) const { out.emplace_back(code_of(name, v)); }
  template <typename Other>
  void operator()(const Other&) const {
    AICF_CHECK(false, "attribute type has no integer parameter form: " + name);
  }
};

// The row of a table whose parameter list all rows of the family share; null if there is none or they differ,
// as with matmul, where the selector decides on packing before it knows them.
template <class Row>
const KernelRow* common_row(const std::vector<Row>& table, std::string_view family) {
  const KernelRow* first = nullptr;
  for (const Row& row : table) {
    if (row.family != family) continue;
    if (first != nullptr && (first->params != row.params || first->fparams != row.fparams)) return nullptr;
    if (first == nullptr) first = &row;
  }
  return first;
}

// Of the CPU's table, or of CUDA's for a family that the CPU does not have.
const KernelRow* common_row(std::string_view family) {
  const auto& rows = kernel_table();
  const bool is_known =
      std::any_of(rows.begin(), rows.end(), [&](const Kernel& row) { return row.family == family; });
  return is_known ? common_row(rows, family) : common_row(cuda_kernel_table(), family);
}

}  // namespace

Problem problem_of(const Graph& graph, const Node& node) {
  Problem problem;
  problem.family = op_info(node.op == Op::attention_lse ? Op::attention : node.op).name;
  for (ValueId id : node.operands)
    if (id != kNoValue) problem.inputs.push_back({graph.dtype(id), graph.shape(id)});
  for (ValueId id : node.results) problem.outputs.push_back({graph.dtype(id), graph.shape(id)});
  if (const KernelRow* row = common_row(problem.family))
    fill_params(graph, node, *row, problem.params, problem.fparams);
  return problem;
}

void fill_params(const Graph& graph, const Node& node, const KernelRow& row, std::vector<Dim>& params,
                 std::vector<double>& fparams) {
  for (const std::string& name : split_names(row.params)) {
    if (append_derived(graph, node, name, params)) continue;
    const Attr* attr = node.attrs.find(name);
    AICF_CHECK(attr != nullptr,
               "kernel " + std::string(row.name) + " asks for the unknown parameter " + name);
    std::visit(ParamAppender{name, params}, *attr);
  }
  for (const std::string& name : split_names(row.fparams)) fparams.push_back(node.attrs.get_float(name));
}

}  // namespace aicf
