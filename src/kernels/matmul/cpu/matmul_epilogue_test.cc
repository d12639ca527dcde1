// Products on the CPU with tile programs as their epilogues.
#include "kernels/matmul/testing/packed_y.h"
#include "kernels/tile/testing/hand_written.h"

namespace aicf {
namespace {

using namespace step_testing;
using namespace tile_testing;
using matmul_testing::pack_y;

// out = max(result + bias, 0) + residual, and out2 = the result as bf16.
TileProgram relu_program() {
  return {{DType::f32, DType::f32, DType::f32},
          {DType::f32, DType::bf16},
          {kF, kF, kF, kF},
          {},
          {{load(0, 0), load(1, 1), load(2, 2), op(TileOp::add, 1, 0, 1), constant(3, 0),
            op(TileOp::max, 1, 1, 3), op(TileOp::add, 1, 1, 2), store(3, 1), store(4, 0)}}};
}

TEST(MatmulEpilogue, RunsOnEveryTile) {
  const TileProgram program = relu_program();
  for (const auto& mnk : std::vector<std::vector<int64_t>>{{1, 384, 20}, {70, 200, 300}, {33, 7, 0}}) {
    const int64_t m = mnk[0], n = mnk[1], k = mnk[2];
    TestTensor x(DType::f32, {2, m, k}), y(DType::f32, {k, n}), bias(DType::f32, {n}),
        residual(DType::f32, {2, m, n}, Layout::kReversed);
    x.randomize(1);
    y.randomize(2);
    bias.randomize(3);
    residual.randomize(4);
    for (IsaLevel isa : isa_levels()) {
      TestTensor plain(DType::f32, {2, m, n}), out(DType::f32, {2, m, n}, Layout::kGaps),
          narrow(DType::bf16, {2, m, n});
      run_step({"matmul_f32", {x.arg(), y.arg()}, {plain.arg()}, {}, {}}, isa);
      const TestTensor packed = pack_y(y, isa);
      for (bool use_packed : {false, true}) {
        out.poison();
        narrow.poison();
        Step step{
            "matmul_f32", {x.arg(), y.arg(), bias.arg(), residual.arg()}, {out.arg(), narrow.arg()}, {}, {},
            &program};
        if (use_packed) {
          step.kernel = "matmul_f32_packed";
          step.inputs[1] = packed.arg();
          step.params = {k, n};
        }
        run_step(step, isa, true);
        for (int64_t i = 0; i < out.count(); ++i) {
          const auto sum = static_cast<float>(plain.get(i)) + static_cast<float>(bias.get(i % n));
          const float expected = std::max(sum, 0.0f) + static_cast<float>(residual.get(i));
          ASSERT_EQ(static_cast<float>(out.get(i)), expected) << i;
          ASSERT_EQ(narrow.bits(i), f32_to_bf16(static_cast<float>(plain.get(i)))) << i;
        }
      }
    }
  }
}

TEST(MatmulEpilogue, RefusesWhatDoesNotFit) {
  TestTensor x(DType::f32, {4, 8}), y(DType::f32, {8, 6}), row(DType::f32, {6}), full(DType::f32, {4, 6});
  TestTensor out(DType::f32, {4, 6}), narrow(DType::bf16, {4, 6});
  const TileProgram program = relu_program();
  const Step good{"matmul_f32", {x.arg(), y.arg(), row.arg(), full.arg()}, {out.arg(), narrow.arg()}, {}, {},
                  &program};
  bind_step(good, IsaLevel::kPortable);
  Step step = good;
  step.inputs.pop_back();
  expect_refused(step, "missing operand");
  step = good;
  step.inputs[2].sizes[0] = 5;
  expect_refused(step, "operand that does not broadcast");
  step = good;
  step.inputs[2].dtype = DType::f64;
  expect_refused(step, "operand dtype");
  step = good;
  step.outputs.pop_back();
  expect_refused(step, "missing output");
  TileProgram reducing = program;
  reducing.scalars = {TileType::f32};
  reducing.stages[0].push_back({TileOp::reduce_sum, TileType::f32, 0, 1});
  step = good;
  step.program = &reducing;
  expect_refused(step, "reduction");
}

}  // namespace
}  // namespace aicf
