#include <gtest/gtest.h>

#include "ir/shape_rules/testing/shape_case.h"

namespace aicf::testing {
namespace {

Graph passing(const char* types, std::vector<int> outputs) {
  Graph body("body");
  if (*types)
    for (const std::string& text : split(types, ';'))
      body.add_input("a" + std::to_string(body.inputs().size()), parse_type(text));
  for (int output : outputs) body.add_output(body.inputs()[static_cast<size_t>(output)], "");
  return body;
}

Attrs custom(const char* dtypes, Ints ranks, Shape sizes) {
  return {
      {"name", s("my::op")}, {"dtypes", s(dtypes)}, {"ranks", std::move(ranks)}, {"sizes", std::move(sizes)}};
}

}  // namespace

std::vector<ShapeCase> control_flow_shapes() {
  const Dim n = Dim::symbol("n");
  const Attrs kind = {{"kind", s("chain")}}, name = {{"name", s("f")}};
  const Graph both = passing("f32[n]; i64[]", {0, 1}), swapped = passing("f32[n]; i64[]", {1, 0});
  const Graph test = passing("bool[]; f32[0]", {0}), next = passing("bool[]; f32[0]", {0, 1});
  const Graph step = passing("f32[4]; f32[m]; i64[]", {0, 2, 1});
  return {
      {Op::fused, "f32[n]; i64[]", kind, "f32[n]; i64[]", {both}},
      {Op::fused, "f32[0]", kind, "f32[0]", {passing("f32[0]", {0})}},
      {Op::fused, "f32[m]; i64[]", kind, "bad_graph", {both}},
      {Op::fused, "f32[n]", kind, "bad_graph", {both}},
      {Op::fused, "f32[n]; i64[]", kind, "bad_graph", {}},
      {Op::call, "f32[n]; i64[]", name, "i64[]; f32[n]", {swapped}},
      {Op::call, "f32[n]; i64[]", name, "bad_graph", {both, both}},
      {Op::custom, "f32[n]; i64[]", custom("i64,f32", {0, 2}, {n, 3}), "i64[]; f32[n, 3]"},
      {Op::custom, "f32[0]", custom("bool", {1}, {0}), "bool[0]"},
      {Op::custom, "f32[n]", custom("f31", {1}, {n}), "bad_attribute"},
      {Op::custom, "f32[n]", custom("f32,f32", {1}, {n}), "bad_attribute"},
      {Op::custom, "f32[n]", custom("f32", {2}, {n}), "bad_attribute"},
      {Op::custom, "f32[n]", custom("f32", {1}, {-1}), "bad_attribute"},
      {Op::if_else, "bool[]; f32[n]; i64[]", {}, "f32[n]; i64[]", {both, both}},
      {Op::if_else, "bool[]", {}, "", {passing("", {}), passing("", {})}},
      {Op::if_else, "bool[]; f32[n]; i64[]", {}, "bad_graph", {both, swapped}},
      {Op::if_else, "bool[]; f32[m]; i64[]", {}, "bad_graph", {both, both}},
      {Op::if_else, "bool[1]; f32[n]; i64[]", {}, "bad_shape", {both, both}},
      {Op::if_else, "bool[]; f32[n]; i64[]", {}, "bad_graph", {both}},
      {Op::while_loop, "bool[]; f32[0]", {}, "bool[]; f32[0]", {test, next}},
      {Op::while_loop, "bool[]; f32[0]", {}, "bad_graph", {next, next}},
      {Op::while_loop, "bool[]; f32[0]", {}, "bad_graph", {test, test}},
      {Op::while_loop, "bool[]; f32[1]", {}, "bad_graph", {test, next}},
      {Op::scan, "f32[4]; f32[t, m]; i64[t]", {{"carried", i(1)}}, "f32[4]; i64[t]; f32[t, m]", {step}},
      {Op::scan, "f32[4]; f32[0, m]; i64[0]", {{"carried", i(1)}}, "f32[4]; i64[0]; f32[0, m]", {step}},
      {Op::scan, "f32[4]; f32[t, m]; i64[s]", {{"carried", i(1)}}, "bad_shape", {step}},
      {Op::scan, "f32[4]; f32[t, m]; i64[]", {{"carried", i(1)}}, "bad_shape", {step}},
      {Op::scan, "f32[4]; f32[t, m]; i64[t]", {{"carried", i(3)}}, "bad_attribute", {step}},
      {Op::scan, "f32[4]; f32[t, m]; i64[t]", {{"carried", i(2)}}, "bad_graph", {step}},
      {Op::scan, "f32[4]; f32[t, 4]", {{"carried", i(1)}}, "bad_graph", {passing("f32[4]; f32[4]", {})}},
  };
}

TEST(ShapeRules, ControlFlow) { check(control_flow_shapes()); }

}  // namespace aicf::testing
