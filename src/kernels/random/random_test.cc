#include "kernels/testing/step.h"

namespace aicf {
namespace {

using step_testing::Layout;
using step_testing::TestTensor;

uint32_t bits_at(int64_t seed, int64_t step, int64_t stream, int64_t index, Layout layout = Layout::kDense) {
  TestTensor s(DType::i64, {}), t(DType::i64, {}), out(DType::i32, {index + 1}, layout);
  *static_cast<int64_t*>(s.arg().data) = seed;
  *static_cast<int64_t*>(t.arg().data) = step;
  step_testing::run_step({"random_bits", {s.arg(), t.arg()}, {out.arg()}, {stream}, {}, nullptr},
                         IsaLevel::kPortable);
  return static_cast<uint32_t>(out.bits(index));
}

// Known answers published with the reference implementation (Random123, kat_vectors): all zeros, then all
// ones. The high counter word of an element cannot be all ones, so only the first set fits our counter; the
// key is free.
TEST(Random, KnownAnswers) {
  EXPECT_EQ(bits_at(0, 0, 0, 0), 0x6627e8d5u);
  EXPECT_EQ(bits_at(0, 0, 0, 1), 0xe169c58du);
  EXPECT_EQ(bits_at(0, 0, 0, 2), 0xbc57ac4cu);
  EXPECT_EQ(bits_at(0, 0, 0, 3), 0x9b00dbd8u);
}

TEST(Random, DependsOnLogicalIndexOnly) {
  TestTensor s(DType::i64, {}), t(DType::i64, {1}), flat(DType::i32, {70000}),
      cube(DType::i32, {100, 7, 100}, Layout::kTransposed);
  s.fill([](int64_t) { return 123456789; }), t.fill([](int64_t) { return 5; });
  step_testing::run_step({"random_bits", {s.arg(), t.arg()}, {flat.arg()}, {9}, {}, nullptr},
                         IsaLevel::kPortable);
  step_testing::run_step({"random_bits", {s.arg(), t.arg()}, {cube.arg()}, {9}, {}, nullptr},
                         IsaLevel::kPortable, true);
  for (int64_t i = 0; i < 70000; ++i) ASSERT_EQ(flat.bits(i), cube.bits(i));
}

TEST(Random, EveryKeyMatters) {
  const uint32_t base = bits_at(1, 2, 3, 4);
  EXPECT_NE(base, bits_at(2, 2, 3, 4));
  EXPECT_NE(base, bits_at(1 + (int64_t{1} << 32), 2, 3, 4));
  EXPECT_NE(base, bits_at(1, 3, 3, 4));
  EXPECT_NE(base, bits_at(1, 2, 4, 4));
  EXPECT_NE(base, bits_at(1, 2, 3, 5));
}

}  // namespace
}  // namespace aicf
