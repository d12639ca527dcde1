// A way of running the gradient of a convolution's weights on matrix units: the tile of its products and how
// many parts of their sums there are.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace aicf {

struct WeightGradientWay {
  int block_m = 128, block_n = 128;  // (tap, channel) by maps
  int parts = 1;                     // of the sum over images and positions, added up by a second launch
  int halo_rows = 0;  // boxes of so many rows come with their halo for all taps; none: tap by tap
  bool operator==(const WeightGradientWay&) const = default;
};

std::string_view fault_of(const WeightGradientWay& way);  // see matmul_way.h
std::string to_string(
    const WeightGradientWay& way);  // "weight gradient 128x64 parts 26", "… parts 26 halo 8"
std::optional<WeightGradientWay> parse_weight_gradient_way(std::string_view text);

}  // namespace aicf
