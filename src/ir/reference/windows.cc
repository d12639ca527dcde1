// Convolutions and pooling over any number of spatial axes. A window at output position p takes, for kernel
// position k, the input position p * stride - low pad + k * dilation; positions outside the input are
// padding.
#include <cmath>
#include <limits>

#include "base/dim.h"
#include "ir/reference/contractions.h"
#include "ir/reference/ref_op.h"

namespace aicf::reference {
namespace {

struct Window {
  Index input, output, kernel;  // spatial sizes
  Ints strides, pads, dilations;

  int64_t position(size_t axis, int64_t out, int64_t k) const {
    return out * strides[axis] - pads[axis] + k * dilations[axis];
  }
};

Window make_window(const RefContext& c, const Index& input, const Index& output, const Index& kernel) {
  return {Index(input.begin() + 2, input.end()),
          Index(output.begin() + 2, output.end()),
          kernel,
          c.attrs().get_ints("strides"),
          c.attrs().get_ints("pads"),
          c.attrs().get_ints("dilations")};
}

// A kernel position of one window and the input position under it, both flat.
struct Tap {
  int64_t kernel, input;
};

// The taps of the window at `out` that lie inside the input, in row-major order of the kernel.
std::vector<Tap> taps_of(const Window& window, const Index& out) {
  std::vector<Tap> taps;
  for_each_index(window.kernel, [&](const Index& k, int64_t kernel_flat) {
    Index at(k.size());
    for (size_t a = 0; a < k.size(); ++a) {
      at[a] = window.position(a, out[a], k[a]);
      if (at[a] < 0 || at[a] >= window.input[a]) return;
    }
    taps.push_back({kernel_flat, flat_index(window.input, at)});
  });
  return taps;
}

Index spatial(const Index& sizes) { return Index(sizes.begin() + 2, sizes.end()); }

void add_bias(const RefContext& c, RefTensor& out) {
  if (!c.has(2)) return;
  const Lines lines = lines_along(out.sizes, 1);
  for (int64_t o = 0; o < lines.outer; ++o)
    for (int64_t channel = 0; channel < lines.length; ++channel)
      for (int64_t n = 0; n < lines.inner; ++n)
        out.f[lines.at(o, channel, n)] += c.x(2).f.at(static_cast<size_t>(channel));
}

Window pool_window(const RefContext& c) {
  return make_window(c, c.x(0).sizes, c.result_sizes[0], c.attrs().get_ints("kernel"));
}

// Calls body(plane, window position flat, taps) for each window of each [N, C] plane.
template <typename Body>
void for_each_window(const RefContext& c, const Window& window, Body body) {
  const int64_t planes = c.x(0).sizes[0] * c.x(0).sizes[1];
  for_each_index(window.output, [&](const Index& out, int64_t out_flat) {
    const std::vector<Tap> taps = taps_of(window, out);
    for (int64_t plane = 0; plane < planes; ++plane) body(plane, out, out_flat, taps);
  });
}

bool wins(double candidate, double best) {
  return !std::isnan(best) && (std::isnan(candidate) || candidate > best);
}
bool wins(int64_t candidate, int64_t best) { return candidate > best; }

// Flat position in x of each window's first maximum, -1 for a window of padding only.
std::vector<int64_t> window_maxima(const RefContext& c, const Window& window) {
  const RefTensor& x = c.x(0);
  const int64_t in_plane = element_count(window.input), out_plane = element_count(window.output);
  std::vector<int64_t> maxima(static_cast<size_t>(element_count(c.result_sizes[0])), -1);
  const auto run = [&](const auto& from) {
    for_each_window(c, window,
                    [&](int64_t plane, const Index&, int64_t out_flat, const std::vector<Tap>& taps) {
                      int64_t& best = maxima[static_cast<size_t>(plane * out_plane + out_flat)];
                      for (const Tap& tap : taps) {
                        const int64_t at = plane * in_plane + tap.input;
                        if (best < 0 || wins(from[static_cast<size_t>(at)], from[static_cast<size_t>(best)]))
                          best = at;
                      }
                    });
  };
  if (x.is_float())
    run(x.f);
  else
    run(x.i);
  return maxima;
}

// A row-major position in x [N, C, spatial...] as one whose spatial axes run first-fastest.
int64_t column_major_position(const Window& window, int64_t flat) {
  const int64_t plane_size = element_count(window.input);
  int64_t rest = flat % plane_size, position = 0, stride = plane_size;
  for (size_t a = window.input.size(); a-- > 0; rest /= window.input[a]) {
    stride /= window.input[a];
    position += rest % window.input[a] * stride;
  }
  return flat - flat % plane_size + position;
}

// Kernel positions of the window at `out` that lie inside the padded input. Only a window that ceil_mode lets
// run past the high padding has fewer than the kernel.
int64_t padded_taps(const Window& window, const Index& out) {
  int64_t count = 1;
  for (size_t a = 0; a < out.size(); ++a) {
    int64_t inside = 0;
    for (int64_t k = 0; k < window.kernel[a]; ++k)
      inside += window.position(a, out[a], k) < window.input[a] + window.pads[out.size() + a];
    count *= inside;
  }
  return count;
}

}  // namespace

RefResults ref_conv(const RefContext& c) {
  const RefTensor x = multiplied_operand(c, 0), w = multiplied_operand(c, 1);
  RefTensor out = c.result();
  const Window window = make_window(c, x.sizes, out.sizes, spatial(w.sizes));
  const int64_t batch = x.sizes[0], channels = x.sizes[1], maps = w.sizes[0], group_channels = w.sizes[1];
  const int64_t group_maps = maps / c.attrs().get_int("groups");
  const int64_t in_plane = element_count(window.input), out_plane = element_count(window.output);
  const int64_t kernel_size = element_count(window.kernel);
  for_each_index(window.output, [&](const Index& position, int64_t out_flat) {
    const std::vector<Tap> taps = taps_of(window, position);
    for (int64_t n = 0; n < batch; ++n)
      for (int64_t m = 0; m < maps; ++m) {
        const int64_t first_channel = m / group_maps * group_channels;
        double sum = 0;
        for (int64_t channel = 0; channel < group_channels; ++channel) {
          const double* plane = x.f.data() + (n * channels + first_channel + channel) * in_plane;
          const double* kernel = w.f.data() + (m * group_channels + channel) * kernel_size;
          for (const Tap& tap : taps) sum += plane[tap.input] * kernel[tap.kernel];
        }
        out.f[static_cast<size_t>((n * maps + m) * out_plane + out_flat)] = sum;
      }
  });
  add_bias(c, out);
  return one(std::move(out));
}

RefResults ref_conv_weight_gradient(const RefContext& c) {
  const RefTensor x = multiplied_operand(c, 0), dy = multiplied_operand(c, 1);
  RefTensor out = c.result();
  const Window window = make_window(c, x.sizes, dy.sizes, spatial(out.sizes));
  const int64_t batch = x.sizes[0], channels = x.sizes[1], maps = dy.sizes[1], group_channels = out.sizes[1];
  const int64_t group_maps = std::max<int64_t>(maps / c.attrs().get_int("groups"), 1);
  const int64_t x_plane = element_count(window.input), dy_plane = element_count(window.output);
  const int64_t kernel_size = element_count(window.kernel);
  for_each_index(window.output, [&](const Index& position, int64_t dy_flat) {
    const std::vector<Tap> taps = taps_of(window, position);
    for (int64_t n = 0; n < batch; ++n)
      for (int64_t m = 0; m < maps; ++m) {
        const double value = dy.f[static_cast<size_t>((n * maps + m) * dy_plane + dy_flat)];
        for (int64_t channel = 0; channel < group_channels; ++channel) {
          const double* plane =
              x.f.data() + (n * channels + m / group_maps * group_channels + channel) * x_plane;
          double* kernel = out.f.data() + (m * group_channels + channel) * kernel_size;
          for (const Tap& tap : taps) kernel[tap.kernel] += plane[tap.input] * value;
        }
      }
  });
  return one(std::move(out));
}

// The adjoint of conv: the roles of input and output positions are exchanged, and each tap adds where conv
// reads.
RefResults ref_conv_transpose(const RefContext& c) {
  const RefTensor x = multiplied_operand(c, 0), w = multiplied_operand(c, 1);
  RefTensor out = c.result();
  const Window window = make_window(c, out.sizes, x.sizes, spatial(w.sizes));
  const int64_t batch = x.sizes[0], channels = x.sizes[1], group_maps = w.sizes[1], maps = out.sizes[1];
  const int64_t group_channels = channels / c.attrs().get_int("groups");
  const int64_t x_plane = element_count(window.output), out_plane = element_count(window.input);
  const int64_t kernel_size = element_count(window.kernel);
  for_each_index(window.output, [&](const Index& position, int64_t x_flat) {
    const std::vector<Tap> taps = taps_of(window, position);
    for (int64_t n = 0; n < batch; ++n)
      for (int64_t channel = 0; channel < channels; ++channel) {
        const double value = x.f[static_cast<size_t>((n * channels + channel) * x_plane + x_flat)];
        for (int64_t m = 0; m < group_maps; ++m) {
          const int64_t map = channel / group_channels * group_maps + m;
          double* plane = out.f.data() + (n * maps + map) * out_plane;
          const double* kernel = w.f.data() + (channel * group_maps + m) * kernel_size;
          for (const Tap& tap : taps) plane[tap.input] += value * kernel[tap.kernel];
        }
      }
  });
  add_bias(c, out);
  return one(std::move(out));
}

RefResults ref_max_pool(const RefContext& c) {
  RefTensor out = c.result();
  const std::vector<int64_t> maxima = window_maxima(c, pool_window(c));
  for (size_t k = 0; k < out.f.size(); ++k)
    out.f[k] =
        maxima[k] < 0 ? -std::numeric_limits<double>::infinity() : c.x(0).f[static_cast<size_t>(maxima[k])];
  for (size_t k = 0; k < out.i.size(); ++k)
    out.i[k] = maxima[k] < 0 ? lowest(out.dtype) : c.x(0).i[static_cast<size_t>(maxima[k])];
  return one(std::move(out));
}

RefResults ref_max_pool_indices(const RefContext& c) {
  RefTensor out = c.result();
  const Window window = pool_window(c);
  out.i = window_maxima(c, window);
  if (c.attrs().get_bool("column_major"))
    for (int64_t& position : out.i)
      if (position >= 0) position = column_major_position(window, position);
  return one(std::move(out));
}

RefResults ref_avg_pool(const RefContext& c) {
  RefTensor out = c.result();
  const Window window = pool_window(c);
  const bool count_padding = c.attrs().get_bool("count_include_pad");
  const int64_t in_plane = element_count(window.input), out_plane = element_count(window.output);
  for_each_window(
      c, window, [&](int64_t plane, const Index& position, int64_t out_flat, const std::vector<Tap>& taps) {
        double sum = 0;
        for (const Tap& tap : taps) sum += c.x(0).f[static_cast<size_t>(plane * in_plane + tap.input)];
        const int64_t count =
            count_padding ? padded_taps(window, position) : static_cast<int64_t>(taps.size());
        out.f[static_cast<size_t>(plane * out_plane + out_flat)] = sum / static_cast<double>(count);
      });
  return one(std::move(out));
}

}  // namespace aicf::reference
