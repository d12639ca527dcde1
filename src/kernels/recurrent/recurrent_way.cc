#include "kernels/recurrent/recurrent_way.h"

#include "kernels/common/way_words.h"

namespace aicf {

std::string to_string(const RecurrentWay& way) {
  if (way.unit == RecurrentUnit::kFma) return "recurrent fma";
  return "recurrent mma " + std::to_string(way.cluster) + "x" + std::to_string(way.rows) + " slices " +
         std::to_string(way.slices);
}

std::optional<RecurrentWay> parse_recurrent_way(std::string_view text) {
  WayWords words(text);
  if (!words.take("recurrent")) return std::nullopt;
  RecurrentWay way;
  if (!words.take("fma")) {
    way.unit = RecurrentUnit::kMma;
    if (!words.take("mma") || !words.take_tile(way.cluster, way.rows) || !words.take("slices") ||
        !words.take_number(way.slices))
      return std::nullopt;
  }
  return words.is_done() && to_string(way) == text ? std::optional(way) : std::nullopt;
}

}  // namespace aicf
