#include "select/problem_key.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "base/parse_number.h"

namespace aicf {
namespace {

bool parse_size(std::string_view text, Interval& size) {
  const size_t dots = text.find("..");
  if (dots == std::string_view::npos) {
    if (!parse_number(text, size.lo)) return false;
    size.hi = size.lo;
  } else if (!parse_number(text.substr(0, dots), size.lo) || !parse_number(text.substr(dots + 2), size.hi)) {
    return false;
  }
  return size.lo >= 0 && size.lo <= size.hi;
}

// "DTYPE SIZES:STRIDES@ALIGNMENT" without the dtype.
bool parse_operand(std::string_view dtype, std::string_view text, KeyOperand& operand) {
  const auto type = dtype_from_name(dtype);
  const size_t colon = text.find(':'), at = text.find('@');
  if (!type || colon == std::string_view::npos || at == std::string_view::npos || at < colon) return false;
  operand.dtype = *type;
  int64_t alignment = 0;
  if (!parse_number(text.substr(at + 1), alignment) || alignment < 1 || alignment > 16) return false;
  operand.alignment = static_cast<int>(alignment);
  if (text.substr(0, colon) == "-") return text.substr(colon + 1, at - colon - 1) == "-";
  const auto sizes = split(text.substr(0, colon), 'x');
  const auto strides = split(text.substr(colon + 1, at - colon - 1), 'x');
  if (sizes.size() != strides.size()) return false;
  for (size_t i = 0; i < sizes.size(); ++i) {
    operand.sizes.emplace_back();
    int64_t stride = 0;
    if (!parse_size(sizes[i], operand.sizes[i]) || !parse_number(strides[i], stride)) return false;
    operand.strides.push_back({stride, stride});
  }
  return true;
}

bool parse_operands(std::string_view text, ProblemKey& key) {
  const auto words = split(text, ' ');
  std::vector<KeyOperand>* list = &key.inputs;
  for (size_t i = 0; i < words.size();) {
    if (words[i] == ">") {
      if (list == &key.outputs) return false;
      list = &key.outputs;
      ++i;
      continue;
    }
    KeyOperand operand;
    if (i + 1 >= words.size() || !parse_operand(words[i], words[i + 1], operand)) return false;
    list->push_back(std::move(operand));
    i += 2;
  }
  return list == &key.outputs;
}

// How memory is walked along an axis; an axis of one element is not walked.
int stride_class(const KeyOperand& operand, size_t axis) {
  const int64_t stride = operand.strides[axis].hi;
  if (operand.sizes[axis].hi <= 1) return -1;
  return stride == 0 || stride == 1 ? static_cast<int>(stride) : stride < 0 ? 2 : 3;
}

bool same_operand_layout(const KeyOperand& a, const KeyOperand& b) {
  if (a.dtype != b.dtype || a.alignment != b.alignment || a.sizes.size() != b.sizes.size()) return false;
  for (size_t axis = 0; axis < a.sizes.size(); ++axis)
    if (stride_class(a, axis) != stride_class(b, axis)) return false;
  return true;
}

// Whether `holds` is true of every pair of sizes.
bool all_sizes(const ProblemKey& a, const ProblemKey& b, const std::function<bool(int64_t, int64_t)>& holds) {
  for (const auto list : {&ProblemKey::inputs, &ProblemKey::outputs})
    for (size_t i = 0; i < (a.*list).size(); ++i)
      for (size_t axis = 0; axis < (a.*list)[i].sizes.size(); ++axis)
        if (!holds((a.*list)[i].sizes[axis].hi, (b.*list)[i].sizes[axis].hi)) return false;
  return true;
}

}  // namespace

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find(separator, start), text.size());
    parts.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return parts;
}

std::string to_string(const KeyOperand& operand) {
  std::string sizes, strides;
  for (size_t i = 0; i < operand.sizes.size(); ++i) {
    const Interval& size = operand.sizes[i];
    sizes += (i > 0 ? "x" : "") + std::to_string(size.lo);
    if (size.hi != size.lo) sizes += ".." + std::to_string(size.hi);
    strides += (i > 0 ? "x" : "") + std::to_string(operand.strides[i].hi);
  }
  if (sizes.empty()) sizes = strides = "-";
  return std::string(dtype_name(operand.dtype)) + " " + sizes + ":" + strides + "@" +
         std::to_string(operand.alignment);
}

std::string to_string(const ProblemKey& key) {
  std::string text =
      key.target + "," + std::to_string(key.units) + "," + key.op + "," + key.region + "," + key.params + ",";
  for (const KeyOperand& operand : key.inputs) text += to_string(operand) + " ";
  text += ">";
  for (const KeyOperand& operand : key.outputs) text += " " + to_string(operand);
  return text;
}

bool parse_key(const std::vector<std::string_view>& fields, ProblemKey& key) {
  int64_t units = 0;
  if (fields.size() != kKeyFields || !parse_number(fields[1], units) || units < 0 || units > 100000)
    return false;
  key.target = fields[0];
  key.units = static_cast<int>(units);
  key.op = fields[2];
  key.region = fields[3];
  key.params = fields[4];
  return !key.target.empty() && !key.op.empty() && parse_operands(fields[5], key);
}

int64_t padded_size(int64_t size) {
  if (size <= 8) return size;
  const int64_t step = int64_t{1} << (std::bit_width(static_cast<uint64_t>(size - 1)) - 3);
  return (size - 1) / step * step + step;
}

bool same_layout(const ProblemKey& a, const ProblemKey& b) {
  if (a.target != b.target || a.op != b.op || a.params != b.params || a.inputs.size() != b.inputs.size() ||
      a.outputs.size() != b.outputs.size())
    return false;
  for (const auto list : {&ProblemKey::inputs, &ProblemKey::outputs})
    for (size_t i = 0; i < (a.*list).size(); ++i)
      if (!same_operand_layout((a.*list)[i], (b.*list)[i])) return false;
  return true;
}

bool same_padded_sizes(const ProblemKey& a, const ProblemKey& b) {
  return all_sizes(a, b, [](int64_t x, int64_t y) { return padded_size(x) == padded_size(y); });
}

double size_distance(const ProblemKey& a, const ProblemKey& b) {
  constexpr double kMostRatio = 1.5;
  double distance = 0;
  const bool near = all_sizes(a, b, [&](int64_t x, int64_t y) {
    if (x == y) return true;
    if (x == 0 || y == 0) return false;
    const double ratio = static_cast<double>(std::max(x, y)) / static_cast<double>(std::min(x, y));
    distance += std::log2(ratio);
    return ratio <= kMostRatio;
  });
  return near ? distance : std::numeric_limits<double>::infinity();
}

}  // namespace aicf
