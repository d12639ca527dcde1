#include "import/onnx.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/atomic_file.h"
#include "base/error.h"
#include "import/testing/onnx_model.h"
#include "ir/reference/evaluator.h"
#include "ir/verify.h"

namespace aicf {
namespace {

using namespace onnx_test;  // NOLINT: the writer's short names are the point

Array floats(std::vector<int64_t> sizes, const std::vector<double>& values) {
  return Array::from<double>(DType::f32, std::move(sizes), values);
}
Array ints(const std::vector<int64_t>& values) {
  return Array::from<int64_t>(DType::i64, {static_cast<int64_t>(values.size())}, values);
}

std::string out(const std::string& name) { return value_info(name, DType::f32, {}); }

ImportOptions with_dims(const std::vector<std::pair<std::string, std::string>>& dims) {
  ImportOptions options;
  for (const auto& [name, text] : dims) options.dims[name] = parse_dim_option(text);
  return options;
}

Program import_model(const Model& model, const ImportOptions& options = {}) {
  Program program = import_onnx_bytes(model.bytes(), options);
  verify(program, Fault::kInternal);
  return program;
}

std::map<std::string, Array> run(const Program& program, std::map<std::string, Array> inputs) {
  return evaluate(program, program.entries[0], {std::move(inputs), {}}).outputs;
}

UserError error_of(const Model& model, const ImportOptions& options = {}) {
  try {
    import_model(model, options);
  } catch (const UserError& error) {
    return error;
  }
  ADD_FAILURE() << "imported without an error";
  return UserError(ErrorCode::kU_misuse, "none");
}

bool has_op(const Program& program, Op op) {
  for (const Node& node : program.entries[0].nodes())
    if (node.op == op) return true;
  return false;
}

Model mlp() {
  Model m;
  m.inputs = {value_info("x", DType::f32, {"batch", "2"})};
  m.initializers = {tensor("w", floats({2, 2}, {1, 2, 3, 4})), tensor("b", floats({2}, {0.5, -20}))};
  m.nodes = {node("Gemm", {"x", "w", "b"}, {"h"}), node("Relu", {"h"}, {"y"})};
  m.outputs = {out("y")};
  return m;
}

TEST(OnnxImport, MlpKeepsWeightsAsParamsAndTheBatchSymbolic) {
  const Program program = import_model(mlp(), with_dims({{"batch", "1..8"}}));
  EXPECT_EQ(program.variables.count("w"), 1u);
  EXPECT_EQ(program.variables.at("b").role, Role::kParam);
  EXPECT_EQ(program.sizes.at("batch"), (Interval{1, 8}));
  EXPECT_EQ(run(program, {{"x", floats({1, 2}, {1, 1})}}).at("y"), floats({1, 2}, {4.5, 0}));
}

TEST(OnnxImport, SizesAreListedWhenUnsetAndCheckedWhenUnknown) {
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

TEST(OnnxImport, AnAxisMayHaveOneSizeOnlyByItsNameAndByItsNumber) {
  const UserError error = error_of(mlp(), with_dims({{"batch", "2"}, {"x:0", "3"}}));
  EXPECT_EQ(error.code, ErrorCode::kU_bad_option);
  EXPECT_EQ(error.value, "batch and x:0");
  EXPECT_EQ(error_of(mlp(), with_dims({{"batch", "1..8"}, {"x:0", "3"}})).code, ErrorCode::kU_bad_option);
  for (const char* same : {"2", "batch"}) {
    const Program program = import_model(mlp(), with_dims({{"batch", "2"}, {"x:0", same}}));
    EXPECT_EQ(program.entries[0].shape(program.entries[0].inputs()[0])[0], Dim(2));
  }
}

TEST(OnnxImport, ShapeArithmeticStaysSymbolicAndLeavesNoTrace) {
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
TEST(OnnxImport, PadsCountedFromSizesStaySymbolic) {
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
TEST(OnnxImport, QuotientsOfSizesBelowZeroAreTruncated) {
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

TEST(OnnxImport, ASizeUsedAsDataBecomesSizeOf) {
  Model m;
  m.inputs = {value_info("x", DType::f32, {"batch"})};
  m.nodes = {node("Size", {"x"}, {"n"}), node("Cast", {"n"}, {"f"}, {attr("to", int64_t{1})}),
             node("Div", {"x", "f"}, {"y"})};
  m.outputs = {out("y")};
  const Program program = import_model(m, with_dims({{"batch", "1..8"}}));
  EXPECT_TRUE(has_op(program, Op::size_of));
  EXPECT_EQ(run(program, {{"x", floats({2}, {2, 4})}}).at("y"), floats({2}, {1, 2}));
}

TEST(OnnxImport, AnInputThatDecidesAShapeIsNamedAndCanBeGiven) {
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

TEST(OnnxImport, AllUnsupportedOpsAreReportedAtOnce) {
  Model m;
  m.inputs = {value_info("x", DType::f32, {"4"})};
  m.nodes = {node("Unheard", {"x"}, {"a"}), node("Relu", {"a"}, {"b"}),
             node("Unheard", {"b"}, {"c"}), node("Gelu", {"x"}, {"d"}, {attr("stray", int64_t{1})}),
             node("Unique", {"x"}, {"e"}),  node("Foreign", {"c"}, {"y"}, {}, "some.domain")};
  m.outputs = {out("y")};
  const UserError error = error_of(m);
  EXPECT_EQ(error.code, ErrorCode::kU_unsupported_op);
  for (const char* part : {"Unheard (2, first 'Unheard_a')", "Gelu (1", "attribute 'stray'",
                           "size depends on data", "some.domain.Foreign (1"})
    EXPECT_NE(error.message.find(part), std::string::npos) << part << " in " << error.message;
}

// torch's squeeze of an axis that may be of size one or not.
TEST(OnnxImport, ASqueezedSizeMustBeKnown) {
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

TEST(OnnxImport, StatesPairAnOutputWithAnInput) {
  Model m;
  m.inputs = {value_info("x", DType::f32, {"2"}), value_info("past", DType::f32, {"2"})};
  m.nodes = {node("Add", {"x", "past"}, {"present"}), node("Neg", {"present"}, {"y"})};
  m.outputs = {out("y"), out("present")};
  ImportOptions options;
  options.states = {{"past", "present"}};
  const Program program = import_model(m, options);
  EXPECT_EQ(program.variables.at("past").role, Role::kState);
  EXPECT_EQ(program.entries[0].output_names(), std::vector<std::string>{"y"});
  const EvalResult result = evaluate(program, program.entries[0], {{{"x", floats({2}, {1, 2})}}, {}});
  EXPECT_EQ(result.updated.at("past"), floats({2}, {1, 2}));
  options.states = {{"past", "nope"}};
  EXPECT_EQ(error_of(m, options).code, ErrorCode::kU_unknown_input);
}

TEST(OnnxImport, SoftmaxBefore13FlattensTheTrailingAxes) {
  Model m;
  m.inputs = {value_info("x", DType::f32, {"1", "2", "2"})};
  m.nodes = {node("Softmax", {"x"}, {"y"})};
  m.outputs = {out("y")};
  const Array zeros(DType::f32, {1, 2, 2});
  m.opset = 11;
  EXPECT_EQ(run(import_model(m), {{"x", zeros}}).at("y"), floats({1, 2, 2}, {0.25, 0.25, 0.25, 0.25}));
  m.opset = 13;
  EXPECT_EQ(run(import_model(m), {{"x", zeros}}).at("y"), floats({1, 2, 2}, {0.5, 0.5, 0.5, 0.5}));
  m.opset = 5;
  EXPECT_EQ(error_of(m).code, ErrorCode::kU_unsupported_opset);
}

TEST(OnnxImport, FunctionBodiesAreExpandedWithTheirAttributes) {
  std::string function;
  Writer w(function);
  w.add_string(1, "Leaky");
  w.add_string(4, "a");
  w.add_string(5, "b");
  w.add_string(6, "slope");
  w.add_message(7, node("LeakyRelu", {"a"}, {"b"}, {ref_attr("alpha", "slope", 1)}));
  Model::add_opset(w, 9, "", 21);
  w.add_string(10, "local");
  Model m;
  m.functions = {function};
  m.inputs = {value_info("x", DType::f32, {"1"})};
  m.nodes = {node("Leaky", {"x"}, {"h"}, {attr("slope", 0.5f)}, "local"),
             node("Leaky", {"h"}, {"y"}, {}, "local")};
  m.outputs = {out("y")};
  EXPECT_EQ(run(import_model(m), {{"x", floats({1}, {-4})}}).at("y"), floats({1}, {-0.02}));
}

TEST(OnnxImport, IfOnDataBecomesIfElseWithCaptures) {
  Model then_branch, else_branch;
  then_branch.nodes = {node("Add", {"x", "w"}, {"t"})};
  then_branch.outputs = {out("t")};
  else_branch.nodes = {node("Neg", {"x"}, {"e"})};
  else_branch.outputs = {out("e")};
  Model m;
  m.inputs = {value_info("c", DType::boolean, {}), value_info("x", DType::f32, {"1"})};
  m.initializers = {tensor("w", floats({1}, {10}))};
  m.nodes = {
      node("If", {"c"}, {"y"},
           {graph_attr("then_branch", then_branch.graph()), graph_attr("else_branch", else_branch.graph())})};
  m.outputs = {out("y")};
  const Program program = import_model(m);
  EXPECT_TRUE(has_op(program, Op::if_else));
  for (int64_t c : {0, 1})
    EXPECT_EQ(run(program, {{"c", Array::scalar_i64(DType::boolean, c)}, {"x", floats({1}, {1})}}).at("y"),
              floats({1}, {c ? 11.0 : -1.0}));
}

// Weights standardised by a BatchNormalization in training, as torch exports them: nobody reads the
// statistics.
TEST(OnnxImport, StatisticsOfATrainingNormNeedNoReader) {
  Model m;
  m.inputs = {value_info("x", DType::f32, {"1", "2", "2"})};
  m.initializers = {tensor("ones", floats({2}, {1, 1})), tensor("zeros", floats({2}, {0, 0}))};
  m.nodes = {node("BatchNormalization", {"x", "ones", "zeros", "zeros", "ones"}, {"y", "mean", "variance"},
                  {attr("training_mode", int64_t{1})})};
  m.outputs = {out("y")};
  const Array y = run(import_model(m), {{"x", floats({1, 2, 2}, {1, 3, 5, 9})}}).at("y");
  EXPECT_NEAR(y.get_f64(1), 1, 1e-4);
  EXPECT_NEAR(y.get_f64(2), -1, 1e-4);
}

TEST(OnnxImport, OldDropoutIsOffWhereItSaysSo) {
  Model m;
  m.opset = 6;
  m.inputs = {value_info("x", DType::f32, {"2"})};
  m.nodes = {node("Dropout", {"x"}, {"y"}, {attr("is_test", int64_t{1})})};
  m.outputs = {out("y")};
  EXPECT_EQ(run(import_model(m), {{"x", floats({2}, {1, 2})}}).at("y"), floats({2}, {1, 2}));
  m.nodes = {node("Dropout", {"x"}, {"y"}, {attr("is_test", int64_t{0})})};
  EXPECT_EQ(error_of(m).code, ErrorCode::kU_unsupported_op);
}

TEST(OnnxImport, UnreadInitialisersMayHaveAnyType) {
  Model m;
  std::string text;  // of strings
  Writer w(text);
  w.add_int64(1, 0);
  w.add_int32(2, 8);
  w.add_string(8, "names");
  m.initializers = {text};
  m.inputs = {value_info("x", DType::f32, {"2"})};
  m.nodes = {node("Neg", {"x"}, {"y"})};
  m.outputs = {out("y")};
  EXPECT_EQ(run(import_model(m), {{"x", floats({2}, {1, 2})}}).at("y"), floats({2}, {-1, -2}));
  m.nodes.push_back(node("Identity", {"names"}, {"z"}));
  EXPECT_EQ(error_of(m).code, ErrorCode::kU_unsupported_op);
}

// The stack of what each step gives has no place to be, but nobody reads it.
TEST(OnnxImport, UnreadOutputsAreNotAskedFor) {
  Model body, m;
  body.inputs = {value_info("i", DType::i64, {}), value_info("go", DType::boolean, {}),
                 value_info("a", DType::f32, {"1"})};
  body.nodes = {node("Identity", {"go"}, {"go_on"}), node("Neg", {"a"}, {"b"})};
  body.outputs = {out("go_on"), out("b"), out("b")};
  m.inputs = {value_info("n", DType::i64, {}), value_info("x", DType::f32, {"1"})};
  m.nodes = {node("Loop", {"n", "", "x"}, {"y", "steps"}, {graph_attr("body", body.graph())})};
  m.outputs = {out("y")};
  const Program program = import_model(m);
  EXPECT_TRUE(has_op(program, Op::while_loop));
  for (int64_t count : {0, 1, 5})
    EXPECT_EQ(run(program, {{"n", Array::scalar_i64(DType::i64, count)}, {"x", floats({1}, {2})}}).at("y"),
              floats({1}, {count % 2 ? -2.0 : 2.0}));
  m.outputs.push_back(out("steps"));
  EXPECT_EQ(error_of(m).code, ErrorCode::kU_size_not_static);
}

TEST(OnnxImport, ConstantSubgraphsThatDecideShapesAreFolded) {
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

TEST(OnnxImport, AStateHasAFixedShape) {
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

// A model whose first weight is not in it, but in the file `location`.
Model mlp_with_external_weight(const std::string& location) {
  std::string proto, entry;
  Writer e(entry);
  e.add_string(1, "location");
  e.add_string(2, location);
  Writer w(proto);
  w.add_int64(1, 2);
  w.add_int64(1, 2);
  w.add_int32(2, 1);
  w.add_string(8, "w");
  w.add_message(13, entry);
  for (const auto& [key, value] : {std::pair("offset", "4"), std::pair("length", "16")}) {
    std::string pair;
    Writer p(pair);
    p.add_string(1, key);
    p.add_string(2, value);
    w.add_message(13, pair);
  }
  w.add_int32(14, 1);
  Model m = mlp();
  m.initializers[0] = proto;
  return m;
}

UserError external_error(const std::string& location) {
  try {
    import_onnx_bytes(mlp_with_external_weight(location).bytes(), with_dims({{"batch", "1"}}),
                      ::testing::TempDir());
  } catch (const UserError& error) {
    return error;
  }
  return UserError(ErrorCode::kU_misuse, "none");
}

TEST(OnnxImport, ExternalDataStaysInsideTheFolder) {
  for (const char* location : {"../secret", "/etc/passwd", "a/../../b"})
    EXPECT_EQ(external_error(location).code, ErrorCode::kU_path_escape) << location;
}

TEST(OnnxImport, AnExternalFileThatIsTooShortIsNamedWithItsSize) {
  const std::string name = "onnx_external_weight.bin", path = ::testing::TempDir() + "/" + name;
  for (const int size : {0, 3, 19}) {
    write_file_atomically(path, std::string(static_cast<size_t>(size), 'x'));
    const UserError error = external_error(name);
    EXPECT_EQ(error.code, ErrorCode::kU_bad_model_file) << size;
    EXPECT_NE(error.value.find(name), std::string::npos) << error.value;
    EXPECT_EQ(error.expected, "16 bytes from byte 4");
    EXPECT_EQ(error.actual, "a file of " + std::to_string(size) + " bytes");
  }
  write_file_atomically(path, std::string(20, 'x'));
  EXPECT_EQ(external_error(name).code, ErrorCode::kU_misuse);  // none: it is long enough
  std::filesystem::remove(path);
}

TEST(OnnxImport, SparseInitialisersBecomeDense) {
  const Array values = floats({3}, {1, 2, 3});
  const auto with = [&](const Array& indices, const std::vector<int64_t>& sizes = {2, 2}) {
    Model m = mlp();
    m.initializers.erase(m.initializers.begin());
    m.sparse_initializers = {sparse_tensor("w", values, indices, sizes)};
    return m;
  };
  const Array pairs = Array::from<int64_t>(DType::i64, {3, 2}, {0, 0, 0, 1, 1, 1});
  for (const Array& indices : {ints({0, 1, 3}), pairs})
    EXPECT_EQ(import_model(with(indices), with_dims({{"batch", "1"}})).variables.at("w").data,
              floats({2, 2}, {1, 2, 0, 3}));
  for (const Array& indices : {ints({0, 1, 4}), ints({-1, 0, 1}), ints({1, 0, 2}), ints({0, 0, 1}),
                               ints({0, 1}), Array::from<int64_t>(DType::i64, {3, 2}, {0, 0, 0, 2, 1, 1}),
                               Array::from<int64_t>(DType::i64, {3, 1}, {0, 1, 2})})
    EXPECT_EQ(error_of(with(indices), with_dims({{"batch", "1"}})).code, ErrorCode::kU_bad_model_file);
  EXPECT_EQ(error_of(with(ints({0, 1, 3}), {2, -2}), with_dims({{"batch", "1"}})).code,
            ErrorCode::kU_bad_model_file);
  EXPECT_EQ(error_of(with(ints({0, 1, 3}), {int64_t{1} << 40, 2}), with_dims({{"batch", "1"}})).code,
            ErrorCode::kU_over_limit);
}

TEST(OnnxImport, TruncatedAndForeignFilesAreCodedErrors) {
  const std::string bytes = mlp().bytes();
  const ImportOptions options = with_dims({{"batch", "1"}});
  for (size_t size = 0; size < bytes.size(); ++size) {
    try {
      import_onnx_bytes(std::string_view(bytes).substr(0, size), options);
    } catch (const UserError&) {
    }
  }
  std::string flipped = bytes;
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (unsigned char bit : {0x01, 0x80}) {
      flipped[i] = static_cast<char>(static_cast<unsigned char>(bytes[i]) ^ bit);
      try {
        import_onnx_bytes(flipped, options);
      } catch (const UserError&) {
      }
    }
    flipped[i] = bytes[i];
  }
  EXPECT_THROW(import_onnx_bytes("PK\x03\x04 not a model", options), UserError);
}

// Small files that would grow without end: repeated squaring of a size, functions that double their calls.
TEST(OnnxImport, HostileGrowthIsBounded) {
  Model m;
  m.inputs = {value_info("x", DType::f32, {"batch", "n"})};
  m.nodes = {node("Size", {"x"}, {"s0"})};
  for (int i = 0; i < 40; ++i)
    m.nodes.push_back(
        node("Mul", {"s" + std::to_string(i), "s" + std::to_string(i)}, {"s" + std::to_string(i + 1)}));
  m.outputs = {value_info("s40", DType::i64, {})};
  import_model(m, with_dims({{"batch", "1..8"}, {"n", "1..8"}}));

  Model calls;
  for (int i = 0; i < 60; ++i) {
    std::string function;
    Writer w(function);
    w.add_string(1, "F" + std::to_string(i));
    w.add_string(4, "a");
    w.add_string(5, "c");
    const std::string next = i == 59 ? "Identity" : "F" + std::to_string(i + 1),
                      domain = i == 59 ? "" : "local";
    w.add_message(7, node(next, {"a"}, {"b"}, {}, domain));
    w.add_message(7, node(next, {"b"}, {"c"}, {}, domain));
    Model::add_opset(w, 9, "", 21);
    Model::add_opset(w, 9, "local", 1);
    w.add_string(10, "local");
    calls.functions.push_back(function);
  }
  calls.inputs = {value_info("x", DType::f32, {"1"})};
  calls.nodes = {node("F0", {"x"}, {"y"}, {}, "local")};
  calls.outputs = {out("y")};
  EXPECT_EQ(error_of(calls).code, ErrorCode::kU_bad_model_file);
}

// A shape that decides only after a product of hours.
TEST(OnnxImport, FoldedWorkIsBounded) {
  Model m;
  m.inputs = {value_info("x", DType::f32, {"4"})};
  m.initializers = {tensor("sizes", ints({4096, 4096})), tensor("axes", ints({0}))};
  m.nodes = {node("ConstantOfShape", {"sizes"}, {"a"}),
             node("MatMul", {"a", "a"}, {"b"}),
             node("ReduceMax", {"b"}, {"c"}, {attr("keepdims", int64_t{0})}),
             node("Cast", {"c"}, {"d"}, {attr("to", int64_t{7})}),
             node("Unsqueeze", {"d", "axes"}, {"e"}),
             node("Reshape", {"x", "e"}, {"y"})};
  m.outputs = {out("y")};
  EXPECT_EQ(error_of(m).code, ErrorCode::kU_size_not_static);
}

// Operands of the wrong rank or count, where a converter looks at a certain axis or element.
TEST(OnnxImport, OperandsOfTheWrongRankAreCodedErrors) {
  const auto with = [](const std::string& op, const std::vector<std::vector<std::string>>& shapes,
                       const std::vector<std::string>& outputs = {"y"}) {
    Model m;
    std::vector<std::string> names;
    for (size_t i = 0; i < shapes.size(); ++i) {
      names.push_back("x" + std::to_string(i));
      m.inputs.push_back(value_info(names.back(), DType::f32, shapes[i]));
    }
    m.nodes = {node(op, names, outputs)};
    m.outputs = {out("y")};
    return m;
  };
  for (const char* op : {"LSTM", "GRU", "RNN"}) {
    EXPECT_EQ(error_of(with(op, {{"3", "1", "2"}, {"1", "28", "2"}, {"28", "7"}})).code,
              ErrorCode::kU_bad_model_file);
    EXPECT_EQ(error_of(with(op, {{"3"}, {"1", "28", "2"}, {"1", "28", "7"}})).code,
              ErrorCode::kU_bad_model_file);
  }
  EXPECT_EQ(error_of(with("Einsum", {})).code, ErrorCode::kU_bad_model_file);
  EXPECT_EQ(error_of(with("InstanceNormalization", {{"3"}, {"3"}, {"3"}})).code,
            ErrorCode::kU_bad_model_file);

  for (const char* op : {"Range", "HannWindow", "DepthToSpace"}) {
    Model m;
    m.initializers = {tensor("none", floats({0}, {})), tensor("no_ints", ints({})),
                      tensor("x", floats({1, 4, 1, 1}, {1, 2, 3, 4}))};
    if (std::string(op) == "DepthToSpace")
      m.nodes = {node(op, {"x"}, {"y"}, {attr("blocksize", int64_t{1} << 40)})};
    else
      m.nodes = {node(op,
                      std::string(op) == "Range" ? std::vector<std::string>{"none", "none", "none"}
                                                 : std::vector<std::string>{"no_ints"},
                      {"y"})};
    m.outputs = {out("y")};
    error_of(m);
  }
}

// What the fuzzer once broke the importer with: it may be refused, with a code that does not blame us.
TEST(OnnxImport, FoundInputsAreRefusedOrImported) {
  int files = 0;
  for (const auto& file :
       std::filesystem::directory_iterator(AICF_SOURCE_DIR "/fuzz/regressions/fuzz_onnx")) {
    ++files;
    try {
      import_onnx(file.path().string());
    } catch (const Error& error) {
      EXPECT_NE(error.kind(), ErrorKind::kInternal) << file.path() << ": " << error.what();
    }
  }
  EXPECT_GE(files, 6);
}

TEST(OnnxImport, SupportListsWithoutSizes) {
  const auto path = std::filesystem::temp_directory_path() / "aicf_support_test.onnx";
  Model m = mlp();
  m.nodes.push_back(node("Unheard", {"h"}, {"z"}));
  write_file_atomically(path.string(), m.bytes());
  const auto list = support_onnx(path.string());
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].op, "Unheard");
  EXPECT_EQ(dynamic_dims_onnx(path.string()).at(0).name, "batch");
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace aicf
