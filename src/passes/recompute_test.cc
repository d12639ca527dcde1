// What regions compute again on a GPU, and which epilogues stay apart; the meaning stays.
#include <gtest/gtest.h>

#include <random>

#include "base/training_names.h"
#include "ir/reference/compare.h"
#include "ir/reference/evaluator.h"
#include "ir/text.h"
#include "passes/pass.h"
#include "select/select.h"

namespace aicf {
namespace {

const Target kGpu{.name = "sm_90", .arch = 90};

Graph optimised(const std::string& text, const Target& target) {
  const Program program = parse(text);
  return run_pipeline(program, target, {}, nullptr).entries[0];
}

// Elements of the largest f32 value that a node of the entry gives.
int64_t largest_stored_f32(const Graph& graph) {
  int64_t most = 0;
  for (const Node& node : graph.nodes())
    for (ValueId id : node.results)
      if (graph.dtype(id) == DType::f32 && !op_info(node.op).has(kView))
        most = std::max(most, *element_count(graph.shape(id)).constant());
  return most;
}

// A norm's forward and backward part around a product that keeps them apart, and a param that is trained.
const char* const kNorm = R"(program {
  param "s" : f32[256]
  entry step(%x: bf16[64, 256], %w: bf16[256, 256]) {
    %s = param "s" : f32[256]
    %n = constant f32[] = [256]
    %0 = cast(%x) {dtype = f32} : f32[64, 256]
    %1 = reduce_sum(%0) {axes = [1], keepdims = true} : f32[64, 1]
    %2 = div(%1, %n) : f32[64, 1]
    %3 = sub(%0, %2) : f32[64, 256]
    %4 = mul(%3, %s) : f32[64, 256]
    %5 = cast(%4) {dtype = bf16} : bf16[64, 256]
    %6 = matmul(%5, %w) : bf16[64, 256]
    %7 = cast(%6) {dtype = f32} : f32[64, 256]
    %8 = mul(%7, %3) : f32[64, 256]
    %9 = reduce_sum(%8) {axes = [0], keepdims = true} : f32[1, 256]
    %10 = reshape(%9) {shape = [256]} : f32[256]
    update "s" = %10
    return "y" = %6
  }
}
)";

TEST(Recompute, CentredActivationsOfATrainingStepAreNotStored) {
  EXPECT_LE(largest_stored_f32(optimised(kNorm, kGpu)), 256);
  EXPECT_EQ(largest_stored_f32(optimised(kNorm, Target())), 64 * 256);  // the CPU keeps them
}

// Values of as many elements that nodes of the entry give in f32.
int64_t stored_f32(const Graph& graph, int64_t elements) {
  int64_t count = 0;
  for (const Node& node : graph.nodes())
    for (ValueId id : node.results)
      count += graph.dtype(id) == DType::f32 && element_count(graph.shape(id)) == Dim(elements);
  return count;
}

TEST(Recompute, OfInferenceOnlyWiderCopiesAreNotStored) {
  std::string text = kNorm;
  text.replace(text.find("update \"s\" = %10\n    return \"y\" = %6"), 37,
               "return \"y\" = %6, \"z\" = %10, \"m\" = %2");
  // Beside what the product gives in f32, the centred rows are; x in f32, where another region reads that, is
  // not.
  Program program = parse(text);
  EXPECT_EQ(stored_f32(run_pipeline(program, kGpu, {}, nullptr).entries[0], 64 * 256), 2);
  PipelineOptions options;
  options.skip = {"recompute_values"};
  std::string twice = text;
  twice.replace(twice.find("mul(%7, %3)"), 11, "mul(%7, %0)");
  const Program other = parse(twice);
  EXPECT_EQ(stored_f32(run_pipeline(other, kGpu, options, nullptr).entries[0], 64 * 256), 2);
  EXPECT_EQ(stored_f32(run_pipeline(other, kGpu, {}, nullptr).entries[0], 64 * 256), 1);
  // A part of a training step says that it is one.
  program.metadata[kGradientsKey] = "";
  EXPECT_EQ(stored_f32(run_pipeline(program, kGpu, {}, nullptr).entries[0], 64 * 256), 0);
}

