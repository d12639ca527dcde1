#include "ir/verify.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "ir/text.h"

namespace aicf {
namespace {

Program legal() {
  Program program;
  program.sizes["n"] = {0, 4};
  const Dim n = Dim::symbol("n");
  program.variables.emplace("w", Variable{"w", Role::kParam, {DType::f32, {3}}, Array(DType::f32, {3})});
  program.variables.emplace("s", Variable{"s", Role::kState, {DType::f32, {n, 3}}, {}});
  Graph g("main");
  const ValueId x = g.add_input("x", {DType::f32, {n, 3}});
  const ValueId sum = g.add(Op::add, {g.add_state("s", {DType::f32, {n, 3}}),
                                      g.add(Op::mul, {x, g.add_param("w", {DType::f32, {3}})})});
  g.add_update(1, sum);
  g.add_output(sum, "y");
  program.entries.push_back(std::move(g));
  return program;
}

struct Violation {
  const char* rule;  // part of the message
  std::function<void(Program&)> apply;
};

Graph& entry(Program& program) { return program.entries[0]; }

const Violation kViolations[] = {
    {"no declared range", [](Program& p) { p.sizes.clear(); }},
    {"no declared range",
     [](Program& p) { entry(p).add(Op::size_of, {}, {{"size", Shape{Dim::symbol("m")}}}); }},
    {"range of a size", [](Program& p) { p.sizes["n"] = {-1, 4}; }},
    {"range of a size", [](Program& p) { p.sizes["n"] = {5, 4}; }},
    {"buckets of a size", [](Program& p) { p.buckets["n"] = {}; }},
    {"buckets of a size", [](Program& p) { p.buckets["n"] = {1, 3}; }},
    {"buckets of a size", [](Program& p) { p.buckets["n"] = {3, 1, 4}; }},
    {"no declared range", [](Program& p) { p.buckets["m"] = {1}; }},
    {"name of a size", [](Program& p) { p.sizes["two words"] = {0, 1}; }},
    {"name of a size", [](Program& p) { p.sizes["2n"] = {0, 1}; }},
    {"name of a size", [](Program& p) { p.sizes["a//b"] = {0, 1}; }},
    {"name of a size", [](Program& p) { p.sizes[""] = {0, 1}; }},
    {"no param or state", [](Program& p) { p.variables.erase("w"); }},
    {"another role", [](Program& p) { p.variables.at("w").role = Role::kState; }},
    {"another type", [](Program& p) { p.variables.at("w") = {"w", Role::kParam, {DType::f32, {4}}, {}}; }},
    {"wrong role", [](Program& p) { p.variables.at("w").role = Role::kInput; }},
    {"another name", [](Program& p) { p.variables.at("w").name = "v"; }},
    {"do not fit its type", [](Program& p) { p.variables.at("w").data = Array(DType::f16, {3}); }},
    {"unique names", [](Program& p) { p.entries.push_back(p.entries[0]); }},
    {"unique names", [](Program& p) { p.entries.emplace_back(""); }},
    {"has no name", [](Program& p) { entry(p).add_input("", {DType::f32, {}}); }},
    {"has no name", [](Program& p) { entry(p).add_output(0, ""); }},
    {"declares a name twice",
     [](Program& p) { entry(p).set_name(entry(p).add_input("y", {DType::f32, {}}), "x"); }},
};

TEST(Verify, AcceptsLegalPrograms) {
  EXPECT_NO_THROW(verify(legal(), Fault::kUser));
  EXPECT_NO_THROW(verify(legal(), Fault::kInternal));
  EXPECT_NO_THROW(verify(Program(), Fault::kUser));
}

TEST(Verify, NamesTheRuleAndWhoseFaultItIs) {
  for (const Violation& violation : kViolations) {
    Program program = legal();
    violation.apply(program);
    try {
      verify(program, Fault::kUser);
      ADD_FAILURE() << "accepted although: " << violation.rule;
    } catch (const UserError& error) {
      EXPECT_EQ(error.code, ErrorCode::kU_bad_graph) << error.text();
      EXPECT_NE(error.text().find(violation.rule), std::string::npos) << error.text();
    }
    try {
      verify(program, Fault::kInternal);
      ADD_FAILURE() << "accepted although: " << violation.rule;
    } catch (const InternalError& error) {
      EXPECT_EQ(error.code, ErrorCode::kI_verifier_failed) << error.text();
      EXPECT_NE(error.text().find(violation.rule), std::string::npos) << error.text();
    }
  }
}

// Rules that the builder refuses already: parsing reaches them as text.
TEST(Verify, BuilderRulesHoldForTextToo) {
  const auto refused = [](const std::string& statements) {
    const std::string text =
        "program { size n in 0..4 param \"w\" : f32[3] entry main(%x: f32[3]) {\n" + statements + " } }";
    EXPECT_THROW(parse(text), UserError) << text;
  };
  const std::string w = "%w = param \"w\" : f32[3]\n";
  refused(w + "update \"w\" = %x update \"w\" = %x return");
  refused("update \"w\" = %x return");
  refused(w + "%y = size_of() {size = [3]} : i64[] update \"w\" = %y return");
  refused("return \"y\" = %x, \"y\" = %x");
  refused("%y = fused(%x) {kind = \"k\"} body(%a: f32[3]) { " + w + " return %w } : f32[3] return");
  refused("%y = fused(%x) {kind = \"k\"} body(%a: f32[3]) { return %x } : f32[3] return");
  refused("%y = fused(%x) {kind = \"k\"} body(%a: f32[4]) { return %a } : f32[4] return");
  refused("%s = state \"w\" : f32[3] return");
}

TEST(Verify, BodiesCountForSizes) {
  Program program = legal();
  Graph body("body");
  const ValueId a = body.add_input("a", {DType::f32, {}});
  body.add(Op::size_of, {}, {{"size", Shape{Dim::symbol("m")}}});
  body.add_output(a, "");
  Graph& g = entry(program);
  g.add_node(Op::call, {g.add_constant(Array(DType::f32, {}))}, {{"name", std::string("f")}}, {body});
  EXPECT_THROW(verify(program, Fault::kUser), UserError);
  program.sizes["m"] = {0, 1};
  EXPECT_NO_THROW(verify(program, Fault::kUser));
}

}  // namespace
}  // namespace aicf
