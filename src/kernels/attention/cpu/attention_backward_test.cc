#include "kernels/attention/testing/masked_attention.h"

namespace aicf {
namespace {

using namespace step_testing;
using BackwardCase = AttentionCase;

struct BackwardTensors {
  TestTensor q, k, v, out, dout, mask, dq, dk, dv;
};

BackwardTensors make_backward(const BackwardCase& c, Layout layout = Layout::kDense) {
  const auto tensor = [&](const std::vector<int64_t>& sizes) {
    return TestTensor(DType::f32, sizes, layout);
  };
  BackwardTensors t{tensor(c.q_sizes()),   tensor(c.k_sizes()),   tensor(c.v_sizes()),
                    tensor(c.out_sizes()), tensor(c.out_sizes()), make_mask(c),
                    tensor(c.q_sizes()),   tensor(c.k_sizes()),   tensor(c.v_sizes())};
  uint64_t seed = 1;
  for (TestTensor* each : {&t.q, &t.k, &t.v, &t.out, &t.dout}) each->randomize(seed++);
  return t;
}

Step backward_step_of(const BackwardCase& c, const BackwardTensors& t) {
  Step step{"attention_backward_f32",
            {t.q.arg(), t.k.arg(), t.v.arg(), t.out.arg(), t.dout.arg()},
            {t.dq.arg(), t.dk.arg(), t.dv.arg()},
            c.params(),
            {kScale, c.softcap}};
  if (c.mask) step.inputs.push_back(t.mask.arg());
  return step;
}

struct Gradients {
  std::vector<double> q, k, v;
};

// Score by score in f64.
Gradients expected_gradients(const BackwardCase& c, const BackwardTensors& t) {
  Gradients g{std::vector<double>(static_cast<size_t>(t.q.count())),
              std::vector<double>(static_cast<size_t>(t.k.count())),
              std::vector<double>(static_cast<size_t>(t.v.count()))};
  const auto add = [](std::vector<double>& to, int64_t at, double x) { to[static_cast<size_t>(at)] += x; };
  for (int64_t i = 0; i < c.batch * c.heads * c.queries; ++i) {
    const AttentionRow row(c, i);
    const std::vector<double> p = probabilities(c, t.q, t.k, t.mask, row);
    for (int64_t j = 0; j < c.keys; ++j) {
      const int64_t key = row.first_key + j;
      const double weight = p[static_cast<size_t>(j)];
      double slope = 0;
      for (int64_t e = 0; e < c.value_depth; ++e) {
        const double dout = t.dout.get(i * c.value_depth + e);
        slope += dout * (t.v.get(key * c.value_depth + e) - t.out.get(i * c.value_depth + e));
        add(g.v, key * c.value_depth + e, weight * dout);
      }
      const double bent = c.softcap > 0 ? score(c, t.q, t.k, row, j) / c.softcap : 0;
      slope *= weight * (1 - bent * bent) * kScale;
      for (int64_t d = 0; d < c.depth; ++d) {
        add(g.q, i * c.depth + d, slope * t.k.get(key * c.depth + d));
        add(g.k, key * c.depth + d, slope * t.q.get(i * c.depth + d));
      }
    }
  }
  return g;
}

void expect_close(const TestTensor& got, const std::vector<double>& expected, const std::string& what) {
  double top = 0;
  for (double x : expected) top = std::max(top, std::abs(x));
  for (int64_t i = 0; i < got.count(); ++i) {
    const double want = expected[static_cast<size_t>(i)];
    ASSERT_TRUE(agrees(got.get(i), want, 1e-5 * (1 + top)))
        << what << " " << i << ": " << got.get(i) << " for " << want;
  }
}

TEST(AttentionBackward, AgreesWithF64) {
  const BackwardCase cases[] = {
      {1, 1, 1, 1, 1, 1, 1},
      {2, 3, 3, 17, 33, 8, 5},
      {1, 4, 2, 40, 300, 32, 32, true},
      {1, 2, 1, 70, 70, 16, 16, true},
      {1, 2, 2, 9, 20, 16, 48, false, 2},
      {1, 1, 1, 50, 10, 4, 4, true},
      {2, 2, 2, 5, 27, 300, 7, false, 1},
      {1, 2, 2, 33, 40, 16, 16, true, 1, 2.0},
      {1, 6, 2, 64, 31, 12, 20, false, 0, 1.5},
      {1, 2, 2, 3, 0, 8, 8},
      {1, 2, 2, 0, 5, 8, 8},
      {1, 2, 1, 70, 70, 16, 16, true, 0, 0, 1},
      {1, 2, 1, 100, 1400, 4, 4, true, 0, 0, 40},
      {1, 1, 1, 50, 1300, 4, 8, false, 2, 1.5, 33},
      {1, 1, 1, 100, 40, 4, 4, false, 0, 0, 20},
      {1, 1, 1, 50, 60, 4, 4, true, 1, 0, 200},
  };
  for (const BackwardCase& c : cases)
    for (Layout layout : {Layout::kDense, Layout::kTransposed, Layout::kReversed, Layout::kGaps}) {
      BackwardTensors t = make_backward(c, layout);
      const Gradients expected = expected_gradients(c, t);
      for (IsaLevel isa : isa_levels()) {
        for (TestTensor* gradient : {&t.dq, &t.dk, &t.dv}) gradient->poison();
        run_step(backward_step_of(c, t), isa);
        const std::string what = std::string(isa_name(isa)) + " keys " + std::to_string(c.keys) + " ";
        expect_close(t.dq, expected.q, what + "dq");
        expect_close(t.dk, expected.k, what + "dk");
        expect_close(t.dv, expected.v, what + "dv");
      }
    }
}

TEST(AttentionBackward, FullyMaskedRowsHaveNoGradient) {
  const BackwardCase c{1, 1, 1, 4, 30, 8, 8, false, 1};
  BackwardTensors t = make_backward(c);
  t.mask.fill([](int64_t) { return -kInf; });
  for (TestTensor* gradient : {&t.dq, &t.dk, &t.dv}) gradient->poison();
  run_step(backward_step_of(c, t), detect_isa());
  for (const TestTensor* gradient : {&t.dq, &t.dk, &t.dv})
    for (int64_t i = 0; i < gradient->count(); ++i) ASSERT_EQ(gradient->get(i), 0);
}

// A batch row's bits do not depend on its neighbours.
TEST(AttentionBackward, BatchRowAloneIsTheSame) {
  const BackwardCase both{2, 4, 2, 37, 50, 16, 16, true}, alone{1, 4, 2, 37, 50, 16, 16, true};
  BackwardTensors t = make_backward(both), one = make_backward(alone);
  const auto copy_second = [](const TestTensor& from, TestTensor& to) {
    for (int64_t i = 0; i < to.count(); ++i) to.set(i, from.get(to.count() + i));
  };
  copy_second(t.q, one.q);
  copy_second(t.k, one.k);
  copy_second(t.v, one.v);
  copy_second(t.out, one.out);
  copy_second(t.dout, one.dout);
  for (IsaLevel isa : isa_levels()) {
    run_step(backward_step_of(both, t), isa);
    run_step(backward_step_of(alone, one), isa);
    for (int64_t i = 0; i < one.dq.count(); ++i) ASSERT_EQ(one.dq.bits(i), t.dq.bits(one.dq.count() + i));
    for (int64_t i = 0; i < one.dk.count(); ++i) ASSERT_EQ(one.dk.bits(i), t.dk.bits(one.dk.count() + i));
    for (int64_t i = 0; i < one.dv.count(); ++i) ASSERT_EQ(one.dv.bits(i), t.dv.bits(one.dv.count() + i));
  }
}

TEST(AttentionBackward, RefusesStepsThatDoNotFit) {
  const BackwardCase c{1, 2, 2, 5, 6, 4, 4};
  BackwardTensors t = make_backward(c);
  Step step = backward_step_of(c, t);
  std::swap(step.outputs[0], step.outputs[1]);
  EXPECT_THROW(run_step(step, detect_isa()), UserError);
  step = backward_step_of(c, t);
  step.inputs.pop_back();
  EXPECT_THROW(run_step(step, detect_isa()), UserError);
}

}  // namespace
}  // namespace aicf
