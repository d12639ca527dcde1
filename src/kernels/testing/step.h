// For tests of kernels: tensors with any layout over owned memory, and running a step tile by tile in any
// order with poisoned outputs and scratch, at every ISA level that this machine has.
#pragma once

#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/dtype.h"
#include "base/error.h"
#include "kernels/common/kernel.h"

namespace aicf::step_testing {

inline std::vector<IsaLevel> isa_levels() {
  std::vector<IsaLevel> levels = {IsaLevel::kPortable};
  if (detect_isa() >= IsaLevel::kAvx2) levels.push_back(IsaLevel::kAvx2);
  if (detect_isa() >= IsaLevel::kAvx512) levels.push_back(IsaLevel::kAvx512);
  return levels;
}

inline double load_f64(const void* data, DType dtype, int64_t index) {
  switch (dtype) {
    case DType::f64:
      return static_cast<const double*>(data)[index];
    case DType::f32:
      return static_cast<const float*>(data)[index];
    case DType::f16:
      return f16_to_f32(static_cast<const uint16_t*>(data)[index]);
    case DType::bf16:
      return bf16_to_f32(static_cast<const uint16_t*>(data)[index]);
    case DType::i64:
      return static_cast<double>(static_cast<const int64_t*>(data)[index]);
    case DType::i32:
      return static_cast<const int32_t*>(data)[index];
    case DType::i16:
      return static_cast<const int16_t*>(data)[index];
    case DType::i8:
      return static_cast<const int8_t*>(data)[index];
    case DType::u8:
      return static_cast<const uint8_t*>(data)[index];
    case DType::boolean:
      return static_cast<const uint8_t*>(data)[index];
  }
  return 0;
}

inline void store_f64(void* data, DType dtype, int64_t index, double value) {
  switch (dtype) {
    case DType::f64:
      static_cast<double*>(data)[index] = value;
      break;
    case DType::f32:
      static_cast<float*>(data)[index] = static_cast<float>(value);
      break;
    case DType::f16:
      static_cast<uint16_t*>(data)[index] = f64_to_f16(value);
      break;
    case DType::bf16:
      static_cast<uint16_t*>(data)[index] = f64_to_bf16(value);
      break;
    case DType::i64:
      static_cast<int64_t*>(data)[index] = static_cast<int64_t>(value);
      break;
    case DType::i32:
      static_cast<int32_t*>(data)[index] = static_cast<int32_t>(value);
      break;
    case DType::i16:
      static_cast<int16_t*>(data)[index] = static_cast<int16_t>(value);
      break;
    case DType::i8:
      static_cast<int8_t*>(data)[index] = static_cast<int8_t>(value);
      break;
    case DType::u8:
      static_cast<uint8_t*>(data)[index] = static_cast<uint8_t>(value);
      break;
    case DType::boolean:
      static_cast<uint8_t*>(data)[index] = value != 0;
      break;
  }
}

// Memory of exactly the size that the layout needs, so that address sanitizer sees a step outside.
class TestTensor {
 public:
  // Transposed: the last two axes swapped in memory; channels-last: axis 1 innermost.
  enum class Layout { kDense, kTransposed, kReversed, kGaps, kChannelsLast };

