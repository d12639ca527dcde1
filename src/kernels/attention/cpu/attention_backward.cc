// Gradients of attention, f32, without materialised scores: one tile for each key head of each batch row,
// which walks the query heads that share it in strips of rows; the weights of a strip are recomputed. Source
// of the formulas: Dao et al. 2022, "FlashAttention", appendix B.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/attention/attention_call.h"
#include "kernels/attention/cpu/attention_rows.h"
#include "kernels/common/kernel.h"
#include "kernels/common/step_check.h"
#include "kernels/matmul/cpu/gemm.h"

namespace aicf {

AICF_DECLARE_PER_ISA(extern const AttentionIsa kAttentionIsa)

namespace {

constexpr const char* kBackwardName = "attention_backward_f32";
constexpr int64_t kStrip = 32;  // query rows
constexpr int64_t kBackwardLanes = 16;

// A strided matrix packed as right operand: depth blocks of kGemmDepth steps, each in panels (gemm_types.h).
struct Packed {
  int64_t offset;  // bytes of scratch
  int64_t depth, n;
};

struct BackwardPlan {
  int64_t heads, kv_heads, group, queries, keys, depth, value_depth;
  View4 q, k, v, out, dout, mask, dq, dk, dv;
  int64_t has_mask, mask_is_bool;
  SeenKeys seen;
  Packed k_by_depth, v_by_depth, k_by_key, q_strip, dout_strip;
  // Floats between rows, and bytes of scratch.
  int64_t key_stride, depth_stride, value_stride;
  int64_t q_rows, dout_rows, scores, weights, slopes, turned, dq_rows, dk_rows, dv_rows, maximum, sum, along;
};

struct BackwardJob {
  const BoundCall& call;
  const BackwardPlan& plan;
  const GemmIsa& gemm;
  const AttentionIsa& softmax;
  std::byte* scratch;
  int64_t batch, kv_head;

  float* at(int64_t offset) const { return reinterpret_cast<float*>(scratch + offset); }
  const float* input(size_t which, const View4& view, int64_t head, int64_t row) const {
    return static_cast<const float*>(call.inputs[which].data) + batch * view.batch + head * view.head +
           row * view.row;
  }
};

// The rows of a head that one strip covers, and the keys [from, keys) that hold all that any of them sees;
// `from` is where a panel begins.
struct Strip {
  int64_t head, first, rows, from, keys;
};

void pack(const BackwardJob& job, const Packed& packed, const float* from, int64_t k_stride, int64_t n_stride,
          int64_t depth) {
  const int64_t nr = job.gemm.nr_f32;
  for (int64_t k = 0; k < depth; k += kGemmDepth) {
    GemmPack<float> part;
    part.from = from + k * k_stride;
    part.k_stride = k_stride;
    part.n_stride = n_stride;
    part.depth = std::min(kGemmDepth, depth - k);
    part.n = packed.n;
    part.to = job.at(packed.offset) + k * round_up(packed.n, nr);
    part.panel_stride = std::min(kGemmDepth, packed.depth - k) * nr;
    run_pack(job.gemm, part);
  }
}

struct Span {
  int64_t from, end;
};

// c (+)= a [m, depth] @ packed[depth, columns]; a and c have their elements where whole ones would. Columns
// begin at a panel.
void multiply(const BackwardJob& job, const float* a, int64_t lda, const Packed& packed, Span depth,
              Span columns, float* c, int64_t ldc, int64_t m, bool add) {
  const int64_t nr = job.gemm.nr_f32, begin = depth.from / kGemmDepth * kGemmDepth;
  GemmBlock<float> block = {};
  block.lda = lda;
  block.ldb = nr;
  block.c = c + columns.from;
  block.ldc = ldc;
  block.m = m;
  block.n = columns.end - columns.from;
  block.padded = true;
  for (int64_t k = begin; k < std::max<int64_t>(depth.end, 1); k += kGemmDepth) {
    const int64_t step = std::max(depth.from - k, int64_t{0});
    block.a = a + k + step;
    block.panel_stride = std::min(kGemmDepth, packed.depth - k) * nr;
    block.b = job.at(packed.offset) + k * round_up(packed.n, nr) + columns.from / nr * block.panel_stride +
              step * nr;
    block.depth = std::min(kGemmDepth, depth.end - k) - step;
    block.first = !add && k == begin;
    run_block(job.gemm, block);
  }
}

void copy_rows(const float* from, const View4& view, int64_t rows, int64_t columns, float* to,
               int64_t stride) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) to[i * stride + j] = from[i * view.row + j * view.column];
}

