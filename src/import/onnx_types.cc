#include "import/onnx_types.h"

#include <algorithm>
#include <iterator>

namespace aicf::onnx {
namespace {

constexpr SmallFloat kE4M3FN = {4, 3, 7, 0x7e, 0x7f, 0x7f}, kE4M3FNUZ = {4, 3, 8, 0x7f, 0x80, 0x80},
                     kE5M2 = {5, 2, 15, 0x7b, 0x7c, 0x7e}, kE5M2FNUZ = {5, 2, 16, 0x7f, 0x80, 0x80},
                     kE2M1 = {2, 1, 1, 0x7, 0, -1}, kE8M0 = {8, 0, 127, 0xfe, 0xff, 0xff, false};

constexpr CarriedType kCarried[] = {
    {4, DType::i32, 16, 0, 65535},               // UINT16
    {12, DType::i64, 32, 0, 4294967295},         // UINT32
    {13, DType::i64, 64, INT64_MIN, INT64_MAX},  // UINT64, by its bits
    {21, DType::u8, 4, 0, 15},                   // UINT4
    {22, DType::i8, 4, -8, 7},                   // INT4
    {25, DType::u8, 2, 0, 3},                    // UINT2
    {26, DType::i8, 2, -2, 1},                   // INT2
    {17, DType::u8, 8, 0, 255, &kE4M3FN},        // FLOAT8E4M3FN
    {18, DType::u8, 8, 0, 255, &kE4M3FNUZ},
    {19, DType::u8, 8, 0, 255, &kE5M2},
    {20, DType::u8, 8, 0, 255, &kE5M2FNUZ},
    {23, DType::u8, 4, 0, 15, &kE2M1},  // FLOAT4E2M1
    {24, DType::u8, 8, 0, 255, &kE8M0},
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
