// Numbers as unsigned keys whose order is that of the op semantics: -0 equals 0, NaN is above everything.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace aicf {

inline constexpr uint64_t kNanKey = UINT64_MAX;

template <class V>
uint64_t sort_key(V value) {
  constexpr uint64_t kSign = uint64_t{1} << 63;
  if constexpr (std::is_floating_point_v<V>) {
    if (std::isnan(value)) return kNanKey;
    const double wide = static_cast<double>(value) + 0.0;  // exact; turns -0 into 0
    uint64_t bits;
    std::memcpy(&bits, &wide, sizeof bits);
    return bits & kSign ? ~bits : bits | kSign;
  } else {
    return static_cast<uint64_t>(static_cast<int64_t>(value)) ^ kSign;
  }
}

}  // namespace aicf
