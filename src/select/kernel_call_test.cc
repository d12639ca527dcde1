// What calls are asked: what runs, of how many calls, and what it came from.
#include "select/kernel_call.h"

#include <gtest/gtest.h>

namespace aicf {
namespace {

KernelCall call_of(WhatRuns what, std::vector<std::string> origins) {
  KernelCall call;
  call.what = std::move(what);
  call.origins = std::move(origins);
  return call;
}
KernelCall row(const std::string& name, const std::string& way, std::vector<std::string> origins) {
  return call_of(RowCall{.row = name, .way = parse_way(way).value()}, std::move(origins));
}

TEST(KernelCall, IsNamedByWhatRuns) {
  const KernelCall product = row("matmul_simt", "simt 64x64 stages 2", {"a"}),
                   append = row("rope_append", "", {"b"});
  const KernelCall region = call_of(region_row({1, {0}}, 0), {"c"});
  const std::vector<std::pair<WhatRuns, std::string>> cases = {
      {std::monostate(), ""},
      {*row_call(product), "matmul_simt/simt 64x64 stages 2"},
      {LibraryRun{"a call", 16, *row_call(product)}, "matmul_simt/simt 64x64 stages 2"},
      {Bundle{{BundleMember{product, 0}}}, "bundle/1 calls in 1 stage"},
      {Bundle{{BundleMember{product, 0}, BundleMember{region, 1}}}, "bundle/2 calls in 2 stages"},
      {GroupedProducts{{product, product}}, "matmul_group/simt 64x64 stages 2"},
      {PrologueFusion{region, product}, "region_product/simt 64x64 stages 2"},
      {PrologueFusion{append, product}, "rope_attention/simt 64x64 stages 2"},
      {ControlRun{.kind = Op::while_loop}, "while_loop"},
      {CustomRun{.op = "my::op"}, "custom:my::op"},
  };
  for (const auto& [what, name] : cases) EXPECT_EQ(to_string(named(call_of(what, {}))), name);
}

TEST(KernelCall, HasARowOnlyIfARowRuns) {
  const KernelCall product = row("matmul_simt", "", {});
  EXPECT_TRUE(is_row(product, "matmul_simt"));
  EXPECT_FALSE(is_row(product, "tile"));
  const KernelCall library = call_of(LibraryRun{"a call", 16, *row_call(product)}, {});
  EXPECT_EQ(row_call(library), nullptr);
  EXPECT_FALSE(is_row(library, "matmul_simt"));
  EXPECT_EQ(*own_row(library), *row_call(product));
  EXPECT_EQ(own_row(call_of(Bundle{{BundleMember{product, 0}}}, {})), nullptr);
  EXPECT_TRUE(is_removed(KernelCall()));
  EXPECT_FALSE(is_removed(product));
}

TEST(KernelCall, IsARegionIfItsRowRunsNothingElse) {
  const KernelCall region = call_of(region_row({1, {0, 1}}, 3), {});
  EXPECT_TRUE(is_region(region));
  EXPECT_EQ(row_call(region)->params, std::vector<Dim>{Dim(1)});
  KernelCall gathered = region;
  row_call(gathered)->row = "tile_gathered";
  row_call(gathered)->indexed = 2;
  EXPECT_EQ(plan_params(*row_call(region)), std::vector<Dim>{Dim(1)});
  EXPECT_EQ(plan_params(*row_call(gathered)), (std::vector<Dim>{Dim(1), Dim(2)}));
  EXPECT_FALSE(is_region(gathered));
  EXPECT_TRUE(has_program(gathered, ProgramRole::kRegion));
  KernelCall product = row("matmul_simt", "", {});
  EXPECT_FALSE(has_program(product, ProgramRole::kEpilogue));
  row_call(product)->programs = {{ProgramRole::kEpilogue, 3, 2}};
  EXPECT_TRUE(has_program(product, ProgramRole::kEpilogue));
  EXPECT_FALSE(is_region(product));
}

TEST(KernelCall, OfOriginsOfCallsSideBySideTheFirstAndTheLastAreTold) {
  const KernelCall a = row("a", "", {"1"}), b = row("b", "", {"2", "3"}), c = row("c", "", {"4"});
  EXPECT_EQ(origin_text(a), "1");
  EXPECT_EQ(origin_text(b), "2 … 3");
  const Bundle bundle{{BundleMember{a, 0}, BundleMember{b, 0}, BundleMember{c, 1}}};
  EXPECT_EQ(origin_text(call_of(bundle, {"1", "2", "3", "4"})), "1 … 4");
  EXPECT_EQ(origin_text(call_of(GroupedProducts{{a, c, b}}, {"1", "4", "2", "3"})), "1 … 2 … 3");
  EXPECT_EQ(origin_text(call_of(GroupedProducts{{b}}, {"2", "3"})), "2 … 3");
  EXPECT_EQ(origin_text(call_of(PrologueFusion{b, c}, {"2", "3", "4"})), "2 … 3 … 4");
  EXPECT_EQ(origin_text(KernelCall()), "");
}

TEST(KernelCall, CopiesAreValues) {
  const KernelCall joined = call_of(PrologueFusion{row("a", "", {"1"}), row("b", "", {"2"})}, {});
  KernelCall copy = joined;
  EXPECT_EQ(copy, joined);
  std::get<PrologueFusion>(copy.what).consumer->inputs.emplace_back();
  EXPECT_FALSE(copy == joined);
  copy = joined;
  EXPECT_EQ(copy, joined);
  const KernelCall moved = std::move(copy);
  EXPECT_EQ(moved, joined);
  ASSERT_EQ(members_of(moved).size(), 2u);
  EXPECT_EQ(members_of(moved)[1].stage, 1);
}

}  // namespace
}  // namespace aicf
