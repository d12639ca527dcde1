// Pointwise regions: every element on its own. All axes may change places and merge; a thread takes several
// vectors a block apart, all loads before the first use. Inputs of which every second to fourth element is
// read come whole. Where rows are dense, but too odd for wide accesses, vectors go on from one row to the
// next.
#include <algorithm>
#include <optional>

#include "kernels/tile/cuda/tile_writer.h"

namespace aicf {
namespace {

constexpr int kLoadedBytes =
    128;  // of a thread's vectors, a quarter of its registers where blocks fill the device
constexpr int kMostApart = 4;  // elements, of which a thread loads all
// Instructions of a vector: by itself, of each division for its place, and of each operand.
constexpr double kPlaceInstructions = 12, kPlaceDivision = 8, kOperandInstructions = 3;

bool is_dense(const TileSpace& space, const TileView& view) {
  for (size_t axis = 0; axis + 1 < space.rank(); ++axis)
    if (view.strides[axis] != view.strides[axis + 1] * space.sizes[axis + 1]) return false;
  return is_number(view.strides.back(), 1);
}

bool repeats(const TileView& view) {
  return std::any_of(view.strides.begin(), view.strides.end(), [](const Dim& s) { return is_number(s, 0); });
}

// Whether vectors may go on from one row to the next: results are dense, and so are inputs, but for those
// that rows share or that have one element for a row.
bool rows_unite(const TileSpace& space, size_t inputs) {
  if (space.rank() < 2) return false;
  for (size_t i = 0; i < space.views.size(); ++i) {
    const TileView& view = space.views[i];
    const Dim& along = view.strides.back();
    if (is_dense(space, view)) continue;
    if (i >= inputs || !repeats(view) || !(is_number(along, 0) || is_number(along, 1))) return false;
  }
  return true;
}

// All elements as one row. Operands that are not dense are left as if they had one element.
TileSpace united_rows(const TileSpace& space) {
  TileSpace all{{space_count(space, 0, space.rank())}, 0, {}, space.wide};
  for (const TileView& view : space.views)
    all.views.push_back({view.dtype, view.offset, {}, {Dim(is_dense(space, view) ? 1 : 0)}});
  return all;
}

class FlatWriter : public TileWriter {
 public:
  // `rows`: of what united_rows() made the space; null: nothing was united.
  FlatWriter(const CudaProblem& problem, const TileSpace& space, const AddedRows* added,
             const TileSpace* rows = nullptr)
      : TileWriter(problem, space,
                   tile_values(*problem.program,
                               [&](int operand) {
                                 return rows == nullptr ||
                                        !is_number(rows->views[static_cast<size_t>(operand)].strides.back(),
                                                   0);
                               })),
        added_(added),
        rows_(rows) {
    choose();
  }

  // An estimate, of an element: those of its vector that are not the program's, and of what it selects.
  double place_instructions() const {
    const auto views = static_cast<double>(space_.views.size());
    double divisions = static_cast<double>(std::max<size_t>(space_.rank(), 1) - 1), own = 0;
    if (rows_ != nullptr) divisions = 1 + 2 * static_cast<double>(rows_->rank() - 2);
    for (size_t i = 0; i < input_count(); ++i)
      own += of_row(i) ? 1 : shared(i) ? 1 + kOperandInstructions : 0;
    return (kPlaceInstructions + kPlaceDivision * divisions + kOperandInstructions * views) / vector_ + own;
  }
  // No vector has elements of more than two rows.
  bool reaches_two_rows() const {
    const Dim& length = rows_->sizes.back();
    return bound(length) < INT64_MAX && bounds(length, *ranges_).lo >= vector_;
  }