// A norm whose statistics pass through a product before a region without reductions reads them.
TEST(Recompute, OfInferenceNoCentredValuesAreStoredForPointwiseRegions) {
  const Program program = parse(R"(program {
  entry main(%x: f32[64, 256], %w: f32[1, 1]) {
    %n = constant f32[] = [256]
    %0 = reduce_sum(%x) {axes = [1], keepdims = true} : f32[64, 1]
    %1 = div(%0, %n) : f32[64, 1]
    %2 = sub(%x, %1) : f32[64, 256]
    %3 = mul(%2, %2) : f32[64, 256]
    %4 = reduce_sum(%3) {axes = [1], keepdims = true} : f32[64, 1]
    %5 = matmul(%4, %w) : f32[64, 1]
    %6 = mul(%2, %5) : f32[64, 256]
    return "y" = %6
  }
}
)");
  EXPECT_EQ(stored_f32(run_pipeline(program, kGpu, {}, nullptr).entries[0], 64 * 256), 1);
  PipelineOptions options;
  options.skip = {"recompute_values"};
  EXPECT_EQ(stored_f32(run_pipeline(program, kGpu, options, nullptr).entries[0], 64 * 256), 2);
}

// A norm's param that two regions and its own update read in f32.
const char* const kWidened = R"(program {
  param "s" : bf16[256]
  entry step(%x: bf16[64, 256], %w: bf16[256, 256]) {
    %s = param "s" : bf16[256]
    %f = cast(%s) {dtype = f32} : f32[256]
    %0 = cast(%x) {dtype = f32} : f32[64, 256]
    %1 = reduce_max(%0) {axes = [1], keepdims = true} : f32[64, 1]
    %2 = sub(%0, %1) : f32[64, 256]
    %3 = mul(%2, %f) : f32[64, 256]
    %4 = cast(%3) {dtype = bf16} : bf16[64, 256]
    %5 = matmul(%4, %w) : bf16[64, 256]
    %6 = cast(%5) {dtype = f32} : f32[64, 256]
    %7 = mul(%6, %f) : f32[64, 256]
    %8 = reduce_max(%7) {axes = [1], keepdims = true} : f32[64, 1]
    %9 = sub(%7, %8) : f32[64, 256]
    %10 = cast(%9) {dtype = bf16} : bf16[64, 256]
    %11 = mul(%f, %f) : f32[256]
    %12 = cast(%11) {dtype = bf16} : bf16[256]
    update "s" = %12
    return "y" = %10
  }
}
)";

TEST(Recompute, AParamIsWidenedWhereItIsRead) {
  const auto copies = [](const Graph& graph) {
    int count = 0;
    for (const Node& node : graph.nodes())
      for (ValueId id : node.results)
        count += graph.dtype(id) == DType::f32 && graph.shape(id) == Shape{Dim(256)} ? 1 : 0;
    return count;
  };
  EXPECT_EQ(copies(optimised(kWidened, kGpu)), 0) << print(optimised(kWidened, kGpu));
  EXPECT_EQ(copies(optimised(kWidened, Target())), 1);
}

// Sums over the columns of a norm of rows: a region of rows stores no weight, which is over other elements.
TEST(Recompute, ARegionStoresWhatIsOverItsElementsOrItsRows) {
  Program program = parse(R"(program {
  entry main(%x: f16[100, 64], %w: f16[64], %b: f16[64]) {
    %0 = layer_norm(%x, %w, %b) {axis = 1} : f16[100, 64]
    %1 = tanh(%0) : f16[100, 64]
    %2 = cast(%1) {dtype = f32} : f32[100, 64]
    %3 = reduce_sum(%2) {axes = [0]} : f32[64]
    %4 = cast(%3) {dtype = f16} : f16[64]
    return "y" = %4
  }
}
)");
  program.metadata[kGradientsKey] = "";
  const Graph graph = run_pipeline(program, kGpu, {}, nullptr).entries[0];
  for (const Node& node : graph.nodes()) {
    if (node.op != Op::fused) continue;
    for (ValueId id : node.results) EXPECT_EQ(graph.type(id).rank(), 2) << print(graph);
  }
}

