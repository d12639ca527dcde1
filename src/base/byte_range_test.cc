// Windows that count as apart share no byte: drawn ones against all their bytes, one by one.
#include "base/byte_range.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace aicf {
namespace {

const Dim kRows = Dim::symbol("rows");

Strided<Dim> window(int64_t offset, std::vector<Dim> sizes, std::vector<Dim> strides,
                    DType dtype = DType::f32) {
  return {dtype, Dim(offset), std::move(sizes), std::move(strides)};
}

// Where a size is the symbol, it is `any`.
std::set<int64_t> bytes_of(const Strided<Dim>& w, int64_t any) {
  std::set<int64_t> elements = {*w.offset.constant()};
  for (size_t i = 0; i < w.sizes.size(); ++i) {
    std::set<int64_t> more;
    for (const int64_t at : elements)
      for (int64_t k = 0; k < w.sizes[i].constant().value_or(any); ++k)
        more.insert(at + k * *w.strides[i].constant());
    elements = std::move(more);
  }
  std::set<int64_t> bytes;
  const int64_t element = dtype_bytes(w.dtype);
  for (const int64_t at : elements)
    for (int64_t k = 0; k < element; ++k) bytes.insert(at * element + k);
  return bytes;
}

TEST(ByteRange, WindowsApartShareNoByte) {
  std::mt19937 random(1);
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  const auto drawn = [&] {
    Strided<Dim> w = window(draw(0, 40), {}, {}, draw(0, 1) == 0 ? DType::f32 : DType::f16);
    for (int64_t rank = draw(0, 3); rank > 0; --rank) {
      w.sizes.push_back(draw(0, 3) == 0 ? kRows : Dim(draw(0, 4)));
      w.strides.emplace_back(draw(-24, 24));
    }
    return w;
  };
  int apart = 0;
  for (int pair = 0; pair < 20000; ++pair) {
    const Strided<Dim> a = drawn(), b = drawn();
    if (may_share_bytes(a, b)) continue;
    ++apart;
    for (const int64_t any : {1, 5}) {
      const std::set<int64_t> x = bytes_of(a, any), y = bytes_of(b, any);
      for (const int64_t byte : x) ASSERT_FALSE(y.contains(byte)) << "pair " << pair;
    }
  }
  EXPECT_GT(apart, 1000);
}

TEST(ByteRange, ColumnsOfTheSameRowsAreApart) {
  // Parts of a concat [n, 3, 32] along its middle axis.
  const auto part = [](int64_t at, const Dim& rows) {
    return window(at * 32, {rows, Dim(1), Dim(32)}, {Dim(96), Dim(32), Dim(1)});
  };
  for (const Dim& rows : {Dim(8), kRows}) {
    EXPECT_FALSE(may_share_bytes(part(0, rows), part(1, rows)));
    EXPECT_FALSE(may_share_bytes(part(2, rows), part(1, rows)));
    EXPECT_TRUE(may_share_bytes(part(1, rows), part(1, rows)));
  }
  const Strided<Dim> wide = window(16, {kRows, Dim(32)}, {Dim(96), Dim(1)});
  EXPECT_TRUE(may_share_bytes(wide, part(0, kRows)));
  EXPECT_TRUE(may_share_bytes(wide, part(1, kRows)));
  EXPECT_FALSE(may_share_bytes(wide, part(2, kRows)));
}

TEST(ByteRange, SizesThatAreNotKnownMayBeAnything) {
  EXPECT_TRUE(may_share_bytes(window(0, {kRows}, {Dim(1)}), window(100, {Dim(4)}, {Dim(1)})));
  EXPECT_TRUE(may_share_bytes(window(0, {Dim(2)}, {kRows}), window(100, {Dim(4)}, {Dim(1)})));
  EXPECT_FALSE(may_share_bytes(window(0, {Dim(4)}, {Dim(1)}), window(4, {Dim(4)}, {Dim(1)})));
}

}  // namespace
}  // namespace aicf
