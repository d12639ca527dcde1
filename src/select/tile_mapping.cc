#include "select/tile_mapping.h"

namespace aicf {
namespace {

constexpr TileOpRow kTileOps[] = {
#define AICF_TILE_OP(name, arity, types) {TileOp::name, #name, arity, types},
#include "kernels/tile_ops.def"
#undef AICF_TILE_OP
};

char type_letter(TileType type) { return "fdilm"[static_cast<int>(type)]; }

}  // namespace

const TileOpRow* find_tile_op(std::string_view name) {
  for (const TileOpRow& row : kTileOps)
    if (row.name == name) return &row;
  return nullptr;
}

TileType tile_type(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return TileType::f64;
    case DType::f32:
    case DType::f16:
    case DType::bf16:
      return TileType::f32;
    case DType::i64:
      return TileType::i64;
    case DType::boolean:
      return TileType::mask;
    default:
      return TileType::i32;
  }
}

bool is_narrow_integer(DType dtype) { return is_integer(dtype) && dtype_bytes(dtype) < 4; }

std::string_view instruction_name(const Node& node) {
  if (node.op == Op::gelu && node.attrs.get_str("approximate") == "tanh") return "gelu_tanh";
  return op_info(node.op).name;
}

bool tile_claims(const Graph& graph, const Node& node) {
  const OpInfo& info = op_info(node.op);
  if (node.op == Op::cast || node.op == Op::relu) return true;
  if (!info.has(kPointwise) && !(info.has(kReduction) && !info.has(kComposite))) return false;
  const TileOpRow* row = find_tile_op(instruction_name(node));
  if (row == nullptr) return false;
  const ValueId typed = node.operands[node.op == Op::select ? 1 : 0];
  return row->types.find(type_letter(tile_type(graph.dtype(typed)))) != std::string_view::npos;
}

}  // namespace aicf
