#include "kernels/matmul/cuda/matmul_ways.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>
#include <tuple>

#include "base/rounding.h"
#include "kernels/common/cuda_machine.h"
#include "kernels/matmul/cuda/matmul_cycles.h"

namespace aicf {
namespace {

MatmulWay choose(int64_t m, int64_t n, int64_t k, MatmulFamily family, int arch = 90, bool y_along_k = true) {
  return choose_matmul({1, m, n, k, y_along_k}, family, arch, 4);
}

TEST(MatmulWays, blocks_of_several_tiles_hand_their_epilogue_over) {
  for (const auto& [m, n, k] : {std::tuple(4096, 2304, 768), {4096, 3072, 768}})
    EXPECT_EQ(to_string(choose(m, n, k, MatmulFamily::wgmma)),
              "wgmma 128x192 stages 4 warpgroups 2 epilogue-warps");
  for (const MatmulWay& way : matmul_ways({.m = 4096, .n = 768, .k = 768}, MatmulFamily::wgmma, 90, 4))
    EXPECT_FALSE(has_epilogue_warps(way) && way.block_n == 192) << "one tile each";
}

TEST(MatmulWays, x_is_stationary_where_k_is_short) {
  EXPECT_EQ(to_string(choose(8192, 1152, 384, MatmulFamily::wgmma)),
            "wgmma 128x192 stages 3 warpgroups 2 epilogue-warps stationary-x");
  MatmulWay way{.unit = MatmulUnit::wgmma, .block_m = 128, .block_n = 192, .warpgroups = 2};
  way.schedule = MatmulSchedule::stationary_x;
  EXPECT_EQ(blocks_of_row({1, 8192, 1152, 384}, way), 2);
  EXPECT_EQ(blocks_of_row({1, 4096, 1536, 64}, way), 4);
  EXPECT_EQ(blocks_of_row({1, 8192, 1152, 392}, way), 0) << "more than fits";
  EXPECT_EQ(blocks_of_row({1, 4096, 1152, 384}, way), 0) << "a block would have one tile or two";
  EXPECT_EQ(blocks_of_row({2, 8192, 1152, 384}, way), 0);
  EXPECT_EQ(blocks_of_row({1, 8192, 1152, 384, true, false}, way), 0);
}

TEST(MatmulWays, chunks_are_reduced_where_each_block_has_as_many_and_the_parts_fit) {
  const MatmulWay c = choose(256, 4096, 8192, MatmulFamily::wgmma);
  EXPECT_EQ(to_string(c), "wgmma 128x128 stages 5 splits 2 cluster warpgroups 2");
  EXPECT_TRUE(reduce_scatters(c));
  for (const auto& [m, n, splits] : {std::tuple(128, 128, 3), {128, 64, 2}, {256, 128, 2}, {128, 192, 2}}) {
    const MatmulWay other{.unit = MatmulUnit::wgmma,
                          .block_m = m,
                          .block_n = n,
                          .split = {SplitKind::cluster, splits},
                          .warpgroups = 2};
    EXPECT_FALSE(reduce_scatters(other)) << to_string(other);
  }
}

TEST(MatmulWays, f32_of_few_results_is_sliced) {
  // Measured on an H200: 13.9 us, 19.6 in tiles of 32 x 32; 12.2, 18.0; 23.8, 25.3 in tiles of 64 x 64.
  for (const auto& [m, n, k] : {std::tuple(512, 512, 512), {128, 1024, 1024}, {1024, 256, 1024}}) {
    const MatmulWay way = choose_matmul({.m = m, .n = n, .k = k, .f32 = true}, MatmulFamily::simt, 90, 4);
    EXPECT_EQ(way.slices, 8) << to_string(way);
    EXPECT_EQ(split_parts(way), 1) << to_string(way);
  }
}

// A gradient of a weight: few tiles, and as many parts as fill the machine.
TEST(MatmulWays, parts_of_long_sums_fill_every_multiprocessor) {
  for (const auto& [m, n, k] : {std::tuple(192, 192, 16384), {320, 192, 16384}, {64, 448, 32768}}) {
    const MatmulWay way =
        choose_matmul({.m = m, .n = n, .k = k, .y_along_k = false, .x_along_k = false, .f32 = true},
                      MatmulFamily::simt, 90, 4);
    const auto tiles = static_cast<int>(ceil_div(m, way.block_m) * ceil_div(n, way.block_n));
    const int blocks = tiles * split_parts(way), units = static_cast<int>(kMultiprocessors);
    const int rounds = (blocks + units - 1) / units;
    EXPECT_GE(blocks * 10, rounds * units * 9) << to_string(way);
  }
}

TEST(MatmulWays, large_products_take_the_largest_tile) {
  // Three warps run the epilogue: not faster than twelve steps of K.
  for (const int64_t n : {4096, 8192})
    EXPECT_EQ(to_string(choose(8192, n, n, MatmulFamily::wgmma)),
              "wgmma 128x256 stages 3 warpgroups 2 epilogue-warps");
  EXPECT_NE(choose(16384, 3072, 768, MatmulFamily::wgmma).block_n, 256);
  EXPECT_EQ(choose(8192, 8192, 8192, MatmulFamily::mma).block_m, 128);
  EXPECT_EQ(choose(4096, 4096, 4096, MatmulFamily::simt).block_n, 128);
}

TEST(MatmulWays, tiles_fill_whole_waves) {
  // 4096 × 768: 128 tiles of 128 × 192 on 132 multiprocessors, where 192 of 128 × 128 would take two rounds.
  const MatmulWay c = choose(4096, 768, 3072, MatmulFamily::wgmma);
  EXPECT_EQ(c.block_n, 192);
  // On 108 they take two, too.
  MatmulSizes sizes{1, 4096, 768, 3072};
  const double one_round = matmul_cycles(sizes, c);
  sizes.machine.multiprocessors = 108;
  EXPECT_GT(matmul_cycles(sizes, c), 1.6 * one_round);
}

TEST(MatmulWays, a_block_with_one_tile_has_no_more_stages_than_steps) {
  const MatmulWay c = choose(32, 1152, 384, MatmulFamily::wgmma, 90, false);
  EXPECT_EQ(split_parts(c), 1);
  EXPECT_LE(c.stages, 6);
}

TEST(MatmulWays, few_rows_take_many_blocks_and_stages) {
  const MatmulWay c = choose(1, 4096, 4096, MatmulFamily::wgmma);
  EXPECT_EQ(c.block_m, 64);
  EXPECT_GE(4096 / c.block_n * split_parts(c), 64);
  EXPECT_GE(c.stages, 10);
}

MatmulWay with_split(int block_n, const MatmulSplit& split) {
  return {.unit = MatmulUnit::wgmma,
          .block_m = 128,
          .block_n = block_n,
          .stages = 5,
          .split = split,
          .warpgroups = 2};
}

TEST(MatmulWays, a_multicast_is_expected_to_gain_where_rows_are_no_whole_lines) {
  MatmulSizes sizes{.m = 1536, .n = 1024, .k = 1304};
  const auto cycles = [&](const MatmulSplit& split) { return matmul_cycles(sizes, with_split(128, split)); };
  EXPECT_GT(cycles({SplitKind::multicast, 2}), cycles({}));
  sizes.x_lines = sizes.y_lines = false;
  EXPECT_LT(cycles({SplitKind::multicast, 2}), 0.95 * cycles({}));
}

TEST(MatmulWays, few_results_of_a_long_k_split_it_beyond_a_cluster) {
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{1, 256}, {50, 100}}) {
    MatmulSizes sizes{.m = m, .n = n, .k = 204800};
    const MatmulWay way = choose_matmul(sizes, MatmulFamily::mma, 90, 2);
    EXPECT_TRUE(splits_in_workspace(way)) << to_string(way);
    EXPECT_GT(split_parts(way), 8) << to_string(way);
    sizes.k = 4096;
    EXPECT_FALSE(splits_in_workspace(choose_matmul(sizes, MatmulFamily::mma, 90, 2)));
  }
  // Tiles enough for clusters.
  for (const MatmulWay& way : matmul_ways({.m = 1024, .n = 1024, .k = 204800}, MatmulFamily::mma, 90, 2))
    EXPECT_FALSE(splits_in_workspace(way) && way.block_m == 128) << to_string(way);
}

