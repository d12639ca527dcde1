#include "compile/compile.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "base/mapped_file.h"
#include "codegen/testing/needs_nvrtc.h"
#include "compile/testing/compiled.h"
#include "compile/testing/random_arrays.h"
#include "ir/reference/compare.h"
#include "ir/reference/evaluator.h"
#include "ir/text.h"
#include "kernels/common/kernel.h"
#include "plan/plan_json.h"
#include "runtime/cpu/cpu_device.h"
#include "runtime/executable.h"
#include "runtime/null/null_device.h"

namespace aicf::compile_test {
namespace {

using testing::loaded_on_cpu;
using testing::random_array;

// 16-32-8 MLP with a GELU and a layer norm, over a symbolic batch.
Program mlp_program() {
  Program program;
  program.sizes["batch"] = {1, 64};
  const auto add_param = [&](const std::string& name, std::vector<int64_t> sizes, uint32_t seed) {
    program.variables[name] = {
        name, Role::kParam, {DType::f32, to_shape(sizes)}, random_array(DType::f32, sizes, seed)};
  };
  add_param("0.W", {16, 32}, 1);
  add_param("0.b", {32}, 2);
  add_param("1.scale", {32}, 3);
  add_param("2.W", {8, 32}, 4);
  Graph graph("main");
  const auto param = [&](const std::string& name) {
    return graph.add_param(name, program.variables.at(name).type);
  };
  const ValueId x = graph.add_input("x", {DType::f32, {Dim::symbol("batch"), Dim(16)}});
  const ValueId h = graph.add(Op::linear, {x, param("0.W"), param("0.b")});
  const ValueId a = graph.add(Op::gelu, {h});
  const ValueId n = graph.add(Op::layer_norm, {a, param("1.scale")});
  const ValueId y = graph.add(Op::linear, {n, param("2.W")}, {{"transpose_w", true}});
  graph.add_output(graph.add(Op::softmax, {y}), "y");
  program.entries.push_back(std::move(graph));
  return program;
}

class MlpTest : public ::testing::TestWithParam<int> {};

TEST_P(MlpTest, EqualsTheReferenceThroughTheWholeFlowAndAFile) {
  const Program program = mlp_program();
  CompileOptions options;
  options.opt_level = GetParam();
  const std::string path = ::testing::TempDir() + "/mlp" + std::to_string(GetParam()) + ".aicf";
  write_artifact(path, compile(program, options));
  check_artifact(path);
  Executable exe = loaded_on_cpu(read_artifact(path));
  for (int64_t batch : {1, 3, 64}) {
    const Array x = random_array(DType::f32, {batch, 16}, 7);
    const Array got = exe.run("", std::map<std::string, Array>{{"x", x}}).at("y");
    const Array expected = evaluate(program, program.entries[0], {{{"x", x}}, {}}, {false}).outputs.at("y");
    ASSERT_EQ(got.count(), expected.count());
    for (int64_t i = 0; i < got.count(); ++i)
      EXPECT_NEAR(got.get_f64(i), expected.get_f64(i), 2e-6) << "batch " << batch << " at " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(OptLevels, MlpTest, ::testing::Values(0, 1, 2));

// A sequence before its batch: products of the batch, with the rows that a sequence has.
TEST(Compile, RowsOfAProductAreThoseOfTheLongestAxis) {
  const Program program = parse(R"(program {
  entry main(%x: f32[3, 50, 16], %w: f32[16, 8], %b: f32[8], %r: f32[50, 3, 8]) {
    %0 = transpose(%x) {perm = [1, 0, 2]} : f32[50, 3, 16]
    %1 = linear(%0, %w, %b) : f32[50, 3, 8]
    %2 = add(%1, %r) : f32[50, 3, 8]
    %3 = relu(%2) : f32[50, 3, 8]
    return "y" = %3
  }
})");
  for (const char* target : {"cpu", "sm_90"}) {
    CompileOptions options;
    options.target = target;
    const std::string text = testing::printed_stage(program, "select", options);
    EXPECT_NE(text.find("[3, 50, 16]"), std::string::npos) << text;
    EXPECT_EQ(text.find("[50, 3, 16]"), std::string::npos) << text;
  }
  const std::unique_ptr<Executable> exe = testing::compiled(program, {});
  if (exe == nullptr) return;
  std::map<std::string, Array> inputs;
  for (const ValueId id : program.entries[0].inputs()) {
    const std::string& name = program.entries[0].value(id).name;
    inputs.emplace(name, testing::random_array(DType::f32, evaluate(program.entries[0].shape(id), {}),
                                               static_cast<uint32_t>(id)));
  }
  const Array expected = evaluate(program, program.entries[0], {inputs, {}}).outputs.at("y");
  const CompareReport report = compare(exe->run("", inputs).at("y"), expected, 1e-5, 1e-5);
  EXPECT_TRUE(report.ok()) << to_string(report);
}

TEST(Compile, ParamsWithoutValuesAreNamed) {
  Program program = mlp_program();
  EXPECT_NO_THROW(require_param_contents(program, "load them"));
  program.variables["3.state"] = {"3.state", Role::kState, {DType::f32, {Dim(4)}}, {}};
  program.variables["3.nothing"] = {"3.nothing", Role::kParam, {DType::f32, {Dim(0)}}, {}};
  EXPECT_NO_THROW(require_param_contents(program, "load them"));
  program.variables.at("0.b").data = {};
  for (int i = 0; i < 9; ++i) {
    const std::string name = "9." + std::to_string(i);
    program.variables[name] = {name, Role::kParam, {DType::bf16, {Dim(2)}}, {}};
  }
  try {
    require_param_contents(program, "load them");
    FAIL() << "nothing is thrown";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code, ErrorCode::kU_unknown_param);
    EXPECT_EQ(error.value, "0.b, 9.0, 9.1, 9.2, 9.3, 9.4, 9.5, 9.6 and 2 more");
    EXPECT_EQ(error.remedy, "load them");
  }
}

// Several threads hash so much, and the disk takes it while it is written.
TEST(Compile, ManyMegabytesOfWeightsKeepTheirBytesAndChecksums) {
  Artifact artifact = compile(mlp_program(), {});
  for (int64_t i = 0; i < 5; ++i) {
    Array weight(DType::u8, {(int64_t{18} << 20) + i});
    std::memset(weight.mutable_data(), static_cast<int>(i + 1), static_cast<size_t>(weight.bytes()));
    artifact.weights.emplace("big." + std::to_string(i), weight);
  }
  const std::string path = ::testing::TempDir() + "/many_megabytes.aicf";
  write_artifact(path, artifact);
  check_artifact(path);
  EXPECT_EQ(read_artifact(path).weights, artifact.weights);
  std::remove(path.c_str());
}

Program program_of(Graph graph) {
  Program program;
  program.entries.push_back(std::move(graph));
  return program;
}

// Half sums reach an epilogue in f32 and are rounded there as the product alone would be.
TEST(Compile, EpiloguesOfHalfProductsSeeRoundedValues) {
  for (DType dtype : {DType::f16, DType::bf16}) {
    Graph graph("main");
    const ValueId x = graph.add_input("x", {dtype, {Dim(5), Dim(33)}}),
                  w = graph.add_input("w", {dtype, {Dim(33), Dim(7)}});
    const ValueId product = graph.add(Op::matmul, {x, w});
    graph.add_output(graph.add(Op::mul, {product, graph.add_input("s", {dtype, {Dim(7)}})}), "y");
    const Program program = program_of(std::move(graph));
    const std::map<std::string, Array> inputs{{"x", random_array(dtype, {5, 33}, 1)},
                                              {"w", random_array(dtype, {33, 7}, 2)},
                                              {"s", random_array(dtype, {7}, 3)}};
    CompileOptions plain;
    plain.opt_level = 0;
    EXPECT_EQ(loaded_on_cpu(compile(program)).run("", inputs),
              loaded_on_cpu(compile(program, plain)).run("", inputs))
        << dtype_name(dtype);
  }
}

// The order in which a value is stored asks what it is a view of, whatever its rank.
TEST(Compile, AValueOfAnyRankIsSeenWithAnother) {
  for (const char* from : {"", "1", "1, 1", "1, 1, 1, 1"}) {
    const std::string type = std::string("f32[") + from + "]";
    const Program program = parse("program { entry main(%x: " + type + R"() {
      %r = reshape(%x) {shape = [1, 1, 1]} : f32[1, 1, 1]
      %s = neg(%r) : f32[1, 1, 1]
      return "y" = %s
    } })");
    CompileOptions plain;
    plain.opt_level = 0;
    const Array x = random_array(DType::f32, std::vector<int64_t>((std::strlen(from) + 2) / 3, 1), 1);
    EXPECT_EQ(loaded_on_cpu(compile(program, plain)).run("", {{"x", x}}),
              loaded_on_cpu(compile(program)).run("", {{"x", x}}))
        << type;
  }
}

