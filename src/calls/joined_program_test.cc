// A joined program has the bits of its two programs, one after the other.
#include "calls/joined_program.h"

#include <gtest/gtest.h>

#include "kernels/testing/step.h"

namespace aicf {
namespace {

using step_testing::TestTensor;

TileInstr load(int reg, int operand) {
  return {.op = TileOp::load,
          .type = TileType::f32,
          .dst = static_cast<int16_t>(reg),
          .operand = static_cast<int16_t>(operand)};
}
TileInstr store(TileOp op, int operand, int from) {
  return {.op = op,
          .type = TileType::f32,
          .a = static_cast<int16_t>(from),
          .operand = static_cast<int16_t>(operand)};
}
TileInstr op(TileOp name, int dst, int a, int b = -1) {
  return {.op = name,
          .type = TileType::f32,
          .dst = static_cast<int16_t>(dst),
          .a = static_cast<int16_t>(a),
          .b = static_cast<int16_t>(b)};
}
constexpr int kScalar = kTileScalarBase;

// Stores tile + row of a half and twice that; register 1 is written again after the first store.
TileProgram first_program(DType half) {
  return {{DType::f32, half},
          {half, half},
          std::vector<TileRegister>(3, {TileType::f32}),
          {},
          {{load(0, 0), load(1, 1), op(TileOp::add, 1, 0, 1), store(TileOp::store, 2, 1),
            op(TileOp::add, 1, 1, 1), store(TileOp::store, 3, 1)}}};
}

// Stores (y - sum) * x and the sum of a row of x; x is its second input.
TileProgram second_program(DType half) {
  return {{half, half},
          {half, DType::f32},
          std::vector<TileRegister>(3, {TileType::f32}),
          {TileType::f32},
          {{load(0, 1), op(TileOp::reduce_sum, kScalar, 0)},
           {load(0, 1), load(1, 0), op(TileOp::sub, 1, 1, kScalar), op(TileOp::mul, 2, 1, 0),
            store(TileOp::store, 2, 2), store(TileOp::store_scalar, 3, kScalar)}}};
}

std::vector<uint64_t> bits(const TestTensor& tensor) {
  std::vector<uint64_t> all;
  for (int64_t i = 0; i < tensor.count(); ++i) all.push_back(tensor.bits(i));
  return all;
}

TEST(JoinedProgram, HasTheBitsOfBoth) {
  const std::vector<int64_t> sizes = {5, 700};
  for (const DType half : {DType::f16, DType::bf16})
    for (const bool keep : {false, true}) {
      const TileProgram first = first_program(half), second = second_program(half);
      const TileProgram joined = joined_program(first, 0, {keep, true}, second, 1);
      check_tile_program(joined);
      TestTensor tile(DType::f32, sizes), row(half, sizes), y(half, sizes);
      tile.randomize(1), row.randomize(2), y.randomize(3);
      TestTensor x(half, sizes), twice(half, sizes), z(half, sizes), sum(DType::f32, {5, 1});
      step_testing::run_step({"tile", {tile.arg(), row.arg()}, {x.arg(), twice.arg()}, {1}, {}, &first},
                             detect_isa());
      step_testing::run_step({"tile", {y.arg(), x.arg()}, {z.arg(), sum.arg()}, {1}, {}, &second},
                             detect_isa());
      TestTensor x2(half, sizes), twice2(half, sizes), z2(half, sizes), sum2(DType::f32, {5, 1});
      std::vector<TensorArg> outputs = {twice2.arg(), z2.arg(), sum2.arg()};
      if (keep) outputs.insert(outputs.begin(), x2.arg());
      step_testing::run_step({"tile", {tile.arg(), row.arg(), y.arg()}, outputs, {1}, {}, &joined},
                             detect_isa());
      if (keep) {
        EXPECT_EQ(bits(x2), bits(x));
      }
      EXPECT_EQ(bits(twice2), bits(twice));
      EXPECT_EQ(bits(z2), bits(z));
      EXPECT_EQ(bits(sum2), bits(sum));
    }
}

// In f32 the value between them is handed on as it is; the order of the inputs is the caller's.
TEST(JoinedProgram, HandsOnF32AndPutsInputsInOrder) {
  const std::vector<int64_t> sizes = {3, 40};
  const TileProgram first{{DType::f32},
                          {DType::f32},
                          {{TileType::f32}},
                          {},
                          {{load(0, 0), op(TileOp::neg, 0, 0), store(TileOp::store, 1, 0)}}};
  const TileProgram second{{DType::f32, DType::f32},
                           {DType::f32},
                           std::vector<TileRegister>(3, {TileType::f32}),
                           {},
                           {{load(0, 0), load(1, 1), op(TileOp::sub, 2, 0, 1), store(TileOp::store, 2, 2)}}};
  TileProgram joined = joined_program(first, 0, {false}, second, 0);  // -a - b
  check_tile_program(joined);
  TestTensor a(DType::f32, sizes), b(DType::f32, sizes), y(DType::f32, sizes), z(DType::f32, sizes);
  a.randomize(1), b.randomize(2);
  step_testing::run_step({"tile", {a.arg(), b.arg()}, {y.arg()}, {1}, {}, &joined}, detect_isa());
  joined = with_input_at(std::move(joined), 1, 0);
  check_tile_program(joined);
  step_testing::run_step({"tile", {b.arg(), a.arg()}, {z.arg()}, {1}, {}, &joined}, detect_isa());
  EXPECT_EQ(bits(z), bits(y));
  for (int64_t i = 0; i < a.count(); ++i) EXPECT_EQ(y.get(i), static_cast<float>(-a.get(i) - b.get(i)));
}

}  // namespace
}  // namespace aicf
