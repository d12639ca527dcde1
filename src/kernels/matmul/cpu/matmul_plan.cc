#include "kernels/matmul/cpu/matmul_plan.h"

#include <algorithm>

#include "kernels/common/step_check.h"
#include "kernels/matmul/cpu/gemm_types.h"

namespace aicf {
namespace {

// With kGemmDepth steps of k: the part of y that waits in an L2 cache of 1 MiB.
constexpr int64_t kColumnTile = 192;
constexpr int64_t kRowTile = 64;
constexpr int64_t kRowTilePacking = 128;  // every tile packs its y: more rows share it
constexpr int64_t kWantedTiles = 16;
constexpr double kSmallestTile = 2e6;  // flops, about 20 µs of one core
constexpr double kLoadFlops = 32;      // reading an element of y from L3 takes as long as 32 flops

GemmView view_of(const TensorArg& tensor, const int64_t* sizes, int rank, const char* kernel) {
  int64_t strides[kMaxRank];
  broadcast_strides(tensor, sizes, rank, kernel, strides);
  GemmView view = {};
  for (int i = 0; i + 2 < rank; ++i) view.batch[i] = strides[i];
  view.row = strides[rank - 2];
  view.column = strides[rank - 1];
  return view;
}

void remove_batch_axis(GemmPlan& plan, int64_t axis) {
  const auto erase = [&](int64_t* values) {
    std::copy(values + axis + 1, values + plan.batch_rank, values + axis);
    values[plan.batch_rank - 1] = 0;
  };
  erase(plan.batch);
  erase(plan.x.batch);
  erase(plan.y.batch);
  for (int64_t i = 0; i < plan.operands; ++i) erase(plan.operand[i].batch);
  --plan.batch_rank;
}

bool continues_rows(const GemmView& view, int64_t axis, int64_t m) {
  return view.batch[axis] == view.row * m;
}

// A batch axis that y does not have and that continues the rows everywhere else is more rows.
bool merge_last_batch_axis(GemmPlan& plan) {
  const int64_t axis = plan.batch_rank - 1;
  if (plan.batch[axis] == 1) {
    remove_batch_axis(plan, axis);
    return true;
  }
  if (plan.y.batch[axis] != 0) return false;
  if (plan.m == 1) {
    plan.x.row = plan.x.batch[axis];
    for (int64_t i = 0; i < plan.operands; ++i) plan.operand[i].row = plan.operand[i].batch[axis];
  } else {
    if (!continues_rows(plan.x, axis, plan.m)) return false;
    for (int64_t i = 0; i < plan.operands; ++i)
      if (!continues_rows(plan.operand[i], axis, plan.m)) return false;
  }
  plan.m *= plan.batch[axis];
  remove_batch_axis(plan, axis);
  return true;
}

void check_outputs(const BoundCall& call, const char* kernel) {
  const TensorArg& result = call.outputs[0];
  for (const TensorArg& output : call.outputs) {
    check_rank(output, result.rank, kernel, "output");
    for (int i = 0; i < output.rank; ++i)
      check_step(output.sizes[i] == result.sizes[i], kernel, "output size", std::to_string(result.sizes[i]),
                 output.sizes[i]);
  }
}

void add_operands(GemmPlan& plan, const BoundCall& call, const char* kernel) {
  const TensorArg& result = call.outputs[0];
  if (call.program) {
    check_epilogue(call, 2, kernel);
    for (size_t i = 2; i < call.inputs.size(); ++i)
      plan.operand[plan.operands++] = view_of(call.inputs[i], result.sizes, result.rank, kernel);
  } else {
    check_step(call.inputs.size() == 2, kernel, "inputs without epilogue", "2",
               static_cast<int64_t>(call.inputs.size()));
    check_step(call.outputs.size() == 1, kernel, "outputs", "1", static_cast<int64_t>(call.outputs.size()));
  }
  for (const TensorArg& output : call.outputs)
    plan.operand[plan.operands++] = view_of(output, result.sizes, result.rank, kernel);
}

void set_operand_views(GemmPlan& plan, const BoundCall& call, const char* kernel, bool packed) {
  const TensorArg& x = call.inputs[0];
  const TensorArg& y = call.inputs[1];
  int64_t sizes[kMaxRank];
  const int rank = call.outputs[0].rank;
  std::copy_n(call.outputs[0].sizes, rank, sizes);
  check_step(x.rank >= 2, kernel, "rank of x", ">= 2", x.rank);
  plan.k = x.sizes[x.rank - 1];
  // Only batch axes broadcast: a row or column count of 1 must be meant.
  check_step(x.sizes[x.rank - 2] == plan.m, kernel, "rows of x", std::to_string(plan.m), x.sizes[x.rank - 2]);
  sizes[rank - 1] = plan.k;
  plan.x = view_of(x, sizes, rank, kernel);
  if (packed) {
    check_step(call.params[0] == plan.k, kernel, "param K", std::to_string(plan.k), call.params[0]);
    check_step(call.params[1] == plan.n, kernel, "param N", std::to_string(plan.n), call.params[1]);
    return;
  }
  check_step(y.rank >= 2, kernel, "rank of y", ">= 2", y.rank);
  check_step(y.sizes[y.rank - 2] == plan.k, kernel, "K of y", std::to_string(plan.k), y.sizes[y.rank - 2]);
  check_step(y.sizes[y.rank - 1] == plan.n, kernel, "columns of y", std::to_string(plan.n),
             y.sizes[y.rank - 1]);
  sizes[rank - 2] = plan.k;
  sizes[rank - 1] = plan.n;
  plan.y = view_of(y, sizes, rank, kernel);
}

}  // namespace

GemmPlan plan_matmul_views(const BoundCall& call, const char* kernel, bool packed) {
  GemmPlan plan = {};
  const TensorArg& result = call.outputs[0];
  check_step(result.rank >= 2, kernel, "rank of the result", ">= 2", result.rank);
  check_outputs(call, kernel);
  plan.packed = packed;
  plan.m = result.sizes[result.rank - 2];
  plan.n = result.sizes[result.rank - 1];
  plan.batch_rank = result.rank - 2;
  std::copy_n(result.sizes, plan.batch_rank, plan.batch);
  set_operand_views(plan, call, kernel, packed);
  add_operands(plan, call, kernel);
  while (plan.batch_rank > 0 && merge_last_batch_axis(plan)) {
  }
  plan.batch_count = 1;
  for (int64_t i = 0; i < plan.batch_rank; ++i) plan.batch_count *= plan.batch[i];
  return plan;
}

void choose_matmul_tiles(GemmPlan& plan, int64_t mr, int64_t nr, int element_bytes) {
  const bool shares_panels = plan.packed || plan.direct_y;
  const int64_t columns = std::max(nr, kColumnTile * 4 / element_bytes / nr * nr);
  int64_t row_tiles = std::max<int64_t>(1, ceil_div(plan.m, shares_panels ? kRowTile : kRowTilePacking));
  int64_t column_tiles = std::max<int64_t>(1, ceil_div(plan.n, columns));
  const auto shape = [&] {
    plan.row_tile = std::min(std::max<int64_t>(plan.m, 1), round_up(ceil_div(plan.m, row_tiles), mr));
    plan.column_tile = std::max(nr, round_up(ceil_div(plan.n, column_tiles), nr));
    plan.row_tiles = plan.m == 0 ? 0 : ceil_div(plan.m, plan.row_tile);
    plan.column_tiles = plan.n == 0 ? 0 : ceil_div(plan.n, plan.column_tile);
  };
  for (shape();; shape()) {
    const double cost = std::max(2.0 * static_cast<double>(plan.row_tile), kLoadFlops) *
                        static_cast<double>(plan.column_tile) * static_cast<double>(plan.k);
    const bool enough = plan.batch_count >= kWantedTiles ||
                        plan.batch_count * plan.row_tiles * plan.column_tiles >= kWantedTiles;
    if (enough || cost <= kSmallestTile) return;
    const bool columns_left = plan.column_tile > nr, rows_left = plan.row_tile > mr;
    if (columns_left && (plan.column_tile > 2 * plan.row_tile || !rows_left || !shares_panels))
      column_tiles = std::max(column_tiles * 2, plan.column_tiles + 1);
    else if (rows_left)
      row_tiles = std::max(row_tiles * 2, plan.row_tiles + 1);
    else
      return;
  }
}

GemmTile tile_at(const GemmPlan& plan, int64_t index) {
  GemmTile tile;
  tile.column = index % plan.column_tiles * plan.column_tile;
  index /= plan.column_tiles;
  tile.row = index % plan.row_tiles * plan.row_tile;
  index /= plan.row_tiles;
  tile.rows = std::min(plan.row_tile, plan.m - tile.row);
  tile.columns = std::min(plan.column_tile, plan.n - tile.column);
  for (int64_t axis = plan.batch_rank - 1; axis >= 0; --axis) {
    tile.batch[axis] = index % plan.batch[axis];
    index /= plan.batch[axis];
  }
  return tile;
}

int64_t offset_of(const GemmPlan& plan, const GemmView& view, const GemmTile& tile, int64_t row,
                  int64_t column) {
  int64_t offset = row * view.row + column * view.column;
  for (int64_t axis = 0; axis < plan.batch_rank; ++axis) offset += tile.batch[axis] * view.batch[axis];
  return offset;
}

bool has_matrices(const Problem& problem) {
  return problem.inputs.size() >= 2 && !problem.outputs.empty() && problem.params.empty() &&
         (problem.has_program || problem.inputs.size() == 2) &&
         problem.inputs[0].dtype == problem.inputs[1].dtype && problem.inputs[0].sizes.size() >= 2 &&
         problem.inputs[1].sizes.size() >= 2 && problem.outputs[0].sizes.size() >= 2 &&
         problem.outputs[0].sizes.size() <= static_cast<size_t>(kMaxRank);
}

void check_same_dtypes(const BoundCall& call, const char* kernel) {
  check_dtype(call.inputs[1], call.inputs[0].dtype, kernel, "y");
  if (!call.program) check_dtype(call.outputs[0], call.inputs[0].dtype, kernel, "result");
}

}  // namespace aicf
