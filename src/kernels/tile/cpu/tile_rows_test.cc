// Programs over rectangles in cache, as epilogues run them.
#include "kernels/tile/cpu/tile_rows.h"

#include "kernels/testing/step.h"
#include "kernels/tile/testing/hand_written.h"

namespace aicf {
namespace {

using namespace tile_testing;
using step_testing::isa_levels;
using step_testing::Layout;
using step_testing::TestTensor;

TEST(Tile, RowsOfARectangle) {
  const TileProgram program = chain();
  for (IsaLevel isa : isa_levels())
    for (auto [rows, columns] : {std::pair<int64_t, int64_t>{1, 1}, {6, 16}, {64, 48}, {3, 1100}, {600, 1}}) {
      for (Layout layout : {Layout::kDense, Layout::kGaps}) {
        TestTensor x(DType::f32, {rows, columns}), y(DType::f32, {columns}),
            z(DType::f32, {rows, columns}, layout);
        x.randomize(1), y.randomize(2);
        std::vector<std::byte> scratch(static_cast<size_t>(tile_rows_scratch_bytes(program)));
        const TileWindow windows[] = {{x.arg().data, x.arg().strides[0], 1},
                                      {y.arg().data, 0, 1},
                                      {z.arg().data, z.arg().strides[0], z.arg().strides[1]}};
        run_tile_rows(program, isa, rows, columns, windows, scratch.data());
        for (int64_t i = 0; i < x.count(); ++i) {
          const float a = static_cast<float>(x.get(i)), b = static_cast<float>(y.get(i % columns));
          ASSERT_EQ(static_cast<float>(z.get(i)), (a - b) * a + 2);
        }
      }
    }
}

// Two outputs of which the first is an operand's memory: what is read is what was there before.
TEST(Tile, RowsWriteOverTheirOperands) {
  TileProgram program{{DType::f32, DType::f32},
                      {DType::f32, DType::f32},
                      {kF, kF, kF},
                      {},
                      {{load(0, 0), load(1, 1), op(TileOp::add, 2, 0, 1), store(2, 2), store(3, 1)}}};
  constexpr int64_t kRows = 3, kColumns = 600;
  for (IsaLevel isa : isa_levels()) {
    TestTensor x(DType::f32, {kRows, kColumns}), y(DType::f32, {kRows, kColumns}),
        old(DType::f32, {kRows, kColumns}), copy(DType::f32, {kRows, kColumns});
    x.randomize(1), y.randomize(2);
    old.fill([&](int64_t i) { return y.get(i); });
    std::vector<std::byte> scratch(static_cast<size_t>(tile_rows_scratch_bytes(program)));
    const TileWindow windows[] = {{x.arg().data, kColumns, 1},
                                  {y.arg().data, kColumns, 1},
                                  {y.arg().data, kColumns, 1},
                                  {copy.arg().data, kColumns, 1}};
    run_tile_rows(program, isa, kRows, kColumns, windows, scratch.data());
    for (int64_t i = 0; i < x.count(); ++i) {
      ASSERT_EQ(copy.get(i), old.get(i)) << i;
      ASSERT_EQ(static_cast<float>(y.get(i)), static_cast<float>(x.get(i)) + static_cast<float>(old.get(i)))
          << i;
    }
  }
}

}  // namespace
}  // namespace aicf
