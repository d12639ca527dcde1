// Products on the CPU beside sums in f64: types, layouts, batches, packed weights, refusals.
#include <limits>

#include "kernels/matmul/testing/packed_y.h"

namespace aicf {
namespace {

using namespace step_testing;
using matmul_testing::pack_y;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

const char* kernel_for(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "matmul_f32";
    case DType::f64:
      return "matmul_f64";
    case DType::f16:
    case DType::bf16:
      return "matmul_half";
    default:
      return "matmul_int";
  }
}

std::vector<int64_t> shape(const std::vector<int64_t>& batch, int64_t rows, int64_t columns) {
  std::vector<int64_t> sizes = batch;
  sizes.push_back(rows);
  sizes.push_back(columns);
  return sizes;
}

// Row-major batch index of the result to that of an operand whose batch axes may be 1.
int64_t operand_batch(int64_t index, const std::vector<int64_t>& batch, const std::vector<int64_t>& sizes) {
  int64_t at = 0, step = 1;
  for (size_t i = batch.size(); i-- > 0;) {
    const int64_t size = sizes[i];
    if (size != 1) at += index % batch[i] * step;
    step *= size;
    index /= batch[i];
  }
  return at;
}

void expect_product(const TestTensor& x, const TestTensor& y, const TestTensor& out,
                    const std::string& what) {
  const auto& sizes = out.sizes();
  const int64_t m = sizes[sizes.size() - 2], n = sizes.back(), k = x.sizes().back();
  const std::vector<int64_t> batch(sizes.begin(), sizes.end() - 2);
  const double unit = epsilon_of(out.arg().dtype);
  for (int64_t i = 0; i < out.count(); ++i) {
    const int64_t b = i / (m * n), row = i / n % m, column = i % n;
    const int64_t xb = operand_batch(b, batch, x.sizes()) * m * k,
                  yb = operand_batch(b, batch, y.sizes()) * k * n;
    double sum = 0, magnitude = 0;
    for (int64_t j = 0; j < k; ++j) {
      const double product = x.get(xb + row * k + j) * y.get(yb + j * n + column);
      sum += product;
      magnitude += std::abs(product);
    }
    const double bound = std::abs(sum) * unit + magnitude * (is_float(out.arg().dtype) ? 4e-6 : 0) + 1e-37;
    const double tight = out.arg().dtype == DType::f64 ? magnitude * 1e-13 + 1e-300 : bound;
    ASSERT_TRUE(agrees(out.get(i), sum, tight))
        << what << " element " << i << ": " << out.get(i) << " for " << sum;
  }
}

TEST(Matmul, EveryTypeAndLayout) {
  const std::vector<std::vector<int64_t>> shapes = {{1, 1, 1},    {3, 5, 7},     {17, 33, 49}, {8, 48, 256},
                                                    {9, 97, 300}, {65, 200, 31}, {2, 1, 513}};
  for (DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i64, DType::i32, DType::i16,
                      DType::i8, DType::u8}) {
    for (const auto& mnk : shapes) {
      for (Layout layout : {Layout::kDense, Layout::kTransposed, Layout::kReversed, Layout::kGaps}) {
        // i8 and u8 sums of small values up to 513 terms must stay exact in the f64 reference modulo their
        // range.
        const int64_t k = dtype_bytes(dtype) == 1 ? std::min<int64_t>(mnk[2], 7) : mnk[2];
        TestTensor x(dtype, {mnk[0], k}, layout), y(dtype, {k, mnk[1]}, layout);
        TestTensor out(dtype, {mnk[0], mnk[1]}, layout);
        x.randomize(1);
        y.randomize(2);
        for (IsaLevel isa : isa_levels()) {
          out.poison();
          run_step({kernel_for(dtype), {x.arg(), y.arg()}, {out.arg()}, {}, {}}, isa);
          expect_product(x, y, out, std::string(dtype_name(dtype)) + " " + std::string(isa_name(isa)));
        }
      }
    }
  }
}

