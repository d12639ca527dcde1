// Every way that a row lists prints as a text of its own, which parses to it; any other text is refused.
#include "kernels/common/way.h"

#include <gtest/gtest.h>

#include <map>

#include "kernels/conv/cuda/conv_simt_ways.h"
#include "kernels/conv/cuda/conv_ways.h"
#include "kernels/matmul/cuda/matmul_ways.h"

namespace aicf {
namespace {

// Ways by their texts: two with one text, or one without, fail.
class Texts {
 public:
  void add(const Way& way) {
    const std::string text = to_string(way);
    EXPECT_EQ(parse_way(text), std::optional(way)) << text;
    const auto [known, is_new] = ways_.emplace(text, way);
    EXPECT_EQ(known->second, way) << text;
  }
  void add(const MatmulWay& way) {
    EXPECT_EQ(fault_of(way), "") << to_string(way);
    add(Way(way));
  }
  void add(const ConvWay& way) {
    EXPECT_EQ(fault_of(way), "") << to_string(way);
    add(Way(way));
  }
  size_t size() const { return ways_.size(); }
  const std::map<std::string, Way>& ways() const { return ways_; }

 private:
  std::map<std::string, Way> ways_;
};

template <class Use>
void for_sizes(const Use& use) {
  for (const int64_t m : {1, 16, 100, 256, 4096, 16384})
    for (const int64_t n : {10, 256, 1536, 4096})
      for (const int64_t k : {64, 384, 4096})
        for (const bool y_along_k : {false, true}) use(MatmulSizes{1, m, n, k, y_along_k});
}

void add_products(Texts& texts) {
  for_sizes([&](MatmulSizes sizes) {
    for (const int arch : {80, 90})
      for (const MatmulFamily family : {MatmulFamily::simt, MatmulFamily::mma, MatmulFamily::wgmma,
                                        MatmulFamily::tf32x3, MatmulFamily::direct})
        for (const bool f32 : {false, true}) {
          const bool is_hopper = family == MatmulFamily::wgmma || family == MatmulFamily::tf32x3;
          if (is_hopper && arch != 90) continue;
          sizes.f32 = f32;
          sizes.x_fetched = sizes.n == 10;
          for (const MatmulWay& way : matmul_ways(sizes, family, arch, 4)) texts.add(way);
        }
    for (MatmulWay way : matmul_row_ways(sizes)) {
      way.stages = 3;
      texts.add(way);
    }
    for (const MatmulFamily family : {MatmulFamily::mma, MatmulFamily::wgmma})
      for (const MatmulWay& way : matmul_pair_ways(sizes, family)) texts.add(way);
  });
}

void add_small_products(Texts& texts) {
  for (const int64_t side : {3, 8, 17, 49, 64})
    for (const MatmulFamily family : {MatmulFamily::batched, MatmulFamily::mma, MatmulFamily::warp}) {
      MatmulSizes sizes{1000, side, 8, side};
      sizes.x_fetched = sizes.y_fetched = side % 8 != 0;
      for (const MatmulWay& way : matmul_ways(sizes, family, 90, 4)) texts.add(way);
    }
}

void add_convolutions(Texts& texts) {
  for_sizes([&](const MatmulSizes& sizes) {
    for (const int arch : {80, 90})
      for (const auto& [way, microseconds] : gathered_ways(sizes, arch))
        texts.add(ConvWay{ConvLoads::gathered, way});
    for (const auto& [way, microseconds] : tma_ways(sizes, 90)) texts.add(ConvWay{ConvLoads::tma, way});
    const SimtSizes simt{.maps = sizes.n, .pixels = sizes.batch * sizes.m, .channels = sizes.k};
    for (const int arch : {80, 90})
      for (const auto& [way, microseconds] : simt_ways(simt, arch))
        texts.add(ConvWay{ConvLoads::gathered, way});
  });
}

void add_attention(Texts& texts) {
  for (const AttentionUnit unit : {AttentionUnit::kSimt, AttentionUnit::kMma, AttentionUnit::kSplit,
                                   AttentionUnit::kWgmma, AttentionUnit::kShort})
    for (const int rows : {64, 128, 192})
      for (const int keys : {64, 128}) texts.add(Way(AttentionWay{unit, rows, keys}));
  for (const int cluster : {1, 2, 4, 8}) texts.add(Way(AttentionWay{AttentionUnit::kSplit, 16, 64, cluster}));
  for (const int row_lanes : {2, 4, 8})
    for (const int key_warps : {1, 2, 4})
      texts.add(Way(AttentionWay{.unit = AttentionUnit::kSimt,
                                 .rows = 48,
                                 .keys = 128,
                                 .row_warps = 2,
                                 .key_warps = key_warps,
                                 .row_lanes = row_lanes}));
}

void add_weight_gradients(Texts& texts) {
  for (const auto& [m, n] :
       std::vector<std::pair<int, int>>{{256, 128}, {128, 128}, {128, 64}, {128, 32}, {64, 128}, {64, 64}})
    for (const int parts : {1, 2, 29, 256}) texts.add(Way(WeightGradientWay{m, n, parts}));
  for (const auto& [m, n] : std::vector<std::pair<int, int>>{{576, 64}, {192, 128}, {128, 256}})
    for (const int rows : {2, 14, 32}) texts.add(Way(WeightGradientWay{m, n, 11, rows}));
  for (const int rows : {1, 12})
    for (const int maps : {8, 64}) {
      texts.add(Way(WindowWay{rows, 28, 24, maps, 33}));
      texts.add(Way(HaloTmaWay{rows, 28, maps}));
    }
}

void add_recurrent_layers(Texts& texts) {
  texts.add(Way(RecurrentWay{}));
  for (const int cluster : {2, 16})
    for (const int rows : {8, 24})
      for (const int slices : {1, 4})
        texts.add(Way(RecurrentWay{RecurrentUnit::kMma, cluster, rows, slices}));
}

Texts all_texts() {
  Texts texts;
  texts.add(Way());
  add_small_products(texts);
  add_products(texts);
  add_convolutions(texts);
  add_attention(texts);
  add_weight_gradients(texts);
  add_recurrent_layers(texts);
  return texts;
}

TEST(Way, EveryWayParsesFromItsText) { EXPECT_GT(all_texts().size(), 300u); }

// A word less, a word more, a number changed into none: never another way by accident, but the one that has
// this text.
TEST(Way, OtherTextsAreRefusedOrMeanWhatTheySay) {
  size_t refused = 0, tried = 0;
  const Texts texts = all_texts();
  for (const auto& [text, way] : texts.ways()) {
    std::vector<std::string> others{text + " ", " " + text, text + " 2", text + " cluster", "x" + text};
    for (size_t i = 0; i < text.size(); ++i) {
      others.push_back(text.substr(0, i) + text.substr(i + 1));
      others.push_back(text.substr(0, i) + "0" + text.substr(i));
    }
    for (const std::string& other : others) {
      const std::optional<Way> parsed = parse_way(other);
      ++tried;
      if (!parsed) ++refused;
      if (parsed) {
        EXPECT_EQ(to_string(*parsed), other);
      }
    }
  }
  EXPECT_GT(refused, tried / 2);
}

TEST(Way, WhatNoKernelIsLikeHasAFault) {
  const MatmulWay wgmma{.unit = MatmulUnit::wgmma, .block_m = 128, .block_n = 128, .warpgroups = 2};
  ASSERT_EQ(fault_of(wgmma), "");
  const auto is_refused = [](const MatmulWay& way) {
    return !fault_of(way).empty() && !parse_way(to_string(way)).has_value();
  };
  const auto with = [&](auto&& change) {
    MatmulWay way = wgmma;
    change(way);
    return way;
  };
  EXPECT_TRUE(is_refused(with([](MatmulWay& w) { w.warpgroups = 3; })));
  EXPECT_TRUE(is_refused(with([](MatmulWay& w) { w.block_m = 64; })));
  EXPECT_TRUE(is_refused(with([](MatmulWay& w) { w.block_n = 40; })));
  EXPECT_TRUE(is_refused(with([](MatmulWay& w) { w.split = {SplitKind::multicast, 3}; })));
  EXPECT_TRUE(is_refused(with([](MatmulWay& w) {
    w.schedule = MatmulSchedule::stationary_x;
    w.split = {SplitKind::multicast, 2};
  })));
  EXPECT_TRUE(is_refused(with([](MatmulWay& w) { w.split = {SplitKind::workspace, 2}; })));
  EXPECT_TRUE(is_refused(with([](MatmulWay& w) {
    w.schedule = MatmulSchedule::ping_pong;
    w.split = {SplitKind::stream, 2};
  })));
  EXPECT_TRUE(is_refused({.unit = MatmulUnit::mma, .split = {SplitKind::stream, 132}}));
  EXPECT_FALSE(fault_of(ConvWay{ConvLoads::tma, with([](MatmulWay& w) { w.split = {SplitKind::stream, 2}; })})
                   .empty());
  EXPECT_FALSE(
      fault_of(ConvWay{ConvLoads::tma, with([](MatmulWay& w) { w.split = {SplitKind::multicast, 2}; })})
          .empty());
  EXPECT_TRUE(is_refused(with([](MatmulWay& w) {
    w.schedule = MatmulSchedule::ping_pong;
    w.split = {SplitKind::cluster, 2};
  })));
  EXPECT_TRUE(is_refused(with([](MatmulWay& w) {
    w.schedule = MatmulSchedule::stationary_x;
    w.occupancy = 2;
  })));
  EXPECT_TRUE(is_refused({.unit = MatmulUnit::mma, .warpgroups = 1}));
  EXPECT_TRUE(is_refused({.unit = MatmulUnit::mma, .stages = 0}));
  EXPECT_TRUE(is_refused({.unit = MatmulUnit::mma, .stages = 1, .split = {SplitKind::cluster, 2}}));
  EXPECT_FALSE(fault_of(ConvWay{ConvLoads::gathered, {.unit = MatmulUnit::mma, .stages = 1}}).empty());
  const MatmulWay batched{
      .unit = MatmulUnit::batched, .block_m = 8, .block_n = 8, .stages = 1, .batches = 16};
  EXPECT_EQ(fault_of(batched), "");
  EXPECT_FALSE(fault_of(ConvWay{ConvLoads::gathered, batched}).empty());
  for (const auto& [m, n, stages, batches] :
       {std::tuple(6, 8, 1, 16), {8, 68, 1, 16}, {8, 8, 2, 16}, {8, 8, 1, 0}})
    EXPECT_FALSE(fault_of(MatmulWay{.unit = MatmulUnit::batched,
                                    .block_m = m,
                                    .block_n = n,
                                    .stages = stages,
                                    .batches = batches})
                     .empty());
  EXPECT_FALSE(fault_of(MatmulWay{.unit = MatmulUnit::simt, .batches = 16}).empty());
  EXPECT_FALSE(fault_of(MatmulWay{.unit = MatmulUnit::simt, .block_m = 16, .block_n = 16}).empty());
  EXPECT_FALSE(fault_of(MatmulWay{.unit = MatmulUnit::mma, .slices = 4}).empty());
  EXPECT_FALSE(fault_of(MatmulWay{.split = {SplitKind::none, 2}}).empty());
  EXPECT_FALSE(fault_of(ConvWay{ConvLoads::tma, {.unit = MatmulUnit::mma}}).empty());
  EXPECT_FALSE(fault_of(AttentionWay{AttentionUnit::kMma, 64, 64, 8}).empty());
  EXPECT_FALSE(fault_of(AttentionWay{AttentionUnit::kSplit, 16, 64, 3}).empty());
  EXPECT_FALSE(fault_of(AttentionWay{.unit = AttentionUnit::kMma, .row_warps = 2}).empty());
  EXPECT_FALSE(fault_of(AttentionWay{.unit = AttentionUnit::kSimt, .rows = 60}).empty());
  EXPECT_FALSE(fault_of(AttentionWay{.unit = AttentionUnit::kSimt, .row_lanes = 16}).empty());
  EXPECT_FALSE(fault_of(WeightGradientWay{256, 64, 1}).empty());
  EXPECT_FALSE(fault_of(WeightGradientWay{128, 128, 0}).empty());
  EXPECT_FALSE(fault_of(WeightGradientWay{192, 128, 0, 8}).empty());
  EXPECT_FALSE(fault_of(WeightGradientWay{192, 128, 1, 7}).empty());
  EXPECT_FALSE(fault_of(WeightGradientWay{200, 128, 1, 8}).empty());
}

// What records, callers and files of measurements hold from before.
TEST(Way, WordsOfBeforeMeanTheSameWays) {
  const std::pair<const char*, const char*> kTexts[] = {
      {"wgmma 128x128 stages 6 warpgroups 2 alternate", "wgmma 128x128 stages 6 warpgroups 2 ping-pong"},
      {"wgmma 128x192 stages 4 warpgroups 2 handed", "wgmma 128x192 stages 4 warpgroups 2 epilogue-warps"},
      {"wgmma 128x192 stages 3 warpgroups 2 handed x stays",
       "wgmma 128x192 stages 3 warpgroups 2 epilogue-warps stationary-x"},
      {"wgmma 64x64 stages 6 warpgroups 1 resident 2", "wgmma 64x64 stages 6 warpgroups 1 occupancy 2"},
      {"wgmma 128x256 stages 3 warpgroups 2 rows of 3",
       "wgmma 128x256 stages 3 warpgroups 2 row-reduction cluster 3"},
      {"boxes wgmma 128x64 stages 3 warpgroups 2 resident 3",
       "tma wgmma 128x64 stages 3 warpgroups 2 occupancy 3"},
      {"boxes wgmma 128x128 stages 5 warpgroups 2 alternate",
       "tma wgmma 128x128 stages 5 warpgroups 2 ping-pong"},
  };
  for (const auto& [before, now] : kTexts) {
    const std::optional<Way> way = parse_way(before);
    ASSERT_TRUE(way.has_value()) << before;
    EXPECT_EQ(to_string(*way), now);
    EXPECT_EQ(way, parse_way(now));
  }
  for (const char* text : {"wgmma 128x128 stages 6 warpgroups 2 handed x", "mma 64x64 stages 4 handed",
                           "wgmma 64x64 stages 6 warpgroups 1 residents 2", "inboxes wgmma 64x64 stages 4",
                           "wgmma 128x128 stages 6 warpgroups 2 handed ping-pong"})
    EXPECT_EQ(parse_way(text), std::nullopt) << text;
}

TEST(Way, OtherTextsAreNone) {
  for (const char* text :
       {"mma", "mma 64 stages 4", "simt 64x64", "simt 64x64 warps 2x2 lanes 8x8", "mma 64x64 stages",
        "mma 64x64 stages 4 splits 2", "wgmma 128x128 stages 6", "tma mma 64x64 stages 4",
        "boxes mma 64x64 stages 4", "gathered simt 16x16 stages 2", "split 16x",
        "wgmma 128x128 stages 6 warpgroups 2 epilogue-warps ping-pong", "5 calls in 2 stages",
        "130101 bias 2 workspace 4096", "mma 64x64 stages 99999999999"})
    EXPECT_EQ(parse_way(text), std::nullopt) << text;
  EXPECT_TRUE(std::holds_alternative<AttentionWay>(*parse_way("mma 64x64")));
}

}  // namespace
}  // namespace aicf
