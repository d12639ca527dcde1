// Values of a trial's operands: made by operand number and logical index, so that every layout and dtype of
// one operand holds the same numbers (a raised dtype holds exactly those of the lower one).
#pragma once

#include <cstddef>
#include <map>
#include <tuple>
#include <vector>

#include "select/kernel_call.h"

namespace aicf {

// A window with its sizes bound.
using PlainWindow = Strided<int64_t>;
PlainWindow plain(const Window& window, const SymbolValues& sizes);

// Bytes from the buffer's start to the last element touched.
int64_t reach_bytes(const PlainWindow& window);

// Writes the window's elements into a buffer of reach_bytes. `rounded` is the dtype whose values it holds,
// the window's own or a lower one. Floats lie in [-1, 1], integers are 0 or 1, seven of eight bools are true.
void fill_values(const PlainWindow& window, DType rounded, size_t operand, std::byte* buffer);

// The values of a problem's operands, each filled once: all candidates begin with the same.
class OperandValues {
 public:
  // The buffer that fill_values fills.
  const std::vector<std::byte>& of(const PlainWindow& window, DType rounded, size_t operand);
  void clear() { filled_.clear(); }

 private:
  using Key = std::tuple<size_t, DType, DType, int64_t, std::vector<int64_t>, std::vector<int64_t>>;
  std::map<Key, std::vector<std::byte>> filled_;
};

// Rows (all axes but the last) of a window, up to `most` of them, evenly spaced and with the last one.
struct WindowRow {
  int64_t first = 0;  // element of the buffer
  int64_t step = 1, count = 1;
};
std::vector<WindowRow> spaced_rows(const PlainWindow& window, int64_t most);

}  // namespace aicf
