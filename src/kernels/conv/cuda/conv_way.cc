#include "kernels/conv/cuda/conv_way.h"

namespace aicf {
namespace {

constexpr std::string_view kGathered = "gathered ", kBoxes = "boxes ";

}  // namespace

std::string_view fault_of(const ConvWay& way) {
  const MatmulWay& product = way.product;
  if (const std::string_view fault = fault_of(product); !fault.empty()) return fault;
  if (product.split.kind == SplitKind::row || has_epilogue_warps(product))
    return "a convolution's tiles are stored by the warps that multiply";
  if (way.loads == ConvLoads::boxes)
    return is_wgmma(product) ? "" : "boxes of pixels are multiplied by wgmma";
  if (product.unit != MatmulUnit::mma && !is_wgmma(product)) return "convolutions multiply on matrix units";
  return is_ping_pong(product) || product.resident > 1 ? "gathered tiles have one schedule" : "";
}

std::string to_string(const ConvWay& way) {
  return std::string(way.loads == ConvLoads::boxes ? kBoxes : kGathered) + to_string(way.product);
}

std::optional<ConvWay> parse_conv_way(std::string_view text) {
  const bool boxes = text.starts_with(kBoxes);
  if (!boxes && !text.starts_with(kGathered)) return std::nullopt;
  const auto product = parse_matmul_way(text.substr(boxes ? kBoxes.size() : kGathered.size()));
  if (!product) return std::nullopt;
  const ConvWay way{boxes ? ConvLoads::boxes : ConvLoads::gathered, *product};
  return fault_of(way).empty() ? std::optional(way) : std::nullopt;
}

}  // namespace aicf
