// Pointwise regions of which operands are elements of tables, each by an index of its own: as
// generate_tile_flat, but a thread takes neighbours along an axis on which all indices repeat (the channels
// of sampled images), so that it reads and checks every index once.
#include <algorithm>

#include "base/error.h"
#include "kernels/common/cuda_walk.h"
#include "kernels/tile/cuda/tile_writer.h"

namespace aicf {
namespace {

constexpr int kItemBytes = 128;  // that a thread asks for at once: a quarter of its registers
constexpr int kMostItems = 8;    // then indices cost little beside them

// An input whose last axis the indices of another one number. Of its view the last stride is that axis's.
struct IndexedTable {
  size_t view, indices;
  Dim size;
};

// Elements between the first and the last that indices may name.
Dim reach(const CudaWindow& table) { return table.sizes.back() * table.strides.back(); }

class IndexedWriter : public TileWriter {
 public:
  IndexedWriter(const CudaProblem& problem, const TileSpace& space, std::vector<IndexedTable> tables)
      : TileWriter(problem, space, tile_values(*problem.program, [](int) { return true; })),
        tables_(std::move(tables)) {}

  CudaCode write() {
    choose();
    const std::string body = body_text();
    CudaLaunch launch;
    launch.function = "tile_indexed" + tile_program_name(values_);
    launch.block = threads_;
    launch.grid[0] = ceildiv(count_, Dim(threads_));
    launch.params = params_.dims();
    launch.reports_errors = true;
    CudaCode code;
    code.source = kTileIncludes + includes({"indexing/walk.cuh"}) +
                  cuda_kernel_head(problem_, launch, false) + body + "}\n";
    code.launches = {launch};
    code.member = is_member(problem_);
    return code;
  }

 private:
  size_t own_inputs() const { return problem_.program->inputs.size(); }
  const IndexedTable* table_of(size_t view) const {
    const auto at = std::find_if(tables_.begin(), tables_.end(),
                                 [&](const IndexedTable& table) { return table.view == view; });
    return at == tables_.end() ? nullptr : &*at;
  }
  // Whether a vector has one element of the input.
  bool is_single(size_t view) const {
    const IndexedTable* table = table_of(view);
    return one_element(view, axis_) && (table == nullptr || one_element(table->indices, axis_));
  }
  // Whether all items of a thread have the same elements of the input.
  bool repeats(size_t view) const {
    return !has_items() || is_number(space_.views[view].strides[item_axis_], 0);
  }
  bool has_items() const { return item_axis_ < space_.rank(); }

  void choose() {
    const size_t rank = space_.rank();
    axis_ = rank - 1;  // wraps for rank 0: no axis
    vector_ = rank == 0 ? 1 : store_width(axis_);
    const Dim length = rank == 0 ? Dim(1) : space_.sizes[axis_];
    while (vector_ > 1 && (bound(length) < vector_ || (rank > 1 && !divisible(length, vector_))))
      vector_ /= 2;
    choose_items();
    tail_ = !divisible(length, vector_);
    sizes_ = space_.sizes;
    if (has_items()) sizes_[item_axis_] = ceildiv(sizes_[item_axis_], Dim(items_));
    if (rank > 0)
      sizes_[axis_] = tail_ ? ceildiv(length, Dim(vector_)) : *divide_exactly(length, Dim(vector_));
    count_ = element_count(sizes_);
    threads_ = bound(count_) < filling() ? 128 : 256;
  }

  // Threads that fill the device.
  int64_t filling() const { return 2048 * problem_.machine.multiprocessors; }

  // The longest axis on which all indices repeat, and some of its positions as long as the threads fill the
  // device; they are asked for as many at once as registers hold.
  void choose_items() {
    const size_t rank = space_.rank();
    item_axis_ = rank;
    for (size_t axis = 0; axis + 1 < rank; ++axis) {
      const bool all = std::all_of(tables_.begin(), tables_.end(), [&](const IndexedTable& table) {
        return is_number(space_.views[table.indices].strides[axis], 0);
      });
      if (all && (!has_items() || bound(space_.sizes[axis]) > bound(space_.sizes[item_axis_])))
        item_axis_ = axis;
    }
    items_ = at_once_ = 1;
    if (!has_items()) return;
    const int64_t most = std::min<int64_t>(kMostItems, bound(space_.sizes[item_axis_]));
    const int64_t vectors = bound(space_count(space_, 0, rank)) / vector_;
    while (2 * items_ <= most && vectors / (2 * items_) >= 2 * filling()) items_ *= 2;
    // Elements that have indices of their own come one at a time however many are neighbours. Then as many
    // threads with more items, and fewer neighbours each, read and check fewer indices.
    const bool lanes = std::any_of(tables_.begin(), tables_.end(),
                                   [&](const IndexedTable& table) { return is_lane(table); });
    for (; lanes && vector_ > 1 && 2 * items_ <= most; vector_ /= 2) items_ *= 2;
    int loaded = 0;  // bytes of an item
    for (size_t i = 0; i < own_inputs(); ++i)
      if (!repeats(i)) loaded += (is_single(i) ? 1 : vector_) * dtype_bytes(space_.views[i].dtype);
    while (2 * at_once_ <= items_ && 2 * at_once_ * loaded <= kItemBytes) at_once_ *= 2;
  }

