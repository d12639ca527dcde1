// Regions with values per row: a group of threads per row, vectors along the row. Rows that fit stay in
// registers from their one read to the last stage; longer ones are read again in every stage.
#include <algorithm>

#include "base/error.h"
#include "kernels/tile/tile_info.h"
#include "kernels/tile/tile_writer.h"

namespace aicf {
namespace {

constexpr int kMaxKept = 64;  // elements of a row in one thread's registers

bool uses_inner_index(const TileProgram& program) {
  for (const auto& stage : program.stages)
    for (const TileInstr& instr : stage)
      if (instr.op == TileOp::inner_index) return true;
  return false;
}

TileSpace rows_space(const CudaProblem& problem) {
  const auto inner = static_cast<size_t>(problem.params[0].require_constant("inner_rank"));
  return tile_space(all_windows(problem), inner, AxisOrder::kFree,
                    uses_inner_index(*problem.program) ? AxisOrder::kKept : AxisOrder::kFree,
                    ranges_of(problem));
}

TileValues rows_values(const CudaProblem& problem, const TileSpace& space) {
  return tile_values(*problem.program, [&](int operand) {
    const std::vector<Dim>& strides = space.views[static_cast<size_t>(operand)].strides;
    return std::any_of(strides.begin() + static_cast<std::ptrdiff_t>(space.outer), strides.end(),
                       [](const Dim& s) { return !is_number(s, 0); });
  });
}

class RowsWriter : public TileWriter {
 public:
  explicit RowsWriter(const CudaProblem& problem, const TileSpace& space)
      : TileWriter(problem, space, rows_values(problem, space)) {}

  CudaCode write() {
    choose();
    plan_stages();
    const std::string body = body_text();
    CudaLaunch launch;
    launch.function = "tile_rows" + tile_program_name(values_);
    launch.block = threads_;
    launch.grid[0] = ceildiv(rows_, Dim(threads_ / group_));
    launch.params = params_.dims();
    CudaCode code;
    code.source = kTileIncludes + cuda_kernel_head(problem_, launch, false) + body + "}\n";
    code.launches = {launch};
    return code;
  }

 private:
  bool has_inner() const { return space_.rank() > space_.outer; }
  size_t axis() const { return space_.rank() - 1; }
  bool guarded() const { return group_ < threads_ && !divisible(rows_, threads_ / group_); }

  void choose() {
    rows_ = space_count(space_, 0, space_.outer);
    length_ = space_count(space_, space_.outer, space_.rank());
    vector_ = has_inner() ? vector_width(axis()) : 1;
    const bool flat = space_.rank() <= space_.outer + 1;
    while (vector_ > 1 && (bound(length_) < vector_ || (!flat && !divisible(space_.sizes[axis()], vector_))))
      vector_ /= 2;
    tail_ = !divisible(length_, vector_);
    const int64_t vectors = bound(length_) / vector_ + (tail_ || bound(length_) % vector_ != 0);
    choose_group(std::max<int64_t>(vectors, 1));
  }

  // Threads per row and vectors per thread.
  void choose_group(int64_t vectors) {
    const int most = std::max(1, 32 / vector_);
    kept_ = vectors * vector_ <= int64_t{1024} * kMaxKept;
    if (vectors <= 32 * most) {
      double best = 0;
      for (int group = 32; group >= 1; group /= 2) {
        const int64_t items = (vectors + group - 1) / group;
        const double used = static_cast<double>(vectors) / static_cast<double>(items * group);
        if (items > most || used < best + 0.15) continue;
        best = used, group_ = group, items_ = static_cast<int>(items);
      }
      threads_ = std::max(group_, bound(rows_) * group_ < 132 * 128 * 2 ? 64 : 128);
    } else {
      int64_t items = 2;
      while (vectors > items * 512 && items * vector_ < 32) items *= 2;
      while (vectors > items * 1024 && items * vector_ < kMaxKept) items *= 2;
      group_ = static_cast<int>(std::min<int64_t>(1024, ((vectors + items - 1) / items + 31) / 32 * 32));
      items_ = static_cast<int>((vectors + group_ - 1) / group_);
      if (!kept_) group_ = 512, items_ = 1;
      threads_ = group_;
    }
    whole_ = kept_ && length_.constant() && !tail_ && vectors == int64_t{items_} * group_;
  }

  struct Stage {
    std::vector<int> row_values;  // computed once per row, before the elements
    std::vector<int> elements;    // per element, loads included
    std::vector<int> reductions;
    std::vector<TileStore> stores, row_stores;
  };

