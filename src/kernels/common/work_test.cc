#include "kernels/common/work.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <vector>

namespace aicf {
namespace {

TensorArg row_major(DType dtype, const std::vector<int64_t>& sizes) {
  TensorArg arg;
  arg.dtype = dtype;
  arg.rank = static_cast<int>(sizes.size());
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0; stride *= sizes[i]) {
    arg.sizes[i] = sizes[i];
    arg.strides[i] = stride;
  }
  return arg;
}

TEST(Work, PackedWeightsCountAsWhatTheyWerePackedFrom) {
  const TensorArg x = row_major(DType::f32, {2, 12, 9, 9}), out = row_major(DType::f32, {2, 40, 9, 9});
  const TensorArg weights = row_major(DType::f32, {40, 6, 3, 3}), packed = row_major(DType::u8, {1 << 16});
  std::vector<int64_t> params = {2, 2, 0, 1, 1, 1, 1, 1, 1, 1, 1};
  const double flops = work_of(facts_of("conv_f32").work, {x, weights}, {out}, params).flops;
  EXPECT_EQ(flops, 2.0 * 2 * 40 * 25 * 25 * 6);  // 3 · 9 - 2 positions of an axis are inside
  params.insert(params.end(), {3, 3});
  EXPECT_EQ(work_of(facts_of("conv_f32_packed").work, {x, packed}, {out}, params).flops, flops);
}

TEST(Work, BroadcastOperandsAreReadOnce) {
  TensorArg row = row_major(DType::f32, {8, 16});
  row.strides[0] = 0;
  const TensorArg out = row_major(DType::f32, {8, 16});
  EXPECT_EQ(work_of(facts_of("tile").work, {row}, {out}, {}).bytes, 4.0 * (16 + 8 * 16));
}

struct AttentionCase {
  const char* name;
  int64_t queries, keys;
  std::vector<int64_t> params;  // causal, has_mask, window
};

// By the words of docs/ops.md, pair by pair.
bool sees(const AttentionCase& c, int64_t i, int64_t j) {
  const int64_t at = i + c.keys - c.queries, window = c.params.size() > 2 ? c.params[2] : 0;
  if (c.params[0] != 0 && j > at) return false;
  return window == 0 || std::abs(at - j) < window;
}

TEST(Work, AttentionCountsThePairsThatItsRulesKeep) {
  const std::vector<AttentionCase> cases = {
      {"all", 7, 9, {0, 0, 0}},
      {"causal", 8, 8, {1, 0, 0}},
      {"causal, a cache before", 3, 10, {1, 0, 0}},
      {"causal, more queries", 10, 4, {1, 0, 0}},
      {"one query", 1, 9, {1, 0, 0}},
      {"window", 12, 12, {0, 0, 3}},
      {"causal window", 12, 12, {1, 0, 3}},
      {"wide window", 5, 9, {1, 0, 99}},
      {"decode in a window", 1, 20, {1, 0, 4}},
      {"window, more queries", 9, 4, {0, 0, 2}},
      {"no window given", 6, 6, {1, 0}},
  };
  constexpr int64_t kBatch = 2, kHeads = 4, kKeyHeads = 2, kDepth = 8, kValueDepth = 6;
  for (const AttentionCase& c : cases) {
    double pairs = 0;
    std::set<int64_t> keys;
    for (int64_t i = 0; i < c.queries; ++i)
      for (int64_t j = 0; j < c.keys; ++j)
        if (sees(c, i, j)) pairs += 1, keys.insert(j);
    const TensorArg q = row_major(DType::f16, {kBatch, kHeads, c.queries, kDepth}),
                    k = row_major(DType::f16, {kBatch, kKeyHeads, c.keys, kDepth}),
                    v = row_major(DType::f16, {kBatch, kKeyHeads, c.keys, kValueDepth}),
                    out = row_major(DType::f16, {kBatch, kHeads, c.queries, kValueDepth});
    const Work work = work_of(facts_of("attention_mma").work, {q, k, v}, {out}, c.params);
    EXPECT_EQ(work.flops, 2.0 * kBatch * kHeads * pairs * (kDepth + kValueDepth)) << c.name;
    const auto used = static_cast<double>(keys.size());
    EXPECT_EQ(work.bytes, 2.0 * (kBatch * kHeads * c.queries * (kDepth + kValueDepth) +
                                 kBatch * kKeyHeads * used * (kDepth + kValueDepth)))
        << c.name;
    const Work back =
        work_of(facts_of("attention_backward_simt").work, {q, k, v, out, out}, {q, k, v}, c.params);
    EXPECT_EQ(back.flops, 2.0 * kBatch * kHeads * pairs * (3 * kDepth + 2 * kValueDepth)) << c.name;
  }
}

TEST(Work, RecurrentLayersMultiplyAtEveryStep) {
  const TensorArg x = row_major(DType::f32, {7, 3, 2 * 4 * 5}), h = row_major(DType::f32, {2, 3, 5}),
                  w = row_major(DType::f32, {2, 4 * 5, 5}), y = row_major(DType::f32, {7, 3, 10});
  constexpr double kFlops = 2.0 * 7 * 3 * 2 * 20 * 5;
  EXPECT_EQ(work_of(facts_of("recurrent_cluster").work, {x, h, w}, {y}, {}).flops, kFlops);
  EXPECT_EQ(work_of(facts_of("recurrent_backward_cluster").work, {w, h, y}, {x}, {}).flops, kFlops);
}

TEST(Work, WideRangesStayNumbers) {
  const int64_t most = int64_t{1} << 40;
  const TensorArg q = row_major(DType::f16, {1, 1, most, 8});
  const double flops = work_of(facts_of("attention_mma").work, {q, q, q}, {q}, {1, 0, 0}).flops,
               half = 0.5 * 2 * 16;
  EXPECT_NEAR(flops / (half * 0x1p80), 1, 1e-9);
}

TEST(Work, ConvolutionsCountWhatTheirWindowsReach) {
  struct Case {
    int64_t x, kernel, stride, low, high, dilation;
  };
  for (const Case& c :
       {Case{9, 3, 1, 1, 1, 1}, Case{7, 7, 2, 3, 3, 1}, Case{5, 3, 1, 2, 2, 2}, Case{1, 3, 1, 1, 1, 1},
        Case{8, 2, 3, 0, 0, 1}, Case{6, 3, 2, 0, 1, 1}, Case{9, 1, 2, 0, 0, 1}, Case{20, 3, 4, 2, 2, 3},
        Case{40, 5, 6, 1, 0, 4}, Case{21, 3, 5, 0, 0, 5}}) {
    const int64_t out_size = (c.x + c.low + c.high - c.dilation * (c.kernel - 1) - 1) / c.stride + 1;
    double taps = 0;
    std::set<int64_t> reached;
    for (int64_t o = 0; o < out_size; ++o)
      for (int64_t k = 0; k < c.kernel; ++k)
        if (const int64_t at = o * c.stride - c.low + k * c.dilation; at >= 0 && at < c.x)
          taps += 1, reached.insert(at);
    const TensorArg x = row_major(DType::f32, {2, 6, c.x}), w = row_major(DType::f32, {4, 3, c.kernel}),
                    out = row_major(DType::f32, {2, 4, out_size});
    const std::vector<int64_t> params = {1, 2, 0, c.stride, c.low, c.high, c.dilation};
    const Work work = work_of(facts_of("conv_f32").work, {x, w}, {out}, params),
               gradient = work_of(facts_of("weight_gradient_wgmma").work, {x, out}, {w}, params);
    const auto read = static_cast<double>(2 * 6 * reached.size()),
               rest = static_cast<double>(4 * 3 * c.kernel + 2 * 4 * out_size);
    EXPECT_EQ(work.flops, 2.0 * 2 * 4 * 3 * taps) << c.x << " by " << c.kernel;
    EXPECT_EQ(work.bytes, 4 * (read + rest)) << c.x << " by " << c.kernel;
    EXPECT_EQ(gradient.bytes, work.bytes) << c.x << " by " << c.kernel;
  }
}

TEST(Work, TransposedConvolutionsCountFromTheirInput) {
  const TensorArg x = row_major(DType::f32, {2, 6, 5}), w = row_major(DType::f32, {6, 4, 3}),
                  out = row_major(DType::f32, {2, 4, 11});
  EXPECT_EQ(work_of(facts_of("conv_transpose").work, {x, w}, {out}, {1, 1, 0, 2, 0, 0, 1, 0}).flops,
            2.0 * 2 * 6 * 5 * 4 * 3);
}

TEST(Work, WeightGradientsCountWhatTheirConvolutionDoes) {
  const TensorArg x = row_major(DType::f32, {2, 6, 9}), w = row_major(DType::f32, {4, 3, 3}),
                  dy = row_major(DType::f32, {2, 4, 5});
  const std::vector<int64_t> params = {1, 2, 0, 2, 1, 1, 1};
  EXPECT_EQ(work_of(facts_of("weight_gradient_wgmma").work, {x, dy}, {w}, params).flops,
            work_of(facts_of("conv_mma").work, {x, w}, {dy}, params).flops);
}

TEST(Work, ProductsCountEveryMatrix) {
  const TensorArg x = row_major(DType::f16, {3, 32, 64}), y = row_major(DType::f16, {64, 16}),
                  out = row_major(DType::f16, {3, 32, 16});
  EXPECT_EQ(work_of(facts_of("matmul_tensor_core").work, {x, y}, {out}, {}).flops, 2.0 * 3 * 32 * 64 * 16);
  EXPECT_EQ(work_of(facts_of("matmul_pair").work, {x, y, y}, {out}, {}).flops, 4.0 * 3 * 32 * 64 * 16);
}

struct BytesCase {
  const char* kernel;
  std::vector<std::vector<int64_t>> inputs, outputs;  // all f32
  std::vector<int64_t> params;
  double elements, sure;
};

TEST(Work, OnlyWhatIsTouchedCounts) {
  const std::vector<BytesCase> cases = {
      {"gather", {{50000, 64}, {8}}, {{8, 64}}, {0}, 8 * 64 + 8 + 8 * 64, 8 + 8 * 64},
      {"gather", {{4, 64}, {100}}, {{100, 64}}, {0}, 4 * 64 + 100 + 100 * 64, 100 + 100 * 64},
      {"gather_elements", {{9, 1000}, {9, 2}}, {{9, 2}}, {1}, 18 + 18 + 18, 18 + 18},
      {"gather_nd", {{100, 100}, {3, 1}}, {{3, 100}}, {0}, 300 + 3 + 300, 3 + 300},
      {"tile_gathered",
       {{50000, 64}, {64}, {8}},
       {{8, 64}},
       {1, 0},
       8 * 64 + 64 + 8 + 8 * 64,
       64 + 8 + 8 * 64},
      // A table by indices, another operand.
      {"tile_indexed",
       {{8, 1, 5000}, {8, 64}, {64}},
       {{8, 64}},
       {2, 2, -1},
       3 * 8 * 64 + 64,
       2 * 8 * 64 + 64},
      {"scatter_nd", {{1000, 8}, {5, 1}, {5, 8}}, {{1000, 8}}, {0}, 5 + 40 + 40, 5 + 40},
      {"scatter_elements", {{1000}, {5}, {5}}, {{1000}}, {0, 0}, 5 + 5 + 5, 5 + 5},
      // Old rows, indices, a table of which five rows are read, a factor for each update, indices of the
      // table.
      {"scatter_messages",
       {{1000, 8}, {5, 1}, {50000, 8}, {5, 1}, {5}},
       {{1000, 8}},
       {1, 4, -1},
       5 + 40 + 5 + 5 + 40,
       5},
      {"scatter_messages", {{9, 8}, {50, 1}, {4, 8}, {50}}, {{9, 8}}, {1, 3}, 50 + 32 + 50 + 72, 50},
      {"size_of", {{1000, 1000}}, {{1}}, {0}, 1, 1},
      {"pad", {{100}}, {{10}}, {0, -90, 0}, 20, 20},
      {"max_pool", {{1, 1, 100}}, {{1, 1, 10}}, {1, 0, 0, 2, 10, 0, 0, 1}, 20 + 10, 20 + 10},
      {"sort", {{16}}, {{16}}, {}, 32, 32},
      // q, k, v, cosines, sines, the caches of keys and of values, the position.
      {"rope_append",
       {{1, 4, 1, 8}, {1, 2, 1, 8}, {1, 2, 1, 8}, {1, 4}, {1, 4}, {1, 2, 1000, 8}, {1, 2, 1000, 8}, {1}},
       {{1, 4, 1, 8}, {1, 2, 1, 8}, {1, 2, 1, 8}},
       {},
       32 + 16 + 16 + 4 + 4 + 1 + 32 + 16 + 16,
       32 + 16 + 16 + 4 + 4 + 1 + 32 + 16 + 16},
  };
  for (const BytesCase& c : cases) {
    std::vector<TensorArg> inputs, outputs;
    for (const auto& sizes : c.inputs) inputs.push_back(row_major(DType::f32, sizes));
    for (const auto& sizes : c.outputs) outputs.push_back(row_major(DType::f32, sizes));
    const Work work = work_of(facts_of(c.kernel).work, inputs, outputs, c.params);
    EXPECT_EQ(work.bytes, 4 * c.elements) << c.kernel;
    EXPECT_EQ(work.sure_bytes, 4 * c.sure) << c.kernel;
    EXPECT_EQ(work.flops, 0) << c.kernel;
  }
}

TEST(Work, WindowsThatSlideOverlap) {
  TensorArg sliding = row_major(DType::f32, {10, 4});
  sliding.strides[0] = 1;
  const TensorArg out = row_major(DType::f32, {10, 4});
  EXPECT_EQ(work_of(facts_of("tile").work, {sliding}, {out}, {}).bytes, 4.0 * (13 + 40));
  sliding.strides[0] = -1;
  EXPECT_EQ(work_of(facts_of("tile").work, {sliding}, {out}, {}).bytes, 4.0 * (13 + 40));
  EXPECT_EQ(
      work_of(facts_of("tile").work, {row_major(DType::f32, {0, 4})}, {row_major(DType::f32, {0, 4})}, {})
          .bytes,
      0);
}

}  // namespace
}  // namespace aicf
