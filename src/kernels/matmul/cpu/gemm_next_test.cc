#include "kernels/matmul/cpu/gemm_next.h"

#include <gtest/gtest.h>

namespace aicf {
namespace {

// Tiles are told apart by the bytes of their weights.
BoundCall call_of(int64_t tiles, int64_t workers, int64_t first_bytes) {
  BoundCall call;
  call.tiles = tiles;
  call.workers = workers;
  call.params = {first_bytes};
  call.first_weights = [](const BoundCall& of, int64_t tile) {
    return FirstWeights{nullptr, 1, of.params[0] + tile, 0};
  };
  return call;
}

TEST(GemmNext, SharesCoverAllTiles) {
  for (int64_t tiles : {0, 1, 5, 7, 64}) {
    for (int64_t workers : {1, 2, 3, 7}) {
      EXPECT_EQ(share_begin(tiles, workers, 0), 0);
      EXPECT_EQ(share_begin(tiles, workers, workers), tiles);
      for (int64_t w = 0; w < workers; ++w)
        EXPECT_LE(share_begin(tiles, workers, w), share_begin(tiles, workers, w + 1));
    }
  }
}

// A worker goes on with its own next tile, or with the first of its share of the following call.
TEST(GemmNext, WeightsAfterATile) {
  const BoundCall following = call_of(5, 2, 200);
  BoundCall call = call_of(7, 2, 100);
  EXPECT_EQ(weights_after(call, 6).pieces, 0);
  call.following = &following;
  EXPECT_EQ(weights_after(call, 1).bytes, 102);
  EXPECT_EQ(weights_after(call, 2).bytes, 200);
  EXPECT_EQ(weights_after(call, 3).bytes, 104);
  EXPECT_EQ(weights_after(call, 6).bytes, 202);
  call.workers = 1;
  EXPECT_EQ(weights_after(call, 2).bytes, 103);
  EXPECT_EQ(weights_after(call, 6).bytes, 200);
  const BoundCall empty = call_of(0, 2, 300);
  call.following = &empty;
  EXPECT_EQ(weights_after(call, 6).pieces, 0);
}

TEST(GemmNext, PiecesAreSplitAmongPanels) {
  constexpr int64_t kPanel = 48, kStep = kPanel * 4;
  GemmBlock<float> block = {};
  block.n = 3 * kPanel;
  fetch_next({nullptr, 2, 512 * kStep, 1024 * kStep}, kPanel, block);  // with gaps: a piece with a panel
  EXPECT_EQ(block.next_panels, 2);
  EXPECT_EQ(block.next_depth, 512);
  EXPECT_EQ(block.next_stride, 1024 * kPanel);
  fetch_next({nullptr, 5, 512 * kStep, 1024 * kStep}, kPanel, block);  // no more than the block has
  EXPECT_EQ(block.next_panels, 3);
  fetch_next({nullptr, 7, 64 * kStep, 64 * kStep}, kPanel, block);  // without: in equal parts
  EXPECT_EQ(block.next_panels, 3);
  EXPECT_EQ(block.next_depth, 150);
  EXPECT_EQ(block.next_stride, 150 * kPanel);
}

}  // namespace
}  // namespace aicf
