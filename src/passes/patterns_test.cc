// Patterns that exporters write apart, and what is narrowed after them.
#include <gtest/gtest.h>

#include <functional>

#include "passes/testing/run_pass.h"

namespace aicf {
namespace {

using testing::count_ops;
using testing::expect_equal_meaning;
using testing::kCpu;
using testing::run_pass;

TEST(NarrowContractions, WholeAttentionAndProductsTakeHalfOperands) {
  const Program program = parse(R"(program {
  entry main(%x: f32[1, 2, 4, 8], %w: f32[8, 8], %y: f64[8, 8]) {
    %0 = matmul(%x, %w) : f32[1, 2, 4, 8]
    %1 = attention(%0, %x, %x, none) {scale = 0.5, causal = true} : f32[1, 2, 4, 8]
    %2 = matmul(%y, %y) : f64[8, 8]
    return "a" = %1, "b" = %2
  }
}
)");
  PassContext context{program, kCpu, Precision::kF16Mixed};
  const Graph narrow = narrow_contractions(program.entries[0], context);
  for (const Node& node : narrow.nodes()) {
    if (node.op != Op::matmul && node.op != Op::attention) continue;
    EXPECT_NE(narrow.dtype(node.operands[0]), DType::f32) << op_info(node.op).name;
  }
  EXPECT_EQ(count_ops(narrow, Op::attention), 1);
  EXPECT_EQ(narrow.dtype(narrow.outputs()[0]), DType::f32);
  context.precision = Precision::kF32;
  EXPECT_EQ(print(narrow_contractions(program.entries[0], context)), print(program.entries[0]));
}

TEST(NarrowContractions, ProductsOfARecurrentLayerThatNoKernelTakesWholeAreNarrowed) {
  const Program program = parse(R"(program {
  entry main(%x: f32[3, 2, 24], %h: f32[1, 2, 8], %w: f32[1, 24, 8]) {
    %0, %1, %2 = recurrent(%x, %h, %w) {cell = "gru"} : f32[3, 2, 8], f32[3, 2, 0], f32[3, 2, 0]
    return "y" = %0
  }
}
)");
  const Graph narrow = narrow_contractions(program.entries[0], {program, kCpu, Precision::kBf16Mixed});
  EXPECT_EQ(count_ops(narrow, Op::recurrent), 0);
  EXPECT_EQ(count_ops(narrow, Op::linear), 3);
  for (const Node& node : narrow.nodes()) {
    if (node.op == Op::linear) {
      EXPECT_EQ(narrow.dtype(node.operands[0]), DType::bf16) << print(narrow);
    }
  }
  const Target gpu = Target::from_name("sm_90");
  EXPECT_EQ(print(narrow_contractions(program.entries[0], {program, gpu, Precision::kBf16Mixed})),
            print(program.entries[0]));
}

TEST(MatchGelu, FindsItHoweverTheHalfIsSpread) {
  const char* kPhi = R"(
    %0 = constant f32[] = [1.4142135]
    %1 = div(%x, %0) : f32[n, 4]
    %2 = erf(%1) : f32[n, 4]
    %3 = constant f32[] = [1]
    %4 = add(%2, %3) : f32[n, 4]
    %5 = constant f32[] = [0.5]
    )";
  for (const char* product : {"%6 = mul(%x, %4) : f32[n, 4]\n %7 = mul(%6, %5) : f32[n, 4]",
                              "%6 = mul(%5, %4) : f32[n, 4]\n %7 = mul(%6, %x) : f32[n, 4]",
                              "%6 = mul(%x, %5) : f32[n, 4]\n %7 = mul(%6, %4) : f32[n, 4]"}) {
    const Program program = parse("program {\n  size n in 1..9\n  entry main(%x: f32[n, 4]) {" +
                                  std::string(kPhi) + product + "\n    return \"y\" = %7\n  }\n}");
    const Graph matched = run_pass(match_gelu, program);
    ASSERT_EQ(matched.nodes().size(), 1u) << print(matched);
    EXPECT_EQ(matched.nodes()[0].op, Op::gelu);
    expect_equal_meaning(program, matched, {{"n", 3}}, 1e-6);
  }
}

