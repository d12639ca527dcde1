// Regions that only training steps and long rows have, on the device of testing/test_device.h beside the
// reference in f64.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>

#include "compile/compile.h"
#include "compile/testing/compiled.h"
#include "compile/testing/random_arrays.h"
#include "ir/reference/evaluator.h"
#include "ir/text.h"

namespace aicf::testing::training_regions_test {
namespace {

using Arrays = std::map<std::string, Array>;

// One run beside the reference: the results, params and states that `tolerances` names. Where the device only
// compiles, there is nothing to compare.
void expect_near_reference(const Program& program, const std::map<std::string, double>& tolerances) {
  const Arrays inputs = normal_inputs(program, 5);
  const std::unique_ptr<Executable> exe = compiled(program);
  if (exe == nullptr) return;
  const Arrays results = exe->run("", inputs);
  const EvalResult expected = evaluate(program, program.entries[0], {inputs, {}}, {false});
  for (const auto& [name, tolerance] : tolerances) {
    const bool is_result = results.contains(name);
    const Array got = is_result ? results.at(name) : exe->state(name);
    const Array want = is_result ? expected.outputs.at(name) : expected.updated.at(name);
    EXPECT_LT(relative_error(got, want), tolerance) << name;
  }
}

// The gradients of a norm's scale and bias become its params: two sums over the rows that read dy together,
// of activations that are normalised again.
TEST(TrainingRegions, GradientsOfANormAreThoseOfTheReference) {
  const Program program = parse(R"(program {
  param "bias" : f32[192]
  param "scale" : f32[192]
  entry step(%x: bf16[640, 192], %w: bf16[192, 192], %dy: bf16[640, 192]) {
    %n = constant f32[] = [192]
    %e = constant f32[] = [1e-05]
    %scale = param "scale" : f32[192]
    %bias = param "bias" : f32[192]
    %0 = cast(%x) {dtype = f32} : f32[640, 192]
    %1 = reduce_sum(%0) {axes = [1], keepdims = true} : f32[640, 1]
    %2 = div(%1, %n) : f32[640, 1]
    %3 = sub(%0, %2) : f32[640, 192]
    %4 = mul(%3, %3) : f32[640, 192]
    %5 = reduce_sum(%4) {axes = [1], keepdims = true} : f32[640, 1]
    %6 = div(%5, %n) : f32[640, 1]
    %7 = add(%6, %e) : f32[640, 1]
    %8 = rsqrt(%7) : f32[640, 1]
    %9 = mul(%3, %8) : f32[640, 192]
    %10 = cast(%9) {dtype = bf16} : bf16[640, 192]
    %11 = matmul(%10, %w) : bf16[640, 192]
    %12 = cast(%dy) {dtype = f32} : f32[640, 192]
    %13 = mul(%12, %9) : f32[640, 192]
    %14 = reduce_sum(%13) {axes = [0], keepdims = false} : f32[192]
    %15 = reduce_sum(%12) {axes = [0], keepdims = false} : f32[192]
    update "scale" = %14
    update "bias" = %15
    return "y" = %11
  }
}
)");
  expect_near_reference(program, {{"scale", 1e-5}, {"bias", 1e-5}});
}

// The gradient of a norm's operand, and beside it, on a GPU in one walk over the rows, the sums over them: of
// what it reads, and of its own result as it is stored.
TEST(TrainingRegions, SumsOverManyRowsAreThoseOfTheReference) {
  // A warp for a row, and a block for one.
  for (const auto& [rows, columns] : {std::pair("5000", "200"), std::pair("2051", "2056")}) {
    std::string text = R"(program {
  param "bias" : bf16[C]
  param "scale" : f32[C]
  entry step(%x: bf16[R, C], %w: bf16[C, 8], %dy: bf16[R, C]) {
    %scale = param "scale" : f32[C]
    %bias = param "bias" : bf16[C]
    %0 = cast(%dy) {dtype = f32} : f32[R, C]
    %1 = cast(%x) {dtype = f32} : f32[R, C]
    %2 = mul(%0, %1) : f32[R, C]
    %3 = reduce_sum(%2) {axes = [1], keepdims = true} : f32[R, 1]
    %4 = sub(%0, %3) : f32[R, C]
    %5 = abs(%4) : f32[R, C]
    %6 = cast(%5) {dtype = bf16} : bf16[R, C]
    %7 = matmul(%6, %w) : bf16[R, 8]
    %8 = reduce_sum(%2) {axes = [0], keepdims = false} : f32[C]
    %9 = reduce_sum(%6) {axes = [0], keepdims = false} : bf16[C]
    update "scale" = %8
    update "bias" = %9
    return "y" = %7
  }
}
)";
    for (const auto& [name, size] : {std::pair('R', rows), std::pair('C', columns)})
      for (size_t at = 0; (at = text.find_first_of("[ ", at)) != std::string::npos; ++at)
        if (text[at + 1] == name && (text[at + 2] == ']' || text[at + 2] == ','))
          text.replace(at + 1, 1, size);
    expect_near_reference(parse(text), {{"scale", 1e-5}, {"bias", 4e-3}});
  }
}

