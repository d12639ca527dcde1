#include "runtime/random_inputs.h"

#include <cmath>
#include <numbers>
#include <optional>

#include <xxhash.h>

#include "base/comma_list.h"
#include "base/error.h"
#include "base/option_text.h"
#include "base/splitmix.h"

namespace aicf {
namespace {

constexpr auto mix = splitmix64;

double unit(uint64_t bits) { return (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53; }

double normal(uint64_t key, int64_t index) {
  const double radius = std::sqrt(-2 * std::log(unit(mix(key + 2 * static_cast<uint64_t>(index)))));
  return radius * std::cos(2 * std::numbers::pi * unit(mix(key + 2 * static_cast<uint64_t>(index) + 1)));
}

Array random_array(const IoTensor& io, const SymbolValues& sizes, uint64_t seed,
                   std::optional<Interval> given) {
  if (io.only_value.data() != nullptr) return io.only_value;
  Array array(io.dtype, evaluate(io.sizes, sizes));
  const uint64_t key = XXH3_64bits_withSeed(io.name.data(), io.name.size(), seed);
  const Interval range = given.value_or(Interval{0, 1});
  const auto span = static_cast<uint64_t>(range.hi - range.lo) + 1;
  const auto low = static_cast<double>(range.lo), high = static_cast<double>(range.hi);
  for (int64_t i = 0; i < array.count(); ++i) {
    if (is_float(io.dtype)) {
      array.set_f64(i,
                    given ? low + (high - low) * unit(mix(key + static_cast<uint64_t>(i))) : normal(key, i));
    } else {
      array.set_i64(
          i, range.lo + static_cast<int64_t>(mix(key + static_cast<uint64_t>(i)) % (span == 0 ? 1 : span)));
    }
  }
  return array;
}

std::string names_of(const SymbolRanges& sizes) {
  return sizes.empty() ? "none: all sizes are fixed" : comma_list(sizes, &SymbolRanges::value_type::first);
}

}  // namespace

SymbolValues choose_sizes(const Plan& plan, const SymbolValues& wanted) {
  SymbolValues sizes;
  for (const auto& [name, range] : plan.sizes) sizes[name] = range.lo;
  for (const auto& [name, value] : wanted) {
    auto at = plan.sizes.find(name);
    if (at == plan.sizes.end())
      throw UserError(ErrorCode::kU_unset_size, "the model has no size of this name")
          .with_value(name)
          .with_expected(names_of(plan.sizes))
          .with_remedy(plan.sizes.empty() ? "leave it out" : "give one of these sizes");
    if (value < at->second.lo || value > at->second.hi)
      throw UserError(ErrorCode::kU_size_out_of_range,
                      "size '" + name + "' is outside the range the model was compiled for")
          .with_expected(std::to_string(at->second.lo) + ".." + std::to_string(at->second.hi))
          .with_actual(std::to_string(value))
          .with_remedy("give a size of the range, or compile with one that includes it: " +
                       dims_text({{name, "LO..HI"}}));
    sizes[name] = value;
  }
  return sizes;
}

std::map<std::string, Array> random_inputs(const Plan& plan, const EntryPlan& entry,
                                           const SymbolValues& sizes, uint64_t seed,
                                           const ValueRanges& ranges) {
  for (const auto& [name, range] : ranges) {
    bool known = false;
    for (const IoTensor& io : entry.inputs) known = known || io.name == name;
    if (!known)
      throw UserError(ErrorCode::kU_unknown_input, "the model has no input of this name").with_value(name);
    if (range.lo > range.hi) throw UserError(ErrorCode::kU_bad_option, "a range is empty").with_value(name);
  }
  const SymbolValues all = choose_sizes(plan, sizes);
  std::map<std::string, Array> inputs;
  for (const IoTensor& io : entry.inputs) {
    auto at = ranges.find(io.name);
    const auto range = at == ranges.end() ? std::nullopt : std::optional(at->second);
    inputs.emplace(io.name, random_array(io, all, seed, range));
  }
  return inputs;
}

}  // namespace aicf
