#include <algorithm>
#include <numeric>

#include "kernels/testing/step.h"

namespace aicf {
namespace {

using step_testing::Layout;
using step_testing::TestTensor;

const Layout kLayouts[] = {Layout::kDense, Layout::kTransposed, Layout::kReversed, Layout::kGaps};
const DType kDTypes[] = {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64,
                         DType::i32, DType::i16, DType::i8,  DType::u8};

// Many ties; floats get NaN, infinities and both zeros.
TestTensor sample(DType dtype, std::vector<int64_t> sizes, Layout layout) {
  TestTensor x(dtype, std::move(sizes), layout);
  x.fill([&](int64_t i) {
    const int64_t v = i * 7919 % 23;
    if (!is_float(dtype)) return static_cast<double>(v % 11);
    return v == 3   ? NAN
           : v == 5 ? INFINITY
           : v == 7 ? -INFINITY
           : v == 9 ? -0.0
                    : static_cast<double>(v % 11 - 5);
  });
  if (dtype == DType::i64) *static_cast<int64_t*>(x.arg().data) = INT64_MAX;
  return x;
}

bool below(double a, double b) { return std::isnan(b) ? !std::isnan(a) : a < b; }

// The elements of one line along an axis, as flat indices.
template <class F>
void for_each_line(const TestTensor& x, size_t axis, F f) {
  int64_t inner = 1, size = x.sizes()[axis];
  for (size_t i = axis + 1; i < x.sizes().size(); ++i) inner *= x.sizes()[i];
  for (int64_t outer = 0; outer < x.count() / std::max<int64_t>(1, inner * size); ++outer)
    for (int64_t i = 0; i < inner; ++i) f(outer, i, inner);
}

void check_sort(DType dtype, Layout layout, size_t axis, bool descending, int64_t k) {
  const std::vector<int64_t> sizes = {3, 53, 4};
  TestTensor x = sample(dtype, sizes, layout);
  std::vector<int64_t> kept = sizes;
  const int64_t n = sizes[axis];
  kept[axis] = std::min(k, n);
  TestTensor values(dtype, kept, layout), indices(DType::i64, kept, layout);
  for (bool backwards : {false, true})
    step_testing::run_step({k < n ? "top_k" : "sort",
                            {x.arg()},
                            {values.arg(), indices.arg()},
                            {static_cast<int64_t>(axis), descending},
                            {},
                            nullptr},
                           IsaLevel::kPortable, backwards);
  for_each_line(x, axis, [&](int64_t outer, int64_t inside, int64_t inner) {
    const auto at = [&](int64_t i) { return x.get((outer * n + i) * inner + inside); };
    std::vector<int64_t> order(static_cast<size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return descending ? below(at(b), at(a)) : below(at(a), at(b));
    });
    for (int64_t i = 0; i < kept[axis]; ++i) {
      const int64_t out = (outer * kept[axis] + i) * inner + inside;
      ASSERT_EQ(indices.get(out), static_cast<double>(order[static_cast<size_t>(i)])) << dtype_name(dtype);
      const double expected = at(order[static_cast<size_t>(i)]);
      ASSERT_TRUE(step_testing::agrees(values.get(out), expected, 0));
    }
  });
}

TEST(Order, SortAndTopK) {
  for (DType dtype : kDTypes)
    for (Layout layout : kLayouts)
      for (size_t axis : {0u, 1u, 2u})
        for (bool descending : {false, true})
          for (int64_t k : {int64_t{2}, int64_t{1000}}) check_sort(dtype, layout, axis, descending, k);
}

TEST(Order, LongLines) {
  for (int64_t n : {1, 7, 8, 9, 16, 17, 1000, 5000}) {
    TestTensor x = sample(DType::i32, {n}, Layout::kDense), values(DType::i32, {n}), indices(DType::i64, {n});
    step_testing::run_step({"sort", {x.arg()}, {values.arg(), indices.arg()}, {-1, 0}, {}, nullptr},
                           IsaLevel::kPortable);
    for (int64_t i = 1; i < n; ++i) {
      ASSERT_LE(values.get(i - 1), values.get(i));
      if (values.get(i - 1) == values.get(i)) {
        ASSERT_LT(indices.get(i - 1), indices.get(i));
      }
    }
  }
}

// Elements that one tile writes in outputs of 0xa5 bytes.
std::vector<bool> written_by(const step_testing::Step& step, TestTensor& indices, int64_t tile) {
  indices.poison();
  const auto poisoned = static_cast<double>(static_cast<int64_t>(0xa5a5a5a5a5a5a5a5));
  BoundCall call = step_testing::bind_step(step, IsaLevel::kPortable);
  EXPECT_LT(tile, call.tiles);
  std::vector<std::max_align_t> scratch(static_cast<size_t>(call.scratch_bytes) / sizeof(std::max_align_t) +
                                        1);
  call.run(call, tile, reinterpret_cast<std::byte*>(scratch.data()));
  std::vector<bool> written;
  for (int64_t i = 0; i < indices.count(); ++i) written.push_back(indices.get(i) != poisoned);
  return written;
}

TEST(Order, TilesWriteLinesOfTheirOwn) {
  const std::vector<int64_t> sizes = {20000, 5};
  TestTensor x = sample(DType::f32, sizes, Layout::kDense), values(DType::f32, sizes),
             indices(DType::i64, sizes);
  const step_testing::Step step{"sort", {x.arg()}, {values.arg(), indices.arg()}, {1, 0}, {}, nullptr};
  const std::vector<bool> first = written_by(step, indices, 0), second = written_by(step, indices, 1);
  EXPECT_TRUE(first[0]);
  for (size_t i = 0; i < first.size(); ++i) ASSERT_FALSE(first[i] && second[i]) << i;
}

TEST(Order, ArgMaxAndMin) {
  for (DType dtype : kDTypes)
    for (Layout layout : kLayouts)
      for (size_t axis : {0u, 1u, 2u})
        for (int64_t last : {0, 1})
          for (bool minimum : {false, true})
            for (bool nan : {false, true}) {
              std::vector<int64_t> sizes = {3, 29, 4}, kept = sizes;
              TestTensor x = sample(dtype, sizes, layout);
              if (!nan) x.fill([](int64_t i) { return static_cast<double>(i * 31 % 17); });
              kept[axis] = 1;
              const int64_t n = sizes[axis];
              TestTensor out(DType::i64, kept, layout);
              step_testing::run_step({minimum ? "argmin" : "argmax",
                                      {x.arg()},
                                      {out.arg()},
                                      {static_cast<int64_t>(axis), last},
                                      {},
                                      nullptr},
                                     IsaLevel::kPortable);
              for_each_line(x, axis, [&](int64_t outer, int64_t inside, int64_t inner) {
                int64_t best = 0;
                for (int64_t i = 1; i < n; ++i) {
                  const double a = x.get((outer * n + i) * inner + inside),
                               b = x.get((outer * n + best) * inner + inside);
                  const bool tie = a == b || (std::isnan(a) && std::isnan(b));
                  const bool wins =
                      std::isnan(a) ? !std::isnan(b) : !std::isnan(b) && (minimum ? a < b : a > b);
                  if (wins || (tie && last)) best = i;
                }
                ASSERT_EQ(out.get(outer * inner + inside), static_cast<double>(best)) << dtype_name(dtype);
              });
            }
}

TEST(Order, RunningSumsAndProducts) {
  for (DType dtype : {DType::f64, DType::f32, DType::f16, DType::i32, DType::i8})
    for (Layout layout : kLayouts)
      for (size_t axis : {0u, 1u})
        for (int64_t exclusive : {0, 1})
          for (int64_t reverse : {0, 1})
            for (bool product : {false, true}) {
              const std::vector<int64_t> sizes = {7, 9};
              const int64_t n = sizes[axis];
              TestTensor x(dtype, sizes, layout), out(dtype, sizes, layout);
              x.fill([&](int64_t i) {
                return product ? (i % 5 == 0 ? 2 : i % 3 ? 1 : -1) : static_cast<double>(i % 7 - 3);
              });
              step_testing::run_step({product ? "cumprod" : "cumsum",
                                      {x.arg()},
                                      {out.arg()},
                                      {static_cast<int64_t>(axis), exclusive, reverse},
                                      {},
                                      nullptr},
                                     IsaLevel::kPortable);
              for_each_line(x, axis, [&](int64_t outer, int64_t inside, int64_t inner) {
                double total = product;
                for (int64_t m = 0; m < n; ++m) {
                  const int64_t i = (outer * n + (reverse ? n - 1 - m : m)) * inner + inside;
                  const double before = total;
                  total = product ? total * x.get(i) : total + x.get(i);
                  ASSERT_EQ(out.get(i), exclusive ? before : total);
                }
              });
            }
}

TEST(Order, RefusesWhatDoesNotFit) {
  TestTensor x(DType::f32, {4, 5}), indices(DType::i64, {4, 5}), wide(DType::f32, {4, 6}),
      wide_indices(DType::i64, {4, 6}), none(DType::f32, {4, 0}), one(DType::i64, {4, 1});
  const auto refuse = step_testing::expect_refused;
  refuse({"sort", {x.arg()}, {x.arg(), x.arg()}, {1, 0}, {}, nullptr}, "dtype of indices");
  refuse({"top_k", {x.arg()}, {wide.arg(), wide_indices.arg()}, {1, 0}, {}, nullptr}, "k too large");
  refuse({"sort", {x.arg()}, {x.arg(), indices.arg()}, {2, 0}, {}, nullptr}, "axis");
  refuse({"argmax", {none.arg()}, {one.arg()}, {1, 0}, {}, nullptr}, "empty line");
  refuse({"argmax", {x.arg()}, {indices.arg()}, {1, 0}, {}, nullptr}, "size of output");
  refuse({"cumsum", {x.arg()}, {wide.arg()}, {1, 0, 0}, {}, nullptr}, "size of output");
  refuse({"cumsum", {x.arg()}, {x.arg()}, {1, 0}, {}, nullptr}, "params");
}

}  // namespace
}  // namespace aicf
