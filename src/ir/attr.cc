#include "ir/attr.h"

#include "base/error.h"

namespace aicf {
namespace {

template <typename T>
const T& get(const Attrs& attrs, std::string_view name) {
  const Attr* attr = attrs.find(name);
  AICF_CHECK(attr, "a node lacks its attribute '" + std::string(name) + "'");
  const T* value = std::get_if<T>(attr);
  AICF_CHECK(value,
             "attribute '" + std::string(name) + "' is read with a type that ops.def does not give it");
  return *value;
}

}  // namespace

const Attrs::Items& Attrs::items() const {
  static const Items kNone;
  return items_ ? *items_ : kNone;
}

void Attrs::set(std::string name, Attr value) {
  Items changed = items();
  changed.insert_or_assign(std::move(name), std::move(value));
  items_ = std::make_shared<const Items>(std::move(changed));
}

int64_t Attrs::get_int(std::string_view name) const { return get<int64_t>(*this, name); }
double Attrs::get_float(std::string_view name) const { return get<double>(*this, name); }
bool Attrs::get_bool(std::string_view name) const { return get<bool>(*this, name); }
const std::string& Attrs::get_str(std::string_view name) const { return get<std::string>(*this, name); }
const Ints& Attrs::get_ints(std::string_view name) const { return get<Ints>(*this, name); }
const Floats& Attrs::get_floats(std::string_view name) const { return get<Floats>(*this, name); }
DType Attrs::get_dtype(std::string_view name) const { return get<DType>(*this, name); }
const Shape& Attrs::get_dims(std::string_view name) const { return get<Shape>(*this, name); }

}  // namespace aicf