// Gradients of weights by wgmma: few tiles, or some more than multiprocessors.
TEST(MatmulWays, stream_k_fills_every_multiprocessor) {
  const auto of_weights = [](int64_t m, int64_t n, int64_t k) {
    const MatmulSizes sizes{.m = m, .n = n, .k = k, .y_along_k = false, .x_along_k = false};
    return choose_matmul(sizes, MatmulFamily::wgmma, 90, 4);
  };
  for (const auto& [m, n, k] : {std::tuple(512, 512, 16384), {128, 256, 57920}, {384, 192, 30000}}) {
    const MatmulWay way = of_weights(m, n, k);
    EXPECT_EQ(stream_blocks(way), kMultiprocessors * way.occupancy) << to_string(way);
  }
  // Blocks at different k read operands beyond the L2 cache from memory again: 101 us, whole tiles 77.
  EXPECT_EQ(stream_blocks(of_weights(768, 3072, 8192)), 0);
  // Few rows, short sums, and whole rounds.
  for (const auto& [m, n, k] : {std::tuple(8, 4096, 16384), {1024, 1024, 1024}, {4096, 4096, 4096}})
    EXPECT_EQ(stream_blocks(choose(m, n, k, MatmulFamily::wgmma)), 0);
}

TEST(MatmulWays, clusters_of_three_take_the_places_of_four) {
  const MatmulWay c{.unit = MatmulUnit::wgmma,
                    .block_m = 128,
                    .block_n = 64,
                    .stages = 8,
                    .split = {SplitKind::cluster, 3},
                    .warpgroups = 2};
  EXPECT_EQ(concurrent_blocks(c, {}), 96);
  EXPECT_GT(matmul_cycles({1, 1024, 320, 5760}, c), 1.6 * matmul_cycles({1, 1024, 256, 5760}, c));
}

