#include "kernels/way.h"

namespace aicf {
namespace {

struct WayText {
  std::string operator()(std::monostate) const { return ""; }
  template <class Own>
  std::string operator()(const Own& way) const {
    return to_string(way);
  }
};

}  // namespace

std::string to_string(const Way& way) { return std::visit(WayText(), way); }

std::optional<Way> parse_way(std::string_view text) {
  if (text.empty()) return Way();
  if (const auto way = parse_matmul_way(text)) return *way;
  if (const auto way = parse_conv_way(text)) return *way;
  if (const auto way = parse_attention_way(text)) return *way;
  if (const auto way = parse_weight_gradient_way(text)) return *way;
  return std::nullopt;
}

}  // namespace aicf
