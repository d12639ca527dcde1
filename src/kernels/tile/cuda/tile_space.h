// The index space of a tile kernel on CUDA: the problem's windows over axes merged as far as every window's
// strides allow, outer axes first, and what is known of addresses: alignment, and whether 32 bits hold every
// index.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/common/cuda_kernel.h"

namespace aicf {

// An operand's window over the axes of a TileSpace, whose sizes it leaves out.
using TileView = Strided<Dim>;

struct TileSpace {
  Shape sizes;
  size_t outer = 0;             // axes [0, outer) number the rows
  std::vector<TileView> views;  // inputs, then outputs
  bool wide = false;            // an index or offset may need 64 bits

  size_t rank() const { return sizes.size(); }
};

enum class AxisOrder { kKept, kFree };

// Windows must agree on every axis, up to size 1. The last inner_rank axes are the inner ones. With kFree,
// axes of a group (outer, inner) may change places so that memory is walked in order. A group without axes
// stays without.
TileSpace tile_space(const std::vector<CudaWindow>& windows, size_t inner_rank, AxisOrder outer,
                     AxisOrder inner, const SymbolRanges& ranges);

bool is_number(const Dim& dim, int64_t value);
// For every value of the symbols.
bool divisible(const Dim& dim, int64_t divisor);
// The largest value; INT64_MAX where it does not fit.
int64_t upper_bound(const Dim& dim, const SymbolRanges& ranges);
// Bytes, a power of two up to 16, that the address of index (…, 0, …) on `axis` is a multiple of for any
// other indices.
int view_alignment(const TileView& view, size_t axis);
// Product of sizes[first, last).
Dim space_count(const TileSpace& space, size_t first, size_t last);

}  // namespace aicf