TEST(MatmulWays, blocks_of_one_multiprocessor_share_what_it_loads) {
  const MatmulWay c{
      .unit = MatmulUnit::wgmma, .block_m = 64, .block_n = 64, .stages = 6, .warpgroups = 1, .occupancy = 2};
  const auto cycles = [&](int64_t rows, int64_t columns) {
    return matmul_cycles({1, 64 * rows, 64 * columns, 4096}, c);
  };
  EXPECT_GT(cycles(12, 12), 1.05 * cycles(12, 11)) << "a multiprocessor has two, where all had one";
  EXPECT_LT(cycles(12, 12), 2 * cycles(12, 11));
}

TEST(MatmulWays, threads_of_little_products_have_one_result_each) {
  EXPECT_EQ(choose(64, 16, 8, MatmulFamily::simt).unit, MatmulUnit::single);
  EXPECT_EQ(choose(16, 8, 64, MatmulFamily::simt, 80).unit, MatmulUnit::single);
  EXPECT_NE(choose(128, 512, 784, MatmulFamily::simt).unit, MatmulUnit::single);
  EXPECT_NE(choose(4096, 4096, 64, MatmulFamily::simt).unit, MatmulUnit::single);
  for (const auto& [m, n, k] : {std::tuple(64, 16, 8), {16, 8, 64}, {128, 512, 10}})
    EXPECT_EQ(choose_matmul({.m = m, .n = n, .k = k, .f32 = true}, MatmulFamily::simt, 90, 4).unit,
              MatmulUnit::single)
        << "K is sliced only where it is long";
}

TEST(MatmulWays, blocks_have_whole_products_where_these_are_small_and_many) {
  const MatmulWay way =
      choose_matmul({.batch = 100000, .m = 7, .n = 5, .k = 9}, MatmulFamily::batched, 90, 4);
  EXPECT_EQ(way.block_m, 8);
  EXPECT_EQ(way.block_n, 8);
  EXPECT_GE(way.batches, 16);
  const auto is_listed = [](const MatmulSizes& sizes) {
    const auto ways = matmul_ways(sizes, MatmulFamily::mma, 90, 4);
    const bool single = std::any_of(ways.begin(), ways.end(), loads_all_of_k);
    EXPECT_EQ(single, !matmul_batched_ways(sizes, 4).empty());
    return single;
  };
  EXPECT_TRUE(is_listed({.batch = 2, .m = 64, .n = 64, .k = 64}));
  for (const MatmulSizes& sizes : {MatmulSizes{1, 8, 8, 8}, {2, 65, 8, 8}, {2, 8, 65, 8}, {2, 8, 8, 65}})
    EXPECT_FALSE(is_listed(sizes));
}

// A block, and what it shares with others, fit; of f64, too.
TEST(MatmulWays, blocks_of_whole_products_fit_a_multiprocessor) {
  for (const int bytes : {4, 8})
    for (int64_t side = 1; side <= kBatchedSide; ++side)
      for (const bool along_k : {false, true}) {
        const MatmulSizes sizes{1000, side, 65 - side, side, along_k, !along_k};
        for (const MatmulWay& way : matmul_batched_ways(sizes, bytes)) {
          EXPECT_EQ(fault_of(way), "");
          EXPECT_LE(batched_threads(way), 512);
          EXPECT_LE(batched_bytes(way, side, !along_k, along_k, bytes), 128 * 1024) << to_string(way);
        }
      }
}