void pack_backward_keys(const BackwardJob& job) {
  const BackwardPlan& plan = job.plan;
  const float *k = job.input(1, plan.k, job.kv_head, 0), *v = job.input(2, plan.v, job.kv_head, 0);
  pack(job, plan.k_by_depth, k, plan.k.column, plan.k.row, plan.depth);
  pack(job, plan.v_by_depth, v, plan.v.column, plan.v.row, plan.value_depth);
  pack(job, plan.k_by_key, k, plan.k.row, plan.k.column, plan.keys);
  std::fill_n(job.at(plan.dk_rows), plan.keys * plan.depth_stride, 0.0f);
  std::fill_n(job.at(plan.dv_rows), plan.keys * plan.value_stride, 0.0f);
}

void load_strip(const BackwardJob& job, const Strip& strip) {
  const BackwardPlan& plan = job.plan;
  const float* q = job.input(0, plan.q, strip.head, strip.first);
  const float* out = job.input(3, plan.out, strip.head, strip.first);
  const float* dout = job.input(4, plan.dout, strip.head, strip.first);
  copy_rows(q, plan.q, strip.rows, plan.depth, job.at(plan.q_rows), plan.depth_stride);
  copy_rows(dout, plan.dout, strip.rows, plan.value_depth, job.at(plan.dout_rows), plan.value_stride);
  pack(job, plan.q_strip, q, plan.q.row, plan.q.column, strip.rows);
  pack(job, plan.dout_strip, dout, plan.dout.row, plan.dout.column, strip.rows);
  for (int64_t i = 0; i < strip.rows; ++i) {
    float sum = 0;
    for (int64_t j = 0; j < plan.value_depth; ++j)
      sum += out[i * plan.out.row + j * plan.out.column] * dout[i * plan.dout.row + j * plan.dout.column];
    job.at(plan.along)[i] = sum;
  }
}

// The strip's exponentials in `weights`, the products q . k kept in `scores` where a softcap asks for them.
void weigh(const BackwardJob& job, const Strip& strip) {
  const BackwardPlan& plan = job.plan;
  float* scores = job.at(plan.weights);
  multiply(job, job.at(plan.q_rows), plan.depth_stride, plan.k_by_depth, {0, plan.depth},
           {strip.from, strip.keys}, scores, plan.key_stride, strip.rows, false);
  const float softcap = static_cast<float>(job.call.fparams[1]);
  if (softcap > 0) std::copy_n(scores, strip.rows * plan.key_stride, job.at(plan.scores));
  std::fill_n(job.at(plan.maximum), strip.rows, -INFINITY);
  std::fill_n(job.at(plan.sum), strip.rows, 0.0f);
  // The first rows may see no key at all: their sum stays 0.
  const int64_t begin =
      std::clamp<int64_t>(1 - plan.seen.ahead - plan.seen.shift - strip.first, 0, strip.rows);
  std::fill_n(scores, begin * plan.key_stride, 0.0f);
  AttentionRows work = {};
  work.scores = scores + begin * plan.key_stride + strip.from;
  work.stride = plan.key_stride;
  work.rows = strip.rows - begin;
  work.keys = strip.keys - strip.from;
  work.scale = static_cast<float>(job.call.fparams[0]);
  work.softcap = softcap;
  if (plan.has_mask) {
    const int64_t offset = job.batch * plan.mask.batch + strip.head * plan.mask.head +
                           (strip.first + begin) * plan.mask.row + strip.from * plan.mask.column;
    work.mask = static_cast<const std::byte*>(job.call.inputs[5].data) + offset * (plan.mask_is_bool ? 1 : 4);
    work.mask_is_bool = plan.mask_is_bool;
    work.mask_row_stride = plan.mask.row;
    work.mask_key_stride = plan.mask.column;
  }
  const int64_t at = strip.first + begin + plan.seen.shift - strip.from;
  work.first = at - plan.seen.behind + 1;
  work.visible = at + plan.seen.ahead;
  work.maximum = job.at(plan.maximum) + begin;
  work.sum = job.at(plan.sum) + begin;
  job.softmax.rows(work);
}

