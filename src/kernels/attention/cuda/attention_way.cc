#include "kernels/attention/cuda/attention_way.h"

#include <array>

#include "kernels/common/way_words.h"

namespace aicf {
namespace {

constexpr std::array<std::string_view, 5> kUnits = {"simt", "mma", "split", "wgmma", "short"};

}  // namespace

std::string_view fault_of(const AttentionWay& way) {
  if (way.rows < 16 || way.keys < 16) return "a tile of attention has 16 rows and keys or more";
  if (way.cluster < 1 || (way.cluster > 1 && way.unit != AttentionUnit::kSplit))
    return "clusters share the keys of split rows";
  const bool by_wgmma = way.unit == AttentionUnit::kWgmma || way.unit == AttentionUnit::kShort;
  return by_wgmma && way.rows % 64 != 0 ? "warpgroups have 64 rows" : "";
}

std::string to_string(const AttentionWay& way) {
  std::string text = std::string(kUnits[static_cast<size_t>(way.unit)]) + " " + std::to_string(way.rows) +
                     "x" + std::to_string(way.keys);
  if (way.cluster > 1) text += " cluster " + std::to_string(way.cluster);
  return text;
}

std::optional<AttentionWay> parse_attention_way(std::string_view text) {
  WayWords words(text);
  AttentionWay way;
  size_t unit = 0;
  while (unit < kUnits.size() && !words.take(kUnits[unit])) ++unit;
  if (unit == kUnits.size() || !words.take_tile(way.rows, way.keys) ||
      !words.take_optional("cluster", way.cluster) || !words.is_done())
    return std::nullopt;
  way.unit = static_cast<AttentionUnit>(unit);
  if (!fault_of(way).empty() || to_string(way) != text) return std::nullopt;
  return way;
}

}  // namespace aicf
