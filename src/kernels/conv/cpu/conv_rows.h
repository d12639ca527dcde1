// The left operand of packed convolutions: rows are output positions of one tile, and k runs over (kernel
// positions in row-major order, input channel). A row is not copied where its steps lie in memory in order:
// it is a list of segments, one for each line of the kernel that the block of k meets, or one for each kernel
// position where positions of a line are no neighbours or partly in the padding. Where such segments would be
// short, rows are copied.
#pragma once

#include "kernels/conv/cpu/conv_plan.h"
#include "kernels/conv/cpu/conv_store.h"
#include "kernels/matmul/cpu/gemm_types.h"

namespace aicf {

class ConvRows {
 public:
  static int64_t scratch_bytes(const ConvPlan& plan);
  // `x` is the image and group that the tile reads.
  ConvRows(const ConvPlan& plan, const ConvTile& tile, const float* x, std::byte* scratch);
  // find() gives steps [k, k + depth) from now on.
  void set_steps(int64_t k, int64_t depth);
  // Sets rows, lengths and segments of the block for its m rows, at most kGemmRows, from row `first` of the
  // tile on; they hold until the next call.
  void find(int64_t first, GemmBlock<float>& block) const;

 private:
  // First input position under the window of an output position.
  struct Corner {
    int64_t at[kSpatialAxes];
    int64_t offset;  // elements of x; may lie outside
    bool inside;     // the whole window lies in the input
    bool across;     // it does along the last axis
  };
  // A kernel position: distances from the corner, in positions and in elements of x.
  struct Tap {
    int64_t index[kSpatialAxes], at[kSpatialAxes], offset;
  };
  struct Segment {
    Tap tap;
    int64_t skipped;  // elements after the tap's first
    int64_t offset;   // of its first step, from the corner's
  };
  struct Segments {
    Segment* list;
    int64_t* lengths;
    int64_t count;
  };
  struct Scratch {
    Corner* corners;      // of the tile's rows
    float* zeros;         // what padding reads: kGemmDepth zeros
    float* copies;        // kGemmRows rows of kGemmDepth steps
    const float** rows;   // kGemmDepth × kGemmRows
    int64_t* lengths[2];  // kGemmDepth each: of lines, of positions
    Segment* segments[2];
    std::byte* end;
  };

  static Scratch scratch_of(const ConvPlan& plan, std::byte* at);
  void find_corners(const ConvTile& tile);
  Tap tap_at(int64_t position) const;
  void advance(Tap& tap, int64_t positions) const;
  void set_distances(Tap& tap) const;
  const float* under(const Corner& corner, const Tap& tap) const;
  Segments split(int64_t positions, int part) const;
  void point_row(const Corner& corner, const Segments& segments, int64_t row) const;
  void point_to_copy(const Corner& corner, const Segments& segments, int64_t row) const;
  void copy_row(const Corner& corner, float* to) const;
  void copy_line(const Corner& corner, const Tap& tap, float* to) const;

  const ConvPlan& plan_;
  const float* x_;
  Scratch scratch_;
  bool lines_;           // a line's steps are neighbours in x
  bool positions_;       // those of a position are, and many
  bool border_ = false;  // some row's window is not inside along the last axis
  int64_t k_ = 0, depth_ = 0;
  Segments line_segments_ = {}, position_segments_ = {};
};

}  // namespace aicf
