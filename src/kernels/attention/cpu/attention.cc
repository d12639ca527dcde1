// Attention without materialised scores, f32: per (batch, head, block of query rows), key block after key
// block.
#include <algorithm>
#include <cmath>

#include "kernels/attention/attention_call.h"
#include "kernels/attention/cpu/attention_rows.h"
#include "kernels/common/kernel.h"
#include "kernels/common/step_check.h"
#include "kernels/matmul/cpu/gemm.h"

namespace aicf {

AICF_DECLARE_PER_ISA(extern const AttentionIsa kAttentionIsa)

namespace {

constexpr const char* kName = "attention_f32";
constexpr int64_t kKeyBlock = 256;
static_assert(kKeyBlock <= kGemmDepth);  // the sum over a key block is one chain of the contraction
constexpr int64_t kRowBlock = 256;       // query rows that share a packed key block
constexpr int64_t kRowGroup = 32;        // their scores, 32 × 256 × 4 bytes, stay in the L1 or L2 cache
constexpr int64_t kWantedTiles = 8;
constexpr int64_t kLanes = 16;

struct AttentionPlan {
  int64_t batch, heads, kv_heads, queries, keys, depth, value_depth;
  View4 q, k, v, mask, out;
  int64_t has_mask, mask_is_bool;
  SeenKeys seen;
  int64_t row_block, row_blocks;
  int64_t out_stride, score_stride, key_stride, value_stride;  // floats between rows or panels in scratch
  int64_t q_offset, key_offset, value_offset, score_offset, out_offset, maximum_offset,
      sum_offset;  // bytes of scratch
};

// What one tile works on.
struct Job {
  const BoundCall& call;
  const AttentionPlan& plan;
  const GemmIsa& gemm;
  const AttentionIsa& softmax;
  std::byte* scratch;
  int64_t batch, head, kv_head, first_row, rows;

