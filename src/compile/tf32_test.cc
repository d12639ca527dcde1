// Products in tf32: their operands are rounded, whatever their layout, and nothing else is.
#include <gtest/gtest.h>

#include <cmath>

#include "autodiff/gradients.h"
#include "base/error.h"
#include "compile/compile.h"
#include "compile/testing/compiled.h"
#include "compile/testing/random_arrays.h"
#include "ir/reference/compare.h"
#include "ir/reference/evaluator.h"
#include "ir/text.h"

namespace aicf::tf32_test {
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

struct ConvCase {
  const char* name;
  Op op;
  Sizes x, other;  // w, or dy of a weight gradient
  Attrs attrs;
  int64_t bias = 0;  // its size
  double depth;      // of a result's sum
};

Attrs windows(const Ints& strides, const Ints& pads, const Ints& dilations, int64_t groups) {
  return {{"strides", strides}, {"pads", pads}, {"dilations", dilations}, {"groups", groups}};
}
Attrs with(Attrs attrs, const char* name, Attr value) {
  attrs.set(name, std::move(value));
  return attrs;
}

// Channels of whole 16 bytes and not, few of them, groups, strides; sums over images; phases of transposed
// ones.
const std::vector<ConvCase>& conv_cases() {
  static const std::vector<ConvCase> cases = {
      {"Plane", Op::conv, {2, 32, 9, 11}, {40, 32, 3, 3}, windows({1, 1}, {1, 1, 1, 1}, {1, 1}, 1), 40, 288},
      {"Strided", Op::conv, {3, 20, 9, 8}, {13, 20, 3, 2}, windows({2, 1}, {1, 0, 1, 1}, {1, 2}, 1), 13, 120},
      {"FewChannels",
       Op::conv,
       {2, 3, 15, 14},
       {24, 3, 7, 7},
       windows({2, 2}, {3, 3, 3, 3}, {1, 1}, 1),
       0,
       147},
      {"Groups", Op::conv, {2, 12, 7, 9}, {18, 6, 3, 3}, windows({1, 1}, {1, 1, 1, 1}, {1, 1}, 2), 0, 54},
      {"Line", Op::conv, {2, 17, 40}, {33, 17, 5}, windows({1}, {2, 2}, {1}, 1), 33, 85},
      {"Space",
       Op::conv,
       {1, 8, 5, 6, 7},
       {12, 8, 2, 3, 3},
       windows({1, 2, 1}, {0, 1, 1, 1, 0, 1}, {1, 1, 1}, 1),
       0,
       144},
      {"OneTap", Op::conv, {2, 64, 6, 5}, {48, 64, 1, 1}, windows({1, 1}, {0, 0, 0, 0}, {1, 1}, 1), 0, 64},
      {"LongSum",
       Op::conv,
       {1, 256, 4, 4},
       {16, 256, 3, 3},
       windows({1, 1}, {1, 1, 1, 1}, {1, 1}, 1),
       0,
       2304},
      {"Transposed",
       Op::conv_transpose,
       {2, 16, 7, 6},
       {16, 24, 3, 4},
       with(windows({2, 2}, {1, 1, 1, 1}, {1, 1}, 1), "output_padding", Ints{1, 0}),
       24,
       64},
      {"TransposedGroups",
       Op::conv_transpose,
       {2, 12, 5, 5},
       {12, 5, 3, 3},
       with(windows({1, 1}, {0, 0, 0, 0}, {1, 1}, 2), "output_padding", Ints{0, 0}),
       0,
       54},
      {"WeightGradient",
       Op::conv_weight_gradient,
       {4, 24, 9, 10},
       {4, 16, 5, 10},
       with(windows({2, 1}, {1, 1, 1, 1}, {1, 1}, 1), "kernel", Shape{3, 3}),
       0,
       200},
      {"WeightGradientOfGroups",
       Op::conv_weight_gradient,
       {3, 10, 8, 8},
       {3, 6, 8, 8},
       with(windows({1, 1}, {1, 1, 1, 1}, {1, 1}, 2), "kernel", Shape{3, 3}),
       0,
       192}};
  return cases;
}

// `last`: the result as [N, H, W, M].
Program conv_of(const ConvCase& test, bool last = false) {
  Graph graph("main");
  std::vector<ValueId> operands = {graph.add_input("x", {DType::f32, to_shape(test.x)}),
                                   graph.add_input("w", {DType::f32, to_shape(test.other)})};
  if (test.op != Op::conv_weight_gradient)
    operands.push_back(test.bias > 0 ? graph.add_input("bias", {DType::f32, {Dim(test.bias)}}) : kNoValue);
  const ValueId z = graph.add(Op::relu, {graph.add(test.op, operands, test.attrs)});
  graph.add_output(last ? graph.add(Op::transpose, {z}, {{"perm", Ints{0, 2, 3, 1}}}) : z, "z");
  Program program;
  program.entries.push_back(std::move(graph));
  return program;
}

class Tf32Conv : public ::testing::TestWithParam<ConvCase> {};

void expect_rounded_operands(const ConvCase& test, const Program& plain, const std::set<std::string>& skip) {
  Program rounded = plain;
  rounded.entries[0] = multiply_in_tf32(plain.entries[0]);
  std::map<std::string, Array> inputs{{"x", random_array(DType::f32, test.x, 1)},
                                      {"w", random_array(DType::f32, test.other, 2)}};
  if (test.bias > 0) inputs.emplace("bias", random_array(DType::f32, {test.bias}, 3));
  const Array expected = evaluate(rounded, rounded.entries[0], {inputs, {}}).outputs.at("z");
  const Array in_f32 = evaluate(plain, plain.entries[0], {inputs, {}}).outputs.at("z");
  const double tolerance = 4e-6 * std::sqrt(test.depth + 1);
  EXPECT_FALSE(compare(in_f32, expected, tolerance, tolerance).ok());

  CompileOptions options;
  options.precision = Precision::kTf32;
  options.skip_passes = skip;
  const std::unique_ptr<Executable> exe = testing::compiled(plain, options);
  if (exe == nullptr) return;
  const CompareReport report = compare(exe->run("", inputs).at("z"), expected, tolerance, tolerance);
  EXPECT_TRUE(report.ok()) << to_string(report);
}

TEST_P(Tf32Conv, RoundsTheOperandsOfProducts) {
  const ConvCase& test = GetParam();
  expect_rounded_operands(test, conv_of(test), {});
  if (test.x.size() == 4) expect_rounded_operands(test, conv_of(test, true), {});
  if (test.op == Op::conv_transpose)
    expect_rounded_operands(test, conv_of(test), {"decompose_conv_transpose"});
}

INSTANTIATE_TEST_SUITE_P(Convolutions, Tf32Conv, ::testing::ValuesIn(conv_cases()),
                         [](const auto& info) { return std::string(info.param.name); });

bool is_marked(const Graph& graph) { return graph.nodes()[0].attrs.get_bool("tf32"); }

TEST(Tf32Text, DepthwiseConvolutionsStay) {
  const auto depthwise = [](Op op, const Sizes& x, const Sizes& other, Attrs attrs) {
    return conv_of({"", op, x, other, std::move(attrs), 0, 9});
  };
  const Attrs attrs = windows({1, 1}, {1, 1, 1, 1}, {1, 1}, 6);
  for (const Program& program :
       {depthwise(Op::conv, {2, 6, 5, 5}, {12, 1, 3, 3}, attrs),
        depthwise(Op::conv_transpose, {2, 12, 5, 5}, {12, 1, 3, 3},
                  with(attrs, "output_padding", Ints{0, 0})),
        depthwise(Op::conv_weight_gradient, {2, 6, 5, 5}, {2, 12, 5, 5}, with(attrs, "kernel", Shape{3, 3}))})
    EXPECT_FALSE(is_marked(multiply_in_tf32(program.entries[0]))) << print(program);
  EXPECT_TRUE(is_marked(multiply_in_tf32(conv_of(conv_cases()[0]).entries[0])));
}

// The marks of a convolution's gradients are its own.
TEST(Tf32Text, GradientsMultiplyAsTheirOp) {
  for (const bool tf32 : {false, true})
    for (const size_t at :
         {size_t{0}, size_t{6}, size_t{8}}) {  // a weight gradient, one that is a product, transposed
      Program program = conv_of(conv_cases()[at]);
      Graph& graph = program.entries[0];
      if (tf32) graph = multiply_in_tf32(graph);
      const ValueId sum =
          graph.add(Op::reduce_sum, {graph.outputs()[0]}, {{"axes", Ints{0, 1, 2, 3}}, {"keepdims", false}});
      add_gradients(graph, sum, {graph.inputs()[0], graph.inputs()[1]});
      int products = 0;
      for (const Node& node : graph.nodes())
        if (const Attr* mark = node.attrs.find("tf32")) {
          EXPECT_EQ(std::get<bool>(*mark), tf32) << op_info(node.op).name;
          ++products;
        }
      EXPECT_EQ(products, 3);
    }
}

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

TEST(Tf32Text, OnAGpuConvolutionsTakeTensorCores) {
  CompileOptions options;
  options.precision = Precision::kTf32;
  for (const char* target : {"sm_80", "sm_90"})
    for (const ConvCase& test : conv_cases()) {
      options.target = target;
      const std::string text = testing::printed_stage(conv_of(test), "select", options);
      EXPECT_EQ(text.find("conv_simt"), std::string::npos) << text;
      EXPECT_EQ(text.find("round_tf32") != std::string::npos,
                text.find("reads weights rounded") != std::string::npos)
          << text;
    }
}

// What the copy engine brings is rounded in registers; weights are rounded before.
TEST(Tf32Text, OnHopperWeightsAreRoundedFirst) {
  CompileOptions options;
  options.precision = Precision::kTf32;
  for (const char* target : {"sm_80", "sm_90"}) {
    options.target = target;
    const std::string text = testing::printed_stage(conv_of(conv_cases()[0], true), "select", options);
    EXPECT_EQ(text.find("reads weights rounded") != std::string::npos, options.target == "sm_90") << text;
  }
}

// wgmma reads both operands along K, and y rounded: weights, side by side too, at load, others in every run,
// and none where the copies take longer than they save.
TEST(Tf32Text, OnHopperProductsReadRoundedOperandsAlongK) {
  CompileOptions options;
  options.precision = Precision::kTf32;
  options.target = "sm_90";
  const auto printed = [&](const Program& program) {
    return testing::printed_stage(program, "calls", options);
  };
  const auto count = [](const std::string& text, const std::string& word) {
    int found = 0;
    for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
    return found;
  };
  const std::string copy = "reads it rounded, along K", wgmma = "matmul_tensor_core/wgmma";
  const auto weighed = [](int parts) {
    Graph graph("main");
    const ValueId x = graph.add_input("x", {DType::f32, to_shape({1000, 516})});
    Program program;
    std::vector<ValueId> weights;
    for (int i = 0; i < parts; ++i) {
      const std::string name = "w" + std::to_string(i);
      const Array data = random_array(DType::f32, {516, 500 + 3 * i}, static_cast<uint32_t>(i));
      program.variables[name] = {name, Role::kParam, {DType::f32, to_shape(data.sizes())}, data};
      weights.push_back(graph.add_param(name, program.variables[name].type));
    }
    const ValueId w = parts == 1 ? weights[0] : graph.add(Op::concat, weights, {{"axis", int64_t{1}}});
    graph.add_output(graph.add(Op::relu, {graph.add(Op::matmul, {x, w})}), "z");
    program.entries.push_back(std::move(graph));
    return program;
  };
  const std::string one = printed(weighed(1));
  EXPECT_EQ(count(one, wgmma), 1) << one;
  EXPECT_LT(one.find("init"), one.find(copy)) << one;
  EXPECT_EQ(count(one, copy), 1) << one;
  const std::string joined = printed(weighed(3));
  EXPECT_EQ(count(joined, copy), 3) << joined;
  EXPECT_NE(joined.find("+ 517548 [506, 516] by [516, 1]"), std::string::npos) << joined;

  const std::string turned = printed(product_of({"", {1001, 1000}, {1001, 777}, true, false}));
  EXPECT_EQ(turned.find("init"), std::string::npos) << turned;
  EXPECT_EQ(count(turned, copy), 2) << turned;
  EXPECT_NE(turned.find("by [1004, 1]"), std::string::npos) << "rows begin at 16 bytes: " << turned;

  const std::string small = printed(product_of({"", {128, 256}, {256, 128}, false, false}));
  EXPECT_EQ(count(small, copy), 0) << small;
  options.target = "sm_80";
  EXPECT_EQ(count(printed(weighed(1)), copy), 0);
}

// Batch axes of x, of y, of both, and such that either broadcasts; y a weight and not.
TEST(Tf32Text, OnHopperOperandsOfAnyBatchesAreCopied) {
  CompileOptions options;
  options.precision = Precision::kTf32;
  options.target = "sm_90";
  const std::vector<Sizes> batches{{}, {1}, {4}, {3, 1}, {3, 4}};
  int copied = 0;
  for (const Sizes& x_batch : batches)
    for (const Sizes& y_batch : batches)
      for (const bool is_weight : {false, true})
        for (const bool transpose_y : {false, true}) {
          const auto sizes = [](Sizes batch, int64_t rows, int64_t columns) {
            batch.insert(batch.end(), {rows, columns});
            return batch;
          };
          const Sizes y_sizes = transpose_y ? sizes(y_batch, 777, 516) : sizes(y_batch, 516, 777);
          Graph graph("main");
          Program program;
          const ValueId x = graph.add_input("x", {DType::f32, to_shape(sizes(x_batch, 1000, 516))});
          ValueId y = kNoValue;
          if (is_weight) {
            const Array data(DType::f32, y_sizes);
            program.variables["w"] = {"w", Role::kParam, {DType::f32, to_shape(y_sizes)}, data};
            y = graph.add_param("w", program.variables["w"].type);
          } else {
            y = graph.add_input("y", {DType::f32, to_shape(y_sizes)});
          }
          graph.add_output(graph.add(Op::matmul, {x, y}, {{"transpose_y", transpose_y}}), "z");
          program.entries.push_back(std::move(graph));
          const std::string text = testing::printed_stage(program, "calls", options);
          copied += text.find("reads it rounded, along K") != std::string::npos;
        }
  EXPECT_GT(copied, 80);
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
}  // namespace aicf::tf32_test
