#include "train/optimizers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/error.h"
#include "train/testing/evaluate_graph.h"

namespace aicf {
namespace {

constexpr double kRate = 0.05;

double gradient_at(int step, double param) { return std::sin(step) + 0.3 * param; }

struct Plain {
  double param = 0.8, m = 0, v = 0;
};

// torch.optim's own formulas, one scalar at a time.
void plain_step(const OptimizerOptions& o, int step, double g, Plain& at) {
  if (o.kind != OptimizerKind::kAdamW) g += o.weight_decay * at.param;
  if (o.kind == OptimizerKind::kSgd) {
    at.m = o.momentum * at.m + g;
    const double direction = o.momentum == 0 ? g : o.nesterov ? g + o.momentum * at.m : at.m;
    at.param -= kRate * direction;
    return;
  }
  if (o.kind == OptimizerKind::kAdamW) at.param -= kRate * o.weight_decay * at.param;
  at.m = o.beta1 * at.m + (1 - o.beta1) * g;
  at.v = o.beta2 * at.v + (1 - o.beta2) * g * g;
  const double m_hat = at.m / (1 - std::pow(o.beta1, step)), v_hat = at.v / (1 - std::pow(o.beta2, step));
  at.param -= kRate * m_hat / (std::sqrt(v_hat) + o.epsilon);
}

std::map<std::string, Array> graph_step(const OptimizerOptions& o, int step, double g,
                                        const std::map<std::string, Array>& now) {
  Program program;
  Graph graph("step");
  const TensorType scalar{DType::f64, {}};
  const ValueId param = graph.add_param("p", scalar);
  program.variables["p"] = {"p", Role::kParam, scalar, {}};
  const auto number = [&](double value) { return graph.add_constant(Array::scalar_f64(DType::f64, value)); };
  std::vector<ValueId> slots;
  for (const std::string& name : optimizer_slots(o)) {
    slots.push_back(graph.add_state(name, scalar));
    program.variables[name] = {name, Role::kState, scalar, {}};
  }
  const ValueId count = graph.add_constant(Array::scalar_i64(DType::i64, step));
  const Stepped next = add_optimizer_step(graph, o, {param, number(g), number(kRate), count}, slots);
  graph.add_update(param, next.param);
  for (size_t i = 0; i < slots.size(); ++i) graph.add_update(slots[i], next.slots[i]);
  program.entries.push_back(std::move(graph));
  return evaluate(program, program.entries[0], {}, {}, &now).updated;
}

class OptimizerTest : public ::testing::TestWithParam<OptimizerOptions> {};

TEST_P(OptimizerTest, FollowsTheFormula) {
  const OptimizerOptions& o = GetParam();
  check_optimizer(o);
  Plain plain;
  std::map<std::string, Array> now = {{"p", Array::scalar_f64(DType::f64, plain.param)}};
  for (const std::string& name : optimizer_slots(o)) now[name] = Array::scalar_f64(DType::f64, 0);
  for (int step = 1; step <= 20; ++step) {
    now = graph_step(o, step, gradient_at(step, now.at("p").get_f64(0)), now);
    plain_step(o, step, gradient_at(step, plain.param), plain);
    ASSERT_NEAR(now.at("p").get_f64(0), plain.param, 1e-13) << "step " << step;
  }
}

OptimizerOptions sgd(double momentum, bool nesterov, double decay) {
  OptimizerOptions o;
  o.kind = OptimizerKind::kSgd;
  o.momentum = momentum;
  o.nesterov = nesterov;
  o.weight_decay = decay;
  return o;
}

OptimizerOptions adam(OptimizerKind kind, double decay) {
  OptimizerOptions o;
  o.kind = kind;
  o.beta2 = 0.99;
  o.weight_decay = decay;
  return o;
}

INSTANTIATE_TEST_SUITE_P(All, OptimizerTest,
                         ::testing::Values(sgd(0, false, 0), sgd(0, false, 0.1), sgd(0.9, false, 0.1),
                                           sgd(0.9, true, 0.1), adam(OptimizerKind::kAdam, 0),
                                           adam(OptimizerKind::kAdam, 0.1),
                                           adam(OptimizerKind::kAdamW, 0.1)));

TEST(Optimizers, RefuseImpossibleNumbers) {
  EXPECT_THROW(check_optimizer(sgd(1, false, 0)), UserError);
  EXPECT_THROW(check_optimizer(sgd(0, true, 0)), UserError);
  EXPECT_THROW(check_optimizer(adam(OptimizerKind::kAdam, -1)), UserError);
  EXPECT_THROW(optimizer_kind("lion"), UserError);
}

TEST(Optimizers, PatternsMatchWholeNames) {
  EXPECT_TRUE(matches_pattern("0.W", "0.W"));
  EXPECT_FALSE(matches_pattern("0.W", "10.W"));
  EXPECT_TRUE(matches_pattern("*.b", "layers.0.b"));
  EXPECT_FALSE(matches_pattern("*.b", "layers.0.bias"));
  EXPECT_TRUE(matches_pattern("layers.*.W", "layers.3.attn.q.W"));
  EXPECT_FALSE(matches_pattern("ab*ba", "aba"));
  EXPECT_TRUE(matches_pattern("*", ""));
}

}  // namespace
}  // namespace aicf
