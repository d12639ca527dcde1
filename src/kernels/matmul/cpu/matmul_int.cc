// The integer matmul: plain loops, one row of sums at a time.
#include <algorithm>

#include "kernels/common/step_check.h"
#include "kernels/matmul/cpu/matmul_plan.h"

namespace aicf {
namespace {

// Wrapping sums in 64 bits: the low bits of a product depend only on the low bits of its factors.
template <class T>
void run_int_tile(const BoundCall& call, int64_t index, std::byte* scratch) {
  const GemmPlan& plan = stored_plan<GemmPlan>(call);
  const GemmTile tile = tile_at(plan, index);
  const auto* x = static_cast<const T*>(call.inputs[0].data) + offset_of(plan, plan.x, tile, tile.row, 0);
  const auto* y = static_cast<const T*>(call.inputs[1].data) + offset_of(plan, plan.y, tile, 0, tile.column);
  auto* out =
      static_cast<T*>(call.outputs[0].data) + offset_of(plan, plan.operand[0], tile, tile.row, tile.column);
  auto* sums = reinterpret_cast<uint64_t*>(scratch);
  for (int64_t i = 0; i < tile.rows; ++i) {
    std::fill_n(sums, tile.columns, 0);
    for (int64_t k = 0; k < plan.k; ++k) {
      const auto left = static_cast<uint64_t>(x[i * plan.x.row + k * plan.x.column]);
      const T* right = y + k * plan.y.row;
      for (int64_t j = 0; j < tile.columns; ++j)
        sums[j] += left * static_cast<uint64_t>(right[j * plan.y.column]);
    }
    for (int64_t j = 0; j < tile.columns; ++j)
      out[i * plan.operand[0].row + j * plan.operand[0].column] = static_cast<T>(sums[j]);
  }
}

RunTile int_tile(DType dtype) {
  switch (dtype) {
    case DType::i64:
      return run_int_tile<int64_t>;
    case DType::i32:
      return run_int_tile<int32_t>;
    case DType::i16:
      return run_int_tile<int16_t>;
    case DType::i8:
      return run_int_tile<int8_t>;
    case DType::u8:
      return run_int_tile<uint8_t>;
    default:
      return nullptr;
  }
}

}  // namespace

bool can_run_matmul_int(const Problem& problem) {
  return has_matrices(problem) && is_integer(problem.inputs[0].dtype);
}

void prepare_matmul_int(BoundCall& call) {
  constexpr const char* kName = "matmul_int";
  check_counts(call, kName, 2, 2, 0, 0);
  check_same_dtypes(call, kName);
  check_step(call.program == nullptr, kName, "epilogue", "none", 1);
  call.run = int_tile(call.inputs[0].dtype);
  if (!call.run)
    bad_step(kName, "dtype of x", "an integer type", std::string(dtype_name(call.inputs[0].dtype)));
  GemmPlan plan = plan_matmul_views(call, kName, false);
  plan.direct_y = 1;
  choose_matmul_tiles(plan, 1, 64, sizeof(uint64_t));
  call.scratch_bytes = plan.column_tile * static_cast<int64_t>(sizeof(uint64_t));
  call.tiles = plan.batch_count * plan.row_tiles * plan.column_tiles;
  store_plan(call, plan);
}

}  // namespace aicf