// K as tf32 counts it: twice.
TEST(MatmulWays, slices_of_narrow_results_are_short_or_split) {
  const auto sliced = [](int64_t m, int64_t n, int64_t k) {
    return choose_matmul({.m = m, .n = n, .k = 2 * k, .y_along_k = false, .f32 = true}, MatmulFamily::mma, 90,
                         4);
  };
  EXPECT_EQ(split_parts(sliced(128, 10, 512)), 4);  // y comes an element at a time
  EXPECT_EQ(split_parts(sliced(128, 512, 512)), 2);
  for (const auto& [m, n, k] : {std::tuple(128, 512, 10), {512, 10, 128}, {784, 512, 128}})
    EXPECT_TRUE(sliced(m, n, k).slices == 4 && split_parts(sliced(m, n, k)) == 1) << "can share a launch";
}

TEST(MatmulWays, long_k_is_split_where_there_are_few_tiles) {
  EXPECT_GT(split_parts(choose(32, 384, 8192, MatmulFamily::wgmma)), 1);
  EXPECT_TRUE(splits_in_cluster(choose(32, 384, 8192, MatmulFamily::wgmma)));
  EXPECT_FALSE(splits_in_cluster(choose(32, 384, 8192, MatmulFamily::mma, 80)));
  EXPECT_EQ(split_parts(choose(32, 384, 64, MatmulFamily::wgmma)), 1);
}

TEST(MatmulWays, few_rows_keep_many_weights_under_way) {
  for (int64_t m : {1, 16, 64})
    for (int64_t n : {2048, 4096}) {
      const MatmulWay c = choose(m, n, 4096, MatmulFamily::wgmma);
      EXPECT_GE(c.block_n * 128 * c.stages, 64 * 1024) << to_string(c);
    }
  // Of one row and of sixteen, the next launch's fit beside them.
  const MatmulWay c = choose(1, 4096, 4096, MatmulFamily::wgmma);
  EXPECT_LE(c.block_n * 128 * c.stages + kept_x_bytes({1, 1, 4096, 4096}, c, true), 108 * 1024)
      << to_string(c);
  const MatmulWay sixteen = choose(16, 4096, 4096, MatmulFamily::wgmma);
  EXPECT_LE((16 + sixteen.block_n) * 128 * sixteen.stages, 108 * 1024) << to_string(sixteen);
}

// A decoder's products. Where a multiprocessor has two blocks, a third finds no place, so that they do not
// crowd.
TEST(MatmulWays, blocks_of_one_row_spread_over_the_machine) {
  for (const auto& [n, k] : {std::pair(3072, 2048), {2048, 2048}, {16384, 2048}, {2048, 8192}}) {
    const MatmulWay c = choose(1, n, k, MatmulFamily::wgmma, 90, false);
    const int blocks = n / c.block_n * split_parts(c);
    EXPECT_GE(blocks, 128) << to_string(c);
    if (blocks > 192) {
      EXPECT_GT(3 * c.stages * c.block_n * 128, 227 * 1024) << to_string(c);
    }
  }
}

TEST(MatmulWays, few_rows_of_whole_stages_are_kept) {
  const MatmulWay c = choose(1, 2048, 8192, MatmulFamily::wgmma);
  ASSERT_GT(split_parts(c), 1) << to_string(c);
  const MatmulSizes sizes{1, 1, 2048, 8192};
  EXPECT_TRUE(keeps_x(sizes, c));
  EXPECT_EQ(kept_x_bytes(sizes, c, false), 8192 * 2);
  EXPECT_EQ(kept_x_bytes(sizes, c, true), 8192 * 2 / split_parts(c));
  for (const MatmulSizes& other :
       {MatmulSizes{1, 9, 2048, 1024}, MatmulSizes{1, 1, 2048, 1000}, MatmulSizes{2, 1, 2048, 1024},
        MatmulSizes{1, 2, 2048, 8192}, MatmulSizes{1, 1, 2048, 1024, true, false}})
    EXPECT_FALSE(keeps_x(other, c)) << other.m << " " << other.k;
}