  // ---- offsets: o0… of the first item, of views that differ in their strides

  size_t offset_of(size_t view) {
    const std::vector<Dim>& strides = space_.views[view].strides;
    auto at = std::find(patterns_.begin(), patterns_.end(), strides);
    if (at == patterns_.end()) at = patterns_.insert(patterns_.end(), strides);
    return static_cast<size_t>(at - patterns_.begin());
  }
  std::string offset_text(size_t view) {
    std::string text = "o" + std::to_string(offset_of(view));
    if (!repeats(view)) text += " + n * " + offsets_.number(space_.views[view].strides[item_axis_]);
    return text;
  }
  std::string left() const { return tail_ ? "left" : ""; }

  // ---- text

  std::string body_text() {
    for (size_t i = 0; i < space_.views.size(); ++i) offset_of(i);
    const std::string indices = indices_text();
    std::string shared, own, declared;
    for (size_t i = 0; i < own_inputs(); ++i) {
      (repeats(i) ? shared : declared) += vector_text(i, repeats(i) ? "" : "[kAtOnce]");
      (repeats(i) ? shared : own) += input_text(i);
    }
    std::string text =
        tile_index_types(space_) + "constexpr int kVector = " + std::to_string(vector_) +
        ", kItems = " + std::to_string(items_) + ", kAtOnce = " + std::to_string(at_once_) +
        ";\nconst Size count = " + offsets_.number(count_) + ";\nSize i = Size(block_index) * " +
        std::to_string(threads_) + " + threadIdx.x;\n" + cuda_wait_text(problem_) +
        "if (i >= count) return;\n" + coordinates() + indices + shared +
        "#pragma unroll 1\nfor (Index first = 0; first < kItems; first += kAtOnce) {\n" + declared;
    if (!own.empty()) text += for_items(own);
    return text + for_items(element_text()) + "}\n";
  }

  std::string for_items(const std::string& statements) {
    const std::string inside =
        !has_items() || divisible(space_.sizes[item_axis_], items_)
            ? ""
            : "if (item + n >= " + offsets_.number(space_.sizes[item_axis_]) + ") break;\n";
    return "#pragma unroll\nfor (int k = 0; k < kAtOnce; ++k) {\nconst Index n = first + k;\n" + inside +
           statements + "}\n";
  }

  std::string coordinates() {
    std::vector<std::string> names;
    for (size_t axis = 0; axis < space_.rank(); ++axis)
      names.push_back(axis == axis_ ? "c" : axis == item_axis_ ? "item" : "a" + std::to_string(axis));
    std::string text;
    if (space_.rank() > 0)
      text = offsets_.split("i", sizes_, "a") + "const Index c = a" + std::to_string(axis_) + " * kVector;\n";
    if (has_items()) text += "const Index item = a" + std::to_string(item_axis_) + " * kItems;\n";
    if (tail_) text += "const Index left = " + offsets_.number(space_.sizes[axis_]) + " - c;\n";
    for (size_t i = 0; i < patterns_.size(); ++i)
      text += "const Index o" + std::to_string(i) + " = " +
              offsets_.sum(TileView{DType::f32, Dim(0), {}, patterns_[i]}, 0, space_.rank(), names) + ";\n";
    return text;
  }

  std::string vector_text(size_t view, const std::string& items) const {
    return "aicf::tile::Vec<" + memory_type(view) + ", " + (is_single(view) ? "1" : "kVector") + "> x" +
           std::to_string(view) + items + ";\n";
  }

  // Where the elements of each table lie: all indices are asked for first. Where one is outside it is
  // reported, and the thread stores nothing.
  std::string indices_text() {
    std::string loads, places, reports;
    for (size_t i = own_inputs(); i < input_count(); ++i)
      loads += vector_text(i, "") + load_text(i, axis_, "x" + std::to_string(i), offset_text(i), left());
    for (const IndexedTable& table : tables_) {
      const std::string at = "at" + std::to_string(table.view), lanes = is_lane(table) ? "kVector" : "1",
                        all = "#pragma unroll\nfor (int v = 0; v < " + lanes + "; ++v) {\n",
                        index = "x" + std::to_string(table.indices) + ".at[v]",
                        size = params_.expr(table.size);
      places += "Index " + at + "[" + lanes + "];\n" + all + "const int64_t p = " + index +
                ";\nfound = found && p >= -" + size + " && p < " + size + ";\n" + at +
                "[v] = Index(p < 0 ? p + " + size + " : p) * " +
                offsets_.number(space_.views[table.view].strides.back()) + ";\n}\n";
      reports += all + "aicf::resolve_index(" + index + ", " + size + ", error);\n}\n";
    }
    return loads + "bool found = true;\n" + places + "if (!found) {\n" + reports + "return;\n}\n";
  }

