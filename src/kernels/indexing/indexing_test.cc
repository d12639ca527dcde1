// Gathers, scatters, pad and iota against loops over index tuples, in every layout and on wild indices.
#include "kernels/testing/step.h"

namespace aicf {
namespace {

using step_testing::Layout;
using step_testing::TestTensor;
using Index = std::vector<int64_t>;

Index unflatten(int64_t i, const std::vector<int64_t>& sizes) {
  Index index(sizes.size());
  for (size_t axis = sizes.size(); axis-- > 0;) index[axis] = i % sizes[axis], i /= sizes[axis];
  return index;
}
int64_t flatten(const Index& index, const std::vector<int64_t>& sizes) {
  int64_t at = 0;
  for (size_t axis = 0; axis < sizes.size(); ++axis) at = at * sizes[axis] + index[axis];
  return at;
}
Index joined(Index a, const Index& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
Index part(const Index& a, size_t first, size_t last) {
  return {a.begin() + static_cast<std::ptrdiff_t>(first), a.begin() + static_cast<std::ptrdiff_t>(last)};
}

// Indices over [-bound, bound).
TestTensor indices_of(DType dtype, const std::vector<int64_t>& sizes, int64_t bound,
                      Layout layout = Layout::kDense) {
  TestTensor t(dtype, sizes, layout);
  return t.fill([=](int64_t i) { return static_cast<double>((i * 7919 + 3) % (2 * bound) - bound); });
}
int64_t normal(double index, int64_t bound) { return static_cast<int64_t>(index) + (index < 0 ? bound : 0); }

const Layout kLayouts[] = {Layout::kDense, Layout::kTransposed, Layout::kReversed, Layout::kGaps};
const DType kDTypes[] = {DType::f32, DType::f64, DType::f16, DType::i8, DType::boolean};

void run_both_ways(const step_testing::Step& step, TestTensor& out,
                   const std::function<double(int64_t)>& expected) {
  for (bool backwards : {false, true}) {
    out.poison();
    step_testing::run_step(step, IsaLevel::kPortable, backwards);
    for (int64_t i = 0; i < out.count(); ++i)
      ASSERT_EQ(out.get(i), expected(i)) << step.kernel << " element " << i;
  }
}

TEST(Indexing, Gather) {
  for (DType dtype : kDTypes)
    for (Layout layout : kLayouts)
      for (int axis : {0, 1, -1}) {
        const std::vector<int64_t> sizes = {5, 4, 6}, shape = {3, 2};
        const size_t at = static_cast<size_t>((axis + 3) % 3);
        TestTensor x(dtype, sizes, layout),
            indices = indices_of(dtype == DType::f64 ? DType::i32 : DType::i64, shape, sizes[at], layout);
        x.randomize(1);
        const Index prefix = part(sizes, 0, at), suffix = part(sizes, at + 1, 3);
        TestTensor out(dtype, joined(joined(prefix, shape), suffix), layout);
        run_both_ways({"gather", {x.arg(), indices.arg()}, {out.arg()}, {axis}, {}, nullptr}, out,
                      [&](int64_t i) {
                        const Index o = unflatten(i, out.sizes());
                        Index source = part(o, 0, at);
                        source.push_back(normal(indices.get(flatten(part(o, at, at + 2), shape)), sizes[at]));
                        return x.get(flatten(joined(source, part(o, at + 2, o.size())), sizes));
                      });
      }
}

TEST(Indexing, GatherElements) {
  for (Layout layout : kLayouts)
    for (int axis : {0, 1, 2}) {
      const std::vector<int64_t> sizes = {5, 4, 6}, shape = {3, 4, 5};
      TestTensor x(DType::f32, sizes, layout),
          indices = indices_of(DType::i64, shape, sizes[static_cast<size_t>(axis)], layout);
      TestTensor out(DType::f32, shape, layout);
      x.randomize(1);
      run_both_ways({"gather_elements", {x.arg(), indices.arg()}, {out.arg()}, {axis}, {}, nullptr}, out,
                    [&](int64_t i) {
                      Index o = unflatten(i, shape);
                      o[static_cast<size_t>(axis)] = normal(indices.get(i), sizes[static_cast<size_t>(axis)]);
                      return x.get(flatten(o, sizes));
                    });
    }
}

TEST(Indexing, GatherNd) {
  for (Layout layout : kLayouts)
    for (int64_t batch : {0, 1}) {
      const std::vector<int64_t> sizes = {4, 4, 4, 3}, shape = {4, 5, 2};
      TestTensor x(DType::i32, sizes, layout), indices = indices_of(DType::i32, shape, 4, layout);
      x.fill([](int64_t i) { return static_cast<double>(i); });
      const size_t rest = static_cast<size_t>(batch) + 2;
      TestTensor out(DType::i32, joined({4, 5}, part(sizes, rest, 4)), layout);
      run_both_ways({"gather_nd", {x.arg(), indices.arg()}, {out.arg()}, {batch}, {}, nullptr}, out,
                    [&](int64_t i) {
                      const Index o = unflatten(i, out.sizes());
                      Index source = part(o, 0, static_cast<size_t>(batch));
                      for (int64_t c = 0; c < 2; ++c)
                        source.push_back(normal(indices.get(flatten({o[0], o[1], c}, shape)), 4));
                      return x.get(flatten(joined(source, part(o, 2, o.size())), sizes));
                    });
    }
}

double combined(int64_t reduction, double a, double b) {
  switch (reduction) {
    case 0:
      return b;
    case 1:
      return a + b;
    case 2:
      return a * b;
    case 3:
      return std::max(a, b);
    default:
      return std::min(a, b);
  }
}

TEST(Indexing, ScatterElements) {
  for (DType dtype : {DType::f32, DType::i64, DType::f16, DType::i8})
    for (Layout layout : kLayouts)
      for (int axis : {0, 1, 2})
        for (int64_t reduction = 0; reduction < 5; ++reduction) {
          const std::vector<int64_t> sizes = {5, 4, 6}, shape = {3, 4, 5};
          const size_t at = static_cast<size_t>(axis);
          TestTensor x(dtype, sizes, layout), updates(dtype, shape, layout), out(dtype, sizes, layout);
          TestTensor indices = indices_of(DType::i64, shape, sizes[at], layout);
          x.fill([](int64_t i) { return static_cast<double>(i % 5 - 2); });
          updates.fill([](int64_t i) { return static_cast<double>(i % 3 - 1); });
          std::vector<double> expected;
          for (int64_t i = 0; i < x.count(); ++i) expected.push_back(x.get(i));
          for (int64_t i = 0; i < updates.count(); ++i) {
            Index o = unflatten(i, shape);
            o[at] = normal(indices.get(i), sizes[at]);
            double& cell = expected[static_cast<size_t>(flatten(o, sizes))];
            cell = combined(reduction, cell, updates.get(i));
          }
          run_both_ways({"scatter_elements",
                         {x.arg(), indices.arg(), updates.arg()},
                         {out.arg()},
                         {axis, reduction},
                         {},
                         nullptr},
                        out, [&](int64_t i) { return expected[static_cast<size_t>(i)]; });
        }
}

TEST(Indexing, ScatterNd) {
  for (Layout layout : kLayouts)
    for (int64_t reduction = 0; reduction < 5; ++reduction) {
      const std::vector<int64_t> sizes = {4, 4, 3}, shape = {6, 2};
      TestTensor x(DType::f32, sizes, layout), updates(DType::f32, {6, 3}, layout),
          out(DType::f32, sizes, layout);
      TestTensor indices = indices_of(DType::i64, shape, 4, layout);
      x.fill([](int64_t i) { return static_cast<double>(i % 5 - 2); });
      updates.fill([](int64_t i) { return static_cast<double>(i % 3 - 1); });
      std::vector<double> expected;
      for (int64_t i = 0; i < x.count(); ++i) expected.push_back(x.get(i));
      for (int64_t i = 0; i < updates.count(); ++i) {
        const Index place = {normal(indices.get(i / 3 * 2), 4), normal(indices.get(i / 3 * 2 + 1), 4), i % 3};
        double& cell = expected[static_cast<size_t>(flatten(place, sizes))];
        cell = combined(reduction, cell, updates.get(i));
      }
      run_both_ways(
          {"scatter_nd", {x.arg(), indices.arg(), updates.arg()}, {out.arg()}, {reduction}, {}, nullptr}, out,
          [&](int64_t i) { return expected[static_cast<size_t>(i)]; });
    }
}

// 2048 + 1 and 3 * 1025 are no numbers of f16: rounded after each update, 2048 and 9232 came out.
TEST(Indexing, ScattersOfHalvesRoundOnce) {
  for (const bool in_block : {false, true})
    for (const bool nd : {false, true})
      for (const int64_t reduction : {1, 2}) {
        const std::vector<int64_t> sizes = {3, 4}, shape = {2, 4};
        TestTensor x(DType::f16, sizes), updates(DType::f16, shape), out(DType::f16, sizes);
        TestTensor indices(DType::i64, nd ? std::vector<int64_t>{2, 1} : shape);
        x.fill([&](int64_t) { return reduction == 1 ? 2048 : 3; });
        updates.fill([&](int64_t i) { return reduction == 1 ? 1 : i < 4 ? 1025 : 3; });
        indices.fill([](int64_t) { return 1; });
        TensorArg at = indices.arg();
        if (in_block && !nd) at.strides[1] = 0;
        const std::vector<int64_t> params =
            nd ? std::vector<int64_t>{reduction} : std::vector<int64_t>{0, reduction};
        run_both_ways({nd ? "scatter_nd" : "scatter_elements",
                       {x.arg(), at, updates.arg()},
                       {out.arg()},
                       params,
                       {},
                       nullptr},
                      out, [&](int64_t i) {
                        if (i / 4 != 1) return reduction == 1 ? 2048.0 : 3.0;
                        return reduction == 1 ? 2050.0 : 9224.0;
                      });
      }
}

TEST(Indexing, ScattersOfNoUpdatesCopy) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    TestTensor x(dtype, {3, 4}), updates(dtype, {0, 4}), out(dtype, {3, 4}), indices(DType::i64, {0, 1});
    x.fill([](int64_t i) { return static_cast<double>(i); });
    run_both_ways({"scatter_nd", {x.arg(), indices.arg(), updates.arg()}, {out.arg()}, {1}, {}, nullptr}, out,
                  [](int64_t i) { return static_cast<double>(i); });
  }
}

TEST(Indexing, IndexOutOfRangeIsReportedAndTouchesNothing) {
  for (int64_t wild : {4, -5, 1 << 30}) {
    TestTensor x(DType::f32, {4}), indices(DType::i64, {3}), out(DType::f32, {3});
    x.randomize(1), indices.fill([&](int64_t i) { return i == 1 ? static_cast<double>(wild) : 0; });
    BoundCall call = step_testing::bind_step(
        {"gather", {x.arg(), indices.arg()}, {out.arg()}, {0}, {}, nullptr}, IsaLevel::kPortable);
    CallError error;
    call.error = &error;
    out.fill([](int64_t) { return -9; });
    for (int64_t t = 0; t < call.tiles; ++t) call.run(call, t, nullptr);
    EXPECT_EQ(error.raised, 1);
    EXPECT_EQ(error.value, wild);
    EXPECT_EQ(error.bound, 4);
    EXPECT_EQ(out.get(1), -9);
    EXPECT_EQ(out.get(2), x.get(0));
  }
}

TEST(Indexing, Pad) {
  for (Layout layout : kLayouts)
    for (int64_t mode = 0; mode < 4; ++mode)
      for (const Index& pads :
           {Index{0, 0, 0, 0}, Index{2, 1, 1, 3}, Index{5, 9, 7, 8}, Index{-1, 2, 1, -2}}) {
        const std::vector<int64_t> sizes = {3, 4};
        TestTensor x(DType::f32, sizes, layout), value(DType::f32, {}),
            out(DType::f32, {3 + pads[0] + pads[2], 4 + pads[1] + pads[3]}, layout);
        x.randomize(1), value.randomize(2);
        Index params = {mode};
        params.insert(params.end(), pads.begin(), pads.end());
        run_both_ways({"pad", {x.arg(), value.arg()}, {out.arg()}, params, {}, nullptr}, out, [&](int64_t i) {
          Index o = unflatten(i, out.sizes());
          for (size_t axis = 0; axis < 2; ++axis) {
            const int64_t n = sizes[axis];
            int64_t& at = o[axis];
            at -= pads[axis];
            if (mode == 0 && (at < 0 || at >= n)) return value.get(0);
            if (mode == 1) at = std::clamp<int64_t>(at, 0, n - 1);
            while (mode == 2 && (at < 0 || at >= n)) at = at < 0 ? -at : 2 * (n - 1) - at;
            while (mode == 3 && (at < 0 || at >= n)) at += at < 0 ? n : -n;
          }
          return x.get(flatten(o, sizes));
        });
      }
}

// Padding whose sum fits the sizes but whose sides do not fit 64 bits.
TEST(Indexing, PadOutOfRangeIsRefused) {
  TestTensor x(DType::f32, {3}), out(DType::f32, {3});
  for (const int64_t low : {INT64_MIN, INT64_MIN + 1, INT64_MAX, int64_t{1} << 60})
    for (int64_t mode = 0; mode < 4; ++mode) {
      const int64_t high = low == INT64_MIN ? INT64_MAX : -low;
      BoundCall call;
      call.inputs = {x.arg()};
      call.outputs = {out.arg()};
      call.params = {mode, low, high};
      EXPECT_THROW(find_kernel("pad")->prepare(call), UserError) << low;
    }
}

TEST(Indexing, Iota) {
  for (DType dtype : {DType::f32, DType::i64, DType::u8, DType::bf16})
    for (int axis : {0, 1, -1}) {
      TestTensor out(dtype, {4, 5, 6}, Layout::kTransposed);
      run_both_ways({"iota", {}, {out.arg()}, {axis}, {}, nullptr}, out, [&](int64_t i) {
        return static_cast<double>(unflatten(i, out.sizes())[static_cast<size_t>((axis + 3) % 3)]);
      });
    }
}

TEST(Indexing, SizeOf) {
  for (DType dtype : {DType::f32, DType::f64, DType::i64, DType::i32, DType::u8, DType::f16}) {
    TestTensor out(dtype, {});
    run_both_ways({"size_of", {}, {out.arg()}, {96}, {}, nullptr}, out, [](int64_t) { return 96.0; });
  }
}

TEST(Indexing, EmptyTensors) {
  TestTensor x(DType::f32, {0, 3}), indices(DType::i64, {0}), out(DType::f32, {0, 3}),
      rows(DType::f32, {2, 0});
  step_testing::run_step({"gather", {x.arg(), indices.arg()}, {out.arg()}, {0}, {}, nullptr},
                         IsaLevel::kPortable);
  TestTensor two(DType::i64, {2}), columns(DType::f32, {5, 0});
  two.fill([](int64_t) { return 0; });
  step_testing::run_step({"gather", {columns.arg(), two.arg()}, {rows.arg()}, {0}, {}, nullptr},
                         IsaLevel::kPortable);
  step_testing::run_step({"iota", {}, {out.arg()}, {0}, {}, nullptr}, IsaLevel::kPortable);
}

TEST(Indexing, RefusesWhatDoesNotFit) {
  TestTensor x(DType::f32, {4, 5}), indices(DType::i64, {3}), out(DType::f32, {3, 5}),
      half(DType::f16, {3, 5}), bad(DType::f32, {3}), updates(DType::f32, {3, 5}), square(DType::i64, {3, 5});
  const auto refuse = step_testing::expect_refused;
  refuse({"gather", {x.arg(), indices.arg()}, {bad.arg()}, {0}, {}, nullptr}, "rank");
  refuse({"gather", {x.arg(), indices.arg()}, {half.arg()}, {0}, {}, nullptr}, "dtype");
  refuse({"gather", {x.arg(), indices.arg()}, {out.arg()}, {1}, {}, nullptr}, "sizes");
  refuse({"gather", {x.arg(), indices.arg()}, {out.arg()}, {2}, {}, nullptr}, "axis");
  refuse({"gather", {x.arg(), x.arg()}, {out.arg()}, {0}, {}, nullptr}, "index dtype");
  refuse({"gather", {x.arg()}, {out.arg()}, {0}, {}, nullptr}, "inputs");
  refuse({"gather_nd", {x.arg(), indices.arg()}, {out.arg()}, {0}, {}, nullptr}, "components");
  refuse({"gather_elements", {x.arg(), square.arg()}, {bad.arg()}, {0}, {}, nullptr}, "rank");
  refuse({"scatter_elements", {x.arg(), square.arg(), updates.arg()}, {out.arg()}, {0, 0}, {}, nullptr},
         "sizes");
  refuse({"scatter_elements", {x.arg(), square.arg(), updates.arg()}, {x.arg()}, {0, 5}, {}, nullptr},
         "reduction");
  refuse({"scatter_nd", {x.arg(), indices.arg(), updates.arg()}, {x.arg()}, {0}, {}, nullptr}, "components");
  refuse({"pad", {x.arg()}, {out.arg()}, {0, 0, 0, 0, 0}, {}, nullptr}, "sizes");
  refuse({"pad", {x.arg()}, {x.arg()}, {7, 0, 0, 0, 0}, {}, nullptr}, "mode");
  refuse({"iota", {}, {out.arg()}, {2}, {}, nullptr}, "axis");
  refuse({"size_of", {}, {bad.arg()}, {2}, {}, nullptr}, "rank");
}

}  // namespace
}  // namespace aicf
