// Vectors of neighbouring elements between memory and registers: 16-byte accesses where the window allows. It
// includes nothing, so that a test can compile it for the host. tile_memory.cuh includes this behind bits.cuh,
// with AICF_UNROLL defined.
#pragma once

namespace aicf {
namespace tile {

// The largest power of two that divides n and is at most `limit`.
constexpr int access_bytes(int n, int limit) {
  int bytes = 1;
  while (2 * bytes <= limit && n % (2 * bytes) == 0) bytes *= 2;
  return bytes;
}

template <class T, int N>
struct alignas(access_bytes(sizeof(T) * N, 16)) Vec {
  T at[N];
};

// kAlign: bytes that the address is a multiple of.
template <int kAlign, class T, int N>
AICF_FN void load(Vec<T, N>& x, const T* p) {
  constexpr int kBytes = access_bytes(sizeof(T) * N, kAlign);
  using W = Words<kBytes>;
  AICF_UNROLL
  for (int i = 0; i < int(sizeof(T)) * N / kBytes; ++i)
    reinterpret_cast<W*>(&x)[i] = reinterpret_cast<const W*>(p)[i];
}
template <int kAlign, class T, int N>
AICF_FN void store(T* p, const Vec<T, N>& x) {
  constexpr int kBytes = access_bytes(sizeof(T) * N, kAlign);
  using W = Words<kBytes>;
  AICF_UNROLL
  for (int i = 0; i < int(sizeof(T)) * N / kBytes; ++i)
    reinterpret_cast<W*>(p)[i] = reinterpret_cast<const W*>(&x)[i];
}

// Elements that lie `stride` apart (0 repeats one), of which the first `left` exist.
template <class T, int N, class I>
AICF_FN void load_each(Vec<T, N>& x, const T* p, I stride, I left) {
  AICF_UNROLL
  for (int i = 0; i < N; ++i) x.at[i] = i < left ? p[i * stride] : T();
}
template <class T, int N, class I>
AICF_FN void store_each(T* p, const Vec<T, N>& x, I stride, I left) {
  AICF_UNROLL
  for (int i = 0; i < N; ++i)
    if (i < left) p[i * stride] = x.at[i];
}
// As load and store where all N exist, else element by element.
template <int kAlign, class T, int N, class I>
AICF_FN void load_some(Vec<T, N>& x, const T* p, I left) {
  if (left >= N)
    load<kAlign>(x, p);
  else
    load_each(x, p, I(1), left);
}
template <int kAlign, class T, int N, class I>
AICF_FN void store_some(T* p, const Vec<T, N>& x, I left) {
  if (left >= N)
    store<kAlign>(p, x);
  else
    store_each(p, x, I(1), left);
}

// N neighbours at an address that their bytes need not divide: the aligned words that hold them, of which every
// one that is read holds an element that exists. The words are apart from vector(), so that many are on their
// way before the first is used.
template <class T, int N>
struct Shifted {
  static constexpr int kBytes = access_bytes(sizeof(T) * N, 16), kCount = sizeof(T) * N / kBytes + 1;
  static_assert(kBytes >= 4, "words of a register or more");
  Words<kBytes> words[kCount];
  uint32_t shift;  // bytes of the first word before the first element

  AICF_FN Vec<T, N> vector() const {
    constexpr int kRegisters = kCount * kBytes / 4;
    uint32_t w[kRegisters];
    AICF_UNROLL
    for (int i = 0; i < kRegisters; ++i) w[i] = reinterpret_cast<const uint32_t*>(words)[i];
    AICF_UNROLL
    for (int step = kBytes / 8; step > 0; step /= 2) {
      // All bits of the one or of the other: of a selection the compiler makes a selection of addresses.
      const uint32_t bits = (shift & (4 * step)) != 0 ? 32 : 0;
      AICF_UNROLL
      for (int i = 0; i + step < kRegisters; ++i) w[i] = __funnelshift_rc(w[i], w[i + step], bits);
    }
    Vec<T, N> x;
    AICF_UNROLL
    for (int i = 0; i < int(sizeof(T)) * N / 4; ++i)
      reinterpret_cast<uint32_t*>(&x)[i] = sizeof(T) < 4 ? __funnelshift_r(w[i], w[i + 1], shift % 4 * 8) : w[i];
    return x;
  }
};
// `left` elements exist, one at least.
template <class T, int N, class I>
AICF_FN void load_shifted(Shifted<T, N>& x, const T* p, I left) {
  constexpr int kBytes = Shifted<T, N>::kBytes;
  using W = Words<kBytes>;
  x.shift = uint32_t(reinterpret_cast<uintptr_t>(p)) % kBytes;
  const W* from = reinterpret_cast<const W*>(reinterpret_cast<const char*>(p) - x.shift);
  const int end = int(x.shift) + (left < N ? int(left) : N) * int(sizeof(T));
  AICF_UNROLL
  for (int i = 0; i < Shifted<T, N>::kCount; ++i) x.words[i] = i * kBytes < end ? from[i] : W();
}

}  // namespace tile
}  // namespace aicf
