// One function ref_<name> per row of ops.def, declared from the table: an op without a reference does not
// link. A function takes the operands and the node, and gives the results of the sizes the node's types have
// under the current binding; the caller (run_node) rounds and wraps them to their dtypes.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/reference/evaluator.h"
#include "ir/reference/tensor.h"

namespace aicf::reference {

struct RefContext {
  const Node& node;
  std::vector<RefValue> operands;  // null for an absent optional operand
  std::vector<DType> result_dtypes;
  std::vector<Index> result_sizes;
  const SymbolValues& sizes;
  EvalOptions options = {};

  const RefTensor& x(size_t k) const { return *operands[k]; }
  bool has(size_t k) const { return k < operands.size() && operands[k] != nullptr; }
  const Attrs& attrs() const { return node.attrs; }
  RefTensor result(size_t k = 0) const { return make_tensor(result_dtypes[k], result_sizes[k]); }
  // Attribute `name` as an axis of a tensor of this rank.
  int64_t axis(std::string_view name, int64_t rank) const;
  std::vector<int64_t> axes(std::string_view name, int64_t rank) const;
  Index dims(std::string_view name) const { return evaluate(attrs().get_dims(name), sizes); }
  bool round_to_dtype() const { return options.round_to_dtype; }
  std::string op() const { return std::string(op_info(node.op).name); }
};

using RefResults = std::vector<RefTensor>;

// In [0, size); negative indices count from the end, the rest is index_out_of_range.
int64_t checked_index(const RefContext& context, int64_t index, int64_t size);
[[noreturn]] void fail_sizes(const RefContext& context, const std::string& expected,
                             const std::string& actual);

// A braced list would copy its elements.
inline RefResults one(RefTensor tensor) {
  RefResults results;
  results.push_back(std::move(tensor));
  return results;
}

#define AICF_OP(name, operands, types, attributes, results, traits, shape_rule, meaning) \
  RefResults ref_##name(const RefContext& context);
#include "ir/ops.def"
#undef AICF_OP

// What the op's function gives, not normalised.
RefResults call_reference(const RefContext& context);
// Runs one node: operands in, normalised results out. `moved`: noise may have moved an operand.
RefResults run_node(const Graph& graph, const Node& node, std::vector<RefValue> operands,
                    const SymbolValues& sizes, const EvalOptions& options, bool moved = true);
// Runs a body over its operands; the results are those of its outputs.
std::vector<RefValue> run_body(const Graph& body, const std::vector<RefValue>& operands,
                               const SymbolValues& sizes, const EvalOptions& options);

}  // namespace aicf::reference
