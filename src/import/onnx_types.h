// Integer types of ONNX that the IR does not have: their values are carried by a wider type that holds them
// all, one element each, and what could leave their range is brought back into it. Of u64 the carrier has the
// bits; what orders, divides or converts it knows so.
#pragma once

#include <cstdint>
#include <optional>

#include "base/dtype.h"

namespace aicf::onnx {

struct CarriedType {
  int data_type;  // TensorProto.DataType
  DType carrier;
  int bits;
  int64_t low, high;
};

// Null if the IR has the type itself, or nothing carries it.
const CarriedType* carried_type(int data_type);
// The IR type of the values: the type itself or what carries it.
std::optional<DType> storage_dtype(int data_type);

}  // namespace aicf::onnx