// A bias's step in the region of the sum that is its gradient, in place.
TEST(TrainingRegions, ASmallBiasStepsAsInTheReference) {
  const Program program = parse(R"(program {
  param "bias" : f32[24]
  state "m" : f32[24]
  entry step(%dy: f32[50, 24]) {
    %bias = param "bias" : f32[24]
    %m = state "m" : f32[24]
    %0 = reduce_sum(%dy) {axes = [0], keepdims = false} : f32[24]
    %1 = exp(%m) : f32[24]
    %2 = add(%1, %0) : f32[24]
    %3 = sub(%bias, %2) : f32[24]
    update "bias" = %3
    update "m" = %2
    return "y" = %0
  }
}
)");
  expect_near_reference(program, {{"bias", 1e-5}, {"m", 1e-5}});
}

// Where a gradient is the sum of two products, neither walks over the optimizer's tensors in its epilogue.
TEST(TrainingRegions, NoProductTakesTheStepOfALargeParam) {
  const Program program = parse(R"(program {
  param "w" : bf16[1024, 768]
  state "m" : bf16[1024, 768]
  entry step(%a: bf16[512, 1024], %b: bf16[512, 768], %c: bf16[512, 1024], %d: bf16[512, 768], %e: bf16[1024, 768]) {
    %w = param "w" : bf16[1024, 768]
    %m = state "m" : bf16[1024, 768]
    %0 = matmul(%a, %b) {transpose_x = true} : bf16[1024, 768]
    %1 = matmul(%c, %d) {transpose_x = true} : bf16[1024, 768]
    %2 = add(%0, %1) : bf16[1024, 768]
    %3 = add(%m, %2) : bf16[1024, 768]
    %4 = mul(%3, %e) : bf16[1024, 768]
    %5 = sub(%w, %4) : bf16[1024, 768]
    update "w" = %5
    update "m" = %3
    return "y" = %2
  }
}
)");
  CompileOptions options;
  options.target = "sm_90";
  const std::string text = printed_stage(program, "select", options);
  std::istringstream lines(text);
  int products = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("matmul") == std::string::npos) continue;
    ++products;
    EXPECT_EQ(line.find(" w["), std::string::npos) << line;
    EXPECT_EQ(line.find(" m["), std::string::npos) << line;
  }
  EXPECT_EQ(products, 2) << text;
}

// On sm_90 so many rows of such length are fetched into shared memory ahead of their use, several by each
// block.
int64_t long_rows() { return TestDevice::get().cuda ? 600 : 7; }

// Infinities, NaN, ties, what over- and underflows: element by element.
TEST(TrainingRegions, LongRowsAreThoseOfTheReference) {
  constexpr int64_t kLength = 33280;
  const std::string shape = "[" + std::to_string(long_rows()) + ", " + std::to_string(kLength) + "]";
  const Program program =
      parse("program {\n  entry main(%x: bf16" + shape + ") {\n    %0 = softmax(%x) {axis = 1} : bf16" +
            shape + "\n    return \"y\" = %0\n  }\n}\n");
  Arrays inputs = normal_inputs(program, 5);
  Array& x = inputs.at("x");
  const double inf = std::numeric_limits<double>::infinity();
  const int64_t last = long_rows() - 1;
  x.set_f64(0, inf);
  x.set_f64(1 * kLength + 33, std::nan(""));
  for (int64_t i = 0; i < kLength; ++i) {
    x.set_f64(2 * kLength + i, -inf);
    x.set_f64(3 * kLength + i, 2.5);
    x.set_f64(4 * kLength + i, i % 2 == 0 ? -inf : x.get_f64(i));
    x.set_f64(5 * kLength + i, 1e38 * x.get_f64(i + 1));
  }
  x.set_f64((last + 1) * kLength - 1, 80);
  const std::unique_ptr<Executable> exe = compiled(program);
  if (exe == nullptr) return;
  const Array got = exe->run("", inputs).at("y");
  const Array want = evaluate(program, program.entries[0], {inputs, {}}, {false}).outputs.at("y");
  for (int64_t i = 0; i < want.count(); ++i) {
    const double y = want.get_f64(i);
    if (std::isnan(y))
      ASSERT_TRUE(std::isnan(got.get_f64(i))) << i;
    else
      ASSERT_NEAR(got.get_f64(i), y, 4e-3 * y + 1e-37) << i;
  }
}

