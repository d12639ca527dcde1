#include "ir/literal.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>

namespace aicf {
namespace {

constexpr std::string_view kNanPrefix = "nan:0x";

// Length of the well-formed UTF-8 sequence at the start of `text`, 0 if there is none (RFC 3629: no overlong
// forms, no surrogates, nothing above U+10FFFF).
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto tail = [&](size_t i) { return (byte(i) & 0xC0) == 0x80; };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return tail(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    if (lead == 0xE0 && byte(1) < 0xA0) return 0;
    if (lead == 0xED && byte(1) > 0x9F) return 0;
    return tail(1) && tail(2) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    if (lead == 0xF0 && byte(1) < 0x90) return 0;
    if (lead == 0xF4 && byte(1) > 0x8F) return 0;
    return tail(1) && tail(2) && tail(3) ? 4 : 0;
  }
  return 0;
}

void append_hex(std::string& out, uint64_t value, int digits) {
  static constexpr char kDigits[] = "0123456789abcdef";
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += kDigits[(value >> shift) & 15];
}

// T is float or double; `bits` are those of the stored element, which may be narrower than T.
template <typename T>
void append_real(std::string& out, T value, uint64_t bits, int bytes) {
  if (std::isnan(value)) {
    out += kNanPrefix;
    append_hex(out, bits, 2 * bytes);
    return;
  }
  char buffer[40];
  out.append(buffer, std::to_chars(buffer, buffer + sizeof(buffer), value).ptr);
}

template <typename T>
std::optional<T> read_number(std::string_view token) {
  T value{};
  const char *begin = token.data(), *end = begin + token.size();
  const auto [at, error] = std::from_chars(begin, end, value);
  if (error != std::errc() || at != end) return std::nullopt;
  return value;
}

std::optional<uint64_t> read_nan_bits(std::string_view token, int bytes) {
  token.remove_prefix(kNanPrefix.size());
  if (token.size() != static_cast<size_t>(2 * bytes)) return std::nullopt;
  uint64_t bits = 0;
  const auto [at, error] = std::from_chars(token.data(), token.data() + token.size(), bits, 16);
  if (error != std::errc() || at != token.data() + token.size()) return std::nullopt;
  return bits;
}

bool read_float_element(std::string_view token, Array& array, int64_t index) {
  const int bytes = dtype_bytes(array.dtype());
  char* place = array.mutable_data_as<char>() + index * bytes;
  if (token.starts_with(kNanPrefix)) {
    const auto bits = read_nan_bits(token, bytes);
    if (!bits) return false;
    std::memcpy(place, &*bits, static_cast<size_t>(bytes));  // little endian, as all targets are
    return std::isnan(array.get_f64(index));
  }
  if (token.find("nan") != token.npos) return false;
  if (array.dtype() == DType::f32) {
    const auto value = read_number<float>(token);
    if (value) array.mutable_data_as<float>()[index] = *value;
    return value.has_value();
  }
  const auto value = read_number<double>(token);
  if (!value) return false;
  array.set_f64(index, *value);
  return std::isinf(*value) || !std::isinf(array.get_f64(index));
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

void append_quoted(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    const char c = text[0];
    const size_t length = utf8_length(text);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (length == 0 || (length == 1 && (static_cast<unsigned char>(c) < 0x20 || c == 0x7f))) {
      out += "\\x";
      append_hex(out, static_cast<unsigned char>(c), 2);
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  out += '"';
}

void append_float(std::string& out, double value) {
  append_real(out, value, std::bit_cast<uint64_t>(value), 8);
}

void append_element(std::string& out, const Array& array, int64_t index) {
  switch (array.dtype()) {
    case DType::f64:
      return append_float(out, array.data_as<double>()[index]);
    case DType::f32: {
      const float value = array.data_as<float>()[index];
      return append_real(out, value, std::bit_cast<uint32_t>(value), 4);
    }
    case DType::f16: {
      const uint16_t bits = array.data_as<uint16_t>()[index];
      return append_real(out, f16_to_f32(bits), bits, 2);
    }
    case DType::bf16: {
      const uint16_t bits = array.data_as<uint16_t>()[index];
      return append_real(out, bf16_to_f32(bits), bits, 2);
    }
    case DType::boolean:
      out += array.get_i64(index) ? "true" : "false";
      return;
    default:
      out += std::to_string(array.get_i64(index));
      return;
  }
}

bool same_bits(const Attr& a, const Attr& b) {
  const auto same = [](double x, double y) {
    return std::bit_cast<uint64_t>(x) == std::bit_cast<uint64_t>(y);
  };
  if (a.index() != b.index()) return false;
  if (const double* x = std::get_if<double>(&a)) return same(*x, std::get<double>(b));
  if (const Floats* x = std::get_if<Floats>(&a)) {
    const Floats& y = std::get<Floats>(b);
    return std::equal(x->begin(), x->end(), y.begin(), y.end(), same);
  }
  return a == b;
}

std::optional<int64_t> read_int(std::string_view token) { return read_number<int64_t>(token); }

std::optional<double> read_float(std::string_view token) {
  Array holder(DType::f64, {});
  if (!read_float_element(token, holder, 0)) return std::nullopt;
  return holder.get_f64(0);
}

bool read_element(std::string_view token, Array& array, int64_t index) {
  if (is_float(array.dtype())) return read_float_element(token, array, index);
  if (array.dtype() == DType::boolean) {
    array.set_i64(index, token == "true");
    return token == "true" || token == "false";
  }
  const auto value = read_int(token);
  if (!value) return false;
  array.set_i64(index, *value);
  return array.get_i64(index) == *value;
}

}  // namespace aicf
