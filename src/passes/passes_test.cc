#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "ir/reference/compare.h"
#include "ir/reference/evaluator.h"
#include "ir/text.h"
#include "passes/pass.h"

namespace aicf {
namespace {

const Target kTarget{"cpu"};

Graph run_pass(Graph (*pass)(const Graph&, const PassContext&), const Program& program) {
  return pass(program.entries[0], {program, kTarget});
}

int count_ops(const Graph& graph, Op op) {
  int count = 0;
  for (const Node& node : graph.nodes()) count += node.op == op ? 1 : 0;
  return count;
}

Array random_input(const TensorType& type, const SymbolValues& sizes) {
  std::mt19937 engine(11);
  std::normal_distribution<double> normal;
  Array array(type.dtype, evaluate(type.shape, sizes));
  for (int64_t i = 0; i < array.count(); ++i) array.set_f64(i, normal(engine));
  return array;
}

// The rewritten entry means the same, in f64.
void expect_equal_meaning(const Program& program, const Graph& rewritten, const SymbolValues& sizes,
                          double tolerance = 1e-12) {
  EvalInputs inputs;
  inputs.sizes = sizes;
  for (ValueId id : program.entries[0].inputs())
    inputs.inputs.emplace(program.entries[0].value(id).name,
                          random_input(program.entries[0].type(id), sizes));
  const auto expected = evaluate(program, program.entries[0], inputs, {false}).outputs;
  const auto actual = evaluate(program, rewritten, inputs, {false}).outputs;
  for (const auto& [name, array] : expected) {
    const CompareReport report = compare(actual.at(name), array, tolerance, tolerance);
    EXPECT_TRUE(report.ok()) << name << ": " << to_string(report);
  }
}

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
  PassContext context{program, kTarget, Precision::kF16Mixed};
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

constexpr char kLargeLoss[] = R"(program {
  entry main(%x: bf16[8, 4096, 16], %w: bf16[32768, 16], %labels: i64[32768]) {
    %0 = transpose(%w) {perm = [1, 0]} : bf16[16, 32768]
    %1 = matmul(%x, %0) : bf16[8, 4096, 32768]
    %2 = reshape(%1) {shape = [32768, 32768]} : bf16[32768, 32768]
    %3 = cross_entropy(%2, %labels) : bf16[]
    return "loss" = %3 MORE
  }
}
)";

Program large_loss(const std::string& more) {
  std::string text = kLargeLoss;
  return parse(text.replace(text.find("MORE"), 4, more));
}

TEST(FuseLinearCrossEntropy, LogitsThatNobodyElseReadsAreNeverStoredWhole) {
  const Program program = large_loss("");
  const Graph fused = run_pass(fuse_linear_cross_entropy, program);
  ASSERT_EQ(count_ops(fused, Op::linear_cross_entropy), 1);
  EXPECT_EQ(fused.nodes().size(), 2u) << print(fused);  // and a reshape of x
  EXPECT_TRUE(fused.nodes().back().attrs.get_bool("transpose_w"));
  const Graph chunks = decompose_composites(fused, {program, kTarget});
  EXPECT_EQ(count_ops(chunks, Op::matmul), 2);
  for (const Node& node : chunks.nodes())
    for (ValueId id : node.results)
      EXPECT_LE(*element_count(chunks.shape(id)).constant(), int64_t{32768} * 32768) << op_info(node.op).name;
}

TEST(FuseLinearCrossEntropy, LogitsThatSomeoneElseReadsStay) {
  EXPECT_EQ(count_ops(run_pass(fuse_linear_cross_entropy, large_loss(", \"y\" = %2")), Op::matmul), 1);
}

// `seed` is the value that the gradients start from.
Program loss_and_gradients(const std::string& seed) {
  return parse(R"(program {
  entry main(%x: f64[5, 3], %w: f64[3, 4], %s: f64[]) {
    %labels = constant i64[5] = [3, 0, 1, 1, 2]
    %0 = linear_cross_entropy(%x, %w, %labels) {dtype = f64, chunk = 2} : f64[]
    %1 = mul(%)" +
               seed +
               R"(, %s) : f64[]
    %2, %3, %4 = linear_cross_entropy_backward(%x, %w, %labels, %1) {dtype = f64, chunk = 2} : f64[], f64[5, 3], f64[3, 4]
    return "loss" = %0, "dx" = %3, "dw" = %4
  }
}
)");
}

