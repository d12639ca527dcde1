// Updates of params and states: what they mean, which cost a copy, and that no packed copy of a weight goes
// stale.
#include <gtest/gtest.h>

#include "compile/compile.h"
#include "compile/testing/compiled.h"
#include "compile/testing/random_arrays.h"
#include "ir/reference/compare.h"
#include "ir/reference/evaluator.h"
#include "ir/text.h"

namespace aicf::updates_test {
namespace {

using testing::random_array;

struct UpdateCase {
  const char* name;
  const char* text;  // a program over variables w, m and the inputs x, i
  int copies;        // updates that are written by a kernel of their own, at opt level 2
};

constexpr char kHead[] = R"(program {
  param "w" : f32[6, 8]
  state "m" : f32[6, 8]
  entry main(%x: f32[6, 8], %i: i64[2, 1]) {
    %0 = param "w" : f32[6, 8]
    %1 = state "m" : f32[6, 8]
)";

const UpdateCase kUpdateCases[] = {
    {"InPlaceStep", R"(%2 = add(%1, %x) : f32[6, 8]
      %3 = sub(%0, %2) : f32[6, 8]
      update "m" = %2
      update "w" = %3
      return "y" = %3)",
     0},
    {"ReadLater", R"(%2 = add(%1, %x) : f32[6, 8]
      %3 = reduce_sum(%2) {axes = [1]} : f32[6]
      %4 = reduce_max(%1) {axes = [1]} : f32[6]
      %5 = add(%3, %4) : f32[6]
      update "m" = %2
      return "y" = %5)",
     1},
    {"OldValueIsAnOutput", R"(%2 = add(%1, %x) : f32[6, 8]
      update "m" = %2
      return "y" = %1)",
     1},
    {"NewValueIsAnOutput", R"(%2 = matmul(%1, %x) {transpose_y = true} : f32[6, 6]
      %3 = matmul(%2, %x) : f32[6, 8]
      update "m" = %3
      return "y" = %3)",
     0},
    {"ReadTransposed", R"(%2 = transpose(%1) {perm = [1, 0]} : f32[8, 6]
      %3 = reshape(%2) {shape = [6, 8]} : f32[6, 8]
      %4 = add(%1, %3) : f32[6, 8]
      update "m" = %4
      return "y" = %x)",
     1},
    {"Reversed", R"(%2 = reverse(%1) {axes = [0]} : f32[6, 8]
      update "m" = %2
      return "y" = %x)",
     2},
    {"Swapped", R"(update "m" = %0
      update "w" = %1
      return "y" = %x)",
     4},
    {"Normalised", R"(%2 = add(%1, %x) : f32[6, 8]
      %3 = softmax(%2) {axis = 1} : f32[6, 8]
      update "m" = %3
      return "y" = %x)",
     1},
    {"ScatterRows", R"(%2 = slice(%x) {limits = [2, 8], starts = [0, 0], steps = [1, 1]} : f32[2, 8]
      %3 = scatter_nd(%1, %i, %2) : f32[6, 8]
      %4 = matmul(%x, %3) {transpose_y = true} : f32[6, 6]
      update "m" = %3
      return "y" = %4)",
     0},
    {"ScatterIntoAnother", R"(%2 = slice(%x) {limits = [2, 8], starts = [0, 0], steps = [1, 1]} : f32[2, 8]
      %3 = scatter_nd(%0, %i, %2) : f32[6, 8]
      update "m" = %3
      return "y" = %1)",
     1},
    {"ProductIntoItself", R"(%2 = matmul(%x, %1) {transpose_y = true} : f32[6, 6]
      %3 = matmul(%2, %1) : f32[6, 8]
      update "m" = %3
      return "y" = %2)",
     1},
    {"StepInTheEpilogue", R"(%2 = matmul(%x, %1) {transpose_y = true} : f32[6, 6]
      %3 = matmul(%2, %x) : f32[6, 8]
      %4 = sub(%0, %3) : f32[6, 8]
      update "w" = %4
      return "y" = %2)",
     0},
    {"Joined", R"(%2 = slice(%1) {limits = [6, 8], starts = [3, 0], steps = [1, 1]} : f32[3, 8]
      %3 = slice(%x) {limits = [3, 8], starts = [0, 0], steps = [1, 1]} : f32[3, 8]
      %4 = concat(%2, %3) {axis = 0} : f32[6, 8]
      update "m" = %4
      return "y" = %x)",
     1},
};

