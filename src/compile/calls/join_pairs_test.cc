// Two products of one x that meet: when they share a launch, what is stored, and that the bits are those of
// two launches.
#include <gtest/gtest.h>

#include <algorithm>

#include "codegen/testing/needs_nvrtc.h"
#include "compile/testing/random_arrays.h"
#include "compile/testing/selected_calls.h"
#include "compile/testing/two_ways.h"
#include "ir/text.h"

namespace aicf::testing::join_pairs_test {
namespace {

enum class Gate { kSilu, kGelu, kPlain };

// y = act(x · g + bg) * (x · u + bu) + residual.
struct Net {
  DType dtype = DType::bf16;
  int64_t rows = 2048, columns = 4096, depth = 1024;
  Gate gate = Gate::kSilu;
  bool merged = false;  // one matrix has the columns of both
  bool bias = false, residual = false;
  bool keeps_gate = false;  // x · g + bg is an output, too
  bool keeps_both = false;  // of one matrix, x · gu + bgu
  bool turned = false;      // matrices lie the other way round, and x
  Shape batch = {};
  bool batched_weights = false;
  bool down = false;  // y is multiplied once more
};

class NetBuilder {
 public:
  explicit NetBuilder(const Net& net) : net_(net), graph_("main") {}

  Program run() {
    x_ = input("x", net_.batch, net_.rows, net_.depth, net_.turned);
    const auto [g, u] = net_.merged ? halves() : std::pair(product("g"), product("u"));
    ValueId y = graph_.add(Op::mul, {gated(g), u});
    if (net_.residual) y = graph_.add(Op::add, {y, graph_.add_input("r", graph_.type(y))});
    if (net_.down)
      y = graph_.add(Op::matmul,
                     {y, graph_.add_input("wd", {net_.dtype, {Dim(net_.columns), Dim(net_.depth)}})});
    graph_.add_output(y, "y");
    if (net_.keeps_gate) graph_.add_output(g, "gate");
    Program program;
    program.entries.push_back(std::move(graph_));
    return program;
  }

 private:
  ValueId input(const std::string& name, Shape sizes, int64_t a, int64_t b, bool turned) {
    sizes.push_back(Dim(turned ? b : a));
    sizes.push_back(Dim(turned ? a : b));
    return graph_.add_input(name, {net_.dtype, sizes});
  }
  ValueId product(const std::string& name, int64_t times = 1) {
    const Shape batch = net_.batched_weights ? net_.batch : Shape();
    const ValueId w = input("w" + name, batch, net_.depth, times * net_.columns, net_.turned);
    ValueId p = graph_.add(
        Op::matmul, {x_, w},
        {{"transpose_x", net_.turned}, {"transpose_y", net_.turned}, {"tf32", net_.dtype == DType::f32}});
    if (net_.bias)
      p = graph_.add(Op::add, {p, graph_.add_input("b" + name, {net_.dtype, {Dim(times * net_.columns)}})});
    return p;
  }
  std::pair<ValueId, ValueId> halves() {
    const ValueId both = product("gu", 2);
    if (net_.keeps_both) graph_.add_output(both, "both");
    const auto half = [&](int64_t first) {
      Shape starts(graph_.shape(both).size(), Dim(0)), limits = graph_.shape(both);
      starts.back() = Dim(first);
      limits.back() = Dim(first + net_.columns);
      return graph_.add(Op::slice, {both},
                        {{"starts", starts}, {"limits", limits}, {"steps", Ints(starts.size(), 1)}});
    };
    return {half(0), half(net_.columns)};
  }
  ValueId gated(ValueId g) {
    if (net_.gate == Gate::kPlain) return g;
    if (net_.gate == Gate::kGelu) return graph_.add(Op::gelu, {g});
    return graph_.add(Op::mul, {g, graph_.add(Op::sigmoid, {g})});
  }