  bool reduction(int id) const { return is_tile_reduction(value(id).op); }

  void plan_stages() {
    std::vector<bool> row_known(values_.values.size()), computed(values_.values.size());
    keeps_.assign(values_.values.size(), false);
    for (int s = 0; s < values_.stages; ++s) {
      Stage stage;
      std::vector<int> sinks;
      for (size_t i = 0; i < values_.values.size(); ++i)
        if (reduction(static_cast<int>(i)) && value(static_cast<int>(i)).stage == s) {
          stage.reductions.push_back(static_cast<int>(i));
          sinks.push_back(value(static_cast<int>(i)).args[0]);
        }
      for (TileStore store : values_.stores) {
        if (store.stage != s) continue;
        if (!store.per_row)
          store.value = stored_value(values_, store, space_.views[static_cast<size_t>(store.operand)].dtype);
        (store.per_row ? stage.row_stores : stage.stores).push_back(store);
        sinks.push_back(store.value);
      }
      const auto known = [&](int id) {
        if (reduction(id)) return true;
        return value(id).per_row ? bool(row_known[static_cast<size_t>(id)])
                                 : kept_ && computed[static_cast<size_t>(id)] && value(id).op != TileOp::load;
      };
      for (int id : needed_values(values_, sinks, known)) {
        if (value(id).per_row) {
          stage.row_values.push_back(id);
          row_known[static_cast<size_t>(id)] = true;
        } else {
          stage.elements.push_back(id);
        }
      }
      mark_kept(stage, sinks, computed);
      for (int id : stage.elements) computed[static_cast<size_t>(id)] = true;
      stages_.push_back(std::move(stage));
    }
  }

  // Values of earlier stages that this one reads.
  void mark_kept(Stage& stage, const std::vector<int>& sinks, const std::vector<bool>& computed) {
    std::vector<int> read = sinks;
    for (int id : stage.elements)
      for (int arg : value(id).args)
        if (arg >= 0) read.push_back(arg);
    for (int id : read) {
      const bool listed = std::find(stage.elements.begin(), stage.elements.end(), id) != stage.elements.end();
      if (!listed && !value(id).per_row && computed[static_cast<size_t>(id)]) {
        keeps_[static_cast<size_t>(id)] = true;
        stage.elements.insert(std::lower_bound(stage.elements.begin(), stage.elements.end(), id), id);
        revived_.push_back({static_cast<int>(stages_.size()), id});
      }
    }
  }
  bool revived(int stage, int id) const {
    return std::find(revived_.begin(), revived_.end(), std::pair(stage, id)) != revived_.end();
  }

  int offset_of(size_t view) {
    const std::vector<Dim> outer(
        space_.views[view].strides.begin(),
        space_.views[view].strides.begin() + static_cast<std::ptrdiff_t>(space_.outer));
    if (std::all_of(outer.begin(), outer.end(), [](const Dim& s) { return is_number(s, 0); })) return -1;
    auto at = std::find(patterns_.begin(), patterns_.end(), outer);
    if (at == patterns_.end()) at = patterns_.insert(patterns_.end(), outer);
    return static_cast<int>(at - patterns_.begin());
  }
  std::string row_offset(size_t view) {
    const int number = offset_of(view);
    return number < 0 ? "0" : "o" + std::to_string(number);
  }
  // Of the vector that starts at column c, whose inner coordinates are b0….
  std::string offset_text(size_t view) {
    const bool flat = space_.rank() <= space_.outer + 1;
    std::vector<std::string> names;
    for (size_t i = space_.outer; i < space_.rank(); ++i)
      names.push_back(flat ? "c" : "b" + std::to_string(i - space_.outer));
    const std::string inner = offsets_.sum(space_.views[view], space_.outer, space_.rank(), names);
    const std::string row = row_offset(view);
    return row == "0" ? inner : inner == "0" ? row : row + " + " + inner;
  }
  std::string column_coordinates() {
    if (space_.rank() <= space_.outer + 1) return "";
    const Shape inner(space_.sizes.begin() + static_cast<std::ptrdiff_t>(space_.outer), space_.sizes.end());
    return "Size j = Size(c);\n" + offsets_.split("j", inner, "b");
  }