// 0.5 x (1 + erf(factor x)), and what else the entry returns.
Program half_gelu(const std::string& factor, const std::string& more) {
  return parse(R"(program {
  entry main(%x: f32[4]) {
    %0 = constant f32[] = [)" +
               factor + R"(]
    %1 = mul(%x, %0) : f32[4]
    %2 = erf(%1) : f32[4]
    %3 = constant f32[] = [1]
    %4 = add(%2, %3) : f32[4]
    %5 = mul(%x, %4) : f32[4]
    %6 = constant f32[] = [0.5]
    %7 = mul(%5, %6) : f32[4]
    return "y" = %7)" +
               more + "\n  }\n}");
}

TEST(MatchGelu, LeavesOtherConstantsAndSumsThatSomeoneElseReads) {
  const auto found = [](const std::string& factor, const std::string& more) {
    return count_ops(run_pass(match_gelu, half_gelu(factor, more)), Op::gelu);
  };
  EXPECT_EQ(found("0.70710677", ""), 1);
  EXPECT_EQ(found("0.7", ""), 0);
  EXPECT_EQ(found("0.70710677", ", \"sum\" = %4"), 0);
}

TEST(MatchGelu, FindsHalvesThatAreDividedInF32) {
  const Program program = parse(R"(program {
  entry main(%x: bf16[4]) {
    %0 = cast(%x) {dtype = f32} : f32[4]
    %1 = constant f32[] = [1.4142135]
    %2 = div(%0, %1) : f32[4]
    %3 = cast(%2) {dtype = bf16} : bf16[4]
    %4 = erf(%3) : bf16[4]
    %5 = constant bf16[] = [1]
    %6 = add(%4, %5) : bf16[4]
    %7 = constant bf16[] = [0.5]
    %8 = mul(%x, %7) : bf16[4]
    %9 = mul(%8, %6) : bf16[4]
    return "y" = %9
  }
})");
  const Graph matched = run_pass(match_gelu, program);
  EXPECT_EQ(count_ops(matched, Op::gelu), 1) << print(matched);
}

constexpr const char* kAttention = R"(program {
  size t in 1..16
  entry main(%q: f32[2, 3, t, 4], %k: f32[2, 3, t, 4], %v: f32[2, 3, t, 4], %mask: f32[2, 1, 1, t]) {
    %0 = transpose(%k) {perm = [0, 1, 3, 2]} : f32[2, 3, 4, t]
    %1 = matmul(%q, %0) : f32[2, 3, t, t]
    %2 = constant f32[] = [2]
    %3 = div(%1, %2) : f32[2, 3, t, t]
    %4 = add(%3, %mask) : f32[2, 3, t, t]
    %5 = softmax(%4) {axis = 3} : f32[2, 3, t, t]
    %6 = matmul(%5, %v) : f32[2, 3, t, 4]
    return "y" = %6
  }
})";

TEST(MatchAttention, FindsScaleAndMask) {
  const Program program = parse(kAttention);
  const Graph matched = run_pass(match_attention, program);
  ASSERT_EQ(count_ops(matched, Op::attention), 1) << print(matched);
  EXPECT_EQ(count_ops(matched, Op::softmax), 0);
  for (const Node& node : matched.nodes())
    if (node.op == Op::attention) {
      EXPECT_EQ(node.attrs.get_float("scale"), 0.5);
    }
  expect_equal_meaning(program, matched, {{"t", 5}});
}

TEST(MatchAttention, LeavesScoresThatSomeoneElseReads) {
  Program program = parse(kAttention);
  Graph& entry = program.entries[0];
  entry.add_output(entry.nodes()[3].results[0], "scores");
  EXPECT_EQ(count_ops(run_pass(match_attention, program), Op::attention), 0);
}

