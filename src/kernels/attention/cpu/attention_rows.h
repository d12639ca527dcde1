// The softmax half of attention on a tile of scores, once per ISA level. Plain types only.
#pragma once

#include <stdint.h>

namespace aicf {

// Rows of scores against one block of keys. Sums run over 16 virtual lanes (key j in lane j mod 16, combined
// pairwise), so their bits depend on the number of keys alone.
struct AttentionRows {
  float* scores;  // [rows][stride], 16 * ceil(keys / 16) <= stride; becomes e^(score - maximum), 0 from
                  // `keys` on
  int64_t stride, rows, keys;
  float scale, softcap;  // softcap 0: none
  const void* mask;      // null: none. Element of row 0, key 0 of this block
  int64_t mask_is_bool, mask_row_stride, mask_key_stride;
  int64_t first, visible;  // row i sees keys first + i <= j < visible + i of this block, at least one
  float* maximum;          // [rows], running
  float* sum;              // [rows], running
  float* out;              // [rows][out_stride], the running weighted sum; scaled to the new maximum
  int64_t out_stride, out_columns;  // columns are a multiple of 16
};

// to[i] = out[i] / sum[i]; a row without any key gives 0. `columns` are a multiple of 16; `to` may be `out`.
struct AttentionEnd {
  const float* out;
  int64_t out_stride;
  float* to;
  int64_t to_stride, columns, rows;
  const float *maximum, *sum;
  float* lse;  // null, or the logarithm of each row's sum of e^score, -inf for a row without any key
  int64_t lse_stride;
};

// From the exponentials of a row's scores, left by AttentionRows, and d weight = dout . v: the weights, and
// the gradients of the products q . k.
struct AttentionSlopes {
  float* weights;       // [rows][stride]: e^(score - maximum) in, weights out
  float* slopes;        // [rows][stride]: d weight in, gradients out
  const float* scores;  // [rows][stride]: q . k, read for a softcap only
  int64_t stride, rows, keys;
  float scale, softcap;
  const float *sum, *along;  // [rows]: the row's sum of exponentials, and dout . out
};

struct AttentionIsa {
  void (*rows)(const AttentionRows& rows);
  void (*end)(const AttentionEnd& end);
  void (*slopes)(const AttentionSlopes& slopes);
};

}  // namespace aicf
