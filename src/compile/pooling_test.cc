// Maxima of windows through the whole compiler, beside the reference, with infinite and undefined elements;
// AICF_TEST_DEVICE as in testing/test_device.h. Channels lie last, as in a convolutional network of halves.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "compile/testing/compiled.h"
#include "ir/reference/evaluator.h"

namespace aicf::testing::pooling_test {
namespace {

using Ints = std::vector<int64_t>;

struct Case {
  const char* name;
  DType dtype;
  Ints sizes;  // batch, spatial axes, channels
  Ints kernel, strides, pads, dilations;
};

Program program_of(const Case& c) {
  Graph graph("main");
  const auto rank = static_cast<int64_t>(c.sizes.size());
  Ints to_first{0, rank - 1}, to_last{0};
  for (int64_t axis = 1; axis + 1 < rank; ++axis) to_first.push_back(axis);
  for (int64_t axis = 2; axis < rank; ++axis) to_last.push_back(axis);
  to_last.push_back(1);
  const ValueId x = graph.add_input("x", {c.dtype, to_shape(c.sizes)});
  const ValueId first = graph.add(Op::transpose, {x}, {{"perm", to_first}});
  const ValueId pooled =
      graph.add(Op::max_pool, {first},
                {{"kernel", c.kernel}, {"strides", c.strides}, {"pads", c.pads}, {"dilations", c.dilations}});
  graph.add_output(graph.add(Op::transpose, {pooled}, {{"perm", to_last}}), "y");
  Program program;
  program.entries.push_back(std::move(graph));
  return program;
}

Array input_of(const Case& c) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::mt19937 engine(5);
  std::normal_distribution<double> normal;
  Array x(c.dtype, c.sizes);
  for (int64_t i = 0; i < x.count(); ++i) {
    const uint32_t rare = engine() % 40;
    x.set_f64(i, rare == 0 ? std::nan("") : rare < 3 ? -kInfinity : rare == 3 ? kInfinity : normal(engine));
  }
  return x;
}

constexpr DType kHalf = DType::f16, kBrain = DType::bf16, kSingle = DType::f32;
const Case kCases[] = {
    {"resnet", kHalf, {2, 23, 31, 64}, {3, 3}, {2, 2}, {1, 1, 1, 1}, {1, 1}},
    {"odd_channels", kHalf, {1, 9, 9, 7}, {5, 4}, {1, 1}, {2, 1, 2, 2}, {1, 1}},
    {"dilated", kBrain, {2, 12, 7, 16}, {2, 3}, {1, 2}, {0, 0, 0, 0}, {2, 2}},
    {"three_axes", kBrain, {1, 5, 6, 7, 24}, {3, 2, 3}, {1, 1, 1}, {1, 0, 1, 1, 1, 1}, {1, 1, 1}},
    {"one_axis", kHalf, {3, 40, 8}, {6}, {3}, {2, 3}, {1}},
    {"single", kSingle, {2, 10, 11, 12}, {3, 3}, {2, 1}, {1, 1, 1, 1}, {1, 1}},
};

class MaxPool : public ::testing::TestWithParam<Case> {};

TEST_P(MaxPool, IsThatOfTheReference) {
  const Program program = program_of(GetParam());
  const std::unique_ptr<Executable> exe = compiled(program);
  if (exe == nullptr) return;
  const std::map<std::string, Array> inputs{{"x", input_of(GetParam())}};
  const Array got = exe->run("", inputs).at("y");
  const Array want = evaluate(program, program.entries[0], {inputs, {}}, {false}).outputs.at("y");
  ASSERT_EQ(got.count(), want.count());
  for (int64_t i = 0; i < want.count(); ++i) {
    const double g = got.get_f64(i), w = want.get_f64(i);
    ASSERT_TRUE(g == w || (std::isnan(g) && std::isnan(w))) << i << ": " << g << ", not " << w;
  }
}

std::string case_name(const ::testing::TestParamInfo<Case>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Windows, MaxPool, ::testing::ValuesIn(kCases), case_name);

}  // namespace
}  // namespace aicf::testing::pooling_test
