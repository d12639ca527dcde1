// How the threads of a region whose rows lie across memory share its work: a pure choice by an estimate in
// cycles, from what its stages read and compute and from the machine in cuda_machine.h.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/common/cuda_machine.h"

namespace aicf {

// Of one stage, in bytes of one column of one element of the rows.
struct ColumnsStage {
  bool walks = true;       // it has elements at all
  bool reads = true;       // operands that no earlier stage has read
  int load_bytes = 0;      // of operands of which columns are neighbours
  int first_bytes = 0;     // of these, what no earlier stage has read
  int store_bytes = 0;     // the same of results
  int along_loads = 0;     // of operands of which the elements of a row are neighbours, or none are
  int along_stores = 0;    // the same of results
  int repeat_bytes = 0;    // of operands that are one element for all columns of a thread
  int reductions = 0;      // moments are one
  int partials = 0;        // numbers of a column that reductions of earlier stages leave for it
  int lane_registers = 0;  // numbers of a column that a thread keeps over the walk
  int instructions = 0;
};

struct ColumnsWork {
  double places = 1;  // every one has `columns` rows that are neighbours
  double columns = 1;
  double length = 1;   // elements of a row
  int inner_axes = 1;  // that these run along
  int most_vector = 1;
  int most_threads = 512;                  // of a block
  int column_bytes = 0, repeat_bytes = 0;  // of an element of all operands, as of a stage
  std::vector<ColumnsStage> stages;
  CudaMachine machine = {};
};

struct ColumnsShape {
  int vector = 1;  // columns of a thread
  int threads = 256;
  int across = 32;  // threads of a block with columns of their own; the others share the elements of a row
  int splits = 1;   // blocks that share the elements of a row; then every stage is a launch

  int deep() const { return threads / across; }
  bool operator==(const ColumnsShape&) const = default;
};

// Vectors of `load_bytes` in all that a thread asks for before it computes with the first: as many as
// registers hold. It takes `elements` of each row. Many narrow ones, a register each, pay where none are left
// for another round: an H200 took 14.7 us for sums of 32 halves by eights and 8.3 by sixteens, but 36.7 and
// 63.6 for sums of 142,624.
int vectors_at_once(int load_bytes, double elements);

// Elements that a thread takes of each of its rows.
double thread_elements(const ColumnsWork& work, const ColumnsShape& shape);

// Elements of each of its rows that a thread keeps in registers from their first use on: all of them, or
// none.
int held_elements(const ColumnsWork& work, const ColumnsShape& shape);

double columns_cycles(const ColumnsWork& work, const ColumnsShape& shape);
// The shape of the least cycles.
ColumnsShape columns_shape(const ColumnsWork& work);

// Threads side by side in a launch that only combines parts: it spreads over more blocks.
inline int combining_across(const ColumnsShape& shape) { return shape.across < 4 ? shape.across : 4; }

}  // namespace aicf