Program program_of(const UpdateCase& test) {
  Program program = parse(std::string(kHead) + test.text + "\n  }\n}\n");
  program.variables.at("w").data = random_array({6, 8}, 1);
  program.variables.at("m").data = random_array({6, 8}, 2);
  return program;
}

class Updates : public ::testing::TestWithParam<UpdateCase> {};

TEST_P(Updates, EqualTheReferenceOverSeveralRuns) {
  const Program program = program_of(GetParam());
  for (int level : {0, 2}) {
    CompileOptions options;
    options.opt_level = level;
    const std::unique_ptr<Executable> exe = testing::compiled(program, options);
    if (exe == nullptr) continue;
    std::map<std::string, Array> variables;
    for (uint32_t run = 0; run < 3; ++run) {
      const std::map<std::string, Array> inputs{
          {"x", random_array({6, 8}, 10 + run)},
          {"i", Array::from<int64_t>(DType::i64, {2, 1}, {4, static_cast<int64_t>(run)})}};
      const EvalResult expected = evaluate(program, program.entries[0], {inputs, {}}, {}, &variables);
      const auto got = exe->run("", inputs);
      EXPECT_TRUE(compare(got.at("y"), expected.outputs.at("y"), 1e-5, 1e-5).ok())
          << "level " << level << ", run " << run;
      for (const auto& [name, value] : expected.updated) {
        EXPECT_TRUE(compare(exe->state(name), value, 1e-5, 1e-5).ok())
            << name << ", level " << level << ", run " << run;
        variables[name] = value;
      }
    }
  }
}

TEST_P(Updates, CostACopyOnlyWhereTheOldValueIsStillRead) {
  const Artifact artifact = compile(program_of(GetParam()));
  int copies = 0;
  for (const Step& step : artifact.variants[0].plan.entries[0].steps)
    copies += step.origin.starts_with("update ");
  EXPECT_EQ(copies, GetParam().copies) << to_string(artifact.variants[0].plan);
}

INSTANTIATE_TEST_SUITE_P(Cases, Updates, ::testing::ValuesIn(kUpdateCases),
                         [](const auto& info) { return std::string(info.param.name); });

// One entry trains a weight that the other reads.
TEST(UpdatesOfEntries, AnotherEntrySeesTheNewWeight) {
  Program program = parse(R"(program {
  param "w" : f32[32, 48]
  entry step(%d: f32[32, 48]) {
    %0 = param "w" : f32[32, 48]
    %1 = sub(%0, %d) : f32[32, 48]
    update "w" = %1
    return
  }
  entry eval(%x: f32[8, 32]) {
    %0 = param "w" : f32[32, 48]
    %1 = matmul(%x, %0) : f32[8, 48]
    return "y" = %1
  }
}
)");
  const Array w = random_array({32, 48}, 1), d = random_array({32, 48}, 2), x = random_array({8, 32}, 3);
  program.variables.at("w").data = w;
  const std::unique_ptr<Executable> exe = testing::compiled(program);
  if (exe == nullptr) return;
  std::map<std::string, Array> variables;
  for (int run = 0; run < 2; ++run) {
    const auto expected = evaluate(program, program.entries[1], {{{"x", x}}, {}}, {}, &variables).outputs;
    EXPECT_TRUE(compare(exe->run("eval", std::map<std::string, Array>{{"x", x}}).at("y"), expected.at("y"),
                        1e-5, 1e-5)
                    .ok())
        << run;
    exe->run("step", std::map<std::string, Array>{{"d", d}});
    variables = evaluate(program, program.entries[0], {{{"d", d}}, {}}, {}, &variables).updated;
  }
}

}  // namespace
}  // namespace aicf::updates_test
