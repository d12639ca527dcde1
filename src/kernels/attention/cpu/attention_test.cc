#include "kernels/attention/testing/masked_attention.h"

namespace aicf {
namespace {

using namespace step_testing;
using Case = AttentionCase;

struct Tensors {
  TestTensor q, k, v, mask, out, lse;
};

Tensors make(const Case& c, Layout layout = Layout::kDense) {
  Tensors t{TestTensor(DType::f32, c.q_sizes(), layout),
            TestTensor(DType::f32, c.k_sizes(), layout),
            TestTensor(DType::f32, c.v_sizes(), layout),
            make_mask(c),
            TestTensor(DType::f32, c.out_sizes(), layout),
            TestTensor(DType::f32, {c.batch, c.heads, c.queries}, layout)};
  t.q.randomize(1);
  t.k.randomize(2);
  t.v.randomize(3);
  return t;
}

Step step_of(const Case& c, const Tensors& t) {
  Step step{
      "attention_f32", {t.q.arg(), t.k.arg(), t.v.arg()}, {t.out.arg()}, c.params(), {kScale, c.softcap}};
  if (c.mask) step.inputs.push_back(t.mask.arg());
  return step;
}

Step step_with_lse(const Case& c, const Tensors& t) {
  Step step = step_of(c, t);
  step.outputs.push_back(t.lse.arg());
  return step;
}

void expect_attention(const Case& c, const Tensors& t, const std::string& what, bool with_lse = false) {
  for (int64_t i = 0; i < c.batch * c.heads * c.queries; ++i) {
    const AttentionRow row(c, i);
    double lse = 0;
    const std::vector<double> p = probabilities(c, t.q, t.k, t.mask, row, &lse);
    if (with_lse) {
      ASSERT_TRUE(agrees(t.lse.get(i), lse, 5e-6 + 1e-6 * (lse == -kInf ? 0 : std::abs(lse))))
          << what << " row " << i << ": " << t.lse.get(i) << " for " << lse;
    }
    for (int64_t e = 0; e < c.value_depth; ++e) {
      double expected = 0;
      for (int64_t j = 0; j < c.keys; ++j)
        expected += p[static_cast<size_t>(j)] * t.v.get((row.first_key + j) * c.value_depth + e);
      const double got = t.out.get(i * c.value_depth + e);
      ASSERT_TRUE(agrees(got, expected, 5e-6 + 1e-5 * std::abs(expected)))
          << what << " row " << i << " column " << e << ": " << got << " for " << expected;
    }
  }
}

TEST(Attention, AgreesWithF64) {
  const Case cases[] = {
      {1, 1, 1, 1, 1, 1, 1},
      {2, 3, 3, 17, 33, 8, 5},
      {1, 4, 2, 40, 300, 32, 32, true},
      {1, 2, 1, 7, 513, 64, 64},
      {2, 2, 2, 130, 130, 32, 32, true, 1},
      {1, 2, 2, 9, 20, 16, 48, false, 2},
      {1, 1, 1, 50, 10, 4, 4, true},
      {2, 2, 2, 5, 270, 300, 7, false, 3},
      {1, 2, 2, 33, 40, 16, 16, true, 3, 2.0},
      {1, 12, 12, 16, 16, 32, 32, false, 1},
  };
  for (const Case& c : cases) {
    for (Layout layout : {Layout::kDense, Layout::kTransposed, Layout::kReversed, Layout::kGaps}) {
      Tensors t = make(c, layout);
      for (IsaLevel isa : isa_levels()) {
        t.out.poison();
        run_step(step_of(c, t), isa);
        expect_attention(c, t, std::string(isa_name(isa)) + " keys " + std::to_string(c.keys));
      }
    }
  }
}

// Windows of one key, that end inside and at a block of keys or rows, and that reach over all keys; more
// queries than keys, whose first rows see nothing; masks, grouped heads and a softcap beside them.
TEST(Attention, WindowsAndSumsAgreeWithF64) {
  const Case cases[] = {
      {1, 2, 1, 9, 9, 8, 8, true, 0, 0, 1},       {1, 1, 1, 9, 9, 8, 5, false, 0, 0, 1},
      {1, 2, 1, 300, 300, 4, 4, true, 0, 0, 100}, {1, 1, 1, 270, 600, 4, 4, false, 0, 0, 256},
      {1, 1, 1, 40, 600, 8, 8, true, 1, 0, 257},  {1, 1, 1, 300, 40, 4, 4, false, 0, 0, 30},
      {1, 1, 1, 50, 10, 4, 4, true, 2, 0, 3},     {1, 2, 1, 33, 40, 16, 16, true, 3, 2.0, 7},
      {2, 1, 1, 70, 70, 8, 8, true, 0, 0, 70},    {1, 1, 1, 40, 40, 8, 8, false, 0, 0, int64_t{1} << 62},
      {1, 1, 1, 1, 777, 64, 64, true, 0, 0, 300}, {1, 2, 2, 5, 0, 8, 8, true, 0, 0, 4},
      {1, 1, 1, 20, 30, 8, 0, true, 0, 0, 4},     {1, 2, 2, 17, 33, 8, 5, false, 2},
  };
  for (const Case& c : cases)
    for (Layout layout : {Layout::kDense, Layout::kTransposed, Layout::kReversed, Layout::kGaps}) {
      Tensors t = make(c, layout);
      for (IsaLevel isa : isa_levels()) {
        const std::string what = std::string(isa_name(isa)) + " keys " + std::to_string(c.keys) + " window " +
                                 std::to_string(c.window);
        t.out.poison();
        run_step(step_of(c, t), isa);
        expect_attention(c, t, what);
        t.out.poison();
        t.lse.poison();
        run_step(step_with_lse(c, t), isa, true);
        expect_attention(c, t, what + " with lse", true);
      }
    }
}

// A window that hides nothing changes no bit.
TEST(Attention, WideWindowGivesTheBitsOfNone) {
  const Case none{1, 2, 1, 70, 300, 16, 16, true};
  Case wide = none;
  wide.window = none.keys;
  Tensors t = make(none), other = make(wide);
  for (IsaLevel isa : isa_levels()) {
    run_step(step_of(none, t), isa);
    run_step(step_of(wide, other), isa);
    for (int64_t i = 0; i < t.out.count(); ++i) ASSERT_EQ(t.out.bits(i), other.out.bits(i)) << i;
  }
}

TEST(Attention, FullyMaskedRowGivesZero) {
  const Case c{1, 1, 1, 4, 300, 8, 8, false, 1};
  Tensors t = make(c);
  t.mask.fill([](int64_t) { return -kInf; });
  for (IsaLevel isa : isa_levels()) {
    t.out.poison();
    run_step(step_of(c, t), isa);
    for (int64_t i = 0; i < t.out.count(); ++i) ASSERT_EQ(t.out.bits(i), 0u);
  }
}

TEST(Attention, NoKeysGiveZero) {
  const Case c{1, 2, 2, 3, 0, 8, 8};
  Tensors t = make(c);
  run_step(step_of(c, t), detect_isa());
  for (int64_t i = 0; i < t.out.count(); ++i) ASSERT_EQ(t.out.bits(i), 0u);
}

TEST(Attention, NanReachesOnlyItsRows) {
  const Case c{1, 1, 1, 20, 40, 8, 8};
  Tensors t = make(c);
  t.q.set(5 * 8 + 2, std::nan(""));
  for (IsaLevel isa : isa_levels()) {
    t.out.poison();
    run_step(step_of(c, t), isa);
    for (int64_t i = 0; i < t.out.count(); ++i) ASSERT_EQ(std::isnan(t.out.get(i)), i / 8 == 5) << i;
  }
}

TEST(Attention, LargeNegativeMaskActsAsMasked) {
  const Case c{1, 2, 2, 9, 64, 16, 16, false, 1};
  Tensors padded = make(c);
  padded.mask.fill([](int64_t j) { return j < 48 ? 0 : -1e9; });
  for (IsaLevel isa : isa_levels()) {
    run_step(step_of(c, padded), isa);
    expect_attention(c, padded, std::string(isa_name(isa)));
  }
}

// A row alone, all rows in another order of tiles, and a batch of one must give the same bits.
TEST(Attention, RowAloneEqualsRowInBatch) {
  for (const Case& c : {Case{2, 3, 3, 150, 150, 32, 32, true, 1}, Case{1, 2, 1, 40, 600, 32, 40}}) {
    const Tensors t = make(c);
    for (IsaLevel isa : isa_levels()) {
      run_step(step_of(c, t), isa, true);
      for (int64_t i = 0; i < c.queries; i += 7) {
        if (c.causal && i != c.queries - 1) continue;  // alone, a row is the last: it would see all keys
        for (int64_t b = 0; b < c.batch; ++b) {
          TestTensor alone(DType::f32, {1, c.heads, 1, c.value_depth});
          Step step = step_of(c, t);
          step.outputs = {alone.arg()};
          const auto narrow = [&](TensorArg& arg, int64_t row) {
            arg.data = static_cast<float*>(arg.data) + b * arg.strides[0] + row * arg.strides[2];
            arg.sizes[0] = 1;
          };
          narrow(step.inputs[0], i);
          step.inputs[0].sizes[2] = 1;
          for (size_t n = 1; n < step.inputs.size(); ++n) narrow(step.inputs[n], 0);
          run_step(step, isa);
          for (int64_t h = 0; h < c.heads; ++h)
            for (int64_t e = 0; e < c.value_depth; ++e)
              ASSERT_EQ(alone.bits(h * c.value_depth + e),
                        t.out.bits(((b * c.heads + h) * c.queries + i) * c.value_depth + e));
        }
      }
    }
  }
}

// Causal rows: the last rows of a longer query block equal a run with those rows only.
TEST(Attention, CausalSuffixEqualsWhole) {
  const Case whole{1, 2, 2, 300, 300, 16, 16, true};
  const Tensors t = make(whole);
  for (IsaLevel isa : isa_levels()) {
    run_step(step_of(whole, t), isa);
    for (int64_t rows : {1, 5, 129, 299}) {
      TestTensor suffix(DType::f32, {1, 2, rows, 16});
      Step step = step_of(whole, t);
      step.inputs[0].data = static_cast<float*>(step.inputs[0].data) + (300 - rows) * 16;
      step.inputs[0].sizes[2] = rows;
      step.outputs = {suffix.arg()};
      run_step(step, isa);
      for (int64_t i = 0; i < suffix.count(); ++i) {
        const int64_t h = i / (rows * 16), rest = i % (rows * 16);
        ASSERT_EQ(suffix.bits(i), t.out.bits(h * 300 * 16 + (300 - rows) * 16 + rest))
            << rows << " rows, element " << i;
      }
    }
  }
}

TEST(Attention, RefusesStepsThatDoNotFit) {
  const Case c{1, 4, 2, 3, 5, 8, 6, false, 1};
  const Tensors t = make(c);
  const Step good = step_of(c, t);
  bind_step(good, IsaLevel::kPortable);
  const auto broken = [&](const char* what, const std::function<void(Step&)>& change) {
    Step step = good;
    change(step);
    expect_refused(step, what);
  };
  broken("heads", [](Step& s) { s.inputs[1].sizes[1] = s.inputs[2].sizes[1] = 3; });
  broken("no heads", [](Step& s) { s.inputs[1].sizes[1] = s.inputs[2].sizes[1] = 0; });
  broken("depth", [](Step& s) { s.inputs[1].sizes[3] = 7; });
  broken("keys", [](Step& s) { s.inputs[2].sizes[2] = 4; });
  broken("batch", [](Step& s) { s.inputs[0].sizes[0] = 2; });
  broken("mask", [](Step& s) { s.inputs[3].sizes[3] = 4; });
  broken("mask dtype", [](Step& s) { s.inputs[3].dtype = DType::f64; });
  broken("missing mask", [](Step& s) { s.inputs.pop_back(); });
  broken("output", [](Step& s) { s.outputs[0].sizes[3] = 8; });
  broken("rank", [](Step& s) { s.inputs[0].rank = 3; });
  broken("params", [](Step& s) { s.params.pop_back(); });
  broken("fparams", [](Step& s) { s.fparams.clear(); });
  broken("window", [](Step& s) { s.params.push_back(0); });
  broken("window behind", [](Step& s) { s.params.push_back(-3); });
  broken("params", [](Step& s) { s.params.insert(s.params.end(), {1, 1}); });
  broken("lse", [&](Step& s) { s.outputs.push_back(t.out.arg()); });
  broken("lse dtype", [&](Step& s) {
    s.outputs.push_back(t.lse.arg());
    s.outputs[1].dtype = DType::f64;
  });
  broken("outputs", [&](Step& s) { s.outputs.insert(s.outputs.end(), 2, t.lse.arg()); });
}

}  // namespace
}  // namespace aicf
