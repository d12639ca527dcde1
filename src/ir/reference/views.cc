// Views and data movement: each result element is one operand element, found by its index.
#include <type_traits>

#include "base/dim.h"
#include "ir/reference/ref_op.h"

namespace aicf::reference {
namespace {

// Where index `at` of an axis padded by a mode other than constant comes from, in [0, size).
int64_t padded_source(const std::string& mode, int64_t at, int64_t size) {
  if (mode == "edge") return at < 0 ? 0 : at >= size ? size - 1 : at;
  const int64_t period = mode == "wrap" ? size : size == 1 ? 1 : 2 * (size - 1);
  const int64_t phase = ((at % period) + period) % period;
  return phase < size ? phase : period - phase;
}

}  // namespace

RefResults ref_reshape(const RefContext& c) {
  RefTensor out = c.x(0);
  if (element_count(c.result_sizes[0]) != out.count())
    fail_sizes(c, std::to_string(out.count()) + " elements", to_string(c.result_sizes[0]));
  out.sizes = c.result_sizes[0];
  return one(std::move(out));
}

RefResults ref_transpose(const RefContext& c) {
  const Ints& perm = c.attrs().get_ints("perm");
  Index from(perm.size());
  return one(rearrange(c.x(0), c.result_sizes[0], [&](const Index& index) -> const Index& {
    for (size_t a = 0; a < perm.size(); ++a) from[static_cast<size_t>(perm[a])] = index[a];
    return from;
  }));
}

RefResults ref_broadcast_to(const RefContext& c) { return one(expand(c.x(0), c.result_sizes[0])); }

RefResults ref_slice(const RefContext& c) {
  const Index starts = c.dims("starts"), limits = c.dims("limits");
  const Ints& steps = c.attrs().get_ints("steps");
  for (size_t a = 0; a < starts.size(); ++a)
    if (starts[a] < 0 || starts[a] > limits[a] || limits[a] > c.x(0).sizes[a])
      fail_sizes(c, "0 <= start <= limit <= size of " + to_string(c.x(0).sizes),
                 "starts " + to_string(starts) + ", limits " + to_string(limits));
  Index from(starts.size());
  return one(rearrange(c.x(0), c.result_sizes[0], [&](const Index& index) -> const Index& {
    for (size_t a = 0; a < from.size(); ++a) from[a] = starts[a] + index[a] * steps[a];
    return from;
  }));
}

RefResults ref_reverse(const RefContext& c) {
  const RefTensor& x = c.x(0);
  const std::vector<int64_t> axes = c.axes("axes", x.rank());
  return one(rearrange(x, x.sizes, [&](const Index& index) {
    Index from = index;
    for (int64_t axis : axes) {
      const auto a = static_cast<size_t>(axis);
      from[a] = x.sizes[a] - 1 - index[a];
    }
    return from;
  }));
}

RefResults ref_pad(const RefContext& c) {
  const RefTensor& x = c.x(0);
  const Index low = c.dims("low");
  const std::string& mode = c.attrs().get_str("mode");
  RefTensor out = c.result();
  if (mode != "constant" && x.count() == 0 && out.count() != 0)
    fail_sizes(c, "a non-empty operand for mode " + mode, to_string(x.sizes));
  with_elements(out, x, [&](auto& to, const auto& from) {
    for_each_index(out.sizes, [&](const Index& index, int64_t flat) {
      Index source(index.size());
      bool inside = true;
      for (size_t a = 0; a < source.size(); ++a) {
        source[a] = index[a] - low[a];
        if (mode != "constant") source[a] = padded_source(mode, source[a], x.sizes[a]);
        inside = inside && source[a] >= 0 && source[a] < x.sizes[a];
      }
      if (inside) {
        to[static_cast<size_t>(flat)] = from[static_cast<size_t>(flat_index(x.sizes, source))];
      } else if (c.has(1)) {
        if constexpr (std::is_same_v<decltype(to), std::vector<double>&>)
          to[static_cast<size_t>(flat)] = c.x(1).f.at(0);
        else
          to[static_cast<size_t>(flat)] = c.x(1).i.at(0);
      }
    });
  });
  return one(std::move(out));
}

RefResults ref_concat(const RefContext& c) {
  RefTensor out = c.result();
  const int64_t axis = c.axis("axis", out.rank());
  int64_t start = 0;
  for (const RefValue& x : c.operands) {
    with_elements(out, *x, [&](auto& to, const auto& from) {
      for_each_index(x->sizes, [&](const Index& index, int64_t flat) {
        Index target = index;
        target[static_cast<size_t>(axis)] += start;
        to[static_cast<size_t>(flat_index(out.sizes, target))] = from[static_cast<size_t>(flat)];
      });
    });
    start += x->sizes[static_cast<size_t>(axis)];
  }
  AICF_CHECK(start == out.sizes[static_cast<size_t>(axis)], "concat fills its result");
  return one(std::move(out));
}

RefResults ref_iota(const RefContext& c) {
  RefTensor out = c.result();
  const int64_t axis = c.axis("axis", out.rank());
  for_each_index(out.sizes, [&](const Index& index, int64_t flat) {
    const int64_t value = index[static_cast<size_t>(axis)];
    if (out.is_float())
      out.f[static_cast<size_t>(flat)] = static_cast<double>(value);
    else
      out.i[static_cast<size_t>(flat)] = value;
  });
  return one(std::move(out));
}

RefResults ref_size_of(const RefContext& c) {
  RefTensor out = c.result();
  const int64_t value = c.dims("size").at(0);
  if (out.is_float())
    out.f.at(0) = static_cast<double>(value);
  else
    out.i.at(0) = value;
  return one(std::move(out));
}

}  // namespace aicf::reference
