#include "kernels/tile/cpu/tile_compile.h"

#include <cstring>
#include <utility>

#include "base/error.h"
#include "kernels/tile/tile_info.h"

namespace aicf {

namespace {

template <class T>
void copy_run(std::byte* dst, int64_t dst_stride, const std::byte* src, int64_t src_stride, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    T value;
    std::memcpy(&value, src + i * src_stride, sizeof value);
    std::memcpy(dst + i * dst_stride, &value, sizeof value);
  }
}

}  // namespace

TileFunction tile_compute(IsaLevel isa, const TileInstr& instr) {
  const int op = static_cast<int>(instr.op), type = static_cast<int>(instr.type);
  if (TileFunction fn = AICF_PICK_ISA(isa, tile_float_function)(op, type)) return fn;
  if (TileFunction fn = AICF_PICK_ISA(isa, tile_integer_function)(op, type)) return fn;
  if (TileFunction fn = AICF_PICK_ISA(isa, tile_cast_function)(op, type)) return fn;
  AICF_CHECK(false, std::string(tile_op_info(instr.op).name));
  return nullptr;
}

int64_t tile_immediate(const TileInstr& instr) {
  if (instr.op != TileOp::constant || instr.type > TileType::f64) return instr.imm_i;
  int64_t bits = 0;
  if (instr.type == TileType::f64) {
    std::memcpy(&bits, &instr.imm_f, sizeof instr.imm_f);
  } else {
    const float narrow = static_cast<float>(instr.imm_f);
    std::memcpy(&bits, &narrow, sizeof narrow);
  }
  return bits;
}

TileReduction tile_reducer(IsaLevel isa, const TileInstr& instr) {
  const TileReduction reduction =
      AICF_PICK_ISA(isa, tile_reduction)(static_cast<int>(instr.op), static_cast<int>(instr.type));
  AICF_CHECK(reduction.begin && reduction.combine, std::string(tile_op_info(instr.op).name));
  return reduction;
}

std::vector<int> register_writers(const TileProgram& program) {
  std::vector<int> writers(program.registers.size());
  for (const auto& stage : program.stages)
    for (const TileInstr& instr : stage)
      if (instr.dst >= 0 && !is_tile_scalar(instr.dst)) ++writers[static_cast<size_t>(instr.dst)];
  return writers;
}

TileStep plain_step(const TileInstr& instr) {
  return {nullptr,
          TileStepKind::kCompute,
          tile_slot(instr.dst),
          tile_slot(instr.a),
          tile_slot(instr.b),
          tile_slot(instr.c),
          instr.operand,
          0,
          tile_immediate(instr)};
}

TileFunction tile_loader(IsaLevel isa, DType dtype, TileType type, bool* identical) {
  bool same = false;
  TileFunction fn =
      AICF_PICK_ISA(isa, tile_load_function)(static_cast<int>(dtype), static_cast<int>(type), &same);
  AICF_CHECK(fn, std::string(dtype_name(dtype)));
  if (identical) *identical = same;
  return fn;
}

TileFunction tile_storer(IsaLevel isa, TileType type, DType dtype, bool* identical) {
  bool same = false;
  TileFunction fn =
      AICF_PICK_ISA(isa, tile_store_function)(static_cast<int>(type), static_cast<int>(dtype), &same);
  AICF_CHECK(fn, std::string(dtype_name(dtype)));
  if (identical) *identical = same;
  return fn;
}

std::optional<TileChainOp> chain_op(TileOp op) {
  constexpr std::pair<TileOp, TileChainOp> kOps[] = {{TileOp::add, kChainAdd},
                                                     {TileOp::sub, kChainSub},
                                                     {TileOp::mul, kChainMul},
                                                     {TileOp::max, kChainMax},
                                                     {TileOp::min, kChainMin},
                                                     {TileOp::div, kChainDiv},
                                                     {TileOp::exp, kChainExp},
                                                     {TileOp::log, kChainLog},
                                                     {TileOp::tanh, kChainTanh},
                                                     {TileOp::gelu, kChainGelu},
                                                     {TileOp::gelu_tanh, kChainGeluTanh},
                                                     {TileOp::sigmoid, kChainSigmoid},
                                                     {TileOp::sqrt, kChainSqrt},
                                                     {TileOp::rsqrt, kChainRsqrt},
                                                     {TileOp::neg, kChainNeg}};
  for (const auto& [known, link] : kOps)
    if (known == op) return link;
  return std::nullopt;
}

void copy_elements(std::byte* dst, int64_t dst_stride, const std::byte* src, int64_t src_stride, int64_t n,
                   int bytes) {
  if (dst_stride == bytes && src_stride == bytes) {
    std::memcpy(dst, src, static_cast<size_t>(n * bytes));
    return;
  }
  switch (bytes) {
    case 1:
      return copy_run<uint8_t>(dst, dst_stride, src, src_stride, n);
    case 2:
      return copy_run<uint16_t>(dst, dst_stride, src, src_stride, n);
    case 4:
      return copy_run<uint32_t>(dst, dst_stride, src, src_stride, n);
    default:
      return copy_run<uint64_t>(dst, dst_stride, src, src_stride, n);
  }
}

}  // namespace aicf
