// The values that all parts of a plan are made of, as JSON and back: sizes, dtypes, floats, windows. What is
// read is untrusted: anything but what writing produces is a UserError bad_artifact, or nlohmann's exception
// where a member or a type is missing, which plan_from_json turns into one.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "plan/plan.h"

namespace aicf {

// ordered_json keeps the members as written, so equal plans give equal bytes.
using Json = nlohmann::ordered_json;
// Reading needs no order, and looking members up by a tree bounds what an object of a million members can
// cost.
using ParsedJson = nlohmann::json;

UserError malformed_plan(const std::string& why);

// Whole numbers of 63 bits only: a fraction or a larger number would be converted to something else without a
// word.
int64_t integer_from(const ParsedJson& json);

template <typename T>
T number_from(const ParsedJson& json) {
  const auto value = integer_from(json);
  if (value < std::numeric_limits<T>::min() || value > std::numeric_limits<T>::max())
    throw malformed_plan("a number is out of range");
  return static_cast<T>(value);
}
std::vector<int32_t> numbers_from(const ParsedJson& json);

// Floats travel as their bit patterns: JSON has no NaN or infinity.
Json float_json(double value);
double float_from(const ParsedJson& json);
Json floats_json(const std::vector<double>& values);
std::vector<double> floats_from(const ParsedJson& json);

Json dtype_json(DType dtype);
DType dtype_from(const ParsedJson& json);

// A number, or an expression as text.
Json dim_json(const Dim& dim);
Dim dim_from(const ParsedJson& json);
Json dims_json(const std::vector<Dim>& dims);
std::vector<Dim> dims_from(const ParsedJson& json);

// Windows of buffers.
Json refs_json(const std::vector<TensorRef>& refs);
std::vector<TensorRef> refs_from(const ParsedJson& json);

}  // namespace aicf
