// The elementwise part of a row program as links: what happens to a running value that stays in vector
// registers, from a load to a reduction or a store. Compiled once per ISA level for kTileLinkRows rows at a
// time, so that the sums of one row need not wait for each other; the bits are those of the single steps.
#pragma once

#include <stdint.h>

#include "kernels/tile/cpu/tile_chain.h"
#include "kernels/tile/cpu/tile_functions.h"

namespace aicf {

constexpr int kTileLinkRows = 4;
constexpr int kMaxTileLinks = 24;
// Elements of a row: four rows of a few registers stay in the L2 cache, and no block of accumulators is ever
// closed.
constexpr int64_t kTileLinkedRow = 2048;
static_assert(kTileLinkedRow <= kTileBlock);

enum TileLinkKind : int32_t {
  kLinkLoad,   // value = memory
  kLinkFill,   // value = one number of the row
  kLinkStore,  // memory = value
  kLinkSum,    // accumulators of the row take the value
  kLinkProduct,
  kLinkMaximum,
  kLinkMinimum,
  kLinkMemory,  // value = value op memory
  kLinkScalar,  // value = value op one number of the row
  kLinkSelf     // value = value op value, or op value
};

struct TileLink {
  TileLinkKind kind;
  TileChainOp op;
  int32_t reversed;
  float* at[kTileLinkRows];
};

struct TileLinks {
  int32_t count;
  TileLink links[kMaxTileLinks];
};

// All links over n elements of every row.
using TileLinksFunction = void (*)(const TileLinks& links, int64_t n);

AICF_DECLARE_PER_ISA(TileLinksFunction tile_links_function())

}  // namespace aicf
