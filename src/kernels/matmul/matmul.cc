// Dense contractions: the drivers around the micro-kernels of gemm_isa.cc, and the integer matmul.
#include <algorithm>
#include <cstring>
#include <optional>

#include "kernels/element.h"
#include "kernels/kernel.h"
#include "kernels/matmul/gemm.h"
#include "kernels/matmul/gemm_finish.h"
#include "kernels/matmul/matmul_plan.h"
#include "kernels/matmul/pack.h"
#include "kernels/step_check.h"
#include "kernels/tile/tile_rows.h"

namespace aicf {
namespace {

constexpr int64_t kCopyPadding =
    16;  // elements after a copied row of x, so that rows do not share cache sets
constexpr int64_t kSetPeriod = 4096;  // bytes after which the sets of an L1 cache repeat
constexpr int64_t kFewRows = 16;  // up to here y is read where it lies: packing would cost more than it saves

struct Tile {
  int64_t batch[kMaxRank];
  int64_t row, rows, column, columns;
};

// Columns run fastest: the tiles that one worker takes in a row share their rows of x, and two workers halve
// the rows of every step of a model in the same way, so that a worker reads what it wrote.
Tile tile_at(const MatmulPlan& plan, int64_t index) {
  Tile tile;
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

int64_t offset_of(const MatmulPlan& plan, const MatmulView& view, const Tile& tile, int64_t row,
                  int64_t column) {
  int64_t offset = row * view.row + column * view.column;
  for (int64_t axis = 0; axis < plan.batch_rank; ++axis) offset += tile.batch[axis] * view.batch[axis];
  return offset;
}

// One tile in the making: the addresses that stay, and the current block of k.
template <class T>
struct Job {
  const BoundCall& call;
  const MatmulPlan& plan;
  const GemmIsa& isa;
  std::byte* scratch;
  Tile tile;
  int64_t nr;
  int64_t k = 0, depth = 0;
};

// The epilogue of a tile of sums in scratch.
class Epilogue {
 public:
  template <class T>
  Epilogue(const Job<T>& job, T* c, int64_t ldc) : call_(job.call), tile_(job.tile) {
    const MatmulPlan& plan = job.plan;
    scratch_ = job.scratch + plan.program_offset;
    windows_[0] = {c, ldc, 1};
    count_ = static_cast<size_t>(plan.operands) + 1;
    for (size_t i = 1; i < count_; ++i) {
      const MatmulView& view = plan.operand[i - 1];
      const int64_t offset = offset_of(plan, view, tile_, tile_.row, tile_.column);
      windows_[i] = {static_cast<std::byte*>(tensor(i).data) + offset * dtype_bytes(tensor(i).dtype),
                     view.row, view.column};
    }
    if (TileRowRunner::fits(*call_.program, tile_.columns))
      runner_.emplace(*call_.program, call_.isa, windows_, scratch_);
    const auto chain = runner_ && job.isa.finishes ? runner_->chain(tile_.columns) : std::nullopt;
    if (chain) finish_ = gemm_finish_of(*chain, nullptr, tile_.columns);
  }

  // All of it, if micro-kernels can do it; else null.
  const GemmFinish* finish() const { return finish_ ? &*finish_ : nullptr; }
  // Whether a few rows can be finished while their sums are in the L1 cache.
  bool by_rows() const { return runner_.has_value(); }

  // Asks for the memory that run() of these rows will touch.
  void prefetch(int64_t first, int64_t rows) const {
    constexpr int64_t kLine = 64;
    const size_t inputs = call_.program->inputs.size();
    for (size_t i = 1; i < count_; ++i) {
      if (windows_[i].row_stride == 0 || windows_[i].column_stride != 1) continue;
      const int64_t bytes = dtype_bytes(tensor(i).dtype);
      for (int64_t row = first; row < first + rows; ++row) {
        const std::byte* at =
            static_cast<const std::byte*>(windows_[i].data) + row * windows_[i].row_stride * bytes;
        for (int64_t byte = 0; byte < tile_.columns * bytes; byte += kLine)
          i < inputs ? __builtin_prefetch(at + byte) : __builtin_prefetch(at + byte, 1);
      }
    }
  }

  void run(int64_t first, int64_t rows) {
    if (runner_)
      runner_->run(first, rows, tile_.columns);
    else
      run_tile_rows(*call_.program, call_.isa, tile_.rows, tile_.columns, windows_, scratch_);
  }

 private:
  const TensorArg& tensor(size_t window) const {  // 0 are the sums
    const size_t inputs = call_.inputs.size() - 2;
    return window <= inputs ? call_.inputs[window + 1] : call_.outputs[window - inputs - 1];
  }

  const BoundCall& call_;
  const Tile& tile_;
  std::byte* scratch_;
  size_t count_;
  TileWindow windows_[kMaxTileOperands + 1];
  std::optional<TileRowRunner> runner_;
  std::optional<GemmFinish> finish_;
};

// C of the tile for one block of k, the last one if there is an epilogue. The micro-kernels finish their sums
// where they can; otherwise a few rows at a time are finished while they are in the L1 cache, where the
// kernels go by rows at all.
template <class T>
void multiply(const Job<T>& job, GemmBlock<T>& block, Epilogue* epilogue) {
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

template <class T>
void run_packed(const Job<T>& job, GemmBlock<T>& block, Epilogue* epilogue) {
  const MatmulPlan& plan = job.plan;
  const T* y = static_cast<const T*>(job.call.inputs[1].data);
  block.b = y + job.tile.column * plan.k + job.k * job.nr;
  block.ldb = job.nr;
  block.panel_stride = plan.k * job.nr;
  // Next come the following steps of k, then the following columns.
  const int64_t column = job.tile.column + plan.column_tile;
  const bool same_columns = job.k + job.depth < plan.k;
  const int64_t k = same_columns ? job.k + job.depth : 0;
  const bool last = !same_columns && column >= plan.n;
  block.next = last ? nullptr : y + (same_columns ? job.tile.column : column) * plan.k + k * job.nr;
  block.next_depth = std::min(kGemmDepth, plan.k - k);
  block.next_stride = block.panel_stride;
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
void run_right(const Job<T>& job, GemmBlock<T>& block, Epilogue* epilogue) {
  if (job.plan.packed) {
    run_packed(job, block, epilogue);
  } else if (job.plan.direct_y) {
    run_direct(job, block);
    if (epilogue != nullptr) epilogue->run(0, block.m);
  } else {
    set_right_copied(job, 0, block);
    multiply(job, block, epilogue);
  }
}

template <class T>
void store_tile(const Job<T>& job, const T* c, int64_t ldc) {
  const MatmulPlan& plan = job.plan;
  const TensorArg& out = job.call.outputs[0];
  for (int64_t i = 0; i < job.tile.rows; ++i) {
    const int64_t to = offset_of(plan, plan.operand[0], job.tile, job.tile.row + i, job.tile.column);
    for (int64_t j = 0; j < job.tile.columns; ++j)
      store_element(out.data, out.dtype, to + j * plan.operand[0].column, c[i * ldc + j]);
  }
}

template <class T>
void run_tile(const BoundCall& call, int64_t index, std::byte* scratch) {
  const MatmulPlan& plan = stored_plan<MatmulPlan>(call);
  const GemmIsa& isa = gemm_isa(call.isa);
  Job<T> job{call, plan, isa, scratch, tile_at(plan, index), panel_columns<T>(isa)};
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
  std::optional<Epilogue> epilogue;
  if (call.program) epilogue.emplace(job, block.c, block.ldc);
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

bool rows_share_sets(const MatmulPlan& plan, int64_t bytes) {
  return plan.m >= 4 && plan.x.row != 0 && plan.x.row * bytes % kSetPeriod == 0;
}

template <class T>
void place_scratch(BoundCall& call, MatmulPlan& plan) {
  const int64_t bytes = sizeof(T);
  const bool widen = is_half(call.inputs[0].dtype);
  int64_t used = 0;
  const auto take = [&](bool wanted, int64_t size) {
    const int64_t at = used;
    if (wanted) used += round_up(size, 64);
    return wanted ? at : -1;
  };
  const MatmulView& result = plan.operand[plan.operands - 1];
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
  MatmulPlan plan = plan_matmul_views(call, kernel, packed);
  const GemmIsa& isa = gemm_isa(call.isa);
  plan.direct_y = !packed && !is_half(call.inputs[1].dtype) && plan.y.column == 1 && plan.m <= kFewRows;
  choose_matmul_tiles(plan, isa.mr, panel_columns<T>(isa), sizeof(T));
  place_scratch<T>(call, plan);
  call.tiles = plan.batch_count * plan.row_tiles * plan.column_tiles;
  call.run = run_tile<T>;
  store_plan(call, plan);
}

// --- integers
// -----------------------------------------------------------------------------------------------------------

// Wrapping sums in 64 bits: the low bits of a product depend only on the low bits of its factors.
template <class T>
void run_int_tile(const BoundCall& call, int64_t index, std::byte* scratch) {
  const MatmulPlan& plan = stored_plan<MatmulPlan>(call);
  const Tile tile = tile_at(plan, index);
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

void check_same_dtypes(const BoundCall& call, const char* kernel) {
  check_dtype(call.inputs[1], call.inputs[0].dtype, kernel, "y");
  if (!call.program) check_dtype(call.outputs[0], call.inputs[0].dtype, kernel, "result");
}

bool has_matrices(const Problem& problem) {
  return problem.inputs.size() >= 2 && !problem.outputs.empty() && problem.params.empty() &&
         (problem.has_program || problem.inputs.size() == 2) &&
         problem.inputs[0].dtype == problem.inputs[1].dtype && problem.inputs[0].sizes.size() >= 2 &&
         problem.inputs[1].sizes.size() >= 2 && problem.outputs[0].sizes.size() >= 2 &&
         problem.outputs[0].sizes.size() <= static_cast<size_t>(kMaxRank);
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
bool can_run_matmul_int(const Problem& problem) {
  return has_matrices(problem) && is_integer(problem.inputs[0].dtype);
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

void prepare_matmul_int(BoundCall& call) {
  constexpr const char* kName = "matmul_int";
  check_counts(call, kName, 2, 2, 0, 0);
  check_same_dtypes(call, kName);
  check_step(call.program == nullptr, kName, "epilogue", "none", 1);
  call.run = int_tile(call.inputs[0].dtype);
  if (!call.run)
    bad_step(kName, "dtype of x", "an integer type", std::string(dtype_name(call.inputs[0].dtype)));
  MatmulPlan plan = plan_matmul_views(call, kName, false);
  plan.direct_y = 1;
  choose_matmul_tiles(plan, 1, 64, sizeof(uint64_t));
  call.scratch_bytes = plan.column_tile * static_cast<int64_t>(sizeof(uint64_t));
  call.tiles = plan.batch_count * plan.row_tiles * plan.column_tiles;
  store_plan(call, plan);
}

}  // namespace aicf
