#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>

#include "base/error.h"
#include "base/mapped_file.h"
#include "import/onnx_types.h"
#include "import/onnx_wire.h"

namespace aicf::onnx {
namespace {

constexpr std::string_view kDataTypeNames[] = {
    "UNDEFINED", "FLOAT",      "UINT8",      "INT8",         "UINT16",         "INT16",      "INT32",
    "INT64",     "STRING",     "BOOL",       "FLOAT16",      "DOUBLE",         "UINT32",     "UINT64",
    "COMPLEX64", "COMPLEX128", "BFLOAT16",   "FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ",
    "UINT4",     "INT4",       "FLOAT4E2M1", "FLOAT8E8M0",   "UINT2",          "INT2"};

[[noreturn]] void fail(const TensorProto& tensor, const std::string& what) {
  throw UserError(ErrorCode::kU_bad_model_file, "tensor '" + tensor.name + "' " + what);
}

int64_t parse_number(const TensorProto& tensor, const std::string& key, int64_t absent) {
  auto at = tensor.external_data.find(key);
  if (at == tensor.external_data.end()) return absent;
  int64_t value = 0;
  for (char c : at->second) {
    if (c < '0' || c > '9' || value > (std::numeric_limits<int64_t>::max() - 9) / 10)
      fail(tensor, "has an external " + key + " that is not a number: '" + at->second + "'");
    value = value * 10 + (c - '0');
  }
  return value;
}

// The file named inside the model, if it lies in the model's folder also after symbolic links are followed.
std::string confined_path(const TensorProto& tensor, const std::string& folder) {
  namespace fs = std::filesystem;
  auto at = tensor.external_data.find("location");
  if (at == tensor.external_data.end() || at->second.empty())
    fail(tensor, "names no location for its external data");
  auto refuse = [&]() -> UserError {
    return UserError(ErrorCode::kU_path_escape,
                     "tensor '" + tensor.name + "' refers to a file outside the model's folder")
        .with_value(at->second)
        .with_expected("a relative path inside the model's folder")
        .with_remedy("put the data file beside the model and export again");
  };
  if (folder.empty())
    throw UserError(ErrorCode::kU_bad_model_file,
                    "tensor '" + tensor.name + "' has external data, but the model has no folder")
        .with_value(at->second)
        .with_remedy("import the model from its file instead of from bytes");
  const fs::path location(at->second);
  if (location.is_absolute() || at->second.find('\0') != std::string::npos) throw refuse();
  for (const fs::path& part : location)
    if (part == "..") throw refuse();
  std::error_code error;
  const fs::path root = fs::weakly_canonical(folder, error);
  const fs::path full = error ? fs::path() : fs::weakly_canonical(root / location, error);
  if (error) throw refuse();
  const auto [end, unused] = std::mismatch(root.begin(), root.end(), full.begin(), full.end());
  if (end != root.end()) throw refuse();
  return full.string();
}

Array from_bytes(const TensorProto& tensor, DType dtype, std::string_view bytes,
                 const std::shared_ptr<const void>& owner) {
  const int64_t expected = checked_mul(element_count(tensor.dims), dtype_bytes(dtype));
  if (static_cast<int64_t>(bytes.size()) != expected)
    fail(tensor, "has " + std::to_string(bytes.size()) + " data bytes where its shape needs " +
                     std::to_string(expected));
  if (owner && reinterpret_cast<uintptr_t>(bytes.data()) % static_cast<uintptr_t>(dtype_bytes(dtype)) == 0)
    return Array::view(dtype, tensor.dims, bytes.data(), owner);
  Array array(dtype, tensor.dims);
  if (expected > 0) std::memcpy(array.mutable_data(), bytes.data(), bytes.size());
  return array;
}

// A file that is too short is most often one that was not copied whole, or the few lines that stand for it.
std::shared_ptr<const MappedFile> external_bytes(const TensorProto& tensor, const std::string& folder) {
  const std::string path = confined_path(tensor, folder);
  return MappedFile::open_part(path, [&](int64_t size) {
    const int64_t offset = parse_number(tensor, "offset", 0);
    const int64_t length = parse_number(tensor, "length", std::max<int64_t>(size - offset, 0));
    if (offset > size || length > size - offset)
      throw UserError(ErrorCode::kU_bad_model_file,
                      "tensor '" + tensor.name + "' ends behind the end of its external file")
          .with_value(path)
          .with_expected(std::to_string(length) + " bytes from byte " + std::to_string(offset))
          .with_actual("a file of " + std::to_string(size) + " bytes")
          .with_remedy("put the whole data file beside the model: it was cut off, or is of another export");
    return MappedFile::FileRange{offset, length};
  });
}

// --- types that the IR carries: numbers of `bits` bits one after the other, the lowest bits first.

Array unpacked(const TensorProto& tensor, const CarriedType& type, std::string_view bytes) {
  const int64_t count = element_count(tensor.dims), bits = type.bits;
  const int64_t expected = checked_mul(count, bits) / 8 + (count * bits % 8 != 0 ? 1 : 0);
  if (static_cast<int64_t>(bytes.size()) != expected)
    fail(tensor, "has " + std::to_string(bytes.size()) + " data bytes where its shape needs " +
                     std::to_string(expected));
  Array array(type.carrier, tensor.dims);
  const uint64_t mask = ~uint64_t{0} >> (64 - bits);
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(i * bits / 8);
    uint64_t word = 0;
    for (size_t k = 0; k < static_cast<size_t>((bits + 7) / 8); ++k)
      word |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[at + k])) << (8 * k);
    word = (word >> (i * bits % 8)) & mask;
    // Above the highest value the bits are those of a negative one.
    const bool negative = word > static_cast<uint64_t>(type.high);
    array.set_i64(i, static_cast<int64_t>(negative ? word | ~mask : word));
  }
  return array;
}

