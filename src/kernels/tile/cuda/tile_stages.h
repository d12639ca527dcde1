// Kernels with values per row, stage by stage: what each stage computes per row and per element, and what is
// written where. Base of the row and column kernels.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "kernels/tile/cuda/tile_writer.h"

namespace aicf {

class StagedWriter : public TileWriter {
 protected:
  struct Stage {
    std::vector<int> row_values;  // computed once per row, before the elements
    std::vector<int> elements;    // per element, loads included
    std::vector<int> reductions;  // over the elements, but for those of moments
    std::vector<TileMoments> moments;
    std::vector<int> complete;  // reductions of earlier stages that this one reads
    std::vector<TileMoments> complete_moments;
    std::vector<TileStore> stores, row_stores, sums;

    bool walks() const { return !reductions.empty() || !moments.empty() || !stores.empty() || !sums.empty(); }
  };

  StagedWriter(const CudaProblem& problem, const TileSpace& space);

  // kept: elements computed in one stage are there in the next. apart: every stage is a launch of its own,
  // which computes what it needs per row again.
  void plan_stages(bool kept, bool apart);
  // Whether the stage takes the element value from where an earlier one put it; and whether a stage must put
  // it there.
  bool revived(int stage, int id) const;
  bool keeps(int id) const { return keeps_[static_cast<size_t>(id)]; }

  bool reduction(int id) const;
  int64_t reduction_count() const;
  // Bytes of the widest value of the moments; 0: there are none.
  int moments_bytes() const;
  // "aicf::tile::reduce_sum<float>"
  std::string operation(int id) const;
  std::vector<size_t> loaded_views(const std::vector<int>& ids) const;
  // Vectors of a walk over `elements` that a thread asks for before it computes with the first.
  int at_once(const Stage& stage, size_t axis, int vector, double elements) const;
  // Number of the distinct sum of outer strides of a view; -1: all are 0.
  int pattern_of(size_t view);
  // Address of the parts of a reduction in the workspace: rows × splits elements, 16 bytes set aside
  // for each. Moments have the places of both their sums: means and what these lack lie one behind the other
  // at the one, squares at the other.
  std::string partial_text(int id, const Dim& rows, int splits);
  Dim partial_bytes(const Dim& rows, int splits) const;

  std::vector<Stage> stages_;
  std::vector<std::vector<Dim>> patterns_;  // distinct outer strides

 private:
  void mark_kept(Stage& stage, const std::vector<int>& sinks, const std::vector<bool>& computed);
  Stage sinks_of(int number, std::vector<int>& sinks) const;
  void note_complete(Stage& stage, const std::vector<int>& sinks) const;

  std::vector<bool> keeps_;
  std::vector<std::pair<int, int>> revived_;
};

// The space of a problem with rows, and the same over other windows than the problem's alone.
TileSpace staged_space(const CudaProblem& problem);
TileSpace rows_space(const CudaProblem& problem, const std::vector<CudaWindow>& windows);

}  // namespace aicf
