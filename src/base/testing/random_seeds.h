// Which seeds a test of random programs takes: a count of them from 1 or from AICF_SEED on, or the one of
// AICF_SEED. And whether tests take their long counts.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace aicf::testing {

// As in `make soak`.
inline bool soaks() {
  const char* soak = std::getenv("AICF_SOAK");
  return soak != nullptr && std::string_view(soak) == "1";
}

struct RandomSeeds {
  uint64_t first = 1, last = 1;
  bool one = false;  // a failure is looked at: the program is printed, and no share of all is asked for
};

// `variable` gives another count.
inline RandomSeeds seeds_from_environment(const char* variable, uint64_t count) {
  const char *first = std::getenv("AICF_SEED"), *given = std::getenv(variable);
  const uint64_t seed = first != nullptr ? std::strtoull(first, nullptr, 10) : 1;
  if (given != nullptr) count = std::strtoull(given, nullptr, 10);
  if (first != nullptr && given == nullptr) return {seed, seed, true};
  return {seed, seed + count - 1, false};
}

// What a failure says after its cause; `program` prints that of the seed.
template <typename Program>
std::string rerun_text(uint64_t seed, const RandomSeeds& seeds, const std::string& cause,
                       const Program& program) {
  return "rerun with AICF_SEED=" + std::to_string(seed) + "\n" + cause + (seeds.one ? "\n" + program() : "");
}

}  // namespace aicf::testing
