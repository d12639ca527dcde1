// Op attributes: plain comparable data, so that CSE, hashing and cache keys need nothing special. A node's
// attributes are a sorted map from name to value; which names an op has, and their types and defaults, is
// declared in ops.def.
#pragma once

#include <cstdint>
#include <map>
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
  Attrs() = default;
  Attrs(std::initializer_list<std::pair<const std::string, Attr>> items) : items_(items) {}

  void set(std::string name, Attr value) { items_.insert_or_assign(std::move(name), std::move(value)); }
  const Attr* find(std::string_view name) const {
    auto at = items_.find(name);
    return at == items_.end() ? nullptr : &at->second;
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

  const std::map<std::string, Attr, std::less<>>& items() const { return items_; }
  bool operator==(const Attrs&) const = default;

 private:
  std::map<std::string, Attr, std::less<>> items_;
};

}  // namespace aicf
