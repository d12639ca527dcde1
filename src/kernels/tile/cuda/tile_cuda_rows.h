// Regions with values per row: a group of threads per row, vectors along the row. Short rows are loaded
// several at once. Rows that fit stay in registers from their one read to the last stage; longer ones stay in
// shared memory where there are many, else they are read again in every stage. Few long rows are split over
// blocks: every stage is a launch, which leaves partial results that the next one combines in order. Sums
// over the rows are taken along: a block goes through many rows and adds its columns up in registers; a
// second launch adds the blocks' sums in order. Blocks that go through many rows have the next ones brought
// into shared memory meanwhile (sm_90).
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/tile/cuda/tile_stages.h"

namespace aicf {

inline constexpr int kMaxKept = 32;          // elements of a row in one thread's registers
inline constexpr int kLongRowThreads = 512;  // of a row that is read again in every stage
inline constexpr int kSumThreads = 128;      // of a block that sums rows, or more: those of a row
inline constexpr int kAddAcross = 32;        // columns of a block that adds the blocks' sums

// The operand `view` is rows of a table of `size` rows, `stride` elements apart, which the last input of
// `kernel` numbers; the last view of the space is that input.
struct GatheredRows {
  const CudaProblem* kernel = nullptr;
  size_t view = 0;
  Dim size = {}, stride = {};
};

class RowsWriter : public StagedWriter {
 public:
  RowsWriter(const CudaProblem& problem, const TileSpace& space, const GatheredRows* gathered)
      : StagedWriter(problem, space), gathered_(gathered) {}

  CudaCode write();

 private:
  bool has_sums() const;
  // Blocks go through many rows each.
  bool walks_rows() const { return has_sums() || !fetched_.empty(); }
  std::vector<TileStore> sums() const;
  bool has_inner() const { return space_.rank() > space_.outer; }
  size_t axis() const { return space_.rank() - 1; }
  int block_rows() const { return threads_ / group_ * rows_at_once_; }
  bool guarded() const { return !has_sums() && block_rows() > 1 && !divisible(rows_, block_rows()); }
  bool one_inner_axis() const { return space_.rank() <= space_.outer + 1; }
  // Elements of a row that a block has where several share it; the last ones have fewer.
  Dim split_length() const { return ceildiv(length_, Dim(int64_t{splits_} * vector_)) * Dim(vector_); }

  // --- tile_cuda_rows.cc: how many threads, blocks and registers a row has
  void choose();
  // A warp per row, or a block.
  void choose_sums(int64_t vectors);
  // Of those that sum rows on a multiprocessor: all its registers.
  int sum_blocks() const { return std::max(1, 3 * kSumThreads / threads_); }

  // Of moments: numbers in shared memory for each, a block's threads being of one row (tile_moments.cuh);
  // bytes for all.
  static int64_t moments_room() { return int64_t{kLongRowThreads} / 2 * 4; }
  int64_t shared_moments_bytes() const;

  // Threads per row and vectors per thread.
  void choose_group(int64_t vectors, int64_t rows);
  // Where rows are many and short, fewer threads take more bytes each, of one row and then of several.
  void choose_rows_at_once(int64_t vectors, int64_t rows);
  // Bytes that a thread loads of one row.
  int64_t row_bytes() const;

  // A row in the registers of several blocks, which exchange sums through shared memory.
  void choose_cluster(int64_t vectors);
  CudaLaunch launch_of(size_t stage);

  // --- tile_cuda_rows_text.cc
  std::string row_offset(size_t view);
  // Of the vector that starts at column c, whose inner coordinates are b0….
  std::string offset_text(size_t view);
  std::string column_coordinates();

  // The whole program, or one stage of it.
  std::string body_text(size_t stage);
  std::string stages_text();
  // Loads of all rows of a thread, then the stages of each.
  std::string rows_at_once_text();

  // Row number, columns [begin, length) and the rows' offsets.
  std::string row_text(size_t stage);
  std::string place_text(const std::string& place);
  std::string row_offsets_text();
  // Where the row of the table begins.
  std::string gathered_text();