  CudaCode write() {
    const std::string body = body_text();
    CudaLaunch launch;
    launch.function = "tile_flat" + tile_program_name(values_);
    launch.block = threads_;
    launch.grid[0] = ceildiv(count_, Dim(int64_t{threads_} * items_));
    launch.params = params_.dims();
    CudaCode code;
    code.source = kTileIncludes;
    code.source +=
        cuda_kernel_head(added_ != nullptr ? *added_->kernel : problem_, launch, added_ != nullptr) + body +
        "}\n";
    code.launches = {launch};
    code.member = is_member(problem_) && added_ == nullptr;
    if (space_.rank() == 1 && problem_.outputs.size() == 1)
      code.block_elements = int64_t{threads_} * items_ * vector_;
    return code;
  }

 private:
  void choose() {
    const size_t rank = space_.rank();
    axis_ = rank - 1;  // wraps for rank 0: no axis
    vector_ = rank == 0 ? 1 : added_ != nullptr ? vector_width(axis_) : store_width(axis_);
    const Dim length = rank == 0 ? Dim(1) : space_.sizes[axis_];
    while (vector_ > 1 && (bound(length) < vector_ || (rank > 1 && !divisible(length, vector_))))
      vector_ /= 2;
    tail_ = !divisible(length, vector_);
    groups_ = tail_ ? ceildiv(length, Dim(vector_)) : *divide_exactly(length, Dim(vector_));
    count_ = (rank == 0 ? Dim(1) : space_count(space_, 0, axis_)) * groups_;
    // 16 bytes that a thread loads keep the memory busy; narrower vectors come several at a time, and so do
    // those that share the work of finding their place, as far as registers hold them.
    const int loaded = loaded_bytes();
    items_ = added_ != nullptr              ? 1
             : rank > 1 || rows_ != nullptr ? 4
                                            : std::clamp(16 / std::max(loaded, 1), 1, 4);
    while (items_ > 1 && items_ * loaded > kLoadedBytes) items_ /= 2;
    // With one vector each, so many hide the latency of memory.
    const int64_t filling = 2048 * problem_.machine.multiprocessors, threads = bound(count_);
    while (items_ > 1 && threads / items_ < 2 * filling) items_ /= 2;
    threads_ = threads < filling ? 128 : items_ == 1 ? 512 : 256;
  }

  // Elements of an input that lie a few elements apart, all of which a thread loads in wide accesses. Each
  // access holds an element that is asked for.
  struct Interleaved {
    int stride = 0, first = 0;  // elements; the place of the first among those loaded
    int alignment = 0;          // bytes
  };
  std::optional<Interleaved> interleaved(size_t view) const {
    const TileView& strided = space_.views[view];
    if (is_output(view) || tail_ || access(view, axis_) != Access::kStrided) return std::nullopt;
    const std::optional<int64_t> stride = strided.strides[axis_].constant(),
                                 offset = strided.offset.constant();
    if (!stride || !offset || *stride < 2 || *stride > kMostApart || *offset < 0) return std::nullopt;
    const int bytes = dtype_bytes(strided.dtype);
    Interleaved found{static_cast<int>(*stride), static_cast<int>(*offset % *stride), 0};
    TileView whole = strided;
    whole.offset = Dim(*offset - found.first);
    found.alignment = view_alignment(whole, axis_);
    int accessed = 1;  // bytes, as access_bytes() in tile_vectors.cuh
    while (2 * accessed <= found.alignment && found.stride * vector_ * bytes % (2 * accessed) == 0)
      accessed *= 2;
    if (accessed < found.stride * bytes) return std::nullopt;
    return found;
  }
  // Of united rows: operands with an element for each row, and those that rows share.
  bool varies_by_row(size_t view) const {
    if (rows_ == nullptr || access(view, axis_) != Access::kUniform) return false;
    const std::vector<Dim>& strides = rows_->views[view].strides;
    return std::any_of(strides.begin(), strides.end(), [](const Dim& s) { return !is_number(s, 0); });
  }
  bool of_row(size_t view) const {
    return varies_by_row(view) && is_number(rows_->views[view].strides.back(), 0);
  }
  bool shared(size_t view) const { return varies_by_row(view) && !of_row(view); }
  bool is_uniform(size_t view) const {
    return access(view, axis_) == Access::kUniform && !varies_by_row(view);
  }

