// Walking several tensors together over one index space in row-major order, for kernels that move elements
// one by one or line by line. Also the checks that their prepare functions share, which throw UserError
// bad_artifact.
#pragma once

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/dim.h"
#include "kernels/common/abi.h"
#include "kernels/common/kernel.h"
#include "kernels/common/step_check.h"

namespace aicf {

// An index space and the byte strides of `tensors` views of it; plain numbers, to be stored in
// BoundCall::state.
struct WalkSpace {
  static constexpr int kMaxTensors = 4;
  int64_t rank = 0, count = 1;
  int64_t sizes[kMaxRank] = {};
  int64_t strides[kMaxTensors][kMaxRank] = {};

  // Strides in elements of `bytes` bytes each, one per tensor; nothing is kept for axes of size 1.
  void add_axis(int64_t size, std::initializer_list<int64_t> byte_strides) {
    int t = 0;
    for (int64_t stride : byte_strides) strides[t++][rank] = stride;
    sizes[rank++] = size;
    count = checked_mul(count, size);
  }
};

// Position in a WalkSpace: byte offsets of every tensor.
class Walk {
 public:
  Walk(const WalkSpace& space, int64_t start) : space_(space) {
    for (int64_t axis = space.rank - 1; axis >= 0; --axis) {
      index_[axis] = start % space.sizes[axis];
      start /= space.sizes[axis];
      for (int t = 0; t < WalkSpace::kMaxTensors; ++t) at_[t] += index_[axis] * space.strides[t][axis];
    }
  }
  int64_t operator[](int tensor) const { return at_[tensor]; }
  int64_t index(int64_t axis) const { return index_[axis]; }
  void next() {
    for (int64_t axis = space_.rank - 1; axis >= 0; --axis) {
      for (int t = 0; t < WalkSpace::kMaxTensors; ++t) at_[t] += space_.strides[t][axis];
      if (++index_[axis] < space_.sizes[axis]) return;
      for (int t = 0; t < WalkSpace::kMaxTensors; ++t) at_[t] -= index_[axis] * space_.strides[t][axis];
      index_[axis] = 0;
    }
  }

 private:
  const WalkSpace& space_;
  int64_t index_[kMaxRank] = {};
  int64_t at_[WalkSpace::kMaxTensors] = {};
};

inline int64_t byte_stride(const TensorArg& arg, int axis) {
  return arg.strides[axis] * dtype_bytes(arg.dtype);
}
inline std::byte* bytes_of(const TensorArg& arg) { return static_cast<std::byte*>(arg.data); }

inline void check_tensor(const TensorArg& arg, std::string_view kernel, const char* name) {
  check_step(arg.rank >= 0 && arg.rank <= kMaxRank, kernel, name, "rank up to 12", arg.rank);
  check_sizes(arg, kernel, name);
}
inline void check_size(int64_t actual, int64_t expected, std::string_view kernel, const char* what) {
  check_step(actual == expected, kernel, what, std::to_string(expected), actual);
}
// The axis counted from the front.
inline int check_axis(int64_t axis, int rank, std::string_view kernel) {
  check_step(axis >= -rank && axis < rank, kernel, "axis out of range", "within rank " + std::to_string(rank),
             axis);
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}
inline bool is_index_dtype(DType dtype) { return dtype == DType::i64 || dtype == DType::i32; }
inline void check_index_dtype(const TensorArg& arg, std::string_view kernel) {
  if (!is_index_dtype(arg.dtype))
    bad_step(kernel, "indices", "i64 or i32", std::string(dtype_name(arg.dtype)));
}

inline int64_t read_index(const std::byte* at, bool wide) {
  if (wide) {
    int64_t value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  int32_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
// Counts negative indices from the end; outside [-bound, bound) reports the error and gives -1.
inline int64_t resolve_index(const BoundCall& call, int64_t value, int64_t bound) {
  if (value >= -bound && value < bound) return value < 0 ? value + bound : value;
  call.error->raise(value, bound);
  return -1;
}

// Splits `count` units of work of `unit` elements each into tiles of at most about 32 Ki elements, more than
// one of them in equal shares for two workers: sets call.tiles, gives units per tile.
inline int64_t split_work(BoundCall& call, int64_t count, int64_t unit) {
  if (count == 0) return call.tiles = 0, 1;
  const int64_t grain = std::max<int64_t>(1, 32768 / std::max<int64_t>(1, unit));
  const int64_t wanted = ceil_div(count, grain), shares = wanted + (wanted > 1 && wanted % 2 != 0);
  const int64_t share = ceil_div(count, shares);
  call.tiles = ceil_div(count, share);
  return share;
}

// Picks f<T> for an unsigned T as wide as the elements: moves do not care about the type.
#define AICF_BY_BYTES(function, bytes)  \
  ((bytes) == 1   ? &function<uint8_t>  \
   : (bytes) == 2 ? &function<uint16_t> \
   : (bytes) == 4 ? &function<uint32_t> \
                  : &function<uint64_t>)

template <class T>
inline void move_element(std::byte* to, const std::byte* from) {
  std::memcpy(to, from, sizeof(T));
}

}  // namespace aicf
