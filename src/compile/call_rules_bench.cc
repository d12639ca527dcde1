// How compiling grows with a graph full of joins: steps of training with as many layers as give so many
// calls, compiled for sm_90 up to the stage `calls`. Prints milliseconds of each stage, how many joins were
// taken and how many near ones refused.
//   bench_compile --benchmark_filter=call_rules
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "compile/compile.h"
#include "ir/graph.h"

namespace aicf {
namespace {

constexpr int64_t kRows = 4096, kWidth = 1024;

// Layers of a norm, a gate and a product with a residual and a bias, then for each weight its gradient, from
// operands of the layer, and a step of AdamW; for each bias the sum of its gradient.
class Layers {
 public:
  explicit Layers(int count) : graph_("main"), count_(count) {}

  Program run() {
    rate_ = graph_.add_input("rate", {kHalf, {}});
    const ValueId t = variable("t", {DType::i64, {}}, Role::kState);
    step_ = graph_.add(Op::add, {t, graph_.add_constant(Array::from<int64_t>(DType::i64, {}, {1}))});
    graph_.add_update(t, step_);
    ValueId x = embedded();
    for (int i = 0; i < count_; ++i) x = layer(std::to_string(i), x);
    graph_.add_output(x, "y");
    program_.entries.push_back(std::move(graph_));
    return std::move(program_);
  }

 private:
  static constexpr DType kHalf = DType::bf16;

  ValueId variable(const std::string& name, const TensorType& type, Role role) {
    program_.variables[name] = {name, role, type, {}};
    return role == Role::kParam ? graph_.add_param(name, type) : graph_.add_state(name, type);
  }
  ValueId weight(const std::string& name) {
    return variable(name, {kHalf, {Dim(kWidth), Dim(kWidth)}}, Role::kParam);
  }
  ValueId embedded() {
    const ValueId table = graph_.add_input("table", {kHalf, {Dim(1000), Dim(kWidth)}});
    return graph_.add(Op::gather, {table, graph_.add_input("ids", {DType::i64, {Dim(kRows)}})},
                      {{"axis", int64_t{0}}});
  }

  ValueId layer(const std::string& i, ValueId x) {
    const ValueId scale = variable("scale" + i, {kHalf, {Dim(kWidth)}}, Role::kParam);
    const ValueId bias = variable("bias" + i, {kHalf, {Dim(kWidth)}}, Role::kParam);
    const ValueId gate = weight("gate" + i), up = weight("up" + i), down = weight("down" + i);
    const ValueId h = graph_.add(Op::rms_norm, {x, scale}, {{"axis", int64_t{-1}}, {"epsilon", 1e-5}});
    const ValueId g = graph_.add(Op::matmul, {h, gate});
    const ValueId both = graph_.add(
        Op::mul, {graph_.add(Op::mul, {g, graph_.add(Op::sigmoid, {g})}), graph_.add(Op::matmul, {h, up})});
    const ValueId y = graph_.add(Op::add, {graph_.add(Op::matmul, {both, down}), bias});
    const ValueId next = graph_.add(Op::add, {x, y});
    step(i + ".gate", gate, h, both);
    step(i + ".up", up, h, next);
    step(i + ".down", down, both, next);
    graph_.add_update(variable("sums" + i, {kHalf, {Dim(kWidth)}}, Role::kState),
                      graph_.add(Op::reduce_sum, {next}, {{"axes", Ints{0}}, {"keepdims", false}}));
    return next;
  }
  // The gradient x^T · dy and AdamW's step of it.
  void step(const std::string& name, ValueId param, ValueId x, ValueId dy) {
    const TensorType type{kHalf, {Dim(kWidth), Dim(kWidth)}};
    const ValueId gradient = graph_.add(Op::matmul, {x, dy}, {{"transpose_x", true}});
    const ValueId m = variable("m" + name, type, Role::kState), v = variable("v" + name, type, Role::kState);
    const NodeId node = graph_.add_node(Op::adamw_step, {param, gradient, m, v, step_, rate_},
                                        {{"weight_decay", 0.01}, {"epsilon", 1e-8}});
    const std::vector<ValueId> results = graph_.node(node).results;
    graph_.add_update(param, results[0]);
    graph_.add_update(m, results[1]);
    graph_.add_update(v, results[2]);
  }

  Graph graph_;
  Program program_;
  const int count_;
  ValueId rate_ = kNoValue, step_ = kNoValue;
};

void call_rules(benchmark::State& state) {
  const auto layers = static_cast<int>(state.range(0));
  const Program program = Layers(layers).run();
  CompileOptions options;
  options.target = "sm_90";
  options.stop_after = "calls";
  CompileReport report;
  for (auto _ : state) {
    report = {};
    compile(program, options, &report);
  }
  for (const StageTime& stage : report.stages) state.counters[stage.stage + "_ms"] = stage.milliseconds;
  size_t taken = 0;
  for (const CallReport& call : report.calls) taken += call.taken ? 1 : 0;
  state.counters["taken"] = static_cast<double>(taken);
  state.counters["refused"] = static_cast<double>(report.calls.size() - taken);
}

// Sixteen nodes and eleven calls a layer: graphs of 10,000 and 20,000 nodes.
BENCHMARK(call_rules)->Arg(90)->Arg(625)->Arg(1250)->Iterations(1)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace aicf
