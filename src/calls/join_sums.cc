#include "calls/join_sums.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "calls/call_windows.h"
#include "calls/group_products.h"
#include "calls/legality.h"
#include "calls/row_names.h"
#include "kernels/product_group.h"

namespace aicf {
namespace {

// Fewer rows are read again in no time.
constexpr int64_t kLeastRows = 1024;

Window turned(Window w) {
  std::swap(w.sizes[0], w.sizes[1]);
  std::swap(w.strides[0], w.strides[1]);
  return w;
}

class SumJoiner {
 public:
  SumJoiner(CallGraph& calls, const Target& target)
      : all_(calls),
        calls_(calls.calls),
        programs_(calls.programs),
        context_(context_of(calls, target)),
        legality_(calls) {}

  void run() {
    for (size_t i = 0; i < calls_.size(); ++i)
      if (adds_columns(calls_[i]) && (join_group(i) || join_product(i))) legality_.remove(i);
    legality_.finish();
  }

 private:
  const TileProgram& program_of(const KernelCall& call) const { return all_.program_of(call); }

  // One sum of each row of its only operand, of two axes.
  bool adds_columns(const KernelCall& call) const {
    if (!is_region(call) || row_call(call)->schedule->inner_rank != 1 || call.inputs.size() != 1 ||
        call.outputs.size() != 1 || call.inputs[0].sizes.size() != 2)
      return false;
    const auto& stages = program_of(call).stages;
    const auto is = [](const TileInstr& instr, TileOp op) {
      return instr.op == op && instr.type == TileType::f32;
    };
    return stages.size() == 2 && stages[0].size() == 2 && is(stages[0][0], TileOp::load) &&
           is(stages[0][1], TileOp::reduce_sum) && stages[1].size() == 1 &&
           is(stages[1][0], TileOp::store_scalar);
  }

  // Into a group of products of which one reads what the sums are of as its x: the gradient of a layer's
  // weights. It then costs no pass over memory, nor the product that stores it an epilogue.
  bool join_group(size_t sums) {
    const KernelCall& call = calls_[sums];
    const Window& out = call.outputs[0];
    const auto rows = call.inputs[0].sizes[1].constant();
    if (!rows || *rows < kLeastRows || out.strides[0] != Dim(1)) return false;
    for (const size_t i : legality_.readers(call.inputs[0].root)) {
      const auto* group = std::get_if<GroupedProducts>(&calls_[i].what);
      if (group == nullptr) continue;
      for (size_t m = 0; m < group->members.size(); ++m)
        if (group->members[m].inputs[0] == call.inputs[0] && !has_sums(group->members[m], programs_) &&
            legality_.may_move(sums, i) && takes_sums(calls_[i], *group, out.dtype)) {
          legality_.replace(i, with_sums(calls_[i], m, call));
          return true;
        }
    }
    return false;
  }
  static KernelCall with_sums(KernelCall group, size_t member, const KernelCall& sums) {
    Window own = sums.outputs[0];
    own.sizes.resize(1);
    own.strides.resize(1);
    std::get<GroupedProducts>(group.what).members[member].outputs.push_back(own);
    group.outputs.push_back(own);
    group.origins = united_origins(group, sums);
    group.reason += ", with the sums of " + origin_text(sums);
    return group;
  }
  // All sums of a group are of one type.
  bool takes_sums(const KernelCall& call, const GroupedProducts& group, DType type) const {
    if (!arguments_fit(call, group.members.size(), 1)) return false;
    for (const KernelCall& member : group.members)
      if (has_sums(member, programs_) && member.outputs.back().dtype != type) return false;
    const std::vector<KernelVariant> variants = grouped_variants(
        product_of(group.members[0], context_), static_cast<int>(group.members.size()), type);
    return std::any_of(variants.begin(), variants.end(),
                       [&](const KernelVariant& v) { return v.way == row_call(group.members[0])->way; });
  }

