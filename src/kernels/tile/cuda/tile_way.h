// Which kernel a region gets on CUDA: a pure choice by what its program computes and how its windows lie.
#pragma once

#include "kernels/tile/cuda/tile_space.h"

namespace aicf {

enum class TileWay : uint8_t {
  flat,       // element by element, in the order of memory
  transpose,  // element by element, in squares: some input runs across the results
  rows,       // a row at a time: the axes of a row are neighbours in memory
  columns,    // many rows at a time: the neighbours of an element are in other rows
};

struct TilePlan {
  TileWay way = TileWay::flat;
  TileSpace space;  // with its axes in the order in which the way takes them
};

TilePlan tile_plan(const CudaProblem& problem);

// The axis along which neighbours of the view lie, where those of the result lie along the last one; -1: it
// does not run across.
int crossing_axis(const TileView& view);

}  // namespace aicf
