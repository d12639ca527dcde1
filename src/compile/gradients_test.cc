// Gradients through the whole compiler: every op's gradient case in f32 by compiled kernels, and the
// gradients of random programs, against the reference in f64. AICF_RANDOM_GRADIENTS sets the count of
// programs, AICF_SEED runs one, both run that many from there.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "autodiff/gradients.h"
#include "autodiff/testing/gradient_cases.h"
#include "base/error.h"
#include "base/testing/random_seeds.h"
#include "compile/compile.h"
#include "compile/testing/error_bound.h"
#include "compile/testing/random_graph.h"
#include "ir/reference/evaluator.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "runtime/cpu/cpu_device.h"
#include "runtime/executable.h"

namespace aicf::testing::gradients_test {
namespace {

using Arrays = std::map<std::string, Array>;

std::shared_ptr<Device> device(int threads) {
  static std::map<int, std::shared_ptr<Device>> devices;
  auto& one = devices[threads];
  if (one == nullptr) one = make_cpu_device({threads, detect_isa()});
  return one;
}

Arrays run(const Artifact& artifact, int threads, const Arrays& inputs) {
  Executable exe(Model::load(artifact, device(threads)));
  const EntryPlan& entry = exe.entry("");
  std::vector<TensorView> in, out;
  for (const IoTensor& io : entry.inputs) in.push_back(view_of(inputs.at(io.name)));
  const SymbolValues sizes = exe.bind_sizes(entry, in);
  std::vector<Array> arrays;
  for (size_t i = 0; i < entry.outputs.size(); ++i)
    arrays.emplace_back(entry.outputs[i].dtype, exe.output_sizes(entry, i, sizes));
  for (const Array& array : arrays) out.push_back(view_of(array));
  exe.run_into("", in, out);
  Arrays results;
  for (size_t i = 0; i < arrays.size(); ++i) results[entry.outputs[i].name] = arrays[i];
  return results;
}

double largest(const Array& array) {
  double top = 0;
  for (int64_t i = 0; i < array.count(); ++i) top = std::max(top, std::abs(array.get_f64(i)));
  return top;
}

Array rounded_to_f32(const Array& array) {
  if (array.dtype() != DType::f64) return array;
  Array rounded(DType::f32, array.sizes());
  for (int64_t i = 0; i < array.count(); ++i) rounded.set_f64(i, array.get_f64(i));
  return rounded;
}

class CompiledGradient : public ::testing::TestWithParam<GradientCase> {};

// The cases' numbers are of order 1 and their sums short, so a few hundred units of f32 cover every rounding.
TEST_P(CompiledGradient, EqualsTheReference) {
  if (!GetParam().bodies.empty() || GetParam().op == Op::cast) GTEST_SKIP() << "made for f64 alone";
  const bool symbolic = !GetParam().symbols.empty();
  const Program program = gradient_program(GetParam(), DType::f32, symbolic);
  Arrays inputs;
  for (const auto& [name, array] : gradient_inputs(GetParam(), 5)) inputs[name] = rounded_to_f32(array);
  const Arrays expected = evaluate(program, program.entries[0], {inputs, {}}, {false}).outputs;
  for (int level : {0, 2}) {
    CompileOptions options;
    options.opt_level = level;
    const Artifact artifact = compile(program, options);
    const Arrays got = run(artifact, 1, inputs);
    EXPECT_EQ(got, run(artifact, 2, inputs)) << "one and two threads differ";
    for (const auto& [name, want] : expected) {
      const Array& array = got.at(name);
      ASSERT_EQ(array.sizes(), want.sizes()) << name;
      const double tolerance = 256 * 0x1p-23 * (1 + largest(want));
      for (int64_t i = 0; i < want.count(); ++i)
        EXPECT_NEAR(array.get_f64(i), want.get_f64(i), tolerance)
            << name << " element " << i << ", opt " << level;
    }
  }
}

std::string gradient_case_name(const ::testing::TestParamInfo<GradientCase>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Ops, CompiledGradient, ::testing::ValuesIn(gradient_cases()), gradient_case_name);

// The program with one more output for each float leaf, the gradient of the sum of all float outputs.
struct Differentiated {
  Program program;
  std::vector<std::string> inputs;  // those whose gradient is an output "d_<name>"
};

Differentiated differentiate(Program program) {
  Differentiated result;
  Graph& graph = program.entries[0];
  ValueId loss = graph.add_constant(Array::scalar_f64(DType::f64, 0));
  const std::vector<ValueId> outputs = graph.outputs();
  for (ValueId output : outputs) {
    if (!is_float(graph.dtype(output))) continue;
    const ValueId wide =
        graph.dtype(output) == DType::f64 ? output : graph.add(Op::cast, {output}, {{"dtype", DType::f64}});
    Ints axes;
    for (size_t i = 0; i < graph.shape(output).size(); ++i) axes.push_back(static_cast<int64_t>(i));
    loss = graph.add(Op::add, {loss, graph.add(Op::reduce_sum, {wide}, {{"axes", axes}})});
  }
  std::vector<ValueId> wanted;
  for (ValueId input : graph.inputs())
    if (is_float(graph.dtype(input))) wanted.push_back(input);
  const std::vector<ValueId> gradients = add_gradients(graph, loss, wanted, {kNoValue, true});
  graph.add_output(loss, "loss");
  for (size_t i = 0; i < wanted.size(); ++i) {
    result.inputs.push_back(graph.value(wanted[i]).name);
    graph.add_output(gradients[i], "d_" + result.inputs.back());
  }
  result.program = std::move(program);
  return result;
}

struct Tally {
  int64_t compared = 0, excluded = 0;
};

std::string judge(const Arrays& got, const std::map<std::string, Bounded>& expected, Tally& tally) {
  for (const auto& [name, want] : expected) {
    if (!name.starts_with("d_")) continue;
    const Array& array = got.at(name);
    if (array.sizes() != want.value.sizes) return name + " has sizes " + to_string(array.sizes());
    for (size_t i = 0; i < want.bound.size(); ++i) {
      const bool usable = std::isfinite(want.bound[i]);
      ++(usable ? tally.compared : tally.excluded);
      const double actual = array.get_f64(static_cast<int64_t>(i));
      if (usable && !(std::abs(actual - want.value.f[i]) <= want.bound[i]))
        return name + " element " + std::to_string(i) + " is " + std::to_string(actual) + ", expected " +
               std::to_string(want.value.f[i]) + " ± " + std::to_string(want.bound[i]);
    }
  }
  return "";
}

std::string check_compiled(uint64_t seed, Tally& tally) {
  const Differentiated d = differentiate(random_program(seed));
  verify(d.program, Fault::kInternal);
  const Artifact artifact = compile(d.program);
  const int64_t batch = d.program.sizes.empty() ? 0 : 3;
  const Arrays inputs = random_inputs(d.program, batch, seed);
  const Arrays got = run(artifact, 1, inputs);
  if (!(got == run(artifact, 2, inputs))) return "one and two threads differ";
  return judge(got, bounded_outputs(d.program, inputs, SymbolValues{{"batch", batch}}), tally);
}

// Central differences in f64 without rounding. Where the slopes of two step sizes disagree a kink or a jump
// lies between them and the element is excluded; a wrong derivative makes both agree with each other and not
// with it. Many jumps, as of rem by a small number, may make them agree on their mean, which a much smaller
// step does not give.
std::string check_differences(uint64_t seed, Tally& tally) {
  const Differentiated d = differentiate(random_program(seed));
  const int64_t batch = d.program.sizes.empty() ? 0 : 2;
  Arrays inputs = random_inputs(d.program, batch, seed);
  const auto outputs = [&](const Arrays& at) {
    return evaluate(d.program, d.program.entries[0], {at, SymbolValues{{"batch", batch}}}, {false}).outputs;
  };
  for (auto& [name, array] : inputs)
    if (is_float(array.dtype())) {
      Array wide(DType::f64, array.sizes());
      for (int64_t i = 0; i < array.count(); ++i) wide.set_f64(i, array.get_f64(i));
      array = wide;
    }
  const Arrays exact = outputs(inputs);
  for (const std::string& name : d.inputs) {
    const Array base = inputs.at(name);
    for (int64_t i = 0; i < std::min<int64_t>(base.count(), 3); ++i) {
      const auto slope = [&](double h) {
        double sides[2];
        for (int side : {0, 1}) {
          Array moved(DType::f64, base.sizes());
          for (int64_t k = 0; k < base.count(); ++k) moved.set_f64(k, base.get_f64(k));
          moved.set_f64(i, base.get_f64(i) + (side == 0 ? -h : h));
          Arrays at = inputs;
          at[name] = moved;
          sides[side] = outputs(at).at("loss").get_f64(0);
        }
        return (sides[1] - sides[0]) / (2 * h);
      };
      const double wide = slope(2e-5), narrow = slope(1e-5), got = exact.at("d_" + name).get_f64(i);
      const double scale = 1 + std::abs(narrow) + 1e-5 * std::abs(exact.at("loss").get_f64(0));
      if (!std::isfinite(got) || !(std::abs(wide - narrow) <= 1e-6 * scale)) {
        ++tally.excluded;
        continue;
      }
      const bool equal = std::abs(got - narrow) <= 1e-5 * scale;
      if (!equal && !(std::abs(slope(1e-5 / 64) - narrow) <= 1e-3 * scale)) {
        ++tally.excluded;
        continue;
      }
      ++tally.compared;
      if (!equal)
        return "d_" + name + " element " + std::to_string(i) + " is " + std::to_string(got) +
               ", the difference " + std::to_string(narrow);
    }
  }
  return "";
}

void check_programs(std::string (*check)(uint64_t, Tally&), uint64_t count) {
  const RandomSeeds seeds = seeds_from_environment("AICF_RANDOM_GRADIENTS", count);
  Tally tally;
  int failures = 0;
  for (uint64_t seed = seeds.first; seed <= seeds.last && failures < 10; ++seed) {
    std::string text;
    try {
      text = check(seed, tally);
    } catch (const Error& error) {
      text = error.text();
    }
    if (text.empty()) continue;
    ++failures;
    ADD_FAILURE() << rerun_text(seed, seeds, text, [&] { return print(random_program(seed)); });
  }
  std::printf("%lld elements compared, %lld excluded\n", static_cast<long long>(tally.compared),
              static_cast<long long>(tally.excluded));
  if (!seeds.one) {
    EXPECT_GT(tally.compared, tally.excluded) << "the check has lost its sense";
  }
}

TEST(RandomGradients, CompiledOnesLieWithinTheBounds) { check_programs(check_compiled, 200); }
TEST(RandomGradients, EqualFiniteDifferences) { check_programs(check_differences, 300); }

}  // namespace
}  // namespace aicf::testing::gradients_test