TEST(FuseLinearCrossEntropy, ALossComesFromTheOpThatComputesItsGradients) {
  const Program program = loss_and_gradients("s");
  const Graph joined = run_pass(fuse_linear_cross_entropy, program);
  EXPECT_EQ(count_ops(joined, Op::linear_cross_entropy), 0);
  EXPECT_EQ(count_ops(joined, Op::linear_cross_entropy_backward), 1);
  expect_equal_meaning(program, joined, {});
  // Each chunk has one product for its logits and two for gradients.
  EXPECT_EQ(count_ops(decompose_composites(joined, {program, kTarget}), Op::matmul), 9);
}

TEST(FuseLinearCrossEntropy, GradientsThatStartFromTheLossComeAfterIt) {
  const Program program = loss_and_gradients("0");
  const Graph joined = run_pass(fuse_linear_cross_entropy, program);
  EXPECT_EQ(count_ops(joined, Op::linear_cross_entropy), 1);
  expect_equal_meaning(program, joined, {});
}

TEST(Simplify, NarrowingCastsComeBeforeViewsAndUndoWideningOnes) {
  const Program program = parse(R"(program {
  entry main(%x: f16[4, 6], %y: f32[4, 6]) {
    %0 = cast(%x) {dtype = f32} : f32[4, 6]
    %1 = reshape(%0) {shape = [4, 2, 3]} : f32[4, 2, 3]
    %2 = transpose(%1) {perm = [1, 0, 2]} : f32[2, 4, 3]
    %3 = cast(%2) {dtype = f16} : f16[2, 4, 3]
    %4 = reshape(%y) {shape = [24]} : f32[24]
    %5 = cast(%4) {dtype = f16} : f16[24]
    %6 = cast(%4) {dtype = i32} : i32[24]
    return "a" = %3, "b" = %5, "c" = %6
  }
}
)");
  const Graph graph = eliminate_dead_code(run_pass(simplify, program));
  EXPECT_EQ(count_ops(graph, Op::cast), 2);
  EXPECT_EQ(graph.producer(graph.outputs()[1])->op, Op::reshape);
  EXPECT_EQ(graph.producer(graph.outputs()[2])->op, Op::cast);
  expect_equal_meaning(program, graph, {});
}

TEST(Simplify, ChainsOfViewsAndIdentitiesCollapse) {
  const Program program = parse(R"(program {
  size n in 1..9
  entry main(%x: f32[n, 4]) {
    %0 = transpose(%x) {perm = [1, 0]} : f32[4, n]
    %1 = transpose(%0) {perm = [1, 0]} : f32[n, 4]
    %2 = reshape(%1) {shape = [n, 2, 2]} : f32[n, 2, 2]
    %3 = reshape(%2) {shape = [n, 4]} : f32[n, 4]
    %4 = constant f32[] = [1]
    %5 = mul(%3, %4) : f32[n, 4]
    %6 = neg(%5) : f32[n, 4]
    %7 = neg(%6) : f32[n, 4]
    return "y" = %7
  }
})");
  const Graph simplified = run_pass(simplify, program);
  EXPECT_EQ(simplified.nodes().size(), 0u) << print(simplified);
  expect_equal_meaning(program, simplified, {{"n", 3}});
}

TEST(EliminateCommonSubexpressions, EqualNodesAreComputedOnce) {
  const Program program = parse(R"(program {
  entry main(%x: f32[4]) {
    %0 = exp(%x) : f32[4]
    %1 = exp(%x) : f32[4]
    %2 = add(%0, %1) : f32[4]
    return "y" = %2
  }
})");
  const Graph merged = run_pass(eliminate_common_subexpressions, program);
  EXPECT_EQ(count_ops(merged, Op::exp), 1);
  expect_equal_meaning(program, merged, {});
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

