#include "kernels/tile/cuda/tile_moments.h"

#include <algorithm>

#include "kernels/tile/tile_info.h"

namespace aicf {
namespace {

const TileValue& value_of(const TileValues& program, int id) {
  return program.values[static_cast<size_t>(id)];
}

bool is_constant(const TileValue& value, double number) {
  return value.op == TileOp::constant && value.imm_f == number;
}

// The sum that `mean` is the mean of; -1: it is none.
int sum_of_mean(const TileValues& program, const TileValue& mean, double length) {
  if (mean.op != TileOp::div && mean.op != TileOp::mul) return -1;
  const bool single = mean.type == TileType::f32;
  const double part = single ? static_cast<double>(1.0F / static_cast<float>(length)) : 1 / length;
  for (const size_t at : {size_t{0}, size_t{1}}) {
    if (mean.op == TileOp::div && at == 1) break;
    const int sum = mean.args[at];
    const bool divides =
        is_constant(value_of(program, mean.args[1 - at]), mean.op == TileOp::div ? length : part);
    if (divides && value_of(program, sum).op == TileOp::reduce_sum) return sum;
  }
  return -1;
}

// The sum of x whose squared differences from its mean `squares` adds up; -1: it is another reduction.
int sum_of_squares(const TileValues& program, const TileValue& squares, double length) {
  if (squares.op != TileOp::reduce_sum || (squares.type != TileType::f32 && squares.type != TileType::f64))
    return -1;
  const TileValue& square = value_of(program, squares.args[0]);
  if (square.op != TileOp::mul || square.args[0] != square.args[1] || square.per_row) return -1;
  const TileValue& difference = value_of(program, square.args[0]);
  if (difference.op != TileOp::sub) return -1;
  const int sum = sum_of_mean(program, value_of(program, difference.args[1]), length);
  return sum >= 0 && value_of(program, sum).args[0] == difference.args[0] ? sum : -1;
}

int stage_after(const TileValue& value) { return value.stage + (is_tile_reduction(value.op) ? 1 : 0); }

// As early as possible, again.
void number_stages(TileValues& program) {
  program.stages = 1;
  for (size_t i = 0; i < program.values.size(); ++i) {
    TileValue& value = program.values[i];
    value.stage = 0;
    for (const int arg : value.args)
      if (arg >= 0) value.stage = std::max(value.stage, stage_after(value_of(program, arg)));
    for (const TileMoments& moments : program.moments)
      if (moments.squares == static_cast<int>(i)) value.stage = value_of(program, moments.sum).stage;
    program.stages = std::max(program.stages, stage_after(value) + 1);
  }
  for (TileStore& store : program.stores) store.stage = stage_after(value_of(program, store.value));
}

}  // namespace

const TileMoments* TileValues::moments_of(int id) const {
  const auto found = std::find_if(moments.begin(), moments.end(),
                                  [&](const TileMoments& m) { return m.sum == id || m.squares == id; });
  return found == moments.end() ? nullptr : &*found;
}

void join_moments(TileValues& program, const Dim& length) {
  if (!length.constant()) return;
  for (size_t i = 0; i < program.values.size(); ++i) {
    const int sum = sum_of_squares(program, program.values[i], static_cast<double>(*length.constant()));
    if (sum >= 0 && program.moments_of(sum) == nullptr) program.moments.push_back({sum, static_cast<int>(i)});
  }
  if (!program.moments.empty()) number_stages(program);
}

}  // namespace aicf
