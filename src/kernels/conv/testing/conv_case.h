// For tests of convolutions on the CPU: problems, their steps, and what must come out, in f64.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/conv/cpu/pack_conv_w.h"
#include "kernels/testing/step.h"

namespace aicf::conv_testing {

using namespace step_testing;

struct ConvCase {
  int64_t batch, channels, maps, groups;
  std::vector<int64_t> in, kernel, strides, low, high, dilations;
  bool bias = true;
  std::vector<int64_t> output_padding = {};  // transposed only
};

inline int64_t product(const std::vector<int64_t>& sizes) {
  int64_t n = 1;
  for (int64_t size : sizes) n *= size;
  return n;
}

// Row-major counting over `sizes`; false after the last.
inline bool next(std::vector<int64_t>& index, const std::vector<int64_t>& sizes) {
  for (size_t i = sizes.size(); i-- > 0;) {
    if (++index[i] < sizes[i]) return true;
    index[i] = 0;
  }
  return false;
}

inline int64_t flat(const std::vector<int64_t>& index, const std::vector<int64_t>& sizes) {
  int64_t at = 0;
  for (size_t i = 0; i < sizes.size(); ++i) at = at * sizes[i] + index[i];
  return at;
}

inline std::vector<int64_t> out_sizes(const ConvCase& c, bool transpose) {
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < c.in.size(); ++i) {
    const int64_t extent = c.dilations[i] * (c.kernel[i] - 1) + 1;
    sizes.push_back(transpose
                        ? (c.in[i] - 1) * c.strides[i] + extent + c.output_padding[i] - c.low[i] - c.high[i]
                        : (c.in[i] + c.low[i] + c.high[i] - extent) / c.strides[i] + 1);
  }
  return sizes;
}

inline std::vector<int64_t> with(int64_t a, int64_t b, std::vector<int64_t> rest) {
  rest.insert(rest.begin(), {a, b});
  return rest;
}

// Random x, w and bias.
struct Tensors {
  TestTensor x, w, bias, out;
};

inline Tensors make(const ConvCase& c, DType dtype, bool transpose, Layout layout) {
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

inline Step step_of(const ConvCase& c, const Tensors& t, const char* kernel) {
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
inline void expect_convolution(const ConvCase& c, const Tensors& t, bool transpose, const std::string& what) {
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

inline const std::vector<ConvCase>& cases() {
  static const std::vector<ConvCase> list = {
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

// w as conv_f32_packed reads it.
struct Packed {
  std::vector<float> bytes;
  TensorArg arg;
};

inline Packed pack(const ConvCase& c, const Tensors& t, IsaLevel isa) {
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

inline Step packed_step(const ConvCase& c, const Tensors& t, const Packed& packed) {
  Step step = step_of(c, t, "conv_f32_packed");
  step.inputs[1] = packed.arg;
  step.params.insert(step.params.end(), c.kernel.begin(), c.kernel.end());
  return step;
}

}  // namespace aicf::conv_testing
