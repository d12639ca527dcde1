// Which candidate wins, and that records and forced choices decide it.
#include "select/choose.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "select/select.h"

namespace aicf {
namespace {

// y = x w, with w transposed in memory as a linear layer has it.
Graph product(int64_t m, int64_t n, int64_t k, DType dtype) {
  Graph graph("main");
  const ValueId x = graph.add_input("x", {dtype, {Dim(m), Dim(k)}});
  const ValueId w = graph.add_input("w", {dtype, {Dim(n), Dim(k)}});
  graph.add_output(graph.add(Op::matmul, {x, w}, {{"transpose_y", true}}), "y");
  return graph;
}

KernelCall choose_for(const Graph& graph, const std::string& target, const SelectOptions& options = {}) {
  return select_kernels(graph, Target::from_name(target), options).calls.at(0);
}

TEST(Choose, candidates_are_ranked_and_the_first_wins) {
  const KernelCall call = choose_for(product(256, 1024, 1024, DType::bf16), "sm_90");
  const auto& list = call.choice.candidates;
  ASSERT_GT(list.size(), 20u);
  EXPECT_EQ(call.choice.chosen, 0u);
  EXPECT_EQ(call.variant, list[0].variant);
  EXPECT_TRUE(list[0].variant.starts_with("wgmma")) << list[0].variant;
  for (const Candidate& candidate : list) EXPECT_GT(candidate.microseconds, 0) << to_string(candidate);
  ASSERT_TRUE(call.choice.key);
  EXPECT_EQ(call.choice.key->op, "matmul");
  EXPECT_EQ(call.choice.key->units, 132);
}

TEST(Choose, every_call_has_a_choice_on_the_cpu_too) {
  const KernelCall call = choose_for(product(4, 8, 16, DType::f32), "cpu");
  ASSERT_EQ(call.choice.candidates.size(), 1u);
  EXPECT_FALSE(call.choice.key);
  EXPECT_EQ(call.reason, "only candidate");
}

TEST(Choose, a_record_decides_and_a_forced_choice_decides_over_it) {
  const Graph graph = product(256, 1024, 1024, DType::bf16);
  const KernelCall plain = choose_for(graph, "sm_90");
  Records records;
  records.add_layer("user", {{*plain.choice.key, to_string(plain.choice.candidates[3]), 5, 6, ""}});
  SelectOptions options;
  options.records = &records;
  const KernelCall recorded = choose_for(graph, "sm_90", options);
  EXPECT_EQ(recorded.choice.chosen, 3u);
  EXPECT_EQ(recorded.choice.source, ChoiceSource::kRecord);
  EXPECT_EQ(recorded.variant, plain.choice.candidates[3].variant);
  options.forced = {{"matmul", "matmul_simt"}};
  const KernelCall forced = choose_for(graph, "sm_90", options);
  EXPECT_EQ(forced.kernel, "matmul_simt");
  EXPECT_EQ(forced.choice.source, ChoiceSource::kForced);
  options.forced = {{"conv", "matmul_simt"}};
  EXPECT_EQ(choose_for(graph, "sm_90", options).choice.chosen, 3u);
}

TEST(Choose, a_record_of_a_choice_that_is_gone_is_passed_over) {
  const Graph graph = product(256, 1024, 1024, DType::bf16);
  const KernelCall plain = choose_for(graph, "sm_90");
  Records records;
  records.add_layer("user", {{*plain.choice.key, "matmul_tensor_core/of another version", 5, 6, ""}});
  SelectOptions options;
  options.records = &records;
  EXPECT_EQ(choose_for(graph, "sm_90", options).choice.source, ChoiceSource::kRank);
}

TEST(Choose, keys_tell_regions_apart_but_not_by_size) {
  const auto key = [](int64_t n, double constant) {
    Region region;
    const ValueId x = region.body.add_input("x", {DType::f32, {Dim(n)}});
    const ValueId c = region.body.add_constant(Array::scalar_f64(DType::f32, constant));
    region.body.add_output(region.body.add(Op::add, {x, c}), "y");
    KernelCall call;
    return problem_key(call, "matmul", &region, Target::from_name("sm_90"), {}).region;
  };
  EXPECT_EQ(key(4, 1.0), key(8, 1.0));
  EXPECT_NE(key(4, 1.0), key(4, 2.0));
}

}  // namespace
}  // namespace aicf
