// Fields of a protobuf message, read into members. protozero throws on malformed input but only asserts that
// a field has the wire type it is read as: every function here refuses a field of another wire type, which
// for_each_field then skips.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <protozero/pbf_reader.hpp>

namespace aicf::onnx {

using protozero::pbf_reader;
using protozero::pbf_wire_type;

inline std::string_view view_of(pbf_reader& reader) {
  const protozero::data_view view = reader.get_view();
  return {view.data(), view.size()};
}

// Calls `field` for every field; one that it does not take is skipped.
template <typename Field>
void for_each_field(pbf_reader reader, Field field) {
  while (reader.next())
    if (!field(reader)) reader.skip();
}

inline bool is_bytes(const pbf_reader& r) { return r.wire_type() == pbf_wire_type::length_delimited; }
inline bool is_varint(const pbf_reader& r) { return r.wire_type() == pbf_wire_type::varint; }

inline bool take_bytes(pbf_reader& reader, std::string& to) {
  if (!is_bytes(reader)) return false;
  to = std::string(view_of(reader));
  return true;
}
// Names, which must be text: bad_model_file.
void require_text(const std::string& name);
inline bool take_string(pbf_reader& reader, std::string& to) {
  if (!take_bytes(reader, to)) return false;
  require_text(to);
  return true;
}
inline bool take_int(pbf_reader& reader, int64_t& to) {
  if (!is_varint(reader)) return false;
  to = reader.get_int64();
  return true;
}

template <typename T>
bool take_enum(pbf_reader& reader, T& to) {
  if (!is_varint(reader)) return false;
  to = static_cast<T>(reader.get_int32());
  return true;
}
inline bool append_string(pbf_reader& reader, std::vector<std::string>& to) {
  return is_bytes(reader) && take_string(reader, to.emplace_back());
}

inline bool append_bytes(pbf_reader& reader, std::vector<std::string>& to) {
  return is_bytes(reader) && take_bytes(reader, to.emplace_back());
}

// Repeated numbers may come packed or one by one, even mixed.
template <typename T, typename Range>
bool append_numbers(pbf_reader& reader, pbf_wire_type single, T (pbf_reader::*get)(),
                    Range (pbf_reader::*get_packed)(), std::vector<T>& to) {
  if (is_bytes(reader))
    for (T value : (reader.*get_packed)()) to.push_back(value);
  else if (reader.wire_type() == single)
    to.push_back((reader.*get)());
  else
    return false;
  return true;
}
inline bool append_ints(pbf_reader& reader, std::vector<int64_t>& to) {
  return append_numbers(reader, pbf_wire_type::varint, &pbf_reader::get_int64, &pbf_reader::get_packed_int64,
                        to);
}
inline bool append_floats(pbf_reader& reader, std::vector<float>& to) {
  return append_numbers(reader, pbf_wire_type::fixed32, &pbf_reader::get_float, &pbf_reader::get_packed_float,
                        to);
}

}  // namespace aicf::onnx
