// What the CUDA kernels of both directions of attention say of a problem: its sizes, what its windows allow,
// and pieces of text. Private to the family.
#pragma once

#include <string>
#include <vector>

#include "kernels/common/cuda_kernel.h"
#include "kernels/common/cuda_text.h"

namespace aicf {

// AttentionSizes of a problem with their upper bounds.
struct AttentionSizes {
  Dim batch, heads, kv_heads, queries, keys, group;
  int64_t depth, value_depth;
  double most_batch, most_heads, most_group, most_queries, most_keys;
  bool has_mask, causal;
  int64_t window;  // 0 where there is none, or none that hides a key
  double multiprocessors = 0;
};
// Upper bound of the keys that any of `rows` consecutive rows sees, but for causality.
double seen_keys(const AttentionSizes& sizes, double rows);
// Of the queries that see any of `keys` consecutive keys, likewise.
double seen_queries(const AttentionSizes& sizes, double keys);
// Of q, k and v, which are the first inputs.
AttentionSizes sizes_of(const CudaProblem& problem);

// q, k, v and further tensors of rank 4, `tensors` in all, of one type and constant depth; then a mask or
// none.
bool can_attend_cuda(const Problem& problem, size_t tensors, size_t results);

// Whether rows of the window start at multiples of `elements` and lie dense.
bool has_vector_rows(const CudaWindow& window, int64_t elements);
// Whether a tensor map can describe the window: sizes of at least one, positive strides of multiples of 16
// bytes.
bool has_tensor_map(const CudaProblem& problem, const CudaWindow& window);
// Strides over [batch, head, query, key]; an axis of one element is repeated.
std::vector<Dim> mask_strides(const CudaWindow& mask);
// Keys that may be read at once, of which each of its rows has a whole number side by side: 8, 2 or 1.
int64_t mask_unit(const CudaWindow& mask, const Dim& keys);
// Heads whose keys and values fit in the L2 cache together.
int64_t head_group(const CudaProblem& problem, const AttentionSizes& sizes);

// A member of the text's struct Traits.
std::string constant(const char* name, int64_t value);
std::string constant(const char* name, bool value);
std::string constant(const char* name, double value);
// Defines `all_heads`, the query heads of the whole batch.
std::string all_heads(const AttentionSizes& sizes, CudaParams& params);
// Strides as the text's View.
std::string view(CudaParams& params, const std::vector<Dim>& strides);

}  // namespace aicf
