// Products in tf32: their operands are rounded, whatever their layout, and nothing else is.
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "compile/compile.h"
#include "compile/testing/compiled.h"
#include "compile/testing/random_arrays.h"
#include "ir/reference/compare.h"
#include "ir/reference/evaluator.h"
#include "ir/text.h"

namespace aicf {
namespace {

using testing::random_array;
using Sizes = std::vector<int64_t>;

struct ProductCase {
  const char* name;
  Sizes x, y;
  bool transpose_x, transpose_y;
};

// Sizes around those of tiles and steps, rows that start at 16 bytes and not, few and many rows, split sums.
const ProductCase kCases[] = {
    {"Plain", {64, 64}, {64, 64}, false, false},
    {"YTransposed", {64, 96}, {72, 96}, false, true},
    {"XTransposed", {100, 40}, {100, 56}, true, false},
    {"BothTransposed", {36, 68}, {20, 36}, true, true},
    {"OddSizes", {67, 33}, {33, 29}, false, false},
    {"OddTransposed", {33, 67}, {29, 33}, true, true},
    {"OneRow", {1, 512}, {512, 256}, false, false},
    {"LongSum", {16, 4096}, {4096, 24}, false, false},
    {"Batches", {3, 2, 20, 48}, {2, 48, 130}, false, false},
    {"Large", {300, 260}, {260, 520}, false, false},
    {"NoDepth", {5, 0}, {0, 7}, false, false},
};

Program product_of(const ProductCase& test) {
  Graph graph("main");
  const ValueId x = graph.add_input("x", {DType::f32, to_shape(test.x)}),
                y = graph.add_input("y", {DType::f32, to_shape(test.y)});
  const ValueId product =
      graph.add(Op::matmul, {x, y}, {{"transpose_x", test.transpose_x}, {"transpose_y", test.transpose_y}});
  graph.add_output(graph.add(Op::relu, {product}), "z");
  Program program;
  program.entries.push_back(std::move(graph));
  return program;
}

class Tf32 : public ::testing::TestWithParam<ProductCase> {};

TEST_P(Tf32, RoundsTheOperandsOfProducts) {
  const ProductCase& test = GetParam();
  const Program plain = product_of(test);
  Program rounded = plain;
  rounded.entries[0] = multiply_in_tf32(plain.entries[0]);
  const std::map<std::string, Array> inputs{{"x", random_array(DType::f32, test.x, 1)},
                                            {"y", random_array(DType::f32, test.y, 2)}};
  const Array expected = evaluate(rounded, rounded.entries[0], {inputs, {}}).outputs.at("z");
  const Array in_f32 = evaluate(plain, plain.entries[0], {inputs, {}}).outputs.at("z");
  // Far below what rounding the operands does (2^-11), above what sums do, of which tensor cores cut the last
  // bits.
  const double depth = static_cast<double>(test.x[test.x.size() - (test.transpose_x ? 2 : 1)]);
  const double tolerance = 4e-6 * std::sqrt(depth + 1);
  EXPECT_EQ(compare(in_f32, expected, tolerance, tolerance).ok(), depth == 0);

  CompileOptions options;
  options.precision = Precision::kTf32;
  const std::unique_ptr<Executable> exe = testing::compiled(plain, options);
  if (exe == nullptr) return;
  const CompareReport report = compare(exe->run("", inputs).at("z"), expected, tolerance, tolerance);
  EXPECT_TRUE(report.ok()) << to_string(report);
}

INSTANTIATE_TEST_SUITE_P(Products, Tf32, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

struct AttentionCase {
  const char* name;
  int64_t heads, kv_heads, queries, keys, depth, value_depth;
  bool causal;
  Sizes mask;
};

// Depths and lengths within and beyond tiles; masks of all rows, of each, and none.
const AttentionCase kAttentions[] = {
    {"Plain", 3, 3, 64, 64, 64, 64, false, {}},
    {"OddSizes", 2, 2, 67, 131, 36, 20, false, {1, 2, 67, 131}},
    {"Causal", 4, 2, 129, 200, 48, 64, true, {}},
    {"OneQuery", 4, 4, 1, 300, 40, 40, false, {2, 1, 1, 300}},
    {"DeepHeads", 2, 1, 33, 50, 128, 200, false, {33, 50}},
};

class Tf32Attention : public ::testing::TestWithParam<AttentionCase> {};

TEST_P(Tf32Attention, RoundsTheOperandsOfProducts) {
  const AttentionCase& test = GetParam();
  Graph graph("main");
  const Sizes q{2, test.heads, test.queries, test.depth}, k{2, test.kv_heads, test.keys, test.depth},
      v{2, test.kv_heads, test.keys, test.value_depth};
  std::map<std::string, Array> inputs;
  std::vector<ValueId> operands;
  const auto input = [&](const std::string& name, const Sizes& sizes) {
    inputs.emplace(name, random_array(DType::f32, sizes, static_cast<uint32_t>(inputs.size())));
    operands.push_back(graph.add_input(name, {DType::f32, to_shape(sizes)}));
  };
  input("q", q);
  input("k", k);
  input("v", v);
  if (!test.mask.empty()) input("mask", test.mask);
  graph.add_output(graph.add(Op::attention, operands, {{"scale", 0.3}, {"causal", test.causal}}), "z");
  Program plain, rounded;
  plain.entries.push_back(graph);
  rounded.entries.push_back(multiply_in_tf32(graph));
  const Array expected = evaluate(rounded, rounded.entries[0], {inputs, {}}).outputs.at("z");
  const Array in_f32 = evaluate(plain, plain.entries[0], {inputs, {}}).outputs.at("z");
  const auto distance = [&](const Array& x) {
    double sum = 0;
    for (int64_t i = 0; i < x.count(); ++i) {
      const double difference = x.get_f64(i) - expected.get_f64(i);
      sum += difference * difference;
    }
    return std::sqrt(sum);
  };

  CompileOptions options;
  options.precision = Precision::kTf32;
  const std::unique_ptr<Executable> exe = testing::compiled(plain, options);
  if (exe == nullptr) return;
  // A weight between two numbers of tf32 may round to either; few do.
  EXPECT_LT(2 * distance(exe->run("", inputs).at("z")), distance(in_f32));
}

INSTANTIATE_TEST_SUITE_P(Attention, Tf32Attention, ::testing::ValuesIn(kAttentions),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Tf32Text, IsOfF32Only) {
  const auto program = [](const std::string& dtype) {
    return "program {\n  entry main(%x: " + dtype +
           "[4, 4]) {\n    %0 = matmul(%x, %x) {tf32 = true} : " + dtype +
           "[4, 4]\n    return \"y\" = %0\n  }\n}\n";
  };
  EXPECT_NO_THROW(compile(parse(program("f32"))));
  EXPECT_THROW(parse(program("f64")), UserError);
}

TEST(Tf32Text, OnAGpuProductsTakeTensorCores) {
  CompileOptions options;
  options.target = "sm_80";
  options.precision = Precision::kTf32;
  const std::string text = testing::printed_stage(product_of(kCases[0]), "select", options);
  EXPECT_NE(text.find("matmul_tensor_core"), std::string::npos) << text;
  EXPECT_EQ(text.find("round_tf32"), std::string::npos) << text;
}

}  // namespace
}  // namespace aicf