  int loaded_lanes(size_t view) const {
    if (varies_by_row(view)) return of_row(view) ? 2 : vector_;
    const std::optional<Interleaved> whole = interleaved(view);
    return whole ? whole->stride * vector_ : lanes(view, axis_, vector_);
  }
  int loaded_bytes() const {
    int sum = 0;
    for (size_t i = 0; i < input_count(); ++i)
      if (!is_uniform(i)) sum += loaded_lanes(i) * dtype_bytes(space_.views[i].dtype);
    return sum;
  }
  std::string input_text(size_t view, const std::string& x) {
    if (const std::optional<Interleaved> whole = interleaved(view))
      return "aicf::tile::load<" + std::to_string(whole->alignment) + ">(" + x + ", " + operand(view) +
             " + (" + offset_text(view) + " - " + std::to_string(whole->first) + "));\n";
    return load_text(view, axis_, x, offset_text(view), tail_ ? "length - c" : "");
  }

  // Number of the distinct offset of a view; -1: none.
  int offset_of(size_t view) {
    if (access(view, axis_) == Access::kUniform) return -1;
    const std::vector<Dim>& strides = space_.views[view].strides;
    auto at = std::find(patterns_.begin(), patterns_.end(), strides);
    if (at == patterns_.end()) at = patterns_.insert(patterns_.end(), strides);
    return static_cast<int>(at - patterns_.begin());
  }
  std::string offset_text(size_t view) {
    const int number = offset_of(view);
    return number < 0 ? "0" : "o" + std::to_string(number) + "[k]";
  }

  std::string body_text() {
    for (size_t i = 0; i < space_.views.size(); ++i) offset_of(i);
    const std::string step = std::to_string(threads_);
    std::string text = tile_index_types(space_) + "constexpr int kVector = " + std::to_string(vector_) +
                       ", kItems = " + std::to_string(items_) + ";\n";
    text += "const Size count = " + offsets_.number(count_) + ";\nconst Size first = Size(block_index) * (" +
            step + " * kItems) + threadIdx.x;\n";
    if (tail_) text += "const Index length = " + offsets_.number(space_.sizes[axis_]) + ";\n";
    text += cuda_wait_text(problem_) + declarations();
    text += "#pragma unroll\nfor (int k = 0; k < kItems; ++k) {\nSize i = first + k * " + step +
            ";\nif (i < count) {\n";
    text += coordinates();
    for (size_t i = 0; i < input_count(); ++i)
      if (access(i, axis_) != Access::kUniform && !is_added(i)) {
        const std::string x = "x" + std::to_string(i) + "[k]";
        text += input_text(i, x);
      }
    text += rows_text() + added_text();
    text +=
        "}\n}\n#pragma unroll\nfor (int k = 0; k < kItems; ++k) {\nif (first + k * " + step + " < count) {\n";
    if (tail_) text += "const Index c = Index(first + k * " + step + ") * kVector;\n";
    return text + element_text() + "}\n}\n";
  }

  bool is_added(size_t view) const { return added_ != nullptr && added_->view == view; }

  // The updates of the vector's row, added to zero in their order: asked for behind the other operands, for
  // where they lie must be read first.
  std::string added_text() {
    if (added_ == nullptr) return "";
    const size_t view = added_->view;
    const std::string element = memory_type(view), x = "x" + std::to_string(view) + "[k]",
                      row = offset_text(space_.views.size() - 1);
    return "const int64_t row = " + row + ", row_length = " + offsets_.number(space_.views[view].strides[0]) +
           ", inner = " + offset_text(view) + " - row * row_length;\naicf::Fold<aicf::kAdd, kVector, " +
           element +
           "> sum;\n#pragma unroll\nfor (int v = 0; v < kVector; ++v) sum.value[v] = 0;\n"
           "sum.add_run<kHasLong>(sorted, starts[row], starts[row + 1], aicf::stored<kVector>([&](const "
           "auto* "
           "item) { return " +
           operand(view) +
           " + item->index() * row_length + inner; }), partials + inner, long_partials + inner, "
           "row_length);\n"
           "#pragma unroll\nfor (int v = 0; v < kVector; ++v) " +
           x + ".at[v] = aicf::Element<" + element + ">::store(sum.value[v]);\n";
  }

