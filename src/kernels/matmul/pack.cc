#include "kernels/matmul/pack.h"

#include "base/dim.h"
#include "kernels/kernel.h"
#include "kernels/matmul/gemm.h"
#include "kernels/matmul/step_check.h"

namespace aicf {
namespace {

constexpr std::string_view kName = "pack_matmul_y_f32";
constexpr int64_t kWidestPanel = 48;  // a multiple of every level's panel

struct PackPlan {
  int64_t k, n, k_stride, n_stride;
};

int64_t panels_of(const BoundCall& call, const PackPlan& plan) {
  return ceil_div(plan.n, gemm_isa(call.isa).nr_f32);
}

void run_pack_tile(const BoundCall& call, int64_t tile, std::byte*) {
  const PackPlan& plan = stored_plan<PackPlan>(call);
  const GemmIsa& isa = gemm_isa(call.isa);
  const int64_t column = tile * isa.nr_f32;
  GemmPack<float> pack;
  pack.from = static_cast<const float*>(call.inputs[0].data) + column * plan.n_stride;
  pack.k_stride = plan.k_stride;
  pack.n_stride = plan.n_stride;
  pack.depth = plan.k;
  pack.n = plan.n - column < isa.nr_f32 ? plan.n - column : isa.nr_f32;
  pack.to = static_cast<float*>(call.outputs[0].data) + column * plan.k;
  pack.panel_stride = 0;
  run_pack(isa, pack);
}

}  // namespace

int64_t packed_matmul_y_bytes(int64_t k, int64_t n) {
  const int64_t columns = checked_add(n, kWidestPanel - 1) / kWidestPanel * kWidestPanel;
  return checked_mul(checked_mul(columns, k), sizeof(float));
}

bool can_run_pack_matmul_y(const Problem& problem) {
  return problem.inputs.size() == 1 && problem.inputs[0].dtype == DType::f32 &&
         problem.inputs[0].sizes.size() == 2;
}

void prepare_pack_matmul_y(BoundCall& call) {
  check_counts(call, kName, 1, 1, 0, 0);
  check_step(call.program == nullptr, kName, "program", "none", 1);
  check_dtype(call.inputs[0], DType::f32, kName, "y");
  check_rank(call.inputs[0], 2, kName, "y");
  const TensorArg& y = call.inputs[0];
  const TensorArg& out = call.outputs[0];
  check_dtype(out, DType::u8, kName, "packed");
  check_rank(out, 1, kName, "packed");
  const int64_t bytes = packed_matmul_y_bytes(y.sizes[0], y.sizes[1]);
  check_step(out.sizes[0] >= bytes && (out.strides[0] == 1 || out.sizes[0] <= 1), kName, "packed bytes",
             ">= " + std::to_string(bytes) + ", dense", out.sizes[0]);
  const PackPlan plan{y.sizes[0], y.sizes[1], y.strides[0], y.strides[1]};
  store_plan(call, plan);
  call.run = run_pack_tile;
  call.tiles = plan.k == 0 ? 0 : panels_of(call, plan);
  call.scratch_bytes = 0;
}

}  // namespace aicf
