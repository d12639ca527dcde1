// CUDA text of tile programs: fused regions as kernels of their own, and epilogues that other kernels run
// over their results. Takes checked programs over symbolic windows; gives text, pure functions of the
// problem.
#pragma once

#include <optional>
#include <string>

#include "kernels/common/cuda_text.h"

namespace aicf {

// `text` defines, after the includes it needs,
//
//   struct Epilogue {
//     using Acc = …;    // register type of the program's operand 0: float, double, int32_t, int64_t
//     using Tile = …;   // the same, or f16, bf16 if that is what the operand is rounded to
//     struct Row { … };  // element offsets of one row in every operand
//     // outer: flattened index over all axes of the domain but the last
//     __device__ Row row(int64_t outer) const;
//     // Elements col … col + V - 1 of the row exist and col % V == 0; 16-byte accesses where windows allow.
//     // A: Acc or Tile.
//     template <int V, class A> __device__ void apply(const Row& row, int64_t col, const A (&acc)[V]) const;
//     // The same in two steps, so that the other operands' elements can be asked for early: those that
//     // are the same for all rows, and the row's own.
//     template <int V> struct Shared;
//     template <int V> struct Own;
//     template <int V> __device__ void fetch(Shared<V>& to, int64_t col) const;
//     template <int V> __device__ void fetch(Own<V>& to, const Row& row, int64_t col) const;
//     template <int V, class A> __device__ void apply(const Row& row, int64_t col, const A (&acc)[V],
//                                                     const Shared<V>& shared, const Own<V>& own) const;
//     // Of a DualGemm every apply() has `const A (&acc1)[V]` behind acc.
//     static constexpr bool kSumsRows = …;  // Whether a result is a sum over all rows. Then, in place of
//     apply():
//     // Adds the elements of that result to `sums`.
//     template <int V, class A> __device__ void apply(const Row& row, int64_t col, const A (&acc)[V],
//                                                     const Shared<V>& shared, const Own<V>& own,
//                                                     float (&sums)[V]) const;
//     // Keeps part number `block` of V columns' sums, for sum_column() in tile_reduce.cuh: in the workspace,
//     // rows of as many values as the domain has columns.
//     template <int V> __device__ void store_sums(int block, int64_t col, const float (&sums)[V]) const;
//   };
//
// and `make` is an expression building it from a kernel's arguments in0…, out0…, workspace, p0….
struct CudaEpilogue {
  std::string text;
  std::string make;
};

// The rows of a table over the axes of a domain, as if every index were its own place; the indices over axes
// of so many.
CudaWindow rows_in_order(const CudaWindow& table, const CudaWindow& indices);
CudaWindow over_rows(CudaWindow indices, size_t rank);

// An operand of a program whose rows are those of a table, by an index for each row of the domain.
struct GatheredOperand {
  size_t input = 0;          // of the program
  size_t indices_input = 0;  // of the kernel
  CudaWindow indices;        // over the axes of the domain
  Dim size, stride;          // rows of the table, and how far they lie apart
};
// `text` defines a struct Updates with Index, Row and row(), Shared, Own and their fetch() as above, and
//
//     using Element = …;  // of the program's result
//     __device__ int64_t rows() const, columns() const;  // of the domain, that an update has
//     template <int V> __device__ Pack<Element, V> elements(const Shared<V>& shared, const Own<V>& own)
//     const;
//
// for the program of a pointwise region that makes the updates of a scatter: nothing is stored. Inputs of the
// program are problem.inputs from own_inputs on; of a gathered one the window is the table's row along the
// domain's last axes, of strides as if the domain's rows were the table's. The domain is outputs[0].sizes, of
// which an update has the last `update_rank` axes, at least one.
// `make` also needs `error` if something is gathered.
CudaEpilogue cuda_updates(const CudaProblem& problem, size_t own_inputs, size_t update_rank,
                          const std::vector<GatheredOperand>& gathered, CudaParams& params);

// The half type that the program rounds its accumulators, the first operands, to before anything else;
// nullopt: none.
std::optional<DType> epilogue_tile(const TileProgram& program, size_t accumulators = 1);
// The program's operand 0 is the accumulator, of a DualGemm operand 1 the other one; the others are
// problem.inputs from own_inputs on; its outputs are problem.outputs. Domain: outputs[0].sizes.
CudaEpilogue cuda_epilogue(const CudaProblem& problem, size_t own_inputs, CudaParams& params);

// The same for a program of several stages, whose rows are those of the results. Before the stages stands
//
//     using Kept = …;  // f16, bf16
//     // Stores what the first stage stores, if the row is `live`, and gives what later ones read of
//     // these columns.
//     template <int V, class A> __device__ void begin(
//         const Row& row, int64_t col, const A (&acc)[V], const Shared<V>& shared, const Own<V>& own,
//         tile::Vec<Kept, V>& kept, bool live) const;
//
// in place of apply(), and after it, over all of a thread's columns of kRows rows,
//
//     static constexpr int kReductions = …;
//     template <int V> struct LateShared;  // operands of these stages, with fetch() as above
//     template <int V, int kRows, int kAcross, class Group> __device__ void finish(const Group& group,
//         const Row (&rows)[kRows], int64_t col, const tile::Vec<Kept, V> (&kept)[kAcross][kRows],
//         const LateShared<V> (&late)[kAcross]) const;
//
// Group has kColumns, the distance of the thread's vectors of a row; has_row(i); leads(i), of one thread of
// each row; and reduce<Operation, number>(float (&)[kRows]) over all threads of each row.
CudaEpilogue cuda_row_epilogue(const CudaProblem& problem, size_t own_inputs, CudaParams& params);
// Whether the problem's program can be one: it has reductions, in f32, keeps a half value that all stages
// after the first start from, and reads no more of a result's own before than registers hold beside the
// results.
bool has_row_epilogue(const CudaProblem& problem, size_t own_inputs);
int row_reductions(const TileProgram& program);

}  // namespace aicf
