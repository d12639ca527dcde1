// What the cross entropies and their derivatives share: pieces of the graph over the rows of logits.
#pragma once

#include "ir/decompose/emitter.h"

namespace aicf {

// Of labels [N]. A label that is neither ignored nor a class must fail when running, so a negative one is
// sent past the end instead of counting from it.
struct LabelRows {
  ValueId kept;     // [N] bool
  ValueId index;    // [N, 1]: the class; 0 where the row is ignored
  ValueId divisor;  // how many rows are kept, at least 1, in the dtype
};
LabelRows label_rows(Emitter& e, ValueId labels, const Dim& classes, int64_t ignore_index, DType dtype);

// Of logits [N, C] as computed with: logits[index], the maximum of each row, e^(logits - maximum) and its
// sum.
struct SoftmaxRows {
  ValueId picked, wide, top, powers, sum;
};
// `index` [N, 1].
SoftmaxRows softmax_rows(Emitter& e, ValueId logits, ValueId index);
// -log_softmax(logits)[index], [N].
ValueId row_losses(Emitter& e, const SoftmaxRows& rows);
// The mean of the losses over the rows that are kept.
ValueId mean_of_kept(Emitter& e, ValueId losses, const LabelRows& labels);

// Rows of logits [rows, classes] that linear_cross_entropy stores at a time unless told: all where they are
// small or their number is not known.
Dim cross_entropy_chunk(const Dim& rows, const Dim& classes, DType dtype);

}  // namespace aicf
