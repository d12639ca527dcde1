#include "calls/joined_program.h"

#include <algorithm>

#include "base/error.h"
#include "calls/call_windows.h"

namespace aicf {
namespace {

// What a reader of memory would get of a value that is stored as this dtype.
TileInstr rounding(DType dtype, int16_t to, int16_t from) {
  const TileOp op = dtype == DType::f16    ? TileOp::round_f16
                    : dtype == DType::bf16 ? TileOp::round_bf16
                                           : TileOp::to_f32;  // as it is
  return {.op = op, .type = TileType::f32, .dst = to, .a = from};
}

class Joiner {
 public:
  Joiner(const TileProgram& first, size_t from, const TileProgram& second, size_t middle)
      : first_(first), second_(second), from_(from), middle_(middle), kept_(first.outputs[from]) {}

  TileProgram run(const std::vector<bool>& kept) {
    AICF_CHECK(first_.stages.size() == 1 && is_forwarded(kept_),
               "programs are joined behind one stage, at a half value or one in f32");
    const auto registers = static_cast<int16_t>(first_.registers.size());
    const auto scalars = static_cast<int16_t>(first_.scalars.size());
    joined_.inputs = first_.inputs;
    for (size_t i = 0; i < second_.inputs.size(); ++i)
      if (i != middle_) joined_.inputs.push_back(second_.inputs[i]);
    joined_.registers = first_.registers;
    joined_.registers.insert(joined_.registers.end(), second_.registers.begin(), second_.registers.end());
    joined_.registers.push_back({TileType::f32, true});
    joined_.scalars = first_.scalars;
    joined_.scalars.insert(joined_.scalars.end(), second_.scalars.begin(), second_.scalars.end());
    for (size_t i = 0; i < first_.outputs.size(); ++i) {
      first_output_.push_back(kept[i] ? operands() : -1);
      if (kept[i]) joined_.outputs.push_back(first_.outputs[i]);
    }
    const int second_output = operands();
    joined_.outputs.insert(joined_.outputs.end(), second_.outputs.begin(), second_.outputs.end());
    joined_.stages.emplace_back();
    add_first(joined_.stages[0]);
    joined_.stages.resize(second_.stages.size());
    for (size_t s = 0; s < second_.stages.size(); ++s)
      for (TileInstr instr : second_.stages[s]) {
        for (int16_t* number : {&instr.dst, &instr.a, &instr.b, &instr.c})
          if (*number >= 0)
            *number = static_cast<int16_t>(*number + (*number >= kTileScalarBase ? scalars : registers));
        if (instr.operand >= 0) add_operand(instr, second_output);
        joined_.stages[s].push_back(instr);
      }
    return std::move(joined_);
  }

 private:
  int operands() const { return static_cast<int>(joined_.inputs.size() + joined_.outputs.size()); }
  int16_t kept_register() const { return static_cast<int16_t>(joined_.registers.size() - 1); }

  void add_first(std::vector<TileInstr>& stage) const {
    for (TileInstr instr : first_.stages[0]) {
      const int output = instr.operand - static_cast<int>(first_.inputs.size());
      if (output < 0) {
        stage.push_back(instr);
        continue;
      }
      if (output == static_cast<int>(from_)) stage.push_back(rounding(kept_, kept_register(), instr.a));
      instr.operand = static_cast<int16_t>(first_output_[static_cast<size_t>(output)]);
      if (instr.operand >= 0) stage.push_back(instr);
    }
  }

  // What the second program reads from memory is there already.
  void add_operand(TileInstr& instr, int second_output) const {
    const auto operand = static_cast<size_t>(instr.operand);
    if (operand == middle_) {
      instr = rounding(kept_, instr.dst, kept_register());
    } else if (operand < second_.inputs.size()) {
      const size_t before = first_.inputs.size() - (operand > middle_ ? 1 : 0);
      instr.operand = static_cast<int16_t>(before + operand);
    } else {
      instr.operand = static_cast<int16_t>(second_output + static_cast<int>(operand - second_.inputs.size()));
    }
  }