// The gradient of a loss over as many classes; some rows are ignored.
TEST(TrainingRegions, GradientsOfManyClassesAreThoseOfTheReference) {
  const std::string rows = std::to_string(long_rows());
  const Program program = parse("program {\n  entry main(%x: bf16[" + rows +
                                ", 16], %w: bf16[33280, 16], %labels: i64[" + rows + R"(], %dloss: f32[]) {
    %0, %1, %2 = linear_cross_entropy_backward(%x, %w, %labels, %dloss) {dtype = f32, transpose_w = true} : f32[], bf16[)" +
                                rows + R"(, 16], bf16[33280, 16]
    return "loss" = %0, "dx" = %1, "dw" = %2
  }
}
)");
  Arrays inputs = normal_inputs(program, 5);
  Array& labels = inputs.at("labels");
  for (int64_t i = 0; i < labels.count(); ++i) labels.set_i64(i, i % 5 == 4 ? -100 : i * 7919 % 33280);
  const std::unique_ptr<Executable> exe = compiled(program);
  if (exe == nullptr) return;
  const Arrays results = exe->run("", inputs);
  const EvalResult expected = evaluate(program, program.entries[0], {inputs, {}}, {false});
  EXPECT_LT(relative_error(results.at("loss"), expected.outputs.at("loss")), 1e-3);
  EXPECT_LT(relative_error(results.at("dx"), expected.outputs.at("dx")), 1e-2);
  EXPECT_LT(relative_error(results.at("dw"), expected.outputs.at("dw")), 1e-2);
}

// Rows divided by one of their own numbers, whose reciprocal may lie outside f32's normal numbers: the
// quotient is the correctly rounded one.
TEST(TrainingRegions, QuotientsByAnyNumberOfARowAreRoundedCorrectly) {
  const Program program = parse(R"(program {
  entry main(%x: f32[96, 200]) {
    %0 = reduce_max(%x) {axes = [1], keepdims = true} : f32[96, 1]
    %1 = div(%x, %0) : f32[96, 200]
    return "y" = %1
  }
}
)");
  Arrays inputs = normal_inputs(program, 5);
  Array& x = inputs.at("x");
  for (int64_t i = 0; i < x.count(); ++i)
    x.set_f64(i, std::ldexp(std::abs(x.get_f64(i)), static_cast<int>(i / 200 * 5 / 2) - 120));
  x.set_f64(0, std::numeric_limits<double>::infinity());
  for (int64_t i = 200; i < 400; ++i) x.set_f64(i, 0);
  x.set_f64(401, std::nan(""));
  const std::unique_ptr<Executable> exe = compiled(program);
  if (exe == nullptr) return;
  const Array got = exe->run("", inputs).at("y");
  for (int64_t row = 0; row < 96; ++row) {
    float top = x.get_f64(row * 200);
    for (int64_t i = row * 200; i < row * 200 + 200; ++i)
      top = std::isnan(x.get_f64(i)) || x.get_f64(i) > top ? static_cast<float>(x.get_f64(i)) : top;
    for (int64_t i = row * 200; i < row * 200 + 200; ++i) {
      const float want = static_cast<float>(x.get_f64(i)) / top;
      if (std::isnan(want))
        ASSERT_TRUE(std::isnan(got.get_f64(i))) << i;
      else
        ASSERT_EQ(got.get_f64(i), static_cast<double>(want)) << i;
    }
  }
}

}  // namespace
}  // namespace aicf::testing::training_regions_test
