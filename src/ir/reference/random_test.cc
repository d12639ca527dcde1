#include <gtest/gtest.h>

#include "ir/reference/philox.h"
#include "ir/reference/testing/op_case.h"

namespace aicf {
namespace {

using reference::philox4x32_10;
using reference::PhiloxCounter;

// The known-answer vectors published with Random123.
TEST(ReferencePhilox, KnownAnswers) {
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}),
            (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox4x32_10({ones, ones, ones, ones}, {ones, ones}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// The published vector of pi's digits, reached through seed, step, stream and element index.
TEST(ReferencePhilox, CounterAndKeyLayout) {
  const int64_t seed = 0x299f31d0a4093822, step = 0x13198a2e, stream = 0x03707344;
  const auto block = static_cast<int64_t>(0x05a308d3243f6a88);  // times 4 still fits an index
  const PhiloxCounter words =
      philox4x32_10({0x243f6a88, 0x05a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0});
  for (int64_t word = 0; word < 4; ++word)
    EXPECT_EQ(reference::random_word(seed, step, stream, block * 4 + word), words[static_cast<size_t>(word)]);
  EXPECT_EQ(reference::random_word(-1, -1, -1, 3), philox4x32_10({0, 0, ~0u, ~0u}, {~0u, ~0u})[3]);
}

TEST(ReferenceRandom, DependsOnTheElementIndexOnly) {
  const Array seed = Array::scalar_i64(DType::i64, 7), step = Array::scalar_i64(DType::i64, 3);
  const auto bits = [&](std::vector<int64_t> sizes, int64_t stream) {
    return run_op(Op::random_bits, {seed, step}, {{"shape", to_shape(sizes)}, {"stream", stream}}).at(0);
  };
  const Array line = bits({10}, 1), block = bits({2, 3}, 1), other = bits({10}, 2);
  for (int64_t k = 0; k < block.count(); ++k) EXPECT_EQ(line.get_i64(k), block.get_i64(k));
  EXPECT_FALSE(line == other);
}

}  // namespace

std::vector<OpCase> random_cases() {
  // The published vector for counter 0 and key 0, as signed words.
  std::vector<double> words;
  for (uint32_t word : {0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u})
    words.push_back(static_cast<int32_t>(word));
  const CaseTensor zero = i64({}, {0});
  return {
      {Op::random_bits,
       {zero, zero},
       {{"shape", Shape{2, 2}}, {"stream", int64_t{0}}},
       {of(DType::i32, {2, 2}, words)}},
      {Op::random_bits,
       {zero, zero},
       {{"shape", Shape{0}}, {"stream", int64_t{0}}},
       {of(DType::i32, {0}, {})}},
  };
}

}  // namespace aicf