// x [n, 2, k] times weights of the given widths, stored transposed or not, with or without bias: as they are
// and split into heads.
Program projections(const std::vector<int64_t>& widths, bool transposed, bool bias, DType dtype) {
  Program program;
  program.sizes["n"] = {1, 40};
  Graph graph("main");
  const int64_t k = 24;
  const ValueId x = graph.add_input("x", {dtype, {Dim::symbol("n"), Dim(2), Dim(k)}});
  const auto param = [&](const std::string& name, const std::vector<int64_t>& sizes) {
    program.variables[name] = {name,
                               Role::kParam,
                               {dtype, to_shape(sizes)},
                               random_array(dtype, sizes, static_cast<uint32_t>(program.variables.size()))};
    return graph.add_param(name, program.variables.at(name).type);
  };
  for (size_t i = 0; i < widths.size(); ++i) {
    const int64_t n = widths[i];
    const std::string number = std::to_string(i);
    const ValueId w = param("w" + number, transposed ? std::vector{n, k} : std::vector{k, n});
    ValueId y = graph.add(Op::matmul, {x, w}, {{"transpose_y", transposed}});
    if (bias) y = graph.add(Op::add, {y, param("b" + number, {n})});
    y = graph.add(Op::reshape, {y}, {{"shape", Shape{Dim::symbol("n"), Dim(2), Dim(3), Dim(n / 3)}}});
    graph.add_output(graph.add(Op::transpose, {y}, {{"perm", Ints{2, 0, 1, 3}}}), "y" + number);
  }
  program.entries.push_back(std::move(graph));
  return program;
}