TEST(MatchAttention, FindsFormsThatModelsWrite) {
  const auto attention_of = [](const std::string& inputs, const std::string& body) {
    return parse("program {\n  size t in 1..9\n  entry main(" + inputs + ") {\n" + body +
                 "\n    return \"y\" = %y\n  }\n}");
  };
  const std::string four = "%q: f32[2, 3, t, 4], %k: f32[2, 3, 7, 4], %v: f32[2, 3, 7, 5]",
                    three = "%q: f32[6, t, 4], %k: f32[6, 7, 4], %v: f32[6, 7, 5]";
  const std::string
      scores = "%s = matmul(%q, %k) {transpose_y = true} : f32[2, 3, t, 7]\n",
      scores3 = "%s = matmul(%q, %k) {transpose_y = true} : f32[6, t, 7]\n",
      low = "%low = constant f32[] = [-inf]\n",
      rest = "%p = softmax(%z) {axis = 3} : f32[2, 3, t, 7]\n%y = matmul(%p, %v) : f32[2, 3, t, 5]\n",
      rest3 = "%p = softmax(%z) {axis = 2} : f32[6, t, 7]\n%y = matmul(%p, %v) : f32[6, t, 5]\n";
  const Program programs[] = {
      // Two masks, of which one is of each head.
      attention_of(
          four + ", %a: f32[1, 3, t, 7], %b: f32[2, 1, 1, 7]",
          scores + "%0 = add(%s, %a) : f32[2, 3, t, 7]\n%z = add(%b, %0) : f32[2, 3, t, 7]\n" + rest),
      // Keys that are hidden and kept, with a sum between.
      attention_of(
          four + ", %a: f32[7], %b: f32[2, 3, t, 7]",
          scores + low +
              "%n = constant f32[] = [-1.5]\n%m = gt(%b, %n) : bool[2, 3, t, 7]\n%c = lt(%a, %low) : "
              "bool[7]\n"
              "%0 = select(%c, %low, %s) : f32[2, 3, t, 7]\n%1 = add(%0, %a) : f32[2, 3, t, 7]\n%z = "
              "select(%m, %1, %low) : f32[2, 3, t, 7]\n" +
              rest),
      // A factor of each head.
      attention_of(
          four + ", %f: f32[3, 1, 1], %b: f32[2, 1, 1, 7]",
          scores + "%0 = mul(%s, %f) : f32[2, 3, t, 7]\n%z = add(%b, %0) : f32[2, 3, t, 7]\n" + rest),
      // Batches of matrices, with a mask of all and one of each.
      attention_of(three + ", %a: f32[t, 7], %b: f32[6, t, 7]",
                   scores3 + "%0 = add(%s, %a) : f32[6, t, 7]\n%z = add(%0, %b) : f32[6, t, 7]\n" + rest3),
      // Batches of matrices that are heads in between.
      attention_of(three + ", %a: f32[2, 1, 1, 7], %b: f32[1, t, 7]",
                   scores3 + "%0 = add(%s, %b) : f32[6, t, 7]\n%1 = reshape(%0) {shape = [2, 3, t, 7]} : "
                             "f32[2, 3, t, 7]\n%2 = add(%1, %a) : f32[2, 3, t, 7]\n"
                             "%p = softmax(%2) {axis = 3} : f32[2, 3, t, 7]\n%3 = reshape(%p) {shape = [6, "
                             "t, 7]} : f32[6, t, 7]\n%y = matmul(%3, %v) : f32[6, t, 5]\n"),
      // Windows of a picture: a mask of each, that is the same for every picture.
      attention_of(
          "%q: f32[8, 3, t, 4], %k: f32[8, 3, 7, 4], %v: f32[8, 3, 7, 5], %a: f32[4, 1, t, 7]",
          "%s = matmul(%q, %k) {transpose_y = true} : f32[8, 3, t, 7]\n%0 = reshape(%s) {shape = [2, 4, 3, "
          "t, 7]} : f32[2, 4, 3, t, 7]\n"
          "%1 = add(%0, %a) : f32[2, 4, 3, t, 7]\n%2 = reshape(%1) {shape = [8, 3, t, 7]} : f32[8, 3, t, 7]\n"
          "%p = softmax(%2) {axis = 3} : f32[8, 3, t, 7]\n%y = matmul(%p, %v) : f32[8, 3, t, 5]\n"),
  };
  for (const Program& program : programs) {
    const Graph matched = run_pass(match_attention, program);
    EXPECT_EQ(count_ops(matched, Op::attention), 1) << print(matched);
    EXPECT_EQ(count_ops(matched, Op::softmax), 0);
    expect_equal_meaning(program, matched, {{"t", 5}});
  }
}

