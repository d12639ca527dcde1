// Products that take along the sums of their columns: when they do, and that the results are those of two
// kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <utility>

#include "codegen/testing/needs_nvrtc.h"
#include "compile/testing/random_arrays.h"
#include "compile/testing/selected_calls.h"
#include "compile/testing/two_ways.h"
#include "ir/text.h"

namespace aicf::testing::join_sums_test {
namespace {

struct Sizes {
  int64_t rows, columns, depth;
};

// dh = (dy · w) * slope and the sum of its rows; also that of dy, which no product of the graph makes.
Program sum_network(DType dtype, const Sizes& s) {
  Program program;
  Graph graph("main");
  const ValueId dy = graph.add_input("dy", {dtype, {Dim(s.rows), Dim(s.depth)}});
  const ValueId w = graph.add_input("w", {dtype, {Dim(s.depth), Dim(s.columns)}});
  const ValueId slope = graph.add_input("slope", {dtype, {Dim(s.rows), Dim(s.columns)}});
  const ValueId dh = graph.add(Op::mul, {graph.add(Op::matmul, {dy, w}), slope});
  graph.add_output(dh, "dh");
  graph.add_output(graph.add(Op::reduce_sum, {dh}, {{"axes", Ints{0}}}), "db");
  graph.add_output(graph.add(Op::reduce_sum, {dy}, {{"axes", Ints{0}}}), "db2");
  program.entries.push_back(std::move(graph));
  return program;
}

struct Calls {
  std::vector<KernelCall> calls;
  std::vector<TileProgram> programs;
};

Calls sum_calls(const Program& program, const char* target, std::vector<ForcedChoice> forced = {}) {
  SelectedCalls s = select_calls(program, target, std::move(forced));
  run_rule("join_sums", s);
  return {s.calls.calls, s.calls.programs};
}

const KernelCall* product_of(const Calls& calls) {
  for (const KernelCall& call : calls.calls)
    if (is_row(call, "matmul_tensor_core")) return &call;
  return nullptr;
}

bool joins(const Calls& calls) {
  const KernelCall* product = product_of(calls);
  return product != nullptr && product->outputs.size() == 2;
}

TEST(JoinSums, OfWhatAProductStores) {
  const Calls calls = sum_calls(sum_network(DType::bf16, {4096, 768, 512}), "sm_90");
  ASSERT_TRUE(joins(calls));
  ASSERT_EQ(calls.calls.size(), 2u);  // and the sums of dy
  const KernelCall& product = *product_of(calls);
  EXPECT_EQ(product.outputs[1].sizes, (Shape{Dim(4096), Dim(768)}));
  EXPECT_EQ(product.outputs[1].strides, (std::vector<Dim>{Dim(0), Dim(1)}));
  const TileInstr& last =
      calls.programs[static_cast<size_t>(row_call(product)->programs[0].index)].stages[0].back();
  EXPECT_EQ(last.op, TileOp::store_sum);
}

TEST(JoinSums, NotOfFewRowsNorOnOtherTargets) {
  EXPECT_FALSE(joins(sum_calls(sum_network(DType::bf16, {512, 768, 512}), "sm_90")));
  for (const char* target : {"sm_80", "sm_89"})
    EXPECT_FALSE(joins(sum_calls(sum_network(DType::bf16, {4096, 768, 512}), target)));
  EXPECT_FALSE(joins(sum_calls(sum_network(DType::f32, {4096, 768, 512}), "sm_90")));
  // Columns in groups of eight.
  EXPECT_FALSE(joins(sum_calls(sum_network(DType::bf16, {4096, 764, 512}), "sm_90")));
}

TEST(JoinSums, AProductThatCannotStaysApart) {
  const Program program = sum_network(DType::f16, {4096, 768, 512});
  const Calls calls = sum_calls(program, "sm_90");
  for (const Candidate& candidate : product_of(calls)->choice.candidates) {
    const auto* way = std::get_if<MatmulWay>(&candidate.way);
    const bool whole = way != nullptr && is_wgmma(*way) && split_parts(*way) == 1 &&
                       multicast_blocks(*way) == 1 && way->split.kind != SplitKind::stream;
    EXPECT_EQ(joins(sum_calls(program, "sm_90", {{"matmul", to_string(candidate)}})), whole)
        << to_string(candidate);
  }
}

TEST(JoinSums, SaysWhy) {
  const Program program = sum_network(DType::bf16, {4096, 768, 512});
  expect_told(told("join_sums", program), "taken", "with the sums of its columns");
  const Calls calls = sum_calls(program, "sm_90");
  for (const Candidate& candidate : product_of(calls)->choice.candidates)
    if (const auto* way = std::get_if<MatmulWay>(&candidate.way); way != nullptr && split_parts(*way) > 1)
      return expect_told(told("join_sums", program, {{"matmul", to_string(candidate)}}), "refused",
                         "does not do all of it");
  FAIL() << "no way splits K";
}

// One launch adds up the parts of one sum: of two results with a sum each, one is read again.
TEST(JoinSums, OfOneResultOfAProduct) {
  Program program;
  Graph graph("main");
  const TensorType result{DType::bf16, {Dim(4096), Dim(768)}};
  const ValueId dy = graph.add_input("dy", {DType::bf16, {Dim(4096), Dim(512)}});
  const ValueId w = graph.add_input("w", {DType::bf16, {Dim(512), Dim(768)}});
  const ValueId product = graph.add(Op::matmul, {dy, w});
  for (const char* name : {"a", "b"}) {
    const ValueId scaled = graph.add(Op::mul, {product, graph.add_input(name, result)});
    graph.add_output(scaled, std::string("scaled_") + name);
    graph.add_output(graph.add(Op::reduce_sum, {scaled}, {{"axes", Ints{0}}}), std::string("sum_") + name);
  }
  program.entries.push_back(std::move(graph));
  const Calls calls = sum_calls(program, "sm_90");
  ASSERT_NE(product_of(calls), nullptr);
  const auto& stage =
      calls.programs[static_cast<size_t>(row_call(*product_of(calls))->programs[0].index)].stages[0];
  EXPECT_EQ(
      std::count_if(stage.begin(), stage.end(), [](const TileInstr& i) { return i.op == TileOp::store_sum; }),
      1);
}

// One candidate of each way in which tiles are stored: cooperative, ping-pong, epilogue warps.
std::vector<Candidate> ways(const Program& program) {
  std::vector<Candidate> found;
  std::array<bool, 4> seen{};
  const Calls calls = sum_calls(program, "sm_90");
  for (const Candidate& candidate : product_of(calls)->choice.candidates) {
    const auto* way = std::get_if<MatmulWay>(&candidate.way);
    if (way == nullptr || !is_wgmma(*way) || split_parts(*way) > 1) continue;
    const size_t kind = is_ping_pong(*way)               ? 1
                        : !has_epilogue_warps(*way)      ? 0
                        : has_three_epilogue_warps(*way) ? 3
                                                         : 2;
    if (!std::exchange(seen[kind], true)) found.push_back(candidate);
  }
  return found;
}

void compare_sums(const Program& program, const Candidate& candidate, DType dtype) {
  const TestDevice& test = TestDevice::get();
  SCOPED_TRACE(print(program) + to_string(candidate));
  CompileOptions joint, apart;
  joint.target = apart.target = test.target;
  joint.forced = apart.forced = {{"matmul", to_string(candidate)}};
  apart.skip_passes.insert("join_sums");
  Artifact one = compile(program, joint), two = compile(program, apart);
  EXPECT_LT(steps_of(one).size(), steps_of(two).size());
  if (!test.runs) return;
  const auto [got, want] = TwoWays(std::move(one), std::move(two)).run(normal_inputs(program, 5));
  EXPECT_EQ(got.at("dh"), want.at("dh"));
  // Rounded once, from f32 sums.
  EXPECT_LT(relative_error(got.at("db"), want.at("db")), dtype == DType::f16 ? 5e-4 : 4e-3);
}

// The product has the bits of the kernel without sums; these are added in another order, the same every time.
TEST(JoinSums, HasTheResultsOfTwoKernels) {
  const TestDevice& test = TestDevice::get();
  if (!test.has_clusters()) GTEST_SKIP() << "sums are joined on GPUs with tiles of wgmma";
  for (const auto& [sizes, dtype] : {std::pair(Sizes{9000, 1536, 192}, DType::bf16),
                                     {Sizes{1500, 200, 72}, DType::f16},
                                     {Sizes{1024, 8, 64}, DType::bf16}}) {
    const Program program = sum_network(dtype, sizes);
    const std::vector<Candidate> candidates = ways(program);
    test.for_each(candidates.size(),
                  [&, type = dtype](size_t i) { compare_sums(program, candidates[i], type); });
  }
}

// The gradients of the weights of `layers` linear layers, dw_i = dy_i^T · x_i, and those of the biases of all
// but the last one, db_i, which are the sums of the rows of dy_i.
Program weight_gradients(DType dtype, const Sizes& s, int layers) {
  Program program;
  Graph graph("main");
  for (int i = 0; i < layers; ++i) {
    const std::string number = std::to_string(i);
    const ValueId dy = graph.add_input("dy" + number, {dtype, {Dim(s.rows), Dim(s.columns)}});
    const ValueId x = graph.add_input("x" + number, {dtype, {Dim(s.rows), Dim(s.depth)}});
    graph.add_output(graph.add(Op::matmul, {dy, x}, {{"transpose_x", true}}), "dw" + number);
    if (i + 1 < layers) graph.add_output(graph.add(Op::reduce_sum, {dy}, {{"axes", Ints{0}}}), "db" + number);
  }
  program.entries.push_back(std::move(graph));
  return program;
}

Artifact artifact_of(const Program& program, const std::string& target, bool joined) {
  CompileOptions options;
  options.target = target;
  if (!joined) options.skip_passes.insert("join_sums");
  return compile(program, options);
}

TEST(JoinSums, OfTheOperandsOfAGroup) {
  AICF_NEEDS_NVRTC();
  const auto is_group = [](const Step& step) { return step.kernel == kProductGroup; };
  const Program program = weight_gradients(DType::bf16, {2048, 1024, 768}, 4);
  const Artifact joined = artifact_of(program, "sm_90", true), apart = artifact_of(program, "sm_90", false);
  ASSERT_EQ(steps_of(joined).size(), 1u);
  const Step& group = steps_of(joined)[0];
  EXPECT_TRUE(is_group(group));
  EXPECT_EQ(group.outputs.size(), 4u + 3u);
  EXPECT_NE(group.origin.find("reduce_sum"), std::string::npos) << group.origin;
  EXPECT_EQ(group.variant, std::find_if(steps_of(apart).begin(), steps_of(apart).end(), is_group)->variant);
  // Of few rows they are read again in no time.
  const Artifact few = artifact_of(weight_gradients(DType::bf16, {512, 1024, 768}, 4), "sm_90", true);
  for (const Step& step : steps_of(few)) EXPECT_FALSE(is_group(step) && step.outputs.size() > 4);
}

// Three columns of tiles sum a part of x's rows each: where there may be fewer, the sums stay apart.
TEST(JoinSums, NotOfAGroupThatMayHaveFewColumns) {
  AICF_NEEDS_NVRTC();
  for (const int64_t least : {1, 96}) {
    Program program;
    Graph graph("main");
    program.sizes["n"] = {least, 128};
    for (const std::string number : {"0", "1", "2", "3"}) {
      const ValueId dy = graph.add_input("dy" + number, {DType::bf16, {Dim(2048), Dim(1024)}});
      const ValueId x = graph.add_input("x" + number, {DType::bf16, {Dim(2048), Dim(64) * Dim::symbol("n")}});
      graph.add_output(graph.add(Op::matmul, {dy, x}, {{"transpose_x", true}}), "dw" + number);
      graph.add_output(graph.add(Op::reduce_sum, {dy}, {{"axes", Ints{0}}}), "db" + number);
    }
    program.entries.push_back(std::move(graph));
    const Artifact artifact = artifact_of(program, "sm_90", true);
    ASSERT_EQ(count_steps(artifact, kProductGroup), 1u);
    for (const Step& step : steps_of(artifact))
      if (step.kernel == kProductGroup) {
        EXPECT_EQ(step.outputs.size(), least == 1 ? 4u : 8u);
      }
  }
}

// Results of the groups' kernels whose tiles are stored in each way, and of tiles that reach over the edge.
TEST(JoinSums, OfAGroupEqualThoseOfKernelsOfTheirOwn) {
  const TestDevice& test = TestDevice::get();
  if (!test.has_clusters()) GTEST_SKIP() << "sums are joined on GPUs with tiles of wgmma";
  const std::vector<std::pair<Sizes, DType>> cases = {{{4096, 3072, 768}, DType::bf16},
                                                      {{4096, 768, 3072}, DType::f16},
                                                      {{2000, 2304, 768}, DType::bf16},
                                                      {{3000, 768, 768}, DType::bf16},
                                                      {{2000, 200, 136}, DType::f16}};
  test.for_each(cases.size(), [&](size_t at) {
    const auto& [sizes, dtype] = cases[at];
    const Program program = weight_gradients(dtype, sizes, 5);
    SCOPED_TRACE(print(program));
    Artifact joint = artifact_of(program, test.target, true),
             apart = artifact_of(program, test.target, false);
    ASSERT_EQ(steps_of(joint).size(), 1u);
    EXPECT_EQ(steps_of(apart).size(), 5u);
    if (!test.runs) return;
    const auto [got, want] = TwoWays(std::move(joint), std::move(apart)).run(normal_inputs(program, 7));
    for (const auto& [name, array] : want) {
      if (name.starts_with("dw")) {
        EXPECT_EQ(got.at(name), array) << name;
      } else {
        EXPECT_LT(relative_error(got.at(name), array), dtype == DType::f16 ? 5e-4 : 4e-3) << name;
      }
    }
  });
}

}  // namespace
}  // namespace aicf::testing::join_sums_test