  // Into the product that stores what the sums are of. Its launches add up one sum.
  bool join_product(size_t sums) {
    const std::optional<size_t> product = find_product(sums);
    std::optional<KernelCall> joined = product ? join(calls_[*product], calls_[sums]) : std::nullopt;
    if (joined) legality_.replace(*product, std::move(*joined));
    return joined.has_value();
  }

  // The call that stores what the sums are of, if they may stand behind it.
  std::optional<size_t> find_product(size_t sums) const {
    const KernelCall& call = calls_[sums];
    const auto rows = call.inputs[0].sizes[1].constant();
    if (!rows || *rows < kLeastRows) return std::nullopt;
    const std::optional<size_t> product = legality_.last_writer(call.inputs[0].root, sums);
    return product && legality_.may_move(sums, *product + 1) ? product : std::nullopt;
  }

  std::optional<KernelCall> join(const KernelCall& product, const KernelCall& sums) {
    if (!is_row(product, kTensorCoreProduct) || !has_program(product, ProgramRole::kEpilogue) ||
        program_of(product).stages.size() != 1 || sums_rows(program_of(product)))
      return std::nullopt;
    const auto at = std::find(product.outputs.begin(), product.outputs.end(), turned(sums.inputs[0]));
    if (at == product.outputs.end() || meets(product.inputs, sums.outputs[0].root) ||
        product.inputs.size() + product.outputs.size() >= static_cast<size_t>(kMaxTileOperands) ||
        program_of(product).registers.size() >= kMaxTileRegisters)
      return std::nullopt;
    KernelCall joined = product;
    joined.outputs.push_back(turned(sums.outputs[0]));
    joined.origins = united_origins(product, sums);
    joined.reason += ", with the sums of its columns";
    TileProgram program = program_with_sums(
        program_of(product), static_cast<size_t>(at - product.outputs.begin()), sums.outputs[0].dtype);
    CudaProblem problem = call_problem(joined, context_);
    problem.program = &program;
    const std::vector<KernelVariant> variants = cuda_variants(*find_cuda_kernel(kTensorCoreProduct), problem);
    if (std::none_of(variants.begin(), variants.end(),
                     [&](const KernelVariant& v) { return v.way == row_call(joined)->way; }))
      return std::nullopt;
    check_tile_program(program);
    row_call(joined)->programs[0].index = static_cast<int>(programs_.size());
    programs_.push_back(std::move(program));
    return joined;
  }

  const CallGraph& all_;
  const std::vector<KernelCall>& calls_;
  std::vector<TileProgram>& programs_;
  const CodeContext context_;
  Legality legality_;
};

}  // namespace

TileProgram program_with_sums(const TileProgram& product, size_t from, DType sum) {
  TileProgram program = product;
  const auto output = static_cast<int16_t>(product.inputs.size() + from);
  const auto last = static_cast<int16_t>(product.inputs.size() + product.outputs.size());
  const DType dtype = product.outputs[from];
  const auto summed = static_cast<int16_t>(program.registers.size());
  program.outputs.push_back(sum);
  program.registers.push_back({TileType::f32});
  std::vector<TileInstr>& stage = program.stages[0];
  const auto stores = std::find_if(stage.begin(), stage.end(), [&](const TileInstr& instr) {
    return instr.op == TileOp::store && instr.operand == output;
  });
  // What a reader of memory would add: the rounded value.
  const bool half = dtype == DType::f16 || dtype == DType::bf16;
  const TileInstr value{.op = dtype == DType::f16 ? TileOp::round_f16 : TileOp::round_bf16,
                        .type = TileType::f32,
                        .dst = summed,
                        .a = stores->a};
  const TileInstr add{
      .op = TileOp::store_sum, .type = TileType::f32, .a = half ? summed : stores->a, .operand = last};
  const auto after = stage.insert(stores + 1, add);
  if (half) stage.insert(after, value);
  return program;
}

void join_sums(CallGraph& calls, const Target& target, const SelectOptions& /*options*/) {
  SumJoiner(calls, target).run();
}

}  // namespace aicf
