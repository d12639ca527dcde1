#include "build/join_sums.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "build/call_windows.h"
#include "kernels/cuda_kernel.h"
#include "select/cuda_problem.h"

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
  SumJoiner(KernelCalls& calls, std::vector<TileProgram>& programs, const Target& target,
            const SymbolRanges& ranges)
      : calls_(calls.calls), programs_(programs), target_(target), ranges_(ranges) {}

  void run() {
    for (size_t i = 0; i < calls_.size();) {
      const std::optional<size_t> product = adds_columns(calls_[i]) ? find_product(i) : std::nullopt;
      std::optional<KernelCall> joined = product ? join(calls_[*product], calls_[i]) : std::nullopt;
      if (!joined) {
        ++i;
        continue;
      }
      calls_[*product] = std::move(*joined);
      calls_.erase(calls_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

 private:
  const TileProgram& program_of(const KernelCall& call) const {
    return programs_[static_cast<size_t>(call.region)];
  }

  // One sum of each row of its only operand, of two axes.
  bool adds_columns(const KernelCall& call) const {
    if (call.kernel != "tile" || call.region < 0 || call.schedule.inner_rank != 1 || !call.members.empty() ||
        call.inputs.size() != 1 || call.outputs.size() != 1 || call.inputs[0].sizes.size() != 2)
      return false;
    const auto& stages = program_of(call).stages;
    const auto is = [](const TileInstr& instr, TileOp op) {
      return instr.op == op && instr.type == TileType::f32;
    };
    return stages.size() == 2 && stages[0].size() == 2 && is(stages[0][0], TileOp::load) &&
           is(stages[0][1], TileOp::reduce_sum) && stages[1].size() == 1 &&
           is(stages[1][0], TileOp::store_scalar);
  }

  // The product that stores what the sums are of, if the sums may be where it is.
  std::optional<size_t> find_product(size_t sums) const {
    const KernelCall& call = calls_[sums];
    const auto rows = call.inputs[0].sizes[1].constant();
    if (!rows || *rows < kLeastRows) return std::nullopt;
    for (size_t i = sums; i-- > 0;) {
      if (meets(calls_[i].outputs, call.inputs[0].root)) return i;
      if (meets(calls_[i].inputs, call.outputs[0].root) || meets(calls_[i].outputs, call.outputs[0].root))
        return std::nullopt;
    }
    return std::nullopt;
  }

  std::optional<KernelCall> join(const KernelCall& product, const KernelCall& sums) {
    if (product.kernel != "matmul_tensor_core" || !product.library.call.empty() || !product.members.empty() ||
        product.region < 0 || program_of(product).stages.size() != 1)
      return std::nullopt;
    const auto at = std::find(product.outputs.begin(), product.outputs.end(), turned(sums.inputs[0]));
    if (at == product.outputs.end() || meets(product.inputs, sums.outputs[0].root) ||
        product.inputs.size() + product.outputs.size() >= static_cast<size_t>(kMaxTileOperands) ||
        program_of(product).registers.size() >= kMaxTileRegisters)
      return std::nullopt;
    KernelCall joined = product;
    joined.outputs.push_back(turned(sums.outputs[0]));
    joined.origin += " … " + sums.origin;
    joined.reason += ", with the sums of its columns";
    TileProgram program = program_with_sums(
        program_of(product), static_cast<size_t>(at - product.outputs.begin()), sums.outputs[0].dtype);
    CudaProblem problem = cuda_problem(joined, target_.arch, ranges_);
    problem.program = &program;
    const std::vector<KernelVariant> variants = cuda_variants(*find_cuda_kernel(joined.kernel), problem);
    if (std::none_of(variants.begin(), variants.end(),
                     [&](const KernelVariant& v) { return v.name == joined.variant; }))
      return std::nullopt;
    check_tile_program(program);
    joined.region = static_cast<int>(programs_.size());
    programs_.push_back(std::move(program));
    return joined;
  }

  std::vector<KernelCall>& calls_;
  std::vector<TileProgram>& programs_;
  const Target& target_;
  const SymbolRanges& ranges_;
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
  const TileInstr add{.op = TileOp::store,
                      .type = TileType::f32,
                      .a = half ? summed : stores->a,
                      .operand = last,
                      .imm_i = 1};
  const auto after = stage.insert(stores + 1, add);
  if (half) stage.insert(after, value);
  return program;
}

void join_sums(KernelCalls& calls, std::vector<TileProgram>& programs, const Target& target,
               const SymbolRanges& ranges) {
  SumJoiner(calls, programs, target, ranges).run();
}

}  // namespace aicf
