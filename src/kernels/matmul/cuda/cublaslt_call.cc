#include "kernels/matmul/cuda/cublaslt_call.h"

#include <cstdio>

#include "kernels/common/call_words.h"

namespace aicf {
namespace {

bool parse_algorithm(std::string_view hex, std::array<uint64_t, 8>& algorithm) {
  constexpr size_t kDigits = 16;
  if (hex.size() != kDigits * algorithm.size()) return false;
  for (size_t i = 0; i < algorithm.size(); ++i)
    if (!parse_number(hex.substr(i * kDigits, kDigits), algorithm[i], 16)) return false;
  return true;
}

// The last two axes with these strides, and at most one axis before them that is walked.
struct Matrix {
  int64_t rows, columns, row_stride, column_stride;
  int64_t batch = 1, batch_stride = 0;
};

std::optional<Matrix> matrix_of(const TensorArg& arg) {
  if (arg.rank < 2) return std::nullopt;
  const int r = arg.rank;
  Matrix m{arg.sizes[r - 2], arg.sizes[r - 1], arg.strides[r - 2], arg.strides[r - 1]};
  for (int axis = 0; axis < r - 2; ++axis) {
    if (arg.sizes[axis] == 1) continue;
    if (m.batch != 1) return std::nullopt;
    m.batch = arg.sizes[axis];
    m.batch_stride = arg.strides[axis];
  }
  return m.rows > 0 && m.columns > 0 && m.batch > 0 ? std::optional(m) : std::nullopt;
}

// Rows of ours are columns of the library's. `transposed`: neighbours are in a column of ours.
std::optional<CublasLtMatrix> to_library(DType dtype, const Matrix& m, bool& transposed) {
  const bool by_rows = m.column_stride == 1 || m.columns == 1;
  const bool by_columns = m.row_stride == 1 || m.rows == 1;
  CublasLtMatrix result{dtype, m.columns, m.rows, m.row_stride, m.batch_stride};
  transposed = !by_rows || (m.columns == 1 && m.column_stride != 1 && by_columns && m.rows > 1);
  if (transposed) result = {dtype, m.rows, m.columns, m.column_stride, m.batch_stride};
  if (transposed && !by_columns) return std::nullopt;
  if (result.columns == 1 && result.leading < result.rows) result.leading = result.rows;
  if (result.leading < result.rows || result.leading > INT32_MAX || result.rows > INT32_MAX ||
      result.columns > INT32_MAX || result.batch_stride < 0)
    return std::nullopt;
  return result;
}

bool is_bias(const TensorArg& arg, const TensorArg& out) {
  const int r = arg.rank;
  if (arg.dtype != out.dtype || r != out.rank || arg.sizes[r - 1] != out.sizes[r - 1]) return false;
  if (arg.strides[r - 1] != 1 && arg.sizes[r - 1] != 1) return false;
  for (int axis = 0; axis < r - 1; ++axis)
    if (arg.strides[axis] != 0 && arg.sizes[axis] != 1) return false;
  return true;
}

}  // namespace

std::string to_string(const CublasLtCall& call) {
  std::string text = std::to_string(call.version);
  if (call.bias >= 0) text += " bias " + std::to_string(call.bias);
  if (call.addend >= 0) text += " add " + std::to_string(call.addend);
  if (call.activation == CublasLtActivation::kRelu) text += " relu";
  if (call.activation == CublasLtActivation::kGelu) text += " gelu";
  text += " workspace " + std::to_string(call.workspace_bytes) + " algorithm ";
  for (const uint64_t word : call.algorithm) {
    char hex[20];
    std::snprintf(hex, sizeof(hex), "%016llx", static_cast<unsigned long long>(word));
    text += hex;
  }
  return text;
}

std::optional<CublasLtCall> parse_cublaslt_call(std::string_view text) {
  CublasLtCall call;
  Words words(text);
  if (!parse_number(words.next(), call.version) || call.version < 0) return std::nullopt;
  bool has_algorithm = false;
  while (!words.done()) {
    const std::string_view word = words.next();
    bool sound = true;
    if (word == "relu") {
      call.activation = CublasLtActivation::kRelu;
    } else if (word == "gelu") {
      call.activation = CublasLtActivation::kGelu;
    } else if (word == "bias") {
      sound = parse_number(words.next(), call.bias) && call.bias >= 0 && call.bias < kMostLibraryInputs;
    } else if (word == "add") {
      sound = parse_number(words.next(), call.addend) && call.addend >= 0 && call.addend < kMostLibraryInputs;
    } else if (word == "workspace") {
      sound = parse_number(words.next(), call.workspace_bytes) && call.workspace_bytes >= 0 &&
              call.workspace_bytes <= kMostLibraryWorkspace;
    } else {
      sound = word == "algorithm" && parse_algorithm(words.next(), call.algorithm);
      has_algorithm = sound;
    }
    if (!sound) return std::nullopt;
  }
  return has_algorithm ? std::optional(call) : std::nullopt;
}

bool same_meaning(const CublasLtCall& a, const CublasLtCall& b) {
  return a.activation == b.activation && a.bias == b.bias && a.addend == b.addend;
}

std::optional<CublasLtShape> cublaslt_shape(const CublasLtCall& call, const std::vector<TensorArg>& inputs,
                                            const TensorArg& out) {
  const auto exists = [&](int index) { return index >= 2 && static_cast<size_t>(index) < inputs.size(); };
  if (inputs.size() < 2 || (call.bias >= 0 && !exists(call.bias)) ||
      (call.addend >= 0 && !exists(call.addend)))
    return std::nullopt;
  const DType dtype = inputs[0].dtype;
  if (inputs[1].dtype != dtype || !(is_half(dtype) || dtype == DType::f32)) return std::nullopt;
  if (out.dtype != dtype && out.dtype != DType::f32) return std::nullopt;
  const auto x = matrix_of(inputs[0]), y = matrix_of(inputs[1]), result = matrix_of(out);
  if (!x || !y || !result) return std::nullopt;
  if (x->rows != result->rows || y->columns != result->columns || x->columns != y->rows) return std::nullopt;
  if (x->batch != result->batch || (y->batch != result->batch && y->batch != 1)) return std::nullopt;
  CublasLtShape shape;
  shape.batch = result->batch;
  bool transposed = false;
  const auto to_y = to_library(dtype, *y, shape.transpose_y);
  const auto to_x = to_library(dtype, *x, shape.transpose_x);
  const auto to_out = to_library(out.dtype, *result, transposed);
  if (!to_y || !to_x || !to_out || transposed) return std::nullopt;
  shape.y = *to_y;
  shape.x = *to_x;
  shape.out = shape.addend = *to_out;
  if (call.bias >= 0 && !is_bias(inputs[static_cast<size_t>(call.bias)], out)) return std::nullopt;
  if (call.addend < 0) return shape;
  const TensorArg& addend = inputs[static_cast<size_t>(call.addend)];
  const auto matrix = matrix_of(addend);
  if (!matrix || addend.dtype != out.dtype || matrix->rows != result->rows ||
      matrix->columns != result->columns || matrix->batch != result->batch)
    return std::nullopt;
  const auto to_addend = to_library(addend.dtype, *matrix, transposed);
  if (!to_addend || transposed) return std::nullopt;
  shape.addend = *to_addend;
  return shape;
}

}  // namespace aicf