  std::string body_text() {
    for (size_t i = 0; i < space_.views.size(); ++i) offset_of(i);
    std::string text = tile_index_types(space_) + "constexpr int kVector = " + std::to_string(vector_) +
                       ", kItems = " + std::to_string(items_) + ", kGroup = " + std::to_string(group_) +
                       ";\n";
    text += "const int lane = threadIdx.x % kGroup;\n";
    text += row_text();
    text += "aicf::wait_for_inputs();\naicf::launch_dependents();\n";
    if (kept_) text += loads_text();
    for (size_t s = 0; s < stages_.size(); ++s) text += stage_text(static_cast<int>(s));
    return text;
  }

  // Row number, length and the rows' offsets.
  std::string row_text() {
    const std::string length = offsets_.number(length_);
    std::string text;
    if (guarded()) {
      text += "const Size place = Size(blockIdx.x) * " + std::to_string(threads_ / group_) +
              " + threadIdx.x / kGroup;\nconst bool live = place < Size(" + offsets_.number(rows_) +
              ");\nSize row = live ? place : 0;\nconst Index length = live ? " + length + " : 0;\n";
    } else {
      text += group_ < threads_ ? "Size row = Size(blockIdx.x) * " + std::to_string(threads_ / group_) +
                                      " + threadIdx.x / kGroup;\n"
                                : "Size row = blockIdx.x;\n";
      text += "const Index length = " + length + ";\n";
    }
    const Shape outer(space_.sizes.begin(), space_.sizes.begin() + static_cast<std::ptrdiff_t>(space_.outer));
    text += offsets_.split("row", outer, "a");
    std::vector<std::string> names;
    for (size_t i = 0; i < space_.outer; ++i) names.push_back("a" + std::to_string(i));
    for (size_t i = 0; i < patterns_.size(); ++i) {
      std::vector<Dim> strides = patterns_[i];
      text += "const Index o" + std::to_string(i) + " = " +
              offsets_.sum(TileView{DType::f32, Dim(0), strides}, 0, space_.outer, names) + ";\n";
    }
    return text;
  }

  // Begins a walk over the thread's vectors: c is the first column, and what lies inside runs for c < length.
  std::string walk_text() const {
    if (!kept_) return "for (Index c = Index(lane) * kVector; c < length; c += kGroup * kVector) {\n";
    std::string text =
        "#pragma unroll\nfor (int k = 0; k < kItems; ++k) {\nconst Index c = (Index(k) * kGroup + lane) * "
        "kVector;\n";
    return text + (whole_ && !guarded() ? "{\n" : "if (c < length) {\n");
  }
  std::string walk_end() const { return kept_ ? "}\n}\n" : "}\n"; }
  std::string left() const { return tail_ ? "length - c" : ""; }
  std::string index() const { return kept_ ? "[k]" : ""; }

  std::string array_text(size_t view) const {
    return "aicf::tile::Vec<" + memory_type(view) + ", " + std::to_string(lanes(view, axis(), vector_)) +
           "> x" + std::to_string(view);
  }

  std::vector<size_t> loaded_views(const std::vector<int>& ids) const {
    std::vector<size_t> views;
    for (int id : ids)
      if (value(id).op == TileOp::load) views.push_back(static_cast<size_t>(value(id).operand));
    return views;
  }

  // Every element that any stage reads, at once.
  std::string loads_text() {
    std::vector<size_t> views;
    for (const Stage& stage : stages_)
      for (size_t view : loaded_views(stage.elements))
        if (std::find(views.begin(), views.end(), view) == views.end()) views.push_back(view);
    if (views.empty()) return "";
    std::string text, loads;
    for (size_t view : views) {
      text += array_text(view) + "[kItems];\n";
      loads += load_text(view, axis(), "x" + std::to_string(view) + "[k]", offset_text(view), left());
    }
    return text + walk_text() + column_coordinates() + loads + walk_end();
  }

  std::string stage_text(int number) {
    const Stage& stage = stages_[static_cast<size_t>(number)];
    std::string text;
    for (int id : stage.row_values) {
      const TileValue& v = value(id);
      const auto view = static_cast<size_t>(v.operand);
      const std::string from =
          v.op == TileOp::load
              ? tile_loaded(space_.views[view].dtype, operand(view) + "[" + row_offset(view) + "]")
              : tile_expression(values_, id);
      text += tile_definition(values_, id, from);
    }
    if (!stage.reductions.empty() || !stage.stores.empty()) text += elements_text(number, stage);
    for (int id : stage.reductions) text += finish_reduction(id);
    for (const TileStore& store : stage.row_stores) {
      const auto view = static_cast<size_t>(store.operand);
      text += "if (lane == 0" + std::string(guarded() ? " && live" : "") + ") " + operand(view) + "[" +
              row_offset(view) + "] = aicf::tile::narrowed<" + memory_type(view) + ">(" +
              tile_reference(values_, store.value) + ");\n";
    }
    return text;
  }

