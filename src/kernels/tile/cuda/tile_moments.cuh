// Mean and sum of squared differences from it, of elements that are met once (T. Chan, G. Golub, R. LeVeque, Algorithms
// for Computing the Sample Variance, 1983). A thread takes a few elements at a time: it adds up what they differ by from
// its mean so far, of the first ones from their own mean, and the squares of that. The mean is the sum of two numbers, of
// which the second holds what the first has no digits for, so it does not limit how small a variance can be told from
// none. Parts are merged in a fixed order.
#pragma once

#include "tile/cuda/tile_math.cuh"

namespace aicf {
namespace tile {

template <class T>
struct Moments {
  T mean = T(0), low = T(0);  // their sum is the mean
  T squares = T(0);           // the sum of squared differences from it

  AICF_FN T difference(T x) const { return sub(sub(x, mean), low); }
  // From the first of `count` elements to their mean: what they differ by from it adds up to `differences`.
  AICF_FN void start(T differences, int count) {
    if (count > 0) move(div(differences, T(count)));
  }
  // Elements whose differences add up to `differences` and their squares to `more`. They make `count` with those before;
  // these are at least as many, or the mean is that of the elements taken: so what is taken from `more` is at most half.
  AICF_FN void take(T differences, T more, int count) {
    if (count == 0) return;
    const T change = mul(differences, div(T(1), T(count)));
    squares = fma(neg(differences), change, add(squares, more));
    move(change);
  }
  AICF_FN void move(T change) {
    const T rest = add(low, change), to = add(mean, rest);
    low = sub(rest, sub(to, mean));
    mean = to;
  }
  AICF_FN T sum(T count) const { return fma(mean, count, mul(low, count)); }
};

// What an element adds to the sums that take() gets.
template <class T>
AICF_FN void add_difference(const Moments<T>& moments, T x, T& sum, T& squares) {
  const T difference = moments.difference(x);
  sum = add(sum, difference);
  squares = fma(difference, difference, squares);
}

// Each of `x`, of x_count elements, with that of `y`.
template <class T, int N>
AICF_FN void merge(Moments<T> (&x)[N], T x_count, const Moments<T> (&y)[N], T y_count) {
  const T part = y_count == T(0) ? T(0) : div(y_count, add(x_count, y_count)), weight = mul(x_count, part);
#pragma unroll
  for (int v = 0; v < N; ++v) {
    if (x_count == T(0)) {
      x[v] = y[v];
      continue;
    }
    const T apart = add(sub(y[v].mean, x[v].mean), sub(y[v].low, x[v].low));
    x[v].squares = fma(mul(apart, apart), weight, add(x[v].squares, y[v].squares));
    x[v].move(mul(apart, part));
  }
}

// As reduce_deep() in tile_reduce.cuh: over the kDeep threads of a block that share threadIdx.x % kAcross, thread d and
// d + kDeep/2, and so on. `count` elements are the thread's own. `shared` has room for kDeep * kAcross / 2 * (3 N + 1)
// values; it may have been used before.
template <int kAcross, int kDeep, class T, int N>
AICF_FN void reduce_moments(Moments<T> (&x)[N], T count, T* shared) {
  if (kDeep == 1) return;
  constexpr int kStep = kDeep * kAcross / 2;
  const int at = threadIdx.x % kAcross, depth = threadIdx.x / kAcross;
  const auto put = [&](int place) {
    T* to = shared + place * kAcross + at;
    to[0] = count;
#pragma unroll
    for (int v = 0; v < N; ++v) {
      to[(3 * v + 1) * kStep] = x[v].mean;
      to[(3 * v + 2) * kStep] = x[v].low;
      to[(3 * v + 3) * kStep] = x[v].squares;
    }
  };
  const auto get = [&](int place, Moments<T>(&y)[N]) {
    const T* from = shared + place * kAcross + at;
#pragma unroll
    for (int v = 0; v < N; ++v) {
      y[v].mean = from[(3 * v + 1) * kStep];
      y[v].low = from[(3 * v + 2) * kStep];
      y[v].squares = from[(3 * v + 3) * kStep];
    }
    return from[0];
  };
  sync_threads<kAcross * kDeep>();
#pragma unroll 1  // short text: each step runs once
  for (int half = kDeep / 2; half > 0; half /= 2) {
    // The upper half of the threads lends the places of the lower one, which has all its own in registers; later ones
    // have places of their own.
    const int first = half == kDeep / 2 ? half : 0;
    if (depth >= half && depth < 2 * half) put(depth - first);
    if (2 * half * kAcross > 32)
      sync_threads<kAcross * kDeep>();
    else
      __syncwarp();  // what is left is of one warp
    if (depth < half) {
      Moments<T> y[N];
      const T y_count = get(depth + half - first, y);
      merge(x, count, y, y_count);
      count = add(count, y_count);
    }
    if (first > 0) sync_threads<kAcross * kDeep>();
  }
  if (depth == 0) put(0);
  sync_threads<kAcross * kDeep>();
  get(0, x);
}

}  // namespace tile
}  // namespace aicf
