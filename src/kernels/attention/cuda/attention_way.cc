#include "kernels/attention/cuda/attention_way.h"

#include <array>

#include "kernels/common/way_words.h"

namespace aicf {
namespace {

constexpr std::array<std::string_view, 5> kUnits = {"simt", "mma", "split", "wgmma", "short"};

// "warps 1x4 lanes 8x4".
std::string lanes_text(const AttentionWay& way) {
  const auto tile = [](int a, int b) { return std::to_string(a) + "x" + std::to_string(b); };
  return " warps " + tile(way.row_warps, way.key_warps) + " lanes " + tile(way.row_lanes, 32 / way.row_lanes);
}

std::string_view simt_fault(const AttentionWay& way) {
  if (way.row_lanes != 2 && way.row_lanes != 4 && way.row_lanes != 8)
    return "of a warp 2, 4 or 8 lanes are side by side in rows";
  if (way.row_warps < 1 || way.key_warps < 1 || way.rows < 1 || way.keys < 1) return "a tile without warps";
  if (way.rows % (way.row_warps * way.row_lanes) != 0 || way.keys % (way.key_warps * 32 / way.row_lanes) != 0)
    return "lanes have whole rows and keys";
  return way.cluster != 0 ? "clusters share the keys of split rows" : "";
}

}  // namespace

std::string_view fault_of(const AttentionWay& way) {
  if (way.unit == AttentionUnit::kSimt) return simt_fault(way);
  if (way.row_warps != 1 || way.key_warps != 1 || way.row_lanes != AttentionWay().row_lanes)
    return "only tiles of simt say how warps share them";
  if (way.rows < 16 || way.keys < 16) return "a tile of attention has 16 rows and keys or more";
  if (way.cluster != 0 && way.unit != AttentionUnit::kSplit) return "clusters share the keys of split rows";
  if (way.cluster != 0 && way.cluster != 1 && way.cluster != 2 && way.cluster != 4 && way.cluster != 8)
    return "a cluster that splits keys has 1, 2, 4 or 8 blocks";
  const bool by_wgmma = way.unit == AttentionUnit::kWgmma || way.unit == AttentionUnit::kShort;
  return by_wgmma && way.rows % 64 != 0 ? "warpgroups have 64 rows" : "";
}

std::string to_string(const AttentionWay& way) {
  std::string text = std::string(kUnits[static_cast<size_t>(way.unit)]) + " " + std::to_string(way.rows) +
                     "x" + std::to_string(way.keys);
  if (way.unit == AttentionUnit::kSimt) text += lanes_text(way);
  if (way.cluster > 0) text += " cluster " + std::to_string(way.cluster);
  return text;
}

std::optional<AttentionWay> parse_attention_way(std::string_view text) {
  WayWords words(text);
  AttentionWay way;
  size_t unit = 0;
  while (unit < kUnits.size() && !words.take(kUnits[unit])) ++unit;
  if (unit == kUnits.size() || !words.take_tile(way.rows, way.keys)) return std::nullopt;
  way.unit = static_cast<AttentionUnit>(unit);
  int key_lanes = 0;
  if (way.unit == AttentionUnit::kSimt &&
      !(words.take("warps") && words.take_tile(way.row_warps, way.key_warps) && words.take("lanes") &&
        words.take_tile(way.row_lanes, key_lanes)))
    return std::nullopt;
  if (!words.take_optional("cluster", way.cluster) || !words.is_done()) return std::nullopt;
  if (!fault_of(way).empty() || to_string(way) != text) return std::nullopt;
  return way;
}

}  // namespace aicf
