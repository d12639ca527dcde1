// The values of a random program as it grows: leaves, and what its nodes gave so far, drawn in the order that
// the seed fixes. A program that is made of them by the same calls is the same one.
#pragma once

#include <random>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "ir/graph.h"

namespace aicf::testing {

// Of a value of the pool.
inline constexpr int64_t kMaxElements = 3000;

// Normal numbers; integers in -3..3, or 0 and -1 as indices.
Array random_contents(DType dtype, const std::vector<int64_t>& sizes, std::mt19937_64& engine,
                      bool index = false);

class RandomPool {
 public:
  explicit RandomPool(uint64_t seed) : engine_(seed), graph_("main") {}

 protected:
  int64_t pick(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(n)); }
  bool chance(double p) { return static_cast<double>(engine_() >> 11) * 0x1p-53 < p; }
  template <typename T>
  T one_of(std::initializer_list<T> list) {
    return list.begin()[pick(static_cast<int64_t>(list.size()))];
  }

  DType some_dtype();
  int64_t some_size() { return chance(0.03) ? 0 : one_of<int64_t>({1, 1, 2, 3, 4, 5, 7, 8, 9, 17, 33}); }
  Shape some_shape();
  int64_t count(const Shape& shape) const;

  ValueId leaf(DType dtype, const Shape& shape);
  void add_state();

  // Newer values are likelier, so that chains form.
  ValueId any();
  template <typename Test>
  ValueId such(Test&& test) {
    for (int i = 0; i < 12; ++i)
      if (const ValueId id = any(); test(id)) return id;
    throw UserError(ErrorCode::kU_bad_shape, "no value fits");
  }
  ValueId ranked(std::string_view type_class);
  // A value of the pool or a new leaf that broadcasts with x.
  ValueId partner(ValueId x, DType dtype);

  // Joins the pool unless it is too large.
  ValueId keep(ValueId id);
  ValueId emit(Op op, std::vector<ValueId> operands, Attrs attrs = {});
  int64_t axis_of(ValueId x) { return pick(std::max(1, graph_.type(x).rank())); }

  std::mt19937_64 engine_;
  Graph graph_;
  Program program_;
  bool symbolic_ = false;
  int next_ = 0;
  ValueId state_ = kNoValue;
  std::vector<ValueId> pool_;
};

}  // namespace aicf::testing