// A softmax in f32 between halves: the scores' casts and the weights' are inside.
TEST(MatchAttention, TakesASoftmaxBetweenCasts) {
  const Program program = parse(R"(program {
  entry main(%q: f16[2, 3, 5, 4], %k: f16[2, 3, 5, 4], %v: f16[2, 3, 5, 4], %mask: f32[1, 1, 5, 5]) {
    %0 = matmul(%q, %k) {transpose_y = true} : f16[2, 3, 5, 5]
    %1 = cast(%0) {dtype = f32} : f32[2, 3, 5, 5]
    %2 = add(%1, %mask) : f32[2, 3, 5, 5]
    %3 = softmax(%2) {axis = 3} : f32[2, 3, 5, 5]
    %4 = cast(%3) {dtype = f16} : f16[2, 3, 5, 5]
    %5 = matmul(%4, %v) : f16[2, 3, 5, 4]
    return "y" = %5
  }
})");
  const Graph matched = run_pass(match_attention, program);
  EXPECT_EQ(count_ops(matched, Op::attention), 1) << print(matched);
  expect_equal_meaning(program, matched, {});
}

TEST(MatchAttention, LeavesWhatIsAnother) {
  const auto found = [](const std::string& scores) {
    return count_ops(run_pass(match_attention, parse(R"(program {
  entry main(%q: f32[2, 3, 5, 4], %k: f32[2, 3, 5, 4], %v: f32[2, 3, 5, 4], %mask: f32[2, 3, 5, 5], %keep: bool[5, 5]) {
    %0 = matmul(%q, %k) {transpose_y = true} : f32[2, 3, 5, 5]
    %c = constant f32[] = [-65504]
    %two = constant f32[] = [2]
    )" + scores + R"(
    %2 = softmax(%1) {axis = 3} : f32[2, 3, 5, 5]
    %3 = matmul(%2, %v) : f32[2, 3, 5, 4]
    return "y" = %3
  }
})")),
                     Op::attention);
  };
  EXPECT_EQ(found("%1 = add(%0, %mask) : f32[2, 3, 5, 5]"), 1);
  // Rows without a key are no zeros then, and a mask would be scaled.
  EXPECT_EQ(found("%1 = select(%keep, %0, %c) : f32[2, 3, 5, 5]"), 0);
  EXPECT_EQ(found("%a = add(%0, %mask) : f32[2, 3, 5, 5]\n %1 = mul(%a, %two) : f32[2, 3, 5, 5]"), 0);
  EXPECT_EQ(found("%1 = mul(%0, %mask) : f32[2, 3, 5, 5]"), 0);
}

TEST(MatchAttention, KeepsTf32OfBothProducts) {
  for (const int marks : {0, 1, 2}) {
    std::string text = kAttention;
    const auto mark = [&](const std::string& product) {
      const size_t at = text.find(") : ", text.find(product));
      text.replace(at, 1, ") {tf32 = true}");
    };
    if (marks > 0) mark("matmul(%q");
    if (marks > 1) mark("matmul(%5");
    const Graph matched = run_pass(match_attention, parse(text));
    EXPECT_EQ(count_ops(matched, Op::attention), marks != 1);
    for (const Node& node : matched.nodes()) {
      if (node.op == Op::attention) {
        EXPECT_EQ(node.attrs.get_bool("tf32"), marks == 2);
      }
    }
  }
}

// An attention of 3 queries and 7 keys under this mask, and what becomes of its mask and attributes.
struct Narrowed {
  Shape mask;  // none: empty
  bool causal;
  int64_t window;
};
Narrowed narrowed(const std::string& mask) {
  const Program program = parse(R"(program {
  entry main(%q: f32[2, 3, 3, 4], %k: f32[2, 3, 7, 4], %v: f32[2, 3, 7, 4], %row: f32[7]) {
    )" + mask + R"(
    %1 = attention(%q, %k, %v, %m) {scale = 0.5} : f32[2, 3, 3, 4]
    return "y" = %1
  }
})");
  const Graph after = run_pass(narrow_attention_masks, program);
  testing::expect_equal_meaning(program, after, {});
  const Node& node = after.nodes().back();
  const ValueId left = node.operands[3];
  return {left == kNoValue ? Shape() : after.shape(left), node.attrs.get_bool("causal"),
          node.attrs.get_int("window")};
}

