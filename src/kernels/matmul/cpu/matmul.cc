// Dense contractions of floats: the drivers around the micro-kernels of gemm_isa.cc.
#include <algorithm>
#include <cstring>
#include <optional>

#include "kernels/common/element.h"
#include "kernels/common/kernel.h"
#include "kernels/common/step_check.h"
#include "kernels/matmul/cpu/gemm.h"
#include "kernels/matmul/cpu/gemm_next.h"
#include "kernels/matmul/cpu/matmul_plan.h"
#include "kernels/matmul/cpu/pack.h"
#include "kernels/matmul/cpu/tile_epilogue.h"

namespace aicf {
namespace {

constexpr int64_t kCopyPadding = 16;  // elements after a copied row of x, so that rows share no cache sets
constexpr int64_t kSetPeriod = 4096;  // bytes after which the sets of an L1 cache repeat
constexpr int64_t kFewRows = 16;  // up to here y is read where it lies: packing would cost more than it saves

// One tile in the making: the addresses that stay, and the current block of k.
template <class T>
struct Job {
  const BoundCall& call;
  const GemmPlan& plan;
  const GemmIsa& isa;
  std::byte* scratch;
  int64_t index;
  GemmTile tile;
  int64_t nr;
  int64_t k = 0, depth = 0;
};

// C of the tile for one block of k, the last one if there is an epilogue. The micro-kernels finish their sums
// where they can; otherwise a few rows at a time are finished while they are in the L1 cache, where the
// kernels go by rows at all.
template <class T>
void multiply(const Job<T>& job, GemmBlock<T>& block, TileEpilogue* epilogue) {
  if (epilogue != nullptr && epilogue->finish() != nullptr) {
    block.finish = epilogue->finish();
    return run_block(job.isa, block);
  }
  const bool by_rows = epilogue != nullptr && job.isa.rows_first && epilogue->by_rows();
  if (!by_rows) {
    run_block(job.isa, block);
    if (epilogue != nullptr) epilogue->run(0, block.m);
    return;
  }
  const int64_t groups = ceil_div(block.m, job.isa.mr);
  GemmBlock<T> rows = block;
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t first = g * block.m / groups;
    rows.m = (g + 1) * block.m / groups - first;
    rows.a = block.a + first * block.lda;
    rows.c = block.c + first * block.ldc;
    rows.tile_row = first;
    epilogue->prefetch(first, rows.m);
    run_block(job.isa, rows);
    epilogue->run(first, rows.m);
  }
}

template <class T>
void copy_x(const Job<T>& job, int64_t offset, T* to) {
  const TensorArg& x = job.call.inputs[0];
  const int64_t row_stride = job.plan.x.row, k_stride = job.plan.x.column;
  for (int64_t i = 0; i < job.tile.rows; ++i, to += kGemmDepth + kCopyPadding, offset += row_stride) {
    if (k_stride == 1 && !is_half(x.dtype)) {
      std::memcpy(to, static_cast<const T*>(x.data) + offset, static_cast<size_t>(job.depth) * sizeof(T));
      continue;
    }
    for (int64_t k = 0; k < job.depth; ++k) to[k] = load_element<T>(x.data, x.dtype, offset + k * k_stride);
  }
}

template <class T>
void set_left(const Job<T>& job, GemmBlock<T>& block) {
  const int64_t offset = offset_of(job.plan, job.plan.x, job.tile, job.tile.row, job.k);
  if (job.plan.x_offset < 0) {
    block.a = static_cast<const T*>(job.call.inputs[0].data) + offset;
    block.lda = job.plan.x.row;
    return;
  }
  T* to = reinterpret_cast<T*>(job.scratch + job.plan.x_offset);
  copy_x(job, offset, to);
  block.a = to;
  block.lda = kGemmDepth + kCopyPadding;
}

template <class T>
void widen_y(const Job<T>& job, int64_t offset, T* to) {
  const TensorArg& y = job.call.inputs[1];
  for (int64_t column = 0; column < round_up(job.tile.columns, job.nr); ++column) {
    T* out = to + column / job.nr * job.nr * kGemmDepth + column % job.nr;
    for (int64_t k = 0; k < job.depth; ++k) {
      const int64_t from = offset + k * job.plan.y.row + column * job.plan.y.column;
      out[k * job.nr] = column < job.tile.columns ? load_element<T>(y.data, y.dtype, from) : T(0);
    }
  }
}

// Panels in scratch for the columns of the tile from `column` on.
template <class T>
void set_right_copied(const Job<T>& job, int64_t column, GemmBlock<T>& block) {
  T* to = reinterpret_cast<T*>(job.scratch + job.plan.y_offset);
  const int64_t offset = offset_of(job.plan, job.plan.y, job.tile, job.k, job.tile.column + column);
  if (is_half(job.call.inputs[1].dtype)) {
    widen_y(job, offset, to);
  } else {
    GemmPack<T> pack;
    pack.from = static_cast<const T*>(job.call.inputs[1].data) + offset;
    pack.k_stride = job.plan.y.row;
    pack.n_stride = job.plan.y.column;
    pack.depth = job.depth;
    pack.n = job.tile.columns - column;
    pack.to = to;
    pack.panel_stride = kGemmDepth * job.nr;
    run_pack(job.isa, pack);
  }
  block.b = to;
  block.ldb = job.nr;
  block.panel_stride = kGemmDepth * job.nr;
}

// Column `column` at step k, the first of its panel.
const float* weights_at(const BoundCall& call, const GemmPlan& plan, int64_t column, int64_t k) {
  return static_cast<const float*>(call.inputs[1].data) + column * plan.k +
         k * packed_panel_width(gemm_isa(call.isa).nr_f32, column, plan.n);
}

FirstWeights weights_of(const BoundCall& call, const GemmPlan& plan, const GemmTile& tile, int64_t k) {
  const int64_t nr = gemm_isa(call.isa).nr_f32, bytes = nr * static_cast<int64_t>(sizeof(float));
  return {reinterpret_cast<const std::byte*>(weights_at(call, plan, tile.column, k)),
          ceil_div(tile.columns, nr), std::min(kGemmDepth, plan.k - k) * bytes, plan.k * bytes};
}

FirstWeights first_weights(const BoundCall& call, int64_t tile) {
  const GemmPlan& plan = stored_plan<GemmPlan>(call);
  return weights_of(call, plan, tile_at(plan, tile), 0);
}

// Next come the following steps of k, then the weights of the next tile, or those of the next call.
void run_packed(const Job<float>& job, GemmBlock<float>& block, TileEpilogue* epilogue) {
  const int64_t last_panel = job.tile.column + (job.tile.columns - 1) / job.nr * job.nr;
  block.b = weights_at(job.call, job.plan, job.tile.column, job.k);
  block.ldb = job.nr;
  block.last_b = weights_at(job.call, job.plan, last_panel, job.k);
  block.last_ldb = packed_panel_width(job.nr, last_panel, job.plan.n);
  block.panel_stride = job.plan.k * job.nr;
  const int64_t k = job.k + job.depth;
  const FirstWeights next =
      k < job.plan.k ? weights_of(job.call, job.plan, job.tile, k) : weights_after(job.call, job.index);
  if (next.pieces > 0 && next.from != reinterpret_cast<const std::byte*>(block.b))
    fetch_next(next, job.nr, block);
  multiply(job, block, epilogue);
}

// Whole panels straight from y; what is left goes through scratch, where reading a full panel is allowed.
template <class T>
void run_direct(const Job<T>& job, GemmBlock<T> block) {
  const int64_t whole = job.tile.columns / job.nr * job.nr;
  block.b = static_cast<const T*>(job.call.inputs[1].data) +
            offset_of(job.plan, job.plan.y, job.tile, job.k, job.tile.column);
  block.ldb = job.plan.y.row;
  block.panel_stride = job.nr;
  block.n = whole;
  run_block(job.isa, block);
  if (whole == job.tile.columns) return;
  set_right_copied(job, whole, block);
  block.n = job.tile.columns - whole;
  block.c += whole;
  run_block(job.isa, block);
}

template <class T>
void run_right(const Job<T>& job, GemmBlock<T>& block, TileEpilogue* epilogue) {
  if constexpr (sizeof(T) == sizeof(float)) {
    if (job.plan.packed) return run_packed(job, block, epilogue);
  }
  if (job.plan.direct_y) {
    run_direct(job, block);
    if (epilogue != nullptr) epilogue->run(0, block.m);
  } else {
    set_right_copied(job, 0, block);
    multiply(job, block, epilogue);
  }
}

template <class T>
void store_tile(const Job<T>& job, const T* c, int64_t ldc) {
  const GemmPlan& plan = job.plan;
  const TensorArg& out = job.call.outputs[0];
  for (int64_t i = 0; i < job.tile.rows; ++i) {
    const int64_t to = offset_of(plan, plan.operand[0], job.tile, job.tile.row + i, job.tile.column);
    for (int64_t j = 0; j < job.tile.columns; ++j)
      store_element(out.data, out.dtype, to + j * plan.operand[0].column, c[i * ldc + j]);
  }
}

template <class T>
void run_tile(const BoundCall& call, int64_t index, std::byte* scratch) {
  const GemmPlan& plan = stored_plan<GemmPlan>(call);
  const GemmIsa& isa = gemm_isa(call.isa);
  Job<T> job{call, plan, isa, scratch, index, tile_at(plan, index), panel_columns<T>(isa)};
  GemmBlock<T> block = {};
  block.m = block.tile_rows = job.tile.rows;
  block.n = job.tile.columns;
  block.padded = plan.c_offset >= 0;
  if (block.padded) {
    block.c = reinterpret_cast<T*>(scratch + plan.c_offset);
    block.ldc = plan.column_tile;
  } else {
    block.c = static_cast<T*>(call.outputs[0].data) +
              offset_of(plan, plan.operand[0], job.tile, job.tile.row, job.tile.column);
    block.ldc = plan.operand[0].row;
  }
  std::optional<TileEpilogue> epilogue;
  if (call.program) epilogue.emplace(call, isa, job.tile, scratch, block.c, block.ldc);
  do {  // once even for K = 0: the empty sum is stored
    job.depth = std::min(kGemmDepth, plan.k - job.k);
    block.depth = job.depth;
    block.first = job.k == 0;
    set_left(job, block);
    const bool last = job.k + job.depth >= plan.k;
    run_right(job, block, epilogue && last ? &*epilogue : nullptr);
    job.k += job.depth;
  } while (job.k < plan.k);
  if (!call.program && block.padded) store_tile(job, block.c, block.ldc);
}

bool rows_share_sets(const GemmPlan& plan, int64_t bytes) {
  return plan.m >= 4 && plan.x.row != 0 && plan.x.row * bytes % kSetPeriod == 0;
}

template <class T>
void place_scratch(BoundCall& call, GemmPlan& plan) {
  const int64_t bytes = sizeof(T);
  const bool widen = is_half(call.inputs[0].dtype);
  int64_t used = 0;
  const auto take = [&](bool wanted, int64_t size) {
    const int64_t at = used;
    if (wanted) used += round_up(size, 64);
    return wanted ? at : -1;
  };
  const GemmView& result = plan.operand[plan.operands - 1];
  const bool copies_x = widen || plan.x.column != 1 || rows_share_sets(plan, bytes);
  const bool copies_c = call.program || widen || result.column != 1;
  plan.x_offset = take(copies_x, plan.row_tile * (kGemmDepth + kCopyPadding) * bytes);
  plan.y_offset = take(!plan.packed, kGemmDepth * plan.column_tile * bytes);
  plan.c_offset = take(copies_c, plan.row_tile * plan.column_tile * bytes);
  plan.program_offset =
      take(call.program != nullptr, call.program ? tile_rows_scratch_bytes(*call.program) : 0);
  call.scratch_bytes = used;
}

template <class T>
void prepare_float(BoundCall& call, const char* kernel, bool packed) {
  GemmPlan plan = plan_matmul_views(call, kernel, packed);
  const GemmIsa& isa = gemm_isa(call.isa);
  plan.direct_y = !packed && !is_half(call.inputs[1].dtype) && plan.y.column == 1 && plan.m <= kFewRows;
  choose_matmul_tiles(plan, isa.mr, panel_columns<T>(isa), sizeof(T));
  place_scratch<T>(call, plan);
  call.tiles = plan.batch_count * plan.row_tiles * plan.column_tiles;
  call.run = run_tile<T>;
  if (packed) call.first_weights = first_weights;
  store_plan(call, plan);
}

constexpr size_t kMaxInputs = kMaxTileOperands + 1;

}  // namespace