  // --- tile_cuda_rows_prefetch.cc: walks over many rows
  // Which operands of a long row are fetched ahead: all that several stages read. False: they do not fit.
  bool choose_fetched_rows();
  // Of the rows that a block sums: all that it reads.
  void choose_fetched_sums();
  bool fetchable(size_t view) const;
  bool fetched(size_t view) const;
  // Of one row: the operand's, and where they lie among those of all.
  int64_t fetched_bytes(size_t view) const;
  int64_t fetched_from(size_t view) const;
  int64_t fetched_row_bytes() const;
  int64_t walk_blocks() const;
  std::string walk_rows_text();
  std::string prefetch_text() const;
  std::string fetch_text();
  // Operands with one value for a row, asked for before the wait for those that were fetched.
  std::string row_loads_text();

  // --- tile_cuda_row_sums.cc
  // A row of sums that a block leaves in the workspace, by number of the sum.
  std::string sum_name(const TileStore& store) const { return "t" + std::to_string(store.operand); }
  std::string partial_sums(size_t number);

  // The sums of a block's rows: those of the warps in order.
  std::string sums_text();

  // The launch that adds the blocks' sums: 32 columns of one sum to a block.
  CudaLaunch adding_launch(const CudaLaunch& first) const;
  Dim adding_groups() const { return ceildiv(length_, Dim(kAddAcross)); }
  std::string adding_text();

  // Begins a walk over the thread's vectors: c is the first column, and what lies inside runs for c < length.
  std::string walk_text() const;
  static std::string walk_end() { return "}\n}\n"; }
  std::string left() const { return tail_ ? "length - c" : ""; }
  // Elements of the vector that exist.
  std::string vector_count() const {
    return tail_ ? "(length - c < kVector ? int(length - c) : kVector)" : "kVector";
  }
  std::string array_text(size_t view) const { return TileWriter::array_text(view, axis(), vector_); }

  // Operands that a stage is the first to read.
  std::vector<size_t> first_reads(size_t stage) const;

  // Constant operands that all rows share, such as a norm's scale: read before the wait for the launch
  // before, so that only the rows themselves are waited for.
  std::vector<size_t> early_reads();
  // In a thread's registers.
  int64_t view_bytes(size_t view) const;
  // Of a stage, without the early ones.
  std::vector<size_t> late_reads(size_t stage);

  // Everything is loaded at once if that takes few registers, else when a stage reads it first.
  bool loads_ahead();
  std::string loads_text(const std::vector<size_t>& views);
  std::string walk_loads_text(const std::vector<size_t>& views);
  std::string stage_text(int number);
  // An operand with one value for a row.
  std::string row_load_text(int id);
  std::string row_element(int id);
  std::string elements_text(int number, const Stage& stage);

  // Of the vectors that a stage reads, the shifted ones as they are without: z and the view's number.
  std::string shifted_text(const Stage& stage) const;
  // Loads the vector `x` from memory, or from where it was fetched to.
  std::string vector_text(size_t view, const std::string& x);
  std::string element_text(int number, int id);
  std::string tile_expression_of(int number, int id, const TileValue& v) const;
  // Of a softmax, computed once more, after their sum, for results of half types alone.
  bool powers_for_halves(int number, const TileValue& v) const;
  std::string reduce_group(int id, const std::string& own);
  // Whether bits depend on the order, which is then that of the elements' numbers (tile_reduce.cuh): sums and
  // products of floats, where a row stays in the registers of a block or less.
  bool in_order(int id) const;
  std::string finish_reduction(int id);
  std::string finish_moments(const TileMoments& moments);
  // Over the threads of the row, from the parts that they have.
  std::string reduce_moments(const TileMoments& moments);
  std::string complete_moments_text(const TileMoments& moments);
  // Where part `split` of a number of the moments lies.
  std::string moments_part(const TileMoments& moments, const std::string& number, const std::string& split);

  // The result of a reduction of an earlier launch from its parts.
  std::string complete_text(int id);

  const GatheredRows* gathered_;  // null: none
  Dim rows_, length_;
  int vector_ = 1, items_ = 1, group_ = 1, threads_ = 128, splits_ = 1, cluster_ = 1;
  int rows_at_once_ = 1;         // of a group of threads, one behind the other
  std::vector<size_t> fetched_;  // operands whose rows are fetched into shared memory
  int prefetch_ = 0;             // rows that are there or on their way
  bool tail_ = false;            // the length is no multiple of the vector
  bool kept_ = true;             // elements stay in registers
  bool whole_ = false;           // every thread has all its vectors in every row
};

}  // namespace aicf
