#include "calls/join_rows.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "calls/call_joiner.h"
#include "calls/call_windows.h"
#include "calls/joined_choice.h"
#include "calls/joined_program.h"
#include "kernels/cuda_kernel.h"
#include "select/cost_model.h"
#include "select/cuda_problem.h"

namespace aicf {
namespace {

constexpr char kRowsKernel[] = "matmul_rows";

class RowJoiner : CallJoiner {
 public:
  using CallJoiner::CallJoiner;

  void run() {
    for (size_t i = 0; i < calls_.size(); ++i) {
      if (!is_open_product(calls_[i], all_)) continue;
      const std::optional<size_t> rows = find_rows(i);
      if (!rows) continue;
      std::optional<KernelCall> joined = join(i, *rows);
      if (!joined) continue;
      legality_.replace(i, std::move(*joined));
      legality_.remove(*rows);
    }
    legality_.finish();
  }

 private:
  bool reduces_rows(const KernelCall& call) const {
    return is_region(call) && row_call(call)->schedule->inner_rank == 1 && program_of(call).stages.size() > 1;
  }

  // The first region that reads the product's results by rows, if it may run where the product does.
  std::optional<size_t> find_rows(size_t product) const {
    size_t rows = calls_.size();
    for (const Window& w : calls_[product].outputs)
      for (const size_t reader : legality_.readers(w.root))
        if (reader > product && reduces_rows(calls_[reader])) rows = std::min(rows, reader);
    const bool moves = rows < calls_.size() && legality_.may_move(rows, product + 1);
    return moves ? std::optional(rows) : std::nullopt;
  }

  std::optional<KernelCall> join(size_t at, size_t rows_at) {
    const KernelCall &product = calls_[at], &rows = calls_[rows_at];
    const size_t rank = product.outputs[0].sizes.size();
    std::vector<Window> inputs, outputs;
    for (const auto& [from, to] : {std::pair(&rows.inputs, &inputs), std::pair(&rows.outputs, &outputs)})
      for (const Window& w : *from) {
        const auto merged = over_rows(w, rank);
        if (!merged) return std::nullopt;
        to->push_back(*merged);
      }
    const auto middle =
        std::find_first_of(inputs.begin(), inputs.end(), product.outputs.begin(), product.outputs.end());
    if (middle == inputs.end() || !(outputs[0].sizes == product.outputs[0].sizes)) return std::nullopt;
    const auto number = static_cast<size_t>(middle - inputs.begin());
    const auto from = static_cast<size_t>(std::find(product.outputs.begin(), product.outputs.end(), *middle) -
                                          product.outputs.begin());
    // Nothing else of the product is read: only its thread has seen it.
    for (size_t i = 0; i < inputs.size(); ++i)
      if (i != number && meets(product.outputs, inputs[i].root)) return std::nullopt;
    KernelCall joined;
    joined.what = RowCall{.row = kRowsKernel};
    joined.inputs = product.inputs;
    for (size_t i = 0; i < inputs.size(); ++i)
      if (i != number) joined.inputs.push_back(inputs[i]);
    std::vector<bool> kept;
    for (const Window& w : product.outputs) {
      kept.push_back(legality_.others_need(w.root, {at, rows_at}));
      if (kept.back()) joined.outputs.push_back(w);
    }
    joined.outputs.insert(joined.outputs.end(), outputs.begin(), outputs.end());
    return choose(std::move(joined), product, rows, from, kept, number);
  }

  // The joined call, if its program can run so and it takes less time than the two.
  std::optional<KernelCall> choose(KernelCall joined, const KernelCall& product, const KernelCall& rows,
                                   size_t from, const std::vector<bool>& kept, size_t middle) {
    const TileProgram &first = program_of(product), &second = program_of(rows);
    if (first.registers.size() + second.registers.size() >= kMaxTileRegisters ||
        first.scalars.size() + second.scalars.size() > kMaxTileRegisters ||
        joined.inputs.size() + joined.outputs.size() > static_cast<size_t>(kMaxTileOperands) ||
        !can_join(first, from))
      return std::nullopt;
    TileProgram program = joined_program(first, from, kept, second, middle);
    CudaProblem problem = cuda_problem(joined, target_.arch, ranges_);
    problem.program = &program;
    const std::vector<KernelVariant> variants = cuda_variants(*find_cuda_kernel(kRowsKernel), problem);
    if (variants.empty()) return std::nullopt;
    joined.origins = united_origins(product, rows);
    const double apart = product.choice.candidates[product.choice.chosen].microseconds +
                         target_.facts().edge_microseconds +
                         estimate_microseconds(rows, kRegionRow, target_, ranges_);
    joined.choice.key = product.choice.key;
    if (!take_variant(joined, variants, apart, "a product and its rows", options_)) return std::nullopt;
    check_tile_program(program);
    row_call(joined)->programs = row_call(product)->programs;
    row_call(joined)->programs[0].index = static_cast<int>(programs_.size());
    programs_.push_back(std::move(program));
    return joined;
  }

  static bool can_join(const TileProgram& first, size_t from) {
    const auto operand = static_cast<int16_t>(first.inputs.size() + from);
    if (first.outputs[from] != DType::f16 && first.outputs[from] != DType::bf16) return false;
    return std::any_of(first.stages[0].begin(), first.stages[0].end(), [&](const TileInstr& instr) {
      return instr.op == TileOp::store && instr.operand == operand && instr.type == TileType::f32 &&
             instr.a < kTileScalarBase;
    });
  }
};

}  // namespace

void join_rows(CallGraph& calls, const Target& target, const SelectOptions& options) {
  RowJoiner(calls, target, options).run();
}

}  // namespace aicf
