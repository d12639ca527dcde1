// Which attentions take in the product that makes their queries, keys and values: where both take less time
// as one kernel (matmul_attention), one call takes the place of both. A choice of the caller's that names the
// product or the attention decides over it.
#include <optional>
#include <utility>

#include "calls/call_forms.h"
#include "calls/join_site.h"
#include "select/cost_model.h"

namespace aicf {
namespace {

// Of a program that adds a bias, if anything, to results that it sees as halves: whether it has one.
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

// Where head 0 of q, k or v begins in a row of the product's results, if every head follows the one before.
std::optional<Dim> column_of(const Window& part, const Window& result) {
  const Dim n = result.sizes[1];
  const std::vector<Dim> strides{part.sizes[2] * n, part.sizes[3], n, Dim(1)};
  if (part.root != result.root || part.strides != strides || !part.offset.constant()) return std::nullopt;
  return part.offset;
}

// A product of two matrices whose results are the attention's queries.
std::optional<size_t> find_projection(const JoinSite& site, size_t attention) {
  const KernelCall& call = site.call(attention);
  const std::optional<size_t> product = site.legality().sole_writer(call.inputs[0].root, attention);
  if (!product) return std::nullopt;
  const KernelCall& found = site.call(*product);
  return is_product(found) && found.outputs.size() == 1 && found.inputs[0].sizes.size() == 2 &&
                 found.inputs[1].sizes.size() == 2
             ? product
             : std::nullopt;
}

// Sets operands and params of the joined call.
Decision set_operands(KernelCall& joined, const KernelCall& product, const KernelCall& attention,
                      std::optional<bool> bias) {
  const Window& result = product.outputs[0];
  const bool mask = attention.inputs.size() > 3;
  const RowCall& own = *own_row(attention);
  if (mask && attention.inputs[3].root == result.root)
    return Decision::no("the mask comes from the same product");
  if (!bias) return Decision::no("the product does more than add a bias");
  if (attention.outputs.size() != 1) return Decision::no("the attention leaves the sums of its rows");
  if (own.params.size() != 2 || !(result.offset == Dim(0)) ||
      result.strides != std::vector<Dim>{result.sizes[1], Dim(1)})
    return Decision::no("the kernel has no such attention");
  if (*bias && product.inputs[2].strides != std::vector<Dim>{Dim(0), Dim(1)})
    return Decision::no("the product adds more than a row");
  joined.inputs = product.inputs;
  if (mask) joined.inputs.push_back(attention.inputs[3]);
  joined.outputs = attention.outputs;
  RowCall row{.row = "matmul_attention",
              .params = {own.params[0], Dim(mask ? 1 : 0), Dim(*bias ? 1 : 0)},
              .fparams = own.fparams};
  for (size_t i = 0; i < 3; ++i) {
    const std::optional<Dim> column = column_of(attention.inputs[i], result);
    if (!column || attention.inputs[i].sizes != attention.outputs[0].sizes)
      return Decision::no("queries, keys and values are not columns of one product, head by head");
    row.params.push_back(*column);
  }
  joined.what = std::move(row);
  return {};
}

}  // namespace

void join_attention(JoinSite& site, size_t at) {
  const KernelCall& attention = site.call(at);
  const RowCall* row = own_row(attention);
  if (row == nullptr || facts_of(row->row).join_form != JoinForm::kAttention) return;
  const std::optional<size_t> found = find_projection(site, at);
  if (!found) return;
  const KernelCall& product = site.call(*found);
  const std::vector<size_t> both = {*found, at};
  KernelCall joined;
  joined.choice.key = product.choice.key;
  Decision decision = set_operands(joined, product, attention, adds_bias(site.program_of(product)));
  if (decision && attention.choice.source == ChoiceSource::kRecord)
    decision = Decision::no("the record of the attention wants it apart");
  if (!decision) return site.refuse(both, decision.why());
  const Target& target = site.rule().target;
  const double apart = site.price(*found) + target.facts().edge_microseconds +
                       estimate_microseconds(attention, row->row, target, site.graph().ranges);
  site.offer({.remove = both,
              .insert = std::move(joined),
              .at = at,
              .open = {*found},
              .price = {{"a product and its attention", apart, {"matmul", "attention"}}}});
}

}  // namespace aicf
