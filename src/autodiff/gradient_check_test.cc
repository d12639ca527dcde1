// Every op's derivative against central finite differences of the reference evaluator in f64; with symbolic
// sizes the same numbers, in the other float dtypes graphs that verify.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "autodiff/testing/gradient_cases.h"
#include "autodiff/vjp.h"
#include "ir/reference/evaluator.h"
#include "ir/verify.h"

namespace aicf {
namespace {

using testing::gradient_cases;
using testing::gradient_inputs;
using testing::gradient_program;
using testing::GradientCase;

using Arrays = std::map<std::string, Array>;

// Without rounding to dtypes.
Arrays run(const Program& program, const Arrays& inputs) {
  return evaluate(program, program.entries[0], {inputs, {}}, {false}).outputs;
}

// (loss(x + h) - loss(x - h)) / 2h for each element of one input.
std::vector<double> central_differences(const Program& program, Arrays inputs, const std::string& name) {
  const Array at = inputs.at(name);
  std::vector<double> slopes;
  for (int64_t i = 0; i < at.count(); ++i) {
    const double x = at.get_f64(i), h = 1e-5;
    const auto loss_at = [&](double value) {
      Array moved = Array::from<double>(DType::f64, at.sizes(),
                                        {at.data_as<double>(), at.data_as<double>() + at.count()});
      moved.set_f64(i, value);
      inputs[name] = moved;
      return run(program, inputs).at("loss").get_f64(0);
    };
    slopes.push_back((loss_at(x + h) - loss_at(x - h)) / (2 * h));
  }
  return slopes;
}

double largest(const std::vector<double>& values) {
  double top = 0;
  for (double value : values) top = std::max(top, std::abs(value));
  return top;
}

void expect_near(const Array& actual, const std::vector<double>& expected, double tolerance,
                 const std::string& name) {
  ASSERT_EQ(actual.count(), static_cast<int64_t>(expected.size())) << name;
  for (int64_t i = 0; i < actual.count(); ++i)
    EXPECT_NEAR(actual.get_f64(i), expected[static_cast<size_t>(i)], tolerance) << name << " element " << i;
}

std::vector<double> elements(const Array& array) {
  std::vector<double> values;
  for (int64_t i = 0; i < array.count(); ++i) values.push_back(array.get_f64(i));
  return values;
}

std::string case_name(const ::testing::TestParamInfo<GradientCase>& info) { return info.param.name; }

class GradientCheck : public ::testing::TestWithParam<GradientCase> {};

// Errors of the difference: h^2 times the third derivative, and 1e-16 / h times the loss.
TEST_P(GradientCheck, EqualsFiniteDifferences) {
  const Program program = gradient_program(GetParam(), DType::f64, false);
  const Program forward = gradient_program(GetParam(), DType::f64, false, true);
  verify(program, Fault::kInternal);
  for (uint64_t seed : {1, 2}) {
    const Arrays inputs = gradient_inputs(GetParam(), seed);
    for (const auto& [name, gradient] : run(program, inputs)) {
      if (name == "loss") continue;
      const std::vector<double> slopes = central_differences(forward, inputs, name.substr(2));
      expect_near(gradient, slopes, 1e-6 * (1 + largest(slopes)), name);
    }
  }
}

// A case whose shapes change their sense with the dtype's or the sizes' form must still give the same
// numbers; only the order of sums may differ.
void expect_same(const GradientCase& test, const Program& program) {
  verify(program, Fault::kInternal);
  const Arrays inputs = gradient_inputs(test, 3);
  const Arrays expected = run(gradient_program(test, DType::f64, false), inputs);
  for (const auto& [name, array] : run(program, inputs)) {
    const std::vector<double> values = elements(expected.at(name));
    EXPECT_EQ(array.sizes(), expected.at(name).sizes());
    expect_near(array, values, 1e-12 * (1 + largest(values)), name);
  }
}

TEST_P(GradientCheck, SymbolicSizesGiveTheSame) {
  if (!GetParam().symbols.empty()) expect_same(GetParam(), gradient_program(GetParam(), DType::f64, true));
}

// Bodies and cast are made for f64 alone. A number of a rule's own, such as 2 / sqrt(pi), is not rounded to
// the half type that the operand has, nor is it by an evaluation that rounds nothing else.
TEST_P(GradientCheck, EveryDType) {
  if (!GetParam().bodies.empty() || GetParam().op == Op::cast) return;
  const Arrays inputs = gradient_inputs(GetParam(), 1);
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Program program = gradient_program(GetParam(), dtype, false);
    const Program forward = gradient_program(GetParam(), dtype, false, true);
    verify(program, Fault::kInternal);
    for (const auto& [name, gradient] : run(program, inputs)) {
      if (name == "loss") continue;
      const std::vector<double> slopes = central_differences(forward, inputs, name.substr(2));
      expect_near(gradient, slopes, 1e-6 * (1 + largest(slopes)),
                  name + " in " + std::string(dtype_name(dtype)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, GradientCheck, ::testing::ValuesIn(gradient_cases()), case_name);

// An op that lets gradients through, or claims that they are zero though its results are floats, has a case.
TEST(GradientCoverage, EveryOpHasACase) {
  std::set<Op> covered;
  for (const GradientCase& test : gradient_cases()) covered.insert(test.op);
  for (const OpInfo& info : op_table()) {
    const Derivative& row = derivative_of(info.op);
    const bool differentiable = row.kind == DerivativeKind::kRule || row.kind == DerivativeKind::kDecomposed;
    if (differentiable)
      EXPECT_TRUE(covered.count(info.op)) << info.name << " has no gradient case";
    else
      EXPECT_FALSE(row.text.empty()) << info.name << " has no derivative and says no reason";
  }
}

TEST(GradientCoverage, CaseNamesAreUnique) {
  std::set<std::string> names;
  for (const GradientCase& test : gradient_cases()) EXPECT_TRUE(names.insert(test.name).second) << test.name;
}

}  // namespace
}  // namespace aicf
