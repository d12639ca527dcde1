#include "kernels/matmul/cpu/pack.h"

#include <algorithm>

#include "base/dim.h"
#include "kernels/common/kernel.h"
#include "kernels/common/step_check.h"
#include "kernels/matmul/cpu/gemm.h"

namespace aicf {
namespace {

constexpr std::string_view kName = "pack_matmul_y_f32";
constexpr int64_t kRoundedColumns = 48;  // at every level no fewer than packed_panel_width() adds up to

struct PackPlan {
  int64_t k, n;
};

// Column `column` of the inputs side by side: its address at k = 0, and how many columns follow it in the
// same input, itself included.
struct Column {
  const float* data;
  const TensorArg* input;
  int64_t left;
};

Column column_at(const BoundCall& call, int64_t column) {
  const TensorArg* input = call.inputs.data();
  while (column >= input->sizes[1]) column -= input++->sizes[1];
  return {static_cast<const float*>(input->data) + column * input->strides[1], input,
          input->sizes[1] - column};
}

// A panel with columns of several inputs.
void pack_border(const BoundCall& call, int64_t first, int64_t columns, int64_t panel, int64_t depth,
                 float* to) {
  for (int64_t j = 0; j < panel; ++j) {
    const Column from = j < columns ? column_at(call, first + j) : Column{};
    for (int64_t k = 0; k < depth; ++k)
      to[k * panel + j] = from.data != nullptr ? from.data[k * from.input->strides[0]] : 0;
  }
}

void run_pack_tile(const BoundCall& call, int64_t tile, std::byte*) {
  const PackPlan& plan = stored_plan<PackPlan>(call);
  const GemmIsa& isa = gemm_isa(call.isa);
  const int64_t column = tile * isa.nr_f32, columns = std::min(plan.n - column, isa.nr_f32);
  const Column from = column_at(call, column);
  float* to = static_cast<float*>(call.outputs[0].data) + column * plan.k;
  const int64_t width = packed_panel_width(isa.nr_f32, column, plan.n);
  if (from.left < columns) return pack_border(call, column, columns, width, plan.k, to);
  GemmPack<float> pack;
  pack.from = from.data;
  pack.k_stride = from.input->strides[0];
  pack.n_stride = from.input->strides[1];
  pack.depth = plan.k;
  pack.n = columns;
  pack.to = to;
  pack.panel_stride = 0;
  pack.last = width;
  run_pack(isa, pack);
}

}  // namespace

int64_t packed_matmul_y_bytes(int64_t k, int64_t n) {
  const int64_t columns = checked_add(n, kRoundedColumns - 1) / kRoundedColumns * kRoundedColumns;
  return checked_mul(checked_mul(columns, k), sizeof(float));
}

bool can_run_pack_matmul_y(const Problem& problem) {
  return !problem.inputs.empty() &&
         std::all_of(problem.inputs.begin(), problem.inputs.end(),
                     [](const ProblemTensor& y) { return y.dtype == DType::f32 && y.sizes.size() == 2; });
}

void prepare_pack_matmul_y(BoundCall& call) {
  check_counts(call, kName, 1, SIZE_MAX, 0, 0);
  check_step(call.program == nullptr, kName, "program", "none", 1);
  PackPlan plan = {};
  for (const TensorArg& y : call.inputs) {
    check_dtype(y, DType::f32, kName, "y");
    check_rank(y, 2, kName, "y");
    plan.k = call.inputs[0].sizes[0];
    check_step(y.sizes[0] == plan.k, kName, "K of a part", std::to_string(plan.k), y.sizes[0]);
    plan.n = checked_add(plan.n, y.sizes[1]);
  }
  const TensorArg& out = call.outputs[0];
  check_dtype(out, DType::u8, kName, "packed");
  check_rank(out, 1, kName, "packed");
  const int64_t bytes = packed_matmul_y_bytes(plan.k, plan.n);
  check_step(out.sizes[0] >= bytes && (out.strides[0] == 1 || out.sizes[0] <= 1), kName, "packed bytes",
             ">= " + std::to_string(bytes) + ", dense", out.sizes[0]);
  store_plan(call, plan);
  call.run = run_pack_tile;
  call.tiles = plan.k == 0 ? 0 : ceil_div(plan.n, gemm_isa(call.isa).nr_f32);
  call.scratch_bytes = 0;
}

}  // namespace aicf
