// Scatters by the same indices: which of them share the order of their updates, and that the results and
// errors are those of scatters that each sort.
#include <gtest/gtest.h>

#include "codegen/testing/needs_nvrtc.h"
#include "compile/testing/random_arrays.h"
#include "compile/testing/selected_calls.h"
#include "compile/testing/two_ways.h"
#include "ir/text.h"

namespace aicf::testing::share_scatter_orders_test {
namespace {

constexpr char kRule[] = "share_scatter_orders";

// Sums of rows, numbers of updates, largest elements from x on, and sums by other indices, of `edges` updates
// to `nodes` places, of the numbers to so many `more`. `second`: the indices of the numbers.
Program graph_sums(const std::string& dtype, int edges, int nodes, const std::string& second = "i",
                   int more = 0) {
  const std::string e = std::to_string(edges), n = std::to_string(nodes),
                    places = std::to_string(nodes + more);
  return parse("program {\n entry main(%x: " + dtype + "[" + n + ", 24], %i: i64[" + e + ", 1], %j: i64[" +
               e + ", 1], %u: " + dtype + "[" + e + ", 24], %n: " + dtype + "[" + e + "], %zero: " + dtype +
               "[" + places + "]) {\n %s = scatter_nd(%x, %i, %u) {reduction = \"add\"} : " + dtype + "[" +
               n + ", 24]\n %d = scatter_nd(%zero, %" + second + ", %n) {reduction = \"add\"} : " + dtype +
               "[" + places + "]\n %m = scatter_nd(%x, %i, %u) {reduction = \"max\"} : " + dtype + "[" + n +
               ", 24]\n return \"s\" = %s, \"d\" = %d, \"m\" = %m\n }\n}");
}

size_t orders(const Program& program) {
  SelectedCalls s = select_calls(program, "sm_90");
  const std::vector<CallReport> reports = run_rule(kRule, s);
  size_t takers = 0;
  for (const KernelCall& call : s.calls.calls) takers += call.inputs.size() == 4 ? 1 : 0;
  EXPECT_EQ(reports.size(), takers);
  return takers;
}

TEST(ShareScatterOrders, OfOneIndexTensorAndOneNumberOfPlaces) {
  EXPECT_EQ(orders(graph_sums("f32", 9000, 1000)), 2u);
  EXPECT_EQ(orders(graph_sums("f32", 9000, 1000, "j")), 1u);
  EXPECT_EQ(orders(graph_sums("f32", 9000, 1000, "i", 1)), 1u);
  // An order of few updates is worth it for three, not for two that each block could sort for itself.
  EXPECT_EQ(orders(graph_sums("f32", 4000, 1000)), 2u);
  EXPECT_EQ(orders(graph_sums("f32", 4000, 1000, "j")), 0u);
  // What every block looks through is not sorted.
  EXPECT_EQ(orders(graph_sums("f32", 40, 100)), 0u);
  // Where updates of each of so many places begin is not worth to be found.
  EXPECT_EQ(orders(graph_sums("f32", 9000, 1000000)), 0u);
}

TEST(ShareScatterOrders, HasTheBitsAndErrorsOfScattersThatEachSort) {
  AICF_NEEDS_NVRTC();
  for (const Program& program : {graph_sums("f32", 9000, 1000), graph_sums("f16", 20000, 3000)}) {
    const auto ways = joined_and_apart(
        [&](bool shares) { return compiled_with(kRule, shares, program, "sm_90", {"bundle_calls"}); }, 3, 3);
    if (ways == nullptr) return;
    auto inputs = normal_inputs(program, 7);
    Array& indices = inputs.at("i");
    const int64_t nodes = *program.entries[0].type(program.entries[0].inputs()[0]).shape[0].constant();
    for (int64_t i = 0; i < indices.count(); ++i)
      indices.set_i64(i, i % 5 == 0 ? 7 : i * 7919 % (2 * nodes) - nodes);
    for (int64_t i = 0; i < indices.count(); ++i) inputs.at("j").set_i64(i, 0);
    const auto [got, want] = ways->run(inputs);
    for (const char* name : {"s", "d", "m"}) EXPECT_EQ(got.at(name), want.at(name)) << name;
    inputs.at("i").set_i64(3, nodes);
    EXPECT_THROW(ways->first.run("main", inputs), UserError);
  }
}

}  // namespace
}  // namespace aicf::testing::share_scatter_orders_test
