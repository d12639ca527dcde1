#include "tune/operand_values.h"

#include <algorithm>
#include <cstring>

#include "base/array.h"
#include "base/splitmix.h"

namespace aicf {
namespace {

// Values repeat after a prime number of elements: no two rows of a usual length are alike.
constexpr int64_t kPeriod = 65521;

Array period_of(DType dtype, DType rounded, size_t operand) {
  Array low(rounded, {kPeriod}), high(dtype, {kPeriod});
  for (int64_t i = 0; i < kPeriod; ++i) {
    const uint64_t bits = splitmix64(static_cast<uint64_t>(i) + (static_cast<uint64_t>(operand) << 32));
    if (!is_float(rounded)) {
      const bool one = rounded == DType::boolean ? bits % 8 != 0 : bits % 2 != 0;
      high.set_i64(i, one);
      continue;
    }
    low.set_f64(i, static_cast<double>(static_cast<int64_t>(bits >> 11)) * 0x1p-52 - 1);
    high.set_f64(i, low.get_f64(i));
  }
  return high;
}

void copy_row(const std::byte* values, int64_t start, int64_t bytes, const WindowRow& row,
              std::byte* buffer) {
  if (row.step == 1) {
    for (int64_t done = 0; done < row.count;) {
      const int64_t from = (start + done) % kPeriod, n = std::min(kPeriod - from, row.count - done);
      std::memcpy(buffer + (row.first + done) * bytes, values + from * bytes, static_cast<size_t>(n * bytes));
      done += n;
    }
    return;
  }
  for (int64_t i = 0; i < row.count; ++i)
    std::memcpy(buffer + (row.first + i * row.step) * bytes, values + (start + i) % kPeriod * bytes,
                static_cast<size_t>(bytes));
}

// A repeated axis has one index, so that every element has one value.
std::vector<int64_t> distinct_sizes(const PlainWindow& window) {
  std::vector<int64_t> sizes = window.sizes;
  for (size_t i = 0; i < sizes.size(); ++i)
    if (window.strides[i] == 0 && sizes[i] > 1) sizes[i] = 1;
  return sizes;
}

// Calls visit(index, row) for every row.
template <class Visit>
void for_rows(const PlainWindow& window, Visit visit) {
  const std::vector<int64_t> sizes = distinct_sizes(window);
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) return;
  const size_t rank = sizes.size();
  std::vector<int64_t> index(rank, 0);
  WindowRow row{window.offset, rank > 0 ? window.strides[rank - 1] : 1, rank > 0 ? sizes[rank - 1] : 1};
  for (int64_t number = 0;; ++number) {
    visit(number, row);
    size_t axis = rank < 2 ? 0 : rank - 1;
    while (axis > 0) {
      --axis;
      row.first += window.strides[axis];
      if (++index[axis] < sizes[axis]) break;
      row.first -= sizes[axis] * window.strides[axis];
      index[axis] = 0;
      if (axis == 0) return;
    }
    if (rank < 2) return;
  }
}

}  // namespace

PlainWindow plain(const Window& window, const SymbolValues& sizes) {
  PlainWindow result{window.dtype, evaluate(window.offset, sizes), evaluate(window.sizes, sizes),
                     evaluate(window.strides, sizes)};
  return result;
}

int64_t reach_bytes(const PlainWindow& window) {
  int64_t last = window.offset;
  for (size_t i = 0; i < window.sizes.size(); ++i)
    if (window.sizes[i] > 1 && window.strides[i] > 0)
      last = checked_add(last, checked_mul(window.sizes[i] - 1, window.strides[i]));
  return checked_mul(last + 1, dtype_bytes(window.dtype));
}

void fill_values(const PlainWindow& window, DType rounded, size_t operand, std::byte* buffer) {
  const Array values = period_of(window.dtype, rounded, operand);
  const auto* bytes = static_cast<const std::byte*>(values.data());
  for_rows(window, [&](int64_t number, const WindowRow& row) {
    copy_row(bytes, number * row.count % kPeriod, dtype_bytes(window.dtype), row, buffer);
  });
}

const std::vector<std::byte>& OperandValues::of(const PlainWindow& window, DType rounded, size_t operand) {
  const auto [at, is_new] =
      filled_.try_emplace({operand, window.dtype, rounded, window.offset, window.sizes, window.strides});
  if (is_new) {
    at->second.resize(static_cast<size_t>(reach_bytes(window)));
    fill_values(window, rounded, operand, at->second.data());
  }
  return at->second;
}

std::vector<WindowRow> spaced_rows(const PlainWindow& window, int64_t most) {
  int64_t count = 0;
  for_rows(window, [&](int64_t, const WindowRow&) { ++count; });
  const int64_t step = std::max<int64_t>(1, (count + most - 1) / most);
  std::vector<WindowRow> rows;
  for_rows(window, [&](int64_t number, const WindowRow& row) {
    if (number % step == 0 || number + 1 == count) rows.push_back(row);
  });
  return rows;
}

}  // namespace aicf
