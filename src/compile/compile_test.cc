#include "compile/compile.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <random>

#include "ir/reference/compare.h"
#include "ir/reference/evaluator.h"
#include "base/mapped_file.h"
#include "kernels/kernel.h"
#include "runtime/cpu/cpu_device.h"
#include "runtime/executable.h"

namespace aicf {
namespace {

Array random_array(DType dtype, std::vector<int64_t> sizes, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal;
  Array array(dtype, std::move(sizes));
  for (int64_t i = 0; i < array.count(); ++i) array.set_f64(i, normal(engine));
  return array;
}

// 16-32-8 MLP with a GELU and a layer norm, over a symbolic batch.
Program mlp_program() {
  Program program;
  program.sizes["batch"] = {1, 64};
  const auto add_param = [&](const std::string& name, std::vector<int64_t> sizes, uint32_t seed) {
    program.variables[name] = {name, Role::kParam, {DType::f32, to_shape(sizes)}, random_array(DType::f32, sizes, seed)};
  };
  add_param("0.W", {16, 32}, 1);
  add_param("0.b", {32}, 2);
  add_param("1.scale", {32}, 3);
  add_param("2.W", {8, 32}, 4);
  Graph graph("main");
  const auto param = [&](const std::string& name) { return graph.add_param(name, program.variables.at(name).type); };
  const ValueId x = graph.add_input("x", {DType::f32, {Dim::symbol("batch"), Dim(16)}});
  const ValueId h = graph.add(Op::linear, {x, param("0.W"), param("0.b")});
  const ValueId a = graph.add(Op::gelu, {h});
  const ValueId n = graph.add(Op::layer_norm, {a, param("1.scale")});
  const ValueId y = graph.add(Op::linear, {n, param("2.W")}, {{"transpose_w", true}});
  graph.add_output(graph.add(Op::softmax, {y}), "y");
  program.entries.push_back(std::move(graph));
  return program;
}

Executable load(Artifact artifact) {
  return Executable(Model::load(std::move(artifact), make_cpu_device({2, detect_isa()})));
}

class MlpTest : public ::testing::TestWithParam<int> {};

TEST_P(MlpTest, EqualsTheReferenceThroughTheWholeFlowAndAFile) {
  const Program program = mlp_program();
  CompileOptions options;
  options.opt_level = GetParam();
  const std::string path = ::testing::TempDir() + "/mlp" + std::to_string(GetParam()) + ".aicf";
  write_artifact(path, compile(program, options));
  check_artifact(path);
  Executable exe = load(read_artifact(path));
  for (int64_t batch : {1, 3, 64}) {
    const Array x = random_array(DType::f32, {batch, 16}, 7);
    const Array got = exe.run("", std::map<std::string, Array>{{"x", x}}).at("y");
    const Array expected = evaluate(program, program.entries[0], {{{"x", x}}, {}}, {false}).outputs.at("y");
    ASSERT_EQ(got.count(), expected.count());
    for (int64_t i = 0; i < got.count(); ++i) EXPECT_NEAR(got.get_f64(i), expected.get_f64(i), 2e-6) << "batch " << batch << " at " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(OptLevels, MlpTest, ::testing::Values(0, 1, 2));

TEST(Compile, RecompilingGivesTheSameBytes) {
  const std::string a = ::testing::TempDir() + "/a.aicf", b = ::testing::TempDir() + "/b.aicf";
  write_artifact(a, compile(mlp_program()));
  write_artifact(b, compile(mlp_program()));
  EXPECT_EQ(MappedFile::open(a)->text(), MappedFile::open(b)->text());
}

}  // namespace
}  // namespace aicf
