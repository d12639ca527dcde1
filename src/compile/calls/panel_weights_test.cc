// Weights in panels: which are stored so, where they go, and that the bits are those of weights as the file
// holds them.
#include <gtest/gtest.h>

#include "codegen/testing/needs_nvrtc.h"
#include "compile/testing/random_arrays.h"
#include "compile/testing/selected_calls.h"
#include "compile/testing/two_ways.h"
#include "ir/text.h"

namespace aicf::testing::panel_weights_test {
namespace {

constexpr int64_t kDepth = 512, kColumns = 768;

// y = gelu(x · w), and what else the options say.
struct Net {
  Dim rows = Dim(16);
  int64_t depth = kDepth, columns = kColumns;
  DType dtype = DType::bf16;
  bool turned = false;     // w is stored as [N, K]
  bool joined = false;     // three weights of one x, whose products selection joins
  bool gate = false;       // y = silu(x · w) * (x · v)
  bool norm = false;       // of x first
  bool table = false;      // rows of w are looked up, too,
  bool second = false;     //   or of v
  bool updated = false;    // w is stepped
  int64_t more_rows = 0;   // of another x that is multiplied by w
  bool both_ways = false;  // z · w^T is a result, too
};

class NetBuilder {
 public:
  explicit NetBuilder(const Net& net) : net_(net), graph_("main") {}

  Program run() {
    ValueId x = graph_.add_input("x", {net_.dtype, {net_.rows, Dim(net_.depth)}});
    if (net_.norm) x = normed(x);
    const ValueId w = weight("w");
    ValueId y = product(x, w), v = kNoValue;
    if (net_.joined) {
      for (const char* name : {"k", "v"}) graph_.add_output(transposed(product(x, weight(name))), name);
      y = transposed(y);
    }
    if (net_.gate) {
      y = graph_.add(Op::mul, {y, graph_.add(Op::sigmoid, {y})});
      v = weight("v");
      y = graph_.add(Op::mul, {y, product(x, v)});
    } else {
      y = graph_.add(Op::gelu, {y});
    }
    graph_.add_output(y, "y");
    if (net_.more_rows > 0)
      graph_.add_output(
          product(graph_.add_input("z", {net_.dtype, {Dim(net_.more_rows), Dim(net_.depth)}}), w), "more");
    if (net_.both_ways)
      graph_.add_output(
          product(graph_.add_input("z", {net_.dtype, {net_.rows, Dim(net_.columns)}}), transposed(w)),
          "back");
    if (net_.table)
      graph_.add_output(
          graph_.add(Op::gather, {net_.second ? v : w, graph_.add_input("index", {DType::i64, {Dim(3)}})},
                     {{"axis", int64_t{0}}}),
          "looked_up");
    if (net_.updated) graph_.add_update(w, graph_.add(Op::neg, {w}));
    program_.entries.push_back(std::move(graph_));
    return std::move(program_);
  }

 private:
  ValueId weight(const std::string& name) {
    const std::vector<int64_t> sizes =
        net_.turned ? std::vector{net_.columns, net_.depth} : std::vector{net_.depth, net_.columns};
    const Array data = random_array(net_.dtype, sizes, static_cast<uint32_t>(name[0]));
    program_.variables[name] = {name, Role::kParam, {net_.dtype, to_shape(sizes)}, data};
    return graph_.add_param(name, program_.variables.at(name).type);
  }
  ValueId transposed(ValueId x) {
    return graph_.add(Op::transpose, {x}, {{"perm", std::vector<int64_t>{1, 0}}});
  }
  ValueId product(ValueId x, ValueId w) {
    return graph_.add(Op::matmul, {x, net_.turned ? transposed(w) : w});
  }
  ValueId normed(ValueId x) {
    const ValueId scale = graph_.add_input("scale", {net_.dtype, {Dim(net_.depth)}});
    return graph_.add(Op::rms_norm, {x, scale}, {{"epsilon", 1e-5}});
  }

