// For tests of CUDA rows: random windows, and the texts of many problems by the architecture to compile them
// for.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/common/cuda_kernel.h"

namespace aicf::cuda_testing {

struct Arch {
  int number;
  const char* target;
};
inline constexpr Arch kArchs[] = {{80, "sm_80"}, {86, "sm_86"}, {89, "sm_89"}, {90, "sm_90a"}};

inline const std::vector<DType>& all_dtypes() {
  static const std::vector<DType> dtypes = {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64,
                                            DType::i32, DType::i16, DType::i8,  DType::u8,   DType::boolean};
  return dtypes;
}

// Row-major, from the buffer's start.
inline CudaWindow dense(DType dtype, const Shape& sizes) {
  return {dtype, Dim(0), sizes, row_major_strides(sizes)};
}

// With its second axis innermost.
inline CudaWindow channels_last(CudaWindow w) {
  Shape order = w.sizes;
  std::rotate(order.begin() + 1, order.begin() + 2, order.end());
  const std::vector<Dim> strides = row_major_strides(order);
  w.strides[0] = strides[0];
  w.strides[1] = strides.back();
  for (size_t i = 2; i < w.sizes.size(); ++i) w.strides[i] = strides[i - 1];
  return w;
}

// Sizes and layouts at random; a size is a symbol now and then.
class RandomWindows {
 public:
  explicit RandomWindows(uint64_t seed) : engine_(seed) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(n)); }
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[static_cast<size_t>(below(static_cast<int64_t>(from.size())))];
  }
  Dim size(int64_t low, int64_t high) {
    if (below(5) > 0) return Dim(low + below(high - low + 1));
    const std::string name = "s" + std::to_string(ranges_.size());
    ranges_[name] = {low, high};
    return Dim::symbol(name);
  }
  Shape shape(size_t rank, int64_t low = 1, int64_t high = 40) {
    Shape sizes;
    for (size_t i = 0; i < rank; ++i) sizes.push_back(size(low, high));
    return sizes;
  }
  // Row-major, with two axes swapped, or with gaps; now and then not at the buffer's start.
  CudaWindow window(DType dtype, const Shape& sizes) {
    CudaWindow w{dtype, Dim(below(4) == 0 ? below(40) : 0), sizes, row_major_strides(sizes)};
    const size_t rank = sizes.size();
    if (rank >= 2 && below(3) == 0) {
      const size_t a = static_cast<size_t>(below(static_cast<int64_t>(rank) - 1));
      Shape swapped = sizes;
      std::swap(swapped[a], swapped[a + 1]);
      w.strides = row_major_strides(swapped);
      std::swap(w.strides[a], w.strides[a + 1]);
    } else if (below(5) == 0) {
      for (Dim& stride : w.strides) stride = stride * Dim(3);
    }
    return w;
  }
  const SymbolRanges& ranges() const { return ranges_; }

 private:
  std::mt19937_64 engine_;
  SymbolRanges ranges_;
};

// Texts of rows, each for the architecture whose turn it is.
class RowTexts {
 public:
  CudaCode add(const std::string& row, CudaProblem problem, const SymbolRanges& ranges) {
    const size_t turn = turn_++ % std::size(kArchs);
    problem.arch = kArchs[turn].number;
    problem.ranges = &ranges;
    const CudaKernel* kernel = find_cuda_kernel(row);
    if (kernel == nullptr || kernel->min_arch > problem.arch) {
      ADD_FAILURE() << "no CUDA row " << row;
      return {};
    }
    CudaCode code = kernel->generate(problem);
    EXPECT_FALSE(code.launches.empty()) << row;
    EXPECT_EQ(code, kernel->generate(problem)) << row;
    texts_[turn].push_back(code.source);
    return code;
  }
  // Calls compile(texts, target) per architecture.
  template <class Compile>
  void compile(Compile compile) const {
    for (size_t i = 0; i < std::size(kArchs); ++i) compile(texts_[i], kArchs[i].target);
  }

 private:
  size_t turn_ = 0;
  std::vector<std::string> texts_[std::size(kArchs)];
};

}  // namespace aicf::cuda_testing
