#include "kernels/conv/cuda/window_way.h"

#include "kernels/common/way_words.h"

namespace aicf {

std::string to_string(const WindowWay& way) {
  const auto tile = [](int m, int n) { return std::to_string(m) + "x" + std::to_string(n); };
  return "windows " + tile(way.rows, way.columns) + " slice " + tile(way.channels, way.maps) + " blocks " +
         std::to_string(way.blocks);
}

std::optional<WindowWay> parse_window_way(std::string_view text) {
  WayWords words(text);
  WindowWay way;
  const bool is_read = words.take("windows") && words.take_tile(way.rows, way.columns) &&
                       words.take("slice") && words.take_tile(way.channels, way.maps) &&
                       words.take("blocks") && words.take_number(way.blocks) && words.is_done();
  return is_read && to_string(way) == text ? std::optional(way) : std::nullopt;
}

}  // namespace aicf