// The sums of dy and of dy x over the rows read dy once, on a GPU.
TEST(MergeReductions, SumsThatReadOneValueAreOneRegion) {
  const char* const text = R"(program {
  param "b" : f32[256]
  param "s" : f32[256]
  entry step(%x: f32[64, 256], %dy: f32[64, 256]) {
    %b = param "b" : f32[256]
    %s = param "s" : f32[256]
    %0 = mul(%dy, %x) : f32[64, 256]
    %1 = reduce_sum(%0) {axes = [0], keepdims = false} : f32[256]
    %2 = reduce_sum(%dy) {axes = [0], keepdims = false} : f32[256]
    update "s" = %1
    update "b" = %2
    return "y" = %dy
  }
}
)";
  const auto sums = [](const Graph& graph) {
    int count = 0;
    for (const Node& node : graph.nodes()) count += node.op == Op::fused || node.op == Op::reduce_sum ? 1 : 0;
    return count;
  };
  EXPECT_EQ(sums(optimised(text, kGpu)), 1);
  EXPECT_EQ(sums(optimised(text, Target())), 2);
}

// y = x w, and w is replaced by a step that reads two moments.
const char* const kStep = R"(program {
  param "w" : bf16[1024, 1024]
  state "m" : bf16[1024, 1024]
  state "v" : bf16[1024, 1024]
  entry step(%x: bf16[1024, 512], %y: bf16[512, 1024]) {
    %w = param "w" : bf16[1024, 1024]
    %m = state "m" : bf16[1024, 1024]
    %v = state "v" : bf16[1024, 1024]
    %0 = matmul(%x, %y) : bf16[1024, 1024]
    %1 = add(%m, %0) : bf16[1024, 1024]
    %2 = mul(%0, %0) : bf16[1024, 1024]
    %3 = add(%v, %2) : bf16[1024, 1024]
    %4 = div(%1, %3) : bf16[1024, 1024]
    %5 = sub(%w, %4) : bf16[1024, 1024]
    update "w" = %5
    update "m" = %1
    update "v" = %3
    return "d" = %4
  }
}
)";

int count_of_kind(const Graph& graph, const std::string& kind) {
  int count = 0;
  for (const Node& node : graph.nodes())
    count += node.op == Op::fused && node.attrs.get_str("kind") == kind ? 1 : 0;
  return count;
}

TEST(FuseRegions, AnOptimizersStepIsNoEpilogueOnAGpu) {
  const Graph gpu = optimised(kStep, kGpu), cpu = optimised(kStep, Target());
  EXPECT_EQ(count_of_kind(gpu, "matmul"), 0);
  EXPECT_EQ(count_of_kind(gpu, "tile"), 1);
  EXPECT_EQ(count_of_kind(cpu, "matmul"), 1);
}

// Numbering classes takes no operand: a row's own index is known.
TEST(FuseRegions, ARowCountsItsElements) {
  const Graph graph = optimised(R"(program {
  entry main(%x: f32[64, 5000], %i: i64[64, 1]) {
    %0 = iota() {axis = 1, dtype = i64, shape = [1, 5000]} : i64[1, 5000]
    %1 = eq(%0, %i) : bool[64, 5000]
    %2 = constant f32[] = [0]
    %3 = select(%1, %x, %2) : f32[64, 5000]
    %4 = reduce_sum(%3) {axes = [1], keepdims = true} : f32[64, 1]
    return "y" = %4
  }
}
)",
                                kGpu);
  ASSERT_EQ(graph.nodes().size(), 1u);
  EXPECT_EQ(graph.nodes()[0].operands.size(), 2u);
}

// The gradient of a norm's operand goes through the rows; the sums over them that its scale, its bias and the
// bias before it want are taken along, on a GPU and where rows are many.
std::string norm_gradients(const std::string& rows) {
  std::string text = R"(program {
  param "b" : bf16[256]
  param "s" : f32[256]
  entry step(%x: bf16[R, 256], %dy: bf16[R, 256], %w: bf16[256, 256]) {
    %b = param "b" : bf16[256]
    %s = param "s" : f32[256]
    %0 = cast(%dy) {dtype = f32} : f32[R, 256]
    %1 = cast(%x) {dtype = f32} : f32[R, 256]
    %2 = mul(%0, %1) : f32[R, 256]
    %3 = reduce_sum(%2) {axes = [1], keepdims = true} : f32[R, 1]
    %4 = sub(%0, %3) : f32[R, 256]
    %5 = cast(%4) {dtype = bf16} : bf16[R, 256]
    %6 = matmul(%5, %w) : bf16[R, 256]
    %7 = reduce_sum(%2) {axes = [0], keepdims = false} : f32[256]
    %8 = reduce_sum(%5) {axes = [0], keepdims = false} : bf16[256]
    update "s" = %7
    update "b" = %8
    return "y" = %6
  }
}
)";
  for (size_t at = text.find("[R"); at != std::string::npos; at = text.find("[R", at + 1))
    text.replace(at + 1, 1, rows);
  return text;
}

