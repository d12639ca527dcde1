// What the kernels of the family tile share when they write text: operands of a problem over a TileSpace,
// distinct offsets, vector width, loads and stores of one vector.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kernels/tile/cuda/tile_text.h"

namespace aicf {

class TileWriter {
 public:
  // Views are those of `space`, values those of the program.
  TileWriter(const CudaProblem& problem, TileSpace space, TileValues values);

 protected:
  // How a view is read along the axis that vectors run on.
  enum class Access { kUniform, kRepeat, kContiguous, kStrided };

  size_t input_count() const { return problem_.inputs.size(); }
  bool is_output(size_t view) const { return view >= input_count(); }
  std::string operand(size_t view) const;  // "in0", "out1"; masks as bytes
  std::string memory_type(size_t view) const {
    return std::string(tile_memory_type(space_.views[view].dtype));
  }
  Access access(size_t view, size_t axis) const;
  // Elements of a vector along `axis`: 16 bytes of the narrowest contiguous view, less where alignment asks
  // for it.
  int vector_width(size_t axis) const;
  // The same where inputs may be shifted (Shifted in tile_vectors.cuh), so that only the alignment of outputs
  // counts; the aligned width if that is half as much or more.
  int shifted_width(size_t axis) const;
  // Inputs of which vectors are shifted: aligned accesses would be of less than half of the bytes, for a
  // shifted vector takes one access more.
  void choose_shifted(size_t axis, int vector);
  bool shifted(size_t view) const { return view < shifted_.size() && shifted_[view]; }
  // The array's type and name: `x` and the view's number.
  std::string array_text(size_t view, size_t axis, int vector) const;
  // Of a vector in a thread's registers.
  int register_bytes(size_t view, size_t axis, int vector) const;
  // The same where every element is on its own. A lane stores 16 bytes of a result at most: neighbouring
  // lanes then fill whole sectors of memory with each store. It loads a sector of an input at most, in as
  // narrow accesses as the input's alignment asks for.
  int store_width(size_t axis) const;
  // Loads operand `view` into the vector `x` (one element of it for kRepeat) from `offset`. `left` names the
  // count of elements that exist; empty: all do.
  std::string load_text(size_t view, size_t axis, const std::string& x, const std::string& offset,
                        const std::string& left);
  // Stores the register array `y`.
  std::string store_text(size_t view, size_t axis, const std::string& y, const std::string& offset,
                         const std::string& left);
  bool one_element(size_t view, size_t axis) const {
    return access(view, axis) == Access::kRepeat || access(view, axis) == Access::kUniform;
  }
  int lanes(size_t view, size_t axis, int vector) const { return one_element(view, axis) ? 1 : vector; }
  // Lane v of the vector `x` that load_text filled.
  std::string lane_text(size_t view, size_t axis, const std::string& x) const {
    const DType dtype = space_.views[view].dtype;
    if (one_element(view, axis)) return tile_loaded(dtype, x + ".at[0]");
    return dtype == DType::boolean ? x + ".at[v] != 0" : "aicf::tile::lane(" + x + ", v)";
  }
  std::string value_type(int value) const {
    return std::string(tile_cuda_type(values_.values[static_cast<size_t>(value)].result));
  }
  const TileValue& value(int id) const { return values_.values[static_cast<size_t>(id)]; }
  int64_t bound(const Dim& dim) const { return upper_bound(dim, *ranges_); }

  const CudaProblem& problem_;
  const SymbolRanges* ranges_;
  TileSpace space_;
  TileValues values_;
  CudaParams params_;
  TileOffsets offsets_;

 private:
  // Of 16 bytes of the narrowest contiguous view, whatever its alignment.
  int widest_vector(size_t axis) const;

  std::vector<bool> shifted_;  // by view; empty: none
};

// Windows of a problem, inputs first.
std::vector<CudaWindow> all_windows(const CudaProblem& problem);

// The operand `view` of a pointwise region is what rows of updates add up to from zero. Of `kernel` that
// operand is the updates, one row behind the other; the last view of the space is the number of the row.
// `tables` is the text of tables_text() (scatter_cuda.h).
struct AddedRows {
  const CudaProblem* kernel = nullptr;
  size_t view = 0;
  std::function<std::string(CudaParams&)> tables = {};
};

// The kernels; `generate_tile` chooses.
CudaCode generate_tile_flat(const CudaProblem& problem, const TileSpace& space,
                            const AddedRows* added = nullptr);
CudaCode generate_tile_transpose(const CudaProblem& problem, const TileSpace& space);
struct GatheredRows;
CudaCode generate_tile_rows(const CudaProblem& problem, const TileSpace& space,
                            const GatheredRows* gathered = nullptr);
CudaCode generate_tile_columns(const CudaProblem& problem, const TileSpace& space);

}  // namespace aicf
