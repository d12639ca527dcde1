#include "kernels/common/way.h"

namespace aicf {
namespace {

struct WayText {
  std::string operator()(std::monostate) const { return ""; }
  template <class Own>
  std::string operator()(const Own& way) const {
    return to_string(way);
  }
};

// Words that the texts of ways had before. Records, callers and files of measurements still hold them.
struct OldWords {
  std::string_view before, now;
};
constexpr OldWords kOldWords[] = {
    {"alternate", "ping-pong"},   {"boxes", "tma"},
    {"handed", "epilogue-warps"}, {"resident", "occupancy"},
    {"x stays", "stationary-x"},  {"rows of", "row-reduction cluster"},
};

// A part of another word may become one, too: the text is then none of a way, as it was none before.
std::string in_current_words(std::string_view text) {
  std::string result(text);
  for (const auto& [before, now] : kOldWords)
    for (size_t at = 0; (at = result.find(before, at)) != std::string::npos; at += now.size())
      result.replace(at, before.size(), now);
  return result;
}

}  // namespace

std::string to_string(const Way& way) { return std::visit(WayText(), way); }

std::optional<Way> parse_way(std::string_view given) {
  if (given.empty()) return Way();
  const std::string text = in_current_words(given);
  if (const auto way = parse_matmul_way(text)) return *way;
  if (const auto way = parse_conv_way(text)) return *way;
  if (const auto way = parse_halo_tma_way(text)) return *way;
  if (const auto way = parse_attention_way(text)) return *way;
  if (const auto way = parse_weight_gradient_way(text)) return *way;
  if (const auto way = parse_window_way(text)) return *way;
  if (const auto way = parse_recurrent_way(text)) return *way;
  return std::nullopt;
}

}  // namespace aicf
