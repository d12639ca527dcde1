// The epilogue of a tile of sums: the region behind a contraction, run over the sums in scratch or handed to
// the micro-kernels.
#pragma once

#include <optional>

#include "kernels/matmul/cpu/gemm.h"
#include "kernels/matmul/cpu/matmul_plan.h"
#include "kernels/tile/cpu/tile_rows.h"

namespace aicf {

class TileEpilogue {
 public:
  // `c` are the sums, rows `ldc` apart; call, isa and tile must outlive the object.
  TileEpilogue(const BoundCall& call, const GemmIsa& isa, const GemmTile& tile, std::byte* scratch, void* c,
               int64_t ldc);

  // All of it, if micro-kernels can do it; else null.
  const GemmFinish* finish() const { return finish_ ? &*finish_ : nullptr; }
  // Whether a few rows can be finished while their sums are in the L1 cache.
  bool by_rows() const { return runner_.has_value(); }

  // Asks for the memory that run() of these rows will touch.
  void prefetch(int64_t first, int64_t rows) const;
  void run(int64_t first, int64_t rows);

 private:
  const TensorArg& tensor(size_t window) const;  // 0 are the sums

  const BoundCall& call_;
  const GemmTile& tile_;
  std::byte* scratch_;
  size_t count_;
  TileWindow windows_[kMaxTileOperands + 1];
  std::optional<TileRowRunner> runner_;
  std::optional<GemmFinish> finish_;
};

}  // namespace aicf
