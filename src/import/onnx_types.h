// Types of ONNX that the IR does not have: integers are carried by a wider type that holds them
// all, one element each, and what could leave their range is brought back into it. Of u64 the carrier has the
// bits; what orders, divides or converts it knows so.
#pragma once

#include <cstdint>
#include <optional>

#include "base/dtype.h"

namespace aicf::onnx {

// A float of at most 8 bits: sign, exponent, mantissa from the highest bit on.
struct SmallFloat {
  int exponent_bits, mantissa_bits, bias;
  int largest;   // the bits of the largest finite number
  int infinity;  // what lies above it: infinity, or NaN where there is none; 0 if nothing does
  int nan;       // -1 if there is none: a negative zero then
  bool has_sign = true;
};

struct CarriedType {
  int data_type;  // TensorProto.DataType
  DType carrier;
  int bits;
  int64_t low, high;
  const SmallFloat* format = nullptr;  // of floats, whose bits the carrier has
};

// Null if the IR has the type itself, or nothing carries it.
const CarriedType* carried_type(int data_type);
// The IR type of the values: the type itself or what carries it.
std::optional<DType> storage_dtype(int data_type);

}  // namespace aicf::onnx
