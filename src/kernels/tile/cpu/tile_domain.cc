#include <algorithm>
#include <array>

#include "base/error.h"
#include "kernels/tile/cpu/tile_prepare.h"

namespace aicf {
namespace {

struct Domain {
  int rank = 0, inner_rank = 0;
  std::array<int64_t, kMaxRank> sizes{};
};

Domain find_domain(const BoundCall& call) {
  const size_t operands = call.inputs.size() + call.outputs.size();
  Domain domain;
  domain.rank = operand_arg(call, 0).rank;
  if (domain.rank < 0 || domain.rank > kMaxRank)
    reject_tile("rank out of range", std::to_string(domain.rank));
  std::fill(domain.sizes.begin(), domain.sizes.end(), 1);
  for (size_t i = 0; i < operands; ++i) {
    const TensorArg& arg = operand_arg(call, i);
    if (arg.rank != domain.rank) reject_tile("operands of different ranks", std::to_string(i));
    for (int axis = 0; axis < domain.rank; ++axis) {
      int64_t& size = domain.sizes[static_cast<size_t>(axis)];
      if (arg.sizes[axis] < 0) reject_tile("negative size");
      if (size == 1) size = arg.sizes[axis];
      if (arg.sizes[axis] != size && arg.sizes[axis] != 1)
        reject_tile("sizes do not match the domain", std::to_string(i));
    }
  }
  if (call.params.size() != 1 || call.params[0] < 0 || call.params[0] > domain.rank)
    reject_tile("bad inner_rank");
  domain.inner_rank = static_cast<int>(call.params[0]);
  return domain;
}

// Stride of an operand in bytes along an axis of the domain; 0 where it repeats.
int64_t byte_stride(const TensorArg& arg, const Domain& domain, int axis) {
  if (arg.sizes[axis] == 1 || domain.sizes[static_cast<size_t>(axis)] == 1) return 0;
  return checked_mul(arg.strides[axis], dtype_bytes(arg.dtype));
}

// Drops axes of size 1 and merges neighbours [first, last) that every operand walks as one. Gives the new
// rank; `strides` picks the member of TileOperand to fill.
int collapse(const BoundCall& call, const Domain& domain, int first, int last, int64_t* sizes,
             int64_t (TileOperand::*strides)[kMaxRank], TileState& state) {
  const size_t operands = call.inputs.size() + call.outputs.size();
  int rank = 0;
  for (int axis = first; axis < last; ++axis) {
    const int64_t size = domain.sizes[static_cast<size_t>(axis)];
    if (size == 1) continue;
    bool merges = rank > 0;
    for (size_t i = 0; i < operands && merges; ++i) {
      const int64_t stride = byte_stride(operand_arg(call, i), domain, axis);
      merges = (state.operands[i].*strides)[rank - 1] == checked_mul(stride, size);
    }
    if (merges)
      sizes[rank - 1] = checked_mul(sizes[rank - 1], size);
    else
      sizes[rank++] = size;
    for (size_t i = 0; i < operands; ++i)
      (state.operands[i].*strides)[rank - 1] = byte_stride(operand_arg(call, i), domain, axis);
  }
  if (rank == 0) {
    sizes[rank++] = 1;
    for (size_t i = 0; i < operands; ++i) (state.operands[i].*strides)[0] = 0;
  }
  return rank;
}

int64_t product(const int64_t* sizes, int rank) {
  int64_t count = 1;
  bool empty = false;
  for (int i = 0; i < rank; ++i) empty = empty || sizes[i] == 0;
  if (empty) return 0;
  for (int i = 0; i < rank; ++i) count = checked_mul(count, sizes[i]);
  return count;
}

TileMode find_mode(const TileOperand& operand, const TileState& state) {
  bool uniform = true, contiguous = true;
  int64_t dense = operand.bytes;
  for (int axis = state.inner_rank - 1; axis >= 0; --axis) {
    if (state.inner_sizes[axis] == 1) continue;
    uniform = uniform && operand.inner_strides[axis] == 0;
    contiguous = contiguous && operand.inner_strides[axis] == dense;
    if (contiguous) dense = checked_mul(dense, state.inner_sizes[axis]);
  }
  return uniform ? TileMode::kUniform : contiguous ? TileMode::kContiguous : TileMode::kStrided;
}

}  // namespace

void set_tile_domain(const BoundCall& call, bool pointwise, TileState& state) {
  const Domain domain = find_domain(call);
  const int outer = pointwise ? 0 : domain.rank - domain.inner_rank;
  state.outer_rank = collapse(call, domain, 0, outer, state.outer_sizes, &TileOperand::outer_strides, state);
  state.inner_rank =
      collapse(call, domain, outer, domain.rank, state.inner_sizes, &TileOperand::inner_strides, state);
  state.rows = product(state.outer_sizes, state.outer_rank);
  state.inner_count = product(state.inner_sizes, state.inner_rank);
  state.repeat = std::clamp<int64_t>(state.inner_count, 1, kTileChunk);
  for (size_t i = 0; i < call.inputs.size() + call.outputs.size(); ++i) {
    state.operands[i].bytes = dtype_bytes(operand_arg(call, i).dtype);
    state.operands[i].mode = find_mode(state.operands[i], state);
  }
}

}  // namespace aicf