TEST(Compile, PassesOverCallsAreSkippedByNameAndListed) {
  const Program program = projections({48, 96}, false, false, DType::f32);
  CompileOptions options;
  options.skip_passes = {"merge_contractions", "join_rows", "bundle_calls"};
  EXPECT_NO_THROW(compile(program, options));
  options.skip_passes = {"join_row"};
  try {
    compile(program, options);
    FAIL() << "there is no such pass";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code, ErrorCode::kU_bad_option);
    for (const char* known : {"merge_contractions", "join_rows", "bundle_calls"})
      EXPECT_NE(error.expected.find(known), std::string::npos) << known;
    EXPECT_EQ(error.expected.find("decompose_composites"), std::string::npos) << "it is required";
  }
}

TEST(Compile, MergedContractionsHaveTheBitsOfSeparateOnes) {
  CompileOptions plain;
  plain.skip_passes = {"merge_contractions"};
  for (const std::vector<int64_t>& widths : {std::vector<int64_t>{48, 96, 48}, {3, 51, 30, 3}})
    for (const bool transposed : {false, true})
      for (const bool bias : {false, true})
        for (const DType dtype : {DType::f32, DType::bf16}) {
          const Program program = projections(widths, transposed, bias, dtype);
          Executable merged = loaded_on_cpu(compile(program)),
                     separate = loaded_on_cpu(compile(program, plain));
          size_t products = 0;
          for (const Step& step : merged.model().plan().entries[0].steps)
            products += step.kernel.find("matmul") == 0 ? 1 : 0;
          EXPECT_EQ(products, 1u);
          const std::map<std::string, Array> inputs{{"x", random_array(dtype, {37, 2, 24}, 99)}};
          EXPECT_EQ(merged.run("", inputs), separate.run("", inputs))
              << widths[0] << transposed << bias << dtype_name(dtype);
        }
}

TEST(Compile, NewWeightsAreJoinedAgain) {
  Program program = projections({48, 96}, false, true, DType::f32);
  const Executable exe = loaded_on_cpu(compile(program));
  const std::map<std::string, Array> inputs{{"x", random_array(DType::f32, {5, 2, 24}, 99)}};
  std::map<std::string, Array> weights{{"w1", random_array(DType::f32, {24, 96}, 50)},
                                       {"b0", random_array(DType::f32, {48}, 51)}};
  for (const auto& [name, array] : weights) program.variables.at(name).data = array;
  EXPECT_EQ(Executable(exe.model().with_weights(weights)).run("", inputs),
            loaded_on_cpu(compile(program)).run("", inputs));
}