  std::string operation(int id) const {
    return "aicf::tile::" + std::string(tile_op_info(value(id).op).name) + "<" + value_type(id) + ">";
  }

  std::string elements_text(int number, const Stage& stage) {
    std::string before, inside = column_coordinates(), body, after;
    for (int id : stage.elements)
      if (kept_ && keeps_[static_cast<size_t>(id)] && !revived(number, id))
        before += value_type(id) + " h" + std::to_string(id) + "[kItems][kVector];\n";
    for (int id : stage.reductions) {
      const std::string r = "r" + std::to_string(id);
      before += value_type(id) + " " + r + "[kVector];\n#pragma unroll\nfor (int v = 0; v < kVector; ++v) " +
                r + "[v] = " + operation(id) + "::neutral();\n";
    }
    if (!kept_)
      for (size_t view : loaded_views(stage.elements))
        inside += array_text(view) + ";\n" +
                  load_text(view, axis(), "x" + std::to_string(view), offset_text(view), left());
    for (int id : stage.elements) body += element_text(number, id);
    for (int id : stage.reductions) {
      const std::string r = "r" + std::to_string(id) + "[v]";
      body += (tail_ ? "if (c + v < length) " : "") + r + " = " + operation(id) + "::apply(" + r + ", " +
              tile_reference(values_, value(id).args[0]) + ");\n";
    }
    for (const TileStore& store : stage.stores) {
      const auto view = static_cast<size_t>(store.operand);
      const std::string y = "y" + std::to_string(view - input_count());
      inside += std::string(tile_cuda_type(store.type)) + " " + y + "[kVector];\n";
      body += y + "[v] = " + tile_reference(values_, store.value) + ";\n";
      after += store_text(view, axis(), y, offset_text(view), left());
    }
    return before + walk_text() + inside + "#pragma unroll\nfor (int v = 0; v < kVector; ++v) {\n" + body +
           "}\n" + after + walk_end();
  }

  std::string element_text(int number, int id) {
    const TileValue& v = value(id);
    const std::string kept = "h" + std::to_string(id) + "[k][v]";
    if (revived(number, id)) return tile_definition(values_, id, kept);
    std::string text;
    if (v.op == TileOp::load) {
      const auto view = static_cast<size_t>(v.operand);
      const std::string at = access(view, axis()) == Access::kRepeat ? ".at[0]" : ".at[v]";
      text = tile_definition(
          values_, id, tile_loaded(space_.views[view].dtype, "x" + std::to_string(view) + index() + at));
    } else if (v.op == TileOp::inner_index) {
      text = tile_definition(values_, id, value_type(id) + "(c + v)");
    } else {
      text = tile_definition(values_, id, tile_expression(values_, id));
    }
    return kept_ && keeps_[static_cast<size_t>(id)] ? text + kept + " = v" + std::to_string(id) + ";\n"
                                                    : text;
  }

  std::string finish_reduction(int id) {
    const std::string number = std::to_string(id), type = value_type(id);
    const std::string own = "aicf::tile::combine<" + operation(id) + ">(r" + number + ")";
    if (group_ <= 32)
      return tile_definition(values_, id,
                             "aicf::tile::reduce_lanes<" + operation(id) + ", kGroup>(" + own + ")");
    return "__shared__ " + type + " s" + number + "[32];\n" +
           tile_definition(
               values_, id,
               "aicf::tile::reduce_block<" + operation(id) + ", kGroup>(" + own + ", s" + number + ")");
  }

  Dim rows_, length_;
  int vector_ = 1, items_ = 1, group_ = 1, threads_ = 128;
  bool tail_ = false;   // the length is no multiple of the vector
  bool kept_ = true;    // elements stay in registers
  bool whole_ = false;  // every thread has all its vectors in every row
  std::vector<Stage> stages_;
  std::vector<bool> keeps_;                   // values held from stage to stage
  std::vector<std::pair<int, int>> revived_;  // (stage, value): read from where an earlier stage put it
  std::vector<std::vector<Dim>> patterns_;    // distinct outer strides
};

}  // namespace

CudaCode generate_tile_rows(const CudaProblem& problem) {
  return RowsWriter(problem, rows_space(problem)).write();
}

}  // namespace aicf