TEST(Matmul, IntegersWrap) {
  TestTensor x(DType::i32, {1, 2}), y(DType::i32, {2, 1}), out(DType::i32, {1, 1});
  x.fill([](int64_t) { return 2147483647.0; });
  y.fill([](int64_t) { return 2147483647.0; });
  run_step({"matmul_int", {x.arg(), y.arg()}, {out.arg()}, {}, {}}, IsaLevel::kPortable);
  EXPECT_EQ(out.get(0), 2.0);  // 2 (2^31 - 1)^2 mod 2^32
  TestTensor a(DType::u8, {1, 3}), b(DType::u8, {3, 1}), c(DType::u8, {1, 1});
  a.fill([](int64_t) { return 255.0; });
  b.fill([](int64_t) { return 255.0; });
  run_step({"matmul_int", {a.arg(), b.arg()}, {c.arg()}, {}, {}}, IsaLevel::kPortable);
  EXPECT_EQ(c.get(0), 3.0);
}

TEST(Matmul, BatchAxesBroadcast) {
  const std::vector<std::vector<int64_t>> xs = {{2, 3}, {2, 1}, {1, 3}, {2, 3}, {1, 1}},
                                          ys = {{2, 3}, {2, 3}, {2, 1}, {1, 1}, {2, 3}};
  for (size_t i = 0; i < xs.size(); ++i) {
    TestTensor x(DType::f32, shape(xs[i], 5, 20)), y(DType::f32, shape(ys[i], 20, 70)),
        out(DType::f32, {2, 3, 5, 70});
    x.randomize(i);
    y.randomize(i + 10);
    for (IsaLevel isa : isa_levels()) {
      out.poison();
      run_step({"matmul_f32", {x.arg(), y.arg()}, {out.arg()}, {}, {}}, isa);
      expect_product(x, y, out, "batch case " + std::to_string(i));
    }
  }
}

TEST(Matmul, EmptySizes) {
  for (IsaLevel isa : isa_levels()) {
    for (const auto& mnk : std::vector<std::vector<int64_t>>{{0, 5, 3}, {5, 0, 3}, {5, 7, 0}, {0, 0, 0}}) {
      TestTensor x(DType::f32, {2, mnk[0], mnk[2]}), y(DType::f32, {1, mnk[2], mnk[1]}),
          out(DType::f32, {2, mnk[0], mnk[1]});
      run_step({"matmul_f32", {x.arg(), y.arg()}, {out.arg()}, {}, {}}, isa);
      for (int64_t i = 0; i < out.count(); ++i) ASSERT_EQ(out.bits(i), 0u);  // the sum of nothing is +0
    }
  }
}

TEST(Matmul, SpecialValuesStayInTheirRowAndColumn) {
  const int64_t m = 19, n = 53, k = 300;
  TestTensor x(DType::f32, {m, k}), y(DType::f32, {k, n}), out(DType::f32, {m, n});
  x.randomize(3);
  y.randomize(4);
  x.set(2 * k + 7, kInf);
  x.set(5 * k + 299, kNan);
  x.set(9 * k, 1e-41);
  y.set(11 * n + 52, -kInf);
  y.set(100 * n, kNan);
  for (IsaLevel isa : isa_levels()) {
    out.poison();
    run_step({"matmul_f32", {x.arg(), y.arg()}, {out.arg()}, {}, {}}, isa);
    expect_product(x, y, out, std::string(isa_name(isa)));
  }
}

// All ways to compute one result: their bits must not differ.
void expect_same_bits(const TestTensor& a, const TestTensor& b, const std::string& what) {
  ASSERT_EQ(a.count(), b.count());
  for (int64_t i = 0; i < a.count(); ++i) ASSERT_EQ(a.bits(i), b.bits(i)) << what << " element " << i;
}

