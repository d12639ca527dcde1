// Pointwise regions whose inputs and outputs are contiguous along different axes: a block computes a square
// tile of the two. Inputs that run across the outputs are read along their own axis into shared memory first.
#include <algorithm>

#include "kernels/tile/cuda/tile_way.h"
#include "kernels/tile/cuda/tile_writer.h"

namespace aicf {
namespace {

constexpr int kTransposeThreads = 256;

constexpr size_t kMaxCrossing = 4;  // inputs in shared memory, 9 KB each

class TransposeWriter : public TileWriter {
 public:
  TransposeWriter(const CudaProblem& problem, const TileSpace& space)
      : TileWriter(problem, space, tile_values(*problem.program, [](int) { return true; })) {}

  CudaCode write() {
    across_ = space_.rank() - 2, along_ = space_.rank() - 1;
    vector_ = vector_width(along_);
    int widest = 1;
    for (size_t i = 0; i < input_count(); ++i) {
      if (crossing_axis(space_.views[i]) != static_cast<int>(across_) || crossing_.size() == kMaxCrossing)
        continue;
      crossing_.push_back(i);
      widest = std::max(widest, dtype_bytes(space_.views[i].dtype));
    }
    side_ = widest <= 2 ? 64 : 32;
    const std::string body = body_text();
    CudaLaunch launch;
    launch.function = "tile_transpose" + tile_program_name(values_);
    launch.block = kTransposeThreads;
    launch.grid[0] = tiles(along_) * tiles(across_) * space_count(space_, 0, across_);
    launch.params = params_.dims();
    return {kTileIncludes + cuda_kernel_head(problem_, launch, false) + body + "}\n", {launch}, Dim(0)};
  }

 private:
  Dim tiles(size_t axis) const { return ceildiv(space_.sizes[axis], Dim(side_)); }
  bool crosses(size_t view) const {
    return std::find(crossing_.begin(), crossing_.end(), view) != crossing_.end();
  }
  // Elements of a vector along the axis across.
  int across_vector(size_t view) const {
    return std::min(view_alignment(space_.views[view], across_) / dtype_bytes(space_.views[view].dtype),
                    side_);
  }

  std::string offset_text(size_t view) {
    std::vector<std::string> names;
    for (size_t axis = 0; axis < across_; ++axis) names.push_back("a" + std::to_string(axis));
    names.emplace_back("r");
    names.emplace_back("c");
    return offsets_.sum(space_.views[view], 0, space_.rank(), names);
  }

  std::string body_text() {
    const std::string side = std::to_string(side_);
    std::string text = tile_index_types(space_) + "constexpr int kVector = " + std::to_string(vector_) +
                       ", kSide = " + side + ";\n";
    for (size_t i = 0; i < input_count(); ++i)
      if (crosses(i)) {
        const int pad = std::max(1, 4 / dtype_bytes(space_.views[i].dtype));
        text += "__shared__ alignas(16) " + memory_type(i) + " s" + std::to_string(i) + "[kSide][kSide + " +
                std::to_string(pad) + "];\n";
      }
    text += "const Index columns = " + offsets_.number(space_.sizes[along_]) +
            ", rows = " + offsets_.number(space_.sizes[across_]) + ";\nSize place = blockIdx.x;\n";
    for (const auto& [name, axis] : {std::pair("c0", along_), std::pair("r0", across_)}) {
      const std::string count = "Size(" + offsets_.number(tiles(axis)) + ")";
      text += "const Index " + std::string(name) + " = Index(place % " + count +
              ") * kSide;\nplace /= " + count + ";\n";
    }
    const Shape outer(space_.sizes.begin(), space_.sizes.begin() + static_cast<std::ptrdiff_t>(across_));
    text += offsets_.split("place", outer, "a") + cuda_wait_text(problem_);
    for (size_t i = 0; i < input_count(); ++i)
      if (crosses(i)) text += fill_text(i);
    return text + "__syncthreads();\n" + elements_text();
  }

