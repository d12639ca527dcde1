#include "ir/hash.h"

#include <xxhash.h>

#include "ir/text.h"

namespace aicf {
namespace {

constexpr PrintOptions kMeaningOnly{.hints = false, .origins = false};

Hash128 hash_text(const std::string& text) {
  return hash_bytes(text.data(), static_cast<int64_t>(text.size()));
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

std::string to_string(const Hash128& hash) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (uint64_t word : {hash.hi, hash.lo})
    for (int shift = 60; shift >= 0; shift -= 4) text += kDigits[(word >> shift) & 15];
  return text;
}

std::optional<Hash128> hash_from_text(std::string_view hex) {
  if (hex.size() != 32) return std::nullopt;
  uint64_t words[2] = {0, 0};
  for (size_t i = 0; i < 32; ++i) {
    const int digit = hex_digit(hex[i]);
    if (digit < 0) return std::nullopt;
    words[i / 16] = words[i / 16] << 4 | static_cast<uint64_t>(digit);
  }
  return Hash128{words[0], words[1]};
}

Hash128 hash_bytes(const void* data, int64_t size) {
  const XXH128_hash_t hash = XXH3_128bits(data, static_cast<size_t>(size));
  return {hash.high64, hash.low64};
}

Hash128 hash_content(const Array& array) { return hash_bytes(array.data(), array.bytes()); }

Hash128 hash(const Graph& graph) { return hash_text(print(graph, kMeaningOnly)); }

Hash128 hash(const Program& program) { return hash_text(print(program, kMeaningOnly)); }

}  // namespace aicf
