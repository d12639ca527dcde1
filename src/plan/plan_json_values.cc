#include "plan/plan_json_values.h"

#include <cstring>

namespace aicf {

UserError malformed_plan(const std::string& why) {
  return UserError(ErrorCode::kU_bad_artifact, "the plan section is malformed")
      .with_actual(why)
      .with_remedy("compile the model again");
}

Json dim_json(const Dim& dim) {
  return dim.is_constant() ? Json(dim.constant_part()) : Json(dim.to_string());
}

int64_t integer_from(const ParsedJson& json) {
  if (!json.is_number_integer() || (json.is_number_unsigned() && json.get<uint64_t>() > INT64_MAX))
    throw malformed_plan("a number is not a whole number of 63 bits");
  return json.get<int64_t>();
}

// A model's longest expressions have a few hundred characters; the work of reading one grows faster than its
// length.
constexpr size_t kMaxExpression = 16384;

Dim dim_from(const ParsedJson& json) {
  if (!json.is_string()) return Dim(integer_from(json));
  const std::string& text = json.get_ref<const std::string&>();
  if (text.size() > kMaxExpression) throw malformed_plan("a size expression is too long");
  return Dim::parse(text);
}

Json dims_json(const std::vector<Dim>& dims) {
  Json list = Json::array();
  for (const Dim& dim : dims) list.push_back(dim_json(dim));
  return list;
}

std::vector<Dim> dims_from(const ParsedJson& json) {
  std::vector<Dim> dims;
  for (const ParsedJson& item : json) dims.push_back(dim_from(item));
  return dims;
}

Json dtype_json(DType dtype) { return std::string(dtype_name(dtype)); }

DType dtype_from(const ParsedJson& json) {
  const auto dtype = dtype_from_name(json.get_ref<const std::string&>());
  if (!dtype) throw malformed_plan("unknown dtype");
  return *dtype;
}

Json ref_json(const TensorRef& ref) {
  return {{"buffer", ref.buffer},
          {"dtype", dtype_json(ref.dtype)},
          {"offset", dim_json(ref.offset)},
          {"sizes", dims_json(ref.sizes)},
          {"strides", dims_json(ref.strides)}};
}

TensorRef ref_from(const ParsedJson& json) {
  return {dtype_from(json.at("dtype")), dim_from(json.at("offset")), dims_from(json.at("sizes")),
          dims_from(json.at("strides")), number_from<int32_t>(json.at("buffer"))};
}

Json refs_json(const std::vector<TensorRef>& refs) {
  Json list = Json::array();
  for (const TensorRef& ref : refs) list.push_back(ref_json(ref));
  return list;
}

std::vector<TensorRef> refs_from(const ParsedJson& json) {
  std::vector<TensorRef> refs;
  for (const ParsedJson& item : json) refs.push_back(ref_from(item));
  return refs;
}

Json float_json(double value) {
  int64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

double float_from(const ParsedJson& json) {
  const auto bits = integer_from(json);
  double value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

Json floats_json(const std::vector<double>& values) {
  Json json = Json::array();
  for (double v : values) json.push_back(float_json(v));
  return json;
}

std::vector<double> floats_from(const ParsedJson& json) {
  std::vector<double> values;
  for (const ParsedJson& item : json) values.push_back(float_from(item));
  return values;
}

std::vector<int32_t> numbers_from(const ParsedJson& json) {
  std::vector<int32_t> values;
  for (const ParsedJson& item : json) values.push_back(number_from<int32_t>(item));
  return values;
}

}  // namespace aicf
