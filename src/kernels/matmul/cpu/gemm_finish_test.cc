// What micro-kernels do to finished sums has the bits of the same operations one by one.
#include "kernels/matmul/cpu/gemm_finish.h"

#include <limits>

#include "kernels/conv/cpu/pack_conv_w.h"
#include "kernels/matmul/testing/packed_y.h"
#include "kernels/tile/testing/hand_written.h"

namespace aicf {
namespace {

using namespace step_testing;
using namespace tile_testing;
using matmul_testing::pack_y;

enum Parts { kScale = 1, kShift = 2, kResidual = 4, kLow = 8, kHigh = 16, kAll = 31 };

// Operands: sums, scale, shift, residual; result. Registers: the value, an operand.
TileProgram program_of(int parts) {
  const int low = scalar(0), high = scalar(1);
  std::vector<TileInstr> code = {constant(low, -0.25), constant(high, 0.75), load(0, 0)};
  const auto apply = [&](TileOp name, int operand) {
    code.push_back(load(1, operand));
    code.push_back(op(name, 0, 0, 1));
  };
  if (parts & kScale) apply(TileOp::mul, 1);
  if (parts & kShift) apply(TileOp::add, 2);
  if (parts & kResidual) apply(TileOp::add, 3);
  if (parts & kLow) code.push_back(op(TileOp::max, 0, 0, low));
  if (parts & kHigh) code.push_back(op(TileOp::min, 0, 0, high));
  code.push_back(store(4, 0));
  return {{DType::f32, DType::f32, DType::f32, DType::f32},
          {DType::f32},
          {kF, kF},
          {TileType::f32, TileType::f32},
          {code}};
}

float expected(int parts, float value, double scale, double shift, double residual) {
  if (parts & kScale) value *= static_cast<float>(scale);
  if (parts & kShift) value += static_cast<float>(shift);
  if (parts & kResidual) value += static_cast<float>(residual);
  if ((parts & kLow) && value < -0.25f) value = -0.25f;
  if ((parts & kHigh) && value > 0.75f) value = 0.75f;
  return value;
}

void expect_value(const TestTensor& out, int64_t i, float value, int parts) {
  const auto actual = static_cast<float>(out.get(i));
  if (std::isnan(value) ? !std::isnan(actual) : actual != value)
    FAIL() << "parts " << parts << " element " << i << ": " << actual << " for " << value;
}

// 100 columns are no multiple of kFinishWidth; 300 steps are two blocks of k.
TEST(GemmFinish, MatmulPartsInOrder) {
  const int64_t m = 21;
  for (const auto& [n, k] : std::vector<std::pair<int64_t, int64_t>>{{48, 20}, {208, 300}, {100, 20}}) {
    TestTensor x(DType::f32, {m, k}), y(DType::f32, {k, n}), scale(DType::f32, {n}), shift(DType::f32, {n}),
        residual(DType::f32, {m, n}), sums(DType::f32, {m, n});
    TestTensor* tensors[] = {&x, &y, &scale, &shift, &residual};
    for (uint64_t i = 0; i < 5; ++i) tensors[i]->randomize(i);
    x.set(3 * k, std::numeric_limits<double>::quiet_NaN());
    x.set(7 * k, std::numeric_limits<double>::infinity());
    for (IsaLevel isa : isa_levels()) {
      const TestTensor packed = pack_y(y, isa);
      run_step({"matmul_f32_packed", {x.arg(), packed.arg()}, {sums.arg()}, {k, n}, {}}, isa);
      for (int parts = 0; parts <= kAll; ++parts) {
        const TileProgram program = program_of(parts);
        TestTensor out(DType::f32, {m, n});
        out.fill([&](int64_t i) { return residual.get(i); });  // the residual is in the result's place
        run_step({"matmul_f32_packed",
                  {x.arg(), packed.arg(), scale.arg(), shift.arg(), out.arg()},
                  {out.arg()},
                  {k, n},
                  {},
                  &program},
                 isa, true);
        for (int64_t i = 0; i < out.count(); ++i)
          expect_value(out, i,
                       expected(parts, static_cast<float>(sums.get(i)), scale.get(i % n), shift.get(i % n),
                                residual.get(i)),
                       parts);
      }
    }
  }
}

void expect_convolution(int64_t channels, int64_t maps, int64_t size) {
  const int64_t pixels = size * size;
  TestTensor x(DType::f32, {1, channels, size, size}, TestTensor::Layout::kChannelsLast);
  TestTensor w(DType::f32, {maps, channels, 3, 3}), bias(DType::f32, {maps}), scale(DType::f32, {maps, 1, 1}),
      shift(DType::f32, {maps, 1, 1});
  TestTensor residual(DType::f32, {1, maps, size, size}, TestTensor::Layout::kChannelsLast);
  TestTensor* tensors[] = {&x, &w, &bias, &scale, &shift, &residual};
  for (uint64_t i = 0; i < 6; ++i) tensors[i]->randomize(i);
  const std::vector<int64_t> params = {2, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 3, 3};
  std::vector<int64_t> with_bias = params;
  with_bias[2] = 1;
  for (IsaLevel isa : isa_levels()) {
    const TestTensor packed(DType::u8, {packed_conv_w_bytes(1, maps, channels * 9)});
    run_step({"pack_conv_w_f32", {w.arg()}, {packed.arg()}, {1}, {}}, isa);
    TestTensor plain(DType::f32, {1, maps, size, size});
    run_step({"conv_f32_packed", {x.arg(), packed.arg()}, {plain.arg()}, params, {}}, isa);
    for (int parts = 0; parts <= kAll; ++parts) {
      const TileProgram program = program_of(parts);
      TestTensor out(DType::f32, {1, maps, size, size}, TestTensor::Layout::kChannelsLast);
      run_step({"conv_f32_packed",
                {x.arg(), packed.arg(), bias.arg(), scale.arg(), shift.arg(), residual.arg()},
                {out.arg()},
                with_bias,
                {},
                &program},
               isa, true);
      for (int64_t i = 0; i < out.count(); ++i) {
        const int64_t map = i / pixels;
        const float sum = static_cast<float>(plain.get(i)) + static_cast<float>(bias.get(map));
        expect_value(out, i, expected(parts, sum, scale.get(map), shift.get(map), residual.get(i)), parts);
      }
    }
  }
}

// Last panels of one to four vectors; 300 channels are several blocks of k; 64 × 65² sums are fetched, for
// they are in no near cache.
TEST(GemmFinish, ConvolutionWithBias) {
  expect_convolution(5, 80, 9);
  expect_convolution(60, 96, 5);
  expect_convolution(3, 112, 4);
  expect_convolution(4, 64, 65);
}

TEST(GemmFinish, TakesPartsInOrderOnly) {
  const float column[16] = {}, matrix[16] = {};
  TileChain chain = {};
  chain.steps[0] = {kChainMul, 0, column, 0};
  chain.steps[1] = {kChainAdd, 0, matrix, 16};
  chain.steps[2] = {kChainMax, 0, column, 0};
  chain.count = 3;
  const auto finish = gemm_finish_of(chain, nullptr, 48);
  ASSERT_TRUE(finish.has_value());
  EXPECT_EQ(finish->scale, column);
  EXPECT_EQ(finish->shift, nullptr);
  EXPECT_EQ(finish->residual, matrix);
  EXPECT_EQ(finish->low, column);
  EXPECT_FALSE(gemm_finish_of(chain, nullptr, 50)) << "columns that are not whole vectors";
  EXPECT_FALSE(gemm_finish_of(chain, column, 48)) << "a bias before the scale";
  chain.steps[2].reversed = 1;
  EXPECT_FALSE(gemm_finish_of(chain, nullptr, 48)) << "the bound's NaN and zeros count first";
  chain.steps[2] = {kChainGelu, 0, nullptr, 0};
  EXPECT_FALSE(gemm_finish_of(chain, nullptr, 48)) << "a function";
  std::swap(chain.steps[0], chain.steps[1]);
  chain.count = 2;
  EXPECT_FALSE(gemm_finish_of(chain, nullptr, 48)) << "the residual before the scale";
}

}  // namespace
}  // namespace aicf