TEST(MatchGelu, LeavesOtherConstantsAndSumsThatSomeoneElseReads) {
  Program program = parse(R"(program {
  entry main(%x: f32[4]) {
    %0 = constant f32[] = [0.7]
    %1 = mul(%x, %0) : f32[4]
    %2 = erf(%1) : f32[4]
    %3 = constant f32[] = [1]
    %4 = add(%2, %3) : f32[4]
    %5 = mul(%x, %4) : f32[4]
    %6 = constant f32[] = [0.5]
    %7 = mul(%5, %6) : f32[4]
    return "y" = %7
  }
})");
  EXPECT_EQ(count_ops(run_pass(match_gelu, program), Op::gelu), 0);
  Program shared = parse(R"(program {
  entry main(%x: f32[4]) {
    %0 = constant f32[] = [0.70710677]
    %1 = mul(%x, %0) : f32[4]
    %2 = erf(%1) : f32[4]
    %3 = constant f32[] = [1]
    %4 = add(%2, %3) : f32[4]
    %5 = mul(%x, %4) : f32[4]
    %6 = constant f32[] = [0.5]
    %7 = mul(%5, %6) : f32[4]
    return "y" = %7, "sum" = %4
  }
})");
  EXPECT_EQ(count_ops(run_pass(match_gelu, shared), Op::gelu), 0);
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

// A step of t tokens over caches of 16 rows, as exporters write it.
Program cached_step(const Dim& t = Dim::symbol("t")) {
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
  const ValueId steps =
      graph.add(Op::iota, {}, {{"shape", Shape{1, 2, t, 4}}, {"axis", int64_t{2}}, {"dtype", DType::i64}});
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
    program.variables[name] = {name, Role::kParam, type, random_input(type, {})};
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
  half.entries[0] = narrow_contractions(program.entries[0], {program, kTarget, Precision::kBf16Mixed});
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

TEST(FuseRegions, NormalisationIsOneRegion) {
  Program program = parse(R"(program {
  size n in 1..9
  entry main(%x: f32[n, 32], %g: f32[32]) {
    %0 = layer_norm(%x, %g) : f32[n, 32]
    return "y" = %0
  }
})");
  const Program original = program;
  program.entries[0] = run_pass(decompose_composites, program);
  program.entries[0] = run_pass(keep_reduced_axes, program);
  const Graph fused = run_pass(fuse_regions, program);
  EXPECT_EQ(fused.nodes().size(), 1u) << print(fused);
  expect_equal_meaning(original, fused, {{"n", 4}});
}

// A kernel that casts a norm's scale or a bias costs more than casting it again for every row.
TEST(FuseRegions, CastsOfSmallLeavesJoinTheirReaders) {
  const Program program = parse(R"(program {
  entry main(%x: f32[5, 8], %w: f32[8, 8], %b: f16[8], %s: f16[8]) {
    %0 = cast(%b) {dtype = f32} : f32[8]
    %1 = cast(%s) {dtype = f32} : f32[8]
    %2 = matmul(%x, %w) : f32[5, 8]
    %3 = add(%2, %0) : f32[5, 8]
    %4 = mul(%3, %1) : f32[5, 8]
    %5 = matmul(%4, %w) : f32[5, 8]
    %6 = mul(%5, %1) : f32[5, 8]
    return "y" = %6
  }
})");
  const Graph fused = run_pass(fuse_regions, program);
  EXPECT_EQ(fused.nodes().size(), 2u) << print(fused);
  expect_equal_meaning(program, fused, {});
}

// What a norm reads of a sum, wider or squared, it computes itself: the product gives the sum alone.
TEST(FuseRegions, AnEpilogueGivesNoWiderCopiesOfWhatItGives) {
  const Program program = parse(R"(program {
  entry main(%x: f16[5, 8], %w: f16[8, 8], %r: f16[5, 8]) {
    %0 = matmul(%x, %w) : f16[5, 8]
    %1 = add(%0, %r) : f16[5, 8]
    %2 = cast(%1) {dtype = f32} : f32[5, 8]
    %3 = mul(%2, %2) : f32[5, 8]
    %4 = reduce_sum(%3) {axes = [1], keepdims = true} : f32[5, 1]
    %5 = rsqrt(%4) : f32[5, 1]
    %6 = mul(%2, %5) : f32[5, 8]
    return "y" = %6, "sum" = %1
  }
})");
  const Graph fused = run_pass(fuse_regions, program);
  ASSERT_EQ(fused.nodes().size(), 2u) << print(fused);
  ASSERT_EQ(fused.nodes()[0].results.size(), 1u) << print(fused);
  EXPECT_EQ(fused.dtype(fused.nodes()[0].results[0]), DType::f16);
  EXPECT_EQ(fused.nodes()[1].operands.size(), 1u);
  expect_equal_meaning(program, fused, {});
}

