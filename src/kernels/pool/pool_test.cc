#include <limits>

#include "kernels/testing/step.h"

namespace aicf {
namespace {

using namespace step_testing;

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Case {
  std::vector<int64_t> in, kernel, strides, low, high, dilations;
  bool ceil = false;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> list = {
      {{1}, {1}, {1}, {0}, {0}, {1}},
      {{20}, {3}, {2}, {1}, {1}, {1}},
      {{20}, {3}, {2}, {1}, {1}, {2}, true},
      {{13, 14}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}},
      {{12, 9}, {2, 2}, {2, 2}, {0, 0}, {0, 0}, {1, 1}, true},
      {{7, 30}, {3, 2}, {1, 1}, {2, 0}, {0, 1}, {1, 3}},
      {{4, 5, 6}, {2, 2, 3}, {1, 2, 2}, {0, 1, 1}, {1, 1, 0}, {1, 1, 1}, true},
      {{3, 3}, {2, 2}, {1, 1}, {3, 3}, {3, 3}, {1, 1}},
      {{8, 8}, {8, 8}, {1, 1}, {0, 0}, {0, 0}, {1, 1}},
  };
  return list;
}

int64_t out_size(const Case& c, size_t a) {
  const int64_t spare = c.in[a] + c.low[a] + c.high[a] - c.dilations[a] * (c.kernel[a] - 1) - 1;
  if (!c.ceil) return spare / c.strides[a] + 1;
  const int64_t count = (spare + c.strides[a] - 1) / c.strides[a] + 1;
  return (count - 1) * c.strides[a] >= c.in[a] + c.low[a] ? count - 1 : count;
}

struct Tap {
  int64_t row_major, column_major;
};

// The input positions of window number `window` of a plane, and how many positions the padded input holds of
// it.
std::vector<Tap> taps(const Case& c, int64_t window, int64_t* padded) {
  const size_t rank = c.in.size();
  std::vector<int64_t> at(rank);
  for (size_t a = rank; a-- > 0; window /= out_size(c, a)) at[a] = window % out_size(c, a);
  int64_t kernel = 1;
  for (int64_t k : c.kernel) kernel *= k;
  std::vector<Tap> found;
  *padded = 0;
  for (int64_t number = 0; number < kernel; ++number) {
    Tap tap{0, 0};
    bool inside = true, in_padded = true;
    int64_t rest = number, row_scale = 1;
    std::vector<int64_t> p(rank);
    for (size_t a = rank; a-- > 0; rest /= c.kernel[a])
      p[a] = at[a] * c.strides[a] - c.low[a] + rest % c.kernel[a] * c.dilations[a];
    for (size_t a = rank; a-- > 0; row_scale *= c.in[a]) {
      inside = inside && p[a] >= 0 && p[a] < c.in[a];
      in_padded = in_padded && p[a] < c.in[a] + c.high[a];
      tap.row_major += p[a] * row_scale;
    }
    int64_t column_scale = 1;
    for (size_t a = 0; a < rank; column_scale *= c.in[a], ++a) tap.column_major += p[a] * column_scale;
    *padded += in_padded;
    if (inside) found.push_back(tap);
  }
  return found;
}

struct Tensors {
  TestTensor x, out;
  int64_t in_plane, out_plane;
};

Tensors make(const Case& c, DType dtype, DType out, Layout layout, int64_t channels = 3) {
  std::vector<int64_t> in = {2, channels}, result = {2, channels};
  int64_t in_plane = 1, out_plane = 1;
  for (size_t a = 0; a < c.in.size(); ++a) {
    in.push_back(c.in[a]);
    result.push_back(out_size(c, a));
    in_plane *= c.in[a];
    out_plane *= out_size(c, a);
  }
  Tensors t{TestTensor(dtype, in, layout), TestTensor(out, result, layout), in_plane, out_plane};
  t.x.randomize(5);
  if (is_float(dtype)) {
    t.x.set(0, std::nan(""));
    t.x.set(t.x.count() - 1, -kInf);
    t.x.set(t.x.count() / 2, kInf);
  }
  return t;
}

Step step_of(const Case& c, const Tensors& t, const char* kernel, bool flag) {
  Step step{kernel, {t.x.arg()}, {t.out.arg()}, {static_cast<int64_t>(c.in.size()), c.ceil, flag}, {}};
  for (const auto* list : {&c.kernel, &c.strides, &c.low, &c.high, &c.dilations})
    step.params.insert(step.params.end(), list->begin(), list->end());
  return step;
}

// The first NaN, else the first of the largest; -1 without taps.
int64_t winner(const Tensors& t, const std::vector<Tap>& from, int64_t plane) {
  int64_t best = -1;
  for (size_t i = 0; i < from.size(); ++i) {
    const double value = t.x.get(plane * t.in_plane + from[i].row_major);
    const double top = best < 0 ? 0 : t.x.get(plane * t.in_plane + from[static_cast<size_t>(best)].row_major);
    if (best < 0 || (!std::isnan(top) && (std::isnan(value) || value > top))) best = static_cast<int64_t>(i);
  }
  return best;
}

double lowest(DType dtype) {
  switch (dtype) {
    case DType::i64:
      return -0x1p63;
    case DType::i32:
      return -0x1p31;
    case DType::i16:
      return -32768;
    case DType::i8:
      return -128;
    case DType::u8:
      return 0;
    default:
      return -kInf;
  }
}

TEST(Pool, Maximum) {
  for (DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i64, DType::i32, DType::i16,
                      DType::i8, DType::u8}) {
    for (const Case& c : cases()) {
      for (Layout layout : {Layout::kDense, Layout::kTransposed, Layout::kReversed, Layout::kGaps}) {
        const Tensors t = make(c, dtype, dtype, layout), places = make(c, dtype, DType::i64, layout);
        const Tensors columns = make(c, dtype, DType::i64, layout);
        run_step(step_of(c, t, "max_pool", false), IsaLevel::kPortable);
        run_step(step_of(c, places, "max_pool_indices", false), IsaLevel::kPortable, true);
        run_step(step_of(c, columns, "max_pool_indices", true), IsaLevel::kPortable);
        for (int64_t i = 0; i < t.out.count(); ++i) {
          const int64_t plane = i / t.out_plane, first = plane * t.in_plane;
          int64_t padded = 0;
          const std::vector<Tap> from = taps(c, i % t.out_plane, &padded);
          const int64_t best = winner(t, from, plane);
          const Tap tap = best < 0 ? Tap{-1 - first, -1 - first} : from[static_cast<size_t>(best)];
          const double expected = best < 0 ? lowest(dtype) : t.x.get(first + tap.row_major);
          ASSERT_TRUE(agrees(t.out.get(i), expected, 0)) << dtype_name(dtype) << " element " << i;
          ASSERT_EQ(places.out.get(i), static_cast<double>(first + tap.row_major));
          ASSERT_EQ(columns.out.get(i), static_cast<double>(first + tap.column_major));
        }
      }
    }
  }
}

