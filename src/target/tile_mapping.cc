#include "target/tile_mapping.h"

namespace aicf {

bool is_narrow_integer(DType dtype) { return is_integer(dtype) && dtype_bytes(dtype) < 4; }

std::string_view instruction_name(const Node& node) {
  if (node.op == Op::gelu && node.attrs.get_str("approximate") == "tanh") return "gelu_tanh";
  return op_info(node.op).name;
}

bool tile_claims(const Graph& graph, const Node& node) {
  const OpInfo& info = op_info(node.op);
  if (node.op == Op::cast || node.op == Op::relu) return true;
  if (!info.has(kPointwise) && !(info.has(kReduction) && !info.has(kComposite))) return false;
  const auto op = find_tile_op(instruction_name(node));
  if (!op) return false;
  const TileType type = tile_register_type(graph.dtype(node.operands[node.op == Op::select ? 1 : 0]));
  return tile_op_info(*op).types.find(tile_type_letter(type)) != std::string_view::npos;
}

}  // namespace aicf
