// A tile program as single-assignment values: what CUDA text is written from. Registers and row scalars
// become numbered values, each computed once; an operand is one load however many stages read it; values that
// are the same for a whole row are marked. Takes a checked program.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <vector>

#include "kernels/common/tile_program.h"

namespace aicf {

struct TileValue {
  TileOp op = TileOp::constant;
  TileType type = TileType::f32;    // in which it computes
  TileType result = TileType::f32;  // what it is
  std::array<int, 3> args{-1, -1, -1};
  int operand = -1;  // loads
  double imm_f = 0;
  int64_t imm_i = 0;
  // Derived, as early as possible:
  bool per_row = false;  // one value for a whole row; constants too
  int stage = 0;         // reductions: that of their elements, the result is there one stage later
  std::optional<DType> half = std::nullopt;  // an f32 that is only ever rounded to this half type
  // An f32 that reaches nothing but half types, through sums, products, selection and sigmoids.
  bool into_halves = false;
  bool stored_in_halves = false;  // the same of what is not reduced, and not through sigmoids
};

struct TileStore {
  int operand = 0;  // inputs first
  int value = 0;
  TileType type = TileType::f32;
  bool per_row = false;  // one element per row
  int stage = 0;         // from which on the value is there
  bool sums = false;     // the sum over all rows of the value, one row of them
};

// Sums that one walk over x makes (tile_moments.h): of x, and of the squares of what it differs by from its
// mean.
struct TileMoments {
  int sum = 0, squares = 0;
};

struct TileValues {
  std::vector<TileValue> values;  // operands before what uses them
  std::vector<TileStore> stores;
  int stages = 1;
  std::vector<TileMoments> moments;

  // That the reduction is part of; null: none.
  const TileMoments* moments_of(int id) const;
};

// That an instruction rounds an f32 to.
std::optional<DType> rounded_type(TileOp op);

// `varies(operand)`: whether an input differs between the elements of a row.
TileValues tile_values(const TileProgram& program, const std::function<bool(int)>& varies);

// The values that `sinks` need, in order of computation; the search stops at values for which `known` holds
// (they are not listed). Constants are never listed.
std::vector<int> needed_values(const TileValues& program, const std::vector<int>& sinks,
                               const std::function<bool(int)>& known);

}  // namespace aicf
