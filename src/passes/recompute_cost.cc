#include "passes/recompute_cost.h"

namespace aicf {
namespace {

constexpr int64_t kSmallShare = 16;

// Ops of one or two instructions an element.
bool is_cheap(Op op) {
  switch (op) {
    case Op::cast:
    case Op::add:
    case Op::sub:
    case Op::mul:
    case Op::neg:
    case Op::abs:
    case Op::max:
    case Op::min:
    case Op::select:
    case Op::eq:
    case Op::ne:
    case Op::lt:
    case Op::le:
    case Op::gt:
    case Op::ge:
    case Op::bit_and:
    case Op::bit_or:
      return true;
    default:
      return false;
  }
}

}  // namespace

bool readers_may_compute(const Node& node, Readers readers) {
  return is_cheap(node.op) || (readers == Readers::kOne && op_info(node.op).has(kPointwise));
}

bool widens(const Graph& graph, const Node& cast) {
  return dtype_bytes(graph.dtype(cast.results[0])) > dtype_bytes(graph.dtype(cast.operands[0]));
}

bool is_cheap_to_store(int64_t elements, int64_t domain) { return elements * kSmallShare <= domain; }

int64_t most_elements(const Shape& shape, const SymbolRanges& sizes) {
  return bounds(element_count(shape), sizes).hi;
}

double most_bytes(const TensorType& type, const SymbolRanges& sizes) {
  return static_cast<double>(most_elements(type.shape, sizes)) * static_cast<double>(dtype_bytes(type.dtype));
}

}  // namespace aicf