// Somebody may join weights by hand, and read them in any way.
TEST(Compile, JoinedWeightsAreValuesLikeOthers) {
  Program program;
  Graph graph("main");
  std::vector<ValueId> params;
  for (const std::string name : {"a", "b"}) {
    program.variables[name] = {
        name, Role::kParam, {DType::f32, {Dim(4), Dim(6)}}, random_array(DType::f32, {4, 6}, name[0])};
    params.push_back(graph.add_param(name, program.variables.at(name).type));
  }
  const ValueId x = graph.add_input("x", {DType::f32, {Dim(5), Dim(4)}}),
                rows = graph.add(Op::concat, params, {{"axis", 0}}),
                columns = graph.add(Op::concat, params, {{"axis", 1}});
  graph.add_output(rows, "rows");
  graph.add_output(graph.add(Op::matmul, {x, columns}), "xc");
  graph.add_output(graph.add(Op::matmul, {columns, x}, {{"transpose_x", true}, {"transpose_y", true}}), "cx");
  graph.add_output(graph.add(Op::matmul, {x, graph.add(Op::slice, {rows},
                                                       {{"starts", Shape{Dim(2), Dim(0)}},
                                                        {"limits", Shape{Dim(6), Dim(6)}},
                                                        {"steps", Ints{1, 1}}})}),
                   "middle");
  graph.add_output(graph.add(Op::exp, {columns}), "exp");
  program.variables["v"] = {"v", Role::kParam, {DType::f32, {Dim(2)}}, random_array(DType::f32, {2}, 8)};
  const ValueId v = graph.add_param("v", program.variables.at("v").type),
                whole = graph.add(Op::concat, {v, v}, {{"axis", 0}}),
                column = graph.add(Op::reshape, {whole}, {{"shape", Shape{Dim(4), Dim(1)}}});
  graph.add_output(graph.add(Op::matmul, {x, column}), "column");
  program.entries.push_back(std::move(graph));
  const std::map<std::string, Array> inputs{{"x", random_array(DType::f32, {5, 4}, 9)}};
  const auto got = loaded_on_cpu(compile(program)).run("", inputs);
  const auto expected = evaluate(program, program.entries[0], {inputs, {}}, {false}).outputs;
  for (const auto& [name, array] : expected) {
    const CompareReport report = compare(got.at(name), array, 1e-5, 1e-5);
    EXPECT_TRUE(report.ok()) << name << ": " << to_string(report);
  }
}

// if_else(c, x): x + x or x.
Program branch_program() {
  const TensorType type{DType::f32, {Dim(3)}};
  Graph then_body("then"), else_body("else");
  const ValueId a = then_body.add_input("a", type);
  then_body.add_output(then_body.add(Op::add, {a, a}), "r");
  else_body.add_output(else_body.add_input("a", type), "r");
  Graph graph("main");
  const ValueId c = graph.add_input("c", {DType::boolean, {}}), x = graph.add_input("x", type);
  const NodeId node = graph.add_node(Op::if_else, {c, x}, {}, {then_body, else_body});
  graph.add_output(graph.node(node).results[0], "y");
  return program_of(std::move(graph));
}

TEST(Compile, ABranchOnDataSelectsBetweenBothResults) {
  Executable exe = loaded_on_cpu(compile(branch_program()));
  Array x(DType::f32, {3});
  for (int64_t i = 0; i < 3; ++i) x.set_f64(i, static_cast<double>(i + 1));
  for (int64_t condition : {0, 1}) {
    const Array c = Array::scalar_i64(DType::boolean, condition);
    const Array y = exe.run("", std::map<std::string, Array>{{"c", c}, {"x", x}}).at("y");
    EXPECT_EQ(y.get_f64(2), condition != 0 ? 6 : 3);
  }
}

TEST(Compile, MoreAxesThanKernelsTakeAreACodedError) {
  try {
    compile(parse(R"(program {
      entry main(%x: f32[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3]) {
        %0 = neg(%x) : f32[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3]
        return "y" = %0
      }
    })"));
    FAIL() << "compiled";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code, ErrorCode::kU_no_kernel);
    EXPECT_EQ(error.op, "x");
  }
}

