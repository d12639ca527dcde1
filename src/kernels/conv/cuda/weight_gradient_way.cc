#include "kernels/conv/cuda/weight_gradient_way.h"

#include "kernels/common/way_words.h"

namespace aicf {

std::string_view fault_of(const WeightGradientWay& way) {
  const bool wide = way.block_m == 256 && way.block_n == 128, few = way.block_m == 128 && way.block_n == 32,
             narrow = (way.block_m == 64 || way.block_m == 128) && (way.block_n == 64 || way.block_n == 128);
  if (!wide && !few && !narrow) return "tiles are 256x128, 128x32, or 128 or 64 each way";
  return way.parts < 1 ? "a sum of no parts" : "";
}

std::string to_string(const WeightGradientWay& way) {
  return "weight gradient " + std::to_string(way.block_m) + "x" + std::to_string(way.block_n) + " parts " +
         std::to_string(way.parts);
}

std::optional<WeightGradientWay> parse_weight_gradient_way(std::string_view text) {
  WayWords words(text);
  WeightGradientWay way;
  const bool is_read = words.take("weight gradient") && words.take_tile(way.block_m, way.block_n) &&
                       words.take("parts") && words.take_number(way.parts) && words.is_done();
  return is_read && fault_of(way).empty() && to_string(way) == text ? std::optional(way) : std::nullopt;
}

}  // namespace aicf
