// What tests of the importer share: a model of the writer in onnx_model.h, imported and verified, run by the
// reference evaluator, or refused with an error that is given back.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "import/onnx.h"
#include "import/testing/onnx_model.h"
#include "ir/reference/evaluator.h"
#include "ir/verify.h"

namespace aicf::onnx_test {

inline Array floats(std::vector<int64_t> sizes, const std::vector<double>& values) {
  return Array::from<double>(DType::f32, std::move(sizes), values);
}
inline Array ints(const std::vector<int64_t>& values) {
  return Array::from<int64_t>(DType::i64, {static_cast<int64_t>(values.size())}, values);
}

inline std::string out(const std::string& name) { return value_info(name, DType::f32, {}); }

inline ImportOptions with_dims(const std::vector<std::pair<std::string, std::string>>& dims) {
  ImportOptions options;
  for (const auto& [name, text] : dims) options.dims[name] = parse_dim_option(text);
  return options;
}

inline Program import_model(const Model& model, const ImportOptions& options = {}) {
  Program program = import_onnx_bytes(model.bytes(), options);
  verify(program, Fault::kInternal);
  return program;
}

inline std::map<std::string, Array> run(const Program& program, std::map<std::string, Array> inputs) {
  return evaluate(program, program.entries[0], {std::move(inputs), {}}).outputs;
}

inline UserError error_of(const Model& model, const ImportOptions& options = {}) {
  try {
    import_model(model, options);
  } catch (const UserError& error) {
    return error;
  }
  ADD_FAILURE() << "imported without an error";
  return UserError(ErrorCode::kU_misuse, "none");
}

inline bool has_op(const Program& program, Op op) {
  for (const Node& node : program.entries[0].nodes())
    if (node.op == op) return true;
  return false;
}

inline Model mlp() {
  Model m;
  m.inputs = {value_info("x", DType::f32, {"batch", "2"})};
  m.initializers = {tensor("w", floats({2, 2}, {1, 2, 3, 4})), tensor("b", floats({2}, {0.5, -20}))};
  m.nodes = {node("Gemm", {"x", "w", "b"}, {"h"}), node("Relu", {"h"}, {"y"})};
  m.outputs = {out("y")};
  return m;
}

}  // namespace aicf::onnx_test
