// Scatters that make their updates themselves: when they do, what stays apart, and that the results and
// errors are those of calls that store the updates.
#include <gtest/gtest.h>

#include "codegen/testing/needs_nvrtc.h"
#include "compile/testing/row_join.h"
#include "compile/testing/selected_calls.h"

namespace aicf::testing::join_messages_test {
namespace {

constexpr char kRule[] = "join_messages", kKernel[] = "scatter_messages";

// Of a graph with so many nodes and edges: rows of `width` of the sources, changed, go to the targets.
struct Graphs {
  DType dtype = DType::f32;
  int nodes = 5000, edges = 20000;
  std::string width = "64";  // of a row
  std::string reduction = "add";
  enum Form { kScale, kBoth, kRelu, kCopy, kEdges } form = kScale;
  bool elements = false;  // gathers and scatters by an index for each element
};

std::string tensor(const Graphs& g, const std::string& sizes) {
  return std::string(dtype_name(g.dtype)) + "[" + sizes + "]";
}

// The message of an edge as `%m`; `%s`, `%t` are the rows of its ends.
std::string message_text(const Graphs& g) {
  const std::string rows = " : " + tensor(g, std::to_string(g.edges) + ", " + g.width) + "\n";
  switch (g.form) {
    case Graphs::kScale:
      return "%m = mul(%s, %w)" + rows;
    case Graphs::kBoth:
      return "%a = add(%s, %t)" + rows + "%b = add(%a, %c)" + rows + "%m = tanh(%b)" + rows;
    case Graphs::kRelu:
      return "%a = mul(%s, %w)" + rows + "%m = relu(%a)" + rows;
    case Graphs::kCopy:
      return "";
    case Graphs::kEdges:
      return "%m = mul(%e, %w)" + rows;
  }
  return "";
}

Program program_of(const Graphs& g, const std::string& more = "") {
  const std::string n = std::to_string(g.nodes), e = std::to_string(g.edges), rows = e + ", " + g.width,
                    all = tensor(g, n + ", " + g.width), updates = g.form == Graphs::kCopy ? "%s" : "%m";
  std::string ones;
  for (const char c : g.width) ones += c == ',' ? ", 1" : "";
  std::string text = "program {\nentry main(%x: " + all + ", %z: " + all + ", %i: i64[" + e + "], %j: i64[" +
                     e + ", 1], %w: " + tensor(g, e + ", 1" + ones) + ", %c: " + tensor(g, g.width) +
                     ", %e: " + tensor(g, rows) + ") {\n%k = reshape(%j) {shape = [" + e + "]} : i64[" + e +
                     "]\n";
  if (g.elements) {
    const std::string spread = " : i64[" + rows + "]\n", one = e + ", 1" + ones,
                      of_rows = " {shape = [" + one + "]} : i64[" + one + "]\n";
    text += "%il = reshape(%i)" + of_rows + "%jl = reshape(%j)" + of_rows +
            "%ii = broadcast_to(%il) {shape = [" + rows + "]}" + spread +
            "%jj = broadcast_to(%jl) {shape = [" + rows + "]}" + spread +
            "%s = gather_elements(%x, %ii) {axis = 0} : " + tensor(g, rows) +
            "\n%t = gather_elements(%x, %jj) {axis = 0} : " + tensor(g, rows) + "\n" + message_text(g) +
            "%y = scatter_elements(%z, %jj, " + updates + ") {axis = 0, reduction = \"" + g.reduction +
            "\"} : " + all + "\n";
  } else {
    text += "%s = gather(%x, %i) {axis = 0} : " + tensor(g, rows) +
            "\n%t = gather(%x, %k) {axis = 0} : " + tensor(g, rows) + "\n" + message_text(g) +
            "%y = scatter_nd(%z, %j, " + updates + ") {reduction = \"" + g.reduction + "\"} : " + all + "\n";
  }
  return parse(text + "return \"y\" = %y" + more + "\n}\n}");
}

Artifact compiled(const Program& program, bool joins, const char* target = "sm_90") {
  return compiled_with(kRule, joins, program, target, {"bundle_calls", "join_indexed"});
}
size_t joined(const Program& program, const char* target = "sm_90") {
  return count_steps(compiled(program, true, target), kKernel);
}

TEST(JoinMessages, WhereTheScatterAloneReadsWhatIsPointwise) {
  AICF_NEEDS_NVRTC();
  for (const auto form : {Graphs::kScale, Graphs::kBoth, Graphs::kRelu, Graphs::kCopy, Graphs::kEdges})
    for (const bool elements : {false, true}) {
      const Program program = program_of({.form = form, .elements = elements});
      const Artifact artifact = compiled(program, true);
      EXPECT_EQ(count_steps(artifact, kKernel), 1u) << form;
      EXPECT_EQ(steps_of(artifact).size(), 1u) << form;
      EXPECT_EQ(joined(program, "sm_80"), 1u) << form;
      EXPECT_EQ(joined(program, "cpu"), 0u) << form;
    }
  for (const char* reduction : {"mul", "max", "min"})
    EXPECT_EQ(joined(program_of({.reduction = reduction})), 1u) << reduction;
  EXPECT_EQ(joined(program_of({.reduction = "none"})), 0u) << "an update that is replaced is not made";
  EXPECT_EQ(joined(program_of({}, ", \"m\" = %m")), 0u);
  EXPECT_EQ(joined(program_of({.width = "1"})), 0u) << "rows of one element";
}

// What others read of a gather is stored: the program reads it there.
TEST(JoinMessages, LeavesAGatherThatOthersRead) {
  AICF_NEEDS_NVRTC();
  const Artifact artifact = compiled(program_of({}, ", \"s\" = %s"), true);
  EXPECT_EQ(count_steps(artifact, kKernel), 1u);
  EXPECT_EQ(count_steps(artifact, "gather"), 1u);
}

// A gather behind each of many updates of few places, or a long function, costs more than the passes.
TEST(JoinMessages, NotWhereTheUpdatesWouldBeMadeOneAfterTheOther) {
  AICF_NEEDS_NVRTC();
  EXPECT_EQ(joined(program_of({.nodes = 20, .edges = 40000, .form = Graphs::kCopy})), 0u);
  EXPECT_EQ(joined(program_of({.nodes = 20, .edges = 40000, .form = Graphs::kEdges})), 1u);
  expect_told(told(kRule, program_of({.nodes = 20, .edges = 40000, .form = Graphs::kCopy})), "refused",
              " us together");
}

TEST(JoinMessages, SaysWhy) {
  expect_told(told(kRule, program_of({})), "taken", "makes its updates itself");
  expect_told(told(kRule, program_of({}, ", \"m\" = %m")), "refused", "is kept after the run");
}

// From both ends, the first one many times.
void set_indices(Array& indices, int nodes, int step) {
  for (int64_t i = 0; i < indices.count(); ++i)
    indices.set_i64(i, i % 3 == 0 ? 0 : i * step % (2 * nodes) - nodes);
}

const Graphs kCases[] = {
    {},
    {.dtype = DType::f16, .form = Graphs::kRelu},
    {.dtype = DType::bf16, .width = "33", .form = Graphs::kBoth},
    {.dtype = DType::f64, .nodes = 4000, .edges = 16000, .width = "16"},
    {.nodes = 20000, .edges = 40000, .width = "24", .form = Graphs::kBoth},
    {.nodes = 9, .edges = 40, .form = Graphs::kEdges},
    {.nodes = 3, .edges = 40000, .form = Graphs::kEdges},
    {.nodes = 5000, .edges = 30000, .width = "3, 20", .form = Graphs::kBoth, .elements = true},
    {.reduction = "max", .form = Graphs::kCopy},
    {.nodes = 200, .edges = 3000, .reduction = "mul", .form = Graphs::kEdges, .elements = true},
    {.nodes = 100000, .edges = 3000, .form = Graphs::kEdges},
};

TEST(JoinMessages, HasTheBitsAndErrorsOfStoredUpdates) {
  AICF_NEEDS_NVRTC();
  for (const Graphs& g : kCases) {
    const Program program = program_of(g);
    SCOPED_TRACE(print(program));
    const size_t gathers = g.form == Graphs::kEdges ? 0 : g.form == Graphs::kBoth ? 2 : 1;
    const auto ways = joined_and_apart([&](bool joins) { return compiled(program, joins); }, 1,
                                       1 + gathers + (g.form == Graphs::kCopy ? 0 : 1));
    if (ways == nullptr) continue;
    auto inputs = normal_inputs(program, 7);
    set_indices(inputs.at("i"), g.nodes, 7919);
    set_indices(inputs.at("j"), g.nodes, 104729);
    const auto [got, want] = ways->run(inputs);
    EXPECT_EQ(got.at("y"), want.at("y"));
    for (const char* name : {"j", "i"}) {
      if (*name == 'i' && gathers == 0) continue;
      auto wrong = inputs;
      wrong.at(name).set_i64(1, g.nodes);
      EXPECT_THROW(ways->first.run("main", wrong), UserError) << name;
    }
  }
}

// A scatter that leaves the order of its updates, and one that takes it.
TEST(JoinMessages, ScattersThatShareAnOrder) {
  AICF_NEEDS_NVRTC();
  const Program program = parse(R"(program {
  entry main(%x: f32[4000, 48], %z: f32[4000, 48], %i: i64[12000], %j: i64[12000, 1], %w: f32[12000, 1]) {
    %s = gather(%x, %i) {axis = 0} : f32[12000, 48]
    %m = mul(%s, %w) : f32[12000, 48]
    %y = scatter_nd(%z, %j, %m) {reduction = "add"} : f32[4000, 48]
    %t = gather(%y, %i) {axis = 0} : f32[12000, 48]
    %v = scatter_nd(%z, %j, %t) {reduction = "max"} : f32[4000, 48]
    return "y" = %v
  }
})");
  const auto ways = joined_and_apart([&](bool joins) { return compiled(program, joins); }, 2, 5);
  if (ways == nullptr) return;
  auto inputs = normal_inputs(program, 3);
  set_indices(inputs.at("i"), 4000, 7919);
  set_indices(inputs.at("j"), 4000, 104729);
  const auto [got, want] = ways->run(inputs);
  EXPECT_EQ(got.at("y"), want.at("y"));
}

// The gather reads what the scatter overwrites: rows would be read that are new already.
TEST(JoinMessages, NotWhereTheScatterOverwritesTheTable) {
  AICF_NEEDS_NVRTC();
  const Program program = parse(R"(program {
  state "h" : f32[5000, 64]
  entry main(%i: i64[20000], %j: i64[20000, 1]) {
    %h = state "h" : f32[5000, 64]
    %s = gather(%h, %i) {axis = 0} : f32[20000, 64]
    %y = scatter_nd(%h, %j, %s) {reduction = "add"} : f32[5000, 64]
    update "h" = %y
    return "s" = %y
  }
})");
  EXPECT_EQ(joined(program), 0u);
  expect_told(told(kRule, program), "refused", " overwrites what ");
}

}  // namespace
}  // namespace aicf::testing::join_messages_test