  const Net net_;
  Graph graph_;
  Program program_;
};

Program network(const Net& net) { return NetBuilder(net).run(); }

bool reads_panels(const Step& step) { return step.inputs[1].sizes.size() == 3; }

Artifact compiled(const Net& net, const std::string& target = "sm_90") {
  CompileOptions options;
  options.target = target;
  return compile(network(net), options);
}

TEST(PanelWeights, AreThoseOfProductsOfFewRows) {
  AICF_NEEDS_NVRTC();
  for (const bool turned : {false, true})
    for (const auto& [rows, panels] : {std::pair(1, true), {16, true}, {256, true}, {257, false}}) {
      const Artifact artifact = compiled({.rows = Dim(rows), .turned = turned});
      const Step& step = steps_of(artifact)[0];
      EXPECT_EQ(reads_panels(step), panels) << rows;
      if (!panels) continue;
      EXPECT_EQ(to_string(step.inputs[1].sizes), "[8, 768, 64]");
      EXPECT_EQ(to_string(step.inputs[1].strides), "[49152, 64, 1]");
      EXPECT_EQ(artifact.variants[0].plan.packed_bytes, kDepth * kColumns * 2);
    }
}

TEST(PanelWeights, SayWhy) {
  expect_told(told("panel_weights", network({})), "taken", "reads 'w' in panels");
  expect_told(told("panel_weights", network({.table = true})), "refused", "'w' is read in another form by ");
  expect_told(told("panel_weights", network({.both_ways = true})), "refused", "'w' would take more memory");
}

TEST(PanelWeights, NeedTheCopyEngineAndWholePanels) {
  AICF_NEEDS_NVRTC();
  EXPECT_FALSE(reads_panels(steps_of(compiled({}, "sm_80"))[0]));
  EXPECT_FALSE(reads_panels(steps_of(compiled({.dtype = DType::f32}))[0]));
  EXPECT_FALSE(reads_panels(steps_of(compiled({.depth = kDepth + 8}))[0]));
}

TEST(PanelWeights, AreReadByNobodyInAnotherForm) {
  AICF_NEEDS_NVRTC();
  EXPECT_EQ(compiled({.table = true}).variants[0].plan.packed_bytes, 0);
  EXPECT_EQ(compiled({.updated = true}).variants[0].plan.packed_bytes, 0);
  // As it is and transposed it would be stored twice.
  EXPECT_EQ(compiled({.both_ways = true}).variants[0].plan.packed_bytes, 0);
  // Of a pair both matrices stay as they are, whichever is looked up.
  for (const bool second : {false, true}) {
    const Artifact gate = compiled(
        {.rows = Dim(256), .depth = 1024, .columns = 4096, .gate = true, .table = true, .second = second});
    EXPECT_EQ(count_steps(gate, "matmul_pair"), 1u);
    EXPECT_EQ(gate.variants[0].plan.packed_bytes, 0);
  }
  // A pair of many rows reads one of them as well, so the other follows.
  const Artifact pair =
      compiled({.rows = Dim(512), .depth = 1024, .columns = 4096, .gate = true, .more_rows = 16});
  EXPECT_EQ(count_steps(pair, "matmul_pair"), 1u);
  EXPECT_EQ(pair.variants[0].plan.packed_bytes, 2 * 1024 * 4096 * 2);
  // A product of many rows reads them as well.
  const Artifact artifact = compiled({.more_rows = 1024});
  EXPECT_EQ(artifact.variants[0].plan.packed_bytes, kDepth * kColumns * 2);
  for (const Step& step : steps_of(artifact)) EXPECT_TRUE(reads_panels(step)) << step.kernel;
}

TEST(PanelWeights, OfWeightsThatAreJoinedTakeNoMoreMemory) {
  AICF_NEEDS_NVRTC();
  for (const bool turned : {false, true}) {
    const Artifact artifact = compiled({.turned = turned, .joined = true});
    const Plan& plan = artifact.variants[0].plan;
    EXPECT_EQ(to_string(steps_of(artifact)[0].inputs[1].sizes), "[8, 2304, 64]");
    EXPECT_EQ(plan.packed_bytes, 3 * kDepth * kColumns * 2);
    for (const Step& step : plan.entry(kInitEntry)->steps)
      EXPECT_EQ(to_string(step.outputs[0].sizes), "[8, 768, 64]");
  }
}

// The plans of all buckets share them.
TEST(PanelWeights, AreStoredOnceForAllBuckets) {
  AICF_NEEDS_NVRTC();
  Program program = network({.rows = Dim::symbol("n")});
  program.sizes["n"] = {1, 512};
  program.buckets["n"] = {16, 512};
  CompileOptions options;
  options.target = "sm_90";
  const Plan plan = std::move(compile(program, options).variants[0].plan);
  ASSERT_EQ(plan.buckets.size(), 1u);
  EXPECT_TRUE(reads_panels(plan.buckets[0].steps[0]));
  EXPECT_TRUE(reads_panels(plan.entries[0].steps[0]));
  EXPECT_EQ(plan.packed_bytes, kDepth * kColumns * 2);
}

std::vector<Net> nets() {
  std::vector<Net> list;
  for (const int64_t rows : {1, 3, 16, 64, 130, 256})
    for (const bool turned : {false, true}) {
      list.push_back({.rows = Dim(rows), .turned = turned});
      list.push_back({.rows = Dim(rows), .depth = 1152, .columns = 200, .turned = turned, .joined = true});
    }
  list.push_back({.rows = Dim(1), .depth = 2048, .columns = 1024, .norm = true});
  list.push_back({.rows = Dim(256), .depth = 1024, .columns = 4096, .gate = true});
  list.push_back({.rows = Dim(16), .dtype = DType::f16, .more_rows = 1024});
  return list;
}

TEST(PanelWeights, GiveTheBitsOfWeightsAsTheyAre) {
  const TestDevice& device = TestDevice::get();
  if (!device.has_clusters()) GTEST_SKIP() << "panels are read on GPUs from sm_90 on";
  const std::vector<Net> all = nets();
  device.for_each(all.size(), [&](size_t i) {
    const Program program = network(all[i]);
    SCOPED_TRACE(print(program));
    Artifact panels = compiled_with("panel_weights", true, program, device.target.c_str());
    Artifact stored = compiled_with("panel_weights", false, program, device.target.c_str());
    EXPECT_TRUE(reads_panels(steps_of(panels)[0])) << steps_of(panels)[0].kernel;
    EXPECT_FALSE(reads_panels(steps_of(stored)[0]));
    if (!device.runs) return;
    TwoWays ways(std::move(panels), std::move(stored));
    const auto inputs = normal_inputs(program, 7);
    const auto [got, want] = ways.run(inputs);
    EXPECT_EQ(got, want);
    // Other weights are laid out anew.
    const std::vector<int64_t> sizes = program.variables.at("w").data.sizes();
    const std::map<std::string, Array> other = {{"w", random_array(all[i].dtype, sizes, 99)}};
    const auto changed = Executable(ways.first.model().with_weights(other)).run("main", inputs);
    EXPECT_EQ(changed, Executable(ways.second.model().with_weights(other)).run("main", inputs));
    EXPECT_NE(changed, got);
  });
}

}  // namespace
}  // namespace aicf::testing::panel_weights_test
