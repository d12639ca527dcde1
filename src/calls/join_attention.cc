#include "calls/join_attention.h"

#include <optional>
#include <utility>

#include "base/format.h"
#include "calls/call_joiner.h"
#include "calls/call_windows.h"
#include "calls/row_names.h"
#include "kernels/cuda_kernel.h"
#include "select/cost_model.h"
#include "select/cuda_problem.h"

namespace aicf {
namespace {

constexpr char kMatmulAttentionKernel[] = "matmul_attention";

// What a program does that only adds a bias, if anything, to results that it sees as halves: whether it has
// one.
std::optional<bool> adds_bias(const TileProgram& program) {
  if (program.stages.size() != 1 || program.outputs.size() != 1) return std::nullopt;
  const std::vector<TileInstr>& code = program.stages[0];
  const auto is = [&](size_t i, TileOp op) { return code[i].op == op && code[i].type == TileType::f32; };
  const TileOp rounding = program.outputs[0] == DType::f16 ? TileOp::round_f16 : TileOp::round_bf16;
  if (code.size() < 3 || !is(0, TileOp::load) || code[0].operand != 0 || !is(1, rounding) ||
      code[1].a != code[0].dst)
    return std::nullopt;
  const int16_t product = code[1].dst;
  if (code.size() == 3 && program.inputs.size() == 1 && is(2, TileOp::store) && code[2].a == product)
    return false;
  if (code.size() != 5 || program.inputs.size() != 2 || program.inputs[1] != program.outputs[0])
    return std::nullopt;
  const int16_t bias = code[2].dst;
  if (!is(2, TileOp::load) || code[2].operand != 1 || bias == product || !is(3, TileOp::add))
    return std::nullopt;
  const bool both =
      (code[3].a == product && code[3].b == bias) || (code[3].a == bias && code[3].b == product);
  if (!both || !is(4, TileOp::store) || code[4].a != code[3].dst) return std::nullopt;
  return true;
}

class AttentionJoiner : CallJoiner {
 public:
  using CallJoiner::CallJoiner;

  void run() {
    for (size_t i = 0; i < calls_.size(); ++i) {
      const RowCall* row = own_row(calls_[i]);
      if (row == nullptr || row->row != kAttention || calls_[i].choice.source == ChoiceSource::kRecord)
        continue;
      const std::optional<size_t> product = product_of(i);
      if (!product) continue;
      std::optional<KernelCall> joined = join(calls_[*product], calls_[i]);
      if (!joined) continue;
      legality_.replace(i, std::move(*joined));
      legality_.remove(*product);
    }
    legality_.finish();
  }

 private:
  bool is_product(const KernelCall& call) const {
    return is_row(call, kTensorCoreProduct) && has_program(call, ProgramRole::kEpilogue) &&
           call.choice.source == ChoiceSource::kRank && call.outputs.size() == 1 &&
           call.inputs[0].sizes.size() == 2 && call.inputs[1].sizes.size() == 2;
  }

  // The product whose results the attention reads, and nothing else.
  std::optional<size_t> product_of(size_t attention) const {
    const KernelCall& call = calls_[attention];
    const ValueId root = call.inputs[0].root;
    if (call.inputs.size() > 3 && call.inputs[3].root == root) return std::nullopt;
    const std::optional<size_t> product = legality_.sole_writer(root, attention);
    return product && is_product(calls_[*product]) && legality_.sole_reader(root) == attention &&
                   legality_.may_move(*product, attention - 1)
               ? product
               : std::nullopt;
  }

  // Where head 0 of q, k or v begins in a row of the product's results, if every head follows the one before.
  static std::optional<Dim> column_of(const Window& part, const Window& result) {
    const Dim n = result.sizes[1];
    const std::vector<Dim> strides{part.sizes[2] * n, part.sizes[3], n, Dim(1)};
    if (part.root != result.root || part.strides != strides || !part.offset.constant()) return std::nullopt;
    return part.offset;
  }

  std::optional<KernelCall> join(const KernelCall& product, const KernelCall& attention) const {
    const Window& result = product.outputs[0];
    const std::optional<bool> bias = adds_bias(program_of(product));
    const bool mask = attention.inputs.size() > 3;
    const RowCall& own = *own_row(attention);
    if (!bias || attention.outputs.size() != 1 || own.params.size() != 2 || !(result.offset == Dim(0)) ||
        result.strides != std::vector<Dim>{result.sizes[1], Dim(1)})
      return std::nullopt;
    if (*bias && product.inputs[2].strides != std::vector<Dim>{Dim(0), Dim(1)}) return std::nullopt;
    KernelCall joined;
    joined.inputs = product.inputs;
    if (mask) joined.inputs.push_back(attention.inputs[3]);
    joined.outputs = attention.outputs;
    RowCall row{.row = kMatmulAttentionKernel,
                .params = {own.params[0], Dim(mask ? 1 : 0), Dim(*bias ? 1 : 0)},
                .fparams = own.fparams};
    joined.origins = united_origins(product, attention);
    for (size_t i = 0; i < 3; ++i) {
      const std::optional<Dim> column = column_of(attention.inputs[i], result);
      if (!column || attention.inputs[i].sizes != attention.outputs[0].sizes) return std::nullopt;
      row.params.push_back(*column);
    }
    joined.what = std::move(row);
    return choose(std::move(joined), product, attention);
  }

  std::optional<KernelCall> choose(KernelCall joined, const KernelCall& product,
                                   const KernelCall& attention) const {
    const std::vector<KernelVariant> variants =
        cuda_variants(*find_cuda_kernel(kMatmulAttentionKernel), cuda_problem(joined, target_.arch, ranges_));
    if (variants.empty()) return std::nullopt;
    row_call(joined)->way = variants[0].way;
    const double apart = product.choice.candidates[product.choice.chosen].microseconds +
                         target_.facts().edge_microseconds +
                         estimate_microseconds(attention, kAttention, target_, ranges_);
    const double together = variants[0].microseconds;
    joined.choice.key = product.choice.key;
    joined.choice.candidates.push_back({kMatmulAttentionKernel, row_call(joined)->way, together});
    const auto recorded = recorded_join(product.choice.key, kMatmulAttentionKernel, options_);
    if (recorded &&
        (*recorded == kMatmulAttentionKernel || *recorded == to_string(joined.choice.candidates[0])))
      joined.choice.source = ChoiceSource::kRecord;
    for (const ForcedChoice& forced : options_.forced)
      if (forced.candidate == kMatmulAttentionKernel &&
          (is_meant(forced, product, "matmul") || is_meant(forced, attention, "attention")))
        joined.choice.source = ChoiceSource::kForced;
    const bool is_forced = joined.choice.source == ChoiceSource::kForced;
    if (!is_forced && attention.choice.source == ChoiceSource::kForced) return std::nullopt;
    if (joined.choice.source == ChoiceSource::kRank && together >= apart) return std::nullopt;
    joined.reason = joined_reason(joined.choice.source) +
                    "a product and its attention in one kernel, estimated " + format_fixed(together, 1) +
                    " us, apart " + format_fixed(apart, 1) + " us";
    return joined;
  }
};

}  // namespace

void join_attention(CallGraph& calls, const Target& target, const SelectOptions& options) {
  AttentionJoiner(calls, target, options).run();
}

}  // namespace aicf
