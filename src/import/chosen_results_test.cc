#include <gtest/gtest.h>

#include "base/error.h"
#include "import/onnx.h"
#include "import/testing/onnx_model.h"
#include "ir/reference/evaluator.h"

namespace aicf {
namespace {

using namespace onnx_test;  // NOLINT: the writer's short names are the point

// Boxes moved by x, of which the best are chosen: how many depends on the scores.
Model detector() {
  Model m;
  m.inputs = {value_info("x", DType::f32, {"1", "2", "4"}), value_info("s", DType::f32, {"1", "1", "2"}),
              value_info("most", DType::i64, {"1"})};
  m.nodes = {node("Neg", {"x"}, {"boxes"}), node("Abs", {"s"}, {"scores"}),
             node("NonMaxSuppression", {"boxes", "scores", "most"}, {"chosen"}),
             node("Cast", {"chosen"}, {"y"}, {attr("to", int64_t{1})})};
  m.outputs = {value_info("y", DType::f32, {})};
  return m;
}

ErrorCode code_of(const ImportOptions& options) {
  try {
    import_onnx_bytes(detector().bytes(), options);
  } catch (const UserError& error) {
    return error.code;
  }
  ADD_FAILURE() << "imported without an error";
  return ErrorCode::kU_misuse;
}

TEST(ChosenResults, EndAModelBeforeWhatIsNotSupported) {
  ImportOptions options;
  EXPECT_EQ(code_of(options), ErrorCode::kU_unsupported_op);
  options.results = {"scores", "boxes"};
  const Program program = import_onnx_bytes(detector().bytes(), options);
  const Graph& graph = program.entries[0];
  ASSERT_EQ(graph.outputs().size(), 2u);
  std::vector<std::string> inputs;
  for (ValueId id : graph.leaves())
    if (graph.value(id).role == Role::kInput) inputs.push_back(graph.value(id).name);
  EXPECT_EQ(inputs, (std::vector<std::string>{"x", "s"}));  // `most` was read by what is gone
  const Array x = Array::from<double>(DType::f32, {1, 2, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
  const Array s = Array::from<double>(DType::f32, {1, 1, 2}, {-1, 2});
  const auto results = evaluate(program, graph, {{{"x", x}, {"s", s}}, {}}).outputs;
  EXPECT_EQ(results.at("boxes").get_f64(7), -8);
  EXPECT_EQ(results.at("scores").get_f64(0), 1);
}

TEST(ChosenResults, AreResultsOfNodesEachOnce) {
  for (const std::vector<std::string>& names :
       {std::vector<std::string>{"nothing"}, {"x"}, {""}, {"boxes", "boxes"}}) {
    ImportOptions options;
    options.results = names;
    EXPECT_EQ(code_of(options), ErrorCode::kU_bad_option) << names[0];
  }
}

TEST(ChosenResults, LeaveTheRestToBeRefused) {
  ImportOptions options;
  options.results = {"boxes", "chosen"};
  EXPECT_EQ(code_of(options), ErrorCode::kU_unsupported_op);
}

}  // namespace
}  // namespace aicf
