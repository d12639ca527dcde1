#include "kernels/common/step_check.h"

#include <algorithm>

#include "base/error.h"

namespace aicf {

void bad_step(std::string_view kernel, std::string what, std::string expected, std::string actual) {
  throw UserError(ErrorCode::kU_bad_artifact, "step " + std::string(kernel) + ": " + std::move(what))
      .with_op(std::string(kernel))
      .with_expected(std::move(expected))
      .with_actual(std::move(actual))
      .with_remedy("compile the model again");
}

void check_counts(const BoundCall& call, std::string_view kernel, size_t min_inputs, size_t max_inputs,
                  size_t params, size_t fparams) {
  const size_t inputs = call.inputs.size();
  if (inputs < min_inputs || inputs > max_inputs)
    bad_step(kernel, "wrong number of inputs", std::to_string(min_inputs) + ".." + std::to_string(max_inputs),
             std::to_string(inputs));
  if (call.outputs.empty()) bad_step(kernel, "no outputs", "at least 1", "0");
  if (call.params.size() != params)
    bad_step(kernel, "wrong number of params", std::to_string(params), std::to_string(call.params.size()));
  if (call.fparams.size() != fparams)
    bad_step(kernel, "wrong number of fparams", std::to_string(fparams), std::to_string(call.fparams.size()));
  for (const TensorArg& tensor : call.inputs) check_sizes(tensor, kernel, "input");
  for (const TensorArg& tensor : call.outputs) check_sizes(tensor, kernel, "output");
}

void check_dtype(const TensorArg& tensor, DType dtype, std::string_view kernel, const char* name) {
  if (tensor.dtype != dtype)
    bad_step(kernel, std::string("wrong dtype of ") + name, std::string(dtype_name(dtype)),
             std::string(dtype_name(tensor.dtype)));
}

void check_rank(const TensorArg& tensor, int rank, std::string_view kernel, const char* name) {
  if (tensor.rank != rank)
    bad_step(kernel, std::string("wrong rank of ") + name, std::to_string(rank), std::to_string(tensor.rank));
}

void check_sizes(const TensorArg& tensor, std::string_view kernel, const char* name) {
  if (tensor.rank < 0 || tensor.rank > kMaxRank)
    bad_step(kernel, std::string("rank of ") + name, "0..12", std::to_string(tensor.rank));
  int64_t count = 1;
  for (int i = 0; i < tensor.rank; ++i) {
    // An empty tensor's other sizes count too, so that any sub-product fits.
    if (tensor.sizes[i] < 0 || __builtin_mul_overflow(count, std::max<int64_t>(tensor.sizes[i], 1), &count))
      bad_step(kernel, std::string("size of ") + name, "0 <= product < 2^63",
               std::to_string(tensor.sizes[i]));
  }
}

bool is_dense(const TensorArg& tensor) {
  if (std::find(tensor.sizes, tensor.sizes + tensor.rank, 0) != tensor.sizes + tensor.rank) return true;
  int64_t expected = 1;
  for (int axis = tensor.rank; axis-- > 0; expected *= tensor.sizes[axis])
    if (tensor.sizes[axis] != 1 && tensor.strides[axis] != expected) return false;
  return true;
}

void broadcast_strides(const TensorArg& tensor, const int64_t* sizes, int rank, std::string_view kernel,
                       int64_t* strides) {
  if (tensor.rank > rank)
    bad_step(kernel, "operand of too high rank", "<= " + std::to_string(rank), std::to_string(tensor.rank));
  for (int i = 0; i < rank; ++i) {
    const int axis = i - (rank - tensor.rank);
    strides[i] = 0;
    if (axis < 0 || tensor.sizes[axis] == 1) continue;
    check_step(tensor.sizes[axis] == sizes[i], kernel, "operand does not broadcast", std::to_string(sizes[i]),
               tensor.sizes[axis]);
    strides[i] = tensor.strides[axis];
  }
}

namespace {

bool needs_a_row(TileOp op) {
  switch (op) {
    case TileOp::reduce_sum:
    case TileOp::reduce_prod:
    case TileOp::reduce_max:
    case TileOp::reduce_min:
    case TileOp::store_scalar:
    case TileOp::store_sum:
    case TileOp::inner_index:
      return true;
    default:
      return false;
  }
}

}  // namespace

void check_epilogue(const BoundCall& call, size_t first_operand, std::string_view kernel) {
  const TileProgram& program = *call.program;
  check_tile_program(program);
  check_step(program.stages.size() == 1, kernel, "epilogue stages", "1",
             static_cast<int64_t>(program.stages.size()));
  for (const TileInstr& instr : program.stages[0])
    check_step(!needs_a_row(instr.op), kernel, "epilogue op that needs whole rows", "none",
               static_cast<int64_t>(instr.op));
  const size_t operands = call.inputs.size() - first_operand;
  check_step(program.inputs.size() == operands + 1, kernel, "epilogue inputs", std::to_string(operands + 1),
             static_cast<int64_t>(program.inputs.size()));
  check_step(program.outputs.size() == call.outputs.size(), kernel, "epilogue outputs",
             std::to_string(call.outputs.size()), static_cast<int64_t>(program.outputs.size()));
  check_step(program.inputs[0] == DType::f32, kernel, "epilogue input 0", "f32",
             static_cast<int64_t>(program.inputs[0]));
  for (size_t i = 0; i < operands; ++i)
    check_dtype(call.inputs[first_operand + i], program.inputs[i + 1], kernel, "epilogue operand");
  for (size_t i = 0; i < call.outputs.size(); ++i)
    check_dtype(call.outputs[i], program.outputs[i], kernel, "epilogue output");
  const size_t total = program.inputs.size() + program.outputs.size();
  check_step(total <= kMaxTileOperands, kernel, "epilogue operands", "<= 24", static_cast<int64_t>(total));
}

}  // namespace aicf