bool can_run_matmul_f32_packed(const Problem& problem) {
  return problem.inputs.size() >= 2 && !problem.outputs.empty() && problem.params.size() == 2 &&
         (problem.has_program || problem.inputs.size() == 2) && problem.inputs[0].dtype == DType::f32 &&
         problem.inputs[0].sizes.size() >= 2 && problem.inputs[1].dtype == DType::u8 &&
         problem.inputs[1].sizes.size() == 1 &&
         problem.outputs[0].sizes.size() <= static_cast<size_t>(kMaxRank);
}
bool can_run_matmul_f32(const Problem& problem) {
  return has_matrices(problem) && problem.inputs[0].dtype == DType::f32;
}
bool can_run_matmul_half(const Problem& problem) {
  return has_matrices(problem) && is_half(problem.inputs[0].dtype);
}
bool can_run_matmul_f64(const Problem& problem) {
  return has_matrices(problem) && problem.inputs[0].dtype == DType::f64;
}

void prepare_matmul_f32_packed(BoundCall& call) {
  constexpr const char* kName = "matmul_f32_packed";
  check_counts(call, kName, 2, kMaxInputs, 2, 0);
  check_dtype(call.inputs[0], DType::f32, kName, "x");
  check_dtype(call.inputs[1], DType::u8, kName, "packed y");
  check_rank(call.inputs[1], 1, kName, "packed y");
  check_step(call.params[0] >= 0 && call.params[1] >= 0, kName, "params K, N", ">= 0",
             std::min(call.params[0], call.params[1]));
  const int64_t bytes = packed_matmul_y_bytes(call.params[0], call.params[1]);
  check_step(call.inputs[1].sizes[0] >= bytes && (call.inputs[1].strides[0] == 1 || bytes <= 1), kName,
             "bytes of packed y", ">= " + std::to_string(bytes) + ", dense", call.inputs[1].sizes[0]);
  if (!call.program) check_dtype(call.outputs[0], DType::f32, kName, "result");
  prepare_float<float>(call, kName, true);
}

void prepare_matmul_f32(BoundCall& call) {
  constexpr const char* kName = "matmul_f32";
  check_counts(call, kName, 2, kMaxInputs, 0, 0);
  check_dtype(call.inputs[0], DType::f32, kName, "x");
  check_same_dtypes(call, kName);
  prepare_float<float>(call, kName, false);
}

void prepare_matmul_half(BoundCall& call) {
  constexpr const char* kName = "matmul_half";
  check_counts(call, kName, 2, kMaxInputs, 0, 0);
  if (!is_half(call.inputs[0].dtype))
    bad_step(kName, "dtype of x", "f16 or bf16", std::string(dtype_name(call.inputs[0].dtype)));
  check_same_dtypes(call, kName);
  prepare_float<float>(call, kName, false);
}

void prepare_matmul_f64(BoundCall& call) {
  constexpr const char* kName = "matmul_f64";
  check_counts(call, kName, 2, 2, 0, 0);
  check_dtype(call.inputs[0], DType::f64, kName, "x");
  check_same_dtypes(call, kName);
  check_step(call.program == nullptr, kName, "epilogue", "none", 1);
  prepare_float<double>(call, kName, false);
}

}  // namespace aicf