TEST(MatmulWays, parts_of_few_rows_are_sent) {
  const MatmulWay c = choose(1, 2048, 2048, MatmulFamily::wgmma, 90, false);
  EXPECT_GT(split_parts(c), 1) << to_string(c);
  EXPECT_TRUE(sends_few_rows(1, c)) << to_string(c);
  EXPECT_FALSE(sends_few_rows(9, c)) << to_string(c);
}

TEST(MatmulWays, other_numbers_of_stages_come_last_and_fit_shared_memory) {
  for (int64_t m : {1, 16, 64, 128, 4096, -16}) {
    const bool x_along_k = m > 0;  // else whole blocks of x are loaded
    m = std::abs(m);
    const auto ways = matmul_ways({1, m, 3072, 4096, true, x_along_k}, MatmulFamily::wgmma, 90, 4);
    std::set<std::string> names, tiles;
    bool others = false;
    for (const MatmulWay& c : ways) {
      EXPECT_TRUE(names.insert(to_string(c)).second) << to_string(c);
      MatmulWay tile = c;
      tile.stages = 0;
      const bool known = !tiles.insert(to_string(tile)).second;
      EXPECT_TRUE(known || !others) << to_string(c);
      others = others || known;
      const MatmulSizes sizes{1, m, 3072, 4096, true, x_along_k};
      const bool keeps = keeps_x(sizes, c);
      const int64_t rows = keeps ? 0 : x_along_k ? std::min<int64_t>((m + 7) / 8 * 8, c.block_m) : c.block_m;
      const int64_t kept = keeps ? kept_x_bytes(sizes, c, true) : 0;
      EXPECT_LE(((rows + c.block_n) * 128 * c.stages + kept) * c.occupancy, (keeps ? 212 : 200) * 1024)
          << to_string(c);
    }
    EXPECT_TRUE(others) << m;
  }
}

TEST(MatmulWays, warpgroups_in_ping_pong_have_whole_tiles) {
  for (const MatmulWay& c : matmul_ways({1, 128, 128, 8192, true}, MatmulFamily::wgmma, 90, 4))
    EXPECT_FALSE(is_ping_pong(c) && split_parts(c) > 1) << to_string(c);
}

TEST(MatmulWays, rows_of_y_along_n_come_in_whole_panels) {
  for (int64_t n : {32, 96, 384, 768, 2304})
    EXPECT_EQ(choose(64, n, 512, MatmulFamily::wgmma, 90, false).block_n % 64, 0) << n;
}

TEST(MatmulWays, every_tile_fits_shared_memory) {
  for (const MatmulWay& c : matmul_tiles(MatmulFamily::mma, 4))
    EXPECT_LE((c.block_m + c.block_n) * 128 * c.stages, 99 * 1024) << to_string(c);
  for (const MatmulWay& c : matmul_tiles(MatmulFamily::wgmma, 4))
    EXPECT_LE(((c.block_m + c.block_n) * 128 * c.stages + 16 * c.stages + 1024) * c.occupancy, 228 * 1024)
        << to_string(c);
}

TEST(MatmulWays, rows_of_many_waves_cost_more_than_their_products) {
  // Measured on H100, 16,384 x 768 of 768 with a residual and a layer norm: 77 us in one kernel, 64 apart.
  const MatmulSizes many{1, 16384, 768, 768}, few{1, 2048, 768, 768};
  const auto cycles = [](const MatmulSizes& sizes) {
    double best = 1e30;
    for (MatmulWay c : matmul_row_ways(sizes)) {
      c.stages = 5;
      best = std::min(best, matmul_row_cycles(sizes, c, 2));
    }
    return best;
  };
  const auto apart = [](const MatmulSizes& sizes) {
    return matmul_cycles(sizes, choose_matmul(sizes, MatmulFamily::wgmma, 90, 4));
  };
  EXPECT_GT(cycles(many), 1.7 * apart(many));
  EXPECT_LT(cycles(few), 2 * apart(few));
}

TEST(MatmulWays, every_size_has_a_choice) {
  for (int64_t m : {0, 1, 7, 1000, 100000})
    for (int64_t k : {0, 1, 100, 100000})
      for (MatmulFamily family : {MatmulFamily::simt, MatmulFamily::mma, MatmulFamily::wgmma})
        EXPECT_GT(matmul_cycles({1, m, 64, k}, choose(m, 64, k, family)), 0) << m << " " << k;
}

}  // namespace
}  // namespace aicf