  const TileProgram &first_, &second_;
  size_t from_, middle_;
  DType kept_;                     // of the value between them
  std::vector<int> first_output_;  // operand numbers; -1: not kept
  TileProgram joined_;
};

}  // namespace

Decision forwards_half(const TileProgram& program, size_t from) {
  if (!is_half(program.outputs[from])) return Decision::no("the result between them is no half");
  return program.stages.size() == 1 ? Decision() : Decision::no("the product's program is of several stages");
}

Decision program_fits(const TileProgram& program, const KernelCall& call) {
  const size_t operands = call.inputs.size() + call.outputs.size();
  return operands <= size_t{kMaxTileOperands} && program.registers.size() <= size_t{kMaxTileRegisters} &&
                 program.scalars.size() <= size_t{kMaxTileRegisters}
             ? Decision()
             : Decision::no("one program would have too many operands or registers");
}

BoundProgram bound_program(const KernelCall& call, const CallGraph& graph) {
  const auto first = own_row(call)->programs[0].first_operand;
  return {graph.program_of(call), {call.inputs.begin() + first, call.inputs.end()}, call.outputs};
}

std::optional<BoundProgram> over_rows(BoundProgram region, size_t rank) {
  for (auto* list : {&region.inputs, &region.outputs})
    for (Window& w : *list) {
      const std::optional<Window> merged = over_rows(w, rank);
      if (!merged) return std::nullopt;
      w = *merged;
    }
  return region;
}

std::optional<BoundProgram> columns_of(const BoundProgram& program, const Window& columns) {
  if (program.outputs.size() != 1) return std::nullopt;
  const Window& all = program.outputs[0];
  const Dim first = columns.offset - all.offset, &count = columns.sizes.back();
  if (all.strides.back() != Dim(1) || !(columns_of(all, first, count) == columns)) return std::nullopt;
  BoundProgram part{program.program, program.inputs, {columns}};
  for (Window& w : part.inputs) w = columns_of(w, first, count);
  return part;
}

BoundProgram joined(const BoundProgram& first, size_t from, const std::vector<bool>& kept,
                    const BoundProgram& second, size_t middle) {
  const size_t sums = second.program.inputs.size() - second.inputs.size();
  BoundProgram both{
      joined_program(first.program, from, kept, second.program, sums + middle), first.inputs, {}};
  for (size_t i = 0; i < second.inputs.size(); ++i)
    if (i != middle) both.inputs.push_back(second.inputs[i]);
  for (size_t i = 0; i < kept.size(); ++i)
    if (kept[i]) both.outputs.push_back(first.outputs[i]);
  both.outputs.insert(both.outputs.end(), second.outputs.begin(), second.outputs.end());
  return both;
}

TileProgram with_sums(TileProgram program, size_t from, DType sum) {
  const auto output = static_cast<int16_t>(program.inputs.size() + from);
  const auto last = static_cast<int16_t>(program.inputs.size() + program.outputs.size());
  const DType dtype = program.outputs[from];
  const auto rounded = static_cast<int16_t>(program.registers.size());
  program.outputs.push_back(sum);
  program.registers.push_back({TileType::f32});
  std::vector<TileInstr>& stage = program.stages[0];
  const auto stores = std::find_if(stage.begin(), stage.end(), [&](const TileInstr& instr) {
    return instr.op == TileOp::store && instr.operand == output;
  });
  const TileInstr value = rounding(dtype, rounded, stores->a);
  const int16_t added = is_half(dtype) ? rounded : stores->a;
  const auto after =
      stage.insert(stores + 1, {.op = TileOp::store_sum, .type = TileType::f32, .a = added, .operand = last});
  if (added == rounded) stage.insert(after, value);
  return program;
}

bool has_elements_alone(const TileProgram& program) {
  return program.stages.size() == 1 && !sums_rows(program) &&
         std::none_of(program.stages[0].begin(), program.stages[0].end(),
                      [](const TileInstr& instr) { return instr.op == TileOp::inner_index; });
}

TileProgram with_input_at(TileProgram program, size_t from, size_t to) {
  const auto at = program.inputs.begin() + static_cast<std::ptrdiff_t>(from);
  std::rotate(program.inputs.begin() + static_cast<std::ptrdiff_t>(to), at, at + 1);
  for (std::vector<TileInstr>& stage : program.stages)
    for (TileInstr& instr : stage) {
      const auto number = static_cast<size_t>(instr.operand);
      if (instr.operand < 0 || number < to || number > from) continue;
      instr.operand = static_cast<int16_t>(number == from ? to : number + 1);
    }
  return program;
}

TileProgram joined_program(const TileProgram& first, size_t from, const std::vector<bool>& kept,
                           const TileProgram& second, size_t middle) {
  return Joiner(first, from, second, middle).run(kept);
}

}  // namespace aicf
