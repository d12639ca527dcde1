// So many bytes as one value, for kernels that move elements without looking at them.
#pragma once

#include "prelude.cuh"

namespace aicf {

template <int kBytes>
struct BitsOf;
template <>
struct BitsOf<1> {
  using type = uint8_t;
};
template <>
struct BitsOf<2> {
  using type = uint16_t;
};
template <>
struct BitsOf<4> {
  using type = uint32_t;
};
template <>
struct BitsOf<8> {
  using type = uint64_t;
};
template <>
struct BitsOf<16> {
  using type = uint4;
};
template <int kBytes>
using Bits = typename BitsOf<kBytes>::type;

// The same in whole registers, where an integer of two would be taken apart by shifts.
template <int kBytes>
struct WordsOf {
  using type = Bits<kBytes>;
};
template <>
struct WordsOf<8> {
  using type = uint2;
};
template <int kBytes>
using Words = typename WordsOf<kBytes>::type;

}  // namespace aicf
