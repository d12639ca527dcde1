// 128-bit content hashes (xxh3). The hash of a graph or program covers all that changes its meaning:
// interface names, types, ops, attributes, bodies, constants, updates. It leaves out value name hints and
// origins, so it is equal exactly when the text printed without those is equal. Variables count by name and
// type; their data can be swapped and does not.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ir/graph.h"

namespace aicf {

struct Hash128 {
  uint64_t hi = 0, lo = 0;
  auto operator<=>(const Hash128&) const = default;
};

std::string to_string(const Hash128& hash);  // 32 lower-case hex digits
std::optional<Hash128> hash_from_text(std::string_view hex);

Hash128 hash_bytes(const void* data, int64_t size);
// Of the element bytes alone; dtype and sizes stand beside the hash wherever it is used.
Hash128 hash_content(const Array& array);

Hash128 hash(const Graph& graph);
Hash128 hash(const Program& program);

}  // namespace aicf