  std::string declarations() {
    std::string text = added_ != nullptr ? added_->tables(params_) : "";
    for (size_t i = 0; i < input_count(); ++i) {
      const std::string number = std::to_string(i);
      if (is_uniform(i))
        text += "const " + memory_type(i) + " u" + number + " = *" + operand(i) + ";\n";
      else
        text += "aicf::tile::Vec<" + memory_type(i) + ", " + std::to_string(loaded_lanes(i)) + "> x" +
                number + "[kItems];\n";
    }
    for (size_t i = 0; i < patterns_.size(); ++i) text += "Index o" + std::to_string(i) + "[kItems];\n";
    return text + (rows_ != nullptr ? "Index in_row[kItems];\n" : "");
  }

  // Of vector i: the axes' coordinates a0…, the last one c, and from them the offsets.
  std::string coordinates() {
    if (space_.rank() == 0) return "";
    Shape sizes = space_.sizes;
    sizes.back() = groups_;
    std::vector<std::string> names;
    for (size_t axis = 0; axis < axis_; ++axis) names.push_back("a" + std::to_string(axis));
    names.emplace_back("c");
    std::string text = offsets_.split("i", sizes, "a");
    text += "const Index c = a" + std::to_string(axis_) + " * kVector;\n";
    for (size_t i = 0; i < patterns_.size(); ++i)
      text += "o" + std::to_string(i) + "[k] = " +
              offsets_.sum(TileView{DType::f32, Dim(0), {}, patterns_[i]}, 0, space_.rank(), names) + ";\n";
    return text;
  }

  std::string row_length() { return offsets_.number(rows_->sizes.back()); }
  // Of united rows: where in its row the vector begins, and the elements of that row and of the next.
  std::string rows_text() {
    if (rows_ == nullptr) return "";
    const size_t outer = rows_->rank() - 1;
    const std::string length = "Size(" + row_length() + ")";
    std::vector<std::string> names;
    for (size_t axis = 0; axis < outer; ++axis) names.push_back("b" + std::to_string(axis));
    std::string offsets, loads, lanes;
    for (size_t i = 0; i < input_count(); ++i) {
      if (!varies_by_row(i)) continue;
      const std::string number = std::to_string(i), x = "x" + number + "[k].at",
                        at = offsets_.sum(rows_->views[i], 0, outer, names);
      if (of_row(i)) {
        loads += x + "[r] = " + operand(i) + "[" + at + "];\n";
        continue;
      }
      offsets += "Index q" + number + "[2];\n";
      loads += "q" + number + "[r] = " + at + ";\n";
      lanes += x + "[v] = " + operand(i) + "[(next ? q" + number + "[1] - " + row_length() + " : q" + number +
               "[0]) + in_row[k] + v];\n";
    }
    const Shape sizes(rows_->sizes.begin(), rows_->sizes.end() - 1);
    return "const Size row = Size(c) / " + length + ";\nin_row[k] = Index(Size(c) - row * " + length +
           ");\n" + offsets + "#pragma unroll\nfor (int r = 0; r < 2; ++r) {\nSize at = row + r < Size(" +
           offsets_.number(space_count(*rows_, 0, outer)) + ") ? row + r : row;\n" +
           offsets_.split("at", sizes, "b") + loads + "}\n" +
           (lanes.empty()
                ? ""
                : "#pragma unroll\nfor (int v = 0; v < kVector; ++v) {\n" + next_text() + lanes + "}\n");
  }
  std::string next_text() { return "const bool next = in_row[k] + v >= " + row_length() + ";\n"; }

