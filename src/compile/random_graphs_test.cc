// Property test of the whole compiler over random programs: every optimisation level, instruction set and
// thread count agrees with the f64 reference within a running error bound; thread counts agree to the bit,
// and so does a model compiled for one size alone. AICF_RANDOM_GRAPHS sets the count, AICF_SEED runs one
// seed, both run that many from there; AICF_SOAK=1 runs 10,000.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "base/error.h"
#include "base/testing/random_seeds.h"
#include "compile/compile.h"
#include "compile/testing/error_bound.h"
#include "compile/testing/random_graph.h"
#include "compile/testing/test_device.h"
#include "ir/reference/evaluator.h"
#include "ir/text.h"
#include "kernels/common/kernel.h"
#include "runtime/cpu/cpu_device.h"
#include "runtime/executable.h"

namespace aicf::testing::random_graphs_test {
namespace {

using Results = std::map<std::string, Array>;

struct Tally {
  int64_t graphs = 0, compared = 0, excluded = 0;
  Tally& operator+=(const Tally& other) {
    graphs += other.graphs, compared += other.compared, excluded += other.excluded;
    return *this;
  }
};

std::shared_ptr<Device> device(IsaLevel isa, int threads) {
  static std::map<std::pair<IsaLevel, int>, std::shared_ptr<Device>> devices;
  auto& one = devices[{isa, threads}];
  if (one == nullptr) one = make_cpu_device({threads, isa});
  return one;
}

std::shared_ptr<Device> gpu() {
  static const std::shared_ptr<Device> one = open_device({"cuda"});
  return one;
}

// Outputs over poisoned memory, and the states afterwards.
Results run(const Artifact& artifact, const std::shared_ptr<Device>& device,
            const std::map<std::string, Array>& inputs) {
  Executable exe(Model::load(artifact, device));
  const EntryPlan& entry = exe.entry("");
  std::vector<TensorView> in, out;
  for (const IoTensor& io : entry.inputs) in.push_back(view_of(inputs.at(io.name)));
  const SymbolValues sizes = exe.bind_sizes(entry, in);
  std::vector<Array> arrays;
  for (size_t i = 0; i < entry.outputs.size(); ++i) {
    arrays.emplace_back(entry.outputs[i].dtype, exe.output_sizes(entry, i, sizes));
    if (arrays[i].bytes() > 0)
      std::memset(arrays[i].mutable_data(), 0xAB, static_cast<size_t>(arrays[i].bytes()));
  }
  for (const Array& array : arrays) out.push_back(view_of(array));
  exe.run_into("", in, out);
  Results results;
  for (size_t i = 0; i < arrays.size(); ++i) results[entry.outputs[i].name] = arrays[i];
  for (const std::string& name : exe.state_names()) results["update:" + name] = exe.state(name);
  return results;
}

Results run(const Artifact& artifact, IsaLevel isa, int threads, const std::map<std::string, Array>& inputs) {
  return run(artifact, device(isa, threads), inputs);
}

CompileOptions at_level(int level) {
  CompileOptions options;
  options.opt_level = level;
  options.target = TestDevice::get().target;
  return options;
}

std::string judge(const Array& got, const Bounded& want, Tally& tally) {
  if (got.sizes() != want.value.sizes)
    return "sizes " + to_string(got.sizes()) + ", expected " + to_string(want.value.sizes);
  for (int64_t i = 0; i < got.count(); ++i) {
    const auto at = static_cast<size_t>(i);
    const double bound = want.bound[at];
    if (!std::isfinite(bound)) {
      ++tally.excluded;
      continue;
    }
    ++tally.compared;
    if (want.value.is_float()) {
      const double expected = want.value.f[at], actual = got.get_f64(i);
      if (!(std::fabs(actual - expected) <= bound))
        return "element " + std::to_string(i) + " is " + std::to_string(actual) + ", expected " +
               std::to_string(expected) + " ± " + std::to_string(bound);
    } else if (got.get_i64(i) != want.value.i[at]) {
      return "element " + std::to_string(i) + " is " + std::to_string(got.get_i64(i)) + ", expected " +
             std::to_string(want.value.i[at]);
    }
  }
  return "";
}

std::string differing(const Results& a, const Results& b) {
  for (const auto& [name, array] : a)
    if (!(array == b.at(name))) return name;
  return "";
}

std::string judge_all(const Results& got, const std::map<std::string, Bounded>& expected, Tally& tally) {
  for (const auto& [name, want] : expected)
    if (const std::string text = judge(got.at(name), want, tally); !text.empty()) return name + ": " + text;
  return "";
}

// The first disagreement on the GPU, or "".
// Whether floats are summed in an order that, on a GPU, may follow from the sizes that a kernel is chosen for
// (docs/architecture/backends.md, "The accumulation law").
bool order_may_follow_sizes(const Program& program) {
  const auto sums = [](Op op) {
    switch (op) {
      case Op::reduce_max:
      case Op::reduce_min:
        return false;
      case Op::matmul:
      case Op::conv:
      case Op::avg_pool:
      case Op::softmax:
      case Op::log_softmax:
      case Op::rms_norm:
      case Op::layer_norm:
        return true;
      default:
        return op_info(op).has(kReduction);
    }
  };
  for (const Graph& graph : program.entries)
    for (const Node& node : graph.nodes())
      if (sums(node.op) && is_float(graph.dtype(node.results[0]))) return true;
  return false;
}

std::string check_size_on_gpu(const Program& program, const std::array<Artifact, 3>& artifacts, uint64_t seed,
                              int64_t batch, Tally& tally) {
  if (!TestDevice::get().runs) return "";
  const auto inputs = random_inputs(program, batch, seed);
  const auto expected = bounded_outputs(program, inputs, SymbolValues{{"batch", batch}});
  Results last;
  for (int level = 0; level < 3; ++level) {
    const std::string where = "batch " + std::to_string(batch) + ", opt " + std::to_string(level) + ", ";
    last = run(artifacts[static_cast<size_t>(level)], gpu(), inputs);
    if (const std::string text = judge_all(last, expected, tally); !text.empty()) return where + text;
  }
  if (const std::string name = differing(last, run(artifacts[2], gpu(), inputs)); !name.empty())
    return "batch " + std::to_string(batch) + ", " + name + ": two runs differ";
  if (program.sizes.empty()) return "";
  const Results exact = run(compile(with_batch(program, batch), at_level(2)), gpu(), inputs);
  const std::string where = "batch " + std::to_string(batch) + ", compiled for this size alone, ";
  if (const std::string text = judge_all(exact, expected, tally); !text.empty()) return where + text;
  const std::string name = order_may_follow_sizes(program) ? "" : differing(last, exact);
  return name.empty() ? "" : where + name + ": differs from that of the range";
}

// The first disagreement, or "".
std::string check_size(const Program& program, const std::array<Artifact, 3>& artifacts, uint64_t seed,
                       int64_t batch, Tally& tally) {
  if (TestDevice::get().cuda) return check_size_on_gpu(program, artifacts, seed, batch, tally);
  const auto inputs = random_inputs(program, batch, seed);
  const auto expected = bounded_outputs(program, inputs, SymbolValues{{"batch", batch}});
  for (int level = 0; level < 3; ++level) {
    const std::string where = "batch " + std::to_string(batch) + ", opt " + std::to_string(level);
    for (int isa = 0; isa <= static_cast<int>(detect_isa()); ++isa) {
      const auto isa_level = static_cast<IsaLevel>(isa);
      const Results got = run(artifacts[static_cast<size_t>(level)], isa_level, 1, inputs);
      if (const std::string text = judge_all(got, expected, tally); !text.empty())
        return where + ", " + std::string(isa_name(isa_level)) + ", " + text;
      if (const std::string name =
              differing(got, run(artifacts[static_cast<size_t>(level)], isa_level, 2, inputs));
          !name.empty())
        return where + ", " + std::string(isa_name(isa_level)) + ", " + name + ": one and two threads differ";
    }
  }
  if (!program.sizes.empty()) {
    const Artifact exact = compile(with_batch(program, batch));
    const std::string name =
        differing(run(artifacts[2], detect_isa(), 1, inputs), run(exact, detect_isa(), 1, inputs));
    if (!name.empty())
      return "batch " + std::to_string(batch) + ", " + name +
             ": differs from the model compiled for this size alone";
  }
  return "";
}

std::string check_seed(uint64_t seed, Tally& tally) {
  const Program program = random_program(seed);
  ++tally.graphs;
  try {
    std::array<Artifact, 3> artifacts;
    for (int level = 0; level < 3; ++level)
      artifacts[static_cast<size_t>(level)] = compile(program, at_level(level));
    std::vector<int64_t> batches = {0};
    if (!program.sizes.empty()) batches = {program.sizes.begin()->second.lo, 3, kMaxBatch};
    for (int64_t batch : batches)
      if (const std::string text = check_size(program, artifacts, seed, batch, tally); !text.empty())
        return text;
  } catch (const Error& error) {
    return error.text();
  }
  return "";
}

TEST(RandomGraphs, EveryWayToRunThemAgrees) {
  const RandomSeeds seeds = seeds_from_environment("AICF_RANDOM_GRAPHS", soaks() ? 10000 : 1000);
  Tally tally;
  std::mutex mutex;
  std::atomic<int> failures{0};
  TestDevice::get().for_each(static_cast<size_t>(seeds.last - seeds.first + 1), [&](size_t i) {
    const uint64_t seed = seeds.first + i;
    Tally own;
    const std::string text = failures < 20 ? check_seed(seed, own) : "";
    const std::lock_guard lock(mutex);
    tally += own;
    if (text.empty()) return;
    ++failures;
    ADD_FAILURE() << rerun_text(seed, seeds, text, [&] { return print(random_program(seed)); });
  });
  std::printf("%lld graphs, %lld elements compared, %lld excluded\n", static_cast<long long>(tally.graphs),
              static_cast<long long>(tally.compared), static_cast<long long>(tally.excluded));
  if (!seeds.one && TestDevice::get().runs) {
    EXPECT_GT(tally.compared, tally.excluded) << "the check has lost its sense";
  }
}

std::string first_failure(const Program& program) {
  std::array<Artifact, 3> artifacts;
  for (int level = 0; level < 3; ++level)
    artifacts[static_cast<size_t>(level)] = compile(program, at_level(level));
  Tally tally;
  return check_size(program, artifacts, 1, 3, tally);
}

TEST(RandomGraphs, RowValueMadeFromMemoryIsStoredOncePerRow) {
  EXPECT_EQ(first_failure(parse(R"(program {
    entry main(%x: f32[5], %b: f32[1]) {
      %0 = reduce_max(%x) {axes = [0], keepdims = true} : f32[1]
      %1 = max(%b, %0) : f32[1]
      return "y" = %1
    }
  })")),
            "");
}

TEST(RandomGraphs, RegionWritesATensorWithoutElements) {
  EXPECT_EQ(first_failure(parse(R"(program {
    entry main(%x: bool[17, 4, 0]) {
      %0 = logical_not(%x) : bool[17, 4, 0]
      %1 = reduce_min(%0) {axes = [0, 2], keepdims = true} : bool[1, 4, 1]
      return "y" = %0, "z" = %1
    }
  })")),
            "");
}

// What the bounds of the random programs leave out: an extreme of nothing.
TEST(RandomGraphs, TheExtremeOfNothingIsTheEndOfItsDtype) {
  for (const std::string dtype : {"i8", "u8", "i16", "i32", "i64"})
    for (const std::string op : {"reduce_max", "reduce_min"}) {
      const Program program =
          parse("program {\n entry main(%x: " + dtype + "[3, 0], %b: " + dtype + "[3]) {\n %0 = " + op +
                "(%x) {axes = [1]} : " + dtype + "[3]\n %1 = bit_xor(%0, %b) : " + dtype +
                "[3]\n return \"y\" = %1\n }\n}\n");
      const DType type = program.entries[0].dtype(program.entries[0].inputs()[0]);
      const Array given = Array::from<int64_t>(type, {3}, {0, 1, 5});
      const std::map<std::string, Array> inputs = {{"x", Array(type, {3, 0})}, {"b", given}};
      const Array want = evaluate(program, program.entries[0], {inputs, {}}).outputs.at("y");
      for (int level = 0; level < 3; ++level) {
        const Artifact artifact = compile(program, at_level(level));
        if (!TestDevice::get().runs) continue;
        EXPECT_EQ(run(artifact, TestDevice::get().cuda ? gpu() : device(detect_isa(), 1), inputs).at("y"),
                  want)
            << dtype << " " << op << ", opt " << level;
      }
    }
}

TEST(RandomGraphs, ContractionWithAConstantOfOneElementKeepsItsOperand) {
  EXPECT_EQ(first_failure(parse(R"(program {
    entry main(%x: f32[3, 1], %b: f32[1]) {
      %0 = constant f32[1, 1] = [-0.5]
      %1 = matmul(%x, %0) : f32[3, 1]
      %2 = max(%1, %b) : f32[3, 1]
      return "y" = %2
    }
  })")),
            "");
}

TEST(RandomGraphs, JoinedWeightsArePartOfAnotherConcat) {
  Program program = parse(R"(program {
    param "p" : f32[3]
    entry main(%x: f32[2]) {
      %0 = param "p" : f32[3]
      %1 = concat(%0, %0) {axis = 0} : f32[6]
      %2 = concat(%1, %x) {axis = 0} : f32[8]
      return "y" = %2
    }
  })");
  program.variables.at("p").data = Array::from<float>(DType::f32, {3}, {1, 2, 3});
  EXPECT_EQ(first_failure(program), "");
}

TEST(RandomGraphs, ConstantsOfAnExactSizeHaveTheBitsOfKernels) {
  EXPECT_EQ(first_failure(parse(R"(program {
    size batch in 1..5
    entry main(%x: f32[batch, 33]) {
      %0 = iota() {axis = 1, dtype = f32, shape = [batch, 33]} : f32[batch, 33]
      %1 = silu(%0) : f32[batch, 33]
      %2 = reduce_logsumexp(%1) {axes = [0, 1]} : f32[]
      %3 = exp(%0) : f32[batch, 33]
      return "y" = %1, "z" = %2, "w" = %3
    }
  })")),
            "");
}

TEST(RandomGraphs, StateBecomesItsOwnReverse) {
  Program program = parse(R"(program {
    state "s" : f32[2000]
    entry main(%x: f32[2]) {
      %0 = state "s" : f32[2000]
      %1 = reverse(%0) {axes = [0]} : f32[2000]
      update "s" = %1
      return "y" = %x
    }
  })");
  Array contents(DType::f32, {2000});
  for (int64_t i = 0; i < contents.count(); ++i) contents.set_f64(i, static_cast<double>(i));
  program.variables.at("s").data = contents;
  EXPECT_EQ(first_failure(program), "");
}

}  // namespace
}  // namespace aicf::testing::random_graphs_test