TEST(Pool, Average) {
  for (DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    for (const Case& c : cases()) {
      for (bool include : {false, true}) {
        for (Layout layout : {Layout::kDense, Layout::kTransposed, Layout::kReversed}) {
          const Tensors t = make(c, dtype, dtype, layout);
          run_step(step_of(c, t, "avg_pool", include), IsaLevel::kPortable);
          for (int64_t i = 0; i < t.out.count(); ++i) {
            int64_t padded = 0;
            const std::vector<Tap> from = taps(c, i % t.out_plane, &padded);
            double sum = 0, size = 0;
            for (const Tap& tap : from) {
              sum += t.x.get(i / t.out_plane * t.in_plane + tap.row_major);
              size += std::abs(t.x.get(i / t.out_plane * t.in_plane + tap.row_major));
            }
            const double expected =
                sum / static_cast<double>(include ? padded : static_cast<int64_t>(from.size()));
            const double bound = (std::abs(expected) + (dtype == DType::f64 ? size : 0)) * epsilon_of(dtype) +
                                 (dtype == DType::f64 ? 0 : size * 1e-6);
            ASSERT_TRUE(agrees(t.out.get(i), expected, bound))
                << i << ": " << t.out.get(i) << " for " << expected;
          }
        }
      }
    }
  }
}

TEST(Pool, ChannelsLastEqualsPlain) {
  for (const Case& c : cases()) {
    for (const auto& [kernel, include] :
         {std::pair<const char*, bool>{"max_pool", false}, {"avg_pool", false}, {"avg_pool", true}}) {
      const Tensors plain = make(c, DType::f32, DType::f32, Layout::kDense, 19);
      run_step(step_of(c, plain, kernel, include), IsaLevel::kPortable);
      for (IsaLevel isa : step_testing::isa_levels()) {
        const Tensors last = make(c, DType::f32, DType::f32, Layout::kChannelsLast, 19);
        run_step(step_of(c, last, kernel, include), isa, true);
        for (int64_t i = 0; i < plain.out.count(); ++i) {
          if (std::isnan(plain.out.get(i)))
            ASSERT_TRUE(std::isnan(last.out.get(i))) << i;
          else
            ASSERT_EQ(last.out.bits(i), plain.out.bits(i)) << kernel << " element " << i;
        }
      }
    }
  }
}

TEST(Pool, RefusesStepsThatDoNotFit) {
  const Case& c = cases()[3];
  const Tensors t = make(c, DType::f32, DType::f32, Layout::kDense);
  const Step good = step_of(c, t, "max_pool", false);
  bind_step(good, IsaLevel::kPortable);
  const auto broken = [&](const char* what, const std::function<void(Step&)>& change) {
    Step step = good;
    change(step);
    expect_refused(step, what);
  };
  broken("spatial rank", [](Step& s) { s.params[0] = 1; });
  broken("kernel 0", [](Step& s) { s.params[3] = 0; });
  broken("stride 0", [](Step& s) { s.params[5] = 0; });
  broken("huge pad", [](Step& s) { s.params[7] = int64_t{1} << 62; });
  broken("dilation", [](Step& s) { s.params[11] = 100; });
  broken("missing params", [](Step& s) { s.params.pop_back(); });
  broken("no params", [](Step& s) { s.params.clear(); });
  broken("output", [](Step& s) { s.outputs[0].sizes[3] += 1; });
  broken("channels", [](Step& s) { s.outputs[0].sizes[1] = 4; });
  broken("output dtype", [](Step& s) { s.outputs[0].dtype = DType::f64; });
  broken("bool", [](Step& s) { s.inputs[0].dtype = s.outputs[0].dtype = DType::boolean; });
  broken("no input", [](Step& s) { s.inputs.clear(); });
}

}  // namespace
}  // namespace aicf
