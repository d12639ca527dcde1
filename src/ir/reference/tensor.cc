#include "ir/reference/tensor.h"

#include <cmath>
#include <limits>

#include "base/dim.h"

namespace aicf::reference {

RefTensor make_tensor(DType dtype, Index sizes) {
  const auto count = static_cast<size_t>(element_count(sizes));
  RefTensor tensor{dtype, std::move(sizes), {}, {}};
  if (tensor.is_float())
    tensor.f.assign(count, 0.0);
  else
    tensor.i.assign(count, 0);
  return tensor;
}

RefTensor from_array(const Array& array, DType dtype) {
  RefTensor tensor = make_tensor(dtype, array.sizes());
  AICF_CHECK(is_float(dtype) == is_float(array.dtype()), "an array keeps its class");
  for (int64_t k = 0; k < array.count(); ++k) {
    if (tensor.is_float())
      tensor.f[static_cast<size_t>(k)] = array.get_f64(k);
    else
      tensor.i[static_cast<size_t>(k)] = array.get_i64(k);
  }
  return tensor;
}

Array to_array(const RefTensor& tensor, bool f64_floats) {
  Array array(tensor.is_float() && f64_floats ? DType::f64 : tensor.dtype, tensor.sizes);
  for (int64_t k = 0; k < array.count(); ++k) {
    if (tensor.is_float())
      array.set_f64(k, tensor.f[static_cast<size_t>(k)]);
    else
      array.set_i64(k, tensor.i[static_cast<size_t>(k)]);
  }
  return array;
}

double round_to(DType dtype, double value) {
  switch (dtype) {
    case DType::f32:
      return static_cast<float>(value);
    case DType::f16:
      return f16_to_f32(f64_to_f16(value));
    case DType::bf16:
      return bf16_to_f32(f64_to_bf16(value));
    default:
      return value;
  }
}

int64_t wrap_to(DType dtype, int64_t value) {
  switch (dtype) {
    case DType::i32:
      return static_cast<int32_t>(value);
    case DType::i16:
      return static_cast<int16_t>(value);
    case DType::i8:
      return static_cast<int8_t>(value);
    case DType::u8:
      return static_cast<uint8_t>(value);
    case DType::boolean:
      return value != 0;
    default:
      return value;
  }
}

void normalize(RefTensor& tensor, bool round_floats) {
  if (tensor.is_float() && round_floats)
    for (double& value : tensor.f) value = round_to(tensor.dtype, value);
  for (int64_t& value : tensor.i) value = wrap_to(tensor.dtype, value);
}

int64_t lowest(DType dtype) {
  switch (dtype) {
    case DType::i64:
      return std::numeric_limits<int64_t>::min();
    case DType::i32:
      return std::numeric_limits<int32_t>::min();
    case DType::i16:
      return std::numeric_limits<int16_t>::min();
    case DType::i8:
      return std::numeric_limits<int8_t>::min();
    default:
      return 0;
  }
}

int64_t highest(DType dtype) {
  switch (dtype) {
    case DType::i64:
      return std::numeric_limits<int64_t>::max();
    case DType::i32:
      return std::numeric_limits<int32_t>::max();
    case DType::i16:
      return std::numeric_limits<int16_t>::max();
    case DType::i8:
      return std::numeric_limits<int8_t>::max();
    case DType::u8:
      return std::numeric_limits<uint8_t>::max();
    default:
      return 1;
  }
}

double max_of(double x, double y) {
  if (std::isnan(x) || std::isnan(y)) return std::numeric_limits<double>::quiet_NaN();
  if (x == y) return std::signbit(x) ? y : x;
  return x > y ? x : y;
}

double min_of(double x, double y) { return -max_of(-x, -y); }

RefTensor expand(const RefTensor& x, const Index& sizes) {
  if (x.sizes == sizes) return x;
  AICF_CHECK(x.sizes.size() <= sizes.size(), "broadcasting never drops an axis");
  const size_t lead = sizes.size() - x.sizes.size();
  for (size_t a = 0; a < x.sizes.size(); ++a)
    if (x.sizes[a] != 1 && x.sizes[a] != sizes[lead + a])
      throw UserError(ErrorCode::kU_bad_shape, "operand sizes do not broadcast")
          .with_expected(to_string(sizes))
          .with_actual(to_string(x.sizes));
  Index from(x.sizes.size());
  return rearrange(x, sizes, [&](const Index& index) -> const Index& {
    for (size_t a = 0; a < from.size(); ++a) from[a] = x.sizes[a] == 1 ? 0 : index[lead + a];
    return from;
  });
}

Lines lines_along(const Index& sizes, int64_t axis) {
  Lines lines;
  for (int64_t a = 0; a < static_cast<int64_t>(sizes.size()); ++a)
    (a < axis ? lines.outer : a == axis ? lines.length : lines.inner) *= sizes[static_cast<size_t>(a)];
  return lines;
}

Lines lines_from(const Index& sizes, int64_t axis) {
  Lines lines;
  for (int64_t a = 0; a < static_cast<int64_t>(sizes.size()); ++a)
    (a < axis ? lines.outer : lines.length) *= sizes[static_cast<size_t>(a)];
  return lines;
}

double line_max(const std::vector<double>& x, const Lines& lines, int64_t o, int64_t n) {
  double top = -std::numeric_limits<double>::infinity();
  for (int64_t k = 0; k < lines.length; ++k) top = max_of(top, x[lines.at(o, k, n)]);
  return top;
}

}  // namespace aicf::reference