int regions_in(const Graph& graph) {
  int count = 0;
  for (const Node& node : graph.nodes()) count += node.op == Op::fused || node.op == Op::reduce_sum ? 1 : 0;
  return count;
}

TEST(MergeColumnSums, OneWalkOverTheRowsServesAll) {
  const Graph merged = optimised(norm_gradients("4096"), kGpu);
  EXPECT_EQ(regions_in(merged), 1) << print(merged);
  EXPECT_EQ(regions_in(optimised(norm_gradients("64"), kGpu)), 3);
  EXPECT_EQ(regions_in(optimised(norm_gradients("4096"), Target())), 3);
}

TEST(MergeColumnSums, TheMeaningStays) {
  const Program program = parse(norm_gradients("2048"));
  Program merged = run_pipeline(program, kGpu, {}, nullptr);
  ASSERT_EQ(regions_in(merged.entries[0]), 1);
  EvalInputs inputs;
  std::mt19937 engine(3);
  std::normal_distribution<double> normal;
  for (ValueId id : program.entries[0].inputs()) {
    Array array(DType::bf16, evaluate(program.entries[0].shape(id), {}));
    for (int64_t i = 0; i < array.count(); ++i) array.set_f64(i, normal(engine));
    inputs.inputs.emplace(program.entries[0].value(id).name, std::move(array));
  }
  for (const bool rounded : {false, true}) {
    const auto want = evaluate(program, program.entries[0], inputs, {rounded});
    const auto got = evaluate(merged, merged.entries[0], inputs, {rounded});
    ASSERT_EQ(want.updated.size(), 2u);
    ASSERT_EQ(want.outputs.size(), 1u);
    const auto same = [&](const std::map<std::string, Array>& ours,
                          const std::map<std::string, Array>& theirs) {
      ASSERT_EQ(ours.size(), theirs.size());
      for (const auto& [name, array] : theirs) {
        const CompareReport report = compare(ours.at(name), array, 1e-12, 1e-12);
        EXPECT_TRUE(report.ok()) << name << ": " << to_string(report);
      }
    };
    same(got.updated, want.updated);
    same(got.outputs, want.outputs);
  }
}

// A small bias's gradient is a sum over the rows, and its step follows in the same region, on a GPU.
std::string bias_step(const std::string& rows) {
  return R"(program {
  param "b" : f32[16]
  state "m" : f32[16]
  entry step(%dy: f32[)" +
         rows + R"(, 16]) {
    %b = param "b" : f32[16]
    %m = state "m" : f32[16]
    %0 = reduce_sum(%dy) {axes = [0], keepdims = false} : f32[16]
    %1 = exp(%m) : f32[16]
    %2 = add(%1, %0) : f32[16]
    %3 = sub(%b, %2) : f32[16]
    update "b" = %3
    update "m" = %2
    return "y" = %dy
  }
}
)";
}

TEST(FuseRegions, ASmallBiasStepsWithItsSum) {
  EXPECT_EQ(regions_in(optimised(bias_step("64"), kGpu)), 1);
  EXPECT_EQ(regions_in(optimised(bias_step("64"), Target())), 2);
  EXPECT_EQ(regions_in(optimised(bias_step("65536"), kGpu)), 2);
}

// In place: a copy would be a call of its own.
TEST(FuseRegions, ASmallBiasIsReplacedByItsStep) {
  Program program = parse(bias_step("64"));
  program = run_pipeline(program, kGpu, {}, nullptr);
  const CallGraph calls = select_kernels(program.entries[0], Target::from_name("sm_90"), {});
  EXPECT_EQ(calls.calls.size(), 2u) << to_string(calls);  // and the output's copy
}

}  // namespace
}  // namespace aicf