TEST(FuseRegions, EpilogueJoinsTheContractionAndCyclesAreAvoided) {
  const Program program = parse(R"(program {
  entry main(%x: f32[5, 8], %w: f32[8, 8], %b: f32[8]) {
    %0 = matmul(%x, %w) : f32[5, 8]
    %1 = add(%0, %b) : f32[5, 8]
    %2 = tanh(%1) : f32[5, 8]
    %3 = matmul(%2, %w) : f32[5, 8]
    %4 = add(%3, %2) : f32[5, 8]
    %5 = mul(%4, %1) : f32[5, 8]
    return "y" = %5
  }
})");
  const Graph fused = run_pass(fuse_regions, program);
  EXPECT_EQ(count_ops(fused, Op::fused), 2) << print(fused);
  EXPECT_EQ(fused.nodes().size(), 2u);
  expect_equal_meaning(program, fused, {});
}

TEST(FuseRegions, AContractionReadsASingleElementFromMemory) {
  const Program program = parse(R"(program {
  entry main(%x: f32[5, 1]) {
    %0 = constant f32[1, 1] = [3]
    %1 = matmul(%x, %0) : f32[5, 1]
    %2 = add(%1, %0) : f32[5, 1]
    return "y" = %2
  }
})");
  const Graph fused = run_pass(fuse_regions, program);
  ASSERT_EQ(count_ops(fused, Op::fused), 1);
  EXPECT_EQ(fused.nodes()[0].operands.size(), 2u);
  expect_equal_meaning(program, fused, {});
}

TEST(FuseRegions, ALongRowIsNotKeptForALaterStage) {
  Program program = parse(R"(program {
  entry main(%x: f32[2, 1000000]) {
    %0 = reduce_max(%x) {axes = [1], keepdims = true} : f32[2, 1]
    %1 = sub(%x, %0) : f32[2, 1000000]
    return "y" = %1
  }
})");
  EXPECT_EQ(count_ops(run_pass(fuse_regions, program), Op::fused), 0);
}

TEST(FuseRegions, SmallRegionsOfOneDomainJoinLargeOnesDoNot) {
  for (const auto& [size, regions] : {std::pair(8, 1), std::pair(100000, 2)}) {
    const std::string n = std::to_string(size);
    const Program program =
        parse("program { entry main(%x: f32[" + n + "], %y: f32[" + n + "]) { %0 = exp(%x) : f32[" + n +
              "] %1 = neg(%0) : f32[" + n + "] %2 = log(%y) : f32[" + n + "] %3 = abs(%2) : f32[" + n +
              "] return \"a\" = %1, \"b\" = %3 } }");
    const Graph fused = run_pass(fuse_regions, program);
    EXPECT_EQ(count_ops(fused, Op::fused), regions) << print(fused);
    if (size == 8) expect_equal_meaning(program, fused, {});
  }
}

TEST(FoldConstants, CountsAFewAndLeavesRepeatsAsViews) {
  const Program program = parse(R"(program {
  entry main(%x: f32[10], %y: f32[70000]) {
    %0 = iota() {shape = [10], axis = 0, dtype = f32} : f32[10]
    %1 = constant f32[] = [2]
    %2 = broadcast_to(%1) {shape = [70000]} : f32[70000]
    %3 = add(%x, %0) : f32[10]
    %4 = add(%y, %2) : f32[70000]
    return "a" = %3, "b" = %4
  }
})");
  const Graph folded = run_pass(fold_constants, program);
  EXPECT_EQ(count_ops(folded, Op::iota), 0);
  EXPECT_EQ(count_ops(folded, Op::broadcast_to), 1);
  expect_equal_meaning(program, folded, {});
}

TEST(Pipeline, RefusesToSkipARequiredPass) {
  PipelineOptions options;
  options.skip = {"decompose_composites"};
  EXPECT_THROW(run_pipeline({}, kTarget, options, nullptr), UserError);
  options.skip = {"no_such_pass"};
  EXPECT_THROW(run_pipeline({}, kTarget, options, nullptr), UserError);
}

}  // namespace
}  // namespace aicf
