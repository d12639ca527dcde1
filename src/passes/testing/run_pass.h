// What the tests of passes share: running one, for the CPU unless told, and whether what it gives means the
// same.
#pragma once

#include <gtest/gtest.h>

#include "base/splitmix.h"
#include "ir/reference/compare.h"
#include "ir/reference/evaluator.h"
#include "ir/text.h"
#include "passes/pass.h"

namespace aicf::testing {

inline const Target kCpu{"cpu"};

// Of the first entry. What the pass changes, the pipeline must not take for unchangeable.
inline Graph run_pass(Graph (*pass)(const Graph&, const PassContext&), const Program& program,
                      const Target& target = kCpu) {
  const Graph& graph = program.entries[0];
  const PassContext context{program, target};
  Graph after = pass(graph, context);
  for (const PassInfo& info : pass_table()) {
    if (info.run != pass || info.may_change == nullptr || print(after) == print(graph)) continue;
    EXPECT_TRUE(info.may_change(graph, context)) << info.name;
  }
  return after;
}

inline int count_ops(const Graph& graph, Op op) {
  int count = 0;
  for (const Node& node : graph.nodes()) count += node.op == op ? 1 : 0;
  return count;
}

inline Array random_array(const TensorType& type, const SymbolValues& sizes, uint64_t seed) {
  SplitMix random(seed);
  Array array(type.dtype, evaluate(type.shape, sizes));
  for (int64_t i = 0; i < array.count(); ++i) array.set_f64(i, 4 * random.unit() - 2);
  return array;
}

// The rewritten entry means the same, in f64.
inline void expect_equal_meaning(const Program& program, const Graph& rewritten, const SymbolValues& sizes,
                                 double tolerance = 1e-12) {
  EvalInputs inputs;
  inputs.sizes = sizes;
  const Graph& entry = program.entries[0];
  for (ValueId id : entry.inputs())
    inputs.inputs.emplace(entry.value(id).name,
                          random_array(entry.type(id), sizes, static_cast<uint64_t>(id)));
  const auto expected = evaluate(program, entry, inputs, {false}).outputs;
  const auto actual = evaluate(program, rewritten, inputs, {false}).outputs;
  for (const auto& [name, array] : expected) {
    const CompareReport report = compare(actual.at(name), array, tolerance, tolerance);
    EXPECT_TRUE(report.ok()) << name << ": " << to_string(report);
  }
}

}  // namespace aicf::testing
