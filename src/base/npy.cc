#include "base/npy.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/atomic_file.h"
#include "base/mapped_file.h"

namespace aicf {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr int64_t kMaxHeader = 1 << 20, kMaxRank = 32;

// The type code behind the byte order in 'descr'.
struct NpyType {
  std::string_view code;
  DType dtype;
};
constexpr NpyType kTypes[] = {{"f8", DType::f64}, {"f4", DType::f32}, {"f2", DType::f16},
                              {"i8", DType::i64}, {"i4", DType::i32}, {"i2", DType::i16},
                              {"i1", DType::i8},  {"u1", DType::u8},  {"b1", DType::boolean}};

struct NpyHeader {
  DType dtype;
  bool big_endian, fortran;
  std::vector<int64_t> sizes;
};

// Reads the header: a Python dict literal with the keys descr, fortran_order and shape, each once, in any
// order.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  NpyHeader parse() {
    expect('{');
    while (!take('}')) {
      const std::string_view key = quoted();
      expect(':');
      if (key == "descr" && !descr_) {
        descr_ = descr();
      } else if (key == "fortran_order" && !fortran_) {
        fortran_ = truth();
      } else if (key == "shape" && !sizes_) {
        sizes_ = tuple();
      } else {
        fail("the header has a key twice or one that it should not have");
      }
      if (!take(',')) {
        expect('}');
        break;
      }
    }
    skip();
    if (at_ != text_.size()) fail("text follows the header's dictionary");
    if (!descr_ || !fortran_ || !sizes_) fail("the header lacks one of descr, fortran_order and shape");
    return {descr_->first, descr_->second, *fortran_, *std::move(sizes_)};
  }

 private:
  [[noreturn]] void fail(const std::string& why) const { throw bad_array_file(name_, why); }
  void skip() { at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size()); }
  bool take(std::string_view token) {
    skip();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  bool take(char c) { return take(std::string_view(&c, 1)); }
  void expect(char c) {
    if (!take(c)) fail(std::string("the header does not parse: no '") + c + "' where one belongs");
  }

  std::string_view quoted() {
    skip();
    const char quote = at_ < text_.size() ? text_[at_] : ' ';
    const size_t end = quote == '\'' || quote == '"' ? text_.find(quote, at_ + 1) : std::string_view::npos;
    if (end == std::string_view::npos) fail("the header does not parse: a string does not begin or end");
    const std::string_view inside = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return inside;
  }

  std::pair<DType, bool> descr() {
    skip();
    // A list states a record of fields.
    if (text_.substr(at_).starts_with('[')) unsupported(text_.substr(at_, text_.find(']', at_) + 1 - at_));
    const std::string_view whole = quoted();
    for (const NpyType& type : kTypes)
      if (whole.size() == 3 && whole.substr(1) == type.code && std::strchr("<>|=", whole[0]) != nullptr)
        return {type.dtype, whole[0] == '>'};
    unsupported(whole);
  }

  [[noreturn]] void unsupported(std::string_view descr) const {
    throw UserError(ErrorCode::kU_unsupported_dtype, "the array's type is not supported")
        .with_value(name_)
        .with_expected("f2, f4, f8, i1, i2, i4, i8, u1 or b1, in either byte order")
        .with_actual(std::string(descr.substr(0, 40)))
        .with_remedy("convert it in NumPy: numpy.save(file, array.astype('f4'))");
  }

  bool truth() {
    if (take("True")) return true;
    if (!take("False")) fail("fortran_order is neither True nor False");
    return false;
  }

  // (), (2,), (2, 3), and (2L, 3L) as Python 2 wrote it.
  std::vector<int64_t> tuple() {
    expect('(');
    std::vector<int64_t> sizes;
    for (bool comma = true; !take(')'); comma = take(',')) {
      skip();
      const size_t end = std::min(text_.find_first_not_of("0123456789", at_), text_.size());
      if (!comma || end == at_) fail("the shape does not parse");
      if (end - at_ > 18) fail("a size is too large");
      sizes.push_back(std::stoll(std::string(text_.substr(at_, end - at_))));
      at_ = end;
      take('L');
      skip();
      if (sizes.size() == 1 && text_.substr(at_).starts_with(')')) fail("the shape is no tuple");
      if (sizes.size() > kMaxRank) fail("the rank is too large");
    }
    return sizes;
  }

  std::string_view text_;
  const std::string& name_;
  size_t at_ = 0;
  std::optional<std::pair<DType, bool>> descr_;
  std::optional<bool> fortran_;
  std::optional<std::vector<int64_t>> sizes_;
};

