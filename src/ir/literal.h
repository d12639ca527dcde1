// Literals of the text form: quoted strings and numbers. Every bit survives: floats print as the shortest
// decimal that reads back to the same value, NaN as nan:0x<all bits>, bytes that are not UTF-8 as \xNN.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/array.h"
#include "ir/attr.h"

namespace aicf {

// RFC 3629.
bool is_utf8(std::string_view text);

void append_quoted(std::string& out, std::string_view text);
void append_float(std::string& out, double value);
void append_element(std::string& out, const Array& array, int64_t index);

// Equality of values that tells -0 from 0 and finds a NaN equal to itself.
bool same_bits(const Attr& a, const Attr& b);

// Each gives nothing or false if the token is no such literal or does not fit the type.
std::optional<int64_t> read_int(std::string_view token);
std::optional<double> read_float(std::string_view token);
bool read_element(std::string_view token, Array& array, int64_t index);

}  // namespace aicf
