// Pointwise regions: every element on its own. All axes may change places and merge; a thread takes several
// vectors a block apart, all loads before the first use. Inputs of which every second to fourth element is
// read come whole.
#include <algorithm>
#include <optional>

#include "kernels/tile/cuda/tile_writer.h"

namespace aicf {
namespace {

constexpr int kLoadedBytes =
    128;  // of a thread's vectors, a quarter of its registers where blocks fill the device
constexpr int kMostApart = 4;  // elements, of which a thread loads all

class FlatWriter : public TileWriter {
 public:
  FlatWriter(const CudaProblem& problem, const TileSpace& space, const AddedRows* added)
      : TileWriter(problem, space, tile_values(*problem.program, [](int) { return true; })), added_(added) {}

  CudaCode write() {
    choose();
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
    items_ = added_ != nullptr ? 1 : rank > 1 ? 4 : std::clamp(16 / std::max(loaded, 1), 1, 4);
    while (items_ > 1 && items_ * loaded > kLoadedBytes) items_ /= 2;
    // With one vector each, so many hide the latency of memory.
    const int64_t filling = 2048 * problem_.machine.multiprocessors, threads = bound(count_);
    while (items_ > 1 && threads / items_ < 2 * filling) items_ /= 2;
    threads_ = threads < filling ? 128 : items_ > 1 ? 256 : has_functions() ? 128 : 512;
  }

  // Tens of instructions an element. Small blocks then make room for others that load sooner, one by one.
  bool has_functions() const {
    return std::any_of(values_.values.begin(), values_.values.end(), [](const TileValue& v) {
      return (v.op >= TileOp::exp && v.op <= TileOp::erf) || (v.op >= TileOp::rem && v.op <= TileOp::atan2) ||
             v.op == TileOp::sigmoid || v.op == TileOp::gelu || v.op == TileOp::gelu_tanh;
    });
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
    int accessed = 1;  // bytes, as access_bytes() in tile_memory.cuh
    while (2 * accessed <= found.alignment && found.stride * vector_ * bytes % (2 * accessed) == 0)
      accessed *= 2;
    if (accessed < found.stride * bytes) return std::nullopt;
    return found;
  }
  int loaded_lanes(size_t view) const {
    const std::optional<Interleaved> whole = interleaved(view);
    return whole ? whole->stride * vector_ : lanes(view, axis_, vector_);
  }
  int loaded_bytes() const {
    int sum = 0;
    for (size_t i = 0; i < input_count(); ++i)
      if (access(i, axis_) != Access::kUniform) sum += loaded_lanes(i) * dtype_bytes(space_.views[i].dtype);
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
    text += added_text();
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
      if (access(i, axis_) == Access::kUniform)
        text += "const " + memory_type(i) + " u" + number + " = *" + operand(i) + ";\n";
      else
        text += "aicf::tile::Vec<" + memory_type(i) + ", " + std::to_string(loaded_lanes(i)) + "> x" +
                number + "[kItems];\n";
    }
    for (size_t i = 0; i < patterns_.size(); ++i) text += "Index o" + std::to_string(i) + "[kItems];\n";
    return text;
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
    std::string text = arrays + "#pragma unroll\nfor (int v = 0; v < kVector; ++v) {\n";
    for (int id : needed_values(values_, sinks, [](int) { return false; }))
      text += tile_definition(
          values_, id, value(id).op == TileOp::load ? loaded(value(id)) : tile_expression(values_, id));
    return text + results + "}\n" + stores;
  }

  std::string loaded(const TileValue& load) const {
    const auto view = static_cast<size_t>(load.operand);
    const std::string number = std::to_string(view);
    const Access how = access(view, axis_);
    const std::string element = how == Access::kUniform  ? "u" + number
                                : how == Access::kRepeat ? "x" + number + "[k].at[0]"
                                                         : "x" + number + "[k].at[" + lane(view) + "]";
    return tile_loaded(space_.views[view].dtype, element);
  }

  // Of element v, in what input_text() loads.
  std::string lane(size_t view) const {
    const std::optional<Interleaved> whole = interleaved(view);
    return whole ? std::to_string(whole->stride) + " * v + " + std::to_string(whole->first) : "v";
  }

  const AddedRows* added_;  // null: none
  size_t axis_ = 0;
  int vector_ = 1, items_ = 1, threads_ = 128;
  bool tail_ = false;
  Dim groups_, count_;  // vectors along the last axis, in all
  std::vector<std::vector<Dim>> patterns_;
};

}  // namespace

CudaCode generate_tile_flat(const CudaProblem& problem, const TileSpace& space, const AddedRows* added) {
  return FlatWriter(problem, space, added).write();
}

}  // namespace aicf