TEST(NarrowAttentionMasks, RepeatsAreReadOnceAndBandsNotAtAll) {
  // Of keys [first, last) of each row, for two batch rows.
  const auto band = [](const std::function<std::pair<int, int>(int)>& kept) {
    std::string text = "%m = constant bool[2, 1, 3, 7] = [";
    for (int i = 0; i < 6; ++i)
      for (int j = 0; j < 7; ++j)
        text += std::string(i + j > 0 ? ", " : "") +
                (j >= kept(i % 3).first && j < kept(i % 3).second ? "true" : "false");
    return text + "] ";
  };
  const Narrowed causal = narrowed(band([](int i) { return std::pair(0, i + 5); }));
  EXPECT_TRUE(causal.mask.empty() && causal.causal && causal.window == 0);
  const Narrowed both = narrowed(band([](int i) { return std::pair(i + 3, i + 5); }));
  EXPECT_TRUE(both.mask.empty() && both.causal && both.window == 2);
  const Narrowed window = narrowed(band([](int i) { return std::pair(i + 3, i + 6); }));
  EXPECT_TRUE(window.mask.empty() && !window.causal && window.window == 2);
  const Narrowed all = narrowed(band([](int) { return std::pair(0, 7); }));
  EXPECT_TRUE(all.mask.empty() && !all.causal);
  const Narrowed other = narrowed(band([](int i) { return std::pair(0, i == 1 ? 5 : i + 5); }));
  EXPECT_TRUE(other.mask == Shape({1, 1, 3, 7}) && !other.causal);
  const std::string spread = "%0 = broadcast_to(%row) {shape = [2, 3, 3, 7]} : f32[2, 3, 3, 7]\n";
  EXPECT_EQ(narrowed(spread + "%m = neg(%0) : f32[2, 3, 3, 7]").mask, Shape{Dim(7)});
  EXPECT_EQ(narrowed(spread + "%z = constant f32[1, 1, 1, 1] = [0]\n%m = add(%z, %0) : f32[2, 3, 3, 7]").mask,
            Shape{Dim(7)});
  EXPECT_TRUE(narrowed("%m = constant f32[7] = [0, 0, 0, 0, 0, 0, 0]").mask.empty());
  std::string added = "%m = constant f32[3, 7] = [";
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 7; ++j) added += std::string(i + j > 0 ? ", " : "") + (j < i + 5 ? "0" : "-inf");
  const Narrowed hidden = narrowed(added + "]");
  EXPECT_TRUE(hidden.mask.empty() && hidden.causal);
}

// `text` in f16.
Program in_halves(std::string text) {
  for (size_t at; (at = text.find("f32[")) != std::string::npos;) text.replace(at, 3, "f16");
  return parse(text);
}

// What is rounded must not depend on who reads it.
TEST(MatchAttention, TakesHalvesThatSomeoneElseReads) {
  Program program = in_halves(kAttention);
  Graph& entry = program.entries[0];
  entry.add_output(entry.nodes()[3].results[0], "scores");
  const Graph matched = run_pass(match_attention, program);
  EXPECT_EQ(count_ops(matched, Op::attention), 1);
  EXPECT_EQ(count_ops(matched, Op::softmax), 0);
  EXPECT_EQ(count_ops(matched, Op::matmul), 1);
}

TEST(MatchGelu, TakesHalvesThatSomeoneElseReads) {
  const std::string text = print(half_gelu("0.70710677", ", \"sum\" = %4, \"half\" = %5, \"scaled\" = %1"));
  const Graph matched = run_pass(match_gelu, in_halves(text));
  EXPECT_EQ(count_ops(matched, Op::gelu), 1);
  EXPECT_EQ(count_ops(matched, Op::erf), 1);
}

TEST(Pipeline, FindsWrittenOutCompositesOfHalvesAtEveryLevel) {
  PipelineOptions options;
  options.opt_level = 0;
  const Target gpu = Target::from_name("sm_90");  // which claims attentions of halves
  const auto attentions = [&](Program program) {
    return count_ops(run_pipeline(std::move(program), gpu, options, nullptr).entries[0], Op::attention);
  };
  EXPECT_EQ(attentions(in_halves(kAttention)), 1);
  EXPECT_EQ(attentions(parse(kAttention)), 0);
  options.precision = Precision::kBf16Mixed;
  EXPECT_EQ(attentions(parse(kAttention)), 1);
  options.skip = {"match_attention"};
  EXPECT_EQ(attentions(parse(kAttention)), 0);
}

