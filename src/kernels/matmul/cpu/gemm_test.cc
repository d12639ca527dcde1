// Micro-kernels of both tile shapes: every number of rows and columns, and panels as wide as the last columns
// need.
#include "kernels/matmul/cpu/gemm.h"

#include "kernels/testing/step.h"

namespace aicf {
namespace {

using namespace step_testing;

constexpr float kUntouched = -77.0f;

struct Product {
  const GemmIsa& gemm;
  const TestTensor &x, &y;
  int64_t rows, columns, depth;

  // A block over panels packed for it; `narrow`: the last one is no wider than packed_panel_width says.
  std::vector<float> run(bool narrow, bool padded, bool first, int64_t stride) const {
    const int64_t nr = gemm.nr_f32, panels = ceil_div(columns, nr), last = columns - 1;
    const int64_t width = narrow ? packed_panel_width(nr, last, columns) : nr;
    // No byte more than the last panel is promised to have.
    std::vector<float> packed(static_cast<size_t>(((panels - 1) * nr + width) * depth));
    GemmPack<float> pack = {};
    pack.from = static_cast<const float*>(y.arg().data);
    pack.k_stride = y.sizes()[1];
    pack.n_stride = 1;
    pack.depth = depth;
    pack.n = columns;
    pack.to = packed.data();
    pack.panel_stride = nr * depth;
    pack.last = narrow ? width : 0;
    run_pack(gemm, pack);
    std::vector<float> c(static_cast<size_t>(rows * stride), first ? kUntouched : 0.5f);
    GemmBlock<float> block = {};
    block.a = static_cast<const float*>(x.arg().data);
    block.lda = x.sizes()[1];
    block.b = packed.data();
    block.ldb = nr;
    block.panel_stride = nr * depth;
    if (narrow) {
      block.last_b = packed.data() + (panels - 1) * nr * depth;
      block.last_ldb = width;
    }
    block.c = c.data();
    block.ldc = stride;
    block.m = block.tile_rows = rows;
    block.n = columns;
    block.depth = depth;
    block.first = first;
    block.padded = padded;
    run_block(gemm, block);
    return c;
  }
};

void expect_gemm(const Product& product, const TestTensor& sums, IsaLevel isa) {
  const int64_t padding = product.gemm.nr_f32, stride = product.columns + padding;
  const auto text = [&] {
    return std::string(isa_name(isa)) + " " + std::to_string(product.gemm.nr_f32) + " wide, " +
           std::to_string(product.rows) + " x " + std::to_string(product.columns);
  };
  for (const bool narrow : {false, true}) {
    for (const bool padded : {false, true}) {
      for (const bool first : {false, true}) {
        const std::vector<float> c = product.run(narrow, padded, first, stride);
        for (int64_t i = 0; i < product.rows * stride; ++i) {
          const int64_t row = i / stride, column = i % stride;
          const float actual = c[static_cast<size_t>(i)];
          if (column < product.columns) {
            const auto sum = static_cast<float>(sums.get(row * sums.sizes()[1] + column));
            ASSERT_EQ(actual, first ? sum : 0.5f + sum) << text() << ", row " << row << " column " << column;
          } else if (!padded) {
            ASSERT_EQ(actual, first ? kUntouched : 0.5f) << text() << " wrote behind row " << row;
          }
        }
      }
    }
  }
}

TEST(Gemm, AnyRowsAndColumnsGiveTheSameBits) {
  constexpr int64_t kRows = 13, kColumns = 80, kDepth = 37;
  TestTensor x(DType::f32, {kRows, kDepth}), y(DType::f32, {kDepth, kColumns});
  x.randomize(1);
  y.randomize(2);
  for (const IsaLevel isa : isa_levels()) {
    TestTensor sums(DType::f32, {kRows, kColumns});
    for (int64_t i = 0; i < sums.count(); ++i) {
      double sum = 0, magnitude = 0;
      TestTensor row(DType::f32, {1, kDepth}), column(DType::f32, {kDepth, 1});
      for (int64_t k = 0; k < kDepth; ++k) {
        row.set(k, x.get(i / kColumns * kDepth + k));
        column.set(k, y.get(k * kColumns + i % kColumns));
        sum += row.get(k) * column.get(k);
        magnitude += std::abs(row.get(k) * column.get(k));
      }
      const Product alone{gemm_isa(isa), row, column, 1, 1, kDepth};
      sums.set(i, alone.run(false, false, true, 1)[0]);
      ASSERT_NEAR(sums.get(i), sum, magnitude * 4e-6);
    }
    for (const GemmIsa* gemm : {&gemm_isa(isa), &wide_gemm_isa(isa)})
      for (int64_t rows = 1; rows <= kRows; ++rows)
        for (int64_t columns = 1; columns <= kColumns; ++columns)
          expect_gemm({*gemm, x, y, rows, columns, kDepth}, sums, isa);
  }
}

// Packing from steps side by side, as of a transposed matrix, fills narrow panels as packing from rows does.
TEST(Gemm, NarrowPanelsOfAnyLayout) {
  constexpr int64_t kDepth = 21;
  for (int64_t columns = 1; columns <= 80; ++columns) {
    TestTensor y(DType::f32, {kDepth, columns});
    y.randomize(3);
    for (const IsaLevel isa : isa_levels()) {
      for (const GemmIsa* gemm : {&gemm_isa(isa), &wide_gemm_isa(isa)}) {
        const int64_t nr = gemm->nr_f32;
        const auto pack_from = [&](const TestTensor& from, int64_t k_stride, int64_t n_stride) {
          GemmPack<float> pack = {};
          pack.last = packed_panel_width(nr, columns - 1, columns);
          std::vector<float> to(static_cast<size_t>(((columns - 1) / nr * nr + pack.last) * kDepth),
                                kUntouched);
          pack.from = static_cast<const float*>(from.arg().data);
          pack.k_stride = k_stride;
          pack.n_stride = n_stride;
          pack.depth = kDepth;
          pack.n = columns;
          pack.to = to.data();
          pack.panel_stride = nr * kDepth;
          run_pack(*gemm, pack);
          return to;
        };
        TestTensor turned(DType::f32, {columns, kDepth});
        turned.fill([&](int64_t i) { return y.get(i % kDepth * columns + i / kDepth); });
        const std::vector<float> rows = pack_from(y, columns, 1);
        ASSERT_EQ(rows, pack_from(turned, 1, kDepth)) << isa_name(isa) << " " << columns << " columns";
        ASSERT_EQ(std::count(rows.begin(), rows.end(), kUntouched), 0);
      }
    }
  }
}

}  // namespace
}  // namespace aicf
