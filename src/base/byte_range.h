// Which bytes of its buffer a strided operand may touch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/dim.h"
#include "base/strided.h"

namespace aicf {

// The first and the last; nullopt if sizes decide.
inline std::optional<std::pair<int64_t, int64_t>> byte_range(const Strided<Dim>& window) {
  int64_t first = 0, last = 0;
  for (size_t i = 0; i < window.sizes.size(); ++i) {
    const auto size = window.sizes[i].constant(), stride = window.strides[i].constant();
    if (!size || !stride) return std::nullopt;
    const int64_t span = (std::max<int64_t>(*size, 1) - 1) * *stride;
    (span < 0 ? first : last) += span;
  }
  const auto offset = window.offset.constant();
  const int64_t bytes = dtype_bytes(window.dtype);
  if (!offset) return std::nullopt;
  return std::pair((*offset + first) * bytes, (*offset + last + 1) * bytes - 1);
}

// Of two operands in one buffer. Sizes that are not constant may be anything.
inline bool may_share_bytes(const Strided<Dim>& a, const Strided<Dim>& b) {
  const auto x = byte_range(a), y = byte_range(b);
  return !x || !y || (x->first <= y->second && y->first <= x->second);
}

}  // namespace aicf