  // Reads a tile along the axis across into s[along][across].
  std::string fill_text(size_t view) {
    const int width = across_vector(view), per_line = side_ / width;
    const int steps = std::max(1, side_ * per_line / kTransposeThreads);
    const std::string x = "x" + std::to_string(view), w = std::to_string(width);
    const std::string place =
        "const int t = threadIdx.x + k * " + std::to_string(kTransposeThreads) + ", dr = t % " +
        std::to_string(per_line) + " * " + w + ", dc = t / " + std::to_string(per_line) + ";\n" +
        "const Index r = r0 + dr, c = c0 + dc;\n" +
        (side_ * per_line < kTransposeThreads ? "if (dc < kSide && r < rows && c < columns) "
                                              : "if (r < rows && c < columns) ");
    const std::string loop =
        "#pragma unroll\nfor (int k = 0; k < " + std::to_string(steps) + "; ++k) {\n" + place;
    const std::string left = divisible(space_.sizes[across_], width) ? "" : "rows - r";
    const int bytes = std::min(4, width * dtype_bytes(space_.views[view].dtype));
    const int element = dtype_bytes(space_.views[view].dtype);
    return "{\naicf::tile::Vec<" + memory_type(view) + ", " + w + "> " + x + "[" + std::to_string(steps) +
           "];\n" + loop + load_text(view, across_, x + "[k]", offset_text(view), left) + "}\n" + loop +
           "aicf::tile::store<" + std::to_string(std::max(bytes, element)) + ">(&s" + std::to_string(view) +
           "[dc][dr], " + x + "[k]);\n}\n}\n";
  }

  std::string elements_text() {
    const int per_line = side_ / vector_, steps = side_ * per_line / kTransposeThreads;
    const std::string left = divisible(space_.sizes[along_], vector_) ? "" : "columns - c";
    std::string text = "#pragma unroll\nfor (int k = 0; k < " + std::to_string(std::max(1, steps)) +
                       "; ++k) {\nconst int t = threadIdx.x + k * " + std::to_string(kTransposeThreads) +
                       ", dc = t % " + std::to_string(per_line) + " * kVector, dr = t / " +
                       std::to_string(per_line) + ";\nconst Index r = r0 + dr, c = c0 + dc;\nif (" +
                       (steps == 0 ? "dr < kSide && " : "") + "r < rows && c < columns) {\n";
    for (size_t i = 0; i < input_count(); ++i)
      if (!crosses(i))
        text += "aicf::tile::Vec<" + memory_type(i) + ", " + std::to_string(lanes(i, along_, vector_)) +
                "> x" + std::to_string(i) + ";\n" +
                load_text(i, along_, "x" + std::to_string(i), offset_text(i), left);
    std::vector<int> sinks;
    std::string results, stores;
    for (const TileStore& store : values_.stores) {
      const auto view = static_cast<size_t>(store.operand);
      const int stored = stored_value(values_, store, space_.views[view].dtype);
      const std::string y = "y" + std::to_string(view - input_count());
      sinks.push_back(stored);
      text += std::string(tile_cuda_type(store.type)) + " " + y + "[kVector];\n";
      results += y + "[v] = " + tile_reference(values_, stored) + ";\n";
      stores += store_text(view, along_, y, offset_text(view), left);
    }
    text += "#pragma unroll\nfor (int v = 0; v < kVector; ++v) {\n";
    for (int id : needed_values(values_, sinks, [](int) { return false; }))
      text += tile_definition(
          values_, id, value(id).op == TileOp::load ? loaded(value(id)) : tile_expression(values_, id));
    return text + results + "}\n" + stores + "}\n}\n";
  }

  std::string loaded(const TileValue& load) const {
    const auto view = static_cast<size_t>(load.operand);
    const std::string number = std::to_string(view);
    if (crosses(view)) return tile_loaded(space_.views[view].dtype, "s" + number + "[dc + v][dr]");
    return lane_text(view, along_, "x" + number);
  }

  size_t across_ = 0, along_ = 0;
  int vector_ = 1, side_ = 32;
  std::vector<size_t> crossing_;  // inputs that go through shared memory
};

}  // namespace

CudaCode generate_tile_transpose(const CudaProblem& problem, const TileSpace& space) {
  return TransposeWriter(problem, space).write();
}

}  // namespace aicf