  float* at(int64_t offset) const { return reinterpret_cast<float*>(scratch + offset); }
  template <class T>
  const T* input(int which, const View4& view, int64_t h, int64_t row) const {
    return static_cast<const T*>(call.inputs[static_cast<size_t>(which)].data) + batch * view.batch +
           h * view.head + row * view.row;
  }
};

Job job_at(const BoundCall& call, int64_t tile, std::byte* scratch) {
  const AttentionPlan& plan = stored_plan<AttentionPlan>(call);
  const int64_t block = tile % plan.row_blocks, head = tile / plan.row_blocks % plan.heads;
  const int64_t row = block * plan.row_block;
  return {call,
          plan,
          gemm_isa(call.isa),
          *AICF_PICK_ISA(call.isa, kAttentionIsa),
          scratch,
          tile / plan.row_blocks / plan.heads,
          head,
          head / (plan.heads / plan.kv_heads),
          row,
          std::min(plan.row_block, plan.queries - row)};
}

void copy_queries(const Job& job) {
  const AttentionPlan& plan = job.plan;
  for (int64_t i = 0; i < job.rows; ++i) {
    const float* from = job.input<float>(0, plan.q, job.head, job.first_row + i);
    float* to = job.at(plan.q_offset) + i * (plan.depth + kLanes);
    for (int64_t j = 0; j < plan.depth; ++j) to[j] = from[j * plan.q.column];
  }
}

void start_rows(const Job& job) {
  std::fill_n(job.at(job.plan.maximum_offset), job.rows, -INFINITY);
  std::fill_n(job.at(job.plan.sum_offset), job.rows, 0.0f);
  std::fill_n(job.at(job.plan.out_offset), job.rows * job.plan.out_stride, 0.0f);
}

// The keys [first, first + count) as panels of columns, for steps [from, from + steps) of the depth.
void pack_keys(const Job& job, int64_t first, int64_t count, int64_t from, int64_t steps) {
  GemmPack<float> pack;
  pack.from = job.input<float>(1, job.plan.k, job.kv_head, first) + from * job.plan.k.column;
  pack.k_stride = job.plan.k.column;
  pack.n_stride = job.plan.k.row;
  pack.depth = steps;
  pack.n = count;
  pack.to = job.at(job.plan.key_offset) + from * round_up(kKeyBlock, job.gemm.nr_f32);
  pack.panel_stride = steps * job.gemm.nr_f32;
  run_pack(job.gemm, pack);
}

void pack_values(const Job& job, int64_t first, int64_t count) {
  if (job.plan.value_depth == 0) return;
  GemmPack<float> pack;
  pack.from = job.input<float>(2, job.plan.v, job.kv_head, first);
  pack.k_stride = job.plan.v.row;
  pack.n_stride = job.plan.v.column;
  pack.depth = count;
  pack.n = job.plan.value_depth;
  pack.to = job.at(job.plan.value_offset);
  pack.panel_stride = kKeyBlock * job.gemm.nr_f32;
  pack.last = packed_panel_width(job.gemm.nr_f32, job.plan.value_depth - 1, job.plan.value_depth);
  run_pack(job.gemm, pack);
}

void compute_scores(const Job& job, int64_t row, int64_t rows, int64_t count) {
  const AttentionPlan& plan = job.plan;
  GemmBlock<float> block = {};
  block.ldb = job.gemm.nr_f32;
  block.c = job.at(plan.score_offset);
  block.ldc = plan.score_stride;
  block.m = rows;
  block.n = count;
  block.padded = true;
  int64_t from = 0;
  do {
    block.depth = std::min(kGemmDepth, plan.depth - from);
    block.first = from == 0;
    block.lda = plan.q_offset < 0 ? plan.q.row : plan.depth + kLanes;
    block.a = (plan.q_offset < 0 ? job.input<float>(0, plan.q, job.head, job.first_row + row)
                                 : job.at(plan.q_offset) + row * block.lda) +
              from;
    block.b = job.at(plan.key_offset) + from * round_up(kKeyBlock, job.gemm.nr_f32);
    block.panel_stride = block.depth * job.gemm.nr_f32;
    run_block(job.gemm, block);
    from += block.depth;
  } while (from < plan.depth);
}

void weigh_scores(const Job& job, int64_t row, int64_t rows, int64_t first, int64_t count) {
  const AttentionPlan& plan = job.plan;
  AttentionRows work = {};
  work.scores = job.at(plan.score_offset);
  work.stride = plan.score_stride;
  work.rows = rows;
  work.keys = count;
  work.scale = static_cast<float>(job.call.fparams[0]);
  work.softcap = static_cast<float>(job.call.fparams[1]);
  if (plan.has_mask) {
    const int64_t offset = job.batch * plan.mask.batch + job.head * plan.mask.head +
                           (job.first_row + row) * plan.mask.row + first * plan.mask.column;
    work.mask = static_cast<const std::byte*>(job.call.inputs[3].data) + offset * (plan.mask_is_bool ? 1 : 4);
    work.mask_is_bool = plan.mask_is_bool;
    work.mask_row_stride = plan.mask.row;
    work.mask_key_stride = plan.mask.column;
  }
  const int64_t at = job.first_row + row + plan.seen.shift - first;
  work.first = at - plan.seen.behind + 1;
  work.visible = at + plan.seen.ahead;
  work.maximum = job.at(plan.maximum_offset) + row;
  work.sum = job.at(plan.sum_offset) + row;
  work.out = job.at(plan.out_offset) + row * plan.out_stride;
  work.out_stride = plan.out_stride;
  work.out_columns = plan.out_stride;
  job.softmax.rows(work);
}

void add_values(const Job& job, int64_t row, int64_t rows, int64_t count) {
  const AttentionPlan& plan = job.plan;
  if (plan.value_depth == 0) return;
  GemmBlock<float> block = {};
  block.a = job.at(plan.score_offset);
  block.lda = plan.score_stride;
  block.b = job.at(plan.value_offset);
  block.ldb = job.gemm.nr_f32;
  block.panel_stride = kKeyBlock * job.gemm.nr_f32;
  block.last_b = block.b + (plan.value_depth - 1) / block.ldb * block.panel_stride;
  block.last_ldb = packed_panel_width(block.ldb, plan.value_depth - 1, plan.value_depth);
  block.c = job.at(plan.out_offset) + row * plan.out_stride;
  block.ldc = plan.out_stride;
  block.m = rows;
  block.n = plan.value_depth;
  block.depth = count;
  block.padded = true;
  run_block(job.gemm, block);
}

// One key block for all rows of the tile that see any of its keys.
void run_keys(const Job& job, int64_t first) {
  const AttentionPlan& plan = job.plan;
  const int64_t count = std::min(kKeyBlock, plan.keys - first);
  // Row 0 of the tile stands at key `at` of this block.
  const int64_t at = job.first_row + plan.seen.shift - first;
  const int64_t begin = std::clamp<int64_t>(1 - plan.seen.ahead - at, 0, job.rows);
  const int64_t end = std::clamp<int64_t>(count + plan.seen.behind - 1 - at, begin, job.rows);
  if (begin == end) return;
  for (int64_t from = 0; from < plan.depth; from += kGemmDepth)
    pack_keys(job, first, count, from, std::min(kGemmDepth, plan.depth - from));
  pack_values(job, first, count);
  for (int64_t row = begin; row < end; row += kRowGroup) {
    const int64_t rows = std::min(kRowGroup, end - row);
    // No row of the group sees more.
    const int64_t seen = plan.seen.end(job.first_row + row + rows - 1) - first;
    compute_scores(job, row, rows, std::min(count, seen));
    weigh_scores(job, row, rows, first, std::min(count, seen));
    add_values(job, row, rows, std::min(count, seen));
  }
}

void store_rows(const Job& job) {
  const AttentionPlan& plan = job.plan;
  float* out = job.at(plan.out_offset);
  float* to = static_cast<float*>(job.call.outputs[0].data) + job.batch * plan.out.batch +
              job.head * plan.out.head + job.first_row * plan.out.row;
  AttentionEnd end = {out,
                      plan.out_stride,
                      out,
                      plan.out_stride,
                      plan.out_stride,
                      job.rows,
                      job.at(plan.maximum_offset),
                      job.at(plan.sum_offset),
                      nullptr,
                      0};
  if (job.call.outputs.size() > 1) {
    const TensorArg& lse = job.call.outputs[1];
    end.lse = static_cast<float*>(lse.data) + job.batch * lse.strides[0] + job.head * lse.strides[1] +
              job.first_row * lse.strides[2];
    end.lse_stride = lse.strides[2];
  }
  const bool direct = plan.out.column == 1 && plan.value_depth % kLanes == 0;
  if (direct) end.to = to, end.to_stride = plan.out.row, end.columns = plan.value_depth;
  job.softmax.end(end);
  if (direct) return;
  for (int64_t i = 0; i < job.rows; ++i, out += plan.out_stride, to += plan.out.row)
    for (int64_t j = 0; j < plan.value_depth; ++j) to[j * plan.out.column] = out[j];
}

void run_attention(const BoundCall& call, int64_t tile, std::byte* scratch) {
  const Job job = job_at(call, tile, scratch);
  if (job.plan.q_offset >= 0) copy_queries(job);
  start_rows(job);
  const SeenKeys& seen = job.plan.seen;
  const int64_t end = seen.end(job.first_row + job.rows - 1);
  for (int64_t first = seen.first(job.first_row) / kKeyBlock * kKeyBlock; first < end; first += kKeyBlock)
    run_keys(job, first);
  store_rows(job);
}

void check_lse(const BoundCall& call) {
  const TensorArg& lse = call.outputs[1];
  check_dtype(lse, DType::f32, kName, "lse");
  check_rank(lse, 3, kName, "lse");
  for (int i = 0; i < 3; ++i) {
    const int64_t expected = call.inputs[0].sizes[i];
    check_step(lse.sizes[i] == expected, kName, "lse", std::to_string(expected), lse.sizes[i]);
  }
}

AttentionPlan plan_sizes(const BoundCall& call) {
  const TensorArg &q = call.inputs[0], &k = call.inputs[1], &v = call.inputs[2];
  AttentionPlan plan = {};
  plan.batch = q.sizes[0];
  plan.heads = q.sizes[1];
  plan.kv_heads = std::max<int64_t>(k.sizes[1], 1);
  plan.queries = q.sizes[2];
  plan.keys = k.sizes[2];
  plan.depth = q.sizes[3];
  plan.value_depth = v.sizes[3];
  plan.q = view_of(q);
  plan.k = view_of(k);
  plan.v = view_of(v);
  plan.out = view_of(call.outputs[0]);
  plan.seen = seen_keys(call);
  plan.has_mask = call.params[1] != 0;
  if (plan.has_mask) {
    plan.mask = mask_view(call, 3, kName);
    plan.mask_is_bool = call.inputs[3].dtype == DType::boolean;
  }
  return plan;
}

void choose_rows(AttentionPlan& plan) {
  const int64_t heads = std::max<int64_t>(1, plan.batch * plan.heads);
  plan.row_block = std::min(kRowBlock, round_up(std::max<int64_t>(plan.queries, 1), kLanes));
  while (plan.row_block > kRowGroup && heads * ceil_div(plan.queries, plan.row_block) < kWantedTiles)
    plan.row_block = round_up(plan.row_block / 2, kLanes);
  plan.row_blocks = ceil_div(plan.queries, plan.row_block);
}

int64_t place_scratch(AttentionPlan& plan, int64_t nr) {
  int64_t used = 0;
  const auto take = [&](int64_t floats) {
    const int64_t at = used;
    used += round_up(floats * static_cast<int64_t>(sizeof(float)), 64);
    return at;
  };
  constexpr int64_t kSetPeriodFloats = 1024;  // rows this far apart share the sets of an L1 cache
  const bool copies_q = plan.q.column != 1 || (plan.q.row % kSetPeriodFloats == 0 && plan.queries > 1);
  plan.score_stride = round_up(round_up(kKeyBlock, nr), kLanes) + kLanes;
  plan.out_stride = round_up(round_up(plan.value_depth, nr), kLanes);
  plan.q_offset = copies_q ? take(plan.row_block * (plan.depth + kLanes)) : -1;
  plan.key_offset = take(round_up(kKeyBlock, nr) * plan.depth);
  plan.value_offset = take(kKeyBlock * round_up(plan.value_depth, nr));
  plan.score_offset = take(kRowGroup * plan.score_stride);
  plan.out_offset = take(plan.row_block * plan.out_stride);
  plan.maximum_offset = take(plan.row_block);
  plan.sum_offset = take(plan.row_block);
  return used;
}

}  // namespace

bool can_run_attention_f32(const Problem& problem) {
  const size_t outputs = problem.outputs.size();
  return (outputs == 1 || outputs == 2) && can_attend(problem, 3);
}

void prepare_attention_f32(BoundCall& call) {
  check_attention_call(call, 3, call.outputs.size() == 2 ? 2 : 1, kName);
  check_attention_result(call, call.outputs[0], "output", kName);
  if (call.outputs.size() == 2) check_lse(call);
  AttentionPlan plan = plan_sizes(call);
  choose_rows(plan);
  call.scratch_bytes = place_scratch(plan, gemm_isa(call.isa).nr_f32);
  call.tiles =
      plan.value_depth == 0 && call.outputs.size() == 1 ? 0 : plan.batch * plan.heads * plan.row_blocks;
  call.run = run_attention;
  store_plan(call, plan);
}

}  // namespace aicf
