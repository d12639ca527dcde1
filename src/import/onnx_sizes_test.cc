// Symbolic sizes of an imported model: named, checked, kept in shape arithmetic, or refused.
#include <gtest/gtest.h>

#include "import/testing/import_model.h"

namespace aicf {
namespace {

using namespace onnx_test;  // NOLINT: the writer's short names are the point

TEST(OnnxSizes, SizesAreListedWhenUnsetAndCheckedWhenUnknown) {
  Model m = mlp();
  m.inputs.push_back(value_info("z", DType::f32, {""}));
  const UserError unset = error_of(m);
  EXPECT_EQ(unset.code, ErrorCode::kU_unset_size);
  EXPECT_EQ(unset.value, "batch, z:0");
  EXPECT_EQ(error_of(m, with_dims({{"batch", "1"}, {"z:0", "2"}, {"nope", "3"}})).code,
            ErrorCode::kU_bad_option);
  const Program program = import_model(m, with_dims({{"batch", "4"}, {"z:0", "batch"}}));
  EXPECT_EQ(program.entries[0].shape(program.entries[0].inputs()[1]), Shape{Dim(4)});
  EXPECT_THROW(parse_dim_option("8..2"), UserError);
  EXPECT_THROW(parse_dim_option("8,,2"), UserError);
}

TEST(OnnxSizes, AreNumbersNamesOrArithmetic) {
  for (const char* text : {"nix*", "(a", "a b", "+8", "a**b", "*"}) {
    const UserError error = error_of(mlp(), with_dims({{"batch", text}}));
    EXPECT_EQ(error.code, ErrorCode::kU_bad_option) << text;
    EXPECT_EQ(error.value, text);
  }
  for (const char* text : {"nix", "2*nix"}) {
    const UserError error = error_of(mlp(), with_dims({{"batch", text}}));
    EXPECT_EQ(error.code, ErrorCode::kU_unset_size) << text;
    EXPECT_EQ(error.value, "nix");
  }
}

// What a model calls a size is its name, whatever it looks like.
TEST(OnnxSizes, MayHaveNamesThatLookLikeArithmetic) {
  for (const char* name : {"rows/2", "a//b", "-1", "two words", "nix*"}) {
    Model m = mlp();
    m.inputs[0] = value_info("x", DType::f32, {name, "2"});
    const UserError unset = error_of(m);
    EXPECT_EQ(unset.code, ErrorCode::kU_unset_size) << name;
    EXPECT_EQ(unset.value, name);
    for (const auto& dims : {with_dims({{name, "3"}}), with_dims({{"x:0", "3"}})}) {
      const Program program = import_model(m, dims);
      EXPECT_EQ(program.entries[0].shape(program.entries[0].inputs()[0])[0], Dim(3)) << name;
    }
  }
}

TEST(OnnxSizes, AnAxisMayHaveOneSizeOnlyByItsNameAndByItsNumber) {
  const UserError error = error_of(mlp(), with_dims({{"batch", "2"}, {"x:0", "3"}}));
  EXPECT_EQ(error.code, ErrorCode::kU_bad_option);
  EXPECT_EQ(error.value, "batch and x:0");
  EXPECT_EQ(error_of(mlp(), with_dims({{"batch", "1..8"}, {"x:0", "3"}})).code, ErrorCode::kU_bad_option);
  for (const char* same : {"2", "batch"}) {
    const Program program = import_model(mlp(), with_dims({{"batch", "2"}, {"x:0", same}}));
    EXPECT_EQ(program.entries[0].shape(program.entries[0].inputs()[0])[0], Dim(2));
  }
}

TEST(OnnxSizes, ShapeArithmeticStaysSymbolicAndLeavesNoTrace) {
  Model m;
  m.inputs = {value_info("x", DType::f32, {"batch", "sequence", "12"})};
  m.initializers = {tensor("zero", Array::scalar_i64(DType::i64, 0)), tensor("tail", ints({-1, 4})),
                    tensor("axes", ints({0}))};
  m.nodes = {node("Shape", {"x"}, {"s"}), node("Gather", {"s", "zero"}, {"b"}),
             node("Unsqueeze", {"b", "axes"}, {"b1"}),
             node("Concat", {"b1", "tail"}, {"shape"}, {attr("axis", int64_t{0})}),
             node("Reshape", {"x", "shape"}, {"y"})};
  m.outputs = {out("y")};
  const Program program = import_model(m, with_dims({{"batch", "1..8"}, {"sequence", "16..512"}}));
  const Graph& graph = program.entries[0];
  ASSERT_EQ(graph.nodes().size(), 1u);
  EXPECT_EQ(to_string(graph.shape(graph.outputs()[0])), "[batch, 3*sequence, 4]");
}

// What fills the last axis up to a multiple of four: pads in torch's order, turned into that of ONNX.
TEST(OnnxSizes, PadsCountedFromSizesStaySymbolic) {
  Model m;
  m.inputs = {value_info("x", DType::f32, {"n", "t"})};
  m.initializers = {tensor("one", ints({1})),       tensor("four", ints({4})),
                    tensor("none", ints({0})),      tensor("two", ints({0, 0})),
                    tensor("pairs", ints({-1, 2})), tensor("last", ints({-1})),
                    tensor("first", ints({-1000})), tensor("shape", ints({0, -1, 4}))};
  m.nodes = {node("Shape", {"x"}, {"s"}),
             node("Gather", {"s", "one"}, {"t"}),
             node("Neg", {"t"}, {"minus"}),
             node("Mod", {"minus", "four"}, {"p"}),
             node("Concat", {"none", "p", "two"}, {"list"}, {attr("axis", int64_t{0})}),
             node("Reshape", {"list", "pairs"}, {"rows"}),
             node("Slice", {"rows", "last", "first", "none", "last"}, {"turned"}),
             node("Transpose", {"turned"}, {"columns"}),
             node("Reshape", {"columns", "last"}, {"pads"}),
             node("Pad", {"x", "pads"}, {"padded"}),
             node("Reshape", {"padded", "shape"}, {"y"})};
  m.outputs = {out("y")};
  const Program program = import_model(m, with_dims({{"n", "1..8"}, {"t", "1..9"}}));
  EXPECT_EQ(program.entries[0].nodes().size(), 2u);  // pad, reshape
  EXPECT_EQ(to_string(program.entries[0].shape(program.entries[0].outputs()[0])), "[n, floordiv(t+3, 4), 4]");
  EXPECT_EQ(run(program, {{"x", floats({1, 5}, {1, 2, 3, 4, 5})}}).at("y"),
            floats({1, 2, 4}, {1, 2, 3, 4, 5, 0, 0, 0}));
}

// ONNX divides towards zero.
TEST(OnnxSizes, QuotientsOfSizesBelowZeroAreTruncated) {
  Model m;
  m.inputs = {value_info("x", DType::f32, {"n"})};
  m.initializers = {tensor("three", ints({3})), tensor("two", ints({2})), tensor("minus", ints({-10}))};
  m.nodes = {node("Shape", {"x"}, {"s"}),
             node("Sub", {"three", "s"}, {"d"}),
             node("Div", {"d", "two"}, {"q"}),
             node("Sub", {"minus", "s"}, {"below"}),
             node("Div", {"below", "two"}, {"r"}),
             node("Concat", {"q", "r"}, {"i"}, {attr("axis", int64_t{0})}),
             node("Cast", {"i"}, {"y"}, {attr("to", int64_t{1})})};
  m.outputs = {out("y")};
  const Program program = import_model(m, with_dims({{"n", "1..8"}}));
  EXPECT_EQ(run(program, {{"x", floats({1}, {0})}}).at("y"), floats({2}, {1, -5}));
  EXPECT_EQ(run(program, {{"x", floats({5}, {0, 0, 0, 0, 0})}}).at("y"), floats({2}, {-1, -7}));
  EXPECT_EQ(run(program, {{"x", floats({6}, {0, 0, 0, 0, 0, 0})}}).at("y"), floats({2}, {-1, -8}));
}

TEST(OnnxSizes, ASizeUsedAsDataBecomesSizeOf) {
  Model m;
  m.inputs = {value_info("x", DType::f32, {"batch"})};
  m.nodes = {node("Size", {"x"}, {"n"}), node("Cast", {"n"}, {"f"}, {attr("to", int64_t{1})}),
             node("Div", {"x", "f"}, {"y"})};
  m.outputs = {out("y")};
  const Program program = import_model(m, with_dims({{"batch", "1..8"}}));
  EXPECT_TRUE(has_op(program, Op::size_of));
  EXPECT_EQ(run(program, {{"x", floats({2}, {2, 4})}}).at("y"), floats({2}, {1, 2}));
}

TEST(OnnxSizes, AnInputThatDecidesAShapeIsNamedAndCanBeGiven) {
  Model m;
  m.inputs = {value_info("x", DType::f32, {"4"}), value_info("shape", DType::i64, {"2"})};
  m.nodes = {node("Reshape", {"x", "shape"}, {"y"})};
  m.outputs = {out("y")};
  const UserError error = error_of(m);
  EXPECT_EQ(error.code, ErrorCode::kU_size_not_static);
  EXPECT_EQ(error.value, "shape");
  ImportOptions options;
  options.input_values["shape"] = ints({2, -1});
  const Program program = import_model(m, options);
  EXPECT_EQ(program.entries[0].inputs().size(), 2u);
  EXPECT_EQ(run(program, {{"x", floats({4}, {1, 2, 3, 4})}, {"shape", ints({2, -1})}}).at("y").sizes(),
            (std::vector<int64_t>{2, 2}));
}

// torch's squeeze of an axis that may be of size one or not.
TEST(OnnxSizes, ASqueezedSizeMustBeKnown) {
  Model m;
  m.inputs = {value_info("x", DType::f32, {"4", "k"})};
  m.initializers = {tensor("axes", ints({1}))};
  m.nodes = {node("Squeeze", {"x", "axes"}, {"y"})};
  m.outputs = {out("y")};
  const UserError error = error_of(m, with_dims({{"k", "1..4"}}));
  EXPECT_EQ(error.code, ErrorCode::kU_size_not_static);
  EXPECT_EQ(error.actual, "k");
  EXPECT_EQ(error_of(m, with_dims({{"k", "2"}})).code, ErrorCode::kU_bad_model_file);
}

TEST(OnnxSizes, ConstantSubgraphsThatDecideShapesAreFolded) {
  Model m;
  m.inputs = {value_info("x", DType::f32, {"1", "1", "2", "2"})};
  m.initializers = {tensor("half", floats({4}, {0.5, 0.5, 1, 1}))};
  m.nodes = {node("Add", {"half", "half"}, {"scales"}), node("Resize", {"x", "", "scales"}, {"y"})};
  m.outputs = {out("y")};
  const Program program = import_model(m);
  EXPECT_TRUE(program.variables.empty());
  EXPECT_EQ(run(program, {{"x", floats({1, 1, 2, 2}, {1, 2, 3, 4})}}).at("y"),
            floats({1, 1, 4, 4}, {1, 1, 2, 2, 1, 1, 2, 2, 3, 3, 4, 4, 3, 3, 4, 4}));
}

TEST(OnnxSizes, AStateHasAFixedShape) {
  Model m;
  m.inputs = {value_info("past", DType::f32, {"n", "2"})};
  m.nodes = {node("Relu", {"past"}, {"present"})};
  m.outputs = {out("present")};
  ImportOptions options = with_dims({{"n", "1..4"}});
  options.states = {{"past", "present"}};
  const UserError error = error_of(m, options);
  EXPECT_EQ(error.code, ErrorCode::kU_bad_shape);
  EXPECT_EQ(error.op, "past");
  EXPECT_EQ(error.actual, "[n, 2]");
  options.dims = with_dims({{"n", "4"}}).dims;
  EXPECT_EQ(import_model(m, options).variables.count("past"), 1u);
}

}  // namespace
}  // namespace aicf
