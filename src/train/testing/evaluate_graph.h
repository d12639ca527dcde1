// What the tests of this folder share: graphs of one entry evaluated by the reference.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/reference/evaluator.h"

namespace aicf::testing {

inline Array f64(std::vector<int64_t> sizes, const std::vector<double>& values) {
  return Array::from(DType::f64, std::move(sizes), values);
}

// The only output of a graph without variables.
inline Array evaluate_graph(Graph graph, const std::map<std::string, Array>& inputs) {
  Program program;
  const std::string output = graph.output_names()[0];
  program.entries.push_back(std::move(graph));
  return evaluate(program, program.entries[0], {inputs, {}}).outputs.at(output);
}

}  // namespace aicf::testing
