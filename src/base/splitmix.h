// SplitMix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators"): data for
// measurements and tests that is the same everywhere. Random ops have a generator of their own (Philox).
#pragma once

#include <cstdint>

namespace aicf {

inline constexpr uint64_t kSplitMixStep = 0x9e3779b97f4a7c15u;

// 64 well mixed bits of a counter.
inline uint64_t splitmix64(uint64_t x) {
  x += kSplitMixStep;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

class SplitMix {
 public:
  explicit SplitMix(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    const uint64_t bits = splitmix64(state_);
    state_ += kSplitMixStep;
    return bits;
  }
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }  // in [0, 1)

 private:
  uint64_t state_;
};

}  // namespace aicf