TEST(Compile, RecompilingGivesTheSameBytes) {
  const std::string a = ::testing::TempDir() + "/a.aicf", b = ::testing::TempDir() + "/b.aicf";
  write_artifact(a, compile(mlp_program()));
  write_artifact(b, compile(mlp_program()));
  EXPECT_EQ(MappedFile::open(a)->text(), MappedFile::open(b)->text());
}

// So many weights that they are worth the start before the rest is compiled.
TEST(Compile, APlanDoesNotSayWhyAKernelWasChosen) {
  CompileOptions options;
  CompileReport ranked, forced;
  const Artifact plain = compile(mlp_program(), options, &ranked);
  for (const ChoiceReport& report : ranked.choices)
    for (const Candidate& candidate : report.choice.candidates)
      if (&candidate == &report.choice.candidates[report.choice.chosen])
        options.forced.push_back({report.origin, to_string(candidate)});
  const Artifact same = compile(mlp_program(), options, &forced);
  ASSERT_EQ(ranked.choices.size(), forced.choices.size());
  int differ = 0;
  for (size_t i = 0; i < ranked.choices.size(); ++i)
    differ += ranked.choices[i].reason != forced.choices[i].reason;
  EXPECT_GT(differ, 0);
  EXPECT_EQ(plan_to_json(plain.variants[0].plan), plan_to_json(same.variants[0].plan));
}

TEST(Compile, WeightsThatAreWrittenMeanwhileGiveTheSameBytes) {
  AICF_NEEDS_NVRTC();
  Program program;
  program.variables["w"] = {
      "w", Role::kParam, {DType::f32, {Dim(1024), Dim(5000)}}, random_array(DType::f32, {1024, 5000}, 1)};
  Graph graph;
  const ValueId x = graph.add_input("x", {DType::f32, {Dim(1), Dim(1024)}});
  const ValueId w = graph.add_param("w", program.variables.at("w").type);
  graph.add_output(graph.add(Op::matmul, {x, w}), "y");
  program.entries.push_back(std::move(graph));
  const std::string a = ::testing::TempDir() + "/a.aicf", b = ::testing::TempDir() + "/b.aicf";
  ArtifactFile file(a);
  int runs = 0;
  CompileOptions options;
  options.target = "sm_80,cpu";
  options.meanwhile = [&] {
    ++runs;
    file.write_ahead(weights_of(program));
  };
  const Artifact artifact = compile(program, options);
  EXPECT_EQ(runs, 1);
  file.finish(artifact);
  write_artifact(b, artifact);
  EXPECT_TRUE(MappedFile::open(a)->text() == MappedFile::open(b)->text());
  check_artifact(a);
  options.target = "cpu";
  compile(program, options);
  EXPECT_EQ(runs, 1) << "nothing is compiled then";
}

// Machine code is told of unit by unit, of two targets together.
TEST(Compile, TellsWhatItIsAt) {
  AICF_NEEDS_NVRTC();
  const Program program = parse(R"(program {
    entry main(%x: f32[64, 64], %y: f32[64, 64]) {
      %0 = matmul(%x, %y) : f32[64, 64]
      return "z" = %0
    }
  })");
  std::vector<std::string> told;
  double last = 0;
  CompileOptions options;
  options.target = "sm_80,sm_90";
  options.on_stage = [&](const StageProgress& at) {
    told.push_back(to_string(at));
    EXPECT_GE(fraction_done(at), 0);
    EXPECT_LE(fraction_done(at), 1);
    last = fraction_done(at);
  };
  compile(program, options);
  const auto place = [&](const char* stage) {
    return std::find(told.begin(), told.end(), stage) - told.begin();
  };
  const std::vector<const char*> order = {"passes",       "select",       "calls", "build",
                                          "build 1 of 2", "build 2 of 2", "plan"};
  for (size_t i = 1; i < order.size(); ++i) EXPECT_LT(place(order[i - 1]), place(order[i])) << order[i];
  EXPECT_LT(place("plan"), static_cast<std::ptrdiff_t>(told.size()));
  EXPECT_GE(last, 0.75);
  EXPECT_EQ(to_string(StageProgress{"build", 7, 7}), "build 7 of 7");
  EXPECT_EQ(fraction_done({"passes", 0, 1}), 0);
  EXPECT_EQ(fraction_done({"plan", 1, 1}), 1);
}

