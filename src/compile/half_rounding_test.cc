// Where halves are rounded (docs/precision.md), on the device of test_device.h: compiled programs against the
// evaluator, levels against each other, and outputs against fewer of them. AICF_HALF_GRAPHS sets the count of
// random programs, AICF_SEED runs one of them.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <limits>
#include <vector>

#include "autodiff/gradients.h"
#include "base/testing/random_seeds.h"
#include "compile/compile.h"
#include "compile/testing/random_arrays.h"
#include "compile/testing/random_halves.h"
#include "compile/testing/test_device.h"
#include "ir/reference/evaluator.h"
#include "ir/rounding.h"
#include "ir/text.h"
#include "kernels/common/isa.h"
#include "runtime/cpu/cpu_device.h"
#include "runtime/executable.h"

namespace aicf::testing::half_rounding_test {
namespace {

using Arrays = std::map<std::string, Array>;

struct Way {
  std::string name;
  std::shared_ptr<Device> device;
};

// Every instruction set of this CPU; or the GPU, if it runs anything.
std::vector<Way> ways() {
  if (!TestDevice::get().runs) return {};
  if (TestDevice::get().cuda) return {{"cuda", open_device({"cuda"})}};
  std::vector<Way> ways;
  for (int isa = 0; isa <= static_cast<int>(detect_isa()); ++isa) {
    const auto level = static_cast<IsaLevel>(isa);
    ways.push_back({std::string(isa_name(level)), make_cpu_device({1, level})});
  }
  return ways;
}

Artifact at_level(const Program& program, int level, Precision precision = Precision::kF32) {
  CompileOptions options;
  options.opt_level = level;
  options.precision = precision;
  options.target = TestDevice::get().target;
  return compile(program, options);
}

Arrays run(const Artifact& artifact, const Way& way, const Arrays& inputs) {
  return Executable(Model::load(artifact, way.device)).run("main", inputs);
}

// NaNs are equal; so are zeros, since which of two a max or a min gives is not said.
bool same_element(const Array& a, const Array& b, int64_t i) {
  if (!is_float(a.dtype())) return a.get_i64(i) == b.get_i64(i);
  const double x = a.get_f64(i), y = b.get_f64(i);
  return std::isnan(x) ? std::isnan(y) : x == y;
}

std::string number(const Array& array, int64_t i) {
  char text[40];
  std::snprintf(text, sizeof text, "%.9g",
                is_float(array.dtype()) ? array.get_f64(i) : double(array.get_i64(i)));
  return text;
}

// Where the arrays of `got` differ from those of the same names in `want`; "" for nowhere.
std::string difference(const Arrays& got, const Arrays& want) {
  for (const auto& [name, array] : got)
    for (int64_t i = 0; i < array.count(); ++i)
      if (!same_element(array, want.at(name), i))
        return name + "[" + std::to_string(i) + "] is " + number(array, i) + ", not " +
               number(want.at(name), i);
  return "";
}

double spacing(DType dtype, double value) {
  const int bits = dtype == DType::f16 ? 10 : dtype == DType::bf16 ? 7 : 23;
  const int least = dtype == DType::f16 ? -14 : -126;
  return std::ldexp(1.0, (value == 0 ? least : std::max(std::ilogb(value), least)) - bits);
}

double largest_magnitude(const Array& array) {
  double most = 0;
  for (int64_t i = 0; i < array.count(); ++i)
    if (std::isfinite(array.get_f64(i))) most = std::max(most, std::fabs(array.get_f64(i)));
  return most;
}

// Every node's results against the evaluator's over the operands that the device gave: at most one unit of
// the half off, and what f32 sums of so large terms lose; of f32 nothing is asked. "" where all are.
std::string off_by_more_than_rounding(const Program& program, const Arrays& inputs, const Arrays& got) {
  const Graph& graph = program.entries[0];
  for (const Node& node : graph.nodes()) {
    std::vector<Array> operands;
    double terms = 1, longest = 1;
    for (ValueId id : node.operands) {
      if (id == kNoValue) {
        operands.emplace_back();
        continue;
      }
      const Value& value = graph.value(id);
      operands.push_back(value.role == Role::kInput      ? inputs.at(value.name)
                         : value.role == Role::kConstant ? value.constant
                                                         : got.at("v" + std::to_string(id)));
      if (!is_float(value.type.dtype)) continue;
      terms *= std::max(1.0, largest_magnitude(operands.back()));
      longest = std::max(longest, static_cast<double>(operands.back().count()));
    }
    const std::string name = "v" + std::to_string(node.results[0]);
    const Array want = evaluate_node(graph, node, operands, {})[0], &array = got.at(name);
    const bool sums = node.op != Op::cast && !rounds_nothing(node.op);
    // A product that is rounded before its bias is added may have moved by a unit of its own.
    const double before =
        op_info(node.op).has(kStepwise) ? largest_magnitude(want) + terms * std::sqrt(longest) : 0;
    for (int64_t i = 0; i < want.count(); ++i) {
      if (same_element(array, want, i)) continue;
      const double x = is_float(want.dtype()) ? want.get_f64(i) : 0;
      const bool half = is_half(want.dtype());
      double allowed = half && sums ? spacing(want.dtype(), x) + 0x1p-23 * terms * longest : 0;
      if (before > 0) allowed += spacing(want.dtype(), before);
      if (want.dtype() == DType::f32 && sums) allowed = std::numeric_limits<double>::infinity();
      if (is_float(want.dtype()) && std::fabs(array.get_f64(i) - x) <= allowed) continue;
      return name + " = " + std::string(op_info(node.op).name) + ", element " + std::to_string(i) + " is " +
             number(array, i) + ", not " + number(want, i);
    }
  }
  return "";
}

// The first disagreement, or "".
std::string check_seed(uint64_t seed, bool exact) {
  const Program program = random_halves(seed, exact);
  const Arrays inputs = inputs_of_halves(program, seed);
  const std::vector<Program> subsets = {with_outputs(program, 0),
                                        with_outputs(program, seed * 0x9E3779B97F4A7C15)};
  std::vector<Artifact> levels, fewer;
  for (int level = 0; level < 3; ++level) levels.push_back(at_level(program, level));
  for (const Program& subset : subsets)
    for (int level = 0; level < 3; level += 2) fewer.push_back(at_level(subset, level));
  const Arrays want = exact ? evaluate(program, program.entries[0], {inputs, {}}).outputs : Arrays();
  for (const Way& way : ways()) {
    const Arrays first = run(levels[0], way, inputs);
    for (size_t level = 0; level < levels.size(); ++level) {
      const std::string where = way.name + ", level " + std::to_string(level) + ": ";
      const Arrays got = level == 0 ? first : run(levels[level], way, inputs);
      const std::string text =
          exact ? difference(got, want) : off_by_more_than_rounding(program, inputs, got);
      if (!text.empty()) return where + text;
      // In which order a GPU sums may follow from the kernel.
      if (TestDevice::get().cuda && !exact) continue;
      if (const std::string other = difference(got, first); !other.empty())
        return where + "not level 0's, " + other;
    }
    for (size_t i = 0; i < fewer.size() && (exact || !TestDevice::get().cuda); ++i)
      if (const std::string text = difference(run(fewer[i], way, inputs), first); !text.empty())
        return way.name + ", fewer outputs, level " + std::to_string(i % 2 * 2) + ": " + text;
  }
  return "";
}

void check_seeds(bool exact) {
  const RandomSeeds seeds = seeds_from_environment("AICF_HALF_GRAPHS", 60);
  std::atomic<int> failures{0};
  TestDevice::get().for_each(static_cast<size_t>(seeds.last - seeds.first + 1), [&](size_t i) {
    const uint64_t seed = seeds.first + i;
    if (failures >= 10) return;
    const std::string text = check_seed(seed, exact);
    if (text.empty()) return;
    ++failures;
    ADD_FAILURE() << rerun_text(seed, seeds, text, [&] { return print(random_halves(seed, exact)); });
  });
}

TEST(HalfRounding, ExactGraphsHaveTheBitsOfTheRule) { check_seeds(true); }
TEST(HalfRounding, OtherGraphsAreOffByOneUnitAndAlikeAtEveryLevel) { check_seeds(false); }

TEST(HalfRounding, AComparisonSeesWhatIsStored) {
  for (const char* dtype : {"f16", "bf16"}) {
    std::string text = R"(program {
      entry main(%x: T[1000], %c: T[]) {
        %d = sub(%x, %c) : T[1000]
        %e = eq(%d, %x) : bool[1000]
        %y = ge(%d, %x) : bool[1000]
        return "d" = %d, "e" = %e, "y" = %y
      }
    })";
    for (size_t at; (at = text.find("T[")) != std::string::npos;) text.replace(at, 1, dtype);
    const Program program = parse(text);
    const DType half = *dtype_from_name(dtype);
    Arrays inputs = {{"x", random_array(half, {1000}, 7)}, {"c", Array::scalar_f64(half, 1e-4)}};
    const Arrays want = evaluate(program, program.entries[0], {inputs, {}}).outputs;
    for (int level = 0; level < 3; ++level)
      for (const uint64_t bits : {0, 7}) {
        const Artifact artifact = at_level(with_outputs(program, bits), level);
        for (const Way& way : ways())
          EXPECT_EQ(difference(run(artifact, way, inputs), want), "")
              << dtype << ", level " << level << ", " << way.name;
      }
  }
}

