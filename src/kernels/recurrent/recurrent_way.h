// A way of running a recurrent layer: what multiplies and, of matrix units, the blocks of a cluster, the rows
// of the batch that it walks, and among how many warps the depth is split.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace aicf {

enum class RecurrentUnit : uint8_t { kFma, kMma };

struct RecurrentWay {
  RecurrentUnit unit = RecurrentUnit::kFma;
  int cluster = 0, rows = 0, slices = 0;  // of mma; its plan has the others
  bool operator==(const RecurrentWay&) const = default;
};

std::string to_string(const RecurrentWay& way);  // "recurrent fma", "recurrent mma 16x24 slices 4"
std::optional<RecurrentWay> parse_recurrent_way(std::string_view text);

}  // namespace aicf