TEST(Pipeline, NarrowsProductsWithAndWithoutBias) {
  PipelineOptions options;
  options.opt_level = 0;
  options.precision = Precision::kBf16Mixed;
  for (const bool has_bias : {false, true}) {
    Graph graph("main");
    std::vector<ValueId> operands{graph.add_input("x", {DType::f32, {2, 4}}),
                                  graph.add_input("w", {DType::f32, {4, 3}})};
    if (has_bias) operands.push_back(graph.add_input("b", {DType::f32, {3}}));
    graph.add_output(graph.add(Op::linear, operands), "y");
    Program program;
    program.entries.push_back(std::move(graph));
    const Program narrow = run_pipeline(std::move(program), kCpu, options, nullptr);
    EXPECT_EQ(count_ops(narrow.entries[0], Op::linear) + count_ops(narrow.entries[0], Op::matmul), 1);
    EXPECT_EQ(count_ops(narrow.entries[0], Op::add), has_bias);
    EXPECT_EQ(count_ops(narrow.entries[0], Op::cast), 3) << "x, w and the result";
  }
}

// A step of t tokens over caches of 16 rows, as exporters write it.
// `counted`: the number of the step for each element, as folding leaves it.
Program cached_step(const Dim& t = Dim::symbol("t"), const Array* counted = nullptr) {
  Program program;
  program.sizes["t"] = {1, 4};
  Graph graph("main");
  const auto input = [&](const char* name, Shape shape) {
    return graph.add_input(name, {DType::f32, shape});
  };
  const auto cache = [&](const std::string& name) {
    const TensorType type{DType::f32, {1, 2, 16, 4}};
    program.variables[name] = {name, Role::kState, type, {}};
    return graph.add_state(name, type);
  };
  const ValueId q = input("q", {1, 4, t, 4}), k = input("k", {1, 2, t, 4}), v = input("v", {1, 2, t, 4});
  const ValueId cos = input("cos", {t, 2}), sin = input("sin", {t, 2});
  const ValueId position = graph.add_input("position", {DType::i64, {1}});
  const ValueId start = graph.add(Op::reshape, {position}, {{"shape", Shape{1, 1, 1, 1}}});
  const Attrs count = {{"shape", Shape{1, 2, t, 4}}, {"axis", int64_t{2}}, {"dtype", DType::i64}};
  const ValueId steps = counted != nullptr ? graph.add_constant(*counted) : graph.add(Op::iota, {}, count);
  const ValueId rows = graph.add(Op::add, {steps, start});
  const auto append = [&](ValueId old, ValueId x) {
    const ValueId fresh = graph.add(Op::scatter_elements, {old, rows, x}, {{"axis", int64_t{2}}});
    graph.add_update(old, fresh);
    return fresh;
  };
  const ValueId query = graph.add(Op::rope, {q, cos, sin});
  const ValueId keys = append(cache("keys"), graph.add(Op::rope, {k, cos, sin}));
  const ValueId values = append(cache("values"), v);
  graph.add_output(graph.add(Op::attention, {query, keys, values}, {{"scale", 0.5}}), "y");
  program.entries.push_back(std::move(graph));
  return program;
}

TEST(MatchRopeAppend, RotationsAndCacheWritesAreOneStep) {
  const Program program = cached_step();
  const Graph matched = run_pass(match_rope_append, program);
  EXPECT_EQ(count_ops(matched, Op::rope_append), 1) << print(matched);
  EXPECT_EQ(count_ops(matched, Op::rope) + count_ops(matched, Op::scatter_elements), 0);
  expect_equal_meaning(program, matched, {{"t", 3}});
}

// The count of a single step, a constant by then.
TEST(MatchRopeAppend, StepsMayHaveBeenFolded) {
  Program program = cached_step(Dim(1));
  program.entries[0] = run_pass(fold_constants, program);
  EXPECT_EQ(count_ops(program.entries[0], Op::iota), 0);
  EXPECT_EQ(count_ops(run_pass(match_rope_append, program), Op::rope_append), 1);
}

// Of two steps; what lies behind the count in memory says nothing.
TEST(MatchRopeAppend, TheFoldedCountIsThatOfEveryElement) {
  const auto appends = [](size_t at, int64_t value) {
    const auto memory = std::make_shared<std::vector<int64_t>>();
    for (int64_t i = 0; i < 16; ++i) memory->push_back(i / 4 % 2);
    memory->push_back(0);
    memory->at(at) = value;
    const Array counted = Array::view(DType::i64, {1, 2, 2, 4}, memory->data(), memory);
    return count_ops(run_pass(match_rope_append, cached_step(Dim(2), &counted)), Op::rope_append);
  };
  EXPECT_EQ(appends(16, 0), 1);
  EXPECT_EQ(appends(16, 7), 1);
  EXPECT_EQ(appends(15, 7), 0);
}

