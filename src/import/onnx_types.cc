#include "import/onnx_types.h"

#include <algorithm>
#include <iterator>

namespace aicf::onnx {
namespace {

constexpr CarriedType kCarried[] = {
    {4, DType::i32, 16, 0, 65535},               // UINT16
    {12, DType::i64, 32, 0, 4294967295},         // UINT32
    {13, DType::i64, 64, INT64_MIN, INT64_MAX},  // UINT64, by its bits
    {21, DType::u8, 4, 0, 15},                   // UINT4
    {22, DType::i8, 4, -8, 7},                   // INT4
    {25, DType::u8, 2, 0, 3},                    // UINT2
    {26, DType::i8, 2, -2, 1},                   // INT2
};

}  // namespace

const CarriedType* carried_type(int data_type) {
  const auto row = std::find_if(std::begin(kCarried), std::end(kCarried),
                                [&](const CarriedType& type) { return type.data_type == data_type; });
  return row == std::end(kCarried) ? nullptr : &*row;
}

std::optional<DType> storage_dtype(int data_type) {
  if (const CarriedType* type = carried_type(data_type)) return type->carrier;
  return dtype_from_onnx(data_type);
}

}  // namespace aicf::onnx
