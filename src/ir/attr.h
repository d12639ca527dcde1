// Op attributes: plain comparable data, so that CSE, hashing and cache keys need nothing special. A node's
// attributes are a sorted map from name to value, which copies share: passes copy nodes far more often than
// they change them. Which names an op has, and their types and defaults, is declared in ops.def.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/dim.h"
#include "base/dtype.h"

namespace aicf {

using Ints = std::vector<int64_t>;
using Floats = std::vector<double>;
// Alternatives in the order of AttrType. `Shape` is a list of symbolic sizes.
using Attr = std::variant<int64_t, double, bool, std::string, Ints, Floats, DType, Shape>;
enum class AttrType : uint8_t { kInt, kFloat, kBool, kStr, kInts, kFloats, kDType, kDims };

class Attrs {
 public:
  using Items = std::map<std::string, Attr, std::less<>>;

  Attrs() = default;
  Attrs(std::initializer_list<std::pair<const std::string, Attr>> items) : Attrs(Items(items)) {}
  explicit Attrs(Items items) : items_(std::make_shared<const Items>(std::move(items))) {}

  // Copies of this keep what they have.
  void set(std::string name, Attr value);
  const Attr* find(std::string_view name) const {
    const Items& all = items();
    const auto at = all.find(name);
    return at == all.end() ? nullptr : &at->second;
  }
  // The value; InternalError if absent or of another type: a constructed node always has every attribute of
  // its op.
  int64_t get_int(std::string_view name) const;
  double get_float(std::string_view name) const;
  bool get_bool(std::string_view name) const;
  const std::string& get_str(std::string_view name) const;
  const Ints& get_ints(std::string_view name) const;
  const Floats& get_floats(std::string_view name) const;
  DType get_dtype(std::string_view name) const;
  const Shape& get_dims(std::string_view name) const;

  const Items& items() const;
  bool operator==(const Attrs& other) const { return items_ == other.items_ || items() == other.items(); }

 private:
  std::shared_ptr<const Items> items_;  // null: none
};

}  // namespace aicf
