// What a tuning record is about: a call's target, meaning, and the shapes, strides and alignment of its
// operands. One builder (choose.h) makes the key that is looked up and the key that the tuner writes; the
// text form is a row of a record file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/dim.h"
#include "base/dtype.h"
#include "base/strided.h"

namespace aicf {

// Over the declared ranges. Of the strides, both ends are those at the upper ends of the ranges; the offset
// is its alignment alone.
struct KeyOperand : Strided<Interval> {
  int alignment = 1;  // bytes, up to 16, that the window's start is known to be a multiple of
  bool operator==(const KeyOperand&) const = default;
};

struct ProblemKey {
  std::string target;  // "sm_90"
  int units = 0;       // multiprocessors; 0 on the CPU
  std::string op;      // family of the kernel table
  std::string region;  // hash of what is computed beyond the op, sizes left out; "-" if nothing is
  std::string params;  // the kernel's numbers, "-" if it has none
  std::vector<KeyOperand> inputs, outputs;
  bool operator==(const ProblemKey&) const = default;
};

// "bf16 16x4096:4096x1@16": sizes (a range as 1..16), strides, alignment.
std::string to_string(const KeyOperand& operand);
// The fields by comma, operands by space with ">" before the outputs.
std::string to_string(const ProblemKey& key);
// Inverse of to_string, from its six fields. False if a field is malformed.
bool parse_key(const std::vector<std::string_view>& fields, ProblemKey& key);
inline constexpr size_t kKeyFields = 6;
std::vector<std::string_view> split(std::string_view text, char separator);

// Sizes rounded up to three significant bits: problems that differ less are answered by one record.
int64_t padded_size(int64_t size);

// Whether two keys differ in sizes only, and the strides that follow from them: the same layout. The region
// is not compared.
bool same_layout(const ProblemKey& a, const ProblemKey& b);
// Whether all sizes agree after padded_size. Of keys with the same layout.
bool same_padded_sizes(const ProblemKey& a, const ProblemKey& b);
// Sum over all axes of |log2(size ratio)|; infinite if a size differs by more than a factor of 1.5. Of keys
// with the same layout.
double size_distance(const ProblemKey& a, const ProblemKey& b);

}  // namespace aicf
