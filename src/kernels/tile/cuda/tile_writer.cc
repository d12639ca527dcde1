#include "kernels/tile/cuda/tile_writer.h"

#include <algorithm>

namespace aicf {
namespace {

// Accesses of a vector along `axis` are as wide as any.
bool aligned(const TileView& view, size_t axis, int vector) {
  return view_alignment(view, axis) >= std::min(16, vector * dtype_bytes(view.dtype));
}

}  // namespace

TileWriter::TileWriter(const CudaProblem& problem, TileSpace space, TileValues values)
    : problem_(problem),
      ranges_(&ranges_of(problem)),
      space_(std::move(space)),
      values_(std::move(values)),
      offsets_(space_, params_) {}

std::string TileWriter::operand(size_t view) const {
  const bool output = is_output(view);
  const std::string name =
      output ? "out" + std::to_string(view - input_count()) : "in" + std::to_string(view);
  if (space_.views[view].dtype != DType::boolean) return name;
  return "reinterpret_cast<" + std::string(output ? "" : "const ") + "uint8_t*>(" + name + ")";
}

TileWriter::Access TileWriter::access(size_t view, size_t axis) const {
  const std::vector<Dim>& strides = space_.views[view].strides;
  if (std::all_of(strides.begin(), strides.end(), [](const Dim& s) { return is_number(s, 0); }))
    return Access::kUniform;
  if (axis >= strides.size() || is_number(strides[axis], 0)) return Access::kRepeat;
  return is_number(strides[axis], 1) ? Access::kContiguous : Access::kStrided;
}

int TileWriter::widest_vector(size_t axis) const {
  int narrowest = 16, widest = 1;
  for (size_t i = 0; i < space_.views.size(); ++i) {
    if (access(i, axis) != Access::kContiguous) continue;
    narrowest = std::min(narrowest, dtype_bytes(space_.views[i].dtype));
    widest = std::max(widest, dtype_bytes(space_.views[i].dtype));
  }
  int width = 16 / narrowest;
  while (width > 1 && width * widest > 64) width /= 2;
  return width;
}

int TileWriter::vector_width(size_t axis) const {
  int width = widest_vector(axis);
  for (size_t i = 0; i < space_.views.size(); ++i)
    if (access(i, axis) == Access::kContiguous)
      while (width > 1 && !aligned(space_.views[i], axis, width)) width /= 2;
  return width;
}

int TileWriter::shifted_width(size_t axis) const {
  int width = widest_vector(axis);
  for (size_t i = input_count(); i < space_.views.size(); ++i)
    if (access(i, axis) == Access::kContiguous)
      while (width > 1 && !aligned(space_.views[i], axis, width)) width /= 2;
  const int narrow = vector_width(axis);
  return width > 2 * narrow ? width : narrow;
}

void TileWriter::choose_shifted(size_t axis, int vector) {
  shifted_.assign(input_count(), false);
  for (size_t i = 0; i < input_count(); ++i)
    shifted_[i] =
        access(i, axis) == Access::kContiguous &&
        2 * view_alignment(space_.views[i], axis) < std::min(16, vector * dtype_bytes(space_.views[i].dtype));
}

std::string TileWriter::array_text(size_t view, size_t axis, int vector) const {
  return "aicf::tile::" + std::string(shifted(view) ? "Shifted" : "Vec") + "<" + memory_type(view) + ", " +
         std::to_string(lanes(view, axis, vector)) + "> x" + std::to_string(view);
}

int TileWriter::register_bytes(size_t view, size_t axis, int vector) const {
  const int bytes = lanes(view, axis, vector) * dtype_bytes(space_.views[view].dtype);
  return shifted(view) ? bytes + std::min(16, bytes) : bytes;
}

int TileWriter::store_width(size_t axis) const {
  int width = 16;
  bool stores = false;
  const auto shrink = [&](auto fits) {
    while (width > 1 && !fits()) width /= 2;
  };
  for (size_t i = 0; i < space_.views.size(); ++i) {
    if (access(i, axis) != Access::kContiguous) continue;
    const TileView& view = space_.views[i];
    const int bytes = dtype_bytes(view.dtype);
    shrink([&] { return width * bytes <= (is_output(i) ? 16 : 32); });
    if (!is_output(i)) continue;
    stores = true;
    shrink([&] { return width * bytes <= view_alignment(view, axis); });
  }
  return stores ? width : std::min(width, vector_width(axis));
}

std::string TileWriter::load_text(size_t view, size_t axis, const std::string& x, const std::string& offset,
                                  const std::string& left) {
  const std::string from = operand(view) + (offset == "0" ? "" : " + " + offset);
  switch (access(view, axis)) {
    case Access::kContiguous: {
      if (shifted(view))
        return "aicf::tile::load_shifted(" + x + ", " + from + ", Index(" +
               (left.empty() ? "kVector" : left) + "));\n";
      const std::string alignment = std::to_string(view_alignment(space_.views[view], axis));
      return left.empty()
                 ? "aicf::tile::load<" + alignment + ">(" + x + ", " + from + ");\n"
                 : "aicf::tile::load_some<" + alignment + ">(" + x + ", " + from + ", " + left + ");\n";
    }
    case Access::kStrided:
      return "aicf::tile::load_each(" + x + ", " + from + ", Index(" +
             offsets_.number(space_.views[view].strides[axis]) + "), Index(" +
             (left.empty() ? "kVector" : left) + "));\n";
    default:
      return x + ".at[0] = *(" + from + ");\n";
  }
}

std::string TileWriter::store_text(size_t view, size_t axis, const std::string& y, const std::string& offset,
                                   const std::string& left) {
  const std::string to = operand(view) + (offset == "0" ? "" : " + " + offset);
  std::string text =
      "{\naicf::tile::Vec<" + memory_type(view) + ", kVector> z;\naicf::tile::narrow(z, " + y + ");\n";
  if (access(view, axis) == Access::kContiguous) {
    const std::string alignment = std::to_string(view_alignment(space_.views[view], axis));
    text += left.empty() ? "aicf::tile::store<" + alignment + ">(" + to + ", z);\n"
                         : "aicf::tile::store_some<" + alignment + ">(" + to + ", z, " + left + ");\n";
  } else {
    const Dim stride = axis < space_.rank() ? space_.views[view].strides[axis] : Dim(0);
    text += "aicf::tile::store_each(" + to + ", z, Index(" + offsets_.number(stride) + "), Index(" +
            (left.empty() ? "kVector" : left) + "));\n";
  }
  return text + "}\n";
}

std::vector<CudaWindow> all_windows(const CudaProblem& problem) {
  std::vector<CudaWindow> windows = problem.inputs;
  windows.insert(windows.end(), problem.outputs.begin(), problem.outputs.end());
  return windows;
}

}  // namespace aicf
