#include "runtime/batches.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include <xxhash.h>

#include "base/error.h"

namespace aicf {
namespace {

constexpr int64_t kMostRows = int64_t{1} << 40;  // of an order that is held in memory

}  // namespace

// Fisher and Yates with numbers that are hashes of (seed, epoch, place): the modulo's bias is below rows /
// 2^64.
std::vector<int64_t> shuffled_rows(int64_t rows, uint64_t seed, int64_t epoch) {
  if (rows < 0 || rows > kMostRows)
    throw UserError(ErrorCode::kU_bad_option, "a number of rows is out of range")
        .with_expected("0 to " + std::to_string(kMostRows))
        .with_actual(std::to_string(rows));
  std::vector<int64_t> order(static_cast<size_t>(rows));
  std::iota(order.begin(), order.end(), int64_t{0});
  for (int64_t i = rows - 1; i > 0; --i) {
    const int64_t place[2] = {epoch, i};
    const uint64_t number = XXH3_64bits_withSeed(place, sizeof(place), seed);
    std::swap(order[static_cast<size_t>(i)], order[number % static_cast<uint64_t>(i + 1)]);
  }
  return order;
}

Batches::Batches(std::vector<Array> columns, const BatchOrder& order)
    : columns_(std::move(columns)), order_(order) {
  const auto fail = [](const char* message, const std::string& expected, const std::string& actual) {
    return UserError(ErrorCode::kU_bad_option, message).with_expected(expected).with_actual(actual);
  };
  if (columns_.empty()) throw fail("there is no data to train on", "an array for each input", "none");
  for (const Array& column : columns_) {
    if (column.rank() < 1) throw fail("data has no axis of rows", "rank 1 or more", "a scalar");
    if (column.sizes()[0] != columns_[0].sizes()[0])
      throw fail("data and labels have different numbers of rows", std::to_string(columns_[0].sizes()[0]),
                 std::to_string(column.sizes()[0]));
  }
  if (order_.batch < 1 || order_.batch > rows())
    throw fail("the data does not fill a batch", std::to_string(std::max<int64_t>(order_.batch, 1)) + " rows",
               std::to_string(rows()));
  for (const Array& column : columns_) {
    std::vector<int64_t> sizes = column.sizes();
    sizes[0] = order_.batch;
    memory_.push_back(Array::uninitialized(column.dtype(), sizes));
    views_.push_back(view_of(memory_.back()));
  }
}

const std::vector<TensorView>& Batches::batch(int64_t number) {
  const int64_t epoch = number / per_epoch(), first = number % per_epoch() * order_.batch;
  if (epoch != epoch_ && order_.shuffle) visited_ = shuffled_rows(rows(), order_.seed, epoch);
  epoch_ = epoch;
  for (size_t c = 0; c < columns_.size(); ++c) {
    const int64_t bytes = columns_[c].bytes() / rows();
    const auto* from = static_cast<const std::byte*>(columns_[c].data());
    auto* to = static_cast<std::byte*>(memory_[c].mutable_data());
    for (int64_t i = 0; i < order_.batch; ++i) {
      const int64_t row = order_.shuffle ? visited_[static_cast<size_t>(first + i)] : first + i;
      std::memcpy(to + i * bytes, from + row * bytes, static_cast<size_t>(bytes));
    }
  }
  return views_;
}

}  // namespace aicf
