// What the CPU kernels of both directions of attention read from a call: q, k, v as inputs 0 to 2, a mask
// somewhere behind them.
#pragma once

#include <algorithm>

#include "kernels/common/kernel.h"

namespace aicf {

struct View4 {
  int64_t batch, head, row, column;
};
View4 view_of(const TensorArg& tensor);
// The mask as broadcast to [B, Hq, Tq, Tk].
View4 mask_view(const BoundCall& call, size_t mask, const char* kernel);

// Not in tf32.
bool can_attend(const Problem& problem, size_t mask);
// Params {causal, has mask} and a window where there is one, so many outputs, the inputs before number `mask`
// and the mask where the call says so (true); q, k, v: f32, rank 4, sizes that fit each other, depths that
// scratch can hold; else bad_artifact.
bool check_attention_call(const BoundCall& call, size_t mask, size_t outputs, const char* kernel);
// The keys that sizes, causality and window let a query see.
struct SeenKeys {
  int64_t keys, shift;    // query i stands at key i + shift
  int64_t behind, ahead;  // a query at p sees keys p - behind < j < p + ahead

  int64_t first(int64_t query) const { return std::clamp<int64_t>(query + shift - behind + 1, 0, keys); }
  int64_t end(int64_t query) const { return std::clamp<int64_t>(query + shift + ahead, 0, keys); }
};
SeenKeys seen_keys(const BoundCall& call);
// A tensor shaped as attention's result.
void check_attention_result(const BoundCall& call, const TensorArg& tensor, const char* what,
                            const char* kernel);

}  // namespace aicf
