// Integer and mask operations as plain loops that the compiler vectorises. Arithmetic runs in unsigned types,
// so it wraps.
#include <stdint.h>
#include <string.h>

#include "kernels/tile/cpu/tile_functions.h"
#include "kernels/tile/cpu/tile_numbers.h"

namespace aicf {
namespace AICF_ISA_NAMESPACE {
namespace {

template <class In, class Out, class F>
inline void each1(const TileArgs& args, F f) {
  const In* a = static_cast<const In*>(args.a);
  Out* dst = static_cast<Out*>(args.dst);
  for (int64_t i = 0; i < args.n; ++i) dst[i] = f(a[i]);
}
template <class In, class Out, class F>
inline void each2(const TileArgs& args, F f) {
  const In* a = static_cast<const In*>(args.a);
  const In* b = static_cast<const In*>(args.b);
  Out* dst = static_cast<Out*>(args.dst);
  for (int64_t i = 0; i < args.n; ++i) dst[i] = f(a[i], b[i]);
}

#define AICF_EACH1(Out, expression) \
  return [](const TileArgs& args) { each1<T, Out>(args, [](T x) { return static_cast<Out>(expression); }); }
#define AICF_EACH2(Out, expression)                                             \
  return [](const TileArgs& args) {                                             \
    each2<T, Out>(args, [](T x, T y) { return static_cast<Out>(expression); }); \
  }

template <class T>
struct Unsigned;
template <>
struct Unsigned<int32_t> {
  using type = uint32_t;
};
template <>
struct Unsigned<int64_t> {
  using type = uint64_t;
};

template <class T>
inline T divide(T x, T y) {
  using U = typename Unsigned<T>::type;
  if (y == 0) return 0;
  return y == -1 ? static_cast<T>(U{0} - static_cast<U>(x)) : x / y;  // the lowest number / -1 wraps
}
template <class T>
inline T remainder(T x, T y) {
  return y == 0 || y == -1 ? 0 : x % y;
}
template <class T>
inline T modulo(T x, T y) {
  const T r = remainder(x, y);
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}
template <class T>
inline T power(T x, T y) {
  using U = typename Unsigned<T>::type;
  if (y < 0) return x == 1 ? 1 : x == -1 ? ((y & 1) ? -1 : 1) : 0;
  U result = 1, base = static_cast<U>(x);
  for (U e = static_cast<U>(y); e; e >>= 1, base *= base)
    if (e & 1) result *= base;
  return static_cast<T>(result);
}

// Bits of the element type, by which a shift is out of range; 0 means the width of T.
template <class T>
inline T width_of(int64_t imm) {
  return static_cast<T>(
      imm > 0 && imm < static_cast<int64_t>(8 * sizeof(T)) ? imm : static_cast<int64_t>(8 * sizeof(T)));
}
template <class T>
void shift_left(const TileArgs& args) {
  using U = typename Unsigned<T>::type;
  const T width = width_of<T>(args.imm);
  each2<T, T>(args, [width](T x, T y) {
    return y < 0 || y >= width ? T{0} : static_cast<T>(static_cast<U>(x) << y);
  });
}
template <class T>
void shift_right(const TileArgs& args) {
  const T width = width_of<T>(args.imm);
  each2<T, T>(args, [width](T x, T y) { return y < 0 || y >= width ? (x < 0 ? T{-1} : T{0}) : x >> y; });
}

template <class T>
void select_function(const TileArgs& args) {
  const int32_t* mask = static_cast<const int32_t*>(args.a);
  const T* b = static_cast<const T*>(args.b);
  const T* c = static_cast<const T*>(args.c);
  T* dst = static_cast<T*>(args.dst);
  for (int64_t i = 0; i < args.n; ++i) {
    const T yes = b[i], no = c[i];
    dst[i] = mask[i] ? yes : no;
  }
}

template <class T>
void constant_function(const TileArgs& args) {
  T* dst = static_cast<T*>(args.dst);
  for (int64_t i = 0; i < args.n; ++i) dst[i] = static_cast<T>(args.imm);
}
template <class T>
void index_function(const TileArgs& args) {
  T* dst = static_cast<T*>(args.dst);
  for (int64_t i = 0; i < args.n; ++i) dst[i] = static_cast<T>(args.imm + i);
}

template <class T>
TileFunction number_function(int op) {
  using U = typename Unsigned<T>::type;
  switch (op) {
    case kOp_constant:
      return constant_function<T>;
    case kOp_inner_index:
      return index_function<T>;
    case kOp_neg:
      AICF_EACH1(T, U{0} - static_cast<U>(x));
    case kOp_abs:
      AICF_EACH1(T, x < 0 ? U{0} - static_cast<U>(x) : static_cast<U>(x));
    case kOp_sign:
      AICF_EACH1(T, (x > 0) - (x < 0));
    case kOp_bit_not:
      AICF_EACH1(T, ~x);
    case kOp_add:
      AICF_EACH2(T, static_cast<U>(x) + static_cast<U>(y));
    case kOp_sub:
      AICF_EACH2(T, static_cast<U>(x) - static_cast<U>(y));
    case kOp_mul:
      AICF_EACH2(T, static_cast<U>(x) * static_cast<U>(y));
    case kOp_div:
      AICF_EACH2(T, divide(x, y));
    case kOp_rem:
      AICF_EACH2(T, remainder(x, y));
    case kOp_mod:
      AICF_EACH2(T, modulo(x, y));
    case kOp_pow:
      AICF_EACH2(T, power(x, y));
    case kOp_max:
      AICF_EACH2(T, x > y ? x : y);
    case kOp_min:
      AICF_EACH2(T, x < y ? x : y);
    case kOp_bit_and:
      AICF_EACH2(T, x & y);
    case kOp_bit_or:
      AICF_EACH2(T, x | y);
    case kOp_bit_xor:
      AICF_EACH2(T, x ^ y);
    case kOp_shift_left:
      return shift_left<T>;
    case kOp_shift_right:
      return shift_right<T>;
    case kOp_eq:
      AICF_EACH2(int32_t, x == y);
    case kOp_ne:
      AICF_EACH2(int32_t, x != y);
    case kOp_lt:
      AICF_EACH2(int32_t, x < y);
    case kOp_le:
      AICF_EACH2(int32_t, x <= y);
    case kOp_gt:
      AICF_EACH2(int32_t, x > y);
    case kOp_ge:
      AICF_EACH2(int32_t, x >= y);
    case kOp_select:
      return select_function<T>;
  }
  return nullptr;
}

TileFunction mask_function(int op) {
  using T = int32_t;
  switch (op) {
    case kOp_constant:
      return [](const TileArgs& args) {
        T* dst = static_cast<T*>(args.dst);
        for (int64_t i = 0; i < args.n; ++i) dst[i] = args.imm != 0;
      };
    case kOp_logical_not:
      AICF_EACH1(T, x ^ 1);
    case kOp_bit_and:
      AICF_EACH2(T, x & y);
    case kOp_bit_or:
      AICF_EACH2(T, x | y);
    case kOp_bit_xor:
      AICF_EACH2(T, x ^ y);
    case kOp_eq:
      AICF_EACH2(T, x == y);
    case kOp_ne:
      AICF_EACH2(T, x != y);
    case kOp_select:
      return select_function<T>;
  }
  return nullptr;
}

}  // namespace

TileFunction tile_integer_function(int op, int type) {
  switch (op) {
    case kOp_wrap_i16:
      return type == kI32 ? [](const TileArgs& args) {
      each1<int32_t, int32_t>(args, [](int32_t x) { return static_cast<int32_t>(static_cast<int16_t>(x)); });
    } : TileFunction{nullptr};
    case kOp_wrap_i8:
      return type == kI32 ? [](const TileArgs& args) {
      each1<int32_t, int32_t>(args, [](int32_t x) { return static_cast<int32_t>(static_cast<int8_t>(x)); });
    } : TileFunction{nullptr};
    case kOp_wrap_u8:
      return type == kI32 ? [](const TileArgs&
                                   args) { each1<int32_t, int32_t>(args, [](int32_t x) { return x & 255; }); }
                          : TileFunction{nullptr};
  }
  switch (type) {
    case kI32:
      return number_function<int32_t>(op);
    case kI64:
      return number_function<int64_t>(op);
    case kMask:
      return mask_function(op);
  }
  return nullptr;
}

}  // namespace AICF_ISA_NAMESPACE
}  // namespace aicf