// A shape that was decided by an input's value: the artifact takes that value and no other.
TEST(Compile, AnInputThatDecidedAShapeAcceptsOnlyItsValue) {
  const Array shape = Array::from<int64_t>(DType::i64, {2}, {3, 2});
  Program program;
  Graph graph;
  const ValueId x = graph.add_input("x", {DType::f32, {Dim(6)}});
  graph.add_input("shape", {DType::i64, {Dim(2)}}, shape);
  graph.add_output(graph.add(Op::reshape, {x}, {{"shape", Shape{Dim(3), Dim(2)}}}), "y");
  program.entries.push_back(std::move(graph));
  const std::string path = ::testing::TempDir() + "/only.aicf";
  write_artifact(path, compile(parse(print(program))));
  Executable exe = loaded_on_cpu(read_artifact(path));
  const Array data = random_array(DType::f32, {6}, 3);
  EXPECT_EQ(exe.run("", std::map<std::string, Array>{{"x", data}, {"shape", shape}}).at("y"),
            data.reshaped({3, 2}));
  try {
    const Array other = Array::from<int64_t>(DType::i64, {2}, {2, 3});
    exe.run("", std::map<std::string, Array>{{"x", data}, {"shape", other}});
    FAIL() << "another value was accepted";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code, ErrorCode::kU_input_value);
  }
}

TEST(Compile, TheInitEntryIsNotTheCallers) {
  Executable exe = loaded_on_cpu(compile(mlp_program()));
  EXPECT_NE(exe.model().plan().entry(kInitEntry), nullptr);
  EXPECT_THROW(exe.entry(std::string(kInitEntry)), UserError);
}

// count + 1 each run.
TEST(Compile, WarmUpLeavesStatesAsTheyWere) {
  Program program;
  const TensorType type = {DType::f32, {}};
  program.variables["count"] = {"count", Role::kState, type, Array()};
  Graph graph("main");
  const ValueId old = graph.add_state("count", type);
  const ValueId next = graph.add(Op::add, {old, graph.add_constant(Array::scalar_f64(DType::f32, 1))});
  graph.add_update(old, next);
  graph.add_output(next, "y");
  program.entries.push_back(std::move(graph));
  Executable exe = loaded_on_cpu(compile(program));
  setenv("AICF_WARMUP", "5", 1);
  EXPECT_EQ(exe.run("", std::vector<TensorView>{})[0].get_f64(0), 1);
  EXPECT_EQ(exe.run("", std::vector<TensorView>{})[0].get_f64(0), 2);
  unsetenv("AICF_WARMUP");
  EXPECT_EQ(exe.state("count").get_f64(0), 2);
}

// The joined query, key and value of BERT-base at 1 x 128.
TEST(Records, ShippedOnesDecideWhereNoneAreForbidden) {
  Program program;
  const auto add_param = [&](const std::string& name, std::vector<int64_t> sizes) {
    program.variables[name] = {name, Role::kParam, {DType::f16, to_shape(sizes)}, Array(DType::f16, sizes)};
  };
  add_param("w", {768, 2304});
  add_param("b", {2304});
  Graph graph("main");
  const ValueId x = graph.add_input("x", {DType::f16, {Dim(1), Dim(128), Dim(768)}});
  const ValueId product = graph.add(Op::matmul, {x, graph.add_param("w", program.variables.at("w").type)});
  graph.add_output(graph.add(Op::add, {product, graph.add_param("b", program.variables.at("b").type)}), "y");
  program.entries.push_back(std::move(graph));
  for (const bool allowed : {true, false}) {
    CompileOptions options;
    options.target = "sm_90";
    if (!allowed) options.records = {"none"};
    const std::string text = testing::printed_stage(program, "select", options);
    EXPECT_EQ(text.find("recorded (shipped, exact)") != std::string::npos, allowed) << text;
  }
}

// The images as NVRTC gives them pass the check that stands before a driver.
TEST(Compile, CodeOfEveryTargetLoads) {
  AICF_NEEDS_NVRTC();
  for (const char* target : {"sm_80", "sm_90", "compute_80"}) {
    CompileOptions options;
    options.target = target;
    const Artifact artifact = compile(mlp_program(), options);
    ASSERT_EQ(artifact.variants.size(), 1u);
    EXPECT_FALSE(artifact.variants[0].code.empty()) << target;
    EXPECT_NO_THROW(Model::load(artifact, make_null_device())) << target;
  }
}

}  // namespace
}  // namespace aicf::compile_test