// Each value is one element, or one byte of several.
template <typename T>
std::string bytes_of(const std::vector<T>& values, int bits) {
  std::string bytes;
  for (const T value : values)
    for (int k = 0; k < (bits + 7) / 8; ++k)
      bytes += static_cast<char>(static_cast<uint64_t>(value) >> (8 * k) & 0xff);
  return bytes;
}

Array carried_array(const TensorProto& tensor, const CarriedType& type, const std::string& folder) {
  if (tensor.external) return unpacked(tensor, type, external_bytes(tensor, folder)->text());
  if (tensor.has_raw) return unpacked(tensor, type, tensor.raw);
  return unpacked(tensor, type,
                  type.bits >= 32 ? bytes_of(tensor.uint64s, type.bits) : bytes_of(tensor.int32s, type.bits));
}

template <typename T>
Array from_values(const TensorProto& tensor, DType dtype, const std::vector<T>& values) {
  // Checked before anything is allocated: the shape is untrusted and may be huge.
  if (static_cast<int64_t>(values.size()) != element_count(tensor.dims))
    fail(tensor, "has " + std::to_string(values.size()) + " values where its shape needs " +
                     std::to_string(element_count(tensor.dims)));
  if (dtype == DType::f16 || dtype == DType::bf16) {  // bit patterns carried in integers
    Array array(dtype, tensor.dims);
    for (size_t i = 0; i < values.size(); ++i)
      array.mutable_data_as<uint16_t>()[i] = static_cast<uint16_t>(static_cast<int64_t>(values[i]));
    return array;
  }
  return Array::from<T>(dtype, tensor.dims, values);
}

// Where each value stands in the dense tensor; every place once and in order, as the format asks.
std::vector<int64_t> sparse_places(const TensorProto& tensor, const Array& indices) {
  const std::vector<int64_t>& shape = indices.sizes();
  const bool by_axis = shape.size() == 2;
  const auto rank = static_cast<int64_t>(tensor.dims.size());
  if (indices.dtype() != DType::i64 || shape.empty() || shape.size() > 2 || (by_axis && shape[1] != rank))
    fail(tensor, "has indices of a shape or type that the format does not have");
  const int64_t count = element_count(tensor.dims);
  std::vector<int64_t> places(static_cast<size_t>(shape[0]));
  for (int64_t i = 0; i < shape[0]; ++i) {
    int64_t place = by_axis ? 0 : indices.get_i64(i);
    bool inside = place >= 0 && place < count;
    for (int64_t axis = 0; by_axis && axis < rank; ++axis) {
      const int64_t size = tensor.dims[static_cast<size_t>(axis)], at = indices.get_i64(i * rank + axis);
      inside = inside && at >= 0 && at < size;
      if (inside) place = place * size + at;
    }
    if (!inside || (i > 0 && places[static_cast<size_t>(i - 1)] >= place))
      fail(tensor, "has sparse indices outside its shape, or not in order");
    places[static_cast<size_t>(i)] = place;
  }
  return places;
}

Array from_sparse(const TensorProto& tensor, DType dtype, const std::shared_ptr<const void>& owner,
                  const std::string& folder) {
  const Array values = to_array(*tensor.sparse_values, owner, folder);
  const std::vector<int64_t> places = sparse_places(tensor, to_array(*tensor.sparse_indices, owner, folder));
  if (values.sizes().size() != 1 || values.count() != static_cast<int64_t>(places.size()))
    fail(tensor, "has another number of values than of indices");
  Array dense(dtype, tensor.dims);
  const auto width = static_cast<size_t>(dtype_bytes(dtype));
  for (size_t i = 0; i < places.size(); ++i)
    std::memcpy(static_cast<std::byte*>(dense.mutable_data()) + static_cast<size_t>(places[i]) * width,
                static_cast<const std::byte*>(values.data()) + i * width, width);
  return dense;
}

}  // namespace

std::string data_type_name(int data_type) {
  if (data_type < 0 || data_type >= static_cast<int>(std::size(kDataTypeNames)))
    return std::to_string(data_type);
  return std::string(kDataTypeNames[data_type]);
}

Array to_array(const TensorProto& tensor, const std::shared_ptr<const void>& owner,
               const std::string& folder) {
  const auto dtype = storage_dtype(tensor.data_type);
  if (!dtype)
    throw UserError(ErrorCode::kU_unsupported_dtype,
                    "tensor '" + tensor.name + "' has an unsupported data type")
        .with_actual(data_type_name(tensor.data_type));
  for (int64_t dim : tensor.dims)
    if (dim < 0) fail(tensor, "has a negative size");
  if (tensor.sparse_values != nullptr) return from_sparse(tensor, *dtype, owner, folder);
  if (const CarriedType* type = carried_type(tensor.data_type)) return carried_array(tensor, *type, folder);
  if (tensor.external) {
    const auto file = external_bytes(tensor, folder);
    return from_bytes(tensor, *dtype, file->text(), file);
  }
  if (tensor.has_raw) return from_bytes(tensor, *dtype, tensor.raw, owner);
  switch (*dtype) {
    case DType::f32:
      return from_values(tensor, *dtype, tensor.floats);
    case DType::f64:
      return from_values(tensor, *dtype, tensor.doubles);
    case DType::i64:
      return from_values(tensor, *dtype, tensor.int64s);
    default:
      return from_values(tensor, *dtype, tensor.int32s);
  }
}

}  // namespace aicf::onnx
