#include "kernels/conv/cuda/weight_gradient_way.h"

#include "kernels/common/way_words.h"

namespace aicf {

namespace {

std::string_view halo_fault(const WeightGradientWay& way) {
  if (way.block_m < 64 || way.block_m % 64 != 0) return "64 channels of each tap";
  if (way.block_n != 64 && way.block_n != 128 && way.block_n != 256) return "maps are 64, 128 or 256";
  if (way.halo_rows % 2 != 0 || way.halo_rows > 32) return "boxes of 2 to 32 rows, an even number";
  return way.parts < 1 ? "a sum of no parts" : "";
}

}  // namespace

std::string_view fault_of(const WeightGradientWay& way) {
  if (way.halo_rows > 0) return halo_fault(way);
  const bool wide = way.block_m == 256 && way.block_n == 128, few = way.block_m == 128 && way.block_n == 32,
             narrow = (way.block_m == 64 || way.block_m == 128) && (way.block_n == 64 || way.block_n == 128);
  if (!wide && !few && !narrow) return "tiles are 256x128, 128x32, or 128 or 64 each way";
  return way.parts < 1 ? "a sum of no parts" : "";
}

std::string to_string(const WeightGradientWay& way) {
  return "weight gradient " + std::to_string(way.block_m) + "x" + std::to_string(way.block_n) + " parts " +
         std::to_string(way.parts) + (way.halo_rows > 0 ? " halo " + std::to_string(way.halo_rows) : "");
}

std::optional<WeightGradientWay> parse_weight_gradient_way(std::string_view text) {
  WayWords words(text);
  WeightGradientWay way;
  const bool is_read = words.take("weight gradient") && words.take_tile(way.block_m, way.block_n) &&
                       words.take("parts") && words.take_number(way.parts) &&
                       words.take_optional("halo", way.halo_rows) && words.is_done();
  return is_read && fault_of(way).empty() && to_string(way) == text ? std::optional(way) : std::nullopt;
}

}  // namespace aicf