  // Of united rows: what is the same for a row is computed for both rows of the vector. `of_rows` gets the
  // values that elements take from there.
  std::string row_values_text(const std::vector<int>& needed, const std::vector<int>& sinks,
                              std::string& of_rows) {
    std::string arrays, body;
    const auto read = [&](int id) {
      const auto reads = [&](int user) {
        const auto& args = value(user).args;
        return !value(user).per_row && std::find(args.begin(), args.end(), id) != args.end();
      };
      return std::find(sinks.begin(), sinks.end(), id) != sinks.end() ||
             std::any_of(needed.begin(), needed.end(), reads);
    };
    for (int id : needed) {
      if (!value(id).per_row) continue;
      body += tile_definition(
          values_, id, value(id).op == TileOp::load ? loaded(value(id)) : tile_expression(values_, id));
      if (!read(id)) continue;
      const std::string w = "w" + std::to_string(id), reference = tile_reference(values_, id);
      arrays += value_type(id) + " " + w + "[2];\n";
      body += w + "[r] = " + reference + ";\n";
      of_rows += tile_definition(values_, id, "next ? " + w + "[1] : " + w + "[0]");
    }
    if (!of_rows.empty()) of_rows = next_text() + of_rows;
    return body.empty() ? "" : arrays + "#pragma unroll\nfor (int r = 0; r < 2; ++r) {\n" + body + "}\n";
  }

  std::string element_text() {
    std::vector<int> sinks;
    std::string arrays, results, stores;
    for (const TileStore& store : values_.stores) {
      const auto view = static_cast<size_t>(store.operand);
      const int value = stored_value(values_, store, space_.views[view].dtype);
      const std::string y = "y" + std::to_string(view - input_count());
      sinks.push_back(value);
      arrays += std::string(tile_cuda_type(store.type)) + " " + y + "[kVector];\n";
      results += y + "[v] = " + tile_reference(values_, value) + ";\n";
      stores += store_text(view, axis_, y, offset_text(view), tail_ ? "length - c" : "");
    }
    const std::vector<int> needed = needed_values(values_, sinks, [](int) { return false; });
    std::string of_rows, text = arrays;
    if (rows_ != nullptr) text += row_values_text(needed, sinks, of_rows);
    text += "#pragma unroll\nfor (int v = 0; v < kVector; ++v) {\n" + of_rows;
    for (int id : needed)
      if (rows_ == nullptr || !value(id).per_row)
        text += tile_definition(
            values_, id, value(id).op == TileOp::load ? loaded(value(id)) : tile_expression(values_, id));
    return text + results + "}\n" + stores;
  }

  std::string loaded(const TileValue& load) const {
    const auto view = static_cast<size_t>(load.operand);
    const std::string number = std::to_string(view);
    const Access how = access(view, axis_);
    const std::string element = of_row(view)              ? "x" + number + "[k].at[r]"
                                : shared(view)            ? "x" + number + "[k].at[v]"
                                : how == Access::kUniform ? "u" + number
                                : how == Access::kRepeat  ? "x" + number + "[k].at[0]"
                                                          : "x" + number + "[k].at[" + lane(view) + "]";
    return tile_loaded(space_.views[view].dtype, element);
  }

  // Of element v, in what input_text() loads.
  std::string lane(size_t view) const {
    const std::optional<Interleaved> whole = interleaved(view);
    return whole ? std::to_string(whole->stride) + " * v + " + std::to_string(whole->first) : "v";
  }

  const AddedRows* added_;  // null: none
  const TileSpace* rows_;   // null: none
  size_t axis_ = 0;
  int vector_ = 1, items_ = 1, threads_ = 128;
  bool tail_ = false;
  Dim groups_, count_;  // vectors along the last axis, in all
  std::vector<std::vector<Dim>> patterns_;
};

}  // namespace

CudaCode generate_tile_flat(const CudaProblem& problem, const TileSpace& space, const AddedRows* added) {
  FlatWriter writer(problem, space, added);
  if (added == nullptr && rows_unite(space, problem.inputs.size())) {
    FlatWriter united(problem, united_rows(space), nullptr, &space);
    if (united.reaches_two_rows() && united.place_instructions() < writer.place_instructions())
      return united.write();
  }
  return writer.write();
}

}  // namespace aicf
