#include "npy.h"

#include <cstring>
#include <string_view>

#include "base/atomic_file.h"
#include "base/dim.h"
#include "base/error.h"
#include "base/mapped_file.h"

namespace aicf::cli {
namespace {

UserError malformed(const std::string& path, const std::string& why) {
  return UserError(ErrorCode::kU_bad_model_file, "not a .npy or .npz file that can be read")
      .with_value(path)
      .with_actual(why);
}

struct NpyType {
  std::string_view descr;
  DType dtype;
};
constexpr NpyType kTypes[] = {{"<f8", DType::f64}, {"<f4", DType::f32}, {"<f2", DType::f16},
                              {"<i8", DType::i64}, {"<i4", DType::i32}, {"<i2", DType::i16},
                              {"|i1", DType::i8},  {"|u1", DType::u8},  {"|b1", DType::boolean}};

// The text after `key` in the header dictionary.
std::string_view after(std::string_view header, std::string_view key, const std::string& path) {
  const size_t at = header.find(key);
  if (at == std::string_view::npos) throw malformed(path, "the header lacks " + std::string(key));
  std::string_view rest = header.substr(at + key.size());
  const size_t start = rest.find_first_not_of(" :");
  if (start == std::string_view::npos) throw malformed(path, "the header ends early");
  return rest.substr(start);
}

std::vector<int64_t> parse_shape(std::string_view text, const std::string& path) {
  const size_t end = text.find(')');
  if (text.empty() || text[0] != '(' || end == std::string_view::npos)
    throw malformed(path, "the shape does not parse");
  std::vector<int64_t> sizes;
  int64_t value = -1;
  for (char c : text.substr(1, end - 1)) {
    if (c >= '0' && c <= '9') {
      value = checked_add(checked_mul(std::max<int64_t>(value, 0), 10), c - '0');
    } else if (c == ',') {
      if (value >= 0) sizes.push_back(value);
      value = -1;
    } else if (c != ' ') {
      throw malformed(path, "the shape does not parse");
    }
  }
  if (value >= 0) sizes.push_back(value);
  if (sizes.size() > 32) throw malformed(path, "the rank is too large");
  return sizes;
}

// Fortran order stores the first axis fastest.
Array from_fortran(const std::byte* data, DType dtype, const std::vector<int64_t>& sizes) {
  Array array(dtype, sizes);
  const int64_t bytes = dtype_bytes(dtype);
  std::vector<int64_t> index(sizes.size(), 0);
  for (int64_t i = 0; i < array.count(); ++i) {
    int64_t source = 0;
    for (size_t axis = sizes.size(); axis-- > 0;) source = source * sizes[axis] + index[axis];
    std::memcpy(array.mutable_data_as<std::byte>() + i * bytes, data + source * bytes,
                static_cast<size_t>(bytes));
    for (size_t axis = sizes.size(); axis-- > 0;) {
      if (++index[axis] < sizes[axis]) break;
      index[axis] = 0;
    }
  }
  return array;
}

Array parse_npy(std::string_view file, const std::string& path) {
  if (file.size() < 10 || file.substr(0, 6) != "\x93NUMPY")
    throw malformed(path, "the magic number is missing");
  const int major = static_cast<unsigned char>(file[6]);
  const size_t length_bytes = major == 1 ? 2 : 4;
  if (major < 1 || major > 3 || file.size() < 8 + length_bytes)
    throw malformed(path, "unknown format version");
  size_t length = 0;
  for (size_t i = 0; i < length_bytes; ++i)
    length |= static_cast<size_t>(static_cast<unsigned char>(file[8 + i])) << (8 * i);
  if (length > file.size() - 8 - length_bytes) throw malformed(path, "the header is truncated");
  const std::string_view header = file.substr(8 + length_bytes, length);
  const std::string_view descr = after(header, "'descr'", path);
  const std::string_view order = after(header, "'fortran_order'", path);
  const bool fortran = order.starts_with("True");
  if (!fortran && !order.starts_with("False")) throw malformed(path, "the order of axes is not stated");
  const std::vector<int64_t> sizes = parse_shape(after(header, "'shape'", path), path);
  const NpyType* type = nullptr;
  for (const NpyType& t : kTypes)
    if (descr.starts_with("'" + std::string(t.descr) + "'")) type = &t;
  if (type == nullptr)
    throw UserError(ErrorCode::kU_unsupported_dtype, "the array's type is not supported")
        .with_value(path)
        .with_expected("little-endian f2, f4, f8, i1, i2, i4, i8, u1 or b1")
        .with_actual(std::string(descr.substr(0, std::min(descr.find(", 'fortran_order'"), size_t{40}))));
  const std::string_view data = file.substr(8 + length_bytes + length);
  const int64_t bytes = checked_mul(element_count(sizes), dtype_bytes(type->dtype));
  if (static_cast<int64_t>(data.size()) < bytes) throw malformed(path, "the data is truncated");
  const auto* begin = reinterpret_cast<const std::byte*>(data.data());
  if (fortran) return from_fortran(begin, type->dtype, sizes);
  Array array(type->dtype, sizes);
  if (bytes > 0) std::memcpy(array.mutable_data(), begin, static_cast<size_t>(bytes));
  return array;
}

uint32_t little_endian(std::string_view file, size_t at, size_t bytes, const std::string& path) {
  if (at + bytes > file.size()) throw malformed(path, "the archive is truncated");
  uint32_t value = 0;
  for (size_t i = 0; i < bytes; ++i)
    value |= static_cast<uint32_t>(static_cast<unsigned char>(file[at + i])) << (8 * i);
  return value;
}

}  // namespace

Array read_npy(const std::string& path) { return parse_npy(MappedFile::open(path)->text(), path); }

// Walks the central directory of the zip archive (PKWARE appnote 6.3.9, 4.3.12 and 4.3.16).
std::map<std::string, Array> read_npz(const std::string& path) {
  const auto mapped = MappedFile::open(path);
  const std::string_view file = mapped->text();
  const size_t end = file.rfind("PK\x05\x06");
  if (end == std::string_view::npos) throw malformed(path, "no zip directory");
  const uint32_t count = little_endian(file, end + 10, 2, path);
  size_t at = little_endian(file, end + 16, 4, path);
  std::map<std::string, Array> arrays;
  for (uint32_t i = 0; i < count; ++i) {
    if (little_endian(file, at, 4, path) != 0x02014b50) throw malformed(path, "the zip directory is damaged");
    const uint32_t method = little_endian(file, at + 10, 2, path),
                   size = little_endian(file, at + 20, 4, path);
    const uint32_t name_length = little_endian(file, at + 28, 2, path),
                   extra = little_endian(file, at + 30, 2, path);
    const uint32_t comment = little_endian(file, at + 32, 2, path);
    const size_t local = little_endian(file, at + 42, 4, path);
    if (at + 46 + name_length > file.size()) throw malformed(path, "the archive is truncated");
    std::string name(file.substr(at + 46, name_length));
    if (method != 0)
      throw malformed(path, "member '" + name + "' is compressed")
          .with_remedy("save it with numpy.savez instead of numpy.savez_compressed");
    const size_t data =
        local + 30 + little_endian(file, local + 26, 2, path) + little_endian(file, local + 28, 2, path);
    if (data > file.size() || size > file.size() - data)
      throw malformed(path, "member '" + name + "' is truncated");
    if (name.ends_with(".npy")) name.resize(name.size() - 4);
    arrays[name] = parse_npy(file.substr(data, size), path);
    at += 46 + name_length + extra + comment;
  }
  return arrays;
}

void write_npy(const std::string& path, const Array& array) {
  std::string_view descr = "<u2";
  for (const NpyType& t : kTypes)
    if (t.dtype == array.dtype()) descr = t.descr;
  std::string header = "{'descr': '" + std::string(descr) + "', 'fortran_order': False, 'shape': (";
  for (int64_t size : array.sizes()) header += std::to_string(size) + ", ";
  header += "), }";
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 11, ' ');
  header += '\n';
  AtomicFile file(path);
  file.write(std::string_view("\x93NUMPY\x01\x00", 8));
  const unsigned char length[2] = {static_cast<unsigned char>(header.size() & 0xff),
                                   static_cast<unsigned char>(header.size() >> 8)};
  file.write(length, 2);
  file.write(header);
  if (array.bytes() > 0) file.write(array.data(), array.bytes());
  file.commit();
}

}  // namespace aicf::cli
