// What an imported model means; sizes are in onnx_sizes_test.cc, bad files in onnx_hostile_test.cc.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/atomic_file.h"
#include "import/testing/import_model.h"

namespace aicf {
namespace {

using namespace onnx_test;  // NOLINT: the writer's short names are the point

TEST(OnnxImport, MlpKeepsWeightsAsParamsAndTheBatchSymbolic) {
  const Program program = import_model(mlp(), with_dims({{"batch", "1..8"}}));
  EXPECT_EQ(program.variables.count("w"), 1u);
  EXPECT_EQ(program.variables.at("b").role, Role::kParam);
  EXPECT_EQ(program.sizes.at("batch"), (Interval{1, 8}));
  EXPECT_EQ(run(program, {{"x", floats({1, 2}, {1, 1})}}).at("y"), floats({1, 2}, {4.5, 0}));
}

TEST(OnnxImport, AllUnsupportedOpsAreReportedAtOnce) {
  Model m;
  m.inputs = {value_info("x", DType::f32, {"4"})};
  m.nodes = {node("Unheard", {"x"}, {"a"}), node("Relu", {"a"}, {"b"}),
             node("Unheard", {"b"}, {"c"}), node("Gelu", {"x"}, {"d"}, {attr("stray", int64_t{1})}),
             node("Unique", {"x"}, {"e"}),  node("Foreign", {"c"}, {"y"}, {}, "some.domain")};
  m.outputs = {out("y"), out("d"), out("e")};
  const UserError error = error_of(m);
  EXPECT_EQ(error.code, ErrorCode::kU_unsupported_op);
  for (const char* part : {"Unheard (2, first 'Unheard_a')", "Gelu (1", "attribute 'stray'",
                           "size depends on data", "some.domain.Foreign (1"})
    EXPECT_NE(error.message.find(part), std::string::npos) << part << " in " << error.message;
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
  import_model(m);  // nor does an output need this one
  m.outputs.push_back(out("z"));
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

TEST(OnnxImport, SupportListsWithoutSizes) {
  const auto path = std::filesystem::temp_directory_path() / "aicf_support_test.onnx";
  Model m = mlp();
  m.nodes.push_back(node("Unheard", {"h"}, {"z"}));
  m.outputs.push_back(out("z"));
  write_file_atomically(path.string(), m.bytes());
  const auto list = support_onnx(path.string()).unsupported;
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].op, "Unheard");
  EXPECT_EQ(dynamic_dims_onnx(path.string()).at(0).name, "batch");
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace aicf
