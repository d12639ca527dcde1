#include <limits>

#include "kernels/conv/cpu/pack_conv_w.h"
#include "kernels/testing/step.h"

namespace aicf {
namespace {

using namespace step_testing;

struct Case {
  int64_t batch, channels, maps, groups;
  std::vector<int64_t> in, kernel, strides, low, high, dilations;
  bool bias = true;
  std::vector<int64_t> output_padding = {};  // transposed only
};

int64_t product(const std::vector<int64_t>& sizes) {
  int64_t n = 1;
  for (int64_t size : sizes) n *= size;
  return n;
}

// Row-major counting over `sizes`; false after the last.
bool next(std::vector<int64_t>& index, const std::vector<int64_t>& sizes) {
  for (size_t i = sizes.size(); i-- > 0;) {
    if (++index[i] < sizes[i]) return true;
    index[i] = 0;
  }
  return false;
}

int64_t flat(const std::vector<int64_t>& index, const std::vector<int64_t>& sizes) {
  int64_t at = 0;
  for (size_t i = 0; i < sizes.size(); ++i) at = at * sizes[i] + index[i];
  return at;
}

std::vector<int64_t> out_sizes(const Case& c, bool transpose) {
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < c.in.size(); ++i) {
    const int64_t extent = c.dilations[i] * (c.kernel[i] - 1) + 1;
    sizes.push_back(transpose
                        ? (c.in[i] - 1) * c.strides[i] + extent + c.output_padding[i] - c.low[i] - c.high[i]
                        : (c.in[i] + c.low[i] + c.high[i] - extent) / c.strides[i] + 1);
  }
  return sizes;
}

std::vector<int64_t> with(int64_t a, int64_t b, std::vector<int64_t> rest) {
  rest.insert(rest.begin(), {a, b});
  return rest;
}

struct Tensors {
  TestTensor x, w, bias, out;
};

Tensors make(const Case& c, DType dtype, bool transpose, Layout layout) {
  Tensors t{TestTensor(dtype, with(c.batch, c.channels, c.in), layout),
            TestTensor(dtype,
                       transpose ? with(c.channels, c.maps / c.groups, c.kernel)
                                 : with(c.maps, c.channels / c.groups, c.kernel),
                       layout),
            TestTensor(dtype, {c.maps}),
            TestTensor(dtype, with(c.batch, c.maps, out_sizes(c, transpose)), layout)};
  t.x.randomize(1);
  t.w.randomize(2);
  t.bias.randomize(3);
  return t;
}

Step step_of(const Case& c, const Tensors& t, const char* kernel) {
  Step step{kernel,
            {t.x.arg(), t.w.arg()},
            {t.out.arg()},
            {static_cast<int64_t>(c.in.size()), c.groups, c.bias},
            {}};
  if (c.bias) step.inputs.push_back(t.bias.arg());
  for (const auto* list : {&c.strides, &c.low, &c.high, &c.dilations, &c.output_padding})
    step.params.insert(step.params.end(), list->begin(), list->end());
  return step;
}

// Sums of products and of their magnitudes, every output from every (input, kernel) pair that meets it.
void expect_convolution(const Case& c, const Tensors& t, bool transpose, const std::string& what) {
  const auto out = out_sizes(c, transpose);
  std::vector<double> sums(static_cast<size_t>(t.out.count())), sizes = sums;
  const auto& narrow = transpose ? c.in : out;  // the side that counts windows
  const auto& wide = transpose ? out : c.in;
  const int64_t group_channels = c.channels / c.groups, group_maps = c.maps / c.groups;
  std::vector<int64_t> o(narrow.size());
  if (product(narrow) != 0) do {
      std::vector<int64_t> k(narrow.size());
      do {
        std::vector<int64_t> at(narrow.size());
        bool inside = true;
        for (size_t a = 0; a < at.size(); ++a) {
          at[a] = o[a] * c.strides[a] - c.low[a] + k[a] * c.dilations[a];
          inside = inside && at[a] >= 0 && at[a] < wide[a];
        }
        if (!inside) continue;
        for (int64_t n = 0; n < c.batch; ++n)
          for (int64_t m = 0; m < c.maps; ++m)
            for (int64_t g = 0; g < group_channels; ++g) {
              const int64_t channel = m / group_maps * group_channels + g;
              const int64_t w = transpose ? channel * group_maps + m % group_maps : m * group_channels + g;
              const int64_t x = (n * c.channels + channel) * product(c.in) + flat(transpose ? o : at, c.in);
              const double value = t.x.get(x) * t.w.get(w * product(c.kernel) + flat(k, c.kernel));
              const auto to =
                  static_cast<size_t>((n * c.maps + m) * product(out) + flat(transpose ? at : o, out));
              sums[to] += value;
              sizes[to] += std::abs(value);
            }
      } while (next(k, c.kernel));
    } while (next(o, narrow));
  for (int64_t i = 0; i < t.out.count(); ++i) {
    const double bias = c.bias ? t.bias.get(i / std::max<int64_t>(product(out), 1) % c.maps) : 0;
    const double expected = sums[static_cast<size_t>(i)] + bias, unit = epsilon_of(t.out.arg().dtype);
    const double chain = t.out.arg().dtype == DType::f64 ? 1e-14 : 2e-6;
    const double bound = std::abs(expected) * unit + (sizes[static_cast<size_t>(i)] + std::abs(bias)) * chain;
    ASSERT_TRUE(agrees(t.out.get(i), expected, bound))
        << what << " element " << i << ": " << t.out.get(i) << " for " << expected;
  }
}

const std::vector<Case>& cases() {
  static const std::vector<Case> list = {
      {1, 1, 1, 1, {1}, {1}, {1}, {0}, {0}, {1}, false},
      {2, 3, 5, 1, {20}, {3}, {1}, {1}, {1}, {1}},
      {1, 4, 6, 2, {19}, {4}, {3}, {2}, {0}, {2}},
      {1, 3, 10, 1, {14, 15}, {7, 7}, {2, 2}, {3, 3}, {3, 3}, {1, 1}},
      {2, 40, 33, 1, {9, 11}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
      {1, 17, 20, 1, {8, 13}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}, false},
      {1, 8, 12, 1, {13, 9}, {1, 1}, {2, 2}, {0, 0}, {0, 0}, {1, 1}},
      {1, 6, 9, 3, {10, 12}, {3, 2}, {2, 1}, {0, 1}, {2, 0}, {1, 3}},
      {1, 2, 3, 1, {3, 4, 5}, {2, 3, 2}, {1, 2, 1}, {1, 0, 1}, {0, 1, 1}, {1, 1, 2}},
      {1, 2, 2, 1, {2, 2}, {3, 3}, {1, 1}, {4, 4}, {4, 4}, {1, 1}},
      {0, 2, 3, 1, {5, 5}, {3, 3}, {1, 1}, {0, 0}, {0, 0}, {1, 1}},
      {2, 0, 3, 1, {5, 5}, {3, 3}, {1, 1}, {0, 0}, {0, 0}, {1, 1}},
  };
  return list;
}

TEST(Conv, AgreesWithF64) {
  const std::pair<DType, const char*> kinds[] = {{DType::f32, "conv_f32"},
                                                 {DType::f64, "conv_f64"},
                                                 {DType::f16, "conv_half"},
                                                 {DType::bf16, "conv_half"}};
  for (const Case& c : cases()) {
    for (const auto& [dtype, kernel] : kinds) {
      for (Layout layout : {Layout::kDense, Layout::kTransposed, Layout::kReversed, Layout::kGaps}) {
        Tensors t = make(c, dtype, false, layout);
        for (IsaLevel isa : isa_levels()) {
          t.out.poison();
          run_step(step_of(c, t, kernel), isa);
          expect_convolution(c, t, false, std::string(kernel) + " " + std::string(isa_name(isa)));
        }
      }
    }
  }
}

// A sum begins at 0 and takes its taps in order, those in the padding left out, wherever its vector begins.
TEST(Conv, DepthwiseSumsTakeTheirTapsInOrder) {
  for (int64_t stride : {1, 2}) {
    const Case c = {1, 40, 40, 40, {9, 21}, {3, 5}, {stride, stride}, {1, 2}, {1, 2}, {1, 1}, false};
    Tensors t = make(c, DType::f32, false, Layout::kDense);
    const std::vector<int64_t> out = out_sizes(c, false);
    for (IsaLevel isa : isa_levels()) {
      if (isa == IsaLevel::kPortable) continue;  // rounds product and sum apart
      t.out.poison();
      run_step(step_of(c, t, "conv_f32_depthwise"), isa, true);
      for (int64_t i = 0; i < t.out.count(); ++i) {
        const int64_t channel = i / (out[0] * out[1]), y = i / out[1] % out[0], x = i % out[1];
        float sum = 0;
        for (int64_t tap = 0; tap < 15; ++tap) {
          const int64_t in_y = y * stride - 1 + tap / 5, in_x = x * stride - 2 + tap % 5;
          if (in_y < 0 || in_y >= 9 || in_x < 0 || in_x >= 21) continue;
          sum = std::fmaf(static_cast<float>(t.w.get(channel * 15 + tap)),
                          static_cast<float>(t.x.get((channel * 9 + in_y) * 21 + in_x)), sum);
        }
        ASSERT_EQ(static_cast<float>(t.out.get(i)), sum) << "stride " << stride << " at " << i;
      }
    }
  }
}

TEST(Conv, Depthwise) {
  const Case list[] = {
      {2, 5, 5, 5, {20}, {3}, {1}, {1}, {1}, {1}},
      {1, 7, 7, 7, {14, 30}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
      {2, 3, 3, 3, {15, 33}, {5, 3}, {2, 2}, {2, 0}, {1, 3}, {1, 2}, false},
      {1, 2, 2, 2, {6, 40, 300}, {2, 3, 3}, {1, 1, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
      {1, 2, 2, 2, {2, 2}, {2, 2}, {1, 1}, {5, 5}, {5, 5}, {1, 1}},
      {2, 50, 50, 50, {7, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
      {1, 36, 36, 36, {12, 35}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}},
      {1, 3, 3, 3, {9, 20}, {3, 5}, {1, 1}, {1, 9}, {1, 9}, {1, 2}},
      {1, 3, 3, 3, {5, 60}, {3, 17}, {1, 1}, {1, 8}, {1, 8}, {1, 1}},
  };
  for (const Case& c : list) {
    for (Layout layout : {Layout::kDense, Layout::kTransposed, Layout::kReversed}) {
      Tensors t = make(c, DType::f32, false, layout);
      for (IsaLevel isa : isa_levels()) {
        t.out.poison();
        run_step(step_of(c, t, "conv_f32_depthwise"), isa, true);
        expect_convolution(c, t, false, std::string(isa_name(isa)));
      }
    }
  }
}

TEST(Conv, Transposed) {
  for (const Case& base : cases()) {
    Case c = base;
    c.output_padding.assign(c.in.size(), 0);
    c.output_padding[0] = c.strides[0] - 1;
    bool possible = true;
    for (int64_t size : out_sizes(c, true)) possible = possible && size >= 0;
    if (!possible) continue;
    for (DType dtype : {DType::f32, DType::f64, DType::f16}) {
      for (Layout layout : {Layout::kDense, Layout::kReversed}) {
        Tensors t = make(c, dtype, true, layout);
        t.out.poison();
        run_step(step_of(c, t, "conv_transpose"), detect_isa());
        expect_convolution(c, t, true, std::string(dtype_name(dtype)));
      }
    }
  }
}

// An image alone, and any layout, gives the bits of the image in a batch.
TEST(Conv, ImageAloneEqualsImageInBatch) {
  const Case batch = {3, 40, 70, 1, {17, 13}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}};
  const Tensors t = make(batch, DType::f32, false, Layout::kDense);
  const int64_t x_image = 40 * 17 * 13, out_image = 70 * 17 * 13;
  Case one = batch;
  one.batch = 1;
  for (IsaLevel isa : isa_levels()) {
    run_step(step_of(batch, t, "conv_f32"), isa, true);
    for (Layout layout : {Layout::kDense, Layout::kTransposed, Layout::kGaps}) {
      Tensors alone = make(one, DType::f32, false, layout);
      alone.x.fill([&](int64_t i) { return t.x.get(2 * x_image + i); });
      alone.w.fill([&](int64_t i) { return t.w.get(i); });
      alone.bias.fill([&](int64_t i) { return t.bias.get(i); });
      run_step(step_of(one, alone, "conv_f32"), isa);
      for (int64_t i = 0; i < out_image; ++i)
        ASSERT_EQ(alone.out.bits(i), t.out.bits(2 * out_image + i)) << i;
    }
  }
}

struct Packed {
  std::vector<float> bytes;
  TensorArg arg;
};

Packed pack(const Case& c, const Tensors& t, IsaLevel isa) {
  const int64_t k = c.channels / c.groups * product(c.kernel),
                bytes = packed_conv_w_bytes(c.groups, c.maps, k);
  Packed packed;
  packed.bytes.assign(static_cast<size_t>(bytes / 4 + 1), -7.0f);
  packed.arg.data = packed.bytes.data();
  packed.arg.dtype = DType::u8;
  packed.arg.rank = 1;
  packed.arg.sizes[0] = bytes;
  packed.arg.strides[0] = 1;
  run_step({"pack_conv_w_f32", {t.w.arg()}, {packed.arg}, {c.groups}, {}}, isa);
  return packed;
}

Step packed_step(const Case& c, const Tensors& t, const Packed& packed) {
  Step step = step_of(c, t, "conv_f32_packed");
  step.inputs[1] = packed.arg;
  step.params.insert(step.params.end(), c.kernel.begin(), c.kernel.end());
  return step;
}

// Packed weights, any layout, tiles in any order: the bits of conv_f32.
TEST(Conv, PackedEqualsPlain) {
  std::vector<Case> list = cases();
  list.push_back({1, 64, 100, 1, {13, 15}, {3, 3}, {2, 1}, {1, 1}, {1, 1}, {1, 1}});
  list.push_back({2, 48, 36, 3, {9, 10}, {3, 2}, {1, 1}, {1, 0}, {1, 1}, {2, 1}, false});
  list.push_back({1, 9, 200, 1, {40, 41}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}});
  list.push_back({1, 24, 310, 1, {7, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}});  // halved inside a panel
  list.push_back({1, 10, 16, 1, {4, 5, 6}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}});
  for (const Case& c : list) {
    for (IsaLevel isa : isa_levels()) {
      Tensors plain = make(c, DType::f32, false, Layout::kDense);
      run_step(step_of(c, plain, "conv_f32"), isa);
      for (Layout layout : {Layout::kDense, Layout::kChannelsLast, Layout::kReversed, Layout::kGaps}) {
        Tensors t = make(c, DType::f32, false, layout);
        t.out.poison();
        run_step(packed_step(c, t, pack(c, t, isa)), isa, true);
        for (int64_t i = 0; i < t.out.count(); ++i)
          ASSERT_EQ(t.out.bits(i), plain.out.bits(i)) << isa_name(isa) << " element " << i;
      }
    }
  }
}

// Few pixels: workers share output channels, whose tiles end anywhere in the panels of an ISA.
TEST(Conv, PackedOfFewPixelsTakesAnyNumberOfMaps) {
  for (const int64_t maps : {145, 160, 177, 208, 224, 272, 369}) {
    const Case c = {1, 32, maps, 1, {7, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}};
    for (const IsaLevel isa : isa_levels()) {
      Tensors plain = make(c, DType::f32, false, Layout::kDense);
      run_step(step_of(c, plain, "conv_f32"), isa);
      for (const int64_t workers : {1, 2, 3, 4, 8, 17}) {
        Tensors t = make(c, DType::f32, false, Layout::kChannelsLast);
        t.out.poison();
        const Packed packed = pack(c, t, isa);
        Step step = packed_step(c, t, packed);
        step.workers = workers;
        run_step(step, isa, true);
        for (int64_t i = 0; i < t.out.count(); ++i)
          ASSERT_EQ(t.out.bits(i), plain.out.bits(i))
              << isa_name(isa) << " " << maps << " maps, " << workers << " workers, element " << i;
      }
    }
  }
}

TEST(Conv, PackedRefusesStepsThatDoNotFit) {
  const Case c = {1, 4, 6, 2, {9, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}};
  const Tensors t = make(c, DType::f32, false, Layout::kDense);
  const Packed packed = pack(c, t, IsaLevel::kPortable);
  const Step good = packed_step(c, t, packed);
  bind_step(good, IsaLevel::kPortable);
  const auto broken = [&](const char* what, const std::function<void(Step&)>& change) {
    Step step = good;
    change(step);
    expect_refused(step, what);
  };
  broken("too few bytes", [](Step& s) { --s.inputs[1].sizes[0]; });
  broken("strided bytes", [](Step& s) { s.inputs[1].strides[0] = 2; });
  broken("dtype of the bytes", [](Step& s) { s.inputs[1].dtype = DType::f32; });
  broken("kernel", [](Step& s) { s.params.back() = 5; });
  broken("huge kernel", [](Step& s) { s.params.back() = int64_t{1} << 40; });
  broken("groups", [](Step& s) { s.params[1] = 4; });
  broken("missing kernel", [](Step& s) { s.params.pop_back(); });
  broken("channels", [](Step& s) { s.inputs[0].sizes[1] = 6; });
  Step step{"pack_conv_w_f32", {t.w.arg()}, {packed.arg}, {2}, {}};
  bind_step(step, IsaLevel::kPortable);
  step.params[0] = 4;
  expect_refused(step, "groups of the weights");
  step.params[0] = 2;
  --step.outputs[0].sizes[0];
  expect_refused(step, "too few bytes for the weights");
}

// Epilogue out = result * scale[channel] + residual, on layouts whose pixels do and do not lie in one line.
TEST(Conv, EpilogueRunsOnEveryTile) {
  TileProgram program;
  program.inputs = {DType::f32, DType::f32, DType::f32};
  program.outputs = {DType::f32};
  program.registers.assign(3, {TileType::f32, false});
  for (int16_t i = 0; i < 3; ++i) {
    TileInstr load{TileOp::load, TileType::f32, i};
    load.operand = i;
    program.stages.resize(1);
    program.stages[0].push_back(load);
  }
  program.stages[0].push_back({TileOp::fma, TileType::f32, 0, 0, 1, 2});
  TileInstr store{TileOp::store, TileType::f32, -1, 0};
  store.operand = 3;
  program.stages[0].push_back(store);
  const std::pair<const char*, Case> list[] = {
      {"conv_f32", {2, 5, 40, 1, {9, 31}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}}},
      {"conv_f32", {1, 8, 6, 2, {50}, {1}, {1}, {0}, {0}, {1}, false}},
      {"conv_f32_depthwise", {2, 6, 6, 6, {9, 31}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}}},
      {"conv_f32_packed", {2, 5, 40, 1, {9, 31}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}}},
      {"conv_f32_packed", {1, 16, 9, 1, {20}, {3}, {1}, {1}, {1}, {1}, false}},
  };
  for (const auto& [kernel, c] : list) {
    for (Layout layout : {Layout::kDense, Layout::kTransposed, Layout::kChannelsLast}) {
      Tensors t = make(c, DType::f32, false, Layout::kDense);
      TestTensor residual(DType::f32, t.out.sizes(), layout);
      std::vector<int64_t> channel(t.out.sizes().size() - 1, 1);
      channel[0] = c.maps;
      TestTensor scale(DType::f32, channel);
      residual.randomize(7);
      scale.randomize(8);
      const int64_t pixels = product(out_sizes(c, false));
      for (IsaLevel isa : isa_levels()) {
        Packed packed;
        Step step = step_of(c, t, kernel);
        if (step.kernel == "conv_f32_packed") {
          packed = pack(c, t, isa);
          step = packed_step(c, t, packed);
        }
        run_step(step, isa);
        TestTensor out(DType::f32, t.out.sizes(), layout);
        step.inputs.push_back(scale.arg());
        step.inputs.push_back(residual.arg());
        step.outputs = {out.arg()};
        step.program = &program;
        run_step(step, isa, true);
        for (int64_t i = 0; i < out.count(); ++i) {
          const double factor = scale.get(i / pixels % c.maps);
          const double expected = t.out.get(i) * factor + residual.get(i);
          const double bound = 2.5e-7 * (std::abs(t.out.get(i) * factor) + std::abs(residual.get(i)));
          ASSERT_TRUE(agrees(out.get(i), expected, bound)) << kernel << " element " << i;
        }
      }
    }
  }
}

