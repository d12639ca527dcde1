#include "kernels/tile/cuda/tile_stages.h"

#include <algorithm>

#include "kernels/tile/cuda/tile_columns_shape.h"
#include "kernels/tile/tile_info.h"

namespace aicf {
namespace {

bool uses_inner_index(const TileProgram& program) {
  for (const auto& stage : program.stages)
    for (const TileInstr& instr : stage)
      if (instr.op == TileOp::inner_index) return true;
  return false;
}

TileValues staged_values(const CudaProblem& problem, const TileSpace& space) {
  return tile_values(*problem.program, [&](int operand) {
    const std::vector<Dim>& strides = space.views[static_cast<size_t>(operand)].strides;
    return std::any_of(strides.begin() + static_cast<std::ptrdiff_t>(space.outer), strides.end(),
                       [](const Dim& s) { return !is_number(s, 0); });
  });
}

bool contains(const std::vector<int>& list, int id) {
  return std::find(list.begin(), list.end(), id) != list.end();
}

}  // namespace

TileSpace staged_space(const CudaProblem& problem) { return rows_space(problem, all_windows(problem)); }

TileSpace rows_space(const CudaProblem& problem, const std::vector<CudaWindow>& windows) {
  const auto inner = static_cast<size_t>(problem.params[0].require_constant("inner_rank"));
  const AxisOrder order = uses_inner_index(*problem.program) ? AxisOrder::kKept : AxisOrder::kFree;
  return tile_space(windows, inner, AxisOrder::kFree, order, ranges_of(problem));
}

StagedWriter::StagedWriter(const CudaProblem& problem, const TileSpace& space)
    : TileWriter(problem, space, staged_values(problem, space)), keeps_(values_.values.size()) {}

bool StagedWriter::reduction(int id) const { return is_tile_reduction(value(id).op); }

std::string StagedWriter::operation(int id) const {
  return "aicf::tile::" + std::string(tile_op_info(value(id).op).name) + "<" + value_type(id) + ">";
}

bool StagedWriter::revived(int stage, int id) const {
  return std::find(revived_.begin(), revived_.end(), std::pair(stage, id)) != revived_.end();
}

std::vector<size_t> StagedWriter::loaded_views(const std::vector<int>& ids) const {
  std::vector<size_t> views;
  for (int id : ids)
    if (value(id).op == TileOp::load) views.push_back(static_cast<size_t>(value(id).operand));
  return views;
}

StagedWriter::Stage StagedWriter::sinks_of(int number, std::vector<int>& sinks) const {
  Stage stage;
  for (int id = 0; id < static_cast<int>(values_.values.size()); ++id)
    if (reduction(id) && value(id).stage == number) {
      const TileMoments* moments = values_.moments_of(id);
      if (moments != nullptr && moments->squares == id) continue;
      if (moments != nullptr)
        stage.moments.push_back(*moments);
      else
        stage.reductions.push_back(id);
      sinks.push_back(value(id).args[0]);
    }
  for (TileStore store : values_.stores) {
    if (store.stage != number) continue;
    const DType memory = space_.views[static_cast<size_t>(store.operand)].dtype;
    if (!store.per_row && !store.sums) store.value = stored_value(values_, store, memory);
    (store.sums ? stage.sums : store.per_row ? stage.row_stores : stage.stores).push_back(store);
    sinks.push_back(store.value);
  }
  return stage;
}

void StagedWriter::plan_stages(bool kept, bool apart) {
  std::vector<bool> row_known(values_.values.size()), computed(values_.values.size());
  for (int s = 0; s < values_.stages; ++s) {
    std::vector<int> sinks;
    Stage stage = sinks_of(s, sinks);
    if (apart) row_known.assign(values_.values.size(), false);
    const auto known = [&](int id) {
      const auto at = static_cast<size_t>(id);
      if (reduction(id)) return true;
      return value(id).per_row ? bool(row_known[at]) : kept && computed[at] && value(id).op != TileOp::load;
    };
    for (int id : needed_values(values_, sinks, known)) {
      (value(id).per_row ? stage.row_values : stage.elements).push_back(id);
      if (value(id).per_row) row_known[static_cast<size_t>(id)] = true;
    }
    note_complete(stage, sinks);
    if (kept) mark_kept(stage, sinks, computed);
    for (int id : stage.elements) computed[static_cast<size_t>(id)] = true;
    stages_.push_back(std::move(stage));
  }
}

void StagedWriter::note_complete(Stage& stage, const std::vector<int>& sinks) const {
  std::vector<int> read = sinks;
  for (const auto* list : {&stage.row_values, &stage.elements})
    for (int id : *list)
      for (int arg : value(id).args)
        if (arg >= 0) read.push_back(arg);
  for (int id = 0; id < static_cast<int>(values_.values.size()); ++id)
    if (reduction(id) && contains(read, id) && values_.moments_of(id) == nullptr)
      stage.complete.push_back(id);
  for (const TileMoments& moments : values_.moments)
    if (contains(read, moments.sum) || contains(read, moments.squares))
      stage.complete_moments.push_back(moments);
}

// Values of earlier stages that this one reads.
void StagedWriter::mark_kept(Stage& stage, const std::vector<int>& sinks, const std::vector<bool>& computed) {
  std::vector<int> read = sinks;
  for (int id : stage.elements)
    for (int arg : value(id).args)
      if (arg >= 0) read.push_back(arg);
  for (int id : read) {
    if (contains(stage.elements, id) || value(id).per_row || !computed[static_cast<size_t>(id)]) continue;
    keeps_[static_cast<size_t>(id)] = true;
    stage.elements.insert(std::lower_bound(stage.elements.begin(), stage.elements.end(), id), id);
    revived_.push_back({static_cast<int>(stages_.size()), id});
  }
}

int StagedWriter::at_once(const Stage& stage, size_t axis, int vector, double elements) const {
  int bytes = 0;
  for (size_t view : loaded_views(stage.elements)) bytes += register_bytes(view, axis, vector);
  return vectors_at_once(bytes, elements);
}

int StagedWriter::pattern_of(size_t view) {
  const std::vector<Dim> outer(
      space_.views[view].strides.begin(),
      space_.views[view].strides.begin() + static_cast<std::ptrdiff_t>(space_.outer));
  if (std::all_of(outer.begin(), outer.end(), [](const Dim& s) { return is_number(s, 0); })) return -1;
  auto at = std::find(patterns_.begin(), patterns_.end(), outer);
  if (at == patterns_.end()) at = patterns_.insert(patterns_.end(), outer);
  return static_cast<int>(at - patterns_.begin());
}

std::string StagedWriter::partial_text(int id, const Dim& rows, int splits) {
  int before = 0;
  for (int other = 0; other < id; ++other) before += reduction(other);
  return "(reinterpret_cast<" + value_type(id) + "*>(reinterpret_cast<char*>(workspace) + " +
         params_.expr(rows * Dim(int64_t{before} * splits * 16)) + "))";
}

int64_t StagedWriter::reduction_count() const {
  int64_t count = 0;
  for (int id = 0; id < static_cast<int>(values_.values.size()); ++id) count += reduction(id);
  return count;
}

int StagedWriter::moments_bytes() const {
  int bytes = 0;
  for (const TileMoments& moments : values_.moments)
    bytes = std::max(bytes, tile_type_bytes(value(moments.sum).result));
  return bytes;
}

Dim StagedWriter::partial_bytes(const Dim& rows, int splits) const {
  return rows * Dim(reduction_count() * splits * 16);
}

}  // namespace aicf