void find_slopes(const BackwardJob& job, const Strip& strip) {
  const BackwardPlan& plan = job.plan;
  multiply(job, job.at(plan.dout_rows), plan.value_stride, plan.v_by_depth, {0, plan.value_depth},
           {strip.from, strip.keys}, job.at(plan.slopes), plan.key_stride, strip.rows, false);
  job.softmax.slopes({job.at(plan.weights) + strip.from, job.at(plan.slopes) + strip.from,
                      job.at(plan.scores) + strip.from, plan.key_stride, strip.rows, strip.keys - strip.from,
                      static_cast<float>(job.call.fparams[0]), static_cast<float>(job.call.fparams[1]),
                      job.at(plan.sum), job.at(plan.along)});
}

// sums [keys, n] += x^T [keys, rows] @ the packed strip.
void add_turned(const BackwardJob& job, const Strip& strip, const float* x, const Packed& packed, float* sums,
                int64_t stride) {
  const BackwardPlan& plan = job.plan;
  float* turned = job.at(plan.turned);
  for (int64_t i = 0; i < strip.rows; ++i)
    for (int64_t j = strip.from; j < strip.keys; ++j) turned[j * kStrip + i] = x[i * plan.key_stride + j];
  multiply(job, turned + strip.from * kStrip, kStrip, packed, {0, strip.rows}, {0, packed.n},
           sums + strip.from * stride, stride, strip.keys - strip.from, true);
}

void backward_store_rows(const float* from, int64_t stride, const TensorArg& to, int64_t offset,
                         const View4& view, int64_t rows, int64_t columns) {
  float* data = static_cast<float*>(to.data) + offset;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) data[i * view.row + j * view.column] = from[i * stride + j];
}

void run_strip(const BackwardJob& job, const Strip& strip) {
  const BackwardPlan& plan = job.plan;
  float* dq = job.at(plan.dq_rows);
  if (strip.keys > strip.from) {
    load_strip(job, strip);
    weigh(job, strip);
    find_slopes(job, strip);
    add_turned(job, strip, job.at(plan.weights), plan.dout_strip, job.at(plan.dv_rows), plan.value_stride);
    add_turned(job, strip, job.at(plan.slopes), plan.q_strip, job.at(plan.dk_rows), plan.depth_stride);
    multiply(job, job.at(plan.slopes), plan.key_stride, plan.k_by_key, {strip.from, strip.keys},
             {0, plan.depth}, dq, plan.depth_stride, strip.rows, false);
  } else {
    std::fill_n(dq, strip.rows * plan.depth_stride, 0.0f);
  }
  const int64_t offset = job.batch * plan.dq.batch + strip.head * plan.dq.head + strip.first * plan.dq.row;
  backward_store_rows(dq, plan.depth_stride, job.call.outputs[0], offset, plan.dq, strip.rows, plan.depth);
}

void run_tile(const BoundCall& call, int64_t tile, std::byte* scratch) {
  const BackwardPlan& plan = stored_plan<BackwardPlan>(call);
  const BackwardJob job = {call,
                           plan,
                           gemm_isa(call.isa),
                           *AICF_PICK_ISA(call.isa, kAttentionIsa),
                           scratch,
                           tile / plan.kv_heads,
                           tile % plan.kv_heads};
  pack_backward_keys(job);
  for (int64_t member = 0; member < plan.group; ++member)
    for (int64_t first = 0; first < plan.queries; first += kStrip) {
      const int64_t rows = std::min(kStrip, plan.queries - first), panels = kBackwardLanes * job.gemm.nr_f32;
      run_strip(job, {job.kv_head * plan.group + member, first, rows,
                      plan.seen.first(first) / panels * panels, plan.seen.end(first + rows - 1)});
    }
  const auto store = [&](int64_t rows, int64_t stride, size_t which, const View4& view, int64_t columns) {
    backward_store_rows(job.at(rows), stride, call.outputs[which],
                        job.batch * view.batch + job.kv_head * view.head, view, plan.keys, columns);
  };
  store(plan.dk_rows, plan.depth_stride, 1, plan.dk, plan.depth);
  store(plan.dv_rows, plan.value_stride, 2, plan.dv, plan.value_depth);
}

