// Attention that takes in the rope and the append before it: when it does, and that results and caches are
// those of two kernels.
#include <gtest/gtest.h>

#include "base/error.h"
#include "codegen/testing/needs_nvrtc.h"
#include "compile/testing/random_arrays.h"
#include "compile/testing/two_ways.h"
#include "plan/plan.h"

namespace aicf::testing::rope_attention_test {
namespace {

struct Case {
  DType dtype;
  int64_t batch, heads, kv_heads, steps, rows, depth;
  bool interleaved = false;
};

// One step of the attention of a decoder's layers, each with the queries that the one before made: caches are
// states.
Program step(const Case& c, bool returns_queries = false, int layers = 1) {
  Program program;
  Graph graph("main");
  const auto type = [&](int64_t heads, int64_t rows) {
    return TensorType{c.dtype, {Dim(c.batch), Dim(heads), Dim(rows), Dim(c.depth)}};
  };
  const auto cache = [&](const std::string& name) {
    program.variables[name] = {name, Role::kState, type(c.kv_heads, c.rows), Array()};
    return graph.add_state(name, type(c.kv_heads, c.rows));
  };
  const TensorType angles{c.dtype, {Dim(c.steps), Dim(c.depth / 2)}};
  ValueId q = graph.add_input("q", type(c.heads, c.steps));
  const ValueId k = graph.add_input("k", type(c.kv_heads, c.steps));
  const ValueId v = graph.add_input("v", type(c.kv_heads, c.steps));
  const ValueId cos = graph.add_input("cos", angles), sin = graph.add_input("sin", angles);
  const ValueId position = graph.add_input("position", {DType::i64, {Dim(c.batch)}});
  const ValueId seen = graph.add_input("seen", {DType::boolean, {Dim(1), Dim(1), Dim(1), Dim(c.rows)}});
  for (int layer = 0; layer < layers; ++layer) {
    const std::string number = std::to_string(layer);
    const ValueId keys = cache("keys" + number), values = cache("values" + number);
    const NodeId append = graph.add_node(Op::rope_append, {q, k, v, cos, sin, keys, values, position},
                                         {{"interleaved", c.interleaved}});
    const std::vector<ValueId> made = graph.node(append).results;
    q = graph.add(Op::attention, {made[0], made[1], made[2], seen}, {{"scale", 0.125}});
    if (returns_queries) graph.add_output(made[0], "queries");
    graph.add_update(keys, made[1]);
    graph.add_update(values, made[2]);
  }
  graph.add_output(q, "y");
  program.entries.push_back(std::move(graph));
  return program;
}

Artifact compiled(const Program& program, bool joins) { return compiled_with("join_inputs", joins, program); }

bool joined(const Program& program) { return count_steps(compiled(program, true), kRopeAttention) > 0; }

TEST(RopeAttention, OnlyOfOneStepWhoseQueriesNobodyElseReads) {
  AICF_NEEDS_NVRTC();
  const Case decoder{DType::bf16, 1, 32, 8, 1, 1024, 64};
  EXPECT_TRUE(joined(step(decoder)));
  EXPECT_FALSE(joined(step(decoder, true)));
  Case other = decoder;
  other.steps = 2;
  EXPECT_FALSE(joined(step(other)));
  other = decoder;
  other.rows = 16384;  // parts in the workspace
  EXPECT_FALSE(joined(step(other)));
}

// Caches, mask and position come before the wait where the launch before the last has ended with all that
// wrote them.
TEST(RopeAttention, ReadsBeforeTheWaitWhatNoRunningLaunchWrites) {
  AICF_NEEDS_NVRTC();
  Artifact artifact = compiled(step({DType::bf16, 1, 32, 8, 1, 1024, 64}, false, 3), true);
  Plan& plan = artifact.variants[0].plan;
  std::vector<Step>& steps = plan.entries[0].steps;
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_EQ(steps[0].launches[0].early_inputs.size(), 4u);  // what was queued before the run has ended
  std::vector<int32_t>& early = steps[1].launches[0].early_inputs;
  EXPECT_EQ(early.size(), 4u);
  EXPECT_NO_THROW(check_plan(plan));
  early.push_back(4);  // the queries, which the launch before makes
  EXPECT_THROW(check_plan(plan), UserError);
  early.pop_back();
  // The third reads a cache that the first writes: it may while the second is always launched between them.
  for (const int32_t input : early)
    steps[2].inputs[static_cast<size_t>(input)] = steps[0].inputs[static_cast<size_t>(input)];
  EXPECT_NO_THROW(check_plan(plan));
  steps[1].launches[0].grid[0] = Dim::symbol("n");
  EXPECT_THROW(check_plan(plan), UserError);
}

const Case kCases[] = {
    {DType::bf16, 1, 32, 8, 1, 1024, 64}, {DType::f16, 6, 16, 8, 1, 1500, 64, true},
    {DType::bf16, 2, 8, 2, 1, 100, 128},  {DType::f16, 1, 6, 6, 1, 128, 72},
    {DType::f16, 5, 32, 8, 1, 700, 96},
};

TEST(RopeAttention, HasTheResultsAndCachesOfTwoKernels) {
  AICF_NEEDS_NVRTC();
  for (const Case& c : kCases) {
    constexpr size_t kLayers = 2;
    const Program program = step(c, false, kLayers);
    SCOPED_TRACE(std::to_string(c.rows) + " rows of " + std::to_string(c.depth));
    const auto ways =
        joined_and_apart([&](bool joins) { return compiled(program, joins); }, kLayers, 2 * kLayers);
    if (ways == nullptr) continue;
    // The first row, neighbours on both sides of a tile's end, one counted from the end.
    uint32_t seed = 0;
    for (const int64_t position : {int64_t{0}, c.rows / 2 + 3, int64_t{63}, int64_t{64}, int64_t{-1}}) {
      auto inputs = normal_inputs(program, ++seed);
      for (int64_t i = 0; i < c.batch; ++i) inputs.at("position").set_i64(i, position);
      for (int64_t i = 0; i < c.rows; ++i) inputs.at("seen").set_i64(i, i <= c.rows / 2 + 3 ? 1 : 0);
      const auto [got, want] = ways->run(inputs);
      EXPECT_EQ(got.at("y"), want.at("y")) << position;
      for (const char* name : {"keys0", "values0", "keys1", "values1"})
        EXPECT_EQ(ways->first.state(name), ways->second.state(name)) << name << " at " << position;
    }
    auto outside = normal_inputs(program, 9);
    for (int64_t i = 0; i < c.batch; ++i) outside.at("position").set_i64(i, c.rows);
    EXPECT_THROW(ways->first.run("main", outside), UserError);
  }
}

}  // namespace
}  // namespace aicf::testing::rope_attention_test