// Composites that are written out: one op, whoever reads what lies inside it.
TEST(HalfRounding, WrittenOutCompositesAreOneOpAtEveryLevel) {
  const std::string attention = R"(program {
      entry main(%q: T[1, 2, 9, 16], %k: T[1, 2, 9, 16], %v: T[1, 2, 9, 16], %m: T[1, 1, 1, 9]) {
        %two = constant f32[] = [4]
        %one = constant T[] = [1]
        %s = matmul(%q, %k) {transpose_y = true} : T[1, 2, 9, 9]
        %four = cast(%two) {dtype = T} : T[]
        %c = div(%s, %four) : T[1, 2, 9, 9]
        %a = add(%c, %m) : T[1, 2, 9, 9]
        %p = softmax(%a) {axis = 3} : T[1, 2, 9, 9]
        %y = matmul(%p, %v) : T[1, 2, 9, 16]
        return "s" = %s, "c" = %c, "a" = %a, "p" = %p, "y" = %y
      }
    })";
  const std::string gelu = R"(program {
      entry main(%x: T[64, 33], %b: T[33]) {
        %r = constant T[] = [1.4142135]
        %one = constant T[] = [1]
        %half = constant T[] = [0.5]
        %h = add(%x, %b) : T[64, 33]
        %d = div(%h, %r) : T[64, 33]
        %e = erf(%d) : T[64, 33]
        %p = add(%e, %one) : T[64, 33]
        %w = mul(%h, %p) : T[64, 33]
        %y = mul(%w, %half) : T[64, 33]
        return "h" = %h, "d" = %d, "e" = %e, "p" = %p, "w" = %w, "y" = %y
      }
    })";
  const auto with = [](std::string text, const char* dtype) {
    for (const char* use : {"T[", "= T}"})
      for (size_t at; (at = text.find(use)) != std::string::npos;)
        text.replace(at + std::string(use).find('T'), 1, dtype);
    return text;
  };
  struct Case {
    std::string text;
    Precision precision;
  };
  const std::vector<Case> cases = {{with(attention, "f16"), Precision::kF32},
                                   {with(attention, "bf16"), Precision::kF32},
                                   {with(attention, "f32"), Precision::kBf16Mixed},
                                   {with(gelu, "f16"), Precision::kF32},
                                   {with(gelu, "bf16"), Precision::kF32}};
  for (size_t c = 0; c < cases.size(); ++c) {
    const Program program = parse(cases[c].text);
    const Arrays inputs = normal_inputs(program, 5);
    std::vector<Artifact> artifacts;
    for (int level = 0; level < 3; ++level)
      for (const uint64_t bits : {uint64_t{0}, ~uint64_t{0}, uint64_t{5}})
        artifacts.push_back(at_level(with_outputs(program, bits), level, cases[c].precision));
    for (const Way& way : ways()) {
      const Arrays first = run(artifacts[0], way, inputs);
      for (size_t i = 1; i < artifacts.size(); ++i)
        EXPECT_EQ(difference({{"y", run(artifacts[i], way, inputs).at("y")}}, first), "")
            << "case " << c << ", level " << i / 3 << ", outputs " << i % 3 << ", " << way.name;
    }
  }
}

