// Conversions of tile programs: floats to integers, and to half types and back.
#include <algorithm>
#include <cmath>
#include <random>

#include "kernels/testing/step.h"
#include "kernels/tile/testing/one_op.h"

namespace aicf {
namespace {

using step_testing::isa_levels;
using step_testing::TestTensor;
using tile_testing::memory_of;
using tile_testing::nasty_values;
using tile_testing::one_op;

TEST(TileConvert, FloatToIntegerSaturates) {
  const std::vector<double> xs = nasty_values();
  const int64_t n = static_cast<int64_t>(xs.size());
  struct Row {
    TileOp op;
    double low, high;
  };
  const Row rows[] = {{TileOp::to_i32, -2147483648.0, 2147483647.0},
                      {TileOp::to_i64, -0x1p63, 0x1p63},
                      {TileOp::clamp_i16, -32768, 32767},
                      {TileOp::clamp_i8, -128, 127},
                      {TileOp::clamp_u8, 0, 255}};
  for (IsaLevel isa : isa_levels())
    for (TileType type : {TileType::f32, TileType::f64})
      for (const Row& row : rows) {
        const TileProgram program = one_op(row.op, type);
        TestTensor x(memory_of(type), {n}), y(program.outputs[0], {n});
        x.fill([&](int64_t i) { return xs[static_cast<size_t>(i)]; });
        step_testing::run_step({"tile", {x.arg()}, {y.arg()}, {1}, {}, &program}, isa);
        for (int64_t i = 0; i < n; ++i) {
          const double v = x.get(i);
          const double expected = std::isnan(v) ? 0 : std::trunc(std::min(std::max(v, row.low), row.high));
          EXPECT_EQ(y.get(i), expected) << tile_op_info(row.op).name << " of " << v;
        }
      }
}

TEST(TileConvert, NarrowFloatsRoundOnceToEven) {
  std::vector<double> xs = nasty_values();
  std::mt19937_64 engine(3);
  for (int bits = 0; bits < 65536; bits += 7) {
    const double v = f16_to_f32(static_cast<uint16_t>(bits));
    xs.push_back(v), xs.push_back(v * (1 + 0x1p-11)), xs.push_back(v * (1 + 0x1p-11 + 0x1p-40)),
        xs.push_back(v * (1 + 0x1p-8));
  }
  const int64_t n = static_cast<int64_t>(xs.size());
  for (IsaLevel isa : isa_levels())
    for (DType from : {DType::f32, DType::f64})
      for (DType to : {DType::f16, DType::bf16}) {
        TestTensor x(from, {n}), y(to, {n}), back(DType::f32, {n});
        x.fill([&](int64_t i) { return xs[static_cast<size_t>(i)]; });
        const TileType type = tile_register_type(from);
        TileInstr load{TileOp::load, type, 0}, store{TileOp::store, type, -1, 0};
        load.operand = 0, store.operand = 1;
        TileProgram program{{from}, {to}, {{type}}, {}, {{load, store}}};
        step_testing::run_step({"tile", {x.arg()}, {y.arg()}, {1}, {}, &program}, isa);
        load.type = store.type = TileType::f32;
        const TileProgram widen{{to}, {DType::f32}, {{TileType::f32}}, {}, {{load, store}}};
        step_testing::run_step({"tile", {y.arg()}, {back.arg()}, {1}, {}, &widen}, isa);
        for (int64_t i = 0; i < n; ++i) {
          const double v = x.get(i);
          const uint16_t expected = to == DType::f16 ? f64_to_f16(v) : f64_to_bf16(v);
          if (!std::isnan(v)) {
            ASSERT_EQ(y.bits(i), expected) << v << isa_name(isa);
          }
          ASSERT_TRUE(step_testing::agrees(back.get(i), y.get(i), 0)) << v;
        }
      }
}

}  // namespace
}  // namespace aicf