TEST(Conv, NanStaysUnderItsWindows) {
  const Case c = {1, 2, 3, 1, {10, 10}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}};
  Tensors t = make(c, DType::f32, false, Layout::kDense);
  t.x.set(4 * 10 + 7, std::nan(""));
  run_step(step_of(c, t, "conv_f32"), detect_isa());
  for (int64_t i = 0; i < t.out.count(); ++i) {
    const int64_t y = i / 10 % 10, x = i % 10;
    ASSERT_EQ(std::isnan(t.out.get(i)), std::abs(y - 4) <= 1 && std::abs(x - 7) <= 1) << i;
  }
}

TEST(Conv, RefusesStepsThatDoNotFit) {
  const Case c = {1, 4, 6, 2, {9, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}};
  const Tensors t = make(c, DType::f32, false, Layout::kDense);
  const Step good = step_of(c, t, "conv_f32");
  bind_step(good, IsaLevel::kPortable);
  const auto broken = [&](const char* what, const std::function<void(Step&)>& change) {
    Step step = good;
    change(step);
    expect_refused(step, what);
  };
  broken("groups", [](Step& s) { s.params[1] = 3; });
  broken("no groups", [](Step& s) { s.params[1] = 0; });
  broken("spatial rank", [](Step& s) { s.params[0] = 3; });
  broken("huge spatial rank", [](Step& s) { s.params[0] = int64_t{1} << 62; });
  broken("stride 0", [](Step& s) { s.params[3] = 0; });
  broken("huge dilation", [](Step& s) { s.params[9] = int64_t{1} << 40; });
  broken("negative pad", [](Step& s) { s.params[5] = -1; });
  broken("pad", [](Step& s) { s.params[5] = 2; });
  broken("output size", [](Step& s) { s.outputs[0].sizes[2] = 8; });
  broken("output batch", [](Step& s) { s.outputs[0].sizes[0] = 2; });
  broken("channels", [](Step& s) { s.inputs[0].sizes[1] = 3; });
  broken("bias", [](Step& s) { s.inputs[2].sizes[0] = 5; });
  broken("missing bias", [](Step& s) { s.inputs.pop_back(); });
  broken("missing params", [](Step& s) { s.params.pop_back(); });
  broken("dtype", [](Step& s) { s.inputs[1].dtype = DType::f64; });
  broken("rank of w", [](Step& s) { s.inputs[1].rank = 3; });
}

TEST(Conv, SelectionPrefersDepthwise) {
  const auto tensor = [](std::vector<int64_t> sizes) { return ProblemTensor{DType::f32, to_shape(sizes)}; };
  Problem problem{"conv",
                  {tensor({1, 8, 5, 5}), tensor({8, 1, 3, 3})},
                  {tensor({1, 8, 3, 3})},
                  {Dim(2), Dim(8), Dim(0)},
                  {},
                  false};
  ASSERT_FALSE(candidates(problem).empty());
  EXPECT_EQ(candidates(problem)[0]->name, "conv_f32_depthwise");
  problem.params[1] = Dim(1);
  problem.inputs[1] = tensor({8, 8, 3, 3});
  EXPECT_EQ(candidates(problem)[0]->name, "conv_f32");
}

}  // namespace
}  // namespace aicf