  // Whether elements of a vector have indices of their own.
  bool is_lane(const IndexedTable& table) const { return !one_element(table.indices, axis_); }

  std::string input_text(size_t view) {
    const std::string x = "x" + std::to_string(view) + (repeats(view) ? "" : "[k]"),
                      at = "at" + std::to_string(view), offset = offset_text(view);
    const IndexedTable* table = table_of(view);
    if (table == nullptr) return load_text(view, axis_, x, offset, left());
    if (!is_lane(*table)) return load_text(view, axis_, x, "(" + offset + " + " + at + "[0])", left());
    const Dim stride = axis_ < space_.rank() ? space_.views[view].strides[axis_] : Dim(0);
    const std::string along = is_number(stride, 0) ? "" : " + v * " + offsets_.number(stride);
    return "#pragma unroll\nfor (int v = 0; v < kVector; ++v)\n" +
           std::string(tail_ ? "if (v < left) " : "") + x + ".at[v] = " + operand(view) + "[" + offset +
           along + " + " + at + "[v]];\n";
  }

  std::string element_text() {
    const size_t lists = input_count() - own_inputs();
    std::vector<int> sinks;
    std::string arrays, results, stores;
    for (const TileStore& store : values_.stores) {
      const size_t view = static_cast<size_t>(store.operand) + lists;
      const int value = stored_value(values_, store, space_.views[view].dtype);
      const std::string y = "y" + std::to_string(view - input_count());
      sinks.push_back(value);
      arrays += std::string(tile_cuda_type(store.type)) + " " + y + "[kVector];\n";
      results += y + "[v] = " + tile_reference(values_, value) + ";\n";
      stores += store_text(view, axis_, y, offset_text(view), left());
    }
    std::string text = arrays + "#pragma unroll\nfor (int v = 0; v < kVector; ++v) {\n";
    for (int id : needed_values(values_, sinks, [](int) { return false; }))
      text += tile_definition(
          values_, id, value(id).op == TileOp::load ? loaded(value(id)) : tile_expression(values_, id));
    return text + results + "}\n" + stores;
  }

  std::string loaded(const TileValue& load) const {
    const auto view = static_cast<size_t>(load.operand);
    return tile_loaded(space_.views[view].dtype, "x" + std::to_string(view) + (repeats(view) ? "" : "[k]") +
                                                     ".at[" + (is_single(view) ? "0" : "v") + "]");
  }

  const std::vector<IndexedTable> tables_;
  size_t axis_ = 0, item_axis_ = 0;  // item_axis_ == rank: there is none
  int vector_ = 1, items_ = 1, at_once_ = 1, threads_ = 128;
  bool tail_ = false;
  Shape sizes_;  // of the domain in vectors and items
  Dim count_;
  std::vector<std::vector<Dim>> patterns_;
};

}  // namespace

bool can_run_tile_indexed(const Problem& problem) { return problem.inputs.size() >= 2; }

CudaCode generate_tile_indexed(const CudaProblem& problem) {
  AICF_CHECK(problem.program != nullptr && problem.params.size() == 1 + problem.program->inputs.size() &&
                 problem.inputs.size() > problem.program->inputs.size(),
             "a region over indexed elements needs a program, tables and indices");
  CudaProblem region = problem;
  std::vector<IndexedTable> tables;
  bool wide = false;
  for (size_t i = 0; i < problem.program->inputs.size(); ++i) {
    const int64_t indices = problem.params[1 + i].require_constant("indices of a table");
    if (indices < 0) continue;
    CudaWindow& table = region.inputs[i];
    tables.push_back({i, static_cast<size_t>(indices), table.sizes.back()});
    for (const Dim& elements : {reach(table), Dim(0) - reach(table)})
      wide = wide || upper_bound(elements, ranges_of(problem)) > INT32_MAX / 2;
    table.sizes.pop_back();
    table.strides.pop_back();
  }
  TileSpace space =
      tile_space(all_windows(region), 0, AxisOrder::kFree, AxisOrder::kFree, ranges_of(problem));
  space.wide = space.wide || wide;
  for (const IndexedTable& table : tables)
    space.views[table.view].strides.push_back(problem.inputs[table.view].strides.back());
  return IndexedWriter(region, space, std::move(tables)).write();
}

}  // namespace aicf