int64_t backward_place_scratch(BackwardPlan& plan, int64_t nr) {
  int64_t used = 0;
  const auto take = [&](int64_t rows, int64_t columns) {
    const int64_t at = used;
    used = checked_add(used, round_up(checked_mul(checked_mul(rows, columns), 4), 64));
    return at;
  };
  const auto packed = [&](int64_t depth, int64_t n) {
    return Packed{take(std::max<int64_t>(depth, 1), round_up(std::max<int64_t>(n, 1), nr)), depth, n};
  };
  const auto stride = [&](int64_t columns) {
    return round_up(round_up(columns, nr), kBackwardLanes) + kBackwardLanes;
  };
  plan.key_stride = stride(plan.keys);
  plan.depth_stride = stride(plan.depth);
  plan.value_stride = stride(plan.value_depth);
  plan.k_by_depth = packed(plan.depth, plan.keys);
  plan.v_by_depth = packed(plan.value_depth, plan.keys);
  plan.k_by_key = packed(plan.keys, plan.depth);
  plan.q_strip = packed(kStrip, plan.depth);
  plan.dout_strip = packed(kStrip, plan.value_depth);
  plan.q_rows = take(kStrip, plan.depth_stride);
  plan.dout_rows = take(kStrip, plan.value_stride);
  plan.scores = take(kStrip, plan.key_stride);
  plan.weights = take(kStrip, plan.key_stride);
  plan.slopes = take(kStrip, plan.key_stride);
  plan.turned = take(plan.keys, kStrip);
  plan.dq_rows = take(kStrip, plan.depth_stride);
  plan.dk_rows = take(plan.keys, plan.depth_stride);
  plan.dv_rows = take(plan.keys, plan.value_stride);
  for (int64_t* at : {&plan.maximum, &plan.sum, &plan.along}) *at = take(kStrip, 1);
  return used;
}

BackwardPlan plan_of(const BoundCall& call, bool has_mask) {
  const TensorArg &q = call.inputs[0], &k = call.inputs[1], &v = call.inputs[2];
  BackwardPlan plan = {};
  plan.heads = q.sizes[1];
  plan.kv_heads = k.sizes[1];
  plan.group = plan.kv_heads == 0 ? 0 : plan.heads / plan.kv_heads;
  plan.queries = q.sizes[2];
  plan.keys = k.sizes[2];
  plan.depth = q.sizes[3];
  plan.value_depth = v.sizes[3];
  View4* views[] = {&plan.q, &plan.k, &plan.v, &plan.out, &plan.dout};
  for (size_t i = 0; i < 5; ++i) *views[i] = view_of(call.inputs[i]);
  plan.dq = view_of(call.outputs[0]);
  plan.dk = view_of(call.outputs[1]);
  plan.dv = view_of(call.outputs[2]);
  plan.seen = seen_keys(call);
  if ((plan.has_mask = has_mask)) {
    plan.mask = mask_view(call, 5, kBackwardName);
    plan.mask_is_bool = call.inputs[5].dtype == DType::boolean;
  }
  return plan;
}

void check_gradient(const TensorArg& gradient, const TensorArg& of, const char* what) {
  check_dtype(gradient, DType::f32, kBackwardName, what);
  check_rank(gradient, 4, kBackwardName, what);
  for (int i = 0; i < 4; ++i)
    check_step(gradient.sizes[i] == of.sizes[i], kBackwardName, what, std::to_string(of.sizes[i]),
               gradient.sizes[i]);
}

}  // namespace

bool can_run_attention_backward_f32(const Problem& problem) {
  return problem.outputs.size() == 3 && can_attend(problem, 5);
}

void prepare_attention_backward_f32(BoundCall& call) {
  const bool has_mask = check_attention_call(call, 5, 3, kBackwardName);
  check_attention_result(call, call.inputs[3], "out", kBackwardName);
  check_attention_result(call, call.inputs[4], "dout", kBackwardName);
  const char* names[] = {"dq", "dk", "dv"};
  for (size_t i = 0; i < 3; ++i) check_gradient(call.outputs[i], call.inputs[i], names[i]);
  BackwardPlan plan = plan_of(call, has_mask);
  call.scratch_bytes = backward_place_scratch(plan, gemm_isa(call.isa).nr_f32);
  call.tiles = call.inputs[0].sizes[0] * plan.kv_heads;
  call.run = run_tile;
  store_plan(call, plan);
}

}  // namespace aicf
