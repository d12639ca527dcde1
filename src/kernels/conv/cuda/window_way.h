// A way of running a convolution, or the gradient of its weights, by boxes of
// windows (window_box.cuh): the box of results, what of channels and maps a
// block has, and how many blocks share the boxes. Of a depthwise convolution on
// the plain arithmetic units box, channels and maps are those of a thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace aicf {

struct WindowWay {
  int rows = 1, columns = 1;   // of a box
  int channels = 8, maps = 8;  // of a block
  int blocks = 1;
  bool operator==(const WindowWay&) const = default;
};

std::string to_string(const WindowWay& way);  // "windows 4x28 slice 64x64 blocks 33"
std::optional<WindowWay> parse_window_way(std::string_view text);

}  // namespace aicf