TEST(Matmul, PackedEqualsUnpackedInAnyLayoutAndOrder) {
  for (const auto& mnk : std::vector<std::vector<int64_t>>{
           {1, 384, 384}, {8, 50, 700}, {128, 384, 300}, {33, 1, 257}, {70, 191, 512}}) {
    const int64_t m = mnk[0], n = mnk[1], k = mnk[2];
    TestTensor x(DType::f32, {m, k}), xt(DType::f32, {m, k}, Layout::kTransposed);
    TestTensor y(DType::f32, {k, n}), yt(DType::f32, {k, n}, Layout::kTransposed),
        yr(DType::f32, {k, n}, Layout::kReversed);
    x.randomize(5);
    y.randomize(6);
    xt.fill([&](int64_t i) { return x.get(i); });
    yt.fill([&](int64_t i) { return y.get(i); });
    yr.fill([&](int64_t i) { return y.get(i); });
    for (IsaLevel isa : isa_levels()) {
      const TestTensor packed = pack_y(y, isa), packed_t = pack_y(yt, isa);
      TestTensor first(DType::f32, {m, n});
      run_step({"matmul_f32_packed", {x.arg(), packed.arg()}, {first.arg()}, {k, n}, {}}, isa);
      expect_product(x, y, first, "packed");
      const auto compare = [&](const Step& step, Layout layout, const std::string& what) {
        TestTensor out(DType::f32, {m, n}, layout);
        Step with_output = step;
        with_output.outputs = {out.arg()};
        run_step(with_output, isa, true);
        expect_same_bits(first, out, what);
      };
      compare({"matmul_f32_packed", {x.arg(), packed_t.arg()}, {}, {k, n}, {}}, Layout::kDense,
              "packed from transposed");
      compare({"matmul_f32_packed", {xt.arg(), packed.arg()}, {}, {k, n}, {}}, Layout::kGaps,
              "transposed x, packed");
      compare({"matmul_f32", {x.arg(), y.arg()}, {}, {}, {}}, Layout::kDense, "plain");
      compare({"matmul_f32", {xt.arg(), yt.arg()}, {}, {}, {}}, Layout::kTransposed, "both transposed");
      compare({"matmul_f32", {x.arg(), yr.arg()}, {}, {}, {}}, Layout::kReversed, "reversed");
    }
  }
}

// Last panels of every width, and rows that fill no tile.
TEST(Matmul, PackedTakesAnyRowsAndColumns) {
  const int64_t k = 19;
  for (int64_t n = 1; n <= 80; ++n) {
    const int64_t m = 1 + n % 13;
    TestTensor x(DType::f32, {m, k}), y(DType::f32, {k, n}), plain(DType::f32, {m, n}),
        out(DType::f32, {m, n});
    x.randomize(11);
    y.randomize(12);
    for (IsaLevel isa : isa_levels()) {
      const TestTensor packed = pack_y(y, isa);
      run_step({"matmul_f32", {x.arg(), y.arg()}, {plain.arg()}, {}, {}}, isa);
      out.poison();
      run_step({"matmul_f32_packed", {x.arg(), packed.arg()}, {out.arg()}, {k, n}, {}}, isa, true);
      expect_product(x, y, out, std::to_string(n) + " columns");
      expect_same_bits(plain, out, std::to_string(n) + " columns");
    }
  }
}

TEST(Matmul, RowAloneEqualsRowInBatch) {
  const int64_t m = 128, n = 200, k = 384;
  TestTensor x(DType::f32, {4, m / 4, k}), y(DType::f32, {k, n});
  x.randomize(7);
  y.randomize(8);
  for (IsaLevel isa : isa_levels()) {
    const TestTensor packed = pack_y(y, isa);
    TestTensor all(DType::f32, {4, m / 4, n});
    run_step({"matmul_f32_packed", {x.arg(), packed.arg()}, {all.arg()}, {k, n}, {}}, isa);
    for (int64_t row = 0; row < m; row += 13) {
      TensorArg one = x.arg();
      one.rank = 2;
      one.sizes[0] = 1;
      one.sizes[1] = k;
      one.strides[0] = k;
      one.strides[1] = 1;
      one.data = static_cast<float*>(one.data) + row * k;
      for (const char* kernel : {"matmul_f32_packed", "matmul_f32"}) {
        const bool is_packed = std::string(kernel) == "matmul_f32_packed";
        TestTensor alone(DType::f32, {1, n});
        run_step({kernel,
                  {one, is_packed ? packed.arg() : y.arg()},
                  {alone.arg()},
                  is_packed ? std::vector<int64_t>{k, n} : std::vector<int64_t>{},
                  {}},
                 isa);
        for (int64_t j = 0; j < n; ++j)
          ASSERT_EQ(alone.bits(j), all.bits(row * n + j)) << kernel << " row " << row;
      }
    }
  }
}

