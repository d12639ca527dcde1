#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/tile/cpu/tile_functions.h"
#include "kernels/tile/cpu/tile_numbers.h"
#include "kernels/tile/cpu/tile_reductions.h"

namespace aicf {
namespace AICF_ISA_NAMESPACE {
namespace {

constexpr int kLanes = 16;

// T is unsigned here for sums and products, signed for comparisons.
template <class T>
struct IntegerMaximum {
  static constexpr T neutral() { return static_cast<T>(sizeof(T) == 4 ? INT32_MIN : INT64_MIN); }
  static T scalar(T x, T y) { return x > y ? x : y; }
};
template <class T>
struct IntegerMinimum {
  static constexpr T neutral() { return static_cast<T>(sizeof(T) == 4 ? INT32_MAX : INT64_MAX); }
  static T scalar(T x, T y) { return x < y ? x : y; }
};
struct Any {
  static constexpr int32_t neutral() { return 0; }
  static int32_t scalar(int32_t x, int32_t y) { return x | y; }
};
struct All {
  static constexpr int32_t neutral() { return 1; }
  static int32_t scalar(int32_t x, int32_t y) { return x & y; }
};

template <class T, class Operation>
void begin(const TileArgs& args) {
  T* lanes = static_cast<T*>(args.dst);
  for (int l = 0; l < 2 * kLanes; ++l) lanes[l] = Operation::neutral();
}

template <class T, class Operation>
void close_block(T* lanes) {
  for (int l = 0; l < kLanes; ++l) {
    lanes[kLanes + l] = Operation::scalar(lanes[kLanes + l], lanes[l]);
    lanes[l] = Operation::neutral();
  }
}

template <class T, class Operation>
void finish(const TileArgs& args) {
  T lanes[2 * kLanes];
  memcpy(lanes, args.a, sizeof lanes);
  close_block<T, Operation>(lanes);
  T* total = lanes + kLanes;
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int l = 0; l < half; ++l) total[l] = Operation::scalar(total[l], total[l + half]);
  memcpy(args.dst, total, sizeof(T));
}

// total[l] = total[l] op total[l + kHalf], and so on down to total[0].
template <int kHalf, class T, class Operation>
void combine_halves(T* total) {
  const hn::CappedTag<T, kHalf> d;
  for (int l = 0; l < kHalf; l += static_cast<int>(hn::MaxLanes(d)))
    hn::StoreU(Operation::vector(hn::LoadU(d, total + l), hn::LoadU(d, total + kHalf + l)), d, total + l);
  if constexpr (kHalf > 1) combine_halves<kHalf / 2, T, Operation>(total);
}

template <class T, class Operation>
void float_finish(const TileArgs& args) {
  const hn::CappedTag<T, kLanes> d;
  const T* lanes = static_cast<const T*>(args.a);
  T total[kLanes];
  for (int l = 0; l < kLanes; l += static_cast<int>(hn::MaxLanes(d)))
    hn::StoreU(Operation::vector(hn::LoadU(d, lanes + kLanes + l), hn::LoadU(d, lanes + l)), d, total + l);
  combine_halves<kLanes / 2, T, Operation>(total);
  memcpy(args.dst, total, sizeof(T));
}

template <class T, class Operation>
void float_step(const TileArgs& args) {
  constexpr size_t kWidth =
      hn::MaxLanes(hn::ScalableTag<T>()) < kLanes ? hn::MaxLanes(hn::ScalableTag<T>()) : kLanes;
  const hn::CappedTag<T, kLanes> d;
  constexpr size_t kVectors = kLanes / kWidth;
  using V = hn::Vec<hn::CappedTag<T, kLanes>>;
  const T* a = static_cast<const T*>(args.a);
  T* lanes = static_cast<T*>(args.dst);
  if (args.imm > 0 && args.imm % kTileBlock == 0) close_block<T, Operation>(lanes);
  V sums[kVectors];
  for (size_t v = 0; v < kVectors; ++v) sums[v] = hn::LoadU(d, lanes + v * kWidth);
  int64_t i = 0;
  for (; i + kLanes <= args.n; i += kLanes)
    for (size_t v = 0; v < kVectors; ++v)
      sums[v] = Operation::vector(sums[v], hn::LoadU(d, a + i + v * kWidth));
  for (size_t v = 0; v < kVectors; ++v) hn::StoreU(sums[v], d, lanes + v * kWidth);
  for (int64_t l = 0; i < args.n; ++i, ++l) lanes[l] = Operation::scalar(lanes[l], a[i]);
}

template <class T, class Operation>
void integer_step(const TileArgs& args) {
  const T* a = static_cast<const T*>(args.a);
  T* out = static_cast<T*>(args.dst);
  T lanes[kLanes];
  memcpy(lanes, out, sizeof lanes);
  int64_t i = 0;
  for (; i + kLanes <= args.n; i += kLanes)
    for (int l = 0; l < kLanes; ++l) lanes[l] = Operation::scalar(lanes[l], a[i + l]);
  for (int64_t l = 0; i < args.n; ++i, ++l) lanes[l] = Operation::scalar(lanes[l], a[i]);
  memcpy(out, lanes, sizeof lanes);
}

template <class T, class Operation>
void float_combine(const TileArgs& args) {
  const hn::ScalableTag<T> d;
  const auto width = static_cast<int64_t>(hn::Lanes(d));
  const T* a = static_cast<const T*>(args.a);
  T* to = static_cast<T*>(args.dst);
  int64_t i = 0;
  for (; i + width <= args.n; i += width)
    hn::StoreU(Operation::vector(hn::LoadU(d, to + i), hn::LoadU(d, a + i)), d, to + i);
  for (; i < args.n; ++i) to[i] = Operation::scalar(to[i], a[i]);
}

template <class T, class Operation>
void integer_combine(const TileArgs& args) {
  const T* a = static_cast<const T*>(args.a);
  T* to = static_cast<T*>(args.dst);
  for (int64_t i = 0; i < args.n; ++i) to[i] = Operation::scalar(to[i], a[i]);
}

template <class T, class Operation>
int64_t neutral_bits() {
  const T value = Operation::neutral();
  int64_t bits = 0;
  memcpy(&bits, &value, sizeof value);
  return bits;
}

template <class T, class Operation>
TileReduction on_floats() {
  return {begin<T, Operation>, float_step<T, Operation>, float_finish<T, Operation>,
          float_combine<T, Operation>, neutral_bits<T, Operation>()};
}
template <class T, class Operation>
TileReduction on_integers() {
  return {begin<T, Operation>, integer_step<T, Operation>, finish<T, Operation>,
          integer_combine<T, Operation>, neutral_bits<T, Operation>()};
}

template <class T>
TileReduction float_reduction(int op) {
  switch (op) {
    case kOp_reduce_sum:
      return on_floats<T, Sum<T>>();
    case kOp_reduce_prod:
      return on_floats<T, Product<T>>();
    case kOp_reduce_max:
      return on_floats<T, Maximum<T>>();
    case kOp_reduce_min:
      return on_floats<T, Minimum<T>>();
  }
  return {};
}
template <class T, class U>
TileReduction integer_reduction(int op) {
  switch (op) {
    case kOp_reduce_sum:
      return on_integers<U, Sum<U>>();
    case kOp_reduce_prod:
      return on_integers<U, Product<U>>();
    case kOp_reduce_max:
      return on_integers<T, IntegerMaximum<T>>();
    case kOp_reduce_min:
      return on_integers<T, IntegerMinimum<T>>();
  }
  return {};
}

}  // namespace

TileReduction tile_reduction(int op, int type) {
  switch (type) {
    case kF32:
      return float_reduction<float>(op);
    case kF64:
      return float_reduction<double>(op);
    case kI32:
      return integer_reduction<int32_t, uint32_t>(op);
    case kI64:
      return integer_reduction<int64_t, uint64_t>(op);
    case kMask:
      if (op == kOp_reduce_max) return on_integers<int32_t, Any>();
      if (op == kOp_reduce_min) return on_integers<int32_t, All>();
  }
  return {};
}

}  // namespace AICF_ISA_NAMESPACE
}  // namespace aicf
