// Ways in which wgmma products store and load their tiles: each gives the bits of the plain way, or, with K
// split, its results.
#include <gtest/gtest.h>

#include "compile/testing/random_arrays.h"
#include "compile/testing/two_ways.h"
#include "ir/text.h"

namespace aicf::testing {
namespace {

struct Case {
  DType dtype;
  int64_t rows, columns, depth;
  const char *plain, *other;  // variants of matmul_tensor_core
  double error = 0;           // relative, at most; 0: the same bits
};

const Case kCases[] = {
    {DType::f16, 8192, 1152, 384, "wgmma 128x192 stages 5 warpgroups 2",
     "wgmma 128x192 stages 3 warpgroups 2 handed x stays"},
    {DType::bf16, 8000, 1160, 360, "wgmma 128x192 stages 5 warpgroups 2",
     "wgmma 128x192 stages 3 warpgroups 2 handed x stays"},
    {DType::f16, 4096, 2304, 128, "wgmma 128x192 stages 4 warpgroups 2 handed",
     "wgmma 128x192 stages 3 warpgroups 2 handed x stays"},
    {DType::bf16, 256, 4096, 4096, "wgmma 128x64 stages 8 warpgroups 2",
     "wgmma 128x128 stages 5 splits 2 cluster warpgroups 2", 5e-4},
    {DType::f16, 200, 1000, 1096, "wgmma 128x64 stages 8 warpgroups 2",
     "wgmma 128x128 stages 5 splits 2 cluster warpgroups 2", 1e-4},
};

// gelu(x · w + bias).
Program network(const Case& c) {
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
  for (const Case& c : kCases) {
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

}  // namespace
}  // namespace aicf::testing