TEST(Matmul, RowStrideOfOneCacheSetPeriod) {
  TestTensor x(DType::f32, {40, 1024}), y(DType::f32, {1024, 60}), out(DType::f32, {40, 60});
  x.randomize(9);
  y.randomize(10);
  for (IsaLevel isa : isa_levels()) {
    out.poison();
    run_step({"matmul_f32", {x.arg(), y.arg()}, {out.arg()}, {}, {}}, isa);
    expect_product(x, y, out, std::string(isa_name(isa)));
  }
}

TEST(Matmul, RefusesStepsThatDoNotFit) {
  TestTensor x(DType::f32, {4, 8}), y(DType::f32, {8, 6}), out(DType::f32, {4, 6});
  const Step good = {"matmul_f32", {x.arg(), y.arg()}, {out.arg()}, {}, {}};
  bind_step(good, IsaLevel::kPortable);
  const auto broken = [&](const char* what, const std::function<void(Step&)>& change) {
    Step step = good;
    change(step);
    expect_refused(step, what);
  };
  broken("K", [](Step& s) { s.inputs[0].sizes[1] = 7; });
  broken("M", [](Step& s) { s.inputs[0].sizes[0] = 1; });
  broken("N", [](Step& s) { s.inputs[1].sizes[1] = 5; });
  broken("negative size", [](Step& s) { s.inputs[1].sizes[0] = -8; });
  broken("rank", [](Step& s) { s.inputs[0].rank = 1; });
  broken("rank above the limit", [](Step& s) { s.outputs[0].rank = kMaxRank + 1; });
  broken("dtype", [](Step& s) { s.inputs[1].dtype = DType::f64; });
  broken("output dtype", [](Step& s) { s.outputs[0].dtype = DType::i32; });
  broken("missing input", [](Step& s) { s.inputs.pop_back(); });
  broken("surplus input", [](Step& s) { s.inputs.push_back(s.inputs[0]); });
  broken("no output", [](Step& s) { s.outputs.clear(); });
  broken("params", [](Step& s) { s.params = {1}; });
  TestTensor packed(DType::u8, {packed_matmul_y_bytes(8, 6)});
  const Step packed_step = {"matmul_f32_packed", {x.arg(), packed.arg()}, {out.arg()}, {8, 6}, {}};
  bind_step(packed_step, IsaLevel::kPortable);
  Step small = packed_step;
  small.inputs[1].sizes[0] -= 1;
  expect_refused(small, "packed bytes");
  Step params = packed_step;
  params.params = {8, 600};
  expect_refused(params, "param N");
  params.params = {int64_t{1} << 62, int64_t{1} << 62};
  EXPECT_THROW(bind_step(params, IsaLevel::kPortable), UserError);
}

TEST(Matmul, SelectionPrefersPackedWeights) {
  const Shape x = to_shape(std::vector<int64_t>{2, 8}), out = to_shape(std::vector<int64_t>{2, 4});
  Problem problem{"matmul",
                  {{DType::f32, x}, {DType::u8, to_shape(std::vector<int64_t>{2048})}},
                  {{DType::f32, out}},
                  {Dim(8), Dim(4)},
                  {},
                  false};
  ASSERT_FALSE(candidates(problem).empty());
  EXPECT_EQ(candidates(problem)[0]->name, "matmul_f32_packed");
  problem.params.clear();
  problem.inputs[1] = {DType::f32, to_shape(std::vector<int64_t>{8, 4})};
  ASSERT_EQ(candidates(problem).size(), 1u);
  EXPECT_EQ(candidates(problem)[0]->name, "matmul_f32");
  problem.has_program = true;
  problem.inputs[0].dtype = problem.inputs[1].dtype = DType::i32;
  EXPECT_TRUE(candidates(problem).empty());
}

}  // namespace
}  // namespace aicf