// Fortran order stores the first axis fastest.
Array from_fortran(const Array& stored) {
  const std::vector<int64_t>& sizes = stored.sizes();
  Array array = Array::uninitialized(stored.dtype(), sizes);
  const auto bytes = static_cast<size_t>(dtype_bytes(stored.dtype()));
  std::vector<int64_t> index(sizes.size(), 0);
  auto* out = array.mutable_data_as<std::byte>();
  for (int64_t i = 0; i < array.count(); ++i, out += bytes) {
    int64_t source = 0;
    for (size_t axis = sizes.size(); axis-- > 0;) source = source * sizes[axis] + index[axis];
    std::memcpy(out, stored.data_as<std::byte>() + static_cast<size_t>(source) * bytes, bytes);
    for (size_t axis = sizes.size(); axis-- > 0;) {
      if (++index[axis] < sizes[axis]) break;
      index[axis] = 0;
    }
  }
  return array;
}

void swap_bytes(Array& array) {
  const int64_t bytes = dtype_bytes(array.dtype());
  auto* at = array.mutable_data_as<std::byte>();
  for (int64_t i = 0; i < array.count(); ++i, at += bytes) std::reverse(at, at + bytes);
}

// `exact`: nothing may follow the array.
Array read_stream(int64_t size, const std::function<void(std::byte*, int64_t)>& read, const std::string& name,
                  bool exact) {
  unsigned char begin[12];
  const auto take = [&](void* to, int64_t bytes, const char* what) {
    if (bytes > size) throw bad_array_file(name, std::string(what) + " is truncated");
    read(static_cast<std::byte*>(to), bytes);
    size -= bytes;
  };
  if (size < 8) throw bad_array_file(name, "the magic number is missing");
  take(begin, 8, "the magic number");
  if (std::memcmp(begin, kMagic.data(), kMagic.size()) != 0)
    throw bad_array_file(name, "the magic number is missing");
  const int version = begin[6];
  if (version < 1 || version > 3) throw bad_array_file(name, "unknown format version");
  const int length_bytes = version == 1 ? 2 : 4;
  take(begin + 8, length_bytes, "the header");
  int64_t length = 0;
  for (int i = length_bytes; i-- > 0;) length = length << 8 | begin[8 + i];
  if (length > kMaxHeader) throw bad_array_file(name, "the header is larger than 1 MiB");
  std::string text(static_cast<size_t>(std::min(length, size)), ' ');
  take(text.data(), length, "the header");
  const NpyHeader header = HeaderParser(text, name).parse();

  int64_t bytes = dtype_bytes(header.dtype);
  for (const int64_t extent : header.sizes)
    if (__builtin_mul_overflow(bytes, extent, &bytes)) throw bad_array_file(name, "the shape is too large");
  if (bytes > size || (exact && bytes < size))
    throw bad_array_file(name, std::string("the data is ") + (bytes > size ? "truncated: " : "too long: ") +
                                   std::to_string(size) + " bytes for an array of " + std::to_string(bytes));
  Array array = Array::uninitialized(header.dtype, header.sizes);
  if (bytes > 0) take(array.mutable_data(), bytes, "the data");
  if (header.big_endian) swap_bytes(array);
  if (header.dtype == DType::boolean)
    for (int64_t i = 0; i < array.count(); ++i) array.set_i64(i, array.get_i64(i));
  return header.fortran && array.rank() > 1 ? from_fortran(array) : array;
}

}  // namespace

UserError bad_array_file(const std::string& name, const std::string& why) {
  return UserError(ErrorCode::kU_bad_model_file, "not a .npy or .npz file that can be read")
      .with_value(name)
      .with_actual(why);
}

Array read_npy(const std::string& path) {
  const auto file = MappedFile::open(path);
  const std::byte* at = file->data();
  const auto read = [&](std::byte* to, int64_t bytes) {
    if (bytes > 0) std::memcpy(to, at, static_cast<size_t>(bytes));
    at += bytes;
  };
  return read_stream(file->size(), read, path, /*exact=*/false);
}

Array read_npy(int64_t size, const std::function<void(std::byte* to, int64_t bytes)>& read,
               const std::string& name) {
  return read_stream(size, read, name, /*exact=*/true);
}

void write_npy(const std::string& path, const Array& array) {
  std::string descr = "<u2";
  for (const NpyType& type : kTypes)
    if (type.dtype == array.dtype())
      descr = (dtype_bytes(type.dtype) == 1 ? "|" : "<") + std::string(type.code);
  std::string header = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (";
  for (int64_t size : array.sizes()) header += std::to_string(size) + ", ";
  header += "), }";
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 11, ' ');
  header += '\n';
  AtomicFile file(path);
  file.write(std::string(kMagic) + std::string("\x01\x00", 2));
  const unsigned char length[2] = {static_cast<unsigned char>(header.size() & 0xff),
                                   static_cast<unsigned char>(header.size() >> 8)};
  file.write(length, 2);
  file.write(header);
  if (array.bytes() > 0) file.write(array.data(), array.bytes());
  file.commit();
}

}  // namespace aicf