// The gradient of an op is one op: f32 inside, rounded once, however much of it is fused.
TEST(HalfRounding, GradientsRoundOnceAtEveryLevel) {
  // Of x; a function of the rounded y would be compared with one of another y.
  for (const char* op : {"sin", "log1p", "asinh", "atan", "erf", "silu", "gelu", "softplus"}) {
    Graph graph("main");
    const TensorType type{DType::bf16, {Dim(8), Dim(33)}};
    const ValueId x = graph.add_input("x", type), w = graph.add_input("w", type);
    const ValueId positive = graph.add(Op::abs, {x});
    const ValueId y = graph.add(*op_from_name(op), {positive});
    const ValueId loss = graph.add(Op::reduce_sum, {graph.add(Op::mul, {y, w})}, {{"axes", Ints{0, 1}}});
    const std::vector<ValueId> found = add_gradients(graph, loss, {positive});
    graph.add_output(y, "y");
    graph.add_output(found[0], "dx");
    Program program;
    program.entries.push_back(graph);
    const Arrays inputs = normal_inputs(program, 3);
    std::vector<Artifact> levels;
    for (int level = 0; level < 3; ++level) levels.push_back(at_level(program, level));
    for (const Way& way : ways()) {
      const Arrays first = run(levels[0], way, inputs);
      for (size_t level = 1; level < levels.size(); ++level)
        EXPECT_EQ(difference(run(levels[level], way, inputs), first), "") << op << ", level " << level;
      // Against f64 through all of it, from the same halves.
      const Arrays exact = evaluate(program, program.entries[0], {inputs, {}}, {false}).outputs;
      for (int64_t i = 0; i < exact.at("dx").count(); ++i) {
        const double want = exact.at("dx").get_f64(i);
        EXPECT_NEAR(first.at("dx").get_f64(i), want, 2 * spacing(DType::bf16, want)) << op << "[" << i << "]";
      }
    }
  }
}

}  // namespace
}  // namespace aicf::testing::half_rounding_test