  TestTensor(DType dtype, std::vector<int64_t> sizes, Layout layout = Layout::kDense)
      : sizes_(std::move(sizes)) {
    arg_.dtype = dtype;
    arg_.rank = static_cast<int>(sizes_.size());
    std::vector<size_t> order(sizes_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    if (layout == Layout::kTransposed && order.size() >= 2)
      std::swap(order[order.size() - 1], order[order.size() - 2]);
    if (layout == Layout::kChannelsLast && order.size() >= 2)
      std::rotate(order.begin() + 1, order.begin() + 2, order.end());
    int64_t stride = layout == Layout::kGaps ? 3 : 1, extent = 1;
    for (size_t i = order.size(); i-- > 0;) {
      arg_.sizes[order[i]] = sizes_[order[i]];
      arg_.strides[order[i]] = stride;
      extent += stride * std::max<int64_t>(sizes_[order[i]] - 1, 0);
      stride *= std::max<int64_t>(sizes_[order[i]], 1);
      if (layout == Layout::kGaps) stride += 5;
    }
    bytes_ = std::make_shared<std::vector<std::byte>>(
        static_cast<size_t>(extent) * static_cast<size_t>(dtype_bytes(dtype)), std::byte{0xa5});
    arg_.data = bytes_->data();
    if (layout == Layout::kReversed) {
      for (int i = 0; i < arg_.rank; ++i) {
        arg_.data = static_cast<std::byte*>(arg_.data) +
                    std::max<int64_t>(arg_.sizes[i] - 1, 0) * arg_.strides[i] * dtype_bytes(dtype);
        arg_.strides[i] = -arg_.strides[i];
      }
    }
  }

  const TensorArg& arg() const { return arg_; }
  TensorArg& arg() { return arg_; }
  const std::vector<int64_t>& sizes() const { return sizes_; }
  int64_t count() const {
    int64_t n = 1;
    for (int64_t size : sizes_) n *= size;
    return n;
  }
  int64_t place(int64_t index) const {
    int64_t at = 0;
    for (int i = arg_.rank - 1; i >= 0; --i) {
      at += index % arg_.sizes[i] * arg_.strides[i];
      index /= arg_.sizes[i];
    }
    return at;
  }
  double get(int64_t index) const { return load_f64(arg_.data, arg_.dtype, place(index)); }
  void set(int64_t index, double value) { store_f64(arg_.data, arg_.dtype, place(index), value); }
  // The element's memory as a number, so that NaN and -0 compare.
  uint64_t bits(int64_t index) const {
    uint64_t value = 0;
    const auto size = static_cast<size_t>(dtype_bytes(arg_.dtype));
    std::memcpy(&value, static_cast<const std::byte*>(arg_.data) + place(index) * static_cast<int64_t>(size),
                size);
    return value;
  }
  void poison() { std::fill(bytes_->begin(), bytes_->end(), std::byte{0xa5}); }
  TestTensor& fill(const std::function<double(int64_t)>& value) {
    for (int64_t i = 0; i < count(); ++i) set(i, value(i));
    return *this;
  }
  // Values of about unit size; integers over their whole range are left to fill().
  TestTensor& randomize(uint64_t seed) {
    std::mt19937_64 engine(seed);
    std::normal_distribution<double> normal;
    std::uniform_int_distribution<int> small(-4, 4);
    for (int64_t i = 0; i < count(); ++i)
      set(i, is_float(arg_.dtype) ? normal(engine) : std::abs(small(engine)));
    return *this;
  }

 private:
  std::vector<int64_t> sizes_;
  std::shared_ptr<std::vector<std::byte>> bytes_;
  TensorArg arg_;
};
using Layout = TestTensor::Layout;

struct Step {
  std::string kernel;
  std::vector<TensorArg> inputs, outputs;
  std::vector<int64_t> params;
  std::vector<double> fparams;
  const TileProgram* program = nullptr;
  int64_t workers = 1;
};

inline BoundCall bind_step(const Step& step, IsaLevel isa) {
  const Kernel* kernel = find_kernel(step.kernel);
  if (!kernel) throw std::runtime_error("no kernel " + step.kernel);
  BoundCall call;
  call.inputs = step.inputs;
  call.outputs = step.outputs;
  call.params = step.params;
  call.fparams = step.fparams;
  call.program = step.program;
  call.isa = isa;
  call.workers = step.workers;
  kernel->prepare(call);
  return call;
}

inline void run_step(const Step& step, IsaLevel isa, bool backwards = false) {
  BoundCall call = bind_step(step, isa);
  CallError error;
  call.error = &error;
  std::unique_ptr<std::byte, void (*)(void*)> scratch(
      static_cast<std::byte*>(
          std::aligned_alloc(64, static_cast<size_t>(call.scratch_bytes + 63) / 64 * 64 + 64)),
      std::free);
  for (int64_t i = 0; i < call.tiles; ++i) {
    std::memset(scratch.get(), 0xff, static_cast<size_t>(call.scratch_bytes));  // NaN
    call.run(call, backwards ? call.tiles - 1 - i : i, scratch.get());
  }
}

inline void expect_refused(const Step& step, const char* what) {
  try {
    bind_step(step, IsaLevel::kPortable);
    ADD_FAILURE() << "accepted: " << what;
  } catch (const UserError& error) {
    EXPECT_EQ(error.code, ErrorCode::kU_bad_artifact) << what;
  }
}

inline double epsilon_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return std::ldexp(1.0, -52);
    case DType::f32:
      return std::ldexp(1.0, -23);
    case DType::f16:
      return std::ldexp(1.0, -10);
    case DType::bf16:
      return std::ldexp(1.0, -7);
    default:
      return 0;
  }
}

// NaN agrees with NaN, infinities with themselves; else |actual - expected| <= bound.
inline bool agrees(double actual, double expected, double bound) {
  if (std::isnan(expected) || std::isnan(actual)) return std::isnan(expected) && std::isnan(actual);
  if (std::isinf(expected) || std::isinf(actual)) return expected == actual;
  return std::abs(actual - expected) <= bound;
}

}  // namespace aicf::step_testing
