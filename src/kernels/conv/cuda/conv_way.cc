#include "kernels/conv/cuda/conv_way.h"

#include "kernels/common/way_words.h"

namespace aicf {
namespace {

constexpr std::string_view kGathered = "gathered ", kTma = "tma ";

}  // namespace

std::string_view fault_of(const ConvWay& way) {
  const MatmulWay& product = way.product;
  if (const std::string_view fault = fault_of(product); !fault.empty()) return fault;
  if (product.split.kind == SplitKind::row || stream_blocks(product) > 0 ||
      product.split.kind == SplitKind::multicast || has_epilogue_warps(product))
    return "a convolution's tiles are stored by the warps that multiply";
  if (way.loads == ConvLoads::tma)
    return is_wgmma(product) ? "" : "what the copy engine loads is multiplied by wgmma";
  if (is_sliced(product) || product.unit == MatmulUnit::single || is_batched(product) ||
      loads_all_of_k(product))
    return "a convolution has tiles of whole blocks";
  return is_ping_pong(product) || product.occupancy > 1 ? "gathered tiles have one schedule" : "";
}

std::string to_string(const ConvWay& way) {
  return std::string(way.loads == ConvLoads::tma ? kTma : kGathered) + to_string(way.product);
}

std::optional<ConvWay> parse_conv_way(std::string_view text) {
  const bool tma = text.starts_with(kTma);
  if (!tma && !text.starts_with(kGathered)) return std::nullopt;
  const auto product = parse_matmul_way(text.substr(tma ? kTma.size() : kGathered.size()));
  if (!product) return std::nullopt;
  const ConvWay way{tma ? ConvLoads::tma : ConvLoads::gathered, *product};
  return fault_of(way).empty() ? std::optional(way) : std::nullopt;
}

std::string to_string(const HaloTmaWay& way) {
  return "halo " + std::to_string(way.rows) + "x" + std::to_string(way.columns) + " maps " +
         std::to_string(way.maps);
}

std::optional<HaloTmaWay> parse_halo_tma_way(std::string_view text) {
  WayWords words(text);
  HaloTmaWay way;
  const bool is_read = words.take("halo") && words.take_tile(way.rows, way.columns) && words.take("maps") &&
                       words.take_number(way.maps) && words.is_done();
  return is_read && to_string(way) == text ? std::optional(way) : std::nullopt;
}

}  // namespace aicf