TEST(MatchRopeAppend, OtherAnglesForKeysStayAlone) {
  Program program = cached_step();
  Graph& entry = program.entries[0];
  GraphRewriter rewriter(entry);
  for (const Node& node : entry.nodes()) {
    if (node.op == Op::rope && entry.value(node.operands[0]).name == "k") {
      const std::vector<ValueId> x = rewriter.values(node.operands);
      rewriter.map(node.results[0], rewriter.graph().add(Op::rope, {x[0], x[2], x[1]}));
    } else {
      rewriter.copy(node);
    }
  }
  Graph turned = rewriter.finish();
  entry = std::move(turned);
  EXPECT_EQ(count_ops(run_pass(match_rope_append, program), Op::rope_append), 0);
}

// Queries, keys and values of x [n, 3, 8] as a transformer computes them.
Program projections() {
  Program program;
  program.sizes["n"] = {1, 9};
  Graph graph("main");
  const auto param = [&](const std::string& name, std::vector<int64_t> sizes) {
    const TensorType type{DType::f32, to_shape(sizes)};
    program.variables[name] = {name, Role::kParam, type, testing::random_array(type, {}, 11)};
    return graph.add_param(name, type);
  };
  const Dim n = Dim::symbol("n");
  const ValueId x = graph.add_input("x", {DType::f32, {n, Dim(3), Dim(8)}});
  const auto project = [&](const std::string& name, int64_t columns, bool bias_first) {
    const ValueId product = graph.add(Op::matmul, {x, param("w" + name, {8, columns})});
    const ValueId bias = param("b" + name, {columns});
    return graph.add(Op::add, bias_first ? std::vector{bias, product} : std::vector{product, bias});
  };
  const ValueId q = project("q", 6, false), k = project("k", 4, true), v = project("v", 4, false);
  graph.add_output(graph.add(Op::reshape, {q}, {{"shape", Shape{n, 3, 2, 3}}}), "q");
  graph.add_output(graph.add(Op::reshape, {k}, {{"shape", Shape{n, 12}}}), "k");
  graph.add_output(graph.add(Op::transpose, {v}, {{"perm", Ints{1, 0, 2}}}), "v");
  program.entries.push_back(std::move(graph));
  return program;
}

TEST(MergeContractions, ProductsOfOneValueAreOneProduct) {
  const Program program = projections();
  const Graph merged = run_pass(merge_contractions, program);
  EXPECT_EQ(count_ops(merged, Op::matmul), 1) << print(merged);
  EXPECT_EQ(count_ops(merged, Op::add), 1);
  EXPECT_EQ(count_ops(merged, Op::slice), 3);
  expect_equal_meaning(program, merged, {{"n", 4}});
}

// Operands and results are cast; the casts of weights come in between.
TEST(MergeContractions, ProductsInHalfPrecisionAreOneProductToo) {
  Program program = projections();
  Program half = program;
  half.entries[0] = narrow_contractions(program.entries[0], {program, kCpu, Precision::kBf16Mixed});
  half.entries[0] = run_pass(eliminate_common_subexpressions, half);
  const Graph merged = run_pass(merge_contractions, half);
  EXPECT_EQ(count_ops(merged, Op::matmul), 1) << print(merged);
  expect_equal_meaning(program, merged, {{"n", 4}});
}

// A joined epilogue would cost the kernel that it saves.
TEST(MergeContractions, ProductsWithAnEpilogueStayAlone) {
  Program program = projections();
  Graph graph = program.entries[0];
  for (size_t i : {1u, 3u})
    graph.add_output(graph.add(Op::tanh, {graph.nodes()[i].results[0]}), "tanh" + std::to_string(i));
  program.entries[0] = graph;
  EXPECT_EQ(count_ops(run_pass(merge_contractions, program), Op::matmul), 3);
}

// What is joined at load would go stale.
TEST(MergeContractions, WeightsThatAnEntryWritesStayAlone) {
  Program program = projections();
  Graph step("step");
  const TensorType type = program.variables.at("wk").type;
  const ValueId wk = step.add_param("wk", type);
  step.add_update(wk, step.add(Op::sub, {wk, step.add_input("d", type)}));
  program.entries.push_back(std::move(step));
  EXPECT_EQ(count_ops(run_pass(merge_contractions, program), Op::matmul), 2);
}

}  // namespace
}  // namespace aicf
