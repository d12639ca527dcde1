#include "train/train_step.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "train/losses.h"
#include "train/schedules.h"
#include "train/testing/evaluate_graph.h"

namespace aicf {
namespace {

using testing::f64;

// loss = mean((x w - y)^2) over two rows, w one number.
Program line_program() {
  Program program;
  program.variables["w"] = {"w", Role::kParam, {DType::f64, {}}, f64({}, {0.5})};
  Graph graph("loss");
  const TensorType rows{DType::f64, {Dim(2)}};
  const ValueId w = graph.add_param("w", {DType::f64, {}});
  const ValueId x = graph.add_input("x", rows), y = graph.add_input("y", rows);
  const ValueId loss = add_loss(graph, LossKind::kMse, graph.add(Op::mul, {x, w}), y);
  graph.add_output(loss, "loss");
  program.entries.push_back(std::move(graph));
  return program;
}

TrainOptions sgd_options(double rate) {
  TrainOptions options;
  options.optimizer.kind = OptimizerKind::kSgd;
  options.schedule = constant_rate(rate);
  return options;
}

// States and params after one run of an entry; `now` has those before.
std::map<std::string, Array> run(const Program& program, const char* entry, const Array& x, const Array& y,
                                 std::map<std::string, Array> now = {}) {
  const EvalResult result = evaluate(program, *program.entry(entry), {{{"x", x}, {"y", y}}, {}}, {}, &now);
  for (const auto& [name, array] : result.updated) now[name] = array;
  return now;
}

double gradient(double w, const Array& x, const Array& y) {
  double sum = 0;
  for (int64_t i = 0; i < 2; ++i) sum += (x.get_f64(i) * w - y.get_f64(i)) * x.get_f64(i);
  return sum;
}

const Array kX = f64({2}, {1.5, -2}), kY = f64({2}, {0.25, 3}), kX2 = f64({2}, {0.5, 1}),
            kY2 = f64({2}, {-1, 2});

TEST(TrainStep, TakesOneStepOfTheOptimizer) {
  const Program program = make_train_program(line_program(), sgd_options(0.1));
  const auto now = run(program, kStepEntry, kX, kY);
  EXPECT_NEAR(now.at("w").get_f64(0), 0.5 - 0.1 * gradient(0.5, kX, kY), 1e-14);
  EXPECT_EQ(now.at(kStepState).get_i64(0), 1);
  EXPECT_EQ(now.at(kBadTensorState).get_i64(0), -1);
}

TEST(TrainStep, AveragesAccumulatedGradients) {
  TrainOptions options = sgd_options(0.1);
  options.accumulate = 2;
  const Program program = make_train_program(line_program(), options);
  auto now = run(program, kAccumulateEntry, kX, kY);
  EXPECT_FALSE(now.contains("w"));
  EXPECT_EQ(now.at(kMicroState).get_i64(0), 1);
  now = run(program, kStepEntry, kX2, kY2, now);
  EXPECT_NEAR(now.at("w").get_f64(0), 0.5 - 0.1 * (gradient(0.5, kX, kY) + gradient(0.5, kX2, kY2)) / 2,
              1e-14);
  EXPECT_EQ(now.at(kMicroState).get_i64(0), 0);
  EXPECT_EQ(now.at("opt.acc.w").get_f64(0), 0);
}

TEST(TrainStep, ClipsTheGlobalNorm) {
  TrainOptions options = sgd_options(0.1);
  options.clip_norm = 0.25;
  const auto now = run(make_train_program(line_program(), options), kStepEntry, kX, kY);
  const double g = gradient(0.5, kX, kY), factor = std::min(1.0, 0.25 / (std::abs(g) + 1e-6));
  EXPECT_LT(factor, 1);
  EXPECT_NEAR(now.at("w").get_f64(0), 0.5 - 0.1 * g * factor, 1e-14);
}

TEST(TrainStep, SkipsAStepThatIsNotFinite) {
  TrainOptions options = sgd_options(0.1);
  options.optimizer.momentum = 0.9;
  const Program program = make_train_program(line_program(), options);
  const auto now = run(program, kStepEntry, f64({2}, {std::nan(""), 1}), kY);
  EXPECT_EQ(now.at("w").get_f64(0), 0.5);
  EXPECT_EQ(now.at("opt.momentum.w").get_f64(0), 0);
  EXPECT_EQ(now.at(kStepState).get_i64(0), 0);
  EXPECT_EQ(now.at(kSkippedState).get_i64(0), 1);
  EXPECT_EQ(now.at(kBadTensorState).get_i64(0), 0);  // the loss
  // The flag stays until it is cleared; steps go on.
  const auto later = run(program, kStepEntry, kX, kY, now);
  EXPECT_EQ(later.at(kBadTensorState).get_i64(0), 0);
  EXPECT_EQ(later.at(kStepState).get_i64(0), 1);
}

TEST(TrainStep, ALossScaleChangesNothingButTheRange) {
  TrainOptions options = sgd_options(0.1);
  options.loss_scale.initial = 1024;
  options.loss_scale.interval = 1;
  const auto now = run(make_train_program(line_program(), options), kStepEntry, kX, kY);
  EXPECT_NEAR(now.at("w").get_f64(0), 0.5 - 0.1 * gradient(0.5, kX, kY), 1e-14);
  EXPECT_EQ(now.at(kLossScaleState).get_f64(0), 2048);
}

TEST(TrainStep, HalfParamsHaveMasterCopies) {
  Program program;
  program.variables["w"] = {"w", Role::kParam, {DType::bf16, {}}, Array::scalar_f64(DType::bf16, 0.5)};
  Graph graph("loss");
  const ValueId w = graph.add_param("w", {DType::bf16, {}});
  graph.add_output(graph.add(Op::mul, {w, w}), "loss");
  program.entries.push_back(std::move(graph));
  const Program training = make_train_program(program, sgd_options(1e-4));
  EXPECT_EQ(training.variables.at("opt.master.w").data.get_f64(0), 0.5);
  const EvalResult result = evaluate(training, *training.entry(kStepEntry), {});
  EXPECT_FLOAT_EQ(static_cast<float>(result.updated.at("opt.master.w").get_f64(0)), 0.4999f);
  EXPECT_EQ(result.updated.at("w").get_f64(0), 0.5);  // too small a step for bf16
}

TEST(TrainStep, PureHalfParamsAreTrainedInTheirOwnType) {
  Program program;
  program.variables["w"] = {"w", Role::kParam, {DType::bf16, {}}, Array::scalar_f64(DType::bf16, 0.5)};
  Graph graph("loss");
  const ValueId w = graph.add_param("w", {DType::bf16, {}});
  graph.add_output(graph.add(Op::mul, {w, w}), "loss");
  program.entries.push_back(std::move(graph));
  TrainOptions options;
  options.schedule = constant_rate(0.25);
  options.precision = Precision::kBf16Pure;
  const Program training = make_train_program(program, options);
  EXPECT_FALSE(training.variables.contains("opt.master.w"));
  EXPECT_EQ(training.variables.at("opt.m.w").type.dtype, DType::bf16);
  const EvalResult result = evaluate(training, *training.entry(kStepEntry), {});
  EXPECT_EQ(result.updated.at("w").get_f64(0), 0.25);  // the first step of Adam has the size of the rate
  EXPECT_EQ(result.updated.at("opt.m.w").get_f64(0), 0.10009765625);  // 0.1 in bf16
}

ErrorCode error_of(const Program& program, const TrainOptions& options) {
  try {
    make_train_program(program, options);
  } catch (const UserError& error) {
    return error.code;
  }
  return ErrorCode::kI_check_failed;
}

// It would train in f32 without a word.
TEST(TrainStep, PureNeedsAHalfThatIsTrained) {
  TrainOptions options = sgd_options(1);
  options.precision = Precision::kBf16Pure;
  EXPECT_EQ(error_of(line_program(), options), ErrorCode::kU_unsupported_option);
}

TEST(TrainStep, RefusesWhatCannotBeTrained) {
  Program no_params = line_program(), reserved = line_program(), unused = line_program();
  no_params.variables.at("w").role = Role::kState;
  Graph graph("loss");
  graph.add_output(graph.add_state("w", {DType::f64, {}}), "loss");
  no_params.entries = {graph};
  EXPECT_EQ(error_of(no_params, sgd_options(1)), ErrorCode::kU_no_params);

  reserved.variables["opt.x"] = {"opt.x", Role::kState, {DType::f64, {}}, {}};
  EXPECT_EQ(error_of(reserved, sgd_options(1)), ErrorCode::kU_bad_graph);

  unused.variables["idle"] = {"idle", Role::kParam, {DType::f64, {}}, {}};
  EXPECT_EQ(error_of(unused, sgd_options(1)), ErrorCode::kU_unused_param);
  TrainOptions frozen = sgd_options(1);
  frozen.groups = {{{"id*"}, 1, {}, false}};
  EXPECT_EQ(make_train_program(unused, frozen).entries.size(), 1u);

  TrainOptions options = sgd_options(1);
  options.accumulate = 0;
  EXPECT_EQ(error_of(line_program(), options), ErrorCode::kU_bad_option);
  options = sgd_options(1);
  options.groups = {{{"v"}, 1, {}, true}};
  EXPECT_EQ(error_of(line_program(), options), ErrorCode::kU_bad_option);
}

}  // namespace
}  // namespace aicf
