// Vectors at addresses that their bytes do not divide, compiled for the host: the elements that exist, from
// words that hold one of them each.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

// ---- what device text has
#define AICF_FN inline
#define AICF_UNROLL

namespace {

inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t bits) {
  return static_cast<uint32_t>((uint64_t{high} << 32 | low) >> bits);
}
inline uint32_t __funnelshift_rc(uint32_t low, uint32_t high, uint32_t bits) {
  return bits >= 32 ? high : __funnelshift_r(low, high, bits);
}

}  // namespace

namespace aicf::tile {
namespace {

template <int kBytes>
struct alignas(kBytes) Words {
  uint32_t at[kBytes / 4];
};

}  // namespace
}  // namespace aicf::tile

#include "kernels/tile/cuda/tile_vectors.cuh"

namespace aicf {
namespace {

template <int kBytes>
struct Element {
  unsigned char at[kBytes];
};

template <int kBytes, int N>
void expect_elements() {
  using T = Element<kBytes>;
  constexpr int kWord = tile::Shifted<T, N>::kBytes;
  for (int first = 0; first < kWord / kBytes; ++first)
    for (int left = 1; left <= N + 2; ++left) {
      const int exist = left < N ? left : N;
      // Words as many as hold elements: a sanitizer reports a read of another.
      std::vector<tile::Words<16>> memory(static_cast<size_t>((first + exist) * kBytes + 15) / 16);
      auto* bytes = reinterpret_cast<unsigned char*>(memory.data());
      for (size_t i = 0; i < memory.size() * 16; ++i) bytes[i] = static_cast<unsigned char>(3 * i + 1);
      const auto* from = reinterpret_cast<const T*>(bytes) + first;
      tile::Shifted<T, N> x;
      tile::load_shifted(x, from, left);
      const tile::Vec<T, N> elements = x.vector();
      EXPECT_EQ(std::memcmp(&elements, from, static_cast<size_t>(exist * kBytes)), 0)
          << N << " of " << kBytes << " bytes from element " << first << ", " << left << " left";
    }
}

TEST(TileVectors, ShiftedOnesAreTheElementsAtTheirAddress) {
  expect_elements<1, 4>();
  expect_elements<1, 8>();
  expect_elements<1, 16>();
  expect_elements<2, 4>();
  expect_elements<2, 8>();
  expect_elements<2, 16>();
  expect_elements<4, 4>();
  expect_elements<4, 8>();
}

}  // namespace
}  // namespace aicf
