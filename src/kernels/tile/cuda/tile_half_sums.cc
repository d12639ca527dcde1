#include "kernels/tile/cuda/tile_half_sums.h"

namespace aicf {
int half_sum_of(const TileValues& program, const std::vector<std::optional<DType>>& sums, int value) {
  const TileValue& v = program.values[static_cast<size_t>(value)];
  const std::optional<DType> dtype = rounded_type(v.op);
  return dtype && sums[static_cast<size_t>(v.args[0])] == dtype ? v.args[0] : -1;
}

std::vector<std::optional<DType>> half_sums(const TileValues& program,
                                            const std::vector<std::optional<DType>>& inputs) {
  std::vector<std::optional<DType>> sums(program.values.size());
  const auto at = [&](int id) -> const TileValue& { return program.values[static_cast<size_t>(id)]; };
  // Of an operand, its rounding to the type that it has, or a rounded sum.
  const auto half_type = [&](int id) -> std::optional<DType> {
    if (half_sum_of(program, sums, id) >= 0) return rounded_type(at(id).op);
    const std::optional<DType> rounded = rounded_type(at(id).op);
    const TileValue& from = rounded ? at(at(id).args[0]) : at(id);
    if (from.op != TileOp::load) return std::nullopt;
    const std::optional<DType> dtype = inputs[static_cast<size_t>(from.operand)];
    return !rounded || rounded == dtype ? dtype : std::nullopt;
  };
  for (size_t id = 0; id < sums.size(); ++id) {
    const TileValue& value = program.values[id];
    if (value.op != TileOp::add || value.type != TileType::f32) continue;
    const std::optional<DType> x = half_type(value.args[0]);
    if (x && x == half_type(value.args[1])) sums[id] = x;
  }
  return sums;
}

}  // namespace aicf
