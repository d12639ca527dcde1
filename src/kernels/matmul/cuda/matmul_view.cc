#include "kernels/matmul/cuda/matmul_view.h"

#include <algorithm>
#include <limits>

#include "kernels/common/product_group.h"

namespace aicf {
namespace {

constexpr int64_t kVectorBytes = 16;
constexpr int kMaxMapAxes = 4;  // of the copies in wgmma_instructions.cuh

// Whether rows along `inner` can be read 16 bytes at a time.
bool vector_rows(const CudaWindow& window, const MatmulOperand& operand, const Dim& inner, const Dim& outer) {
  const int64_t vector = per(kVectorBytes, window.dtype);
  return is_one(inner) && divides(window.offset, vector) && divides(outer, vector) &&
         std::all_of(operand.batch.begin(), operand.batch.end(),
                     [&](const Dim& s) { return divides(s, vector); });
}

void set_layout(const CudaWindow& window, MatmulOperand& operand, const Dim& along_k, const Dim& other) {
  if (vector_rows(window, operand, along_k, other)) {
    operand.along_k = operand.vector = true;
  } else if (vector_rows(window, operand, other, along_k)) {
    operand.along_k = false;
    operand.vector = true;
  } else {
    operand.along_k = is_one(along_k) || !is_one(other);
  }
}

// That of both matrices, which have the same strides but may begin elsewhere.
void set_pair_layout(const CudaProblem& problem, MatmulOperand& y) {
  MatmulOperand other = y;
  other.vector = false;
  set_layout(problem.inputs[2], other, y.row, y.column);
  if (!other.vector) y.along_k = is_one(y.row) || !is_one(y.column);
  y.vector = y.vector && other.vector;
}

MatmulOperand operand_of(const CudaWindow& window, size_t rank) {
  const size_t own = window.sizes.size();
  if (own > rank) return {{}, window.strides[2], window.strides[1], true, true, true};
  MatmulOperand operand{{}, window.strides[own - 2], window.strides[own - 1]};
  for (size_t axis = 0; axis + 2 < rank; ++axis) {
    const size_t missing = rank - own;
    const bool broadcast = axis < missing || is_one(window.sizes[axis - missing]);
    operand.batch.push_back(broadcast ? Dim(0) : window.strides[axis - missing]);
  }
  return operand;
}

// An axis that a tensor map can have: a stride of whole 16 bytes, more than 0.
bool map_stride(const Dim& stride, DType dtype, const SymbolRanges& ranges) {
  const Interval range = bounds(stride, ranges);
  return divides(stride, per(kVectorBytes, dtype)) && range.lo > 0 && range.hi < (int64_t{1} << 37);
}

bool map_fits(const CudaWindow& window, const MatmulOperand& operand, const Dim& outer,
              const SymbolRanges& ranges) {
  const auto batch =
      std::count_if(operand.batch.begin(), operand.batch.end(), [](const Dim& s) { return s != Dim(0); });
  if (!operand.vector || batch + 2 > kMaxMapAxes || !map_stride(outer, window.dtype, ranges)) return false;
  return std::all_of(operand.batch.begin(), operand.batch.end(),
                     [&](const Dim& s) { return s == Dim(0) || map_stride(s, window.dtype, ranges); }) &&
         std::all_of(window.sizes.begin(), window.sizes.end(), [&](const Dim& size) {
           return bounds(size, ranges).hi <= std::numeric_limits<int32_t>::max() / 2;
         });
}

}  // namespace

Dim MatmulView::batches() const {
  Dim count(products);
  for (const Dim& size : batch) count = count * size;
  return count;
}

bool has_panels(const CudaProblem& problem) {
  return problem.inputs[1].sizes.size() > problem.outputs[0].sizes.size();
}

MatmulView matmul_view(const CudaProblem& problem) {
  const Shape& result = problem.outputs[0].sizes;
  const size_t rank = result.size();
  MatmulView view{{result.begin(), result.end() - 2},
                  result[rank - 2],
                  result[rank - 1],
                  problem.inputs[0].sizes.back(),
                  operand_of(problem.inputs[0], rank),
                  operand_of(problem.inputs[1], rank)};
  for (size_t axis = view.batch.size(); axis-- > 0;) {
    if (!is_one(view.batch[axis])) continue;
    const auto at = static_cast<std::ptrdiff_t>(axis);
    view.batch.erase(view.batch.begin() + at);
    view.x.batch.erase(view.x.batch.begin() + at);
    view.y.batch.erase(view.y.batch.begin() + at);
  }
  if (const ProductGroup* group = product_group(problem))
    view.products = static_cast<int64_t>(group->products.size());
  set_layout(problem.inputs[0], view.x, view.x.column, view.x.row);
  set_layout(problem.inputs[1], view.y, view.y.row, view.y.column);
  if (is_dual_gemm(problem)) set_pair_layout(problem, view.y);
  return view;
}

int64_t largest(const Dim& dim, const SymbolRanges& ranges) {
  const Interval range = bounds(dim, ranges);
  const auto magnitude = [](int64_t v) {
    return v == std::numeric_limits<int64_t>::min() ? -(v + 1) : std::abs(v);
  };
  return std::max(magnitude(range.lo), magnitude(range.hi));
}

bool divides(const Dim& dim, int64_t divisor) { return divide_exactly(dim, Dim(divisor)).has_value(); }

bool fits_int32(const MatmulView& a, const SymbolRanges& ranges) {
  constexpr int64_t kLimit = int64_t{1} << 30;
  const auto span = [&](const Dim& size, const Dim& stride) {
    const int64_t s = largest(size, ranges), t = largest(stride, ranges);
    return s < kLimit && t < kLimit ? (s + 256) * t : kLimit;
  };
  return largest(a.m, ranges) < kLimit && largest(a.n, ranges) < kLimit && largest(a.k, ranges) < kLimit &&
         span(a.m, a.x.row) + span(a.k, a.x.column) < kLimit &&
         span(a.k, a.y.row) + span(a.n, a.y.column) < kLimit;
}

bool is_shared(const MatmulOperand& operand) {
  return std::all_of(operand.batch.begin(), operand.batch.end(), [](const Dim& s) { return s == Dim(0); });
}

bool is_contiguous(const MatmulView& a, bool x) {
  const MatmulOperand& operand = x ? a.x : a.y;
  const Dim& other = x ? a.m : a.n;
  const Dim &along_k = x ? operand.column : operand.row, &across = x ? operand.row : operand.column;
  const Dim &inner = operand.along_k ? along_k : across, &outer = operand.along_k ? across : along_k;
  const Dim &length = operand.along_k ? a.k : other, &rows = operand.along_k ? other : a.k;
  if (operand.panels || !(is_one(inner) || is_one(length)) || !(outer == length || is_one(rows)))
    return false;
  Dim step = a.k * other;
  for (size_t axis = a.batch.size(); axis-- > 0 && !is_shared(operand); step = step * a.batch[axis])
    if (!(operand.batch[axis] == step)) return false;
  return true;
}

bool has_pairs(const CudaProblem& problem, const MatmulView& a, bool x) {
  return (x ? a.x : a.y).along_k && divides(a.k, 2) && divides(problem.inputs[x ? 0 : 1].offset, 2);
}

bool maps_fit(const CudaProblem& problem, const MatmulView& a) {
  const SymbolRanges& ranges = ranges_of(problem);
  return map_fits(problem.inputs[0], a.x, a.x.along_k ? a.x.row : a.x.column, ranges) &&
         map_fits(problem.inputs[1], a.y, a.y.along_k ? a.y.column : a.y.row, ranges);
}

}  // namespace aicf
