// Ways in which wgmma products store and load their tiles: each gives the bits of the plain way, or, with K
// split, its results.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "codegen/testing/needs_nvrtc.h"
#include "compile/testing/random_arrays.h"
#include "compile/testing/two_ways.h"
#include "ir/text.h"

namespace aicf::testing::product_tiles_test {
namespace {

struct TileCase {
  DType dtype;
  int64_t rows, columns, depth;
  const char *plain, *other;  // variants of matmul_tensor_core
  double error = 0;           // relative, at most; 0: the same bits
};

const TileCase kTileCases[] = {
    {DType::f16, 8192, 1152, 384, "wgmma 128x192 stages 5 warpgroups 2",
     "wgmma 128x192 stages 3 warpgroups 2 epilogue-warps stationary-x"},
    {DType::bf16, 8000, 1160, 360, "wgmma 128x192 stages 5 warpgroups 2",
     "wgmma 128x192 stages 3 warpgroups 2 epilogue-warps stationary-x"},
    {DType::f16, 4096, 2304, 128, "wgmma 128x192 stages 4 warpgroups 2 epilogue-warps",
     "wgmma 128x192 stages 3 warpgroups 2 epilogue-warps stationary-x"},
    {DType::bf16, 256, 4096, 4096, "wgmma 128x64 stages 8 warpgroups 2",
     "wgmma 128x128 stages 5 splits 2 cluster warpgroups 2", 5e-4},
    {DType::f16, 200, 1000, 1096, "wgmma 128x64 stages 8 warpgroups 2",
     "wgmma 128x128 stages 5 splits 2 cluster warpgroups 2", 1e-4},
};

// gelu(x · w + bias).
Program network(const TileCase& c) {
  Program program;
  Graph graph("main");
  const ValueId x = graph.add_input("x", {c.dtype, {Dim(c.rows), Dim(c.depth)}});
  const ValueId w = graph.add_input("w", {c.dtype, {Dim(c.depth), Dim(c.columns)}});
  const ValueId bias = graph.add_input("bias", {c.dtype, {Dim(c.columns)}});
  graph.add_output(graph.add(Op::gelu, {graph.add(Op::add, {graph.add(Op::matmul, {x, w}), bias})}), "y");
  program.entries.push_back(std::move(graph));
  return program;
}

Artifact compiled(const Program& program, const char* variant) {
  CompileOptions options;
  options.target = "sm_90";
  options.forced = {{"*", std::string("matmul_tensor_core/") + variant}};
  return compile(program, options);
}

TEST(ProductTiles, HaveTheResultsOfThePlainWay) {
  AICF_NEEDS_NVRTC();
  for (const TileCase& c : kTileCases) {
    const Program program = network(c);
    SCOPED_TRACE(print(program) + c.other);
    Artifact plain = compiled(program, c.plain), other = compiled(program, c.other);
    if (!TestDevice::get().runs_clusters()) continue;
    const auto [got, want] = TwoWays(std::move(other), std::move(plain)).run(normal_inputs(program, 11));
    if (c.error == 0)
      EXPECT_EQ(got.at("y"), want.at("y"));
    else
      EXPECT_LT(relative_error(got.at("y"), want.at("y")), c.error);
  }
}

// As a caller may still write them (kernels/common/way.cc).
TEST(ProductTiles, WordsOfBeforeChooseTheSame) {
  AICF_NEEDS_NVRTC();
  const Program program = network(kTileCases[2]);
  const Artifact before = compiled(program, "wgmma 128x192 stages 4 warpgroups 2 handed"),
                 now = compiled(program, kTileCases[2].plain);
  EXPECT_EQ(steps_of(before)[0].variant, kTileCases[2].plain);
  EXPECT_EQ(steps_of(before), steps_of(now));
}

// Products in a row, each over weights of its own: a and b read inputs, c what the launch before it writes, d
// what an earlier one wrote.
Program chain(int64_t rows, int64_t width, const std::string& names) {
  Program program;
  Graph graph("main");
  std::map<std::string, ValueId> made;
  for (const char name : names) {
    const std::string weights(1, name);
    const std::vector<int64_t> sizes = {width, width};
    program.variables[weights] = {weights,
                                  Role::kParam,
                                  {DType::bf16, to_shape(sizes)},
                                  random_array(DType::bf16, sizes, static_cast<uint32_t>(name))};
    const std::string from = name == 'c' ? "b" : name == 'd' ? "a" : "";
    const ValueId x = from.empty() ? graph.add_input("x_" + weights, {DType::bf16, {Dim(rows), Dim(width)}})
                                   : made.at(from);
    const ValueId w = graph.add_param(weights, program.variables.at(weights).type);
    made[weights] = graph.add(Op::gelu, {graph.add(Op::matmul, {x, w}, {{"transpose_y", true}})},
                              {{"approximate", "tanh"}});
    graph.add_output(made[weights], "y_" + weights);
  }
  program.entries.push_back(std::move(graph));
  return program;
}

// Neighbours share work of their gelu, but not what is no number or too large for one.
TEST(ProductTiles, NotANumberStaysInItsColumn) {
  AICF_NEEDS_NVRTC();
  constexpr int64_t kRows = 256, kWidth = 1024;
  Program program = chain(kRows, kWidth, "b");
  Array& weights = program.variables.at("b").data;
  const auto set_row = [&](int64_t row, double value) {
    for (int64_t k = 0; k < kWidth; ++k) weights.set_f64(row * kWidth + k, value);
  };
  set_row(5, std::numeric_limits<double>::quiet_NaN());
  set_row(8, std::numeric_limits<double>::infinity());
  Artifact artifact = compiled(program, "wgmma 128x64 stages 8 warpgroups 2");
  if (!TestDevice::get().has_clusters() || !TestDevice::get().runs) return;
  const Array y = Executable(Model::load(std::move(artifact), open_device({"cuda"})))
                      .run("main", {{"x_b", normal_inputs(program, 5).at("x_b")}})
                      .at("y_b");
  for (int64_t i = 0; i < y.count(); ++i) {
    if (i % kWidth == 8) continue;
    ASSERT_EQ(std::isnan(y.get_f64(i)), i % kWidth == 5) << i;
  }
}

TEST(ProductTiles, ReadEarlyWhatNobodyIsWriting) {
  AICF_NEEDS_NVRTC();
  const std::vector<std::vector<int32_t>> both = {{0, 1}, {0, 1}, {1}, {0, 1}},
                                          weights = {{1}, {1}, {1}, {1}};
  struct Way {
    int64_t rows;
    const char* variant;
    const std::vector<std::vector<int32_t>>& early;
  };
  for (const auto& [rows, variant, early] :
       {Way{1, "wgmma 64x32 stages 16 warpgroups 1", both},
        Way{1, "wgmma 64x64 stages 8 splits 2 cluster warpgroups 1 occupancy 2", both},
        Way{16, "wgmma 64x32 stages 16 warpgroups 1", both},
        Way{200, "wgmma 128x64 stages 8 warpgroups 2", both},
        Way{256, "wgmma 128x64 stages 8 warpgroups 2", both},
        Way{100, "wgmma 128x64 stages 8 splits 2 cluster warpgroups 2", both},
        Way{2200, "wgmma 128x64 stages 8 warpgroups 2", weights},  // blocks with two tiles
        Way{256, "wgmma 128x128 stages 6 warpgroups 2", weights},  // that multiply longer than they load
        Way{256, "wgmma 128x128 stages 6 warpgroups 2 ping-pong", weights},
        Way{256, "wgmma 128x128 stages 5 splits 2 cluster warpgroups 2", weights}}) {
    SCOPED_TRACE(variant);
    const Program program = chain(rows, 1024, "abcd"), alone = chain(rows, 1024, "b");
    Artifact artifact = compiled(program, variant);
    const EntryPlan& plan = *artifact.variants.at(0).plan.entry("main");
    ASSERT_EQ(plan.steps.size(), early.size());
    for (size_t i = 0; i < early.size(); ++i)
      EXPECT_EQ(plan.steps[i].launches.at(0).early_inputs, early[i]) << i;
    if (std::string(variant) == "wgmma 128x64 stages 8 warpgroups 2") {
      for (const size_t i : {0, 1, 2})
        EXPECT_EQ(plan.steps[i].launches[0].cluster, static_cast<int32_t>(early[i].size()))
            << "two blocks with x early are neighbours";
    }
    if (!TestDevice::get().has_clusters() || !TestDevice::get().runs) continue;
    const auto device = open_device({"cuda"});
    Executable exe(Model::load(std::move(artifact), device)),
        waiting(Model::load(compiled(alone, variant), device)),
        cpu(Model::load(compile(program), open_device({})));
    const auto inputs = normal_inputs(program, 5);
    const auto got = exe.run("main", inputs), want = cpu.run("main", inputs);
    for (const auto& [name, y] : want) EXPECT_LT(relative_error(got.at(name), y), 1e-2) << name;
    EXPECT_EQ(waiting.run("main", {{"x_b", inputs.at("x_b")}}).at("y_b"), got.at("y_b"));
    for (int again = 0; again < 3; ++again) EXPECT_EQ(exe.run("main", inputs), got);
  }
}

}  // namespace
}  // namespace aicf::testing::product_tiles_test
