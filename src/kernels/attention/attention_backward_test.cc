#include <limits>

#include "kernels/matmul/step_testing.h"

namespace aicf {
namespace {

using namespace step_testing;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kScale = 0.3f;

struct Case {
  int64_t batch, heads, kv_heads, queries, keys, depth, value_depth;
  bool causal = false;
  int mask = 0;  // 1 added [B, 1, 1, Tk], 2 bool [Tq, Tk]
  double softcap = 0;
};

struct Tensors {
  TestTensor q, k, v, out, dout, mask, dq, dk, dv;
};

Tensors make(const Case& c, Layout layout = Layout::kDense) {
  const std::vector<int64_t> q = {c.batch, c.heads, c.queries, c.depth},
                             k = {c.batch, c.kv_heads, c.keys, c.depth};
  const std::vector<int64_t> v = {c.batch, c.kv_heads, c.keys, c.value_depth};
  const std::vector<int64_t> out = {c.batch, c.heads, c.queries, c.value_depth};
  const std::vector<int64_t> mask =
      c.mask == 2 ? std::vector<int64_t>{c.queries, c.keys} : std::vector<int64_t>{c.batch, 1, 1, c.keys};
  Tensors t{TestTensor(DType::f32, q, layout),   TestTensor(DType::f32, k, layout),
            TestTensor(DType::f32, v, layout),   TestTensor(DType::f32, out, layout),
            TestTensor(DType::f32, out, layout), TestTensor(c.mask == 2 ? DType::boolean : DType::f32, mask),
            TestTensor(DType::f32, q, layout),   TestTensor(DType::f32, k, layout),
            TestTensor(DType::f32, v, layout)};
  uint64_t seed = 1;
  for (TestTensor* tensor : {&t.q, &t.k, &t.v, &t.out, &t.dout}) tensor->randomize(seed++);
  if (c.mask == 2)
    t.mask.fill([](int64_t i) { return i % 3 != 0; });
  else
    t.mask.fill([](int64_t i) { return i % 5 == 0 ? -kInf : 0.1 * static_cast<double>(i % 7); });
  return t;
}

Step step_of(const Case& c, const Tensors& t) {
  Step step{"attention_backward_f32",
            {t.q.arg(), t.k.arg(), t.v.arg(), t.out.arg(), t.dout.arg()},
            {t.dq.arg(), t.dk.arg(), t.dv.arg()},
            {c.causal, c.mask != 0},
            {kScale, c.softcap}};
  if (c.mask) step.inputs.push_back(t.mask.arg());
  return step;
}

struct Gradients {
  std::vector<double> q, k, v;
};

// Score by score in f64.
Gradients expected_gradients(const Case& c, const Tensors& t) {
  Gradients g{std::vector<double>(static_cast<size_t>(t.q.count())),
              std::vector<double>(static_cast<size_t>(t.k.count())),
              std::vector<double>(static_cast<size_t>(t.v.count()))};
  std::vector<double> p(static_cast<size_t>(c.keys)), bend(p.size());
  for (int64_t row = 0; row < c.batch * c.heads * c.queries; ++row) {
    const int64_t b = row / (c.heads * c.queries), h = row / c.queries % c.heads, i = row % c.queries;
    const int64_t first_key = (b * c.kv_heads + h / (c.heads / c.kv_heads)) * c.keys;
    double top = -kInf, sum = 0;
    for (int64_t j = 0; j < c.keys; ++j) {
      double s = 0;
      for (int64_t d = 0; d < c.depth; ++d)
        s += t.q.get(row * c.depth + d) * t.k.get((first_key + j) * c.depth + d);
      s *= kScale;
      bend[static_cast<size_t>(j)] = 1;
      if (c.softcap > 0) {
        const double bent = std::tanh(s / c.softcap);
        bend[static_cast<size_t>(j)] = 1 - bent * bent;
        s = c.softcap * bent;
      }
      if (c.mask == 1) s += t.mask.get(b * c.keys + j);
      if ((c.mask == 2 && t.mask.get(i * c.keys + j) == 0) || (c.causal && j > i + c.keys - c.queries))
        s = -kInf;
      top = std::max(top, p[static_cast<size_t>(j)] = s);
    }
    for (double& x : p) sum += x = top == -kInf ? 0 : std::exp(x - top);
    for (int64_t j = 0; j < c.keys && sum > 0; ++j) {
      const double weight = p[static_cast<size_t>(j)] / sum;
      double slope = 0;
      for (int64_t e = 0; e < c.value_depth; ++e) {
        const double dout = t.dout.get(row * c.value_depth + e);
        slope += dout * (t.v.get((first_key + j) * c.value_depth + e) - t.out.get(row * c.value_depth + e));
        g.v[static_cast<size_t>((first_key + j) * c.value_depth + e)] += weight * dout;
      }
      slope *= weight * bend[static_cast<size_t>(j)] * kScale;
      for (int64_t d = 0; d < c.depth; ++d) {
        g.q[static_cast<size_t>(row * c.depth + d)] += slope * t.k.get((first_key + j) * c.depth + d);
        g.k[static_cast<size_t>((first_key + j) * c.depth + d)] += slope * t.q.get(row * c.depth + d);
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
  const Case cases[] = {
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
  };
  for (const Case& c : cases)
    for (Layout layout : {Layout::kDense, Layout::kTransposed, Layout::kReversed, Layout::kGaps}) {
      Tensors t = make(c, layout);
      const Gradients expected = expected_gradients(c, t);
      for (IsaLevel isa : isa_levels()) {
        for (TestTensor* gradient : {&t.dq, &t.dk, &t.dv}) gradient->poison();
        run_step(step_of(c, t), isa);
        const std::string what = std::string(isa_name(isa)) + " keys " + std::to_string(c.keys) + " ";
        expect_close(t.dq, expected.q, what + "dq");
        expect_close(t.dk, expected.k, what + "dk");
        expect_close(t.dv, expected.v, what + "dv");
      }
    }
}

TEST(AttentionBackward, FullyMaskedRowsHaveNoGradient) {
  const Case c{1, 1, 1, 4, 30, 8, 8, false, 1};
  Tensors t = make(c);
  t.mask.fill([](int64_t) { return -kInf; });
  for (TestTensor* gradient : {&t.dq, &t.dk, &t.dv}) gradient->poison();
  run_step(step_of(c, t), detect_isa());
  for (const TestTensor* gradient : {&t.dq, &t.dk, &t.dv})
    for (int64_t i = 0; i < gradient->count(); ++i) ASSERT_EQ(gradient->get(i), 0);
}

// A batch row's bits do not depend on its neighbours.
TEST(AttentionBackward, BatchRowAloneIsTheSame) {
  const Case both{2, 4, 2, 37, 50, 16, 16, true}, alone{1, 4, 2, 37, 50, 16, 16, true};
  Tensors t = make(both), one = make(alone);
  const auto copy_second = [](const TestTensor& from, TestTensor& to) {
    for (int64_t i = 0; i < to.count(); ++i) to.set(i, from.get(to.count() + i));
  };
  copy_second(t.q, one.q);
  copy_second(t.k, one.k);
  copy_second(t.v, one.v);
  copy_second(t.out, one.out);
  copy_second(t.dout, one.dout);
  for (IsaLevel isa : isa_levels()) {
    run_step(step_of(both, t), isa);
    run_step(step_of(alone, one), isa);
    for (int64_t i = 0; i < one.dq.count(); ++i) ASSERT_EQ(one.dq.bits(i), t.dq.bits(one.dq.count() + i));
    for (int64_t i = 0; i < one.dk.count(); ++i) ASSERT_EQ(one.dk.bits(i), t.dk.bits(one.dk.count() + i));
    for (int64_t i = 0; i < one.dv.count(); ++i) ASSERT_EQ(one.dv.bits(i), t.dv.bits(one.dv.count() + i));
  }
}

TEST(AttentionBackward, RefusesStepsThatDoNotFit) {
  const Case c{1, 2, 2, 5, 6, 4, 4};
  Tensors t = make(c);
  Step step = step_of(c, t);
  std::swap(step.outputs[0], step.outputs[1]);
  EXPECT_THROW(run_step(step, detect_isa()), UserError);
  step = step_of(c, t);
  step.inputs.pop_back();
  EXPECT_THROW(run_step(step, detect_isa()), UserError);
}

}  // namespace
}  // namespace aicf
