// Rows of data walked in batches, epoch after epoch, each in an order of its own. Which rows batch i holds is
// a function of the rows' count, the batch size, the seed and i alone, so a run that is resumed sees what it
// would have.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/executable.h"

namespace aicf {

struct BatchOrder {
  int64_t batch = 1;
  uint64_t seed = 0;
  bool shuffle = true;
};

// The rows of epoch `epoch` in the order they are visited: a permutation of 0 … rows-1.
std::vector<int64_t> shuffled_rows(int64_t rows, uint64_t seed, int64_t epoch);

class Batches {
 public:
  // One array for each input, rows along axis 0. bad_option if their counts differ or no batch can be filled.
  Batches(std::vector<Array> columns, const BatchOrder& order);

  int64_t rows() const { return columns_[0].sizes()[0]; }
  // Batches of an epoch; the rows that fill no whole batch are left out of it.
  int64_t per_epoch() const { return rows() / order_.batch; }
  // Batch number i of the run, in memory that the next call reuses.
  const std::vector<TensorView>& batch(int64_t number);

 private:
  std::vector<Array> columns_, memory_;
  std::vector<TensorView> views_;
  BatchOrder order_;
  int64_t epoch_ = -1;
  std::vector<int64_t> visited_;
};

}  // namespace aicf
