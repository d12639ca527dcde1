#include "ir/literal_parser.h"

#include <cstring>

#include "base/error.h"
#include "ir/literal.h"

namespace aicf {
namespace {

Array of_type(const Array& bytes, DType dtype, const std::vector<int64_t>& sizes) {
  if (bytes.dtype() == dtype) return bytes.reshaped(sizes);
  if (reinterpret_cast<uintptr_t>(bytes.data()) % static_cast<size_t>(dtype_bytes(dtype)) == 0)
    return Array::view(dtype, sizes, bytes.data(), std::make_shared<const Array>(bytes));
  Array copy(dtype, sizes);
  std::memcpy(copy.mutable_data(), bytes.data(), static_cast<size_t>(bytes.bytes()));
  return copy;
}

}  // namespace

template <typename T, typename Read>
std::vector<T> LiteralParser::list(Read read) {
  std::vector<T> items;
  in_.expect('[');
  if (in_.take(']')) return items;
  do items.push_back(read());
  while (in_.take(','));
  in_.expect(']');
  return items;
}

std::vector<int64_t> LiteralParser::integers() {
  return list<int64_t>([&] { return integer(); });
}

Attrs LiteralParser::attributes(const OpInfo& info) {
  Attrs attrs;
  in_.expect('{');
  do {
    const size_t at = in_.position();
    std::string name(in_.word());
    const AttrInfo* declared = info.attribute(name);
    if (!declared)
      in_.fail_at(at, "op " + std::string(info.name) + " has no attribute of this name", "", name);
    if (attrs.find(name)) in_.fail_at(at, "this attribute is given twice", "", name);
    in_.expect('=');
    attrs.set(std::move(name), attribute(declared->type));
  } while (in_.take(','));
  in_.expect('}');
  return attrs;
}

Attr LiteralParser::attribute(AttrType type) {
  switch (type) {
    case AttrType::kInt:
      return integer();
    case AttrType::kFloat:
      return real();
    case AttrType::kBool:
      return boolean();
    case AttrType::kStr:
      return in_.quoted();
    case AttrType::kInts:
      return integers();
    case AttrType::kFloats:
      return list<double>([&] { return real(); });
    case AttrType::kDType:
      return dtype();
    case AttrType::kDims:
      return in_.dims();
  }
  AICF_CHECK(false, "unknown attribute type");
}

int64_t LiteralParser::integer() {
  const size_t at = in_.position();
  const auto value = read_int(in_.integer_token());
  if (!value) in_.fail_at(at, "not a 64-bit integer");
  return *value;
}

double LiteralParser::real() {
  const size_t at = in_.position();
  const auto value = read_float(in_.scalar());
  if (!value) in_.fail_at(at, "not a number that fits in 64 bits");
  return *value;
}

bool LiteralParser::boolean() {
  if (in_.take_word("true")) return true;
  in_.expect_word("false");
  return false;
}

DType LiteralParser::dtype() {
  const size_t at = in_.position();
  const std::string_view name = in_.word();
  const auto found = dtype_from_name(name);
  if (!found) in_.fail_at(at, "no dtype of this name exists", "", std::string(name));
  return *found;
}

TensorType LiteralParser::type() {
  const DType element = dtype();
  return {element, in_.dims()};
}

Array LiteralParser::contents(size_t at, const TensorType& declared) {
  std::vector<int64_t> sizes;
  for (const Dim& dim : declared.shape) {
    if (!dim.is_constant() || dim.constant_part() < 0) in_.fail_at(at, "the sizes of a constant are numbers");
    sizes.push_back(dim.constant_part());
  }
  return in_.take_word("blob") ? blob(declared.dtype, sizes) : inline_elements(at, declared.dtype, sizes);
}

Array LiteralParser::inline_elements(size_t at, DType dtype, const std::vector<int64_t>& sizes) {
  const int64_t count = in_.checked(at, [&] { return element_count(sizes); });
  if (count > kInlineElements)
    in_.fail_at(at, "too many elements to stand inline", "blob 0x<hash>",
                std::to_string(count) + " elements");
  Array array(dtype, sizes);
  in_.expect('[');
  for (int64_t i = 0; i < count; ++i) {
    if (i) in_.expect(',');
    const size_t element_at = in_.position();
    const std::string_view token = in_.scalar();
    if (!read_element(token, array, i))
      in_.fail_at(element_at, "not an element of this type", std::string(dtype_name(dtype)),
                  std::string(token));
  }
  in_.expect(']');
  return array;
}

Array LiteralParser::blob(DType dtype, const std::vector<int64_t>& sizes) {
  const size_t at = in_.position();
  const std::string_view token = in_.scalar();
  const auto hash = token.starts_with("0x") ? hash_from_text(token.substr(2)) : std::nullopt;
  if (!hash) in_.fail_at(at, "not a content hash", "0x and 32 hex digits", std::string(token.substr(0, 40)));
  const Array bytes = blobs_ ? blobs_(*hash) : Array();
  if (bytes.data() == nullptr)
    in_.fail_at(at, "the contents of this constant are not at hand", "", std::string(token));
  const int64_t expected =
      in_.checked(at, [&] { return checked_mul(element_count(sizes), dtype_bytes(dtype)); });
  if (bytes.bytes() != expected)
    in_.fail_at(at, "the contents do not fit the type", std::to_string(expected) + " bytes",
                std::to_string(bytes.bytes()) + " bytes");
  if (hash_content(bytes) != *hash) in_.fail_at(at, "the contents do not have this hash");
  return of_type(bytes, dtype, sizes);
}

}  // namespace aicf