  const Net& net_;
  Graph graph_;
  ValueId x_ = kNoValue;
};

Program pair_network(const Net& net) { return NetBuilder(net).run(); }

const std::vector<ForcedChoice> kAlways = {{"*", "matmul_pair"}};

// The calls of the entry as compile() has them.
std::vector<KernelCall> pair_calls(const Program& program, const char* target = "sm_90",
                                   std::vector<ForcedChoice> forced = {}, const Records* records = nullptr) {
  SelectedCalls s = select_calls(program, target, std::move(forced), records);
  run_rule("join_pairs", s);
  return s.calls.calls;
}

bool pair_joined(const std::vector<KernelCall>& calls) {
  return calls.size() == 1 && is_row(calls[0], "matmul_pair");
}

TEST(JoinPairs, WhereTheResultsOfTwoProductsMeet) {
  for (const char* target : {"sm_80", "sm_89", "sm_90"})
    for (const bool merged : {false, true}) {
      const std::vector<KernelCall> calls = pair_calls(pair_network({.merged = merged}), target);
      ASSERT_TRUE(pair_joined(calls)) << target << merged;
      EXPECT_EQ(calls[0].inputs.size(), 3u);
      EXPECT_EQ(calls[0].outputs.size(), 1u);
    }
  EXPECT_TRUE(pair_joined(
      pair_calls(pair_network({.merged = true, .bias = true, .residual = true, .batch = {Dim(3)}}))));
  // The gate of one product by the other, without a function.
  EXPECT_TRUE(pair_joined(pair_calls(pair_network({.gate = Gate::kPlain}))));
}

TEST(JoinPairs, WhatIsReadElsewhereIsStored) {
  const std::vector<KernelCall> calls = pair_calls(pair_network({.keeps_gate = true}), "sm_90", kAlways);
  ASSERT_TRUE(pair_joined(calls));
  EXPECT_EQ(calls[0].outputs.size(), 2u);
  // Of a product of both, both halves.
  const std::vector<KernelCall> merged =
      pair_calls(pair_network({.merged = true, .keeps_both = true}), "sm_90", kAlways);
  ASSERT_TRUE(pair_joined(merged));
  ASSERT_EQ(merged[0].outputs.size(), 3u);
  EXPECT_EQ(merged[0].outputs[0].root, merged[0].outputs[1].root);
}

TEST(JoinPairs, OnlyProductsOfOneX) {
  Program program;
  Graph graph("main");
  const auto product = [&](const char* x, const char* w, int64_t depth) {
    return graph.add(Op::matmul, {graph.add_input(x, {DType::f16, {Dim(512), Dim(depth)}}),
                                  graph.add_input(w, {DType::f16, {Dim(depth), Dim(512)}})});
  };
  graph.add_output(graph.add(Op::mul, {product("a", "g", 256), product("b", "u", 256)}), "y");
  program.entries.push_back(std::move(graph));
  EXPECT_EQ(pair_calls(program, "sm_90", kAlways).size(), 2u);
}

// The second product multiplies by the result of the first one, which its epilogue reads, too.
TEST(JoinPairs, NotAProductByTheOthersResult) {
  Program program;
  Graph graph("main");
  const TensorType square{DType::f16, {Dim(512), Dim(512)}};
  const ValueId x = graph.add_input("x", square);
  const ValueId y = graph.add(Op::matmul, {x, graph.add_input("w", square)});
  graph.add_output(graph.add(Op::mul, {graph.add(Op::matmul, {x, y}), y}), "z");
  program.entries.push_back(std::move(graph));
  EXPECT_EQ(pair_calls(program, "sm_90", kAlways).size(), 2u);
  expect_told(told("join_pairs", program), "refused", " is read a second time");
}

// Two products, and the region that combines their results in another shape.
TEST(JoinPairs, ComesFromAllOfItsCalls) {
  Program program;
  Graph graph("main");
  const ValueId x = graph.add_input("x", {DType::f16, {Dim(512), Dim(256)}});
  const auto product = [&](const char* w) {
    const ValueId y = graph.add(Op::matmul, {x, graph.add_input(w, {DType::f16, {Dim(256), Dim(512)}})});
    return graph.add(Op::reshape, {y}, {{"shape", Shape{Dim(8), Dim(64), Dim(512)}}});
  };
  graph.add_output(graph.add(Op::mul, {product("g"), product("u")}), "y");
  program.entries.push_back(std::move(graph));
  std::vector<std::string> apart;
  for (const KernelCall& call : select_calls(program, "sm_90").calls.calls)
    apart.insert(apart.end(), call.origins.begin(), call.origins.end());
  EXPECT_EQ(apart.size(), 3u);
  const std::vector<KernelCall> calls = pair_calls(program, "sm_90", kAlways);
  ASSERT_TRUE(pair_joined(calls));
  EXPECT_EQ(calls[0].origins, apart);
}

// x · g + so many, times x · u + so many others.
Program product_of_sums(int of_g, int of_u) {
  Graph graph("main");
  const auto input = [&](const std::string& name, int64_t rows, int64_t columns) {
    return graph.add_input(name, {DType::f16, {Dim(rows), Dim(columns)}});
  };
  const ValueId x = input("x", 512, 256);
  const auto sum = [&](const std::string& name, int count) {
    ValueId y = graph.add(Op::matmul, {x, input(name, 256, 512)});
    for (int i = 0; i < count; ++i) y = graph.add(Op::add, {y, input(name + std::to_string(i), 512, 512)});
    return y;
  };
  graph.add_output(graph.add(Op::mul, {sum("g", of_g), sum("u", of_u)}), "y");
  Program program;
  program.entries.push_back(std::move(graph));
  return program;
}

TEST(JoinPairs, AsManyOperandsAsAnEpilogueTakes) {
  const std::vector<KernelCall> most = pair_calls(product_of_sums(10, 10), "sm_90", kAlways);
  ASSERT_TRUE(pair_joined(most));
  EXPECT_EQ(most[0].inputs.size() + most[0].outputs.size(), size_t{kMaxTileOperands});
  EXPECT_FALSE(pair_joined(pair_calls(product_of_sums(10, 11), "sm_90", kAlways)));
}

TEST(JoinPairs, ChoicesAndRecordsDecide) {
  const Program program = pair_network({});
  EXPECT_FALSE(pair_joined(
      pair_calls(program, "sm_90",
                 {{"matmul", "matmul_tensor_core/wgmma 128x256 stages 3 warpgroups 2 epilogue-warps"}})));
  const std::vector<KernelCall> forced =
      pair_calls(program, "sm_90", {{"*", "matmul_pair/wgmma 256x128 stages 4 warpgroups 2"}});
  ASSERT_TRUE(pair_joined(forced));
  EXPECT_EQ(forced[0].choice.source, ChoiceSource::kForced);
  EXPECT_EQ(to_string(row_call(forced[0])->way), "wgmma 256x128 stages 4 warpgroups 2");
  const ProblemKey key = pair_calls(program)[0].choice.key.value();
  const auto recorded = [&](const std::string& choice) {
    Records records;
    records.add_layer("test", {{key, choice, 1, 2, ""}});
    return pair_calls(program, "sm_90", {}, &records);
  };
  EXPECT_FALSE(
      pair_joined(recorded("matmul_tensor_core/wgmma 128x256 stages 3 warpgroups 2 epilogue-warps")));
  const std::vector<KernelCall> calls = recorded("matmul_pair/wgmma 256x128 stages 4 warpgroups 2");
  ASSERT_TRUE(pair_joined(calls));
  EXPECT_EQ(calls[0].choice.source, ChoiceSource::kRecord);
  EXPECT_EQ(to_string(row_call(calls[0])->way), "wgmma 256x128 stages 4 warpgroups 2");
}

TEST(JoinPairs, SaysWhy) {
  expect_told(told("join_pairs", pair_network({})), "taken", "two products of one x in one kernel");
  const ForcedChoice apart{"matmul", "matmul_tensor_core/wgmma 128x256 stages 3 warpgroups 2 epilogue-warps"};
  expect_told(told("join_pairs", pair_network({}), {apart}), "refused", "the caller's choice wants ");
}

std::vector<Net> nets() {
  std::vector<Net> list = {
      {.rows = 300, .columns = 512, .depth = 200, .merged = true, .bias = true, .keeps_both = true},
      {.rows = 300, .columns = 640, .depth = 192},
      {.dtype = DType::f16, .rows = 2100, .columns = 1160, .depth = 328, .gate = Gate::kGelu, .bias = true},
      {.rows = 1000, .columns = 1032, .depth = 136, .merged = true, .bias = true, .residual = true},
      {.dtype = DType::f16, .rows = 1, .columns = 128, .depth = 8, .merged = true},
      {.rows = 129, .columns = 333, .depth = 70, .bias = true, .residual = true, .keeps_gate = true},
      {.dtype = DType::f16,
       .rows = 77,
       .columns = 101,
       .depth = 33,
       .gate = Gate::kGelu,
       .merged = true,
       .bias = true},
      {.rows = 264, .columns = 520, .depth = 264, .bias = true, .turned = true},
      {.rows = 100, .columns = 264, .depth = 96, .merged = true, .residual = true, .batch = {Dim(2), Dim(3)}},
      {.dtype = DType::f16,
       .rows = 65,
       .columns = 72,
       .depth = 40,
       .keeps_gate = true,
       .batch = {Dim(3)},
       .batched_weights = true},
      {.dtype = DType::f32, .rows = 333, .columns = 260, .depth = 100, .bias = true, .residual = true},
      {.dtype = DType::f32,
       .rows = 130,
       .columns = 77,
       .depth = 50,
       .gate = Gate::kGelu,
       .merged = true,
       .turned = true},
  };
  return list;
}

// A way of the products apart that adds in the pair's order: the same instructions, K in one piece.
std::string apart_as(const Way& pair, const Program& program) {
  const MatmulFamily family = family_of(std::get<MatmulWay>(pair));
  const SelectedCalls s = select_calls(program, TestDevice::get().target.c_str());
  for (const Candidate& candidate : s.calls.calls[0].choice.candidates) {
    const auto* way = std::get_if<MatmulWay>(&candidate.way);
    if (way != nullptr && family_of(*way) == family && split_parts(*way) == 1 && !is_sliced(*way) &&
        way->warpgroups != 1)
      return to_string(candidate);
  }
  return "";
}

// One way of a network's pair, and the products apart.
void compare_pair(const Net& net, const Candidate& way) {
  const Program program = pair_network(net);
  SCOPED_TRACE(print(program) + to_string(way));
  CompileOptions joint, apart;
  joint.target = apart.target = TestDevice::get().target;
  joint.forced = {{"*", to_string(way)}};
  apart.forced = {{"matmul", apart_as(way.way, program)}};
  apart.skip_passes.insert("join_pairs");
  Artifact one = compile(program, joint), two = compile(program, apart);
  EXPECT_EQ(count_steps(one, "matmul_pair"), 1u);
  EXPECT_EQ(count_steps(two, "matmul_pair"), 0u);
  if (!TestDevice::get().runs) return;
  const auto [got, want] = TwoWays(std::move(one), std::move(two)).run(normal_inputs(program, 7));
  EXPECT_EQ(got, want);
}

TEST(JoinPairs, HasTheBitsOfTwoLaunches) {
  const TestDevice& device = TestDevice::get();
  if (!device.cuda) GTEST_SKIP() << "pairs run on GPUs";
  const std::vector<Net> all = nets();
  device.for_each(all.size(), [&](size_t i) {
    const std::vector<KernelCall> calls = pair_calls(pair_network(all[i]), device.target.c_str(), kAlways);
    if (!pair_joined(calls)) {
      ADD_FAILURE() << "network " << i << " has no pair";
      return;
    }
    // The row's choice, and another way in turn.
    const std::vector<Candidate>& ways = calls[0].choice.candidates;
    compare_pair(all[i], ways[0]);
    compare_pair(all[i], ways[1 + i % (ways.size() - 1)]);
  });
}

// One row is made by every block of the product that reads it.
TEST(JoinPairs, LeavesTheGateOfOneRowToTheNextProduct) {
  AICF_NEEDS_NVRTC();
  CompileOptions options;
  options.target = "sm_90";
  for (const int64_t rows : {1, 2048}) {
    const Artifact artifact = compile(
        pair_network({.rows = rows, .columns = 8192, .depth = 2048, .merged = true, .down = true}), options);
    EXPECT_EQ(count_steps(artifact, "matmul_pair"), rows > 1 ? 1u : 0u) << rows;
    EXPECT_EQ(steps_of(artifact).size(), 2u) << rows;
  }
}

}  // namespace
}  // namespace aicf::testing::join_pairs_test
